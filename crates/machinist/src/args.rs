//! Commands and flags of the program.
//!
//! The flags of the two controllers have the names that existing scripts for Go's
//! machine-controller-manager use. Parsing turns each value into a type, such as a duration or a
//! cluster; the rest of the program never sees the text.

mod capi;
mod cloud_controller_manager;
mod clusters;
mod command_line;
mod configuration;
mod controllers;
#[cfg(test)]
mod go_flags;
mod profiling;
mod secure;
pub(crate) mod value;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::clouds::{self, DockerArgs, UpCloud};

pub(crate) use self::capi::{CapiArgs, CapiDockerArgs, CapiMailgunArgs, CrdKinds, StandInName};
pub(crate) use self::cloud_controller_manager::{CloudControllerManagerArgs, Controller};
pub(crate) use self::clusters::ClusterArgs;
pub(crate) use self::configuration::{config_of_machine_controller, config_of_manager};
pub(crate) use self::controllers::{
    LeaderArgs, LogArgs, MachineControllerArgs, MachineDefaultArgs, MachineSafetyArgs, ManagerArgs,
};
pub(crate) use self::secure::SecureArgs;
pub(crate) use self::value::{ClusterFlag, ExplainedKind, InfrastructureKind, ObjectArg};

/// Creates, watches, drains and deletes the machines of Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(
    name = "machinist",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        machinist up                    Run a cluster with three simulated machines; Ctrl-C stops it\n  \
        machinist up --until ready      Run the same cluster and exit when all machines are ready\n  \
        machinist why machine/NAME      Show what a machine waits for and what happens next\n  \
        machinist api-server            Run only the API server, for other controllers\n  \
        machinist completion bash       Print a completion script for bash (also zsh and fish)\n\n\
        Exit codes: 0 success; 1 failure, or --until was not reached; 2 invalid command line."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a complete cluster in one process: API server, controllers and a simulated cloud
    ///
    /// The process runs an API server with the machine kinds, the built-in controllers that it
    /// needs, the manager, the machine controller, and a simulated cloud. Instances of that cloud
    /// boot and join the cluster as Nodes. No other program is needed. With --cloud hcloud, the
    /// cloud is a stand-in for Hetzner Cloud, and the cloud controller manager runs too. With
    /// --cloud docker, the machines are containers, in a cluster that kubeadm makes. With --cloud
    /// local, the machines are pods of the cluster itself. Ctrl-C stops
    /// everything.
    Up(UpArgs),
    /// Run only the API server, to test other controllers against it
    ///
    /// The process runs the embedded API server and built-in controllers such as garbage
    /// collection. Any Kubernetes client can use it, for example kubectl or other controllers. Use
    /// `machinist up` to also run machine controllers and a cloud. Ctrl-C stops it.
    ApiServer(ApiServerArgs),
    /// Show what an object waits for, since when, and what happens next
    ///
    /// The command reads the objects from the API servers and runs the planner that the controllers
    /// use. It also asks the running controllers, which know more, such as the last answer of the
    /// cloud. The output names the source of the answer.
    Why(WhyArgs),
    /// Check MachineClasses and the objects that use them, without a cluster
    ///
    /// The driver of each class checks its providerSpec, and its credential if the Secrets are in
    /// the files too. Nothing is sent to a cloud. Each mistake is one line with the file, the
    /// object, the field, and what was expected.
    Validate(ValidateArgs),
    /// Create the machine objects of a dump again, after a loss of the cluster's state
    ///
    /// `kubectl apply` of a dump would lose the machines: the objects name owners by UIDs that no
    /// longer exist, so the garbage collector deletes them. This command creates the owners first
    /// and gives their children the new UIDs. Stop both controllers before, and start them
    /// afterwards: they find the instances by the ids in the dump.
    Restore(RestoreArgs),
    /// Run the controllers of MachineDeployments and MachineSets
    ///
    /// The manager creates and deletes Machine objects to match the replicas of deployments and
    /// sets, and rolls out changes. It does not call a cloud; the machine controller creates the
    /// instances.
    MachineControllerManager(Box<ManagerArgs>),
    /// Run the controller of Machines, their instances and their Nodes
    ///
    /// The controller creates an instance for each Machine, waits for its Node and watches the
    /// health of the Node. When the Machine is deleted, it drains the Node and deletes the
    /// instance.
    MachineController(Box<MachineControllerArgs>),
    /// Run the controllers of Nodes, load balancers and routes of a cloud
    ///
    /// The cloud controller manager initialises Nodes, keeps their addresses and labels as the
    /// cloud shows them, deletes the Nodes of servers that are gone, programs load balancers for
    /// Services, and programs routes to the pods of Nodes.
    CloudControllerManager(Box<CloudControllerManagerArgs>),
    /// Run the Cluster API infrastructure provider whose machines are containers
    ///
    /// The provider creates a load balancer for each DockerCluster and a container for each
    /// DockerMachine, runs the bootstrap in the container, and gives the Node its provider id.
    CapiDocker(Box<CapiDockerArgs>),
    /// Run the Cluster API infrastructure provider that asks a person by mail
    ///
    /// The provider sends one mail for each MailgunCluster and MailgunMachine, and waits until a
    /// person fills in the endpoint or the provider id. It is the provider of Cluster API's
    /// tutorial; a mail is sent at most once, even if the process crashes.
    CapiMailgun(Box<CapiMailgunArgs>),
    /// Run a stand-in for the API of a real cloud, for tests without an account
    ///
    /// The stand-in answers as the cloud does, with projects, tokens, rate limits, actions and
    /// faults on request at /_control. Its servers boot if a target cluster is given.
    StandIn(StandInArgs),
    /// Run the simulated cloud as a separate process
    ///
    /// The instances also run in this process. They join the target cluster like a kubelet: with
    /// the bootstrap token from their user data, and with --target-server and --target-ca. The
    /// cloud itself has no credentials for any cluster.
    SimCloud(SimCloudArgs),
    /// Print CustomResourceDefinitions, for kubectl apply
    Crds(CrdsArgs),
    /// Print a shell completion script
    ///
    /// The examples below show how to load the script when a shell starts.
    Completion(CompletionArgs),
    /// Print the version
    Version(VersionArgs),
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people
    Text,
    /// JSON for programs
    Json,
}

/// Flags of `machinist up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Manifests: without --manifest, the command applies a quick start: a Secret, a MachineClass, and the \
    MachineDeployment `workers` with 3 replicas.\n\n\
    Namespace: the controllers serve the namespace of the machine objects in the manifests, or `default` if there are none. \
    They ignore machine objects in other namespaces.\n\n\
    State: with --data-dir, the next start continues with the same state, even after a crash or a kill. The directory keeps \
    the API server's objects, the cloud's ledger and machines, and the CA, so an old kubeconfig still works. The quick start \
    is not applied again; a manifest given with --manifest is. Without --data-dir, all state is in memory.\n\n\
    Docker: with --cloud docker, the embedded API server has the machine objects, and the Nodes are in a second cluster, \
    whose control plane is a container. With --data-dir, the containers keep running when the command ends, and the next start \
    continues with them; --until gone deletes them. Without --data-dir, the command deletes them when it ends.\n\n\
    Output: on a terminal, a table shows deployments, machines and nodes, and what each of them waits for. `machinist why` prints \
    the same reasons. With --plain, with TERM=dumb, or if the output is not a terminal, the command prints plain \
    lines. NO_COLOR disables colours.\n\n\
    Exit codes: 0 the state of --until was reached, or the command was stopped and --until was not given; 1 the command \
    failed, timed out, or was stopped before it reached the state of --until; 2 invalid command line."
)]
pub(crate) struct UpArgs {
    /// Manifest to apply instead of the quick start; can be repeated
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub manifest: Vec<PathBuf>,

    /// Directory that keeps the state across restarts; without it, all state is in memory
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    pub data_dir: Option<PathBuf>,

    /// Address and port of the Kubernetes API (HTTPS); port 0 reuses the port stored in --data-dir,
    /// or picks a free one
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:0",
        value_parser = value::address,
        help_heading = "Cluster"
    )]
    pub listen: SocketAddr,

    /// Cloud of the instances
    #[arg(long, value_name = "CLOUD", default_value = "sim", value_parser = clouds::parse_for_up(), help_heading = "Cluster")]
    pub cloud: UpCloud,

    /// Private network of --cloud hcloud, which is created if it does not exist; the cloud
    /// controller manager then programs routes
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = "Cluster")]
    pub cloud_network: Option<String>,

    /// Loopback address and port of the cloud's API (plain HTTP); port 0 picks a free port at each
    /// start
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:0",
        value_parser = value::loopback,
        help_heading = "Cluster"
    )]
    pub cloud_listen: SocketAddr,

    /// Image of the Nodes of --cloud docker, with kubeadm, a kubelet and the images of the control
    /// plane [default: kindest/node:v1.36.3]
    #[arg(long, value_name = "IMAGE", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = "Cluster")]
    pub node_image: Option<String>,

    #[command(flatten)]
    pub docker: DockerArgs,

    /// File to write the administrator's kubeconfig to [default: DIR/kubeconfig with --data-dir,
    /// else a temporary file]
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig_out: Option<PathBuf>,

    /// Exit when this state is reached; without it, run until Ctrl-C
    #[arg(long, value_name = "STATE", help_heading = "Exit")]
    pub until: Option<Until>,

    /// Exit with code 1 if --until takes longer than this, for example 90s [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, requires = "until", help_heading = "Exit")]
    pub timeout: Option<Duration>,

    /// Output format: text, or one JSON object per line with the result last
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub output: Format,

    /// Print plain lines on a terminal instead of a live table
    #[arg(long, help_heading = "Output")]
    pub plain: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// State that `up` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Until {
    /// All machines of the manifest are Running and their Nodes are ready
    Ready,
    /// All machines were ready, then the manifest was deleted and no instance of its machines is
    /// left in the cloud
    Gone,
}

/// Flags of `machinist api-server`.
#[derive(Debug, Args)]
#[command(
    after_help = "Kinds: the server has the built-in kinds, the kinds of --crds, and those that clients add. To add the machine \
    kinds, run `machinist crds | kubectl apply -f -`.\n\n\
    Built-in controllers: garbage collection, namespaces and their default ServiceAccounts, PodDisruptionBudgets, kubelet \
    certificates, node lifecycle, bootstrap tokens, and volume protection. No controller creates the pods of a Deployment or \
    schedules pods.\n\n\
    Authentication: clients use the certificate in the kubeconfig or a ServiceAccount token. Other requests get 401. RBAC \
    decides what a client may do.\n\n\
    State: with --data-dir, the next start continues with the same state, even after a crash or a kill, and an old \
    kubeconfig still works. `machinist up` and `machinist api-server` cannot share a data directory.\n\n\
    Examples:\n  machinist api-server --crds config/crd/bases/*.yaml --kubeconfig-out dev.kubeconfig\n  \
    machinist api-server --data-dir state --listen 127.0.0.1:6443\n\n\
    Exit codes: 0 the command was stopped; 1 failure; 2 invalid command line."
)]
pub(crate) struct ApiServerArgs {
    /// Directory that keeps the state across restarts; without it, all state is in memory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Address and port of the Kubernetes API (HTTPS); port 0 reuses the port stored in --data-dir,
    /// or picks a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = value::address)]
    pub listen: SocketAddr,

    /// File to write the administrator's kubeconfig to [default: DIR/kubeconfig with --data-dir,
    /// else a temporary file]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,

    /// Files with CustomResourceDefinitions to apply before the server accepts clients; can be
    /// repeated
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub crds: Vec<PathBuf>,

    /// Output format: text, or one JSON object per line
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub output: Format,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `machinist validate`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist validate -f class.yaml -f deployment.yaml\n\n\
    Exit codes: 0 no mistake was found; 1 a controller would reject an object; 2 invalid command line.")]
pub(crate) struct ValidateArgs {
    /// File with MachineClasses, Secrets, MachineDeployments, MachineSets and Machines; `-` for
    /// standard input; can be repeated
    #[arg(long, short, value_name = "FILE", required = true)]
    pub filename: Vec<PathBuf>,

    /// The cloud of classes without the field `provider`
    #[arg(long, value_name = "NAME", value_parser = clouds::parse())]
    pub provider: Option<&'static clouds::Cloud>,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `machinist restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "Dump: kubectl get secrets,machineclasses,machinedeployments,machinesets,machines -n NAMESPACE -o yaml\n\n\
    Example:\n  machinist restore -f dump.yaml --dry-run\n\n\
    Exit codes: 0 success; 1 an object was rejected or could not be created; 2 invalid command line."
)]
pub(crate) struct RestoreArgs {
    /// File with Secrets, MachineClasses, MachineDeployments, MachineSets and Machines; can be
    /// repeated
    #[arg(long, short, value_name = "FILE", required = true)]
    pub filename: Vec<PathBuf>,

    /// Kubeconfig of the cluster with the machine objects [default: $KUBECONFIG, then
    /// ~/.kube/config]
    #[arg(long, visible_alias = "control-kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Check the dump and print what would be created, without writing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `machinist why`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist why machine/workers-bcd12-xyz34\n  machinist why mcd/workers -n team-a -o json\n  \
    machinist why node/worker-1\n  machinist why service/web -n shop\n\n\
    Exit codes: 0 success; 1 the object does not exist or cannot be read; 2 invalid command line."
)]
pub(crate) struct WhyArgs {
    /// Object to explain: machine/NAME, machineset/NAME or machinedeployment/NAME (short: mc/,
    /// mcs/, and mcd/ or md/), node/NAME or service/NAME (short: no/, svc/), or dockercluster/NAME,
    /// dockermachine/NAME, mailguncluster/NAME or mailgunmachine/NAME
    #[arg(value_name = "KIND/NAME")]
    pub object: ObjectArg,

    /// Namespace of the object; a Node has none
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub namespace: String,

    /// Kubeconfig of the cluster with the machine objects [default: $KUBECONFIG, then
    /// ~/.kube/config]
    #[arg(long, visible_alias = "control-kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Kubeconfig of the cluster with the Nodes and Services, or none for machines without a target
    /// cluster [default: the value of --kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub target_kubeconfig: Option<PathBuf>,

    /// URL of a controller to ask, for example http://127.0.0.1:10259; can be repeated [default:
    /// the URLs that `machinist up` wrote into the kubeconfig, else http://127.0.0.1:10258 and
    /// http://127.0.0.1:10259 for machines, https://127.0.0.1:10258 for Nodes and Services,
    /// http://127.0.0.1:9440 for the kinds of Cluster API providers]
    #[arg(long, value_name = "URL")]
    pub controller: Vec<String>,

    /// PEM file with the CA of controllers with an https URL [default: their certificates are not
    /// checked]
    #[arg(long, value_name = "FILE")]
    pub controller_ca: Option<PathBuf>,

    /// File with a bearer token for controllers with an https URL; requires --controller-ca except
    /// for loopback addresses, such as a forwarded port
    #[arg(long, value_name = "FILE")]
    pub controller_token_file: Option<PathBuf>,

    /// Output format: text, or one JSON object
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub output: Format,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `machinist sim-cloud`.
#[derive(Debug, Args)]
pub(crate) struct SimCloudArgs {
    /// Directory that keeps the ledger: every instance that this cloud ever created
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,

    /// Loopback address and port of the cloud's API (plain HTTP)
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070", value_parser = value::loopback)]
    pub listen: SocketAddr,

    /// API server that the instances join, for example https://127.0.0.1:6443
    #[arg(long, value_name = "URL", value_parser = https_url)]
    pub target_server: String,

    /// PEM file with the CA certificate of --target-server
    #[arg(long, value_name = "FILE")]
    pub target_ca: PathBuf,

    /// How often each simulated node renews its Lease; use a fraction of the target cluster's
    /// node-monitor grace period
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "10s")]
    pub node_lease_renewal: Duration,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `machinist stand-in`.
#[derive(Debug, Args)]
pub(crate) struct StandInArgs {
    /// Cloud or service to stand in for
    #[arg(value_name = "CLOUD", value_enum)]
    pub cloud: StandInName,

    /// Loopback address and port of the API (plain HTTP)
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7071", value_parser = value::loopback)]
    pub listen: SocketAddr,

    /// Directory that keeps all objects across restarts; without it, they are in memory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Token that may read and write [default: $HCLOUD_TOKEN or $MAILGUN_API_KEY, else 64 letters;
    /// printed at the start]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,

    /// API server that the servers join, for example https://127.0.0.1:6443
    #[arg(long, value_name = "URL", value_parser = https_url, requires = "target_ca")]
    pub target_server: Option<String>,

    /// PEM file with the CA certificate of --target-server
    #[arg(long, value_name = "FILE", requires = "target_server")]
    pub target_ca: Option<PathBuf>,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `machinist crds`.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Kinds to print; kinds of a Cluster API provider must not be installed beside upstream's
    #[arg(long, value_name = "KINDS", value_enum, default_value_t = CrdKinds::Machines)]
    pub kinds: CrdKinds,

    /// Output format: YAML documents, or a v1 List as JSON
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = CrdFormat::Yaml)]
    pub output: CrdFormat,
}

/// Output format of CRDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrdFormat {
    /// One YAML document per definition
    Yaml,
    /// A v1 List as JSON
    Json,
}

/// Arguments of `machinist completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bash, in ~/.bashrc:                  source <(machinist completion bash)\n  \
    zsh, in ~/.zshrc after compinit:     source <(machinist completion zsh)\n  \
    fish, run once:                      machinist completion fish > ~/.config/fish/completions/machinist.fish")]
pub(crate) struct CompletionArgs {
    /// Shell to print the script for
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: ShellName,
}

/// Shell with a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// Friendly interactive shell
    Fish,
}

/// Flags of `machinist version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Output format: one line of text, or one JSON object
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

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub command: Command,
    /// Warnings about flags, for the user.
    pub warnings: Vec<String>,
}

/// Parses a command line. The error prints itself and has the exit code: 0 for `--help` and
/// `--version`, else 2.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, clap::Error> {
    let line = command_line::read(words);
    // As in Go, the last value of a flag counts.
    let mut definition = Cli::command().args_override_self(true);
    let matches = definition.try_get_matches_from_mut(line.words);
    let matches = matches.map_err(|mut error| {
        // The error lists all supported shells. A tip would suggest `zsh` for `tcsh`, which is
        // another shell.
        if error.get(ContextKind::InvalidArg) == Some(&ContextValue::String("<SHELL>".to_owned())) {
            error.remove(ContextKind::SuggestedValue);
        }
        error
    })?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))?;
    let warnings = line.warnings.into_iter().chain(unused_flags(&definition, &matches)).collect();
    Ok(Parsed { command: cli.command, warnings })
}

/// Returns one warning about the given flags that have no meaning here. A switch that is off asks
/// for nothing.
fn unused_flags(definition: &clap::Command, matches: &ArgMatches) -> Option<String> {
    let (name, matches) = matches.subcommand()?;
    if !["machine-controller", "machine-controller-manager"].contains(&name) {
        return None;
    }
    let is_given = |flag: &&clap::Arg| {
        let id = flag.get_id().as_str();
        let is_off = matches.try_get_one::<bool>(id).is_ok_and(|value| value == Some(&false));
        matches.value_source(id) == Some(ValueSource::CommandLine) && !is_off
    };
    let flags = definition.find_subcommand(name)?.get_arguments();
    let unused = flags.filter(|flag| flag.get_help_heading() == Some(controllers::UNUSED)).filter(is_given);
    let names: Vec<String> = unused.filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect();
    (!names.is_empty()).then(|| format!("these flags have no effect: {}; --help says why", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd;

    fn parsed(text: &str) -> Command {
        parse(text.split(' ').map(OsString::from)).unwrap_or_else(|error| panic!("{error}")).command
    }

    fn refused(text: &str) -> String {
        parse(text.split(' ').map(OsString::from)).expect_err(text).to_string()
    }

    #[test]
    fn clap_accepts_the_command_line_definition() {
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
    fn unknown_flags_and_commands_get_a_suggestion() {
        let text = refused("machinist up --untill ready");
        assert!(text.contains("unexpected argument '--untill'") && text.contains("--until"), "{text}");
        let text = refused("machinist machine-controller --sim-endpoint http://a:1 --no-such-flag=1");
        assert!(text.contains("--no-such-flag"), "{text}");
        assert!(refused("machinist upp").contains("'up'"));
    }

    #[test]
    fn invalid_values_name_the_flag_and_the_expected_value() {
        for (line, expected) in [
            ("machinist up --until ready --timeout 5", &["--timeout <DURATION>", "a unit is missing"][..]),
            ("machinist up --timeout 5m", &["--until"]),
            ("machinist machine-controller --provider sim", &["--sim-endpoint <URL>", "required"]),
            (
                "machinist machine-controller --sim-endpoint /nope",
                &["invalid value '/nope' for '--sim-endpoint <URL>': expected http://ADDRESS:PORT"],
            ),
            (
                "machinist machine-controller --sim-endpoint http://a:1 --vmodule /nope",
                &["invalid value '/nope' for '--vmodule", "': expected MODULE=LEVEL"],
            ),
            ("machinist up --until never", &["--until <STATE>", "ready", "gone"]),
            (
                "machinist up --listen 127.0.0.1",
                &["--listen <ADDRESS:PORT>", "expected an IP address and a port, such as 127.0.0.1:6443"],
            ),
            (
                "machinist up --cloud-listen 0.0.0.0:7070",
                &[
                    "--cloud-listen <ADDRESS:PORT>",
                    "expected a loopback address and a port, such as 127.0.0.1:7070",
                ],
            ),
            ("machinist api-server --crds", &["--crds <FILE>"]),
            ("machinist api-server --manifest a", &["unexpected argument '--manifest'"]),
            ("machinist why pod/a", &["expected machine/NAME, machineset/NAME, machinedeployment/NAME"]),
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
    fn simulated_nodes_renew_leases_like_kubelets_by_default() {
        let renewal = |more: &str| {
            let line =
                format!("machinist sim-cloud --data-dir d --target-ca c --target-server https://a{more}");
            let Command::SimCloud(args) = parsed(&line) else { panic!("{line}") };
            cmd::sim_cloud::machine_options(&args).lease_renewal
        };
        assert_eq!(renewal(""), machinist_node_sim::MachineTiming::default().lease_renewal);
        assert_eq!(renewal(" --node-lease-renewal 500ms"), Duration::from_millis(500));
    }

    #[test]
    fn boolean_flags_take_the_forms_of_go() {
        let leader_elect = |text: &str| match parsed(text) {
            Command::MachineControllerManager(args) => args.leader.leader_elect,
            other => panic!("{other:?}"),
        };
        assert!(leader_elect("machinist machine-controller-manager"));
        assert!(leader_elect("machinist machine-controller-manager --leader-elect"));
        assert!(!leader_elect("machinist machine-controller-manager --leader_elect=false"));
    }

    #[test]
    fn flags_of_a_go_mcm_deployment_are_accepted() {
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
