//! The election: whether the flags fit together, and taking part in it.
//!
//! A process that cannot renew its Lease stops at the renew deadline, counted from the moment its last renewal was sent; others
//! wait for the lease duration, counted from later. A call to the cloud that was started in the last moment before the stop may
//! take effect for as long as the driver says. All of that must fit into the Lease:
//!
//! ```text
//! renew deadline + call bound <= lease duration
//! ```
//!
//! Then every call has ended before somebody else may lead. From the same inequality follows that a leading process always has
//! enough of its Lease left to start a call, so none is put off for ever.

use std::time::Duration;

use anyhow::bail;
use machinist_api::GoDuration;
use machinist_kube::lease::{ElectionEnd, Elector, Leadership, LeaseOptions};
use tokio::task::JoinHandle;

use super::{Process, identity};

/// What the flags say about the election; `None` where the process is alone by its user's word.
///
/// # Errors
/// Durations that cannot work together, named by flag, with what was expected.
pub(super) fn lease_options(process: &Process<'_>) -> anyhow::Result<Option<LeaseOptions>> {
    let flags = process.leader;
    if !flags.leader_elect {
        return Ok(None);
    }
    let mut options =
        LeaseOptions::new(&process.clusters.namespace, process.component, identity::of_this_process());
    options.lease_duration = flags.leader_elect_lease_duration;
    options.renew_deadline = flags.leader_elect_renew_deadline;
    options.retry_period = flags.leader_elect_retry_period;
    options.seed = identity::seed();
    options.validate()?;
    if let Some(call_bound) = process.call_bound {
        calls_end_in_time(&options, call_bound)?;
    }
    Ok(Some(options))
}

/// Whether each call to the cloud has ended before somebody else may lead.
fn calls_end_in_time(options: &LeaseOptions, call_bound: Duration) -> anyhow::Result<()> {
    let LeaseOptions { lease_duration: lease, renew_deadline: renew, .. } = options;
    let (lease, renew) = (*lease, *renew);
    let longest = lease.saturating_sub(call_bound);
    if renew <= longest {
        return Ok(());
    }
    let why = format!("a call to the cloud may take effect {} after it was started", go(call_bound));
    // A shorter deadline helps only if it leaves time to renew.
    let shorter = LeaseOptions { renew_deadline: longest, ..options.clone() };
    if shorter.validate().is_ok() {
        bail!(
            "--leader-elect-renew-deadline {}: expected at most {}, so that it ends within the {} of \
             --leader-elect-lease-duration: {why}",
            go(renew),
            go(longest),
            go(lease)
        );
    }
    bail!(
        "--leader-elect-lease-duration {}: expected at least {}, with --leader-elect-renew-deadline {}: {why}",
        go(lease),
        go(renew.saturating_add(call_bound)),
        go(renew)
    );
}

/// A duration as the flags take it.
fn go(duration: Duration) -> String {
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    GoDuration::from_nanos(nanos).to_string()
}

/// The election that a process takes part in, if it does.
pub(super) struct Election {
    pub leadership: Option<Leadership>,
    elector: Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<ElectionEnd>)>,
}

impl Election {
    /// No election: whoever starts the process says that there is only one.
    pub(super) fn none() -> Self {
        Self { leadership: None, elector: None }
    }

    /// Takes part, and waits until it is won.
    pub(super) async fn join(client: kube::Client, options: LeaseOptions) -> anyhow::Result<Self> {
        tracing::info!(lease = options.name, identity = options.identity, "Waiting for the lease");
        let (elector, leadership) = Elector::new(client, options, machinist_kube::SystemClock::shared());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(elector.run(async move {
            // A dropped sender asks for the same.
            let _ = stopped.await;
        }));
        let election = Self { leadership: Some(leadership.clone()), elector: Some((stop, task)) };
        if leadership.acquired().await.is_err() {
            bail!("the lease was lost before work began");
        }
        Ok(election)
    }

    /// Completes when leadership is lost, with the reason; never where there is no election.
    pub(super) async fn lost(&mut self) -> String {
        let Some((_, task)) = &mut self.elector else { return std::future::pending().await };
        let ended = task.await;
        // A task that has ended must not be awaited again, and there is nothing left to give back.
        self.elector = None;
        match ended {
            Ok(ElectionEnd::Lost { reason }) => format!("leadership was lost: {reason}"),
            Ok(ElectionEnd::Released) => "leadership was given back".to_owned(),
            Err(_) => "the election ended".to_owned(),
        }
    }

    /// Gives the Lease back, so that the next process need not wait until it runs out.
    pub(super) async fn release(self) {
        let Some((stop, task)) = self.elector else { return };
        // It may have ended by itself; then there is nothing to give back.
        let _ = stop.send(());
        // It ends within `GIVE_BACK_WITHIN`, and says what became of it.
        let _ = task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn checked(lease: u32, renew: u32, bound: Duration) -> Result<(), String> {
        let mut options = LeaseOptions::new("ns", "machine-controller", "me");
        options.lease_duration = lease * SECOND;
        options.renew_deadline = renew * SECOND;
        calls_end_in_time(&options, bound).map_err(|error| error.to_string())
    }

    #[test]
    fn calls_that_end_with_the_lease_are_in_time() {
        assert_eq!(checked(15, 10, SECOND), Ok(()));
        assert_eq!(checked(15, 10, 5 * SECOND), Ok(()));
        let error = checked(15, 10, 5 * SECOND + Duration::from_millis(1)).expect_err("a moment too long");
        assert!(error.contains("--leader-elect-renew-deadline 10s: expected at most 9.999s"), "{error}");
    }

    #[test]
    fn a_lease_that_is_too_short_for_any_deadline_is_named_itself() {
        for bound in [13, 15, 60] {
            let error = checked(15, 10, bound * SECOND).expect_err("longer than the lease");
            let expected = go((10 + bound) * SECOND);
            let expected = format!("--leader-elect-lease-duration 15s: expected at least {expected}, with");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
