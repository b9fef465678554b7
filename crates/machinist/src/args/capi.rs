//! Flags of the Cluster API providers, with the names that managers of Cluster API have. Settings
//! of the engine and of the mail service come from the environment, as in upstream's providers.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::controllers::{LeaderArgs, LogArgs};
use super::value::{self, ClusterFlag};
use crate::clouds::DockerArgs;

const CLUSTER: &str = "Cluster";
const WORK: &str = "Work";
const SERVER: &str = "HTTP server";
const MACHINES: &str = "Machines";
const LEADER: &str = "Leader election";
const UNUSED: &str = "Compatibility (no effect)";

const ABOUT_DOCKER: &str = "Environment: DOCKER_HOST (default: unix:///var/run/docker.sock), DOCKER_NETWORK (default: kind).\n\n\
    Kinds: install them with `machinist crds --kinds docker`. Never install them beside upstream's Docker provider, whose kinds have \
    the same names.\n\n\
    Shutdown: on Ctrl-C or SIGTERM, the process starts no new work, waits for calls and API writes in flight, and releases its Lease.";

const ABOUT_MAILGUN: &str = "Environment: MAILGUN_DOMAIN, MAILGUN_API_KEY and MAIL_RECIPIENT are required. MAILGUN_API_BASE is the URL of \
    the API (default: https://api.mailgun.net; in the EU https://api.eu.mailgun.net).\n\n\
    Kinds: install them with `machinist crds --kinds mailgun`.\n\n\
    Each request is sent at most once. After a crash, the process looks the mail up before it sends it again, which needs a key that \
    may read events.";

/// Flags of `machinist capi-docker`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT_DOCKER)]
pub(crate) struct CapiDockerArgs {
    #[command(flatten)]
    pub common: CapiArgs,
    /// Image of a machine without spec.customImage; {version} stands for the version of the Machine
    #[arg(long, value_name = "IMAGE", value_parser = value::image_template, default_value = "kindest/node:{version}", help_heading = MACHINES)]
    pub node_image_template: String,
    /// How long a bootstrap may run if the DockerMachine does not say so
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "5m", help_heading = MACHINES)]
    pub bootstrap_timeout: Duration,
    #[command(flatten)]
    pub docker: DockerArgs,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "machinist-capi-docker", help_heading = LEADER)]
    pub leader_elect_resource_name: String,
}

/// Flags of `machinist capi-mailgun`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT_MAILGUN)]
pub(crate) struct CapiMailgunArgs {
    #[command(flatten)]
    pub common: CapiArgs,
    /// Domains of the recipients that spec.recipients may name, separated by commas [default: all
    /// domains]
    #[arg(long, value_name = "DOMAIN,...", value_delimiter = ',', value_parser = value::domain, help_heading = WORK)]
    pub recipient_domains: Vec<String>,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "machinist-capi-mailgun", help_heading = LEADER)]
    pub leader_elect_resource_name: String,
}

/// Flags of every provider.
#[derive(Debug, Args)]
pub(crate) struct CapiArgs {
    /// Kubeconfig of the management cluster [default: the cluster of this pod]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, help_heading = CLUSTER)]
    pub kubeconfig: ClusterFlag,
    /// Namespace to serve [default: all namespaces]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = CLUSTER)]
    pub namespace: String,
    /// Serve only objects with the label cluster.x-k8s.io/watch-filter of this value
    #[arg(long, value_name = "VALUE", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = CLUSTER)]
    pub watch_filter: Option<String>,
    /// Maximum number of requests per second to the API server [default: no limit]
    #[arg(long, value_name = "N", value_parser = value::rate, help_heading = CLUSTER)]
    pub kube_api_qps: Option<f64>,
    /// Number of requests that may exceed --kube-api-qps in a burst
    #[arg(long, value_name = "N", help_heading = CLUSTER)]
    pub kube_api_burst: Option<u32>,

    /// Number of objects that are reconciled at the same time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..), help_heading = WORK)]
    pub concurrency: u16,
    /// The longest time between two reconciles of an object
    #[arg(long, value_name = "DURATION", value_parser = value::some_duration, default_value = "10m", help_heading = WORK)]
    pub sync_period: Duration,

    /// Address and port of the HTTP server with /healthz, /readyz, /metrics and /why
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = value::listen_address, default_value = ":9440", help_heading = SERVER)]
    pub health_addr: SocketAddr,

    #[command(flatten)]
    pub leader: LeaderArgs,
    /// Namespace of the Lease [default: $POD_NAMESPACE, else kube-system]
    #[arg(long, value_name = "NAME", help_heading = LEADER)]
    pub leader_elect_resource_namespace: Option<String>,

    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub unused: CapiUnusedArgs,
}

/// Flags of other managers that have no effect here.
#[derive(Debug, Args)]
pub(crate) struct CapiUnusedArgs {
    /// Ignored: metrics are at --health-addr
    #[arg(long, value_name = "ADDRESS", help_heading = UNUSED)]
    pub diagnostics_address: Option<String>,
    /// Ignored: metrics are at --health-addr
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = value::go_bool, help_heading = UNUSED)]
    pub insecure_diagnostics: Option<bool>,
    /// Ignored: there are no webhooks
    #[arg(long, value_name = "PORT", help_heading = UNUSED)]
    pub webhook_port: Option<u16>,
    /// Ignored: there are no webhooks
    #[arg(long, value_name = "DIR", help_heading = UNUSED)]
    pub webhook_cert_dir: Option<String>,
    /// Ignored: no port has TLS
    #[arg(long, value_name = "VERSION", help_heading = UNUSED)]
    pub tls_min_version: Option<String>,
    /// Ignored: no port has TLS
    #[arg(long, value_name = "NAMES", help_heading = UNUSED)]
    pub tls_cipher_suites: Option<String>,
}

/// Kinds that `crds` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrdKinds {
    /// The kinds of the machine API
    Machines,
    /// The kinds of the Cluster API provider for Docker
    Docker,
    /// The kinds of the Cluster API provider for Mailgun
    Mailgun,
    /// All of them
    All,
}

/// Clouds and services that have a stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StandInName {
    /// Hetzner Cloud
    Hcloud,
    /// Mailgun; counts mails that were sent twice
    Mailgun,
}
