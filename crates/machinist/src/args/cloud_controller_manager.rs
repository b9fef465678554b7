//! Flags of the cloud controller manager, with the names that Kubernetes' cloud controller managers
//! have. Settings of a cloud come from the environment, as in hcloud-cloud-controller-manager.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::controllers::{LeaderArgs, LogArgs};
use super::profiling::ProfilingArgs;
use super::secure::{SERVER, SecureArgs};
use super::value::{self, ClusterFlag};
use crate::clouds::{self, Cloud};

const CLOUD: &str = "Cloud";
const CLUSTER: &str = "Cluster";
const NODES: &str = "Nodes";
const ROUTES: &str = "Routes";
const LEADER: &str = "Leader election";
const UNUSED: &str = "Compatibility (no effect)";

const ABOUT_CLOUDS: &str = "Environment of the cloud `hcloud`: HCLOUD_TOKEN (required), HCLOUD_ENDPOINT, HCLOUD_NETWORK, HCLOUD_INSTANCES_*, \
    HCLOUD_LOAD_BALANCERS_*, HCLOUD_NETWORK_ROUTES_ENABLED. Each variable NAME can be replaced by NAME_FILE, the path of a file with the \
    value. HCLOUD_TOKEN_FILE is read again when the file changes.\n\n\
    Shutdown: on Ctrl-C or SIGTERM, the process starts no new work, waits for cloud calls and API writes in flight, and releases its \
    Lease.";

/// Flags of `machinist cloud-controller-manager`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT_CLOUDS)]
pub(crate) struct CloudControllerManagerArgs {
    /// Cloud of the Nodes
    #[arg(long, value_name = "NAME", value_parser = clouds::parse_with_nodes(), help_heading = CLOUD)]
    pub cloud_provider: &'static Cloud,
    /// Controllers to run, separated by commas: `*` for all, `NAME` for one, `-NAME` for all but
    /// one. Names: cloud-node, cloud-node-lifecycle, service, route
    #[arg(long, value_name = "NAMES", default_value = "*", value_delimiter = ',', help_heading = CLOUD)]
    pub controllers: Vec<ControllerChoice>,
    /// Name of the cluster, for messages
    #[arg(long, value_name = "NAME", default_value = "kubernetes", help_heading = CLOUD)]
    pub cluster_name: String,
    /// Namespaces whose Services may adopt an existing load balancer by its name, separated by
    /// commas; `*` for all, and an empty value for none
    #[arg(long, value_name = "NAMESPACES", default_value = "*", value_delimiter = ',', help_heading = CLOUD)]
    pub adopt_load_balancers_in: Vec<String>,
    /// Namespace of Machines that may own Nodes: their controller gets two minutes to replace a
    /// Node before it is deleted here [default: no Machines]
    #[arg(long, value_name = "NAME", help_heading = CLOUD)]
    pub machine_namespace: Option<String>,
    /// Decide and log, but change nothing in the cluster or the cloud
    #[arg(long, help_heading = CLOUD)]
    pub dry_run: bool,

    /// Kubeconfig of the cluster [default: the cluster of this pod]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, help_heading = CLUSTER)]
    pub kubeconfig: ClusterFlag,
    /// URL of the API server; overrides the kubeconfig
    #[arg(long, value_name = "URL", help_heading = CLUSTER)]
    pub master: Option<String>,
    /// Maximum number of requests per second to the API server [default: no limit]
    #[arg(long, value_name = "N", value_parser = value::rate, help_heading = CLUSTER)]
    pub kube_api_qps: Option<f64>,
    /// Number of requests that may exceed --kube-api-qps in a burst
    #[arg(long, value_name = "N", help_heading = CLUSTER)]
    pub kube_api_burst: Option<u32>,

    /// Number of objects that are reconciled at the same time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..), help_heading = NODES)]
    pub concurrent_node_syncs: u16,
    /// Services that are reconciled at the same time, in addition to Nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..), help_heading = NODES)]
    pub concurrent_service_syncs: u16,
    /// Time between two checks of a Node that is not ready
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "5s", help_heading = NODES)]
    pub node_monitor_period: Duration,
    /// Time between two updates of the addresses of a Node
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "5m", help_heading = NODES)]
    pub node_status_update_frequency: Duration,
    /// Time between the two absences of a server that a deletion of its Node needs
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "15s", help_heading = NODES)]
    pub node_deletion_confirm_period: Duration,
    /// Age of a Node below which it is not deleted
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "60s", help_heading = NODES)]
    pub node_deletion_min_age: Duration,
    /// Share of all Nodes, in percent, above which no Node is deleted; at least 3 Nodes
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100), help_heading = NODES)]
    pub node_deletion_brake: u8,
    /// Give the Node of a server that two answers showed as stopped the taint
    /// node.kubernetes.io/out-of-service, which detaches its volumes by force
    #[arg(long, help_heading = NODES)]
    pub shutdown_out_of_service: bool,
    /// Networks whose addresses a kubelet may give as --node-ip although the cloud does not show
    /// them, separated by commas
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', help_heading = NODES)]
    pub trusted_node_cidrs: Vec<String>,

    /// Networks of the pods, one per IP family, separated by commas; routes need it
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', help_heading = ROUTES)]
    pub cluster_cidr: Vec<String>,
    /// Whether another controller gives Nodes their pod networks. Without it, no routes are
    /// programmed
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = value::go_bool, action = ArgAction::Set, help_heading = ROUTES)]
    pub allocate_node_cidrs: bool,
    /// Program routes, if the cloud has a network for them
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = value::go_bool, action = ArgAction::Set, help_heading = ROUTES)]
    pub configure_cloud_routes: bool,
    /// Time between two comparisons of all routes; changes of Nodes are handled at once
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "5m", help_heading = ROUTES)]
    pub route_reconciliation_period: Duration,

    /// Port of the HTTPS server with /healthz, /readyz, /metrics and /why; 0 disables it
    #[arg(long, visible_alias = "port", value_name = "PORT", default_value_t = 10258, help_heading = SERVER)]
    pub secure_port: u16,
    /// IP address of the HTTPS server
    #[arg(long, visible_alias = "address", value_name = "IP", default_value = "0.0.0.0", help_heading = SERVER)]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub server: SecureArgs,

    #[command(flatten)]
    pub leader: LeaderArgs,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager", help_heading = LEADER)]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = "kube-system", help_heading = LEADER)]
    pub leader_elect_resource_namespace: String,

    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub profiling: ProfilingArgs,
    #[command(flatten)]
    pub unused: UnusedArgs,
}

impl CloudControllerManagerArgs {
    /// The namespaces whose Services may adopt load balancers; `None` for all.
    pub(crate) fn adopts_in(&self) -> Option<BTreeSet<String>> {
        let all = self.adopt_load_balancers_in.iter().map(|name| name.trim().to_owned());
        let named: BTreeSet<String> = all.filter(|name| !name.is_empty()).collect();
        (!named.contains("*")).then_some(named)
    }
}

/// Flags of other cloud controller managers that have no effect here.
#[derive(Debug, Args)]
pub(crate) struct UnusedArgs {
    /// Ignored: one list of servers serves all controllers
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub server_cache_max_age: Option<Duration>,
    /// Ignored: settings of the cloud come from the environment
    #[arg(long, value_name = "FILE", help_heading = UNUSED)]
    pub cloud_config: Option<String>,
    /// Ignored: ownership is proven by the servers that the account shows
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub allow_untagged_cloud: Option<bool>,
    /// Ignored: all addresses are updated from one list
    #[arg(long, value_name = "N", help_heading = UNUSED)]
    pub concurrent_node_status_updates: Option<u32>,
    /// Ignored: every object is reconciled at least every ten minutes
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub min_resync_period: Option<Duration>,
    /// Ignored: controllers start together
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub controller_start_interval: Option<Duration>,
    /// Ignored: requests are always JSON
    #[arg(long, value_name = "TYPE", help_heading = UNUSED)]
    pub kube_api_content_type: Option<String>,
    /// Ignored: the process has one service account
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub use_service_account_credentials: Option<bool>,
    /// Ignored: there are no webhooks
    #[arg(long, value_name = "PORT", help_heading = UNUSED)]
    pub webhook_secure_port: Option<u16>,
    /// Ignored: new clusters need no migration
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub enable_leader_migration: Option<bool>,
    /// Ignored: new clusters need no migration
    #[arg(long, value_name = "FILE", help_heading = UNUSED)]
    pub leader_migration_config: Option<String>,
    /// Ignored: there are no feature gates
    #[arg(long, value_name = "GATES", help_heading = UNUSED)]
    pub feature_gates: Option<String>,
    /// Ignored: log lines are written immediately
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub log_flush_frequency: Option<Duration>,
}

/// One entry of `--controllers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControllerChoice {
    /// The named controller; every controller if absent.
    which: Option<Controller>,
    runs: bool,
}

/// A controller of the cloud controller manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    /// Initialises Nodes.
    Node,
    /// Deletes and taints Nodes.
    NodeLifecycle,
    /// Programs load balancers.
    Service,
    /// Programs routes.
    Route,
}

impl Controller {
    /// Returns the controller of a name or of its older alias.
    fn named(name: &str) -> Option<Self> {
        match name {
            "cloud-node-controller" | "cloud-node" => Some(Self::Node),
            "cloud-node-lifecycle-controller" | "cloud-node-lifecycle" => Some(Self::NodeLifecycle),
            "service-lb-controller" | "service" => Some(Self::Service),
            "node-route-controller" | "route" => Some(Self::Route),
            _ => None,
        }
    }

    /// Whether the controller runs. The first entry that names it decides, then `*`.
    pub(crate) fn runs(self, choices: &[ControllerChoice]) -> bool {
        let named = choices.iter().find(|choice| choice.which == Some(self));
        let all = || choices.iter().find(|choice| choice.which.is_none());
        named.or_else(all).is_some_and(|choice| choice.runs)
    }
}

impl FromStr for ControllerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self { which: None, runs: true });
        }
        let (name, runs) = text.strip_prefix('-').map_or((text, true), |name| (name, false));
        match Controller::named(name) {
            Some(controller) => Ok(Self { which: Some(controller), runs }),
            None => Err("expected *, or one of cloud-node, cloud-node-lifecycle, service and route, \
                 with or without a leading -"
                .to_owned()),
        }
    }
}

impl CloudControllerManagerArgs {
    /// Warns about flags whose absence of effect a user should know.
    pub(crate) fn warn_about_unused(&self) {
        for (flag, reason) in self.without_effect() {
            tracing::warn!(flag, reason, "The flag has no effect");
        }
    }

    /// Returns the given flags that ask for something which this program does not do.
    fn without_effect(&self) -> Vec<(&'static str, &'static str)> {
        const MIGRATION: &str = "no Lease for a migration is taken: stop the other controllers first";
        let (unused, profiling) = (&self.unused, &self.profiling);
        let given = [
            ("enable-leader-migration", unused.enable_leader_migration == Some(true), MIGRATION),
            ("leader-migration-config", unused.leader_migration_config.is_some(), MIGRATION),
            (
                "webhook-secure-port",
                unused.webhook_secure_port.is_some_and(|port| port != 0),
                "there are no webhooks",
            ),
            ("feature-gates", unused.feature_gates.is_some(), "there are no feature gates"),
            (
                "contention-profiling",
                profiling.contention_profiling == Some(true),
                "there are no profiles of locks",
            ),
            (
                "cloud-config",
                unused.cloud_config.is_some(),
                "settings of the cloud come from the environment",
            ),
        ];
        given.into_iter().filter(|(_, is_given, _)| *is_given).map(|(flag, _, why)| (flag, why)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(choices: &str) -> Vec<bool> {
        let choices: Vec<ControllerChoice> =
            choices.split(',').map(|text| text.parse().expect("a valid entry")).collect();
        let all = [Controller::Node, Controller::NodeLifecycle, Controller::Service, Controller::Route];
        all.map(|controller| controller.runs(&choices)).to_vec()
    }

    #[test]
    fn controllers_are_chosen_by_name_alias_or_exclusion() {
        assert_eq!(runs("*"), [true; 4]);
        assert_eq!(runs("cloud-node"), [true, false, false, false]);
        assert_eq!(runs("*,-route"), [true, true, true, false]);
        assert_eq!(runs("service-lb-controller,-cloud-node-lifecycle,*"), [true, false, true, true]);
        assert_eq!(runs("-service,service"), [false; 4], "the first entry decides");
        assert!("nodes".parse::<ControllerChoice>().expect_err("unknown").contains("cloud-node"));
    }

    #[test]
    fn namespaces_with_adoptions_are_all_some_or_none() {
        use clap::Parser as _;
        let adopts_in = |flags: &[&str]| {
            let line = ["machinist", "cloud-controller-manager", "--cloud-provider", "hcloud"];
            let cli = crate::args::Cli::try_parse_from(line.iter().chain(flags)).expect("accepted");
            let crate::args::Command::CloudControllerManager(args) = cli.command else { panic!("{flags:?}") };
            args.adopts_in().map(|all| all.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(adopts_in(&[]), None);
        assert_eq!(adopts_in(&["--adopt-load-balancers-in=edge,*"]), None);
        let some = Some(vec!["edge".to_owned(), "infra".to_owned()]);
        assert_eq!(adopts_in(&["--adopt-load-balancers-in", "infra, edge"]), some);
        assert_eq!(adopts_in(&["--adopt-load-balancers-in="]), Some(Vec::new()));
    }

    /// Every flag of other cloud controller managers is accepted.
    #[test]
    fn flags_without_an_effect_are_accepted_and_named() {
        use clap::Parser as _;
        let line = "machinist cloud-controller-manager --cloud-provider hcloud --enable-leader-migration \
                    --leader-migration-config f --master https://127.0.0.1:6443 --tls-cert-file c \
                    --tls-private-key-file k --cert-dir d --authentication-kubeconfig a \
                    --authorization-kubeconfig b --authorization-always-allow-paths /healthz,/metrics \
                    --webhook-secure-port 0 --profiling=false --contention-profiling --feature-gates A=true \
                    --secure-port 0 --client-ca-file e -v 2";
        let cli = crate::args::Cli::try_parse_from(line.split_whitespace()).expect("accepted");
        let crate::args::Command::CloudControllerManager(args) = cli.command else { panic!("{line}") };
        let named: Vec<_> = args.without_effect().into_iter().map(|(flag, _)| flag).collect();
        let expected =
            ["enable-leader-migration", "leader-migration-config", "feature-gates", "contention-profiling"];
        assert_eq!(named, expected);
        assert_eq!(args.server.always_allow(), ["/healthz", "/metrics"]);
    }
}
