//! What the two controllers have in common as processes: connect, wait for the Lease, run, answer questions, end.
//!
//! ```text
//! may the flags be used together? -> listen -> connect -> are the kinds served? -> Lease -> start
//!   -> until a stop is asked for (0), or a part ends (1) -> begin nothing, wait for calls in flight -> give the Lease back
//! ```
//!
//! A second request to stop ends the process at once (1): the Lease then runs out by itself, since a call may still take effect.
//!
//! The HTTP port answers from the start, so that a process that waits for its Lease is not taken for a dead one.

mod advice;
mod clusters;
mod election;
mod identity;
mod ledger;
mod standby;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use machinist_controllers::{Clients, Drained, ProcessOptions, Running, listen, serve};
use machinist_kube::ClientOptions;
use machinist_kube::lease::{Leadership, LeaseOptions};

use crate::args::{ClusterArgs, CompatibilityArgs, LeaderArgs, ServerArgs, WrongFlags};
use crate::{cmd, stop};

pub(crate) use self::advice::{in_shell, set_aside};
use self::clusters::Sources;
pub(crate) use self::clusters::describe_kubeconfig;
use self::election::Election;
pub(crate) use self::identity::{host_name, seed};
pub(crate) use self::ledger::{LEDGER_FILE, open_ledger, read_ledger, resume_ledger};

/// One of the two controllers, as flags describe it.
pub(crate) struct Process<'a> {
    /// Its name: in Events, in its User-Agent, and of its Lease.
    pub component: &'static str,
    /// The resources without which it cannot work.
    pub resources: &'static [&'static str],
    /// Its clusters.
    pub clusters: &'a ClusterArgs,
    /// Its address.
    pub server: &'a ServerArgs,
    /// Its port.
    pub port: u16,
    /// How many objects it looks at at once.
    pub concurrency: u16,
    /// Whether and how it is elected.
    pub leader: &'a LeaderArgs,
    /// How long a call to the cloud may take effect after it was started; absent where none is made.
    pub call_bound: Option<Duration>,
    /// Flags without effect.
    pub compatibility: &'a CompatibilityArgs,
}

impl Process<'_> {
    /// Runs it until it is asked to stop.
    ///
    /// # Errors
    /// When it cannot start, and when its Lease is lost or a part of it ends: then it should be started anew.
    pub(crate) async fn run(
        self,
        start: impl FnOnce(Clients, ProcessOptions, Option<Leadership>) -> Running,
    ) -> anyhow::Result<ExitCode> {
        let lease = election::lease_options(&self).map_err(WrongFlags::new)?;
        let agent = format!("machinist-{}/{}", self.component, cmd::version::VERSION);
        let (sources, control_options) = clusters::sources(self.clusters, &agent)?;
        let mut stop = stop::Requests::listen().context("listening for signals")?;
        tracing::info!(component = self.component, version = cmd::version::VERSION, "Starting");
        self.compatibility.warn();
        let listener = listen(SocketAddr::new(self.server.address, self.port)).await?;
        let longest_request = control_options.request_timeout.max(control_options.delete_timeout);
        let at_most = self.longest_call().max(longest_request);
        let ready = tokio::select! {
            () = stop.next() => return Ok(ExitCode::SUCCESS),
            ready = self.prepare(&listener, &sources, control_options, lease, at_most) => ready?,
        };
        let Ready { clients, options, mut election } = ready;
        let mut running = start(clients, options, election.leadership.clone());
        let answering = serve(listener, running.inspector());
        tokio::pin!(answering);
        let ended = tokio::select! {
            () = stop.next() => Ok(()),
            ended = running.ended() => Err(anyhow::Error::new(ended)),
            reason = election.lost() => bail!("{}: {reason}", self.component),
            never = &mut answering => match never {},
        };
        tracing::info!(component = self.component, "Stopping; nothing more is begun");
        election.begin_draining();
        let drained = tokio::select! {
            drained = running.drain(at_most) => drained,
            () = stop.next() => {
                election.abandon();
                bail!("{}: {}", self.component, told_of_second_signal(running.in_flight()));
            }
            reason = election.lost() => bail!("{}: {reason}, while calls were in flight", self.component),
            never = &mut answering => match never {},
        };
        drained.tell();
        // Nothing here acts from now on; only then may another process start.
        drop(running);
        if drained.deletes == 0 {
            election.release().await;
        } else {
            // The next process would know nothing of that DELETE. Until the Lease runs out, a webhook that holds it has to answer.
            tracing::warn!("The lease is not given back and runs out by itself");
            election.abandon();
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// How long a call to the cloud may take effect; no time where none is made.
    fn longest_call(&self) -> Duration {
        self.call_bound.unwrap_or_default()
    }

    /// Everything up to the Lease. Meanwhile the port says that the process is alive and not ready.
    async fn prepare(
        &self,
        listener: &tokio::net::TcpListener,
        sources: &Sources,
        control_options: ClientOptions,
        lease: Option<LeaseOptions>,
        drains_within: Duration,
    ) -> anyhow::Result<Ready> {
        let ready = async {
            let mut options = ProcessOptions::new(&self.clusters.namespace, self.component);
            let clients = clusters::connect(sources, &control_options, &options.target_skew).await?;
            clusters::wait_until_served(&clients, sources, self.resources).await?;
            options.concurrency = usize::from(self.concurrency);
            options.skew = control_options.skew.clone();
            options.seed = identity::seed();
            options.instance = identity::host_name();
            // Leases bypass every limiter: a process that may not renew would lose its work for being busy.
            let unlimited = ClientOptions { qps: None, burst: None, ..control_options };
            let election = match lease {
                Some(lease) => {
                    let client = machinist_kube::connect(&sources.control, &unlimited).await?;
                    Election::join(client, lease, drains_within).await?
                }
                None => Election::none(),
            };
            Ok(Ready { clients, options, election })
        };
        tokio::select! {
            ready = ready => ready,
            never = standby::answer(listener) => match never {},
        }
    }
}

/// What is told when the process does not wait for what it has begun.
fn told_of_second_signal(left: Drained) -> String {
    let calls = if left.calls == 1 { "call" } else { "calls" };
    let passes = if left.passes == 1 { "pass" } else { "passes" };
    let deletes = if left.deletes == 1 { "DELETE" } else { "DELETEs" };
    format!(
        "ended at once by a second signal, with {} {calls}, {} {passes} and {} {deletes} in flight, which may still take effect; the lease is not given back and runs out by itself",
        left.calls, left.passes, left.deletes
    )
}

/// What a process needs to start.
struct Ready {
    clients: Clients,
    options: ProcessOptions,
    election: Election,
}

impl CompatibilityArgs {
    fn warn(&self) {
        let pprof = [("profiling", self.profiling), ("contention-profiling", self.contention_profiling)];
        for (flag, asked) in pprof {
            if asked == Some(true) {
                tracing::warn!(flag, "There is no /debug/pprof; the flag has no effect");
            }
        }
    }
}
