//! 3 machines -> N, killed at drawn points -> everything exactly once? -> 0, killed at drawn points
//! -> nothing created, nothing left?

use anyhow::{Context, Result};

use super::controllers::KilledControllers;
use super::events::Event;
use super::killer::Killer;
use super::notice::tell;
use super::options::Args;
use super::points::Points;
use super::takeovers;
use super::verdict::{End, KillVerdict, Tally};
use crate::cluster_state::Counts;
use crate::objects;

/// Number of machines, unless the user asks for another one.
const MACHINES: u32 = 50;
/// Number of machines before the first kill.
const AT_FIRST: u32 = 3;
/// Minimum number of events per machine, in either direction. Up: POST, token, record, Pending,
/// Node, Running and the ledger's entry. Down: DELETE, two markers, two writes of the Node, the
/// finalizer and two entries. Points are drawn from fewer events, so that every point is reached.
const EVENTS_A_MACHINE: u32 = 6;

/// Scales up and down.
pub(super) async fn run(controllers: &mut KilledControllers, args: &Args) -> Result<KillVerdict> {
    let machines = args.machines_or(MACHINES);
    controllers.begin(AT_FIRST, args.seed).await?;
    let new = machines - AT_FIRST;
    let points = Points::draw(args.seed, args.points, new * EVENTS_A_MACHINE);
    let up = half(controllers, machines, points, Event::makes_machine, |counts| counts.all_run(machines))
        .await
        .context("while scaling up")?;
    let reached_up = End::read(controllers).await?;
    let takeovers = takeovers::count_writes(controllers, args).await?;

    let points = Points::draw(args.seed.wrapping_add(1), args.points, machines * EVENTS_A_MACHINE);
    let none_left = |counts: &Counts| counts.machines == 0 && counts.nodes == 0;
    let down = half(controllers, 0, points, Event::deletes_machine, none_left)
        .await
        .context("while scaling down")?;
    let reached_down = End::read(controllers).await?;
    let summary = format!("up in {:.0} s, down in {:.0} s", up.took.as_secs_f64(), down.took.as_secs_f64());
    let mut claims = claims(machines, args.points, &(up, reached_up), &(down, reached_down));
    claims.extend(takeovers.claims());
    Ok(KillVerdict { summary, claims })
}

/// One direction: scales, kills at the points, and waits for the state.
async fn half(
    controllers: &mut KilledControllers,
    replicas: u32,
    points: Points,
    is_first: fn(&Event) -> bool,
    is_reached: impl Fn(&Counts) -> bool,
) -> Result<Tally> {
    objects::scale(&controllers.control, replicas).await?;
    tell(&format!("scaling to {replicas} machines"));
    let mut killer = Killer::new(controllers, points, is_first);
    killer.until(&format!("{replicas} machines"), is_reached).await?;
    let half = killer.finish().await?;
    tell(&format!("{replicas} machines after {:.0} s and {} kills", half.took.as_secs_f64(), half.kills));
    Ok(half)
}

fn claims(machines: u32, points: u32, up: &(Tally, End), down: &(Tally, End)) -> Vec<(String, bool)> {
    let ((up, reached_up), (down, reached_down)) = (up, down);
    let wanted = machines as usize;
    let made_down = reached_down.counts.machines_ever - reached_up.counts.machines_ever;
    let mut claims = vec![
        (format!("up: {} of {points} points reached", up.kills), up.kills == points),
        // Counted by a watch: if the sender of a request was killed, the audit log records 504,
        // committed or not.
        (
            format!("up: {} Machines ever created, expected {machines}", reached_up.counts.machines_ever),
            reached_up.counts.machines_ever == machines,
        ),
        (
            format!("up: {} instances ever made, expected {machines}", reached_up.instances_ever),
            reached_up.instances_ever == wanted,
        ),
    ];
    claims.extend(reached_up.claims("up", machines));
    claims.extend([
        (format!("down: {} of {points} points reached", down.kills), down.kills == points),
        (
            format!("down: {made_down} Machines created, {} POSTs of Machines", down.machines_posted),
            made_down == 0 && down.machines_posted == 0,
        ),
        (
            format!("down: {} instances made, {} ever", down.instances_made, reached_down.instances_ever),
            down.instances_made == 0 && reached_down.instances_ever == wanted,
        ),
    ]);
    claims.extend(reached_down.claims("down", 0));
    claims
}
