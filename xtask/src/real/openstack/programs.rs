//! The programs of the control plane, and an empty database for them, in the cache.
//!
//! OpenStack comes from PyPI, its database and its message broker from Debian. The tables of six
//! services take a minute to create, so the cache also has a data folder of the database with all
//! tables, and the keys of keystone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::configuration::{self, ADMINISTRATOR_PASSWORD, REGION, Values};
use crate::control_plane::pause;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::debian::Unpacked;
use crate::envtest;
use crate::real::python;
use crate::workspace::{self, output_of};

/// The packages of PyPI, with the exact version of each dependency.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Debian's database and broker, and the libraries that a minimal system lacks.
const PACKAGES: &[&str] = &[
    "mariadb-server-core",
    "mariadb-client-core",
    "libaio1",
    "liburing2",
    "rabbitmq-server",
    "erlang-base",
    "erlang-asn1",
    "erlang-crypto",
    "erlang-eldap",
    "erlang-ftp",
    "erlang-inets",
    "erlang-mnesia",
    "erlang-os-mon",
    "erlang-parsetools",
    "erlang-public-key",
    "erlang-runtime-tools",
    "erlang-snmp",
    "erlang-ssl",
    "erlang-syntax-tools",
    "erlang-tftp",
    "erlang-tools",
    "erlang-xmerl",
];

/// Increase it when the preparation of the database changes.
const REVISION: u32 = 1;

/// File with the recipe of a cached folder. A folder of another recipe is built again.
const RECIPE: &str = "recipe";

const DATABASES: &[&str] =
    &["keystone", "placement", "glance", "nova_api", "nova_cell0", "nova", "neutron", "cinder"];

/// The first start of the database is slow on a busy computer.
const DATABASE_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The folder with the programs and the empty database.
#[derive(Debug, Clone)]
pub(in crate::real) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Finds the programs in the cache, or installs them there.
    ///
    /// # Errors
    /// If Python, Debian's packages or a package of PyPI cannot be had here.
    pub(in crate::real) fn provide() -> Result<Self> {
        let parent = workspace::cache()?.join("openstack");
        fs::create_dir_all(&parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let _lock = envtest::lock(&parent.join(".lock"))?;
        let python = output_of(Command::new("python3").arg("--version")).context("no Python")?;
        let recipe = format!("{REVISION}\n{python}{}\n{REQUIREMENTS}", PACKAGES.join("\n"));
        let programs = Self { folder: parent.join("programs") };
        let started = Instant::now();
        let workshop = tempfile::Builder::new().prefix(".building-").tempdir_in(&parent)?;
        if !is_of(&programs.folder, &recipe) {
            eprintln!("Installing OpenStack into {} (a few minutes, once)", programs.folder.display());
            let built = Self { folder: workshop.path().join("programs") };
            built.install(workshop.path())?;
            fs::write(built.folder.join(RECIPE), &recipe)?;
            envtest::put_in_place(&built.folder, &programs.folder)?;
            eprintln!("Installed in {:.0?}", started.elapsed());
        }
        if !is_of(&programs.state(), &recipe) {
            eprintln!("Creating the database of OpenStack (two minutes, once)");
            let state = workshop.path().join("state");
            programs.create_database(workshop.path(), &state)?;
            fs::write(state.join(RECIPE), &recipe)?;
            envtest::put_in_place(&state, &programs.state())?;
            eprintln!("Ready in {:.0?} altogether", started.elapsed());
        }
        Ok(programs)
    }

    fn install(&self, workshop: &Path) -> Result<()> {
        Unpacked::create(PACKAGES, &self.packages())?;
        let requirements = workshop.join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS)?;
        // Each version is pinned, so pip has nothing to resolve. Python compiles a module when it
        // imports it first, and the services import less than half of them.
        let requirements = requirements.to_str().context("the path of the cache is not UTF-8")?;
        python::install(&self.folder, &["--no-deps", "--no-compile", "--requirement", requirements])?;
        Ok(())
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn packages(&self) -> PathBuf {
        self.folder.join("debian")
    }

    /// Returns the folder of the Python packages and of their configuration.
    pub(super) fn environment(&self) -> PathBuf {
        self.folder.join("environment")
    }

    /// Returns a command with the interpreter of the packages.
    pub(in crate::real) fn python(&self) -> Command {
        let mut command = Command::new(self.environment().join("bin/python"));
        // The services warn about the deprecated parts of one another.
        command.env("PYTHONWARNINGS", "ignore");
        command
    }

    /// Returns a command that runs a program of the packages. The first line of its file has a path
    /// from before the folder was renamed, so the interpreter is named.
    pub(super) fn program(&self, name: &str) -> Command {
        let mut command = self.python();
        command.arg(self.environment().join("bin").join(name));
        command
    }

    /// Copies the data folder of the database, and the keys of keystone.
    pub(super) fn copy_state(&self, folder: &Path) -> Result<()> {
        let from = self.state().join(".");
        output_of(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(from).arg(folder))?;
        Ok(())
    }

    /// Returns a command that runs the database with its data and its socket in `folder`.
    pub(super) fn database(&self, folder: &Path) -> Result<Command> {
        let mut command = self.unpacked_command("usr/sbin/mariadbd")?;
        command.arg("--no-defaults").args(self.database_folders(folder));
        command.arg(format!("--user={}", own_name("-un")?));
        command.arg(option("socket", &folder.join("mysql.sock")));
        command.arg(option("pid-file", &folder.join("mysql.pid")));
        command.args(["--skip-networking", "--skip-name-resolve", "--max-connections=1000"]);
        // No test survives a power cut.
        command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=16M"]);
        Ok(command)
    }

    fn database_folders(&self, folder: &Path) -> [String; 5] {
        let at = |path: &str| self.packages().join(path);
        [
            option("basedir", &at("usr")),
            option("datadir", &folder.join("mysql")),
            option("lc-messages-dir", &at("usr/share/mysql")),
            option("character-sets-dir", &at("usr/share/mysql/charsets")),
            option("plugin-dir", &at("usr/lib/mysql/plugin")),
        ]
    }

    /// Returns a command that maps the names of the broker's nodes to ports.
    pub(super) fn port_mapper(&self, port: u16) -> Result<Command> {
        let mut command = self.unpacked_command("usr/bin/epmd")?;
        command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
        Ok(command)
    }

    /// Returns a command that runs the broker with all its files in `folder`.
    pub(super) fn broker(&self, folder: &Path, mapper_port: u16, own_port: u16) -> Result<Command> {
        let erlang = self.packages().join("usr/lib/erlang");
        // Debian's `erl` has an absolute path.
        let wrapper = folder.join("bin/erl");
        fs::create_dir_all(folder.join("bin"))?;
        fs::write(
            &wrapper,
            format!(
                "#!/bin/sh\nexport ROOTDIR='{root}' BINDIR='{programs}' EMU=beam PROGNAME=erl\nexec \"$BINDIR/erlexec\" \"$@\"\n",
                root = erlang.display(),
                programs = only_entry(&erlang, "erts-")?.join("bin").display(),
            ),
        )?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
        fs::write(folder.join("enabled_plugins"), "[].\n")?;
        let broker = only_entry(&self.packages().join("usr/lib/rabbitmq/lib"), "rabbitmq_server-")?;
        let mut command = Command::new(broker.join("sbin/rabbitmq-server"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(path)?).env("LD_LIBRARY_PATH", self.libraries()?);
        // The broker writes a cookie there.
        command.env("HOME", folder);
        command.env("ERL_EPMD_PORT", mapper_port.to_string()).env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODENAME", "lane@localhost").env("RABBITMQ_DIST_PORT", own_port.to_string());
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}");
        command.env("RABBITMQ_LOGS", "-");
        for (variable, file) in [
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_CONF_ENV_FILE", "no-environment"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_MNESIA_BASE", "queues"),
            ("RABBITMQ_LOG_BASE", "log"),
            ("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
            ("RABBITMQ_PID_FILE", "pid"),
        ] {
            command.env(variable, folder.join(file));
        }
        Ok(command)
    }

    fn unpacked_command(&self, file: &str) -> Result<Command> {
        let mut command = Command::new(self.packages().join(file));
        command.env("LD_LIBRARY_PATH", self.libraries()?);
        Ok(command)
    }

    fn libraries(&self) -> Result<std::ffi::OsString> {
        Unpacked::at(&self.packages()).libraries()
    }

    /// Creates the data folder of the database with the tables of all services.
    fn create_database(&self, workshop: &Path, state: &Path) -> Result<()> {
        fs::create_dir_all(state)?;
        let mut install = self.unpacked_command("usr/bin/mariadb-install-db")?;
        install.arg("--no-defaults").args(self.database_folders(state));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg(format!("--user={}", own_name("-un")?));
        output_of(&mut install)?;

        let mut processes = Processes::new(state, Afterwards::Keep)?;
        let log = workshop.join("mysql.log");
        processes.spawn("mariadbd", self.database(state)?, log)?;
        let created: String =
            DATABASES.iter().map(|name| format!("CREATE DATABASE {name} CHARACTER SET utf8mb3;")).collect();
        let started = Instant::now();
        while self.sql(state, &created).is_err() {
            ensure!(
                processes.ended()?.is_none() && started.elapsed() < DATABASE_WITHIN,
                "the database does not start{}",
                processes.log_tails()
            );
            pause(LOOK_EVERY);
        }
        // The services get other URLs at each start, and store none of them here.
        let configurations = workshop.join("etc");
        configuration::write(&configurations, &Values::without_services(self, state))?;
        self.create_tables(&configurations)?;
        // A clean end: the copies need no recovery.
        self.sql(state, "SHUTDOWN")?;
        while processes.ended()?.is_none() {
            pause(LOOK_EVERY);
        }
        Ok(())
    }

    fn sql(&self, state: &Path, statements: &str) -> Result<String> {
        let mut client = self.unpacked_command("usr/bin/mariadb")?;
        client.args(["--no-defaults", "--user=root", "--execute", statements]);
        output_of(client.arg(option("socket", &state.join("mysql.sock"))))
    }

    fn create_tables(&self, configurations: &Path) -> Result<()> {
        // The placeholders are nova's: it fills them from its configuration at each start.
        let cell0 = "{scheme}://{username}@{hostname}/nova_cell0?{query}";
        let cell1 = "{scheme}://{username}@{hostname}/{path}?{query}";
        let broker = "{scheme}://{username}:{password}@{hostname}:{port}/{path}";
        let (user, group) = (own_name("-un")?, own_name("-gn")?);
        let commands: &[(&str, &str, &[&str])] = &[
            ("keystone-manage", "keystone", &["db_sync"]),
            (
                "keystone-manage",
                "keystone",
                &["fernet_setup", "--keystone-user", &user, "--keystone-group", &group],
            ),
            (
                "keystone-manage",
                "keystone",
                &["credential_setup", "--keystone-user", &user, "--keystone-group", &group],
            ),
            (
                "keystone-manage",
                "keystone",
                &[
                    "bootstrap",
                    "--bootstrap-password",
                    ADMINISTRATOR_PASSWORD,
                    "--bootstrap-region-id",
                    REGION,
                ],
            ),
            ("placement-manage", "placement", &["db", "sync"]),
            ("glance-manage", "glance-api", &["db_sync"]),
            ("nova-manage", "nova", &["api_db", "sync"]),
            ("nova-manage", "nova", &["cell_v2", "map_cell0", "--database_connection", cell0]),
            (
                "nova-manage",
                "nova",
                &[
                    "cell_v2",
                    "create_cell",
                    "--name",
                    "cell1",
                    "--database_connection",
                    cell1,
                    "--transport-url",
                    broker,
                ],
            ),
            ("nova-manage", "nova", &["db", "sync"]),
            ("neutron-db-manage", "neutron", &["upgrade", "heads"]),
            ("cinder-manage", "cinder", &["db", "sync"]),
        ];
        for (program, configuration, arguments) in commands {
            let mut command = self.program(program);
            command.arg("--config-file").arg(configurations.join(format!("{configuration}.conf")));
            output_of(command.args(*arguments))?;
        }
        Ok(())
    }
}

/// Returns whether a folder was built with this recipe.
fn is_of(folder: &Path, recipe: &str) -> bool {
    fs::read_to_string(folder.join(RECIPE)).is_ok_and(|found| found == recipe)
}

/// Returns the name of our user (`-un`) or group (`-gn`). Servers refuse to run as root unless root
/// is named.
fn own_name(flag: &str) -> Result<String> {
    Ok(output_of(Command::new("id").arg(flag))?.trim().to_owned())
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Returns the only entry of a folder whose name starts like that. The rest is a version.
fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    found.next().with_context(|| format!("{} has no {prefix}", folder.display()))
}
