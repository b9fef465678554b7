//! Machines with pods are deleted, with kills until all points are reached.
//!
//! By turns, a user deletes some Machines, which their set replaces, and scales down and up again.
//! A budget lets only two pods be missing, so every drain waits for it many times.

use anyhow::{Context, Result};
use kube::api::DeleteParams;

use super::controllers::KilledControllers;
use super::events::Event;
use super::killer::Killer;
use super::notice::tell;
use super::options::Args;
use super::points::{Draw, Points};
use super::takeovers;
use super::verdict::{End, KillVerdict};
use super::workload::Workload;
use crate::cluster_state::Counts;
use crate::objects;

/// Number of machines, unless the user asks for another one.
const MACHINES: u32 = 10;
const PODS_PER_MACHINE: u32 = 3;
/// Largest number of machines that are drained at the same time.
const AT_ONCE: u32 = 3;
/// Largest distance between two points, in events.
const APART: u32 = 8;

/// Drains until all points are reached.
pub(super) async fn run(controllers: &mut KilledControllers, args: &Args) -> Result<KillVerdict> {
    let machines = args.machines_or(MACHINES);
    controllers.begin(machines, args.seed).await?;
    let pods = machines * PODS_PER_MACHINE;
    let workload = Workload::start(controllers.target.clone(), &controllers.commits_url(), pods).await?;

    let mut draw = Draw::new(args.seed.wrapping_add(1));
    let points = Points::apart(args.seed, args.points, APART);
    let mut killer = Killer::new(controllers, points, Event::evicts_pod);
    killer.until(&format!("{pods} pods"), |_counts| workload.is_complete()).await?;
    tell(&format!("{pods} pods run"));
    let mut rounds = 0;
    while rounds == 0 || killer.has_points() {
        rounds += 1;
        let some = 1 + draw.below(AT_ONCE);
        match rounds % 2 {
            0 => scale_down_and_up(&mut killer, machines, some).await,
            _ => delete(&mut killer, machines, some, &mut draw).await,
        }
        .with_context(|| format!("in round {rounds}"))?;
        killer
            .until(&format!("{pods} pods on Nodes that accept pods"), |_counts| workload.is_complete())
            .await?;
        tell(&format!("round {rounds}: all pods run on Nodes that stay"));
    }
    let tally = killer.finish().await?;
    let reached = End::read(controllers).await?;
    let takeovers = takeovers::count_writes(controllers, args).await?;
    let (seen, budget) = (workload.now(), workload.budget());
    workload.end().await?;
    controllers.remove_all().await?;
    let left = End::read(controllers).await?;

    let fewest = seen.fewest_ready.unwrap_or_default();
    let mut claims = vec![
        (format!("{} of {} points reached", tally.kills, args.points), tally.kills == args.points),
        (
            format!("{} evictions, {} pods deleted without one", tally.evictions, tally.pods_deleted),
            tally.pods_deleted == 0 && tally.evictions != 0,
        ),
        (format!("pods that were lost: {:?}", seen.lost), seen.lost.is_empty()),
        (format!("at least {fewest} pods ready, budget {budget}"), budget <= fewest),
        (
            format!(
                "pods left on the Nodes of {} instances when their deletion began: {:?}",
                seen.instances_deleted, seen.left_behind
            ),
            seen.left_behind.is_empty() && seen.instances_deleted != 0,
        ),
    ];
    claims.extend(reached.claims("at the end", machines));
    claims.extend(takeovers.claims());
    claims.extend(left.claims("after the deletion", 0));
    Ok(KillVerdict { summary: format!("{rounds} rounds in {:.0} s", tally.took.as_secs_f64()), claims })
}

async fn scale_down_and_up(killer: &mut Killer<'_>, machines: u32, fewer: u32) -> Result<()> {
    for replicas in [machines - fewer, machines] {
        objects::scale(&killer.controllers.control, replicas).await?;
        tell(&format!("scaling to {replicas} machines"));
        killer.until(&format!("{replicas} machines"), |counts| counts.all_run(replicas)).await?;
    }
    Ok(())
}

/// Deletes drawn Machines, and waits until others run in their places.
async fn delete(killer: &mut Killer<'_>, machines: u32, some: u32, draw: &mut Draw) -> Result<()> {
    let mut left: Vec<String> = killer.controllers.machine_names().await?.into_iter().collect();
    let api = objects::machines(&killer.controllers.control);
    let ever = killer.controllers.state.now().machines_ever;
    for _ in 0..some {
        let drawn = draw.below(u32::try_from(left.len()).unwrap_or(u32::MAX));
        let name = left.swap_remove(drawn as usize);
        api.delete(&name, &DeleteParams::default()).await.with_context(|| format!("cannot delete {name}"))?;
        tell(&format!("a user deletes the Machine {name}"));
    }
    let is_replaced = |counts: &Counts| counts.all_run(machines) && ever + some <= counts.machines_ever;
    killer.until(&format!("{machines} machines, {some} of them new"), is_replaced).await
}
