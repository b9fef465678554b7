//! Options of the process, besides the options of every process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::Provider;
use machinist_plan::ccm::{Plan, balancer_drift, node, node_removal, route, service};

use super::credential::CredentialSource;

/// Namespace of the ConfigMap with the settings that a user changes while the process runs.
pub(crate) const SETTINGS_NAMESPACE: &str = "kube-system";
/// Default name of that ConfigMap.
const SETTINGS_NAME: &str = "machinist-cloud-controller-manager";
/// Default time between two lists of all load balancers.
const DRIFT_PERIOD: Duration = Duration::from_secs(600);

/// The controllers that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controllers {
    /// Initialises Nodes, and keeps their addresses and labels up to date.
    pub node: bool,
    /// Taints and deletes Nodes.
    pub node_lifecycle: bool,
    /// Programs load balancers.
    pub service: bool,
    /// Programs routes.
    pub route: bool,
}

impl Controllers {
    /// All controllers.
    pub const ALL: Self = Self { node: true, node_lifecycle: true, service: true, route: true };

    /// Whether any controller runs.
    pub(crate) fn any(self) -> bool {
        self.any_node() || self.service || self.route
    }

    /// Whether a controller of Nodes runs.
    pub(crate) fn any_node(self) -> bool {
        self.node || self.node_lifecycle
    }
}

/// Options of the cloud-controller-manager.
#[derive(Clone)]
pub struct CcmOptions {
    /// The cloud.
    pub provider: Arc<dyn Provider>,
    /// The credential of the account.
    pub credential: CredentialSource,
    /// The controllers that run.
    pub controllers: Controllers,
    /// The flags of the node controllers.
    pub nodes: Arc<node::Options>,
    /// The flags of the service controller.
    pub services: Arc<service::Options>,
    /// The flags of the route controller.
    pub routes: Arc<route::Options>,
    /// Time between two lists of all load balancers.
    pub drift_period: Duration,
    /// The largest number of calls in flight.
    pub calls_at_once: usize,
    /// Namespace of the Machines that may own Nodes; `None` if no machine controller runs.
    pub machines: Option<String>,
    /// Name of the ConfigMap with the settings that a user changes while the process runs.
    pub settings_name: String,
    /// Whether the process decides and changes nothing.
    pub dry_run: bool,
    /// Functions that decide.
    pub planners: Planners,
}

/// Functions that decide about Nodes and Services. A simulation replaces them with faulty ones to
/// check that it finds the faults.
#[derive(Clone, Copy)]
pub struct Planners {
    /// Decides about a Node.
    pub node: fn(&node::Snapshot) -> Plan<node::Action>,
    /// Decides which Nodes are deleted.
    pub node_removal: fn(&node_removal::Snapshot) -> Plan<node_removal::Action>,
    /// Decides about a Service.
    pub service: fn(&service::Snapshot) -> Plan<service::Action>,
    /// Decides when load balancers are listed, and which ones are reported.
    pub balancer_drift: fn(&balancer_drift::Snapshot) -> Plan<balancer_drift::Action>,
}

impl fmt::Debug for Planners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planners").finish_non_exhaustive()
    }
}

impl Default for Planners {
    fn default() -> Self {
        Self {
            node: node::plan,
            node_removal: node_removal::plan,
            service: service::plan,
            balancer_drift: balancer_drift::plan,
        }
    }
}

impl CcmOptions {
    /// Returns the default options for a cloud.
    pub fn new(
        provider: Arc<dyn Provider>,
        credential: CredentialSource,
        services: service::Options,
        routes: route::Options,
    ) -> Self {
        Self {
            provider,
            credential,
            controllers: Controllers::ALL,
            nodes: Arc::default(),
            services: Arc::new(services),
            routes: Arc::new(routes),
            drift_period: DRIFT_PERIOD,
            calls_at_once: 8,
            machines: None,
            settings_name: SETTINGS_NAME.to_owned(),
            dry_run: false,
            planners: Planners::default(),
        }
    }
}

/// Inputs of the kinds beyond the runtime's options.
pub struct Tools {
    pub(crate) options: CcmOptions,
    pub(crate) credential: CredentialSource,
}

impl From<CcmOptions> for Tools {
    fn from(options: CcmOptions) -> Self {
        let mut options = options;
        options.nodes = Arc::new(node::Options {
            initializes: options.controllers.node,
            follows_lifecycle: options.controllers.node_lifecycle,
            ..(*options.nodes).clone()
        });
        Self { credential: options.credential.clone(), options }
    }
}
