//! What the two controllers have in common as processes: connect, wait for the Lease, run, answer questions, end.
//!
//! ```text
//! listen -> connect -> are the kinds served? -> Lease -> start -> until a stop is asked for (0), or a part ends (1)
//! ```
//!
//! The HTTP port answers from the start, so that a process that waits for its Lease is not taken for a dead one.

mod clusters;
mod identity;
mod standby;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, bail};
use machinist_controllers::{Clients, Options, Running, listen, serve};
use machinist_kube::ClientOptions;
use machinist_kube::lease::{ElectionEnd, Elector, Leadership, LeaseOptions};
use tokio::task::JoinHandle;

use crate::args::{ClusterArgs, CompatibilityArgs, LeaderArgs, ServerArgs};
use crate::{cmd, stop};

pub(crate) use self::clusters::describe_kubeconfig;
pub(crate) use self::identity::{host_name, seed};

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
        start: impl FnOnce(Clients, Options, Option<Leadership>) -> Running,
    ) -> anyhow::Result<ExitCode> {
        let stop = stop::requested().context("listening for signals")?;
        tokio::pin!(stop);
        tracing::info!(component = self.component, version = cmd::version::VERSION, "Starting");
        self.compatibility.warn();
        let listener = listen(SocketAddr::new(self.server.address, self.port)).await?;
        tokio::select! {
            () = &mut stop => Ok(ExitCode::SUCCESS),
            ready = self.prepare(&listener) => {
                let Ready { clients, options, mut election } = ready?;
                let mut running = start(clients, options, election.leadership.clone());
                let inspector = running.inspector();
                let ended = tokio::select! {
                    () = &mut stop => Ok(()),
                    ended = running.ended() => Err(anyhow::Error::new(ended)),
                    reason = election.lost() => Err(anyhow::anyhow!("{}: {reason}", self.component)),
                    served = serve(listener, inspector) => Err(served.err().map_or_else(
                        || anyhow::anyhow!("the HTTP port was closed"),
                        |error| anyhow::Error::new(error).context("the HTTP port"),
                    )),
                };
                // Nobody here acts from now on; only then may somebody else start.
                drop(running);
                election.release().await;
                ended.map(|()| ExitCode::SUCCESS)
            }
        }
    }

    /// Everything up to the Lease. Meanwhile the port says that the process is alive and not ready.
    async fn prepare(&self, listener: &tokio::net::TcpListener) -> anyhow::Result<Ready> {
        let ready = async {
            let agent = format!("machinist-{}/{}", self.component, cmd::version::VERSION);
            let (sources, control_options) = clusters::sources(self.clusters, &agent)?;
            let clients = clusters::connect(&sources, &control_options).await?;
            clusters::wait_until_served(&clients, &sources, self.resources).await?;
            let mut options = Options::new(&self.clusters.namespace, self.component);
            options.concurrency = usize::from(self.concurrency);
            options.skew = control_options.skew.clone();
            options.seed = identity::seed();
            options.instance = identity::host_name();
            // Leases bypass every limiter: a process that may not renew would lose its work for being busy.
            let unlimited = ClientOptions { qps: None, burst: None, ..control_options };
            let election = if self.leader.leader_elect {
                let client = machinist_kube::connect(&sources.control, &unlimited).await?;
                Election::join(client, self.lease_options()?).await?
            } else {
                Election::none()
            };
            Ok(Ready { clients, options, election })
        };
        tokio::select! {
            ready = ready => ready,
            error = standby::answer(listener) => Err(anyhow::Error::new(error).context("the HTTP port")),
        }
    }

    fn lease_options(&self) -> anyhow::Result<LeaseOptions> {
        let mut options =
            LeaseOptions::new(&self.clusters.namespace, self.component, identity::of_this_process());
        options.lease_duration = self.leader.leader_elect_lease_duration;
        options.renew_deadline = self.leader.leader_elect_renew_deadline;
        options.retry_period = self.leader.leader_elect_retry_period;
        options.seed = identity::seed();
        options.validate()?;
        Ok(options)
    }
}

/// What a process needs to start.
struct Ready {
    clients: Clients,
    options: Options,
    election: Election,
}

/// The election that a process takes part in, if it does.
struct Election {
    leadership: Option<Leadership>,
    elector: Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<ElectionEnd>)>,
}

impl Election {
    /// No election: whoever starts the process says that there is only one.
    fn none() -> Self {
        Self { leadership: None, elector: None }
    }

    /// Takes part, and waits until it is won.
    async fn join(client: kube::Client, options: LeaseOptions) -> anyhow::Result<Self> {
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
    async fn lost(&mut self) -> String {
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
    async fn release(self) {
        let Some((stop, task)) = self.elector else { return };
        // It may have ended by itself; then there is nothing to give back.
        let _ = stop.send(());
        // It ends within `GIVE_BACK_WITHIN`, and says what became of it.
        let _ = task.await;
    }
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
