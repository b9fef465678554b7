//! Scales up and down while controllers are killed, on real clusters where every program is a
//! separate process.
//!
//! ```text
//! 3 machines -> N, killed at K drawn points -> everything exactly once? -> 0, killed at K drawn points -> nothing created, nothing left?
//! ```
//!
//! A point is the number of an *event*: a commit at an API server by one of the two controllers, or
//! an entry in the cloud's ledger. Events are counted from the first Machine that is created (or
//! deleted). At a point, one of the two controllers gets SIGKILL and is restarted at once. The seed
//! also draws which one. If the drawn controller has done nothing since its last start, it still
//! waits for its Lease, and killing it would prove little. Then the controller that caused the
//! event is killed instead.
//!
//! The cloud is never killed, because a real cloud continues while controllers are down.

mod events;
mod points;
mod verdict;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

pub use self::verdict::KillVerdict;
use crate::cluster_state::Counts;
use crate::objects;
use events::Event;
use points::Points;
use verdict::{End, Half};
use world::World;

/// Options of `machinist-bench kill`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of machines after scaling up
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(4..))]
    machines: u32,

    /// Number of points at which a controller is killed, in each direction
    #[arg(long, default_value_t = 20)]
    points: u32,

    /// Seed for the points and the killed controllers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Path of the `machinist` program
    #[arg(long, value_name = "FILE")]
    machinist: PathBuf,

    /// Store the programs' logs and the ledger in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

/// Number of machines before the first kill.
const AT_FIRST: u32 = 3;
/// Minimum number of events per machine, in either direction. Up: POST, token, record, Pending,
/// Node, Running and the ledger's entry. Down: DELETE, two markers, two writes of the Node, the
/// finalizer and two entries. Points are drawn from fewer events, so that every point is reached.
const EVENTS_A_MACHINE: u32 = 6;

/// A killed controller acts again only when its Lease has expired, so each point may take that
/// long.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_PER_POINT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Time after the state is reached, to detect late effects such as a duplicate of the last machine.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Runs the test and reports each point.
///
/// # Errors
/// When a program cannot be started or a state is not reached. Errors in a reached state are in the
/// verdict.
pub async fn run(args: &Args) -> Result<KillVerdict> {
    let mut world = World::start(args.machinist.clone(), args.logs.as_deref()).await?;
    objects::apply(&world.control, AT_FIRST).await?;
    let all_run = |count| move |counts: &Counts| counts.running() == count && counts.nodes_ready == count;
    world.state.until("the first machines to run", PATIENCE, all_run(AT_FIRST)).await?;
    tell(&format!("{AT_FIRST} machines run; seed {}", args.seed));

    let new = args.machines - AT_FIRST;
    // The events of the first machines are not counted.
    world.take_events()?;
    let mut points = Points::draw(args.seed, args.points, new * EVENTS_A_MACHINE);
    let up = half(&mut world, args, args.machines, &mut points, Event::makes_machine, all_run(args.machines))
        .await
        .context("while scaling up")?;
    let reached_up = End::read(&mut world).await?;

    let mut points = Points::draw(args.seed.wrapping_add(1), args.points, args.machines * EVENTS_A_MACHINE);
    let none_left = |counts: &Counts| counts.machines == 0 && counts.nodes == 0;
    let down = half(&mut world, args, 0, &mut points, Event::deletes_machine, none_left)
        .await
        .context("while scaling down")?;
    let reached_down = End::read(&mut world).await?;
    Ok(KillVerdict { machines: args.machines, points: args.points, up, reached_up, down, reached_down })
}

/// One direction: scales, kills at the points, and waits for the state.
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
    tell(&format!("scaling to {replicas} machines"));
    while !is_reached(&world.state.now()) {
        ensure!(
            began.elapsed() < within,
            "timed out after {within:?}: expected {replicas} machines. Current state: {}; {} points were reached",
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
            tell(&format!("the {program} could not renew its Lease in time, exited, and was restarted"));
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

/// Prints progress for people.
#[expect(clippy::print_stderr, reason = "progress of a command that takes minutes")]
fn tell(text: &str) {
    eprintln!("{text}");
}
