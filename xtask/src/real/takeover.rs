//! The lanes of a take-over: Go's machine-controller-manager and our two processes take turns with
//! the same Machines, and both sides must leave the same instances.
//!
//! Go's manager is built from its module. Go's machine controller is the library of that module
//! with drivers of `xtask/takeover`, because the providers themselves cannot be had as modules. A
//! driver creates instances as the provider does: ids, names, tags, ports, volumes and addresses.
//!
//! The objects and the cloud come from [`deployment`](super::deployment).

mod controllers;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::deployment::compare::Stage;
pub(super) use super::deployment::observer::Kind;
use super::deployment::observer::{Cloud, Tools};
use super::deployment::{CLASSES, Deployment, LOOK_EVERY, STEP_WITHIN, keep_logs, options};
use super::ending::Ending;
use crate::control_plane::{Cluster, ControlPlane, pause};
use crate::envtest::Assets;
use crate::go_modules::why_no_go;
use controllers::{Pair, Programs, Side};

/// Machines of the deployment while the two sides take turns.
const MACHINES: usize = 10;
/// Machines that the deployment keeps before it has none.
const FEW: usize = 3;
/// New Machines in the middle of the rollout.
const MIDDLE: usize = 4;
/// Go's sweep runs at least twice in this time.
const SWEEPS: Duration = Duration::from_secs(25);

/// Plays the take-over on one cloud.
pub(super) fn check(kind: Kind) -> Result<Ending> {
    let reason = Assets::reason_they_cannot_be_had().or_else(why_no_go);
    if let Some(reason) = reason.or_else(Programs::reason_they_cannot_be_had) {
        return Ok(Ending::Skipped(reason));
    }
    let folder = tempfile::tempdir()?;
    let tools = match Tools::provide(kind, folder.path()) {
        Ok(tools) => tools,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let programs = Programs::provide(folder.path())?;
    let cloud = Cloud::start(&tools, &programs.machinist, folder.path())?;
    let mut control_plane = ControlPlane::start(&Assets::provide()?, &options())?;
    let outcome = Lane::play(&programs, control_plane.control(), cloud, folder.path());
    if outcome.is_err() {
        keep_logs(folder.path())?;
    }
    outcome?;
    control_plane.ensure_alive()?;
    Ok(Ending::Passed)
}

/// The state of a lane while it runs.
struct Lane<'a> {
    programs: &'a Programs,
    workers: Deployment<'a>,
    folder: &'a Path,
    turns: usize,
}

impl<'a> Lane<'a> {
    fn play(programs: &'a Programs, cluster: &'a Cluster, cloud: Cloud, folder: &'a Path) -> Result<()> {
        let workers = Deployment::install(&programs.machinist, cluster, cloud)?;
        Self { programs, workers, folder, turns: 0 }.steps()
    }

    /// All steps, in order.
    fn steps(&mut self) -> Result<()> {
        let mut go = self.start(Side::Go)?;
        self.workers.patch(&json!({"spec": {"replicas": MACHINES}}))?;
        self.workers.await_end_state(&mut go, MACHINES, 0)?;
        self.stop(go)?;
        self.workers.compare_settled("Go created all Machines", MACHINES, 0)?;

        let mut ours = self.start(Side::Ours)?;
        self.workers.patch(&json!({"spec": {"template": {"spec": {"class": {"name": CLASSES[1]}}}}}))?;
        self.reach_the_middle(&mut ours)?;
        self.stop(ours)?;
        self.workers.compare("Machinist was stopped in the middle of the rollout", Stage::InBetween)?;

        let mut go = self.start(Side::Go)?;
        self.workers.await_end_state(&mut go, MACHINES, 1)?;
        pause(SWEEPS);
        self.workers.await_end_state(&mut go, MACHINES, 1)?;
        self.stop(go)?;
        self.workers.compare_settled("Go finished the rollout", MACHINES, 1)?;

        let mut ours = self.start(Side::Ours)?;
        self.workers.patch(&json!({"spec": {"replicas": FEW}}))?;
        self.workers.await_end_state(&mut ours, FEW, 1)?;
        self.workers.patch(&json!({"spec": {"replicas": 0}}))?;
        self.workers.await_end_state(&mut ours, 0, 1)?;
        self.stop(ours)?;
        self.workers.compare_settled("Machinist deleted all Machines", 0, 1)?;
        self.workers.ensure_nothing_was_doubled()
    }

    fn start(&mut self, side: Side) -> Result<Pair> {
        self.turns += 1;
        println!("{} starts", side.name());
        Pair::start(side, self.turns, self.programs, self.workers.cluster, &self.workers.cloud, self.folder)
    }

    fn stop(&self, pair: Pair) -> Result<()> {
        let started = Instant::now();
        let name = pair.side.name();
        pair.stop()?;
        println!("{name} ended in {:.1?}", started.elapsed());
        Ok(())
    }

    /// Waits until some new Machines have their instances, none is being created, and some old ones
    /// were deleted.
    ///
    /// A creation in progress would belong to Go alone afterwards: Go finds the instance by its
    /// name, and completes neither its power nor its address, as after a crash of Go itself.
    fn reach_the_middle(&mut self, pair: &mut Pair) -> Result<()> {
        let started = Instant::now();
        loop {
            let (objects, inventory) = self.workers.look(pair)?;
            let of_class = |class| objects.machines.iter().filter(move |machine| machine.class == class);
            let new = of_class(CLASSES[1]).count();
            let are_complete =
                of_class(CLASSES[1]).all(|machine| self.workers.memory.is_complete(machine, &inventory));
            let old = of_class(CLASSES[0]).count();
            if MIDDLE <= new && are_complete && old < MACHINES {
                ensure!(0 < old, "the rollout has no old Machine left");
                println!("{new} new Machines and {old} old ones exist after {:.0?}", started.elapsed());
                return Ok(());
            }
            ensure!(started.elapsed() < STEP_WITHIN, "only {new} new Machines exist, and {old} old ones");
            pause(LOOK_EVERY);
        }
    }
}
