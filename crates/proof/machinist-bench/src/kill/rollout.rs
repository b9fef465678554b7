//! New templates for N machines, with kills until all points are reached.
//!
//! Each round rolls out one template. In every third round another template follows in the middle,
//! and in every third round the previous template comes back in the middle, as `kubectl rollout
//! undo` brings it back.

use anyhow::{Context, Result};
use serde_json::json;

use super::controllers::KilledControllers;
use super::events::Event;
use super::killer::Killer;
use super::limits::{Limits, TEMPLATE_LABEL};
use super::notice::tell;
use super::options::Args;
use super::points::{Draw, Points};
use super::takeovers;
use super::verdict::{End, KillVerdict};
use crate::cluster_state::Counts;
use crate::objects;

/// Number of machines, unless the user asks for another one.
const MACHINES: u32 = 10;
const MAX_SURGE: u32 = 2;
const MAX_UNAVAILABLE: u32 = 1;
/// Largest distance between two points, in events. A rollout has about 14 events per machine.
const APART: u32 = 10;

/// Rolls out until all points are reached.
pub(super) async fn run(controllers: &mut KilledControllers, args: &Args) -> Result<KillVerdict> {
    let machines = args.machines_or(MACHINES);
    let limits = Limits::follow(controllers.control.clone());
    controllers.begin(machines, args.seed).await?;
    let strategy = json!({ "rollingUpdate": { "maxSurge": MAX_SURGE, "maxUnavailable": MAX_UNAVAILABLE } });
    objects::patch_deployment(&controllers.control, json!({ "spec": { "strategy": strategy } })).await?;
    limits.begin();

    let mut draw = Draw::new(args.seed.wrapping_add(1));
    let points = Points::apart(args.seed, args.points, APART);
    let mut killer = Killer::new(controllers, points, Event::makes_machine);
    let mut rollouts = Rollouts { limits: &limits, machines, current: 0, changes: 0 };
    let mut rounds = 0;
    while rounds == 0 || killer.has_points() {
        rounds += 1;
        rollouts
            .round(&mut killer, rounds, &mut draw)
            .await
            .with_context(|| format!("in rollout {rounds}"))?;
    }
    let changes = rollouts.changes;
    let tally = killer.finish().await?;
    let reached = End::read(controllers).await?;
    let takeovers = takeovers::count_writes(controllers, args).await?;
    let seen = limits.now();

    controllers.remove_all().await?;
    let left = End::read(controllers).await?;

    let most = machines + MAX_SURGE;
    let fewest = machines - MAX_UNAVAILABLE;
    let mut claims = vec![
        (format!("{} of {} points reached", tally.kills, args.points), tally.kills == args.points),
        (
            format!("at most {} Machines that were not being deleted, limit {most}", seen.most),
            seen.most <= most as usize,
        ),
        (
            format!(
                "at least {} machines available, limit {fewest}; {} times a Machine became Unknown",
                seen.fewest_available, seen.became_unknown
            ),
            fewest as usize <= seen.fewest_available,
        ),
        (
            format!("{} Machines of the template that was rolled out were deleted", seen.last_deleted),
            seen.last_deleted == 0,
        ),
    ];
    claims.extend(reached.claims("at the end", machines));
    claims.extend(takeovers.claims());
    claims.extend(left.claims("after the deletion", 0));
    Ok(KillVerdict {
        summary: format!(
            "{rounds} rollouts with {changes} templates in {:.0} s, {} events",
            tally.took.as_secs_f64(),
            tally.events
        ),
        claims,
    })
}

/// Templates, one after another. A template is the value of its label.
struct Rollouts<'a> {
    limits: &'a Limits,
    machines: u32,
    current: u32,
    changes: u32,
}

impl Rollouts<'_> {
    async fn round(&mut self, killer: &mut Killer<'_>, round: u32, draw: &mut Draw) -> Result<()> {
        let before = self.current;
        // The Machines of a template that comes back may be deleted before it does.
        self.limits.keep(None);
        self.change(killer, self.changes + 1).await?;
        match round % 3 {
            0 => {
                self.wait_a_little(killer, draw).await?;
                self.change(killer, before).await?;
            }
            2 => {
                self.wait_a_little(killer, draw).await?;
                self.change(killer, self.changes + 1).await?;
                self.limits.keep(Some(&name(self.current)));
            }
            _ => self.limits.keep(Some(&name(self.current))),
        }
        let (template, limits, machines) = (name(self.current), self.limits, self.machines);
        let is_done = |counts: &Counts| {
            counts.nodes == machines && counts.nodes_ready == machines && limits.all_are(&template, machines)
        };
        killer.until(&format!("{machines} machines of template {template}"), is_done).await?;
        tell(&format!("round {round}: all machines have template {template}"));
        Ok(())
    }

    async fn change(&mut self, killer: &Killer<'_>, template: u32) -> Result<()> {
        let labels = json!({ TEMPLATE_LABEL: name(template) });
        let patch = json!({ "spec": { "template": { "metadata": { "labels": labels } } } });
        objects::patch_deployment(&killer.controllers.control, patch).await?;
        tell(&format!("rolling out template {}", name(template)));
        self.current = template;
        self.changes += 1;
        Ok(())
    }

    /// Waits until the rollout has had some events, but not all.
    async fn wait_a_little(&self, killer: &mut Killer<'_>, draw: &mut Draw) -> Result<()> {
        let events = killer.events() + 10 + draw.below(self.machines * 5);
        killer.until_events(events).await
    }
}

/// The value of the label. The first machines have none.
fn name(template: u32) -> String {
    if template == 0 { String::new() } else { format!("t{template}") }
}
