//! The conditions that must hold after each direction.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use machinist_cloud_sim::LedgerEntry;

use super::events::Event;
use super::world::World;
use crate::cluster_state::Counts;

/// Counts of one direction.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// Events from the first Machine on.
    events: u32,
    has_begun: bool,
    /// POSTs of Machines, successful or not.
    pub(super) machines_posted: u32,
    /// Instances that were created, according to the ledger.
    pub(super) instances_made: u32,
    pub(super) kills: u32,
    pub(super) took: Duration,
}

impl Half {
    pub(super) fn add(&mut self, event: &Event, is_first: fn(&Event) -> bool) {
        self.machines_posted += u32::from(event.posts_machine());
        self.instances_made += u32::from(event.makes_instance());
        self.has_begun |= is_first(event);
        self.events += u32::from(self.has_begun && event.counts());
    }

    /// The number of the last event; absent before the first Machine.
    pub(super) fn number(&self) -> Option<u32> {
        self.events.checked_sub(1)
    }
}

/// The state of the world when the expected counts were reached.
#[derive(Debug)]
pub(super) struct End {
    counts: Counts,
    instances_ever: usize,
    instances_alive: usize,
    /// Instances without a key, or with the key of another instance.
    without_own_key: usize,
    /// Instances without their Machine, and Machines without their instance.
    unmatched: usize,
}

impl End {
    pub(super) async fn read(world: &mut World) -> Result<Self> {
        let ledger = world.ledger().await?;
        let key = |entry: &LedgerEntry| Some(entry.key.as_ref()?.to_string());
        let ever: BTreeSet<String> = ledger.ever().iter().filter_map(key).collect();
        let alive: BTreeSet<String> = ledger.alive().filter_map(key).collect();
        Ok(Self {
            counts: world.state.now(),
            instances_ever: ledger.ever().len(),
            instances_alive: ledger.alive().count(),
            without_own_key: ledger.ever().len() - ever.len(),
            // An instance's key is its Machine's UID.
            unmatched: world.machine_uids().await?.symmetric_difference(&alive).count(),
        })
    }
}

/// The verdict. `Display` lists the conditions.
#[derive(Debug)]
pub struct KillVerdict {
    pub(super) machines: u32,
    pub(super) points: u32,
    pub(super) up: Half,
    pub(super) reached_up: End,
    pub(super) down: Half,
    pub(super) reached_down: End,
}

impl KillVerdict {
    /// Whether all conditions hold.
    pub fn holds(&self) -> bool {
        self.claims().iter().all(|(_, holds)| *holds)
    }

    fn claims(&self) -> Vec<(String, bool)> {
        let Self { machines, points, up, reached_up, down, reached_down } = self;
        let wanted = *machines as usize;
        let made_down = reached_down.counts.machines_ever - reached_up.counts.machines_ever;
        vec![
            (format!("up: {} of {points} points reached", up.kills), up.kills == *points),
            // Counted by a watch: if the sender of a request was killed, the audit log records 504,
            // committed or not.
            (
                format!("up: {} Machines ever created, expected {machines}", reached_up.counts.machines_ever),
                reached_up.counts.machines_ever == *machines,
            ),
            (
                format!("up: {} instances ever made, expected {machines}", reached_up.instances_ever),
                reached_up.instances_ever == wanted,
            ),
            (
                format!("up: {} instances that share a key or have none", reached_up.without_own_key),
                reached_up.without_own_key == 0,
            ),
            (
                format!(
                    "up: {} Machines without their instance or instances without their Machine",
                    reached_up.unmatched
                ),
                reached_up.unmatched == 0,
            ),
            (
                format!("up: {}, {} instances alive", reached_up.counts, reached_up.instances_alive),
                reached_up.counts.running() == *machines
                    && reached_up.counts.machines == *machines
                    && reached_up.counts.nodes_ready == *machines
                    && reached_up.counts.nodes == *machines
                    && reached_up.instances_alive == wanted,
            ),
            (format!("down: {} of {points} points reached", down.kills), down.kills == *points),
            (
                format!("down: {made_down} Machines created, {} POSTs of Machines", down.machines_posted),
                made_down == 0 && down.machines_posted == 0,
            ),
            (
                format!("down: {} instances made, {} ever", down.instances_made, reached_down.instances_ever),
                down.instances_made == 0 && reached_down.instances_ever == wanted,
            ),
            (
                format!("down: {}, {} instances alive", reached_down.counts, reached_down.instances_alive),
                reached_down.counts.machines == 0
                    && reached_down.counts.nodes == 0
                    && reached_down.instances_alive == 0,
            ),
        ]
    }
}

impl fmt::Display for KillVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |half: &Half| half.took.as_secs_f64();
        writeln!(f, "up in {:.0} s, down in {:.0} s", seconds(&self.up), seconds(&self.down))?;
        for (claim, holds) in self.claims() {
            writeln!(f, "{} {claim}", if holds { "ok    " } else { "FAILED" })?;
        }
        Ok(())
    }
}
