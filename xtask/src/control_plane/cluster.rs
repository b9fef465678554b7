//! One real cluster: the flags of its programs, and the conditions for a successful start.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;

use super::bootstrap::{AUDIT_POLICY, BINDINGS};
use super::pki::{Pki, Subject};
use super::processes::{Afterwards, Processes};
use super::{Audit, Durability, Pods};
use crate::envtest::{Assets, Program};
use crate::workspace::{line_of, output_of};

/// Maximum duration of a start. It takes 4 seconds on an idle computer; the limit allows for a
/// compiler that runs at the same time.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Polling interval. Each check starts a kubectl, so a shorter interval would cost more than it
/// saves.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Maximum number of starts. Ports are chosen before they are used, so another program may take one
/// in between.
const START_ATTEMPTS: u32 = 3;

/// Services are not used here, but kube-apiserver requires a range, and uses its first address
/// itself.
const SERVICE_RANGE: &str = "10.96.0.0/16";
const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

pub(super) struct Settings {
    pub(super) role: &'static str,
    /// The node monitor's grace period, if there is a kube-controller-manager.
    pub(super) controller_manager: Option<Duration>,
    pub(super) pods: Pods,
    pub(super) audit: Audit,
    pub(super) durability: Durability,
    pub(super) folder: Option<PathBuf>,
}

/// A running cluster; dropping the value stops it.
pub(crate) struct Cluster {
    role: &'static str,
    description: Description,
    kubectl: PathBuf,
    processes: Processes,
}

/// Description of a cluster for other programs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description {
    pub(crate) server: String,
    /// Version that the server reports, such as `v1.36.3`.
    version: String,
    /// Kubeconfig with a client certificate in `system:masters`.
    kubeconfig: PathBuf,
    pub(crate) ca_file: PathBuf,
    /// Signs client certificates, for tests that need other users.
    ca_key_file: PathBuf,
    /// Endpoint without authentication: for compaction, and for reading the stored data.
    etcd: String,
    /// Lines of `audit.k8s.io/v1` events, if the audit log is enabled.
    audit_log: Option<PathBuf>,
    controller_manager: bool,
    /// Process ids by program, for measurements.
    process_ids: BTreeMap<&'static str, u32>,
    /// Folder of all files of this cluster, including logs as `<program>.log`.
    folder: PathBuf,
}

/// Reason of a failed start, as far as it matters for a retry.
enum Failure {
    PortTaken,
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl Cluster {
    pub(super) fn start(assets: &Assets, settings: &Settings) -> Result<Self> {
        for _ in 0..START_ATTEMPTS {
            match Starting::new(assets, settings)?.run() {
                Ok(cluster) => return Ok(cluster),
                Err(Failure::PortTaken) => {}
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        bail!("cannot start: other programs took the chosen ports {START_ATTEMPTS} times. Try again")
    }

    pub(crate) fn describe(&self) -> &Description {
        &self.description
    }

    /// Returns the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.description.kubeconfig
    }

    /// Returns a kubectl command with this cluster's administrator as its user.
    pub(crate) fn kubectl(&self) -> Command {
        kubectl(&self.kubectl, &self.description.kubeconfig)
    }

    /// Returns a kubectl command for another cluster.
    pub(crate) fn kubectl_for(&self, kubeconfig: &Path) -> Command {
        kubectl(&self.kubectl, kubeconfig)
    }

    /// Returns a kubectl command that trusts this cluster and has no credentials.
    pub(crate) fn kubectl_as_nobody(&self) -> Command {
        let Description { server, ca_file, .. } = &self.description;
        // An empty file, because without the flag kubectl would read the user's own.
        let mut command = kubectl(&self.kubectl, Path::new("/dev/null"));
        command.arg(format!("--server={server}")).arg(flag("certificate-authority", ca_file));
        command
    }

    /// Fails if one of the cluster's programs has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        match self.processes.ended()? {
            None => Ok(()),
            Some(ended) => bail!("{} ended ({}):\n{}", ended.name, ended.status, ended.log_tail),
        }
    }
}

impl Cluster {
    /// Says what the programs of this cluster printed last and which of them have ended, for the
    /// error of a check that failed.
    pub(super) fn last_words(&mut self) -> String {
        let ended = match self.processes.ended() {
            Ok(None) => "all programs run".to_owned(),
            Ok(Some(ended)) => format!("{} ended ({})", ended.name, ended.status),
            Err(error) => format!("the state of its programs is unknown: {error:#}"),
        };
        format!("{} cluster: {ended}{}", self.role, self.processes.log_tails())
    }
}

impl Description {
    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}

struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
    controller_manager: u16,
}

impl Ports {
    fn choose() -> Result<Self> {
        // All listeners are open at the same time, so the ports differ.
        let held = [0; 4].map(|any| TcpListener::bind((Ipv4Addr::LOCALHOST, any)));
        let mut ports = [0; 4];
        for (port, listener) in ports.iter_mut().zip(held) {
            *port = listener.context("cannot find a free port")?.local_addr()?.port();
        }
        let [etcd, etcd_peer, apiserver, controller_manager] = ports;
        Ok(Self { etcd, etcd_peer, apiserver, controller_manager })
    }
}

/// A cluster that is being started.
struct Starting<'a> {
    assets: &'a Assets,
    settings: &'a Settings,
    ports: Ports,
    folder: PathBuf,
    pki: Pki,
    admin: PathBuf,
    processes: Processes,
}

impl<'a> Starting<'a> {
    fn new(assets: &'a Assets, settings: &'a Settings) -> Result<Self> {
        let (folder, afterwards) = match &settings.folder {
            Some(folder) => {
                fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
                (folder.canonicalize()?, Afterwards::Keep)
            }
            None => {
                let prefix = format!("machinist-{}-", settings.role);
                let parent = parent_of_folders(settings.durability);
                let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent);
                let folder = folder.context("cannot create a folder")?;
                // The warden removes the folder. Unlike a destructor, it does so also if this
                // process is killed.
                (folder.keep(), Afterwards::Remove)
            }
        };
        let processes = Processes::new(&folder, afterwards)?;
        let pki = Pki::create(&folder.join("pki"), SERVICE_ADDRESS)?;
        let admin = folder.join("admin.kubeconfig");
        Ok(Self { assets, settings, ports: Ports::choose()?, folder, pki, admin, processes })
    }

    fn run(mut self) -> Result<Cluster, Failure> {
        self.write_kubeconfig(
            &self.admin,
            &Subject { user: "kubernetes-admin", group: Some("system:masters") },
        )?;
        self.spawn(Program::Etcd, self.etcd())?;
        let apiserver = self.apiserver()?;
        self.spawn(Program::KubeApiserver, apiserver)?;
        self.wait_for("/readyz of kube-apiserver", &["get", "--raw=/readyz"])?;
        self.apply(BINDINGS)?;
        if let Some(node_grace) = self.settings.controller_manager {
            let controller_manager = self.controller_manager(node_grace)?;
            self.spawn(Program::KubeControllerManager, controller_manager)?;
            // This account is the first visible result, and pods cannot be created before it
            // exists.
            self.wait_for(
                "the default service account of kube-controller-manager",
                &["get", "serviceaccount", "default", "--namespace=default"],
            )?;
        }
        let version = self.version()?;
        Ok(self.finish(version))
    }

    fn finish(self, version: String) -> Cluster {
        let description = Description {
            server: self.server(),
            version,
            kubeconfig: self.admin,
            ca_file: self.pki.ca_file(),
            ca_key_file: self.pki.ca_key_file(),
            etcd: format!("http://127.0.0.1:{}", self.ports.etcd),
            audit_log: match self.settings.audit {
                Audit::Off => None,
                Audit::Metadata => Some(self.folder.join("audit.log")),
            },
            controller_manager: self.settings.controller_manager.is_some(),
            process_ids: self.processes.ids(),
            folder: self.folder,
        };
        Cluster {
            role: self.settings.role,
            description,
            kubectl: self.assets.path(Program::Kubectl),
            processes: self.processes,
        }
    }

    fn etcd(&self) -> Command {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        let mut command = self.assets.command(Program::Etcd);
        command
            .arg("--data-dir")
            .arg(self.folder.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"]);
        match self.settings.durability {
            Durability::Fsync => {}
            Durability::None => {
                command.arg("--unsafe-no-fsync");
            }
        }
        command
    }

    fn apiserver(&self) -> Result<Command> {
        let mut command = self.assets.command(Program::KubeApiserver);
        command
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={}", self.ports.apiserver))
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd))
            .arg(flag("tls-cert-file", &self.pki.serving_file()))
            .arg(flag("tls-private-key-file", &self.pki.serving_key_file()))
            .arg(flag("client-ca-file", &self.pki.ca_file()))
            .args(["--authorization-mode=Node,RBAC", "--enable-bootstrap-token-auth=true"])
            .args(["--enable-admission-plugins=NodeRestriction", "--allow-privileged=true"])
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(flag("service-account-signing-key-file", &self.pki.service_account_key_file()))
            .arg(flag("service-account-key-file", &self.pki.service_account_public_key_file()))
            .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
            // A loopback address must not be published as the endpoint of a service, and no client
            // here reads it.
            .arg("--endpoint-reconciler-type=none");
        if self.settings.pods == Pods::WithoutServiceAccount && self.settings.controller_manager.is_none() {
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        match self.settings.audit {
            Audit::Off => {}
            Audit::Metadata => {
                let policy = self.folder.join("audit-policy.yaml");
                fs::write(&policy, AUDIT_POLICY)?;
                command
                    .arg(flag("audit-policy-file", &policy))
                    .arg(flag("audit-log-path", &self.folder.join("audit.log")))
                    // Written before the response is sent, and never rotated: readers count the
                    // lines.
                    .args(["--audit-log-mode=blocking", "--audit-log-maxsize=100000"]);
            }
        }
        Ok(command)
    }

    fn controller_manager(&self, node_grace: Duration) -> Result<Command> {
        let kubeconfig = self.folder.join("controller-manager.kubeconfig");
        self.write_kubeconfig(&kubeconfig, &Subject { user: "system:kube-controller-manager", group: None })?;
        // The monitor must check several times within the grace period, otherwise the period has no
        // effect.
        let monitor_period = (node_grace / 4).max(Duration::from_secs(1));
        let mut command = self.assets.command(Program::KubeControllerManager);
        command
            .arg(flag("kubeconfig", &kubeconfig))
            .arg(flag("authentication-kubeconfig", &kubeconfig))
            .arg(flag("authorization-kubeconfig", &kubeconfig))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.ports.controller_manager))
            .arg(flag("cert-dir", &self.folder.join("controller-manager")))
            .args(["--leader-elect=false", "--use-service-account-credentials=true"])
            .arg("--controllers=*,token-cleaner-controller")
            .arg(flag("cluster-signing-cert-file", &self.pki.ca_file()))
            .arg(flag("cluster-signing-key-file", &self.pki.ca_key_file()))
            .arg(flag("root-ca-file", &self.pki.ca_file()))
            .arg(flag("service-account-private-key-file", &self.pki.service_account_key_file()))
            .arg(format!("--node-monitor-grace-period={}s", node_grace.as_secs()))
            .arg(format!("--node-startup-grace-period={}s", node_grace.as_secs()))
            .arg(format!("--node-monitor-period={}s", monitor_period.as_secs()))
            // With the default of 20 requests per second, 50 machines wait half a minute for their
            // certificates.
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
        Ok(command)
    }

    fn spawn(&mut self, program: Program, command: Command) -> Result<()> {
        let name = program.file_name();
        self.processes.spawn(name, command, self.folder.join(format!("{name}.log")))
    }

    /// Repeats a kubectl command until it succeeds.
    fn wait_for(&mut self, what: &str, arguments: &[&str]) -> Result<(), Failure> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            if let Some(ended) = self.processes.ended()? {
                if ended.log_tail.contains("address already in use") {
                    return Err(Failure::PortTaken);
                }
                return Err(Failure::Other(anyhow!(
                    "{} ended ({}) before it was ready:\n{}",
                    ended.name,
                    ended.status,
                    ended.log_tail
                )));
            }
            let succeeded =
                self.kubectl().args(arguments).output().context("cannot start kubectl")?.status.success();
            if succeeded {
                return Ok(());
            }
            pause(LOOK_EVERY);
        }
        Err(Failure::Other(anyhow!(
            "timed out: no {what} within {READY_WITHIN:?}{}",
            self.processes.log_tails()
        )))
    }

    fn apply(&self, manifest: &str) -> Result<()> {
        pipe_into(self.kubectl().args(["apply", "--filename=-"]), manifest)
    }

    fn version(&self) -> Result<String> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let answer = output_of(self.kubectl().args(["get", "--raw=/version"]))?;
        let version: Version =
            serde_json::from_str(&answer).context("cannot parse the response of /version")?;
        Ok(version.git_version)
    }

    fn kubectl(&self) -> Command {
        kubectl(&self.assets.path(Program::Kubectl), &self.admin)
    }

    fn write_kubeconfig(&self, file: &Path, subject: &Subject) -> Result<()> {
        self.pki.write_kubeconfig(file, self.settings.role, &self.server(), subject)
    }

    fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }
}

/// The file system in memory that Linux has.
const IN_MEMORY: &str = "/dev/shm";
/// Free kibibytes in memory with which clusters are kept there: several times what a lane writes.
const ENOUGH_MEMORY: u64 = 4 << 20;

/// Where the folder of a cluster is made. Data that need not survive is kept in memory: while other
/// programs fill a slow disk, each write of etcd and of the audit log would wait for the disk, and
/// no request would be answered for minutes.
fn parent_of_folders(durability: Durability) -> PathBuf {
    let free = || {
        let printed = output_of(Command::new("df").args(["-k", "--output=avail", IN_MEMORY])).ok()?;
        printed.lines().last()?.trim().parse::<u64>().ok()
    };
    match durability {
        Durability::None if free().is_some_and(|free| ENOUGH_MEMORY <= free) => IN_MEMORY.into(),
        Durability::None | Durability::Fsync => std::env::temp_dir(),
    }
}

/// Runs a command with a text as its standard input.
pub(crate) fn pipe_into(command: &mut Command, text: &str) -> Result<()> {
    let line = line_of(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    child.stdin.take().context("the child's input is a pipe")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "`{line}` failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn kubectl(program: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    // The user's own kubectl configuration must not affect the command.
    command.env_remove("KUBECONFIG").arg(flag("kubeconfig", kubeconfig));
    command
}

fn flag(name: &str, path: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(format!("--{name}="));
    flag.push(path);
    flag
}

/// Sleeps between two checks of a program that does not signal when it is ready.
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
