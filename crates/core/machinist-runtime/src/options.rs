//! Options and clients of a process.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use machinist_kube::{SharedClock, Skew, SystemClock};
use machinist_serve::Metrics;

use crate::accounts::Accounts;
use crate::activity::Pulse;

/// The clients of one process. Both may connect to the same API server.
#[derive(Clone)]
pub struct Clients {
    /// Client of the cluster that has the contract's own objects.
    pub control: kube::Client,
    /// Client of the cluster that has the Nodes.
    pub target: kube::Client,
}

/// One task of a process.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Wraps each task of a process; by default, tasks run as they are.
#[derive(Clone, Default)]
pub struct Wrap(Option<Arc<dyn Fn(Task) -> Task + Send + Sync>>);

impl Wrap {
    /// Wraps each task with that function.
    pub fn with(wrap: impl Fn(Task) -> Task + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(wrap)))
    }

    pub(crate) fn around(&self, task: impl Future<Output = ()> + Send + 'static) -> Task {
        match &self.0 {
            Some(wrap) => wrap(Box::pin(task)),
            None => Box::pin(task),
        }
    }
}

/// Options of a process, independent of the contract.
#[derive(Clone)]
pub struct Options {
    /// The served namespace of the control cluster.
    pub namespace: String,
    /// The number of workers, and so of concurrent passes.
    pub concurrency: usize,
    /// The longest time between two passes over an object.
    pub resync: Duration,
    /// The clock for API timestamps.
    pub clock: SharedClock,
    /// The skew between that clock and the clock of the control cluster.
    pub skew: Skew,
    /// The skew between that clock and the clock of the target cluster, which has the Node
    /// heartbeats.
    pub target_skew: Skew,
    /// The seed for the jitter of retries.
    pub seed: u64,
    /// The open cloud accounts. Contracts in one program share them, so that together they keep the
    /// limits of an account.
    pub accounts: Arc<Accounts>,
    /// The measured values of the process.
    pub metrics: Metrics,
    /// Wraps each task of the process. A simulation suspends a process with it.
    pub wrap: Wrap,
    /// The component name in Events.
    pub component: &'static str,
    /// The instance name of this process in Events; usually the host name.
    pub instance: String,
    /// When a pass or a request last began or ended. The program beats it for each request.
    pub pulse: Pulse,
    /// The effective configuration, for `/configz`; null if the process shows none.
    pub config: Arc<serde_json::Value>,
}

impl Options {
    /// Creates the default options for one namespace, with the system clock.
    pub fn new(namespace: impl Into<String>, component: &'static str) -> Self {
        Self {
            namespace: namespace.into(),
            concurrency: 10,
            resync: Duration::from_secs(600),
            clock: SystemClock::shared(),
            skew: Skew::default(),
            target_skew: Skew::default(),
            seed: 0,
            accounts: Arc::default(),
            metrics: Metrics::default(),
            wrap: Wrap::default(),
            component,
            instance: String::new(),
            pulse: Pulse::default(),
            config: Arc::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
