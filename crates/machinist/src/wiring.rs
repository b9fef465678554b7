//! Shared process logic of the controllers: connect, get the Lease, run, serve HTTP, stop.
//!
//! ```text
//! check the flags -> listen -> ask the engine, if there is one -> connect -> check that the kinds
//!   are served -> get the Lease -> start -> run until a signal (exit code 0) or until a part ends
//!   (1) -> drain calls in flight -> release the Lease
//! ```
//!
//! A second signal stops the process at once with exit code 1. The Lease then expires, because a
//! call may still take effect.
//!
//! The HTTP ports answer from the start, so that liveness probes succeed while the process waits
//! for an engine or for its Lease, and scrapers see a process that waits.

mod advice;
mod clusters;
mod core_api;
pub(crate) mod credential;
mod election;
mod identity;
mod ledger;
mod namespace;
mod permissions;
mod process_metrics;
mod request_metrics;
mod secure;
mod standby;

use std::any::Any;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_controllers::{
    Clients, Contract, Drained, ProcessInspector as Inspector, ProcessOptions, Pulse, RunningProcess,
};
use machinist_kube::ClientOptions;
use machinist_kube::lease::{Leadership, LeaseOptions};
use machinist_serve::{Metrics, Profiler, listen, serve_behind, serve_metrics};
use tokio::net::TcpListener;

use crate::args::{ClusterArgs, LeaderArgs};
use crate::stop;
use crate::version::VERSION;
use crate::wrong_flags::WrongFlags;

pub(crate) use self::advice::{in_shell, set_aside};
use self::clusters::Sources;
#[cfg(feature = "local")]
pub(crate) use self::clusters::control_cluster;
pub(crate) use self::clusters::describe_kubeconfig;
pub(crate) use self::core_api::{core_api, core_api_of};
use self::election::Election;
pub(crate) use self::identity::{host_name, seed};
pub(crate) use self::ledger::{LEDGER_FILE, open_ledger, read_ledger, resume_ledger};
pub(crate) use self::permissions::{Needed, of_port};
pub(crate) use self::secure::SecureOptions;
use self::secure::{FrontDoor, Reviews};
pub(crate) use self::standby::API_SERVER as WAITS_FOR_API_SERVER;

/// One of the controllers, configured by its flags.
pub(crate) struct Process<'a> {
    /// Name of the controller in Events and in its User-Agent.
    pub component: &'static str,
    /// Machine kinds that the control cluster must serve; none for a controller of other kinds.
    pub resources: &'static [&'static str],
    pub clusters: &'a ClusterArgs,
    /// Address and port of the HTTP server, if there is one.
    pub listen: Option<SocketAddr>,
    /// TLS and permissions of that server; plain HTTP for every client if absent.
    pub secure: Option<SecureOptions>,
    /// Namespace and name of the Lease.
    pub lease: LeaseName<'a>,
    /// Number of objects that are reconciled at the same time.
    pub concurrency: u16,
    pub leader: &'a LeaderArgs,
    /// Permissions that the process reports if they are missing.
    pub permissions: Vec<Needed>,
    /// Address of a second, plain HTTP server with only `/metrics`, if there is one.
    pub metrics: Option<SocketAddr>,
    /// Whether the HTTP server answers requests for profiles.
    pub profiler: Profiler,
    /// How long after its start a call to the cloud may take effect; absent for a controller
    /// without a cloud.
    pub call_bound: Option<Duration>,
    /// The data that the process shows besides the data of every controller.
    pub shows: Shows,
}

/// The data that a controller of machines shows besides the data of every controller.
#[derive(Clone, Default)]
pub(crate) struct Shows {
    /// The effective configuration, for `/configz`; null for none.
    pub config: serde_json::Value,
    /// Announces the metrics that exist before they have a value.
    pub announce: Option<fn(&Metrics)>,
    /// Watches what the metrics show while another process leads, until the result is dropped.
    pub observe: Option<Observe>,
}

/// Starts watches, which end when the result is dropped.
type Observe = fn(Clients, ProcessOptions, Leadership) -> Box<dyn Any + Send>;

/// Namespace and name of the Lease that the processes of a controller share.
#[derive(Clone, Copy)]
pub(crate) struct LeaseName<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Process<'_> {
    /// Runs the controller until a signal stops it.
    ///
    /// # Errors
    /// If the controller cannot start, if it loses its Lease, or if a part of it ends. The
    /// supervisor should then restart the process.
    pub(crate) async fn run<C: Contract>(
        self,
        start: impl FnOnce(Clients, ProcessOptions, Option<Leadership>) -> RunningProcess<C>,
    ) -> anyhow::Result<ExitCode> {
        let nothing = Prerequisite { waits_for: standby::API_SERVER, found: async { Ok(()) } };
        self.run_after(nothing, |(), clients, options, leadership| start(clients, options, leadership)).await
    }

    /// Runs the controller after something was found that its start needs. Meanwhile the HTTP port
    /// answers, and a signal stops the process.
    ///
    /// # Errors
    /// As [`Self::run`], or if the prerequisite cannot be found.
    pub(crate) async fn run_after<C: Contract, T>(
        self,
        prerequisite: Prerequisite<impl Future<Output = anyhow::Result<T>>>,
        start: impl FnOnce(T, Clients, ProcessOptions, Option<Leadership>) -> RunningProcess<C>,
    ) -> anyhow::Result<ExitCode> {
        let lease = election::lease_options(&self).map_err(WrongFlags::new)?;
        let identity = lease.as_ref().map(|lease| lease.identity.clone());
        let agent = format!("machinist-{}/{}", self.component, VERSION);
        let (sources, mut control_options) = clusters::sources(self.clusters, &agent)?;
        let (metrics, pulse) = (Metrics::default(), Pulse::default());
        self.shows.announce.iter().for_each(|announce| announce(&metrics));
        request_metrics::announce(&metrics);
        process_metrics::add(&metrics);
        let host = sources.control_host();
        control_options.observer = Some(request_metrics::observer(&metrics, &pulse, &host));
        let mut stop = stop::Requests::listen().context("cannot listen for signals")?;
        tracing::info!(component = self.component, version = VERSION, "Starting");
        let port = self.port().await?;
        let longest_request = control_options.request_timeout.max(control_options.delete_timeout);
        let at_most = self.longest_call().max(longest_request);
        let found = tokio::select! {
            () = stop.next() => return Ok(ExitCode::SUCCESS),
            found = self.find(prerequisite, &port, &metrics) => found?,
        };
        let measured = Measured { metrics, pulse };
        let ready = tokio::select! {
            () = stop.next() => return Ok(ExitCode::SUCCESS),
            ready = self.prepare(&port, &sources, control_options, lease, at_most, measured) => ready?,
        };
        let Ready { clients, options, mut election } = ready;
        let mut watching =
            std::pin::pin!(self.tell_of_namespace(clients.control.clone(), options.metrics.clone()));
        let mut running = start(found, clients, options, election.leadership.clone());
        if let Some(identity) = identity.filter(|_| self.shows.announce.is_some()) {
            let message = format!("{identity} became leader");
            running.record(&lease_reference(self.lease), "LeaderElection", &message);
        }
        let mut answering = std::pin::pin!(port.serve(running.inspector()));
        let ended = tokio::select! {
            () = stop.next() => Ok(()),
            ended = running.ended() => Err(anyhow::Error::new(ended)),
            reason = election.lost() => bail!("{}: {reason}", self.component),
            never = &mut answering => match never {},
            never = &mut watching => match never {},
        };
        tracing::info!(component = self.component, "Stopping; no new work is started");
        election.begin_draining();
        let drained = tokio::select! {
            drained = running.drain(at_most) => drained,
            () = stop.next() => {
                election.abandon();
                bail!("{}: {}", self.component, second_signal_message(running.in_flight()));
            }
            reason = election.lost() => bail!("{}: {reason}, while calls were in flight", self.component),
            never = &mut answering => match never {},
        };
        drained.tell();
        // From here on this process does not act. Only then may another process get the Lease.
        drop(running);
        if drained.may_hand_over() {
            election.release().await;
        } else {
            // The next process would not know of that write. If the Lease expires, the process
            // waits until a write that a webhook delays can no longer take effect.
            tracing::warn!("The lease is not released and will expire");
            election.abandon();
        }
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Reports the deletion of the namespace with the machine objects, if the process serves some.
    async fn tell_of_namespace(&self, client: kube::Client, metrics: Metrics) -> Infallible {
        match self.resources {
            [] => std::future::pending().await,
            [..] => namespace::tell_of_deletion(client, &self.clusters.namespace, metrics).await,
        }
    }

    /// Returns how long after its start a call to the cloud may take effect; zero for a controller
    /// without a cloud.
    fn longest_call(&self) -> Duration {
        self.call_bound.unwrap_or_default()
    }

    /// Opens the HTTP ports, as far as there are any.
    async fn port(&self) -> anyhow::Result<Port> {
        let door = match &self.secure {
            Some(options) => FrontDoor::secure(options)?,
            None => FrontDoor::Plain,
        };
        let listener = match self.listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        Ok(Port { listener, door, profiler: self.profiler, metrics: metrics_listener(self.metrics).await })
    }

    /// Waits for the prerequisite. Meanwhile the HTTP port reports that the process is alive.
    async fn find<T>(
        &self,
        prerequisite: Prerequisite<impl Future<Output = anyhow::Result<T>>>,
        port: &Port,
        metrics: &Metrics,
    ) -> anyhow::Result<T> {
        let phase = self.phase(prerequisite.waits_for, metrics);
        tokio::select! {
            found = prerequisite.found => found,
            never = phase.answer(port) => match never {},
            never = phase.answer_metrics(port.metrics.as_ref()) => match never {},
        }
    }

    fn phase(&self, awaits: &'static str, metrics: &Metrics) -> standby::Phase {
        let config = self.shows.config.clone();
        standby::Phase::new(self.component, &self.clusters.namespace, metrics, awaits).with_config(config)
    }

    /// Connects to the clusters and gets the Lease. Meanwhile the HTTP port reports that the
    /// process is alive, and ready as soon as it only waits for the leader to end.
    async fn prepare(
        &self,
        port: &Port,
        sources: &Sources,
        control_options: ClientOptions,
        lease: Option<LeaseOptions>,
        drains_within: Duration,
        measured: Measured,
    ) -> anyhow::Result<Ready> {
        let Measured { metrics, pulse } = measured;
        let phase = self.phase(standby::API_SERVER, &metrics);
        let ready = async {
            let mut options = ProcessOptions::new(&self.clusters.namespace, self.component);
            let clients =
                clusters::connect(sources, &control_options, &options.target_skew, &metrics, &pulse).await?;
            clusters::wait_until_served(&clients, sources, self.resources).await?;
            if let Some(secure) = &self.secure {
                let (agent, server) = (&control_options.user_agent, &control_options.server);
                let (by_token, by_path) =
                    clusters::review_clients(sources, secure, agent, server, &metrics).await?;
                port.door.connect(Reviews::new(by_token, by_path));
            }
            options.concurrency = usize::from(self.concurrency);
            options.skew = control_options.skew.clone();
            options.seed = identity::seed();
            options.instance = identity::host_name();
            options.metrics = metrics;
            options.pulse = pulse;
            options.config = Arc::new(self.shows.config.clone());
            permissions::review(&clients.control, &self.permissions, &options.metrics).await;
            // Lease requests bypass the rate limit. Otherwise a busy process could not renew its
            // Lease in time.
            let unlimited = ClientOptions { qps: None, burst: None, ..control_options };
            let election = match lease {
                Some(lease) => {
                    let client = machinist_kube::connect(&sources.control, &unlimited).await?;
                    let observe = self.shows.observe.map(|observe| {
                        let (clients, options) = (clients.clone(), options.clone());
                        move |leadership| observe(clients, options, leadership)
                    });
                    Election::join(client, lease, drains_within, &phase, observe).await?
                }
                None => Election::none(),
            };
            Ok(Ready { clients, options, election })
        };
        tokio::select! {
            ready = ready => ready,
            never = phase.answer(port) => match never {},
            never = phase.answer_metrics(port.metrics.as_ref()) => match never {},
        }
    }
}

/// The metrics and the pulse that the clients of a process record before it starts.
struct Measured {
    metrics: Metrics,
    pulse: Pulse,
}

/// The HTTP ports of a process; no listener if one is disabled.
struct Port {
    listener: Option<TcpListener>,
    door: FrontDoor,
    profiler: Profiler,
    /// Plain HTTP, only for metrics.
    metrics: Option<TcpListener>,
}

impl Port {
    /// Serves the endpoints until the future is dropped.
    async fn serve<C: Contract>(self, inspector: Inspector<C>) -> Infallible {
        let Self { listener, door, profiler, metrics } = self;
        let metrics = async {
            match metrics {
                Some(listener) => serve_metrics(listener, inspector.clone()).await,
                None => std::future::pending().await,
            }
        };
        let endpoints = async {
            match listener {
                Some(listener) => serve_behind(listener, door, profiler, inspector.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = endpoints => never,
            never = metrics => never,
        }
    }
}

/// Listens at the address for metrics. If it is in use, another program serves its metrics there,
/// which is not a reason to stop.
async fn metrics_listener(address: Option<SocketAddr>) -> Option<TcpListener> {
    match listen(address?).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%error, "No metrics at HCLOUD_METRICS_ADDRESS");
            None
        }
    }
}

/// Message for a process that does not wait for its calls in flight.
fn second_signal_message(left: Drained) -> String {
    let calls = if left.calls == 1 { "call" } else { "calls" };
    let passes = if left.passes == 1 { "pass" } else { "passes" };
    let deletes = if left.deletes == 1 { "DELETE" } else { "DELETEs" };
    format!(
        "stopped at once by a second signal with {} {calls}, {} {passes} and {} {deletes} in flight, which may still take effect; the lease is not released and will expire",
        left.calls, left.passes, left.deletes
    )
}

/// The Lease, for the Event that Kubernetes' leader election emits about it.
fn lease_reference(lease: LeaseName<'_>) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(lease.namespace.to_owned()),
        name: Some(lease.name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Something that the start of a process needs besides its API server.
pub(crate) struct Prerequisite<F> {
    /// The state of the process until then, for `/readyz`.
    pub waits_for: &'static str,
    pub found: F,
}

/// Clients and election of a process that can start.
struct Ready {
    clients: Clients,
    options: ProcessOptions,
    election: Election,
}
