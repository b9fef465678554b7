//! What a process of the machine API is told beyond what every process is: its cloud, its sources of secrets, and who decides.

use std::fmt;
use std::sync::Arc;

use machinist_driver::Provider;
use machinist_plan::Plan;
use machinist_plan::mcm::machine_set::SafetyMargins;
use machinist_plan::mcm::{machine, machine_class, machine_deployment, machine_set, replacement};

use crate::ProcessOptions;

/// What each of the two processes is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// What a process of any contract is told.
    pub process: ProcessOptions,
    /// When Go's machine-controller-manager freezes a set, and so when its freeze is lifted.
    pub safety_margins: SafetyMargins,
    /// Who decides.
    pub planners: Planners,
}

impl From<ProcessOptions> for Options {
    fn from(process: ProcessOptions) -> Self {
        Self { process, safety_margins: SafetyMargins::default(), planners: Planners::default() }
    }
}

/// What the machine controller is told beyond that.
#[derive(Clone)]
pub struct MachineOptions {
    /// The cloud.
    pub provider: Arc<dyn Provider>,
    /// Which installation instances belong to.
    pub cluster: String,
    /// What applies where Machines say nothing.
    pub defaults: Arc<machine::Defaults>,
    /// How many driver calls per account are in flight at once.
    pub calls_per_account: usize,
    /// Groups that bootstrap tokens give, comma-separated; may be empty.
    pub token_groups: String,
    /// Where the secret part of tokens comes from.
    pub entropy: Entropy,
}

/// Fills bytes with secrets. Nothing that decides draws from it.
pub type Entropy = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Who decides, per kind. A simulation puts broken ones here, to see that they are caught.
#[derive(Clone, Copy)]
pub struct Planners {
    /// Decides about a Machine.
    pub machine: fn(&machine::Snapshot) -> Plan<machine::Action>,
    /// Decides about a class.
    pub class: fn(&machine_class::ClassSnapshot) -> Plan<machine_class::Action>,
    /// Decides about a Secret.
    pub secret: fn(&machine_class::SecretSnapshot) -> Plan<machine_class::Action>,
    /// Decides which Machine may be given up.
    pub replacement: fn(&replacement::Snapshot) -> Plan<replacement::Action>,
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
            machine_set: machine_set::plan,
            machine_deployment: machine_deployment::plan,
        }
    }
}

/// What the kinds of the machine API need beyond the runtime's options.
pub struct Tools {
    /// Absent in the manager.
    pub machine: Option<MachineOptions>,
    /// Whether sets and deployments are decided about here.
    pub decides_sets: bool,
    /// When Go's machine-controller-manager freezes a set, and so when its freeze is lifted.
    pub safety_margins: SafetyMargins,
    /// Who decides.
    pub planners: Planners,
}

impl Tools {
    /// The options of the machine controller.
    pub(crate) fn machine(&self) -> &MachineOptions {
        self.machine.as_ref().expect("only the machine controller watches Machines' instances")
    }
}

impl MachineOptions {
    /// Options for one cloud, with secrets from the operating system.
    pub fn new(provider: Arc<dyn Provider>, cluster: impl Into<String>) -> Self {
        Self {
            provider,
            cluster: cluster.into(),
            defaults: Arc::default(),
            calls_per_account: 50,
            token_groups: String::new(),
            entropy: Arc::new(|bytes| {
                getrandom::fill(bytes).expect("the operating system has a source of randomness");
            }),
        }
    }
}
