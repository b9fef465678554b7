//! The lane that kills the machine controller while it creates instances of AWS.
//!
//! A kill comes when the controller has sent a creation and a random number of further requests. So
//! it meets every step of a creation: before the answer, before the id is recorded, and before the
//! instance is initialized. Reads of the cloud lag, and some answers are lost. The verdict comes
//! from moto's own list.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::Proxy;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::control_plane::{Cluster, ControlPlane, pause};
use crate::envtest::Assets;
use crate::ports;
use crate::real::deployment::observer::{Cloud, Kind, Tools};
use crate::real::deployment::{Deployment, Running, keep_logs, options};
use crate::real::hcloud_clients::Ending;
use crate::workspace;

const MACHINES: usize = 20;
/// Times that the deployment is scaled up, with kills, and down. A deletion waits for five minutes
/// after the last kill, because an instance may be that late in reads.
const ROUNDS: usize = 2;
const KILLS_PER_ROUND: usize = 20;
/// Machines are added in batches, each with as many kills. Otherwise the first processes would
/// create all instances, and the later kills would meet no creation.
const BATCH: usize = 4;

/// A kill comes at most this number of requests after a creation. The next process first searches
/// all instances, so a kill after any request could prevent creations for ever.
const MOST_REQUESTS: u64 = 3;
/// Without these requests, the kill comes after this time: all instances were created.
const WITHOUT_REQUESTS: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(3);

/// How long reads do not show a new instance.
const LAG: (u64, u64) = (10, 3);
/// Number of creations in each round whose answer is lost.
const LOST_ANSWERS: u32 = 5;

const MANAGER: &str = "machine-controller-manager";
const CONTROLLER: &str = "machine-controller";

/// Short Leases: after a kill, the next process begins when the old Lease has expired.
const LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// Plays all rounds.
pub(in crate::real) fn check() -> Result<Ending> {
    if let Some(reason) = Assets::reason_they_cannot_be_had() {
        return Ok(Ending::Skipped(reason));
    }
    let folder = tempfile::tempdir()?;
    let tools = match Tools::provide(Kind::AwsBehindProxy, folder.path()) {
        Ok(tools) => tools,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let machinist = PathBuf::from(workspace::program()?.get_program());
    let cloud = Cloud::start(&tools, &machinist, folder.path())?;
    let mut control_plane = ControlPlane::start(&Assets::provide()?, &options())?;
    let outcome = play(&machinist, control_plane.control(), cloud, folder.path());
    if outcome.is_err() {
        keep_logs(folder.path())?;
    }
    outcome?;
    control_plane.ensure_alive()?;
    Ok(Ending::Passed)
}

fn play(machinist: &Path, cluster: &Cluster, cloud: Cloud, folder: &Path) -> Result<()> {
    let mut workers = Deployment::install(machinist, cluster, cloud)?;
    let (in_lists, by_id) = LAG;
    let lag = json!({"inListsSeconds": in_lists, "byIdSeconds": by_id});
    proxy(&workers)?.control("PUT", "/delay", &lag)?;
    let mut ours = Ours::start(machinist, &workers, folder)?;
    let mut random = Random(1);
    for round in 1..=ROUNDS {
        let lost =
            json!({"action": "RunInstances", "times": LOST_ANSWERS, "fault": {"kind": "effectThenClose"}});
        proxy(&workers)?.control("POST", "/faults", &lost)?;
        for kill in 1..=KILLS_PER_ROUND {
            if kill % BATCH == 1 {
                let replicas = MACHINES.min(kill - 1 + BATCH);
                workers.patch(&json!({"spec": {"replicas": replicas}}))?;
            }
            let further = random.next() % (MOST_REQUESTS + 1);
            let sent = await_requests(proxy(&workers)?, further)?;
            ours.kill();
            // Nodes of the instances that have booted appear now.
            let (_, inventory) = workers.look(&mut ours)?;
            let instances = inventory.instances.len();
            println!("round {round}, kill {kill}: after {sent} requests, with {instances} instances");
            ours.start_controller(&workers)?;
        }
        workers.settle(&mut ours, MACHINES, 0)?;
        workers.compare_settled("After all kills of the round", MACHINES, 0)?;
        workers.patch(&json!({"spec": {"replicas": 0}}))?;
        workers.settle(&mut ours, 0, 0)?;
        workers.compare_settled("After the deletion", 0, 0)?;
    }
    let (creations, requests) = proxy(&workers)?.requests()?;
    let kills = ROUNDS * KILLS_PER_ROUND;
    println!("{kills} kills, {creations} creations and {requests} requests to the cloud");
    workers.ensure_nothing_was_doubled()
}

fn proxy<'a>(workers: &'a Deployment<'_>) -> Result<&'a Proxy> {
    workers.cloud.proxy().context("the cloud has a proxy")
}

/// Waits until the controller has sent a creation and that many further requests. Returns how many
/// requests it sent.
fn await_requests(proxy: &Proxy, further: u64) -> Result<u64> {
    let (began, (creations, all)) = (Instant::now(), proxy.requests()?);
    let mut enough = None;
    loop {
        let (now_creations, now_all) = proxy.requests()?;
        if enough.is_none() && creations < now_creations {
            enough = Some(now_all + further);
        }
        if enough.is_some_and(|enough| enough <= now_all) || WITHOUT_REQUESTS < began.elapsed() {
            return Ok(now_all - all);
        }
        pause(ASK_EVERY);
    }
}

/// The same numbers in each run.
struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Our two processes.
struct Ours<'a> {
    machinist: &'a Path,
    folder: &'a Path,
    manager: Processes,
    /// `None` between a kill and the next start.
    controller: Option<Processes>,
    /// Number of machine controllers so far.
    lives: usize,
}

impl<'a> Ours<'a> {
    fn start(machinist: &'a Path, workers: &Deployment<'_>, folder: &'a Path) -> Result<Self> {
        let mut manager = Processes::new(folder, Afterwards::Keep)?;
        let command = command(machinist, MANAGER, workers.cluster)?;
        manager.spawn(MANAGER, command, folder.join("manager.log"))?;
        let mut ours = Self { machinist, folder, manager, controller: None, lives: 0 };
        ours.start_controller(workers)?;
        Ok(ours)
    }

    fn start_controller(&mut self, workers: &Deployment<'_>) -> Result<()> {
        self.lives += 1;
        let mut command = command(self.machinist, CONTROLLER, workers.cluster)?;
        command.args(["--provider", "aws"]);
        command.envs(workers.cloud.environment.iter().map(|(name, value)| (name, value)));
        let mut controller = Processes::new(self.folder, Afterwards::Keep)?;
        controller.spawn(CONTROLLER, command, self.folder.join(format!("controller-{}.log", self.lives)))?;
        self.controller = Some(controller);
        Ok(())
    }

    /// Sends SIGKILL to the machine controller, and waits for its end.
    fn kill(&mut self) {
        self.controller = None;
    }
}

impl Running for Ours<'_> {
    fn name(&self) -> &'static str {
        "Machinist"
    }

    fn ensure_alive(&mut self) -> Result<()> {
        for processes in std::iter::once(&mut self.manager).chain(&mut self.controller) {
            if let Some(ended) = processes.ended()? {
                bail!("{} ended ({}):\n{}", ended.name, ended.status, ended.log_tail);
            }
        }
        Ok(())
    }
}

fn command(machinist: &Path, process: &str, cluster: &Cluster) -> Result<Command> {
    let mut command = Command::new(machinist);
    command.arg(process).args(LEASE);
    for which in ["control", "target"] {
        command.arg(format!("--{which}-kubeconfig={}", cluster.kubeconfig().display()));
    }
    command.args(["--namespace=default", "--v=3", "--address=127.0.0.1"]);
    command.arg(format!("--port={}", ports::free()?)).env_remove("KUBECONFIG");
    Ok(command)
}
