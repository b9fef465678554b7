//! The conditions that must hold.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use machinist_cloud_sim::LedgerEntry;

use super::controllers::KilledControllers;
use super::events::Event;
use crate::cluster_state::Counts;

/// Counts of one part of the work.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Events from the first Machine on.
    pub(super) events: u32,
    has_begun: bool,
    /// POSTs of Machines, successful or not.
    pub(super) machines_posted: u32,
    /// Instances that were created, according to the ledger.
    pub(super) instances_made: u32,
    /// Evictions by the machine controller that the API server accepted.
    pub(super) evictions: u32,
    /// Requests of the machine controller to delete pods, successful or not.
    pub(super) pods_deleted: u32,
    pub(super) kills: u32,
    pub(super) took: Duration,
}

impl Tally {
    pub(super) fn add(&mut self, event: &Event, is_first: fn(&Event) -> bool) {
        self.machines_posted += u32::from(event.posts_machine());
        self.instances_made += u32::from(event.makes_instance());
        self.evictions += u32::from(event.evicts_pod());
        self.pods_deleted += u32::from(event.deletes_pod());
        self.has_begun |= is_first(event);
        self.events += u32::from(self.has_begun && event.counts());
    }

    /// The number of the last event; absent before the first Machine.
    pub(super) fn number(&self) -> Option<u32> {
        self.events.checked_sub(1)
    }
}

/// Machines, Nodes and instances when the expected counts were reached.
#[derive(Debug)]
pub(super) struct End {
    pub(super) counts: Counts,
    pub(super) instances_ever: usize,
    pub(super) instances_alive: usize,
    /// Instances without a key, or with the key of another instance.
    pub(super) without_own_key: usize,
    /// Instances without their Machine, and Machines without their instance.
    pub(super) unmatched: usize,
}

impl End {
    pub(super) async fn read(controllers: &mut KilledControllers) -> Result<Self> {
        let ledger = controllers.ledger().await?;
        let key = |entry: &LedgerEntry| Some(entry.key.as_ref()?.to_string());
        let ever: BTreeSet<String> = ledger.ever().iter().filter_map(key).collect();
        let alive: BTreeSet<String> = ledger.alive().filter_map(key).collect();
        Ok(Self {
            counts: controllers.state.now(),
            instances_ever: ledger.ever().len(),
            instances_alive: ledger.alive().count(),
            without_own_key: ledger.ever().len() - ever.len(),
            // An instance's key is its Machine's UID.
            unmatched: controllers.machine_uids().await?.symmetric_difference(&alive).count(),
        })
    }

    /// The conditions of a state with `machines` machines.
    pub(super) fn claims(&self, when: &str, machines: u32) -> Vec<(String, bool)> {
        vec![
            (
                format!("{when}: {} instances that share a key or have none", self.without_own_key),
                self.without_own_key == 0,
            ),
            (
                format!(
                    "{when}: {} Machines without their instance or instances without their Machine",
                    self.unmatched
                ),
                self.unmatched == 0,
            ),
            (
                format!("{when}: {}, {} instances alive", self.counts, self.instances_alive),
                self.counts.all_run(machines) && self.instances_alive == machines as usize,
            ),
            // An instance that was made for no Machine would be the second one of another.
            (
                format!(
                    "{when}: {} instances ever made for {} Machines",
                    self.instances_ever, self.counts.machines_ever
                ),
                self.instances_ever <= self.counts.machines_ever as usize,
            ),
        ]
    }
}

/// The verdict. `Display` lists the conditions.
#[derive(Debug)]
pub struct KillVerdict {
    pub(super) summary: String,
    /// Each condition as text, and whether it holds.
    pub(super) claims: Vec<(String, bool)>,
}

impl KillVerdict {
    /// Whether all conditions hold.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|(_, holds)| *holds)
    }
}

impl fmt::Display for KillVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary)?;
        for (claim, holds) in &self.claims {
            writeln!(f, "{} {claim}", if *holds { "ok    " } else { "FAILED" })?;
        }
        Ok(())
    }
}
