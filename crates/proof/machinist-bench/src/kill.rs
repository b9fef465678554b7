//! Scale up and down while the controllers are killed, on real clusters with every program a process of its own.
//!
//! ```text
//! 3 machines -> N, killed at K drawn points -> everything exactly once? -> 0, killed at K drawn points -> nothing made, nothing left?
//! ```
//!
//! A point is an *event*: a commit at an API server by one of the two controllers, or an entry in the cloud's ledger. Events count from the first
//! Machine that is created (or deleted) on. At a point one of the two controllers gets SIGKILL and is started again at once; which one is drawn too, unless
//! the drawn one has done nothing since its last start (it waits for its Lease, and killing it would prove little): then it is the one whose event it is.
//!
//! The cloud is never killed: it plays the part of a real one, which goes on while controllers die.

mod events;
mod points;
mod verdict;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

pub use self::verdict::Verdict;
use crate::cluster_state::Counts;
use crate::objects;
use events::Event;
use points::Points;
use verdict::{End, Half};
use world::World;

/// What may be chosen.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many machines there are in the end, before they go
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(4..))]
    machines: u32,

    /// At how many points a controller is killed, each way
    #[arg(long, default_value_t = 20)]
    points: u32,

    /// Which points and which controllers are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The `machinist` program
    #[arg(long, value_name = "FILE")]
    machinist: PathBuf,

    /// Keep the programs' logs and the ledger in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

/// How many machines there are before anybody is killed.
const AT_FIRST: u32 = 3;
/// Events that every machine causes at least, either way. Up: POST, token, record, Pending, Node, Running and the ledger's entry; down: DELETE, two
/// markers, two writes of the Node, the finalizer and two entries. Points are drawn from fewer, so that each of them is certainly reached.
const EVENTS_A_MACHINE: u32 = 6;

/// A killed controller is replaced when its Lease has run out, so each point may cost that long.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_PER_POINT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// What comes too late to be seen when the state is reached: a duplicate of the last machine, say.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Runs it, telling each point.
///
/// # Errors
/// When something cannot be started or a state is not reached. What is wrong in a state that was reached is in the verdict.
pub async fn run(args: &Args) -> Result<Verdict> {
    let mut world = World::start(args.machinist.clone(), args.logs.as_deref()).await?;
    objects::apply(&world.control, AT_FIRST).await?;
    let all_run = |count| move |counts: &Counts| counts.running() == count && counts.nodes_ready == count;
    world.state.until("the first machines run", PATIENCE, all_run(AT_FIRST)).await?;
    tell(&format!("{AT_FIRST} machines run; seed {}", args.seed));

    let new = args.machines - AT_FIRST;
    // What the first machines cost is of no interest.
    world.take_events()?;
    let mut points = Points::draw(args.seed, args.points, new * EVENTS_A_MACHINE);
    let up = half(&mut world, args, args.machines, &mut points, Event::makes_machine, all_run(args.machines))
        .await
        .context("on the way up")?;
    let reached_up = End::read(&mut world).await?;

    let mut points = Points::draw(args.seed.wrapping_add(1), args.points, args.machines * EVENTS_A_MACHINE);
    let none_left = |counts: &Counts| counts.machines == 0 && counts.nodes == 0;
    let down = half(&mut world, args, 0, &mut points, Event::deletes_machine, none_left)
        .await
        .context("on the way down")?;
    let reached_down = End::read(&mut world).await?;
    Ok(Verdict { machines: args.machines, points: args.points, up, reached_up, down, reached_down })
}

/// One way: scales, kills at the points, and waits for the state.
async fn half(
    world: &mut World,
    args: &Args,
    replicas: u32,
    points: &mut Points,
    is_first: fn(&Event) -> bool,
    is_reached: impl Fn(&Counts) -> bool,
) -> Result<Half> {
    let began = Instant::now();
    let within = PATIENCE + PATIENCE_PER_POINT * args.points;
    let mut half = Half::default();
    objects::scale(&world.control, replicas).await?;
    tell(&format!("asked for {replicas} machines"));
    while !is_reached(&world.state.now()) {
        ensure!(
            began.elapsed() < within,
            "not within {within:?}: {replicas} machines. There are {}; {} points were reached",
            world.state.now(),
            points.reached()
        );
        for event in world.take_events()? {
            half.add(&event, is_first);
            world.note(&event);
            let Some(number) = half.number() else { continue };
            if let Some(drawn) = points.due(number)
                && let Some(told) = world.kill_one(drawn, &event).await?
            {
                points.done();
                half.kills += 1;
                tell(&format!(
                    "point {:>2}/{} at event {number:>3}: {event}: {told}",
                    points.reached(),
                    args.points
                ));
            }
        }
        for program in world.revive()? {
            tell(&format!("the {program} could not renew its Lease in time, ended, and was started again"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    half.took = began.elapsed();
    tell(&format!("{replicas} machines after {:.0} s and {} kills", half.took.as_secs_f64(), half.kills));
    tokio::time::sleep(AFTERMATH).await;
    for event in world.take_events()? {
        half.add(&event, is_first);
    }
    Ok(half)
}

/// Tells people how it goes, while it goes.
#[expect(clippy::print_stderr, reason = "progress of a command that takes minutes")]
fn tell(text: &str) {
    eprintln!("{text}");
}
