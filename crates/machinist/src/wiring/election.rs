//! The election: whether the flags fit together, taking part in it, and giving the Lease back at the end.
//!
//! A leading process may begin a call of any length as long as it renewed its Lease within the renew deadline: it goes on renewing, and
//! does not give the Lease back before the call has ended or passed its bound. So the flags need not know how long calls last. A process
//! that dies leaves its calls to the keys of instances, which let none be made twice.

use std::time::Duration;

use anyhow::bail;
use machinist_kube::lease::{ElectionEnd, Elector, Leadership, LeaseOptions};
use tokio::sync::oneshot;
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
    Ok(Some(options))
}

/// The elector's own limit to the wait for calls in flight lies behind that of the process, which knows what it waits for.
const BEHIND: Duration = Duration::from_secs(1);

/// The election that a process takes part in, if it does.
pub(super) struct Election {
    pub leadership: Option<Leadership>,
    elector: Option<Running>,
}

/// The elector's task.
struct Running {
    /// Dropped when nothing more may begin.
    leading: Option<oneshot::Sender<()>>,
    /// Dropped when nothing is in flight.
    in_flight: oneshot::Sender<()>,
    task: JoinHandle<ElectionEnd>,
}

impl Election {
    /// No election: whoever starts the process says that there is only one.
    pub(super) fn none() -> Self {
        Self { leadership: None, elector: None }
    }

    /// Takes part, and waits until it is won.
    ///
    /// # Errors
    /// When the lease was lost before work began.
    pub(super) async fn join(
        client: kube::Client,
        options: LeaseOptions,
        drains_within: Duration,
    ) -> anyhow::Result<Self> {
        tracing::info!(lease = options.name, identity = options.identity, "Waiting for the lease");
        let (elector, leadership) = Elector::new(client, options, machinist_kube::SystemClock::shared());
        let (leading, stop) = oneshot::channel();
        let (in_flight, drained) = oneshot::channel();
        let task =
            tokio::spawn(elector.run_and_drain(dropped(stop), dropped(drained), drains_within + BEHIND));
        let elector = Running { leading: Some(leading), in_flight, task };
        let election = Self { leadership: Some(leadership.clone()), elector: Some(elector) };
        if leadership.acquired().await.is_err() {
            bail!("the lease was lost before work began");
        }
        Ok(election)
    }

    /// Completes when leadership is lost, with the reason; never where there is no election.
    pub(super) async fn lost(&mut self) -> String {
        let Some(Running { task, .. }) = &mut self.elector else { return std::future::pending().await };
        let ended = task.await;
        // A task that has ended must not be awaited again, and there is nothing left to give back.
        self.elector = None;
        match ended {
            Ok(ElectionEnd::Lost { reason }) => format!("leadership was lost: {reason}"),
            Ok(ElectionEnd::Released) => "leadership was given back".to_owned(),
            Err(_) => "the election ended".to_owned(),
        }
    }

    /// From now on nothing may begin; the Lease is renewed until it is given back.
    pub(super) fn begin_draining(&mut self) {
        if let Some(elector) = &mut self.elector {
            elector.leading = None;
        }
    }

    /// Gives the Lease back, so that the next process need not wait until it runs out.
    pub(super) async fn release(self) {
        let Some(Running { leading, in_flight, task }) = self.elector else { return };
        drop((leading, in_flight));
        // It ends within `GIVE_BACK_WITHIN`, and says what became of it.
        let _ = task.await;
    }

    /// Leaves the Lease as it is: it runs out.
    pub(super) fn abandon(self) {
        if let Some(Running { task, .. }) = self.elector {
            task.abort();
        }
    }
}

/// Completes when the sender is dropped.
async fn dropped(receiver: oneshot::Receiver<()>) {
    let _ = receiver.await;
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    /// What is taken of a command line.
    fn options_of(flags: &str, call_bound: Duration) -> anyhow::Result<Option<LeaseOptions>> {
        let line = format!("machinist machine-controller --sim-endpoint http://127.0.0.1:1 {flags}");
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("flags");
        let Command::MachineController(args) = cli.command else { panic!("{line}") };
        lease_options(&Process {
            component: "machine-controller",
            resources: &[],
            clusters: &args.clusters,
            server: &args.server,
            port: args.port,
            concurrency: args.concurrent_syncs,
            leader: &args.leader,
            call_bound: Some(call_bound),
            compatibility: &args.compatibility,
        })
    }

    #[test]
    fn the_default_lease_fits_calls_of_any_length() {
        for seconds in [1, 5, 60, 900] {
            let options = options_of("", Duration::from_secs(seconds)).expect("taken").expect("an election");
            let durations = (options.lease_duration, options.renew_deadline);
            assert_eq!(durations, (Duration::from_secs(15), Duration::from_secs(10)));
        }
    }

    #[test]
    fn a_lease_that_ends_before_its_renew_deadline_is_refused() {
        let wrong = "--leader-elect-lease-duration=5s --leader-elect-renew-deadline=10s";
        let error = options_of(wrong, Duration::from_secs(1)).expect_err("refused").to_string();
        assert!(error.contains("lease"), "{error}");
        assert!(options_of("--leader-elect=false", Duration::from_secs(1)).expect("taken").is_none());
    }
}
