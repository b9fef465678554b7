//! How scenarios wait in a simulated world with one process: for a state, or for a time in which
//! the world must keep its invariants.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::{CertificateAuthority, Config, History, Identity, SeededIds, Server};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::invariants::{Id, Violations};
use crate::lab::{Lab, RunClock};
use crate::outcome::{Outcome, ScenarioError};
use crate::seed::Seed;
use crate::sight::NAMESPACE;

/// Minimum interval between looks, so that a burst of commits counts as one change.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(20);
/// Maximum interval between looks, because the cloud changes with time even without a commit.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// Duration of the window in which nothing may change.
pub const QUIET_FOR: Duration = Duration::from_secs(10 * 60);

/// The place where scenarios wait.
pub struct ScenarioStage {
    lab: Arc<Lab>,
    patience: Duration,
    changed: Arc<Notify>,
}

impl ScenarioStage {
    /// A stage on which a scenario waits so long for a state after the last fault.
    pub fn new(lab: Arc<Lab>, patience: Duration) -> Self {
        Self { lab, patience, changed: Arc::default() }
    }

    /// The shared parts of the run.
    pub fn lab(&self) -> &Arc<Lab> {
        &self.lab
    }

    /// Keeps the history up to date with a server, and wakes tasks that wait for a change.
    pub fn follow(&self, server: &Server, tasks: &mut JoinSet<()>) {
        let (server, history, changed) = (server.clone(), self.lab.history.clone(), self.changed.clone());
        tasks.spawn(async move {
            let mut commits = server.commits();
            while let Some(commit) = commits.next().await {
                history.catch_up();
                // Leases are renewed all the time, and no task waits for them.
                if !commit.resource.starts_with("leases") {
                    changed.notify_waiters();
                }
            }
        });
    }

    /// Wakes tasks that wait for a change of another place than an API server.
    pub fn tell(&self) {
        self.changed.notify_waiters();
    }

    /// Returns at the next change. It counts from this call on, not from when the result is
    /// awaited.
    pub fn next_change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Marks the beginning of the part of interest.
    pub fn begin(&self, what: &str) {
        self.lab.history.step(what);
        self.lab.points.begin();
        self.lab.plan.begin();
    }

    /// Returns when the objects may have changed since the last look.
    pub async fn changed(&self) {
        tokio::time::sleep(LOOK_AT_MOST_EVERY).await;
        // A change in between is seen at the next look, after a short delay at most.
        let _ = tokio::time::timeout(LOOK_AT_LEAST_EVERY, self.changed.notified()).await;
    }

    /// Waits for a state and returns it. `is_so` returns what is still missing.
    ///
    /// # Errors
    /// When the state is never reached, or an invariant is violated.
    pub async fn until<V: fmt::Display>(
        &self,
        what: &str,
        look: impl Fn() -> V,
        is_so: impl Fn(&V) -> Result<(), String>,
    ) -> Result<V, ScenarioError> {
        let (began, patience) = (Instant::now(), self.patience());
        loop {
            if let Some(trouble) = self.trouble() {
                return Err(trouble);
            }
            let view = look();
            let missing = match is_so(&view) {
                Ok(()) => return Ok(view),
                Err(missing) => missing,
            };
            if patience <= began.elapsed() {
                self.lab.history.violate(Id::L1, format!("waited {patience:?} for {what}: {missing}"));
                return Err(ScenarioError(format!("waited {patience:?} for {what}: {missing}\n{view}")));
            }
            self.changed().await;
        }
    }

    /// Timeout for an awaited state, after the last fault.
    pub fn patience(&self) -> Duration {
        self.patience + self.lab.plan.calm_in()
    }

    /// Waits for a time in which the world must keep all invariants.
    ///
    /// # Errors
    /// When an invariant is violated.
    pub async fn pass(&self, time: Duration) -> Outcome {
        tokio::time::sleep(time).await;
        self.trouble().map_or(Ok(()), Err)
    }

    /// An error after which waiting is useless.
    pub fn trouble(&self) -> Option<ScenarioError> {
        if self.lab.history.violations().is_empty()
            && let Some(blown) = self.lab.fuse.blown()
        {
            self.lab.history.violate(Id::L4, blown);
        }
        let first = self.lab.history.violations().into_iter().next()?;
        Some(ScenarioError(format!("{} is violated", first.id)))
    }

    /// Observes the process in the quiet window: it must write nothing, and change nothing in the
    /// cloud. `changes` counts the changes of the cloud.
    pub async fn quiet(&self, changes: impl Fn() -> u64) -> Violations {
        let (answers, before) = (self.lab.answers().len(), changes());
        tokio::time::sleep(QUIET_FOR).await;
        let mut found = Violations::default();
        for answer in &self.lab.answers()[answers..] {
            if answer.ends_quiet() {
                found.add(
                    Id::L4,
                    format!("{} {} {} in the quiet window", answer.process, answer.verb, answer.about),
                );
            }
        }
        if changes() != before {
            found.add(Id::L4, format!("{} changes of the cloud in the quiet window", changes() - before));
        }
        found
    }
}

/// A client of the environment, which meets no faults.
pub fn client(server: &Server, agent: &str) -> kube::Client {
    kube::Client::new(server.service_as(Identity::admin()).with_user_agent(agent), NAMESPACE)
}

/// An API server of a world. Its name decides which ids it draws.
pub fn server(clock: RunClock, seed: Seed, name: &str, ca: Option<CertificateAuthority>) -> Server {
    Server::new(Config {
        clock: Arc::new(clock),
        ids: Arc::new(SeededIds::new(seed.stream(&format!("ids/{name}")).bits())),
        // Faults decide when the server compacts its history.
        history: History::Manual,
        ca,
        ..Config::default()
    })
}
