//! What a process is told.

use std::fmt;
use std::time::Duration;

use machinist_kube::{SharedClock, Skew, SystemClock};

/// The clients of one process. Both may be of the same server.
#[derive(Clone)]
pub struct Clients {
    /// Where the contract's own objects live.
    pub control: kube::Client,
    /// Where Nodes live.
    pub target: kube::Client,
}

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
    /// How far that clock is from the control cluster's.
    pub skew: Skew,
    /// The same of the target cluster: when its Nodes went silent is judged by its clock.
    pub target_skew: Skew,
    /// The seed of the jitter of retries.
    pub seed: u64,
    /// Names the program in Events.
    pub component: &'static str,
    /// Names this process of it in Events; usually the host's name.
    pub instance: String,
}

impl Options {
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
            component,
            instance: String::new(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
