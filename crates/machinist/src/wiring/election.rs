//! Leader election: checks the flags, gets the Lease, and releases it at the end.
//!
//! A leader may start a call of any length if it renewed its Lease within the renew deadline. It
//! keeps renewing, and releases the Lease only after the call has ended or passed its bound. So the
//! flags do not depend on the length of calls. If a process dies during a call, instance keys
//! prevent a duplicate instance.

use std::any::Any;
use std::time::Duration;

use anyhow::bail;
use machinist_kube::lease::{ElectionEnd, Elector, Leadership, LeaseOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::standby::Phase;
use super::{Process, identity};

/// Converts the flags to election options; `None` with `--leader-elect=false`.
///
/// # Errors
/// If durations contradict each other. The error names the flag and the expected value.
pub(super) fn lease_options(process: &Process<'_>) -> anyhow::Result<Option<LeaseOptions>> {
    let flags = process.leader;
    if !flags.leader_elect {
        return Ok(None);
    }
    let mut options =
        LeaseOptions::new(process.lease.namespace, process.lease.name, identity::of_this_process());
    options.lease_duration = flags.leader_elect_lease_duration;
    options.renew_deadline = flags.leader_elect_renew_deadline;
    options.retry_period = flags.leader_elect_retry_period;
    options.seed = identity::seed();
    options.validate()?;
    Ok(Some(options))
}

/// The elector waits this much longer for calls in flight than the process. The process knows the
/// calls and reports them.
const BEHIND: Duration = Duration::from_secs(1);

/// A process that does not lead within this time begins to watch for its metrics.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// Leader election of a process, if it is enabled.
pub(super) struct Election {
    pub leadership: Option<Leadership>,
    elector: Option<Running>,
}

/// The elector's task.
struct Running {
    /// Dropped when no new work may start.
    leading: Option<oneshot::Sender<()>>,
    /// Dropped when no call is in flight.
    in_flight: oneshot::Sender<()>,
    task: JoinHandle<ElectionEnd>,
}

impl Election {
    /// Disables the election, for a process that is the only one.
    pub(super) fn none() -> Self {
        Self { leadership: None, elector: None }
    }

    /// Joins the election and waits until this process is the leader. `observe` starts what runs
    /// meanwhile.
    ///
    /// # Errors
    /// If the lease was lost before work began.
    pub(super) async fn join(
        client: kube::Client,
        options: LeaseOptions,
        drains_within: Duration,
        phase: &Phase,
        observe: Option<impl FnOnce(Leadership) -> Box<dyn Any + Send>>,
    ) -> anyhow::Result<Self> {
        tracing::info!(lease = options.name, identity = options.identity, "Waiting for the lease");
        let lease = options.name.clone();
        let (elector, leadership) = Elector::new(client, options, machinist_kube::SystemClock::shared());
        phase.joins(&lease, &leadership);
        let (leading, stop) = oneshot::channel();
        let (in_flight, drained) = oneshot::channel();
        let task =
            tokio::spawn(elector.run_and_drain(dropped(stop), dropped(drained), drains_within + BEHIND));
        let elector = Running { leading: Some(leading), in_flight, task };
        let election = Self { leadership: Some(leadership.clone()), elector: Some(elector) };
        // A process that leads at once needs no watches for its wait.
        let first_answer = tokio::time::timeout(FIRST_ANSWER, leadership.acquired()).await;
        let _observing = match (first_answer, observe) {
            (Err(_), Some(observe)) => Some(observe(leadership.clone())),
            (Ok(_) | Err(_), _) => None,
        };
        if leadership.acquired().await.is_err() {
            bail!("the lease was lost before work began");
        }
        Ok(election)
    }

    /// Completes when leadership is lost and returns the reason. Never completes without an
    /// election.
    pub(super) async fn lost(&mut self) -> String {
        let Some(Running { task, .. }) = &mut self.elector else { return std::future::pending().await };
        let ended = task.await;
        // A finished task must not be awaited again, and there is no Lease left to release.
        self.elector = None;
        match ended {
            Ok(ElectionEnd::Lost { reason }) => format!("leadership was lost: {reason}"),
            Ok(ElectionEnd::Released) => "leadership was released".to_owned(),
            Err(_) => "the election ended".to_owned(),
        }
    }

    /// Stops new work. The Lease is renewed until it is released.
    pub(super) fn begin_draining(&mut self) {
        if let Some(elector) = &mut self.elector {
            elector.leading = None;
        }
    }

    /// Releases the Lease, so that the next process need not wait until it expires.
    pub(super) async fn release(self) {
        let Some(Running { leading, in_flight, task }) = self.elector else { return };
        drop((leading, in_flight));
        // The task ends within `GIVE_BACK_WITHIN` and logs the result.
        let _ = task.await;
    }

    /// Stops renewing without a release, so that the Lease expires.
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
    use std::net::SocketAddr;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::wiring::{LeaseName, Shows};

    /// Returns the election options of a command line.
    fn options_of(flags: &str, call_bound: Duration) -> anyhow::Result<Option<LeaseOptions>> {
        let line = format!("machinist machine-controller --sim-endpoint http://127.0.0.1:1 {flags}");
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("flags");
        let Command::MachineController(args) = cli.command else { panic!("{line}") };
        lease_options(&Process {
            component: "machine-controller",
            resources: &[],
            clusters: &args.clusters,
            listen: Some(SocketAddr::new(args.server.address, args.port)),
            secure: None,
            lease: LeaseName { namespace: &args.clusters.namespace, name: "machine-controller" },
            concurrency: args.concurrent_syncs,
            leader: &args.leader,
            permissions: Vec::new(),
            metrics: None,
            profiler: machinist_serve::Profiler::Off,
            call_bound: Some(call_bound),
            shows: Shows::default(),
        })
    }

    #[test]
    fn the_default_lease_allows_calls_of_any_length() {
        for seconds in [1, 5, 60, 900] {
            let options =
                options_of("", Duration::from_secs(seconds)).expect("accepted").expect("an election");
            let durations = (options.lease_duration, options.renew_deadline);
            assert_eq!(durations, (Duration::from_secs(15), Duration::from_secs(10)));
        }
    }

    #[test]
    fn a_lease_shorter_than_its_renew_deadline_is_an_error() {
        let wrong = "--leader-elect-lease-duration=5s --leader-elect-renew-deadline=10s";
        let error = options_of(wrong, Duration::from_secs(1)).expect_err("refused").to_string();
        assert!(error.contains("lease"), "{error}");
        assert!(options_of("--leader-elect=false", Duration::from_secs(1)).expect("accepted").is_none());
    }
}
