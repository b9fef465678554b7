//! Flags of the two controllers. Their names and defaults are those of the original programs.

use std::net::IpAddr;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use machinist_driver_sim::Endpoint;

use super::value::{self, ClusterFlag, ModuleLevel};

const CLUSTERS: &str = "Clusters";
const SERVER: &str = "What it says about itself";
const WORK: &str = "How it works";
const MACHINES: &str = "What applies where a Machine says nothing";
const CLOUD: &str = "Cloud";
const LEADER: &str = "Leader election";
const LOG: &str = "Log";
const UNUSED: &str = "Accepted for the sake of old manifests, without effect";

const HOW_IT_ENDS: &str = "Ctrl-C or SIGTERM stops it: it begins nothing more, waits for the calls and writes that are in flight, gives its \
    Lease back, and ends with exit code 0. The wait takes at most 35s, or as long as a call to the cloud may take effect if that is longer; the \
    log says which. Give a pod 10s more than that (terminationGracePeriodSeconds). A second signal ends it at once, with exit code 1; its \
    Lease then runs out.";

/// Run the manager: MachineDeployments and MachineSets, against any cluster.
#[derive(Debug, Args)]
#[command(after_help = HOW_IT_ENDS)]
pub(crate) struct ManagerArgs {
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// The port of /healthz, /readyz, /metrics and /why
    #[arg(long, value_name = "PORT", default_value_t = 10258, value_parser = clap::value_parser!(u16).range(1..), help_heading = SERVER)]
    pub port: u16,
    #[command(flatten)]
    pub server: ServerArgs,
    /// How many objects are looked at at the same time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..), help_heading = WORK)]
    pub concurrent_syncs: u16,
    #[command(flatten)]
    pub leader: LeaderArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
    /// How many machines beyond the wanted ones and their surge the original tolerates before it freezes a set
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = WORK)]
    pub safety_up: u32,
    /// The freeze of a set is lifted at this many machines fewer
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = WORK)]
    pub safety_down: u32,
    /// A freeze is looked at whenever something changes
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub machine_safety_overshooting_period: Option<Duration>,
}

/// Run the machine controller: Machines, their instances and Nodes, against any cluster.
#[derive(Debug, Args)]
#[command(after_help = HOW_IT_ENDS)]
pub(crate) struct MachineControllerArgs {
    /// Which cloud the instances are in
    #[arg(long, value_name = "NAME", value_enum, default_value_t = ProviderName::Sim, help_heading = CLOUD)]
    pub provider: ProviderName,
    /// Where the simulated cloud answers, such as http://127.0.0.1:7070 (`machinist sim-cloud` prints it)
    #[arg(long, value_name = "URL", value_parser = value::sim_endpoint, help_heading = CLOUD)]
    pub sim_endpoint: Endpoint,
    /// What this installation is called in the cloud [default: the namespace]
    #[arg(long, value_name = "NAME", help_heading = CLOUD)]
    pub cluster_name: Option<String>,
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// The port of /healthz, /readyz, /metrics and /why
    #[arg(long, value_name = "PORT", default_value_t = 10259, value_parser = clap::value_parser!(u16).range(1..), help_heading = SERVER)]
    pub port: u16,
    #[command(flatten)]
    pub server: ServerArgs,
    /// How many objects are looked at at the same time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..), help_heading = WORK)]
    pub concurrent_syncs: u16,
    #[command(flatten)]
    pub machines: MachineDefaultArgs,
    #[command(flatten)]
    pub leader: LeaderArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
}

/// Clouds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderName {
    /// The simulated cloud
    Sim,
}

/// What applies where a Machine says nothing.
#[derive(Debug, Args)]
pub(crate) struct MachineDefaultArgs {
    /// How long a Machine may take to become a ready Node before it counts as failed
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "20m", help_heading = MACHINES)]
    pub machine_creation_timeout: Duration,
    /// How long a Node may be unhealthy before its Machine counts as failed
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "10m", help_heading = MACHINES)]
    pub machine_health_timeout: Duration,
    /// How long a drain may take before pods are deleted without being asked
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2h", help_heading = MACHINES)]
    pub machine_drain_timeout: Duration,
    /// How long a drain that is ended by force waits for volumes to be detached
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2m", help_heading = MACHINES)]
    pub machine_pv_detach_timeout: Duration,
    /// How often the eviction of a pod is tried
    #[arg(long, value_name = "N", default_value_t = 360, help_heading = MACHINES)]
    pub machine_max_evict_retries: u32,
    /// Node conditions that mean unhealthy unless they are False, separated by commas
    #[arg(long, value_name = "TYPES", value_delimiter = ',',
          default_value = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable", help_heading = MACHINES)]
    pub node_conditions: Vec<String>,
    /// Groups that a bootstrap token gives, separated by commas
    #[arg(long, value_name = "GROUPS", default_value = "", hide_default_value = true, help_heading = MACHINES)]
    pub bootstrap_token_auth_extra_groups: String,
    /// How long to wait before asking again a cloud that has run out
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "10m", help_heading = MACHINES)]
    pub resource_exhausted_retry: Duration,
}

/// Which clusters, and how politely.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig of the cluster with the Nodes [default: the cluster of this pod]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, help_heading = CLUSTERS)]
    pub target_kubeconfig: ClusterFlag,
    /// The kubeconfig of the cluster with the machine objects, or inClusterConfig for the cluster of this pod
    /// [default: the target cluster]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, help_heading = CLUSTERS)]
    pub control_kubeconfig: ClusterFlag,
    /// The namespace of the machine objects
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = CLUSTERS)]
    pub namespace: String,
    /// At most this many requests per second to each cluster [default: as many as the API server admits]
    #[arg(long, value_name = "N", value_parser = value::rate, help_heading = CLUSTERS)]
    pub kube_api_qps: Option<f64>,
    /// How many requests may exceed that rate at once, where there is one
    #[arg(long, value_name = "N", help_heading = CLUSTERS)]
    pub kube_api_burst: Option<u32>,
}

/// Where the process answers questions.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The address of that port
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", help_heading = SERVER)]
    pub address: IpAddr,
}

/// Who acts when several run.
#[derive(Debug, Args)]
pub(crate) struct LeaderArgs {
    /// Act only while holding the Lease, so that of several processes one acts
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = value::go_bool, action = ArgAction::Set, help_heading = LEADER)]
    pub leader_elect: bool,
    /// How long others wait after the holder's last sign of life
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "15s", help_heading = LEADER)]
    pub leader_elect_lease_duration: Duration,
    /// How long the holder tries to renew before it gives up and ends
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "10s", help_heading = LEADER)]
    pub leader_elect_renew_deadline: Duration,
    /// How often the holder renews, and others look
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2s", help_heading = LEADER)]
    pub leader_elect_retry_period: Duration,
    /// What is held; only leases are left in Kubernetes
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"], hide_possible_values = true, help_heading = LEADER)]
    pub leader_elect_resource_lock: String,
}

/// How much is told.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// How much is logged to stderr, from 0 to 5; controllers say what they do at 0, `up` and `why` from 1 on
    #[arg(long = "v", short = 'v', value_name = "LEVEL", default_value_t = 0, help_heading = LOG)]
    pub v: u8,
    /// Other levels for single modules, such as machinist_controllers=4; separated by commas
    #[arg(long, value_name = "MODULE=LEVEL", value_delimiter = ',', help_heading = LOG)]
    pub vmodule: Vec<ModuleLevel>,
}

/// Flags of the original that have nothing to do here.
#[derive(Debug, Args)]
pub(crate) struct CompatibilityArgs {
    /// It never had an effect
    #[arg(long, value_name = "NAME", help_heading = UNUSED)]
    pub cloud_provider: Option<String>,
    /// Requests are JSON
    #[arg(long, value_name = "TYPE", help_heading = UNUSED)]
    pub kube_api_content_type: Option<String>,
    /// Every object is looked at at least every ten minutes
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub min_resync_period: Option<Duration>,
    /// It never had an effect
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub controller_start_interval: Option<Duration>,
    /// There is no /debug/pprof here
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub profiling: Option<bool>,
    /// There is no /debug/pprof here
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub contention_profiling: Option<bool>,
    /// The log is written at once
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub log_flush_frequency: Option<Duration>,
}
