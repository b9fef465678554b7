//! Flags of the two controllers, with the names and defaults of Go's machine-controller-manager.

use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::{ArgAction, Args};

use super::clusters::ClusterArgs;
use super::profiling::ProfilingArgs;
use super::secure::SecureArgs;
use super::value::{self, LogFormat, ModuleLevels};
use crate::clouds::CloudArgs;

const SERVER: &str = "HTTP server";
const WORK: &str = "Work";
const MACHINES: &str = "Defaults for Machines";
const CLOUD: &str = "Cloud";
const LEADER: &str = "Leader election";
const LOG: &str = "Log";
/// Heading of the flags that have no meaning here. The program names the given ones at the start.
pub(super) const UNUSED: &str = "Compatibility (no effect)";

const HOW_IT_ENDS: &str = "Shutdown: on Ctrl-C or SIGTERM, the process starts no new work and waits for cloud calls and API writes in \
    flight. Then it releases its Lease and exits with code 0. The wait takes at most 35s, or longer if a cloud call may take \
    effect later; the log shows the limit. Set terminationGracePeriodSeconds of the pod to that limit plus 10s. A second \
    signal stops the process at once with exit code 1, and its Lease expires.\n\n\
    HTTP server: without a flag of \"HTTPS server\", it is plain HTTP. Every client may read /healthz, /livez, /readyz, /metrics, \
    /configz and /serves, and only clients on the loopback interface the other paths. Each flag of \"HTTPS server\" turns on TLS, \
    authentication and authorization for the port.";

/// Flags of `machinist machine-controller-manager`.
#[derive(Debug, Args)]
#[command(after_help = HOW_IT_ENDS)]
pub(crate) struct ManagerArgs {
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// Port of the HTTP server with /healthz, /readyz, /metrics, /configz, /why and /serves
    #[arg(long, value_name = "PORT", default_value = "10258", value_parser = value::port, help_heading = SERVER)]
    pub port: u16,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Number of objects that are reconciled at the same time
    #[arg(long, value_name = "N", default_value = "10", value_parser = value::workers, help_heading = WORK)]
    pub concurrent_syncs: u16,
    #[command(flatten)]
    pub leader: LeaderArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub profiling: ProfilingArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
    /// Number of machines beyond replicas and surge at which the manager freezes a set, so that the
    /// set creates no machines
    #[arg(long, value_name = "N", default_value = "2", value_parser = value::count, help_heading = WORK)]
    pub safety_up: u32,
    /// Number of machines below the limit of --safety-up at which the manager lifts a freeze
    #[arg(long, value_name = "N", default_value = "1", value_parser = value::count, help_heading = WORK)]
    pub safety_down: u32,
    /// Keep the cluster-autoscaler from removing Nodes during a rollout
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = value::go_bool, action = ArgAction::Set, help_heading = WORK)]
    pub autoscaler_scaledown_annotation_during_rollout: bool,
    /// Time that a set may have that number of machines; after it, the manager freezes the set
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "1m", help_heading = WORK)]
    pub machine_safety_overshooting_period: Duration,
    #[command(flatten)]
    pub secure: SecureArgs,
}

/// Flags of `machinist machine-controller`.
#[derive(Debug, Args)]
#[command(after_help = HOW_IT_ENDS)]
pub(crate) struct MachineControllerArgs {
    #[command(flatten)]
    pub cloud: CloudArgs,
    /// Name of this installation in the cloud [default: the value of --namespace]
    #[arg(long, value_name = "NAME", help_heading = CLOUD)]
    pub cluster_name: Option<String>,
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// Port of the HTTP server with /healthz, /readyz, /metrics, /configz, /why and /serves
    #[arg(long, value_name = "PORT", default_value = "10259", value_parser = value::port, help_heading = SERVER)]
    pub port: u16,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Number of objects that are reconciled at the same time
    #[arg(long, value_name = "N", default_value = "50", value_parser = value::workers, help_heading = WORK)]
    pub concurrent_syncs: u16,
    #[command(flatten)]
    pub machines: MachineDefaultArgs,
    #[command(flatten)]
    pub safety: MachineSafetyArgs,
    #[command(flatten)]
    pub leader: LeaderArgs,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub profiling: ProfilingArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
    #[command(flatten)]
    pub secure: SecureArgs,
}

/// Defaults for fields that a Machine leaves empty.
#[derive(Debug, Args)]
pub(crate) struct MachineDefaultArgs {
    /// Time for a new Machine to get a ready Node; after it, the Machine fails
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "20m", help_heading = MACHINES)]
    pub machine_creation_timeout: Duration,
    /// Time that a Node may be unhealthy; after it, the Machine fails
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "10m", help_heading = MACHINES)]
    pub machine_health_timeout: Duration,
    /// Time for a drain; after it, the controller deletes the remaining pods without grace
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2h", help_heading = MACHINES)]
    pub machine_drain_timeout: Duration,
    /// Time that a drain waits for the volumes of the Node to be detached, after the grace period
    /// of their pods
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2m", help_heading = MACHINES)]
    pub machine_pv_detach_timeout: Duration,
    /// Time that an update in place may take after the drain; after it, the update has failed
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "20m", help_heading = MACHINES)]
    pub machine_inplace_update_timeout: Duration,
    /// Time that a Machine is preserved, if an annotation asks for it
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "96h", help_heading = MACHINES)]
    pub machine_preserve_timeout: Duration,
    /// Time that a drain waits for a detached volume to be attached to another Node
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "90s", help_heading = MACHINES)]
    pub machine_pv_reattach_timeout: Duration,
    /// Number of pods with volumes that a drain moves at the same time; 1 is the behavior of Go
    /// [default: no limit]
    #[arg(long, value_name = "N", help_heading = MACHINES)]
    pub drain_volumes_at_once: Option<NonZeroUsize>,
    /// Number of unhealthy Machines of a deployment that are replaced at the same time; 1 is the
    /// behavior of Go
    #[arg(long, value_name = "N", default_value = "1", help_heading = MACHINES)]
    pub replacements_at_once: NonZeroU32,
    /// Time that a Node may be NotReady or have a read-only filesystem; after it, a drain deletes
    /// its pods without grace. At least 1m
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "5m", help_heading = MACHINES)]
    pub dead_node_timeout: Duration,
    /// Number of eviction attempts for a pod before the controller deletes it
    #[arg(long, value_name = "N", default_value = "360", value_parser = value::count, help_heading = MACHINES)]
    pub machine_max_evict_retries: u32,
    /// Node conditions that make a Node unhealthy unless their status is False, separated by commas
    // The last value of a repeated flag counts, so this is one list and not a flag that adds up.
    #[arg(long, value_name = "TYPES", value_parser = value::list,
          default_value = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable", help_heading = MACHINES)]
    pub node_conditions: std::vec::Vec<String>,
    /// Extra groups of bootstrap tokens, separated by commas [default: none]
    #[arg(long, value_name = "GROUPS", default_value = "", hide_default_value = true, help_heading = MACHINES)]
    pub bootstrap_token_auth_extra_groups: String,
    /// Time to wait before the next create call after the cloud reported exhausted resources
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "10m", help_heading = MACHINES)]
    pub resource_exhausted_retry: Duration,
}

/// Safety of the machine controller.
#[derive(Debug, Args)]
pub(crate) struct MachineSafetyArgs {
    /// Time without an answer of an API server and without news of Machines or Nodes; after it, the
    /// controller is frozen, so that no Machine fails
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "30s", help_heading = MACHINES)]
    pub machine_safety_apiserver_statuscheck_timeout: Duration,
    /// Time between two checks of an API server that answers but sends no news; at least that
    /// timeout
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "1m", help_heading = MACHINES)]
    pub machine_safety_apiserver_statuscheck_period: Duration,
    /// Time between two searches for instances and Nodes that no Machine has
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "15m", help_heading = MACHINES)]
    pub machine_safety_orphan_vms_period: Duration,
    /// Report instances that no Machine has, and never delete them
    #[arg(long, help_heading = MACHINES)]
    pub report_orphans_only: bool,
}

/// Address of the HTTP server.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// IP address of the HTTP server
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", help_heading = SERVER)]
    pub address: IpAddr,
}

/// Leader election between several processes.
#[derive(Debug, Args)]
pub(crate) struct LeaderArgs {
    /// Work only while holding a Lease, so that only one of several processes works
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = value::go_bool, action = ArgAction::Set, help_heading = LEADER)]
    pub leader_elect: bool,
    /// Time after the last renewal at which another process may take the Lease
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "15s", help_heading = LEADER)]
    pub leader_elect_lease_duration: Duration,
    /// Time for the holder to renew the Lease; after it, the process exits
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "10s", help_heading = LEADER)]
    pub leader_elect_renew_deadline: Duration,
    /// Time between two attempts to renew or to take the Lease
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2s", help_heading = LEADER)]
    pub leader_elect_retry_period: Duration,
    /// Kind of the lock object; Kubernetes supports only leases
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"], hide_possible_values = true, help_heading = LEADER)]
    pub leader_elect_resource_lock: String,
}

/// Log levels and format.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Log level on stderr, from 0 to 5; at 0 controllers log their actions, other commands only
    /// warnings
    #[arg(long = "v", short = 'v', value_name = "LEVEL", default_value = "0", value_parser = value::verbosity, allow_hyphen_values = true,
          help_heading = LOG)]
    pub v: u8,
    /// Log levels of single modules, separated by commas: a path such as
    /// machinist_controllers::mcm, or its last part; * and ? match any letters
    #[arg(long, value_name = "PATTERN=LEVEL,...", default_value = "", hide_default_value = true, help_heading = LOG)]
    pub vmodule: ModuleLevels,
    /// Format of the log: text, or one JSON object per line
    #[arg(long, visible_alias = "log-format", value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = LOG)]
    pub logging_format: LogFormat,
}

/// Flags of Go's machine-controller-manager that have no effect here.
#[derive(Debug, Args)]
pub(crate) struct CompatibilityArgs {
    /// Ignored: the flag never had an effect
    #[arg(long, value_name = "NAME", help_heading = UNUSED)]
    pub cloud_provider: Option<String>,
    /// Ignored: requests are always JSON
    #[arg(long, value_name = "TYPE", value_parser = value::media_type, help_heading = UNUSED)]
    pub kube_api_content_type: Option<String>,
    /// Ignored: every object is reconciled at least every ten minutes
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub min_resync_period: Option<Duration>,
    /// Ignored: the flag never had an effect
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub controller_start_interval: Option<Duration>,
    /// Ignored: there are no feature gates
    #[arg(long, value_name = "NAME=BOOL,...", value_parser = value::feature_gates, help_heading = UNUSED)]
    pub feature_gates: Option<String>,
    /// Ignored: log lines are written immediately
    #[arg(long, value_name = "DURATION", value_parser = value::duration, help_heading = UNUSED)]
    pub log_flush_frequency: Option<Duration>,
    #[command(flatten)]
    pub klog: KlogArgs,
}

/// Flags of Go's log library that have no effect: all lines go to stderr, at once and complete.
#[derive(Debug, Args)]
pub(crate) struct KlogArgs {
    /// Ignored: log lines have no directories
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub add_dir_header: Option<bool>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub alsologtostderr: Option<bool>,
    /// Ignored: there are no stack traces in the log
    #[arg(long, value_name = "FILE:LINE", help_heading = UNUSED)]
    pub log_backtrace_at: Option<String>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "DIR", help_heading = UNUSED)]
    pub log_dir: Option<String>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "FILE", help_heading = UNUSED)]
    pub log_file: Option<String>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "MEGABYTES", value_parser = value::count, help_heading = UNUSED)]
    pub log_file_max_size: Option<u32>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub logtostderr: Option<bool>,
    /// Ignored: there is one log
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub one_output: Option<bool>,
    /// Ignored: each line has its time and level
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub skip_headers: Option<bool>,
    /// Ignored: there are no log files
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub skip_log_headers: Option<bool>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "SEVERITY", value_parser = value::severity, help_heading = UNUSED)]
    pub stderrthreshold: Option<String>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub legacy_stderr_threshold_behavior: Option<bool>,
    /// Ignored: log lines are written immediately
    #[arg(long, value_name = "SIZE", value_parser = value::size, help_heading = UNUSED)]
    pub log_json_info_buffer_size: Option<String>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub log_json_split_stream: Option<bool>,
    /// Ignored: log lines are written immediately
    #[arg(long, value_name = "SIZE", value_parser = value::size, help_heading = UNUSED)]
    pub log_text_info_buffer_size: Option<String>,
    /// Ignored: the log is always on stderr
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub log_text_split_stream: Option<bool>,
}
