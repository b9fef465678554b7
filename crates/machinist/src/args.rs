//! What can be typed: one command per job, each with flags that say what they want.
//!
//! Flags of the two controllers keep the names that scripts of the machine API already use. What is parsed here is typed from
//! here on: a duration is a duration, a cluster is a cluster.

mod command_line;
mod controllers;
mod value;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::controllers::{
    ClusterArgs, CompatibilityArgs, LeaderArgs, LogArgs, MachineControllerArgs, MachineDefaultArgs,
    ManagerArgs, ProviderName, ServerArgs,
};
pub(crate) use self::value::{ClusterFlag, ExplainedKind, ObjectArg};

/// Kubernetes machines: created, joined, watched, drained, deleted, never lost.
#[derive(Debug, Parser)]
#[command(
    name = "machinist",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Start here:\n  \
        machinist up                    a cluster with three machines, in this terminal; Ctrl-C ends it\n  \
        machinist up --until ready      the same, and ends as soon as everything runs\n  \
        machinist why machine/NAME      what a machine waits for, and what comes next\n  \
        machinist api-server            an API server alone, to try other controllers against it\n  \
        machinist completion bash       a script that lets the shell complete all this; zsh and fish, too\n\n\
        Exit codes: 0 it did what was asked; 1 it failed, or the awaited state was not reached; 2 the command line is wrong."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The jobs of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything here: API server, controllers, simulated cloud
    ///
    /// One process: an API server with the machine kinds, the built-in controllers it needs, the manager, the machine
    /// controller, and a simulated cloud whose instances boot and join as Nodes. Nothing is needed beside this program. All of it
    /// ends with Ctrl-C.
    Up(UpArgs),
    /// Run the API server alone, to try other controllers against it
    ///
    /// One process: the embedded API server and the built-in controllers that it lacks, such as garbage collection. Any Kubernetes
    /// client can use it: kubectl, and controllers of other programs. No machine controllers and no cloud run; `machinist up` has
    /// them. It ends with Ctrl-C.
    ApiServer(ApiServerArgs),
    /// Say what an object waits for, since when, and what comes next
    ///
    /// The facts are read from the API servers and judged by the planner that the controllers use. What only a running
    /// controller knows, such as what the cloud answered last, is asked of the controller; the answer says which part is whose.
    Why(WhyArgs),
    /// Run the manager: MachineDeployments and MachineSets, against any cluster
    ///
    /// It keeps as many Machine objects as deployments and sets ask for, and rolls them. It never sees a cloud; the machine
    /// controller turns Machines into instances.
    MachineControllerManager(ManagerArgs),
    /// Run the machine controller: Machines, their instances and Nodes, against any cluster
    ///
    /// It makes an instance for each Machine, sees it join as a Node, watches its health, and drains and deletes it.
    MachineController(Box<MachineControllerArgs>),
    /// Run the simulated cloud as a process of its own
    ///
    /// Its instances boot here too and join the target cluster as a kubelet would: with the bootstrap token in their user data, and
    /// with the address and CA given here. It holds no credential of any cluster.
    SimCloud(SimCloudArgs),
    /// Print the CustomResourceDefinitions, ready for kubectl apply
    Crds(CrdsArgs),
    /// Print a script that lets a shell complete commands and flags
    ///
    /// Let the shell read it at its start; see the examples below.
    Completion(CompletionArgs),
    /// Print the version
    Version(VersionArgs),
}

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Run everything here: API server, controllers, simulated cloud.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --manifest it applies a quick start: a Secret, a MachineClass, and the MachineDeployment workers \
    with 3 replicas.\n\nThe controllers serve one namespace: that of the machine objects in the manifests, else default. Machine objects \
    in another namespace stay as they are.\n\nWith --data-dir the next start goes on where this one ends, however it ends: the API server's \
    objects, the cloud's ledger and its machines, and the CA, so that an old kubeconfig still works. The quick start is then not applied \
    again; a manifest that is given again is. Without it everything is kept in memory.\n\n\
    On a terminal a table shows deployments, machines and nodes, and what each waits for, as `machinist why` says it. There are plain \
    lines instead with --plain, with TERM=dumb, and wherever the output is no terminal; NO_COLOR takes the colours away.\n\n\
    Exit codes: 0 the awaited state was reached, or nothing was awaited and it was stopped; 1 it failed, took longer than \
    --timeout, or was stopped before; 2 the command line is wrong."
)]
pub(crate) struct UpArgs {
    /// Apply this manifest instead of the quick start; may be given several times
    #[arg(long, value_name = "FILE", help_heading = "What runs")]
    pub manifest: Vec<PathBuf>,

    /// Keep everything in this folder, and go on with what is in it [default: in memory]
    #[arg(long, value_name = "DIR", help_heading = "What runs")]
    pub data_dir: Option<PathBuf>,

    /// Serve the Kubernetes API here, over HTTPS [default: a free port of 127.0.0.1; with --data-dir the one of the last run]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:0",
        hide_default_value = true,
        help_heading = "What runs"
    )]
    pub listen: SocketAddr,

    /// Serve the simulated cloud's own API here, over plain HTTP [default: a free port of 127.0.0.1 at each start]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:0",
        value_parser = value::loopback,
        hide_default_value = true,
        help_heading = "What runs"
    )]
    pub cloud_listen: SocketAddr,

    /// Write the administrator's kubeconfig to this file [default: a private folder that goes when this ends]
    #[arg(long, value_name = "FILE", help_heading = "What runs")]
    pub kubeconfig_out: Option<PathBuf>,

    /// End when all machines of the manifest run (ready), or then delete them and end when none of them is alive in the cloud (gone)
    #[arg(long, value_name = "STATE", help_heading = "When it ends")]
    pub until: Option<Until>,

    /// Give up waiting after this long, such as 90s or 5m [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, requires = "until", help_heading = "When it ends")]
    pub timeout: Option<Duration>,

    /// Progress for people, or as one JSON object per line, the result last
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub output: Format,

    /// Progress as plain lines on a terminal too, instead of a table that is kept up to date
    #[arg(long, help_heading = "Output")]
    pub plain: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// What `up` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Until {
    /// Every machine of the manifest runs and its Node is ready
    Ready,
    /// After that all of it was deleted, and none of its machines is alive in the cloud
    Gone,
}

/// Run the API server alone, to try other controllers against it.
#[derive(Debug, Args)]
#[command(
    after_help = "Kinds: the built-in ones, those of --crds, and those that a client adds: `machinist crds | kubectl apply -f -` adds the \
    machine kinds.\n\nBuilt-in controllers: garbage collection, namespaces and their default ServiceAccounts, PodDisruptionBudgets, \
    certificates of kubelets, Nodes that fall silent, bootstrap tokens, protection of volumes. No controller makes the pods of a \
    Deployment, and none schedules pods.\n\nA client needs the certificate of the kubeconfig, or a token of a ServiceAccount; without either \
    it gets 401. Roles decide what it may do.\n\nWith --data-dir the next start goes on where this one ends, however it ends, and an old \
    kubeconfig still works. A folder of `machinist up` is refused, and `up` refuses a folder of this command.\n\n\
    Examples:\n  machinist api-server --crds config/crd/bases/*.yaml --kubeconfig-out dev.kubeconfig\n  \
    machinist api-server --data-dir state --listen 127.0.0.1:6443\n\n\
    Exit codes: 0 it was stopped; 1 it failed; 2 the command line is wrong."
)]
pub(crate) struct ApiServerArgs {
    /// Keep everything in this folder, and go on with what is in it [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Serve the Kubernetes API here, over HTTPS [default: a free port of 127.0.0.1; with --data-dir the one of the last run]
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", hide_default_value = true)]
    pub listen: SocketAddr,

    /// Write the administrator's kubeconfig to this file [default: in --data-dir, else in a private folder that is removed at the end]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,

    /// Apply the CustomResourceDefinitions in these files before anything else; may be given several times
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub crds: Vec<PathBuf>,

    /// Text for people, or one JSON object per line
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub output: Format,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Say what an object waits for, since when, and what comes next.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist why machine/workers-bcd12-xyz34\n  machinist why mcd/workers -n team-a -o json\n\n\
    Exit codes: 0 it could be explained; 1 it does not exist or cannot be read; 2 the command line is wrong."
)]
pub(crate) struct WhyArgs {
    /// machine/NAME, machineset/NAME or machinedeployment/NAME; or short: mc/, mcs/, mcd/ or md/
    #[arg(value_name = "KIND/NAME")]
    pub object: ObjectArg,

    /// The namespace of the object
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub namespace: String,

    /// The kubeconfig of the cluster with the machine objects [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, visible_alias = "control-kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubeconfig of the cluster with the Nodes [default: the same cluster]
    #[arg(long, value_name = "FILE")]
    pub target_kubeconfig: Option<PathBuf>,

    /// Where a controller answers, such as http://127.0.0.1:10259; may be given several times [default: what `machinist up` wrote
    /// into the kubeconfig, else ports 10258 and 10259 of 127.0.0.1]
    #[arg(long, value_name = "URL")]
    pub controller: Vec<String>,

    /// Text for people, or one JSON object
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub output: Format,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Run the simulated cloud as a process of its own.
#[derive(Debug, Args)]
pub(crate) struct SimCloudArgs {
    /// Keep the ledger of every instance ever made in this folder
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,

    /// Serve the cloud's API here, over plain HTTP
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,

    /// The API server that instances join
    #[arg(long, value_name = "URL", value_parser = https_url)]
    pub target_server: String,

    /// The CA certificate of that API server, as PEM
    #[arg(long, value_name = "FILE")]
    pub target_ca: PathBuf,

    /// How often each simulated node renews its Lease; a few times within the target cluster's node-monitor grace period
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "10s")]
    pub node_lease_renewal: Duration,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Print the CustomResourceDefinitions, ready for kubectl apply.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// YAML for kubectl, or a v1 List as JSON
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = CrdFormat::Yaml)]
    pub output: CrdFormat,
}

/// How CRDs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrdFormat {
    /// One YAML document per definition.
    Yaml,
    /// A `v1` `List`.
    Json,
}

/// Print a script that lets a shell complete commands and flags.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    source <(machinist completion bash)                                          in ~/.bashrc\n  \
    source <(machinist completion zsh)                                           in ~/.zshrc, after compinit\n  \
    machinist completion fish > ~/.config/fish/completions/machinist.fish        once")]
pub(crate) struct CompletionArgs {
    /// The shell that is to read it
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: ShellName,
}

/// A shell that can complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    /// Of the GNU project.
    Bash,
    /// The Z shell.
    Zsh,
    /// The friendly interactive shell.
    Fish,
}

/// Print the version.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// A line of text, or one JSON object
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

fn https_url(text: &str) -> Result<String, String> {
    let expected = || "expected https://ADDRESS:PORT, without a path".to_owned();
    let uri: http::Uri = text.parse().map_err(|_| expected())?;
    let is_root = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if uri.scheme_str() != Some("https") || uri.host().is_none() || !is_root {
        return Err(expected());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Flags that were read, and do not fit each other or where the program runs.
#[derive(Debug)]
pub(crate) struct WrongFlags(String);

impl WrongFlags {
    /// Says which, and what was expected.
    pub(crate) fn new(told: impl fmt::Display) -> Self {
        Self(told.to_string())
    }
}

impl fmt::Display for WrongFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongFlags {}

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// What to do.
    pub command: Command,
    /// What the user should know about the flags.
    pub warnings: Vec<String>,
}

/// Reads a command line. An error prints itself, and knows its exit code: 0 for `--help` and `--version`, else 2.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, clap::Error> {
    let line = command_line::read(words).map_err(|unsupported| {
        clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{unsupported}\n"))
    })?;
    let cli = Cli::try_parse_from(line.words)?;
    Ok(Parsed { command: cli.command, warnings: line.warnings })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cmd;

    fn parsed(text: &str) -> Command {
        parse(text.split(' ').map(OsString::from)).unwrap_or_else(|error| panic!("{error}")).command
    }

    fn refused(text: &str) -> String {
        parse(text.split(' ').map(OsString::from)).expect_err(text).to_string()
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_help_text() {
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{} of {}", argument.get_id(), command.get_name());
            }
        }
    }

    #[test]
    fn unknown_flags_and_commands_are_refused_with_the_nearest_known_one() {
        let text = refused("machinist up --untill ready");
        assert!(text.contains("unexpected argument '--untill'") && text.contains("--until"), "{text}");
        let text = refused("machinist machine-controller --sim-endpoint http://a:1 --no-such-flag=1");
        assert!(text.contains("--no-such-flag"), "{text}");
        assert!(refused("machinist upp").contains("'up'"));
    }

    #[test]
    fn wrong_values_name_the_flag_and_what_was_expected() {
        for (line, expected) in [
            ("machinist up --until ready --timeout 5", &["--timeout <DURATION>", "a unit is missing"][..]),
            ("machinist up --timeout 5m", &["--until"]),
            ("machinist machine-controller --target-kubeconfig a", &["--sim-endpoint <URL>", "required"]),
            (
                "machinist machine-controller --sim-endpoint /nope",
                &["invalid value '/nope' for '--sim-endpoint <URL>': expected http://ADDRESS:PORT"],
            ),
            (
                "machinist machine-controller --sim-endpoint http://a:1 --vmodule /nope",
                &["invalid value '/nope' for '--vmodule", "': expected MODULE=LEVEL"],
            ),
            ("machinist up --until never", &["--until <STATE>", "ready", "gone"]),
            ("machinist up --listen here", &["--listen <ADDRESS:PORT>"]),
            (
                "machinist up --cloud-listen 0.0.0.0:7070",
                &[
                    "--cloud-listen <ADDRESS:PORT>",
                    "expected a loopback address and a port, such as 127.0.0.1:7070",
                ],
            ),
            ("machinist api-server --crds", &["--crds <FILE>"]),
            ("machinist api-server --manifest a", &["unexpected argument '--manifest'"]),
            ("machinist why pod/a", &["expected machine/NAME, machineset/NAME or machinedeployment/NAME"]),
            (
                "machinist sim-cloud --data-dir d --target-ca c --target-server http://a",
                &["expected https://ADDRESS:PORT"],
            ),
            ("machinist machine-controller --sim-endpoint http://a:1 --kube-api-qps=0", &["above 0"]),
            ("machinist machine-controller --sim-endpoint http://a:1 --port 70000", &["--port <PORT>"]),
        ] {
            let text = refused(line);
            for part in expected {
                assert!(text.contains(part), "{line}: {text}");
            }
        }
    }

    #[test]
    fn simulated_nodes_renew_their_leases_as_kubelets_do_unless_told_otherwise() {
        let renewal = |more: &str| {
            let line =
                format!("machinist sim-cloud --data-dir d --target-ca c --target-server https://a{more}");
            let Command::SimCloud(args) = parsed(&line) else { panic!("{line}") };
            cmd::sim_cloud::machine_options(&args).lease_renewal
        };
        assert_eq!(renewal(""), machinist_node_sim::MachineOptions::default().lease_renewal);
        assert_eq!(renewal(" --node-lease-renewal 500ms"), Duration::from_millis(500));
    }

    #[test]
    fn switches_are_written_as_go_writes_them() {
        let leader_elect = |text: &str| match parsed(text) {
            Command::MachineControllerManager(args) => args.leader.leader_elect,
            other => panic!("{other:?}"),
        };
        assert!(leader_elect("machinist machine-controller-manager"));
        assert!(leader_elect("machinist machine-controller-manager --leader-elect"));
        assert!(!leader_elect("machinist machine-controller-manager --leader_elect=false"));
    }

    #[test]
    fn a_deployment_of_the_original_starts_unchanged() {
        let command = parsed(
            "machine-controller-manager --control-kubeconfig=inClusterConfig --machine-safety-overshooting-period=1m \
             --namespace=shoot--a--b --port=10258 --safety-up=2 --safety-down=1 --target-kubeconfig=/var/run/kubeconfig \
             --v=3 --delete-migrated-machine-class=true --cloud-provider= --min-resync-period=12h",
        );
        let Command::MachineControllerManager(args) = command else { panic!("{command:?}") };
        assert_eq!(args.clusters.control_kubeconfig, ClusterFlag::InCluster);
        assert_eq!(args.clusters.namespace, "shoot--a--b");
        assert_eq!(args.log.v, 3);
    }
}
