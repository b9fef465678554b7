//! Both controllers as processes, which the benchmark stops, kills and starts again.

use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::Timestamp;
use machinist_kube::{Clock as _, SystemClock};

use crate::pair::Pair;
use crate::program::{Programs, StartedController};

/// The name of this installation in the cloud.
pub(super) const CLUSTER: &str = "bench";

/// Both controllers. Dropping the value ends all processes.
pub(super) struct Processes {
    starter: Starter,
    leaders: Pair<StartedController>,
    /// Processes that wait for the Leases of the leaders; absent without an election.
    standbys: Option<Pair<StartedController>>,
}

/// The arguments that all processes have in common.
struct Starter {
    programs: Programs,
    kubeconfig: PathBuf,
    cloud_url: String,
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
        until_ready(&mut leaders).await?;
        Ok(Self { starter, leaders, standbys: None })
    }

    /// The processes that make decisions.
    pub(super) fn leaders(&self) -> Pair<&StartedController> {
        self.leaders.each_ref()
    }

    /// Folder of the logs.
    pub(super) fn logs(&self) -> &Path {
        &self.starter.programs.folder
    }

    /// Fails if a process has exited.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        for pair in std::iter::once(&mut self.leaders).chain(&mut self.standbys) {
            for controller in pair.each_mut() {
                controller.process.ensure_alive()?;
            }
        }
        Ok(())
    }

    /// Stops both controllers with SIGTERM, and waits until they have exited.
    pub(super) async fn stop(&mut self) -> Result<()> {
        end_both(&mut self.leaders, End::Stop).await
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
        until_ready(&mut self.leaders).await?;
        self.add_standbys("-2").await
    }

    /// Starts a standby of each controller. The suffix is for the name of its log.
    pub(super) async fn add_standbys(&mut self, suffix: &str) -> Result<()> {
        let mut standbys = self.starter.spawn(suffix, Election::On)?;
        until_ready(&mut standbys).await?;
        self.standbys = Some(standbys);
        Ok(())
    }

    /// Ends both leaders. Returns the time of the signal; the standbys become the leaders.
    pub(super) async fn end_leaders(&mut self, end: End) -> Result<Timestamp> {
        let at = SystemClock.now();
        end_both(&mut self.leaders, end).await?;
        if let Some(standbys) = self.standbys.take() {
            self.leaders = standbys;
        }
        Ok(at)
    }
}

impl Starter {
    fn spawn(&self, suffix: &str, election: Election) -> Result<Pair<StartedController>> {
        let both = [
            format!("--target-kubeconfig={}", self.kubeconfig.display()),
            format!("--leader-elect={}", election == Election::On),
        ];
        let cloud = [format!("--sim-endpoint={}", self.cloud_url), format!("--cluster-name={CLUSTER}")];
        self.programs.start_controllers(suffix, &both, &cloud)
    }
}

async fn until_ready(controllers: &mut Pair<StartedController>) -> Result<()> {
    for controller in controllers.each_mut() {
        controller.process.until_ok(&format!("http://{}/readyz", controller.address)).await?;
    }
    Ok(())
}

async fn end_both(controllers: &mut Pair<StartedController>, end: End) -> Result<()> {
    let both = controllers.each_mut().map(async |controller| match end {
        End::Stop => controller.process.stop().await,
        End::Kill => controller.process.kill().await,
    });
    futures::future::try_join_all(both).await.map(drop)
}
