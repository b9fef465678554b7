//! What a process is told: flags, clocks, sources of secrets, and which planners decide.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::Provider;
use machinist_kube::{SharedClock, Skew, SystemClock};
use machinist_plan::Plan;
use machinist_plan::mcm::machine_set::SafetyMargins;
use machinist_plan::mcm::{machine, machine_class, machine_deployment, machine_set, replacement};

/// What every process is told.
#[derive(Clone)]
pub struct Options {
    /// The namespace of the control cluster that it serves.
    pub namespace: String,
    /// How many keys are looked at at once.
    pub concurrency: usize,
    /// Each object is looked at at least this often, whatever happens.
    pub resync: Duration,
    /// Where API timestamps come from.
    pub clock: SharedClock,
    /// How far that clock is from the API servers'.
    pub skew: Skew,
    /// The same of the target cluster: when its Nodes went silent is judged by its clock.
    pub target_skew: Skew,
    /// The seed of the jitter of retries.
    pub seed: u64,
    /// When Go's machine-controller-manager freezes a set, and so when its freeze is lifted.
    pub safety_margins: SafetyMargins,
    /// Who decides.
    pub planners: Planners,
    /// Names the program in Events.
    pub component: &'static str,
    /// Names this process of it in Events; usually the host's name.
    pub instance: String,
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

impl Options {
    /// What the runtime is told, and which planners decide.
    pub(crate) fn split(self) -> (machinist_runtime::Options, (Planners, SafetyMargins)) {
        let Self {
            namespace,
            concurrency,
            resync,
            clock,
            skew,
            target_skew,
            seed,
            safety_margins,
            planners,
            component,
            instance,
        } = self;
        let options = machinist_runtime::Options {
            namespace,
            concurrency,
            resync,
            clock,
            skew,
            target_skew,
            seed,
            component,
            instance,
        };
        (options, (planners, safety_margins))
    }

    /// Options for one namespace, on the system clock.
    pub fn new(namespace: impl Into<String>, component: &'static str) -> Self {
        Self {
            namespace: namespace.into(),
            concurrency: 10,
            resync: Duration::from_secs(600),
            clock: SystemClock::shared(),
            skew: Skew::default(),
            target_skew: Skew::default(),
            seed: 0,
            safety_margins: SafetyMargins::default(),
            planners: Planners::default(),
            component,
            instance: String::new(),
        }
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

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
