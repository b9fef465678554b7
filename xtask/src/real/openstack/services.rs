//! The running control plane: database, broker, and the processes of six services.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::configuration::{self, ADMINISTRATOR_PASSWORD, REGION, Values};
use super::programs::Programs;
use crate::control_plane::pause;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::ports;
use crate::workspace::output_of;

/// A start takes half a minute on an idle computer with two cores.
const STARTS_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs a server, and starts it again when it has ended: tests kill it by the id in the file.
const SUPERVISOR: &str = r#"
file=$1
shift
while :; do
  "$@" & echo $! >"$file"
  wait $!
  echo "ended with code $?"
  sleep 1
done
"#;

/// A service with a server, and the module of its application.
struct Api {
    name: &'static str,
    module: &'static str,
}

const APIS: [Api; 6] = [
    // The others need it first.
    Api { name: "keystone", module: "keystone.wsgi.api" },
    Api { name: "placement", module: "placement.wsgi.api" },
    Api { name: "glance", module: "glance.wsgi.api" },
    Api { name: "nova", module: "nova.wsgi.osapi_compute" },
    Api { name: "neutron", module: "neutron.wsgi.api" },
    Api { name: "cinder", module: "cinder.wsgi.api" },
];

/// Processes without a server, with their configuration.
const WORKERS: [(&str, &str); 5] = [
    ("nova-conductor", "nova"),
    ("nova-scheduler", "nova"),
    ("nova-compute", "nova"),
    ("cinder-scheduler", "cinder"),
    ("cinder-volume", "cinder"),
];

/// A driver of Neutron is found by an entry point, so the files beside this one are a package.
const PACKAGE: &[(&str, &str)] = &[
    ("machinist_ports.py", include_str!("machinist_ports.py")),
    ("machinist_volumes.py", include_str!("machinist_volumes.py")),
    ("machinist-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: machinist\nVersion: 0\n"),
    (
        "machinist-0.dist-info/entry_points.txt",
        "[neutron.ml2.mechanism_drivers]\nmachinist = machinist_ports:PortDriver\n",
    ),
];
/// Name of the file with the requests. It is not kept with the logs.
const REQUESTS: &str = "requests";
const SERVER: &str = include_str!("serve.py");
const CLIENT: &str = include_str!("client.py");

/// Description of the control plane for the client.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Lane<'a> {
    #[serde(flatten)]
    urls: BTreeMap<&'static str, String>,
    region: &'static str,
    admin_password: &'static str,
    token_seconds: u32,
    pid_files: BTreeMap<&'a str, PathBuf>,
}

/// A running control plane. A drop ends all processes and removes the folder.
pub(in crate::real) struct Services {
    programs: Programs,
    folder: PathBuf,
    processes: Processes,
    ports: BTreeMap<&'static str, u16>,
    requests: RequestLog,
}

impl Services {
    /// Starts everything, and prepares a project with all that a server needs.
    ///
    /// # Errors
    /// If a process ends, or the control plane is not ready in time. The logs are kept.
    pub(in crate::real) fn start(programs: &Programs, token_seconds: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("machinist-openstack-").tempdir();
        // The warden of the processes removes it.
        let folder = folder.context("cannot create a folder")?.keep();
        let processes = Processes::new(&folder, Afterwards::Remove)?;
        let names = APIS.iter().map(|api| api.name).chain(["amqp", "mapper", "broker"]);
        let ports = free_ports(names)?;
        let requests = RequestLog::create(&folder.join(REQUESTS))?;
        let mut services = Self { programs: programs.clone(), folder, processes, ports, requests };
        let outcome = services.run(token_seconds);
        if outcome.is_err() {
            services.keep_logs()?;
        }
        outcome.map(|()| services)
    }

    fn run(&mut self, token_seconds: u32) -> Result<()> {
        self.write_files(token_seconds)?;
        let database = self.programs.database(&self.folder)?;
        self.spawn("mariadbd", database)?;
        let mapper = self.programs.port_mapper(self.ports["mapper"])?;
        self.spawn("epmd", mapper)?;
        let broker_folder = self.folder.join("rabbitmq");
        let broker = self.programs.broker(&broker_folder, self.ports["mapper"], self.ports["broker"])?;
        self.spawn("rabbitmq", broker)?;
        let socket = self.folder.join("mysql.sock");
        self.wait_until("the database", || UnixStream::connect(&socket).is_ok())?;
        for api in &APIS {
            self.spawn_api(api)?;
        }
        let (amqp, keystone) = (self.ports["amqp"], self.ports["keystone"]);
        self.wait_until("the broker", || ports::listens(amqp))?;
        self.wait_until("keystone", || ports::listens(keystone))?;
        self.client(&["register".as_ref(), &self.folder.join("lane.json")])?;
        // Some of them end if they find no user and no catalog.
        for (name, configuration) in WORKERS {
            self.spawn_worker(name, configuration)?;
        }
        self.client(&["create".as_ref(), &self.folder.join("lane.json"), &self.description()])?;
        self.ensure_alive()
    }

    /// Returns the file that describes the project to the tests.
    pub(in crate::real) fn description(&self) -> PathBuf {
        self.folder.join("description.json")
    }

    /// Number of requests of our driver, by method and path with `{id}` for each id.
    pub(in crate::real) fn requests(&mut self) -> Result<&BTreeMap<String, u64>> {
        self.requests.read()
    }

    /// Uses the control plane with a client that the driver did not write. Returns its output.
    pub(super) fn client(&self, arguments: &[&Path]) -> Result<String> {
        output_of(self.programs.python().arg(self.folder.join("client.py")).args(arguments))
    }

    /// Fails if a process has ended. A server that was killed is started again, and counts as
    /// running.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        match self.processes.ended()? {
            None => Ok(()),
            Some(ended) => bail!("{} ended ({}):\n{}", ended.name, ended.status, ended.log_tail),
        }
    }

    /// Copies the logs to a folder that stays, for the reader of a failure.
    pub(in crate::real) fn keep_logs(&self) -> Result<()> {
        let kept = tempfile::Builder::new().prefix("machinist-logs-").tempdir()?.keep();
        for entry in fs::read_dir(&self.folder)? {
            let file = entry?.path();
            if let (Some("log"), Some(name)) =
                (file.extension().and_then(|extension| extension.to_str()), file.file_name())
            {
                fs::copy(&file, kept.join(name))
                    .with_context(|| format!("cannot copy {}", file.display()))?;
            }
        }
        eprintln!("the logs are in {}", kept.display());
        Ok(())
    }

    fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}", self.ports[name])
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pid"))
    }

    fn write_files(&self, token_seconds: u32) -> Result<()> {
        self.programs.copy_state(&self.folder)?;
        let etc = self.folder.join("etc");
        configuration::write(
            &etc,
            &Values {
                folder: self.folder.clone(),
                environment: self.programs.environment(),
                keystone: self.url("keystone"),
                glance: self.url("glance"),
                amqp_port: self.ports["amqp"],
                token_seconds,
            },
        )?;
        fs::create_dir(self.folder.join("rabbitmq"))?;
        fs::copy(etc.join("rabbitmq.conf"), self.folder.join("rabbitmq/rabbitmq.conf"))?;
        let package = self.folder.join("python");
        fs::create_dir_all(package.join("machinist-0.dist-info"))?;
        for (name, text) in PACKAGE {
            fs::write(package.join(name), text)?;
        }
        fs::write(self.folder.join("serve.py"), SERVER)?;
        fs::write(self.folder.join("client.py"), CLIENT)?;
        let lane = Lane {
            urls: APIS.iter().map(|api| (api.name, self.url(api.name))).collect(),
            region: REGION,
            admin_password: ADMINISTRATOR_PASSWORD,
            token_seconds,
            pid_files: APIS.iter().map(|api| (api.name, self.pid_file(api.name))).collect(),
        };
        fs::write(self.folder.join("lane.json"), serde_json::to_string(&lane)?)?;
        Ok(())
    }

    fn spawn_api(&mut self, api: &Api) -> Result<()> {
        let etc = self.folder.join("etc");
        let server = self.programs.python();
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(self.pid_file(api.name));
        command.arg(server.get_program()).arg(self.folder.join("serve.py"));
        command.arg(api.module).arg(self.ports[api.name].to_string());
        // Some services take the file as an argument, and some from a variable.
        if !matches!(api.name, "glance" | "placement") {
            command.arg("--config-file").arg(etc.join(format!("{}.conf", api.name)));
        }
        command.env("REQUEST_LOG", self.folder.join(REQUESTS));
        command.env("OS_GLANCE_CONFIG_DIR", &etc).env("OS_PLACEMENT_CONFIG_DIR", &etc);
        let paste = self.programs.environment().join("etc/nova/api-paste.ini");
        let nova = etc.join("nova.conf");
        command.env("OS_NOVA_CONFIG_FILES", format!("{};{}", paste.display(), nova.display()));
        self.spawn_python(api.name, command)
    }

    fn spawn_worker(&mut self, name: &'static str, configuration: &str) -> Result<()> {
        let mut command = self.programs.program(name);
        command.arg("--config-file").arg(self.folder.join(format!("etc/{configuration}.conf")));
        self.spawn_python(name, command)
    }

    fn spawn_python(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        command.env("PYTHONWARNINGS", "ignore").env("PYTHONPATH", self.folder.join("python"));
        // Libraries keep lists of entry points there.
        command.env("XDG_CACHE_HOME", self.folder.join("cache"));
        self.spawn(name, command)
    }

    fn spawn(&mut self, name: &'static str, command: Command) -> Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        self.processes.spawn(name, command, log)
    }

    fn wait_until(&mut self, what: &str, is_ready: impl Fn() -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_ready() {
            self.ensure_alive()?;
            ensure!(
                started.elapsed() < STARTS_WITHIN,
                "timed out: {what} does not listen after {STARTS_WITHIN:?}{}",
                self.processes.log_tails()
            );
            pause(LOOK_EVERY);
        }
        Ok(())
    }
}

/// The file to which all API servers append a line for each request of our driver.
struct RequestLog {
    file: BufReader<File>,
    /// A line that is not complete.
    begun: String,
    counters: BTreeMap<String, u64>,
}

impl RequestLog {
    fn create(path: &Path) -> Result<Self> {
        File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file: BufReader::new(File::open(path)?), begun: String::new(), counters: BTreeMap::new() })
    }

    /// Reads the new lines.
    fn read(&mut self) -> Result<&BTreeMap<String, u64>> {
        while self.file.read_line(&mut self.begun)? != 0 {
            if self.begun.ends_with('\n') {
                *self.counters.entry(self.begun.trim_end().to_owned()).or_default() += 1;
                self.begun.clear();
            }
        }
        Ok(&self.counters)
    }
}

/// Returns a port for each name. All ports are held at the same time, so they differ.
fn free_ports(names: impl Iterator<Item = &'static str>) -> Result<BTreeMap<&'static str, u16>> {
    let held = names.map(|name| Ok((name, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)));
    let held = held.collect::<Result<Vec<_>>>().context("cannot find a free port")?;
    held.iter().map(|(name, listener)| Ok((*name, listener.local_addr()?.port()))).collect()
}
