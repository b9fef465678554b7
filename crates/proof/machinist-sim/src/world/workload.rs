//! The part of a scenario that a seed varies: the timeouts of the Machines, the limits of their
//! rollout, and the pods on their Nodes.

use std::time::Duration;

use crate::seed::Seed;

/// The beginning of the names of pods that no scenario creates itself.
pub const TENANT: &str = "tenant-";

/// Timeouts of the Machines, pods on their Nodes, and how the processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// `spec.healthTimeout`; the world's own one if absent.
    pub health_timeout: Option<Duration>,
    /// `spec.drainTimeout`.
    pub drain_timeout: Option<Duration>,
    /// `spec.creationTimeout`.
    pub creation_timeout: Option<Duration>,
    /// `spec.strategy.rollingUpdate.maxSurge` of the deployment.
    pub max_surge: u32,
    /// `spec.strategy.rollingUpdate.maxUnavailable` of the deployment.
    pub max_unavailable: u32,
    /// Whether a rollout has the strategy `Recreate`.
    pub recreates: bool,
    /// Whether a user preserves the Machine of the Node with a pod that dies.
    pub preserves: bool,
    /// The pods on each Node.
    pub tenants: Tenants,
    /// Whether each process takes part in an election.
    pub election: Election,
}

/// The pods on each Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenants {
    /// No pods.
    None,
    /// One pod on each Node, which may be evicted.
    Free,
    /// One pod on each Node, which a budget protects forever.
    Protected,
}

/// Whether each process takes part in an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// Each process is alone by construction.
    None,
    /// Each process holds a Lease, and is restarted when it loses the Lease.
    Lease,
    /// Each process takes part in the election, and acts with and without the Lease: a mutant.
    Ignored,
}

impl Workload {
    /// The workload of scenarios without long faults.
    pub const USUAL: Self = Self {
        health_timeout: None,
        drain_timeout: None,
        creation_timeout: None,
        max_surge: 1,
        max_unavailable: 0,
        recreates: false,
        preserves: false,
        tenants: Tenants::None,
        election: Election::None,
    };

    /// Draws the workload of a run from its seed.
    pub fn draw(seed: Seed) -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        let mut stream = seed.stream("workload");
        let tenants = stream.pick(&[Tenants::None, Tenants::None, Tenants::Free, Tenants::Protected]);
        let tenants = tenants.unwrap_or(Tenants::None);
        let health = stream.pick(&[None, Some(MINUTE * 3), Some(MINUTE * 10)]).flatten();
        let drain = stream.pick(&[MINUTE * 2, MINUTE * 5, MINUTE * 15]);
        let creation = stream.pick(&[None, Some(MINUTE * 5), Some(MINUTE * 10)]).flatten();
        let (max_surge, max_unavailable) =
            stream.pick(&[(1, 0), (1, 0), (0, 1), (1, 1), (2, 1)]).unwrap_or((1, 0));
        let election = if stream.happens(200) { Election::Lease } else { Election::None };
        Self {
            health_timeout: health,
            // A drain that a budget blocks forever ends with its timeout, two hours by default.
            drain_timeout: drain.filter(|_| tenants == Tenants::Protected),
            creation_timeout: creation,
            max_surge,
            max_unavailable,
            recreates: seed.stream("strategy").happens(250),
            preserves: seed.stream("preservation").happens(500),
            tenants,
            election,
        }
    }
}
