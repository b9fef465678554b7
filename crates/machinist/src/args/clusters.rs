//! Flags of the clusters that a controller uses.

use clap::Args;

use super::value::{self, ClusterFlag};

const CLUSTERS: &str = "Clusters";

/// Clusters and request limits.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of the cluster with the Nodes, or none if there is no such cluster [default: the
    /// cluster of this pod]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, help_heading = CLUSTERS)]
    pub target_kubeconfig: ClusterFlag,
    /// Kubeconfig of the cluster with the machine objects, or inClusterConfig for the cluster of
    /// this pod; required with --target-kubeconfig none [default: the value of --target-kubeconfig]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, help_heading = CLUSTERS)]
    pub control_kubeconfig: ClusterFlag,
    /// Namespace of the machine objects
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = CLUSTERS)]
    pub namespace: String,
    /// Maximum number of requests per second to each cluster [default: no limit]
    #[arg(long, value_name = "N", value_parser = value::rate, help_heading = CLUSTERS)]
    pub kube_api_qps: Option<f64>,
    /// Number of requests that may exceed --kube-api-qps in a burst [default: the value of
    /// --kube-api-qps]
    #[arg(long, value_name = "N", value_parser = value::count, help_heading = CLUSTERS)]
    pub kube_api_burst: Option<u32>,
    /// URL of the API server, for a controller that has the flag.
    #[arg(skip)]
    pub master: Option<String>,
    /// Name of the flag of `target_kubeconfig`, for messages.
    #[arg(skip = "--target-kubeconfig")]
    pub kubeconfig_flag: &'static str,
}
