//! Calls of one life of a process to something outside of its API servers: crash points, deaths and
//! history. The caller adds the faults of what it calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::crash::{CallKind, Life};
use super::long::OutageMode;
use crate::actor::TestedProcess;
use crate::lab::Lab;

/// The caller of one life.
#[derive(Clone)]
pub(crate) struct Caller {
    life: Arc<Life>,
    lab: Arc<Lab>,
}

/// A call that has begun.
pub(crate) struct BegunCall(Option<usize>);

/// The end of a call while the cloud is away.
pub(crate) enum Unreachable {
    /// No connection was made.
    Refused,
    /// A proxy answers 503.
    Unavailable,
    /// The connection broke before an answer arrived.
    Lost,
}

impl Caller {
    pub(crate) fn new(life: Arc<Life>, lab: Arc<Lab>) -> Self {
        Self { life, lab }
    }

    pub(crate) fn lab(&self) -> &Arc<Lab> {
        &self.lab
    }

    pub(crate) fn life(&self) -> u32 {
        self.life.number
    }

    pub(crate) fn process(&self) -> TestedProcess {
        self.life.process
    }

    /// Begins a call. A dead process, and one whose run has failed, waits forever.
    pub(crate) async fn begin(&self, label: &str) -> BegunCall {
        let process = self.life.process;
        self.life.while_alive().await;
        if !self.lab.fuse.holds(format_args!("{process} cloud {label}")) {
            std::future::pending::<()>().await;
        }
        let point = self.lab.points.before(CallKind::DriverCall);
        self.lab.may_die(&self.life).await;
        self.lab.history.requested(process, label);
        BegunCall(point)
    }

    /// Ends a call that took effect. A dead process never hears its answer.
    pub(crate) async fn end(&self, BegunCall(point): BegunCall) {
        self.life.while_alive().await;
        self.lab.points.after(point);
        self.lab.may_die(&self.life).await;
    }

    /// Returns how the call ends if the cloud is away now.
    pub(crate) async fn unreachable(&self) -> Option<Unreachable> {
        unreachable(&self.lab).await
    }
}

/// Returns how a call ends if the cloud is away now.
pub(super) async fn unreachable(lab: &Lab) -> Option<Unreachable> {
    // A refusal takes time, so that no loop runs forever in one instant.
    const ROUND_TRIP: Duration = Duration::from_millis(1);
    let (absence, until) = lab.plan.cloud_away()?;
    let (until, unreachable) = match absence {
        OutageMode::Refused => (Instant::now() + ROUND_TRIP, Unreachable::Refused),
        OutageMode::Unavailable => (Instant::now() + ROUND_TRIP, Unreachable::Unavailable),
        OutageMode::Hanging => (until, Unreachable::Lost),
    };
    tokio::time::sleep_until(until).await;
    Some(unreachable)
}
