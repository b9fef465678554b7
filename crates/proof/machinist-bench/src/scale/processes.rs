//! Both controllers as processes, which the benchmark stops, kills and starts again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::Timestamp;
use machinist_kube::{Clock as _, SystemClock};

use crate::loopback;
use crate::objects::NAMESPACE;
use crate::program::{Process, Programs};

/// The name of this installation in the cloud.
pub(super) const CLUSTER: &str = "bench";

/// Both controllers. Dropping the value ends all processes.
pub(super) struct Processes {
    starter: Starter,
    leaders: Pair,
    /// Processes that wait for the Leases of the leaders; absent without an election.
    standbys: Option<Pair>,
}

/// The arguments that all processes have in common.
struct Starter {
    programs: Programs,
    kubeconfig: PathBuf,
    cloud_url: String,
}

/// A machine controller and a manager.
pub(super) struct Pair {
    pub(super) machine_controller: Controller,
    pub(super) manager: Controller,
}

pub(super) struct Controller {
    pub(super) process: Process,
    address: SocketAddr,
}

/// Whether the processes elect a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Election {
    /// A process works at once. Counted requests would include renewals of Leases as a cost of
    /// machines.
    Off,
    /// The default of the programs, with its durations.
    On,
}

/// A way to end a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// SIGTERM: the process releases its Lease.
    Stop,
    /// SIGKILL: the Lease must expire.
    Kill,
}

impl Processes {
    /// Starts both controllers, and waits until they are ready.
    pub(super) async fn start(programs: Programs, kubeconfig: PathBuf, cloud_url: String) -> Result<Self> {
        let starter = Starter { programs, kubeconfig, cloud_url };
        let mut leaders = starter.spawn("", Election::Off)?;
        leaders.until_ready().await?;
        Ok(Self { starter, leaders, standbys: None })
    }

    /// The processes that make decisions.
    pub(super) fn leaders(&self) -> &Pair {
        &self.leaders
    }

    /// Folder of the logs.
    pub(super) fn logs(&self) -> &Path {
        &self.starter.programs.folder
    }

    /// Fails if a process has exited.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        for pair in std::iter::once(&mut self.leaders).chain(&mut self.standbys) {
            pair.machine_controller.process.ensure_alive()?;
            pair.manager.process.ensure_alive()?;
        }
        Ok(())
    }

    /// Stops both controllers with SIGTERM, and waits until they have exited.
    pub(super) async fn stop(&mut self) -> Result<()> {
        self.leaders.end(End::Stop).await
    }

    /// Starts both controllers after [`Self::stop`], and does not wait for them.
    pub(super) fn start_again(&mut self) -> Result<()> {
        self.leaders = self.starter.spawn("-restarted", Election::Off)?;
        Ok(())
    }

    /// Replaces both controllers by processes that elect a leader, each with a standby.
    pub(super) async fn elect(&mut self) -> Result<()> {
        self.stop().await?;
        self.leaders = self.starter.spawn("-1", Election::On)?;
        self.leaders.until_ready().await?;
        self.add_standbys("-2").await
    }

    /// Starts a standby of each controller. The suffix is for the name of its log.
    pub(super) async fn add_standbys(&mut self, suffix: &str) -> Result<()> {
        let mut standbys = self.starter.spawn(suffix, Election::On)?;
        standbys.until_ready().await?;
        self.standbys = Some(standbys);
        Ok(())
    }

    /// Ends both leaders. Returns the time of the signal; the standbys become the leaders.
    pub(super) async fn end_leaders(&mut self, end: End) -> Result<Timestamp> {
        let at = SystemClock.now();
        self.leaders.end(end).await?;
        if let Some(standbys) = self.standbys.take() {
            self.leaders = standbys;
        }
        Ok(at)
    }
}

impl Pair {
    async fn until_ready(&mut self) -> Result<()> {
        for controller in [&mut self.machine_controller, &mut self.manager] {
            controller.process.until_ok(&format!("http://{}/readyz", controller.address)).await?;
        }
        Ok(())
    }

    async fn end(&mut self, end: End) -> Result<()> {
        let both = [&mut self.machine_controller, &mut self.manager].map(async |controller| match end {
            End::Stop => controller.process.stop().await,
            End::Kill => controller.process.kill().await,
        });
        futures::future::try_join_all(both).await.map(drop)
    }
}

impl Starter {
    fn spawn(&self, suffix: &str, election: Election) -> Result<Pair> {
        let cloud = [format!("--sim-endpoint={}", self.cloud_url), format!("--cluster-name={CLUSTER}")];
        Ok(Pair {
            machine_controller: self.spawn_one("machine-controller", suffix, election, &cloud)?,
            manager: self.spawn_one("machine-controller-manager", suffix, election, &[])?,
        })
    }

    fn spawn_one(&self, job: &str, suffix: &str, election: Election, more: &[String]) -> Result<Controller> {
        let address = loopback::free_address()?;
        let mut arguments = vec![
            job.to_owned(),
            format!("--target-kubeconfig={}", self.kubeconfig.display()),
            format!("--namespace={NAMESPACE}"),
            format!("--address={}", address.ip()),
            format!("--port={}", address.port()),
            format!("--leader-elect={}", election == Election::On),
        ];
        arguments.extend_from_slice(more);
        let process = self.programs.start_as(&format!("{job}{suffix}"), arguments)?;
        Ok(Controller { process, address })
    }
}
