//! The measured system: two clusters, a simulated cloud, and both controllers as processes that are
//! killed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use machinist_cloud_sim::Ledger;

use super::events::{Event, Sources};
use super::notice::tell;
use crate::cluster_state::ClusterState;
use crate::clusters::MeasuredClusters;
use crate::loopback;
use crate::objects;
use crate::pair::Pair;
use crate::program::{Process, Programs};
use crate::progress;
use crate::requests::Program;

/// Time in which all machines join or are removed while no controller is killed.
const WITHOUT_KILLS: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Short Leases: after a kill, the restarted controller acts when the old Lease has expired. The
/// renew deadline must leave time for a call to the cloud.
const LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// All programs of the test. Dropping it ends them.
pub(super) struct KilledControllers {
    pub(super) control: Client,
    pub(super) target: Client,
    pub(super) state: ClusterState,
    both: Pair<Controller>,
    cloud: Process,
    cloud_url: String,
    sources: Sources,
    _programs: Programs,
}

/// A controller, and the time of its last event.
struct Controller {
    process: Process,
    acted: Option<Timestamp>,
    /// When it last renewed its Lease.
    renewed: Option<Timestamp>,
}

impl Controller {
    /// Whether the controller has done something since its start.
    fn is_acting(&self) -> bool {
        self.acted.is_some_and(|acted| self.process.started() < acted)
    }

    /// Whether the controller holds its Lease since its start.
    fn leads(&self) -> bool {
        self.renewed.is_some_and(|renewed| self.process.started() < renewed)
    }
}

impl KilledControllers {
    /// `other` is the program that takes turns with `machinist`, restart by restart.
    pub(super) async fn start(
        machinist: PathBuf,
        other: Option<PathBuf>,
        logs: Option<&Path>,
    ) -> Result<Self> {
        let clusters = MeasuredClusters::from_environment()?;
        let user_agent = "machinist-bench/kill";
        let control = clusters.control.client(user_agent).await?;
        let target = clusters.target.client(user_agent).await?;
        objects::install_kinds(&control).await?;
        let programs = Programs::new(machinist, logs)?.with_other(other);
        let data = programs.folder.join("cloud");
        std::fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;

        let address = loopback::free_address()?;
        let cloud_url = format!("http://{address}");
        let arguments = vec![
            format!("--data-dir={}", data.display()),
            format!("--listen={address}"),
            format!("--target-server={}", clusters.target.server),
            format!("--target-ca={}", clusters.target.ca_file.display()),
        ];
        let mut cloud = programs.start("sim-cloud", "", arguments)?;
        cloud.until_ok(&format!("{cloud_url}/healthz")).await?;
        let ledger = loopback::follow(&format!("{cloud_url}/admin/commits")).await?;

        let mut arguments = vec![
            format!("--control-kubeconfig={}", clusters.control.kubeconfig.display()),
            format!("--target-kubeconfig={}", clusters.target.kubeconfig.display()),
        ];
        arguments.extend(LEASE.map(str::to_owned));
        let started = programs.start_controllers("", &arguments, &[format!("--sim-endpoint={cloud_url}")])?;
        let both = started.map(|started| Controller { process: started.process, acted: None, renewed: None });
        let mut audit_logs = vec![clusters.control.audit_log()?];
        if !clusters.are_one() {
            audit_logs.push(clusters.target.audit_log()?);
        }
        Ok(Self {
            state: ClusterState::follow(control.clone(), target.clone()),
            control,
            target,
            both,
            cloud,
            cloud_url,
            sources: Sources { logs: audit_logs, ledger },
            _programs: programs,
        })
    }

    /// Creates the deployment with its first machines, and waits until they run. Their events are
    /// not counted.
    pub(super) async fn begin(&mut self, machines: u32, seed: u64) -> Result<()> {
        objects::apply(&self.control, machines).await?;
        self.until_all_run(machines).await?;
        tell(&format!("{machines} machines run; seed {seed}"));
        for event in self.take_events()? {
            self.note(&event);
        }
        Ok(())
    }

    /// Deletes all machines without kills.
    pub(super) async fn remove_all(&mut self) -> Result<()> {
        objects::scale(&self.control, 0).await?;
        self.until_all_run(0).await
    }

    /// Waits until this number of machines run, without kills.
    async fn until_all_run(&mut self, machines: u32) -> Result<()> {
        let all_run = async || {
            self.revive()?;
            Ok(self.state.now().all_run(machines))
        };
        let in_time = progress::until(WITHOUT_KILLS, LOOK_EVERY, all_run).await;
        in_time.map_err(|_elapsed| {
            let state = self.state.now();
            anyhow!("timed out after {WITHOUT_KILLS:?}: expected {machines} machines. Current state: {state}")
        })?
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Result<Vec<Event>> {
        self.sources.take()
    }

    /// Records which controller caused the event.
    pub(super) fn note(&mut self, event: &Event) {
        let Event::Api(request) = event else { return };
        let Some(controller) = self.both.of(request.program).filter(|_| request.is_commit()) else {
            return;
        };
        if event.counts() {
            controller.acted = controller.acted.max(request.received);
        }
        if request.is_about_leases() {
            controller.renewed = controller.renewed.max(request.received);
        }
    }

    /// Whether both controllers hold their Leases.
    pub(super) fn both_lead(&self) -> bool {
        self.both.machine_controller.leads() && self.both.manager.leads()
    }

    /// Kills a controller, also a controller that waits for its Lease, and restarts it.
    pub(super) async fn restart(&mut self, program: Program) -> Result<()> {
        let Some(controller) = self.both.of(program) else { return Ok(()) };
        if !controller.process.revive()? {
            controller.process.kill().await?;
            controller.process.restart()?;
        }
        Ok(())
    }

    /// The address of the stream of the cloud's commits.
    pub(super) fn commits_url(&self) -> String {
        format!("{}/admin/commits", self.cloud_url)
    }

    /// File names of the programs that the controllers run, the machine controller's first.
    pub(super) fn running_programs(&self) -> String {
        let Pair { machine_controller, manager } =
            self.both.each_ref().map(|controller| controller.process.program().display());
        format!("{machine_controller}, {manager}")
    }

    /// Kills the drawn controller; if it waits for its Lease, kills the controller that caused the
    /// event; if both wait, kills none. Returns a description of the kill.
    pub(super) async fn kill_one(&mut self, drawn: Program, event: &Event) -> Result<Option<String>> {
        for victim in [drawn, event.author()] {
            let Some(controller) = self.both.of(victim).filter(|controller| controller.is_acting()) else {
                continue;
            };
            if controller.process.revive()? {
                continue;
            }
            let before = controller.process.id().unwrap_or_default();
            controller.process.kill().await?;
            controller.process.restart()?;
            let after = controller.process.id().unwrap_or_default();
            return Ok(Some(format!(
                "killed the {victim} (process {before}) with SIGKILL; restarted as process {after}"
            )));
        }
        Ok(None)
    }

    /// Restarts controllers that lost their short Leases because the machine was too busy to renew
    /// them in time. That counts as one more crash, not as a failure. Returns the restarted
    /// controllers. Fails if a program has exited for any other reason.
    pub(super) fn revive(&mut self) -> Result<Vec<Program>> {
        self.cloud.ensure_alive()?;
        let mut revived = Vec::new();
        for program in [Program::MachineController, Program::Manager] {
            if let Some(controller) = self.both.of(program)
                && controller.process.revive()?
            {
                revived.push(program);
            }
        }
        Ok(revived)
    }

    /// The cloud's ledger: every instance that exists or ever existed.
    pub(super) async fn ledger(&self) -> Result<Ledger> {
        loopback::get(&format!("{}/admin/ledger", self.cloud_url)).await
    }

    /// The UIDs of all Machines.
    pub(super) async fn machine_uids(&self) -> Result<BTreeSet<String>> {
        Ok(objects::list_machines(&self.control).await?.iter().filter_map(ResourceExt::uid).collect())
    }

    /// The names of all Machines.
    pub(super) async fn machine_names(&self) -> Result<BTreeSet<String>> {
        Ok(objects::list_machines(&self.control).await?.iter().map(ResourceExt::name_any).collect())
    }
}
