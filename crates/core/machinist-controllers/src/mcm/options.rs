//! Options of a process of the machine API, besides the options of every process: its cloud, its
//! sources of secrets, and its planners.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::Providers;
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::machine_set::SafetyMargins;
use machinist_plan::mcm::{
    lost_owner, machine, machine_class, machine_deployment, machine_set, orphan, orphaned_node,
    orphaned_token, replacement,
};

use crate::ProcessOptions;

/// Options of both processes.
#[derive(Debug, Clone)]
pub struct Options {
    /// Options of a process of any contract.
    pub process: ProcessOptions,
    /// When a MachineSet with too many Machines is frozen, and when the freeze ends.
    pub safety_margins: SafetyMargins,
    /// Whether the autoscaler must not remove Nodes during a rollout.
    pub protects_nodes: bool,
    /// Functions that decide.
    pub planners: Planners,
}

impl From<ProcessOptions> for Options {
    fn from(process: ProcessOptions) -> Self {
        let (safety_margins, planners) = (SafetyMargins::default(), Planners::default());
        Self { process, safety_margins, protects_nodes: true, planners }
    }
}

/// Additional options of the machine controller.
#[derive(Clone)]
pub struct MachineOptions {
    /// Providers of the clouds, of which the class of a Machine chooses one.
    pub providers: Providers,
    /// Name of the installation that instances belong to.
    pub cluster: String,
    /// Values for fields that Machines do not set.
    pub defaults: Arc<machine::Defaults>,
    /// Maximum number of concurrent driver calls per account.
    pub calls_per_account: usize,
    /// Groups of bootstrap tokens, comma-separated; may be empty.
    pub token_groups: String,
    /// When the controller is frozen because an API server does not answer; absent if it never is.
    pub server_limits: Option<ServerLimits>,
    /// Random source for the secret part of tokens.
    pub entropy: Entropy,
    /// Whether there is a target cluster, which has the Nodes.
    pub target: machine::TargetCluster,
    /// Whether the Nodes may be in a cluster that was not named. Then a Node that is not found was
    /// not looked up.
    pub nodes_may_be_elsewhere: bool,
    /// How orphans are collected. If absent, no instance gets the tag with the UID of its
    /// namespace, and no orphan is looked for.
    pub orphans: Option<orphan::OrphanOptions>,
}

/// When the machine controller is frozen because an API server does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// `--machine-safety-apiserver-statuscheck-timeout`: how long the API server may not answer.
    pub timeout: Duration,
    /// `--machine-safety-apiserver-statuscheck-period`: the time between two checks while the facts
    /// are not fresh and the API server answers.
    pub period: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), period: Duration::from_secs(60) }
    }
}

/// Fills a buffer with secret random bytes. No decision uses them.
pub type Entropy = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Functions that decide, per kind. A simulation replaces them with faulty ones to check that it
/// finds the faults.
#[derive(Clone, Copy)]
pub struct Planners {
    /// Decides about a Machine.
    pub machine: fn(&machine::Snapshot) -> Plan<machine::Action>,
    /// Decides about a MachineClass.
    pub class: fn(&machine_class::ClassSnapshot) -> Plan<machine_class::Action>,
    /// Decides about a Secret.
    pub secret: fn(&machine_class::SecretSnapshot) -> Plan<machine_class::Action>,
    /// Decides which Machine is marked as Failed.
    pub replacement: fn(&replacement::Snapshot) -> Plan<replacement::Action>,
    /// Decides about a Machine whose MachineSet is unknown.
    pub lost_owner: fn(&lost_owner::Snapshot) -> Plan<lost_owner::Action>,
    /// Decides about a Node that is being deleted and that no Machine has.
    pub orphaned_node: fn(&orphaned_node::Snapshot) -> Plan<orphaned_node::Action>,
    /// Decides about the orphans of an account.
    pub orphan: fn(&orphan::Snapshot) -> Plan<orphan::Action>,
    /// Decides about a bootstrap token whose Machine is gone.
    pub orphaned_token: fn(&orphaned_token::Snapshot) -> Plan<orphaned_token::Action>,
    /// Decides about a MachineSet.
    pub machine_set: fn(&machine_set::Snapshot) -> Plan<machine_set::Action>,
    /// Decides about a MachineDeployment.
    pub machine_deployment: fn(&machine_deployment::Snapshot) -> Plan<machine_deployment::Action>,
}

impl fmt::Debug for Planners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planners").finish_non_exhaustive()
    }
}

impl Default for Planners {
    fn default() -> Self {
        Self {
            machine: machine::plan,
            class: machine_class::plan,
            secret: machine_class::plan_secret,
            replacement: replacement::plan,
            lost_owner: lost_owner::plan,
            orphaned_node: orphaned_node::plan,
            orphan: orphan::plan,
            orphaned_token: orphaned_token::plan,
            machine_set: machine_set::plan,
            machine_deployment: machine_deployment::plan,
        }
    }
}

/// Dependencies of the kinds of the machine API besides the runtime's options.
pub struct Tools {
    /// Options of the machine controller; absent in the manager.
    pub machine: Option<MachineOptions>,
    /// Whether this process decides about MachineSets and MachineDeployments.
    pub decides_sets: bool,
    /// When a MachineSet with too many Machines is frozen, and when the freeze ends.
    pub safety_margins: SafetyMargins,
    /// Whether the autoscaler must not remove Nodes during a rollout.
    pub protects_nodes: bool,
    /// Functions that decide.
    pub planners: Planners,
}

impl Tools {
    /// Whether this process decides about Nodes, and about Machines by their Nodes.
    pub(crate) fn decides_nodes(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.target == machine::TargetCluster::Given)
    }

    /// Returns the options of the machine controller.
    pub(crate) fn machine(&self) -> &MachineOptions {
        self.machine.as_ref().expect("only the machine controller handles instances")
    }
}

impl MachineOptions {
    /// Returns options for these clouds, with random bytes from the operating system.
    pub fn new(providers: impl Into<Providers>, cluster: impl Into<String>) -> Self {
        Self {
            providers: providers.into(),
            cluster: cluster.into(),
            defaults: Arc::default(),
            calls_per_account: 50,
            token_groups: String::new(),
            server_limits: None,
            target: machine::TargetCluster::Given,
            nodes_may_be_elsewhere: false,
            orphans: None,
            entropy: Arc::new(|bytes| {
                getrandom::fill(bytes).expect("the operating system has a source of randomness");
            }),
        }
    }
}
