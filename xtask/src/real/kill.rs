//! The lanes that kill our controllers while they create, roll out and delete instances of a cloud.
//!
//! A kill comes when the controllers have sent a random number of creations or deletions, and of
//! further requests. So it meets every step of both: before the answer, before the id is recorded,
//! between an instance and its parts. Some answers are lost. Except on OpenStack, reads lag.
//! The verdict comes from the cloud's own list.

mod requests;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

pub(super) use super::deployment::observer::Kind;
use super::deployment::observer::{Cloud, Tools};
use super::deployment::ours::Ours;
use super::deployment::{CLASSES, Deployment, LOOK_EVERY, keep_logs, options};
use super::ending::Ending;
use crate::control_plane::{Cluster, ControlPlane, pause};
use crate::envtest::Assets;
use crate::workspace;
use requests::{Requests, delay_reads, lose_answers};

const MACHINES: usize = 20;

/// A part of a lane's work, and the number of kills during it.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// One kill for each Machine as soon as it exists. Otherwise the first process would create all
    /// instances. Then some kills when the creations continue that were interrupted.
    Create {
        later_kills: usize,
    },
    Roll {
        kills: usize,
    },
    Delete {
        kills: usize,
    },
}

/// 40 kills.
const STEPS: &[Step] = &[Step::Create { later_kills: 5 }, Step::Roll { kills: 8 }, Step::Delete { kills: 7 }];

/// 42 kills. An instance of AWS may be five minutes late in reads, so a deletion waits that long
/// after each kill. No creation waits, because a repeated one has no effect.
const STEPS_OF_AWS: &[Step] = &[
    Step::Create { later_kills: 0 },
    Step::Roll { kills: 1 },
    Step::Delete { kills: 0 },
    Step::Create { later_kills: 0 },
    Step::Delete { kills: 1 },
];

/// A kill comes at most this number of requests after a change. The next process first searches
/// all instances, so a kill after any request could prevent every change.
const MOST_REQUESTS: u64 = 3;
/// Without these requests, the kill comes after this time.
const WITHOUT_CREATION: Duration = Duration::from_secs(15);
/// The same for requests that may have to wait: a creation until calls of the process before can no
/// longer have an effect, and a deletion on AWS for five minutes.
const WITHOUT_LATER: Duration = Duration::from_secs(400);
const ASK_EVERY: Duration = Duration::from_millis(3);
/// One kill of this number ends the manager, too.
const MANAGER_EVERY: u64 = 4;

/// Number of creations in each step whose answer is lost.
const LOST_ANSWERS: u32 = 5;

/// Plays all steps on one cloud.
pub(super) fn check(kind: Kind) -> Result<Ending> {
    if let Some(reason) = Assets::reason_they_cannot_be_had() {
        return Ok(Ending::Skipped(reason));
    }
    let folder = tempfile::tempdir()?;
    let tools = match Tools::provide(kind, folder.path()) {
        Ok(tools) => tools,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let machinist = PathBuf::from(workspace::program()?.get_program());
    let cloud = Cloud::start(&tools, &machinist, folder.path())?;
    let mut control_plane = ControlPlane::start(&Assets::provide()?, &options())?;
    let outcome = Lane::play(&machinist, control_plane.control(), cloud, folder.path());
    if outcome.is_err() {
        keep_logs(folder.path())?;
    }
    outcome?;
    control_plane.ensure_alive()?;
    Ok(Ending::Passed)
}

/// The state of a lane while it runs.
struct Lane<'a> {
    workers: Deployment<'a>,
    ours: Ours<'a>,
    random: Random,
    /// Number of creations or deletions that a Machine needs, with its parts.
    changes_of_machine: u64,
    /// The size of the deployment.
    replicas: usize,
    /// Index of the class of the deployment.
    class: usize,
    kills: usize,
    /// Kills that also ended the manager.
    of_both: usize,
}

impl<'a> Lane<'a> {
    fn play(machinist: &'a Path, cluster: &'a Cluster, cloud: Cloud, folder: &'a Path) -> Result<()> {
        let (steps, changes_of_machine) = match cloud.kind {
            Kind::Aws | Kind::AwsBehindProxy => (STEPS_OF_AWS, 1),
            Kind::Hcloud => (STEPS, 2),
            Kind::OpenStack => (STEPS, 3),
        };
        let workers = Deployment::install(machinist, cluster, cloud)?;
        delay_reads(&workers.cloud)?;
        let ours = Ours::start(machinist, &workers, folder)?;
        let mut lane = Self {
            workers,
            ours,
            random: Random(1),
            changes_of_machine,
            replicas: 0,
            class: 0,
            kills: 0,
            of_both: 0,
        };
        for step in steps {
            lane.step(*step)?;
        }
        let Requests { changes, all } = Requests::so_far(&mut lane.workers.cloud)?;
        println!(
            "{} kills of the machine controller, {} of them with the manager; {all} requests to the cloud, \
             {changes} of them creations and deletions",
            lane.kills, lane.of_both
        );
        lane.workers.ensure_nothing_was_doubled()
    }

    fn step(&mut self, step: Step) -> Result<()> {
        lose_answers(&self.workers.cloud, LOST_ANSWERS)?;
        match step {
            Step::Create { later_kills } => {
                for replicas in 1..=MACHINES {
                    // The process leads now. A Machine that is older might have been called for by
                    // the process before, and then its creation may wait.
                    self.await_requests(0, 1, WITHOUT_CREATION)?;
                    self.scale(replicas)?;
                    self.kill("creating", 1, WITHOUT_CREATION)?;
                }
                self.kill("continuing to create", later_kills, WITHOUT_LATER)?;
                self.await_end_state("After the creation")
            }
            Step::Roll { kills } => {
                self.class = 1 - self.class;
                let class = json!({"class": {"name": CLASSES[self.class]}});
                self.workers.patch(&json!({"spec": {"template": {"spec": class}}}))?;
                self.kill("rolling out", kills, WITHOUT_LATER)?;
                self.await_end_state("After the rollout")
            }
            Step::Delete { kills } => {
                self.scale(0)?;
                self.kill("deleting", kills, WITHOUT_LATER)?;
                self.await_end_state("After the deletion")
            }
        }
    }

    fn scale(&mut self, replicas: usize) -> Result<()> {
        self.replicas = replicas;
        self.workers.patch(&json!({"spec": {"replicas": replicas}}))
    }

    fn kill(&mut self, while_: &str, times: usize, longest: Duration) -> Result<()> {
        for _ in 0..times {
            let changes = 1 + self.random.next() % self.changes_of_machine;
            let further = self.random.next() % (MOST_REQUESTS + 1);
            let (sent, after) = self.await_requests(changes, further, longest)?;
            let victims = Victims::draw(&mut self.random);
            match victims {
                Victims::MachineController => self.ours.kill_machine_controller(),
                Victims::Both => self.ours.kill_both(),
            }
            self.kills += 1;
            self.of_both += usize::from(victims == Victims::Both);
            let (objects, inventory) = self.workers.look(&mut self.ours)?;
            println!(
                "kill {} while {while_}{}: after {sent} requests in {:.0?}, with {} Machines, {} instances and {} parts",
                self.kills,
                if victims == Victims::Both { ", with the manager" } else { "" },
                after,
                objects.machines.len(),
                inventory.instances.len(),
                inventory.parts.len()
            );
            self.ours.start_again()?;
        }
        Ok(())
    }

    /// Waits until the controllers have sent that many changes and further requests, or no change
    /// is left to do. Returns how many requests they sent, and the time.
    fn await_requests(&mut self, changes: u64, further: u64, longest: Duration) -> Result<(u64, Duration)> {
        let (began, before) = (Instant::now(), Requests::so_far(&mut self.workers.cloud)?);
        let (mut enough, mut looked) = (None, began);
        loop {
            let now = Requests::so_far(&mut self.workers.cloud)?;
            if enough.is_none() && before.changes + changes <= now.changes {
                enough = Some(now.all + further);
            }
            if enough.is_some_and(|enough| enough <= now.all) || longest < began.elapsed() {
                return Ok((now.all - before.all, began.elapsed()));
            }
            // Nodes of the instances that have booted appear now.
            if enough.is_none() && LOOK_EVERY < looked.elapsed() {
                let left = self.workers.unsettled(&mut self.ours, self.replicas, self.class)?;
                if left.is_empty() && changes != 0 {
                    return Ok((now.all - before.all, began.elapsed()));
                }
                looked = Instant::now();
            }
            pause(ASK_EVERY);
        }
    }

    /// Waits until all work is done, and compares both sides.
    fn await_end_state(&mut self, when: &str) -> Result<()> {
        self.workers.await_end_state(&mut self.ours, self.replicas, self.class)?;
        self.workers.compare_settled(when, self.replicas, self.class)
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

/// The processes that one kill ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victims {
    MachineController,
    Both,
}

impl Victims {
    fn draw(random: &mut Random) -> Self {
        if random.next().is_multiple_of(MANAGER_EVERY) { Self::Both } else { Self::MachineController }
    }
}
