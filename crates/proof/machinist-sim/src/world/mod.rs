//! A world to play scenarios in: two clusters, a cloud with machines that boot, both processes, and a user.
//!
//! A scenario is one function over a [`World`]. There are two: [`simulated`], in this process and under paused time, with faults
//! and crashes on request, and `real`, with the same processes, cloud and machines on real Kubernetes servers in real time. What a
//! world cannot do is skipped by name, never in silence.

pub mod processes;
pub mod real;
pub mod simulated;
pub mod user;
pub mod view;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_cloud_sim::Cloud;
use serde_json::Value;

use crate::actor::Side;
use crate::lab::Answered;
pub use crate::world::user::User;
pub use crate::world::view::View;

/// The namespace of everything that the user makes.
pub const NAMESPACE: &str = "default";

/// What a scenario needs of its surroundings.
#[async_trait]
pub trait World: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;

    /// The user's client of the control cluster. It is never disturbed.
    fn control(&self) -> kube::Client;

    /// The user's client of the target cluster.
    fn target(&self) -> kube::Client;

    /// The cloud, as its operator sees it.
    fn cloud(&self) -> &Cloud;

    /// How fast things go here.
    fn pace(&self) -> Pace;

    /// The moment.
    fn now(&self) -> Timestamp;

    /// What exists.
    async fn look(&self) -> Result<View, Trouble>;

    /// Returns when something may have changed since the last look.
    async fn changed(&self);

    /// The part of the scenario that is of interest begins: before, nothing goes wrong and nothing counts.
    fn begin(&self, what: &str);

    /// Starts both processes, where they do not run yet.
    async fn start_processes(&self) -> Outcome;

    /// Stops both processes.
    ///
    /// # Errors
    /// Where it [cannot](Ability::StoreVerbatim).
    async fn stop_processes(&self) -> Outcome;

    /// Stores an object with everything that it has, uid and times included.
    ///
    /// # Errors
    /// Where it [cannot](Ability::StoreVerbatim).
    async fn store(&self, side: Side, object: &Value) -> Outcome;

    /// Everything that the processes under test were answered so far.
    fn answers(&self) -> Vec<Answered>;

    /// What has gone so wrong that waiting is of no use.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Whether it can do that.
    fn can(&self, ability: Ability) -> bool;
}

/// Something that not every world can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Let the clock jump, so that hours cost nothing.
    SkipTime,
    /// Judge every commit, in order.
    JudgeCommits,
    /// Kill a process at an exact call.
    CrashAtCalls,
    /// Disturb requests, watches and driver calls.
    InjectFaults,
    /// Store objects with the uids and times they had elsewhere.
    StoreVerbatim,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SkipTime => "skip hours of waiting",
            Self::JudgeCommits => "judge every commit",
            Self::CrashAtCalls => "kill a process at an exact call",
            Self::InjectFaults => "disturb requests, watches and driver calls",
            Self::StoreVerbatim => "store objects with the uids and times they had elsewhere",
        })
    }
}

/// How fast things go in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long an awaited state may take.
    pub patience: Duration,
    /// How long something is watched for not happening.
    pub watch_for: Duration,
    /// How long a Machine may be Unknown before it is given up.
    pub health_timeout: Duration,
    /// How long an instance boots.
    pub boot: Duration,
    /// How long after the start of the processes an object is younger than they are for certain. Moments of creation are cut to
    /// whole seconds, and the clocks differ. Of an older Machine a process cannot know that it made all calls for it.
    pub until_younger: Duration,
}

/// Why a scenario could not go on, or found something wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Trouble(pub String);

impl Trouble {
    /// What went wrong, in a sentence.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self(format!("the user's request failed: {error}"))
    }
}

/// How a scenario ended.
pub type Outcome = Result<(), Trouble>;

/// Fails the scenario if that is not so.
pub fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if is_so { Ok(()) } else { Err(Trouble(otherwise())) }
}

impl dyn World + '_ {
    /// Waits until what exists is as wanted, and returns it. `is_so` says what is still missing.
    pub async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&View) -> Result<(), String>,
    ) -> Result<View, Trouble> {
        let patience = self.pace().patience;
        let began = tokio::time::Instant::now();
        loop {
            if let Some(trouble) = self.trouble() {
                return Err(trouble);
            }
            let view = self.look().await?;
            let missing = match is_so(&view) {
                Ok(()) => return Ok(view),
                Err(missing) => missing,
            };
            let Some(left) = patience.checked_sub(began.elapsed()) else {
                return Err(Trouble(format!("waited {patience:?} for {what}: {missing}\n{view}")));
            };
            // A timeout is one more look, and then the end.
            let _ = tokio::time::timeout(left + Duration::from_millis(1), self.changed()).await;
        }
    }
}
