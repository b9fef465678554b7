//! Kills controllers at the drawn points while they work.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use super::controllers::KilledControllers;
use super::events::Event;
use super::notice::tell;
use super::options::patience_for;
use super::points::Points;
use super::verdict::Tally;
use crate::cluster_state::Counts;

const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Time after a state is reached, to detect late effects such as a duplicate of the last machine.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Kills at the points of one part of the work, and counts the events of that part.
pub(super) struct Killer<'a> {
    pub(super) controllers: &'a mut KilledControllers,
    points: Points,
    tally: Tally,
    /// The event from which events are counted.
    is_first: fn(&Event) -> bool,
    began: Instant,
    within: Duration,
}

impl<'a> Killer<'a> {
    /// The whole part fails if it takes longer than [`patience_for`] its points.
    pub(super) fn new(
        controllers: &'a mut KilledControllers,
        points: Points,
        is_first: fn(&Event) -> bool,
    ) -> Self {
        let within = patience_for(points.count());
        Self { controllers, points, tally: Tally::default(), is_first, began: Instant::now(), within }
    }

    /// Whether points are left.
    pub(super) fn has_points(&self) -> bool {
        self.points.reached() < self.points.count()
    }

    /// Number of events that were counted.
    pub(super) fn events(&self) -> u32 {
        self.tally.events
    }

    /// Kills at the points until the state is reached.
    ///
    /// # Errors
    /// When the state is not reached in time, or a program exited for another reason than a kill.
    pub(super) async fn until(&mut self, what: &str, is_reached: impl Fn(&Counts) -> bool) -> Result<()> {
        while !is_reached(&self.controllers.state.now()) {
            self.ensure_in_time(what)?;
            self.look().await?;
        }
        Ok(())
    }

    /// Kills at the points until this number of events was counted.
    ///
    /// # Errors
    /// Same as [`Self::until`].
    pub(super) async fn until_events(&mut self, events: u32) -> Result<()> {
        while self.events() < events {
            self.ensure_in_time("more events")?;
            self.look().await?;
        }
        Ok(())
    }

    /// Counts late effects after the last state, without kills. Returns what happened.
    pub(super) async fn finish(mut self) -> Result<Tally> {
        self.tally.took = self.began.elapsed();
        tokio::time::sleep(AFTERMATH).await;
        for event in self.controllers.take_events()? {
            self.controllers.note(&event);
            self.tally.add(&event, self.is_first);
        }
        Ok(self.tally)
    }

    fn ensure_in_time(&self, what: &str) -> Result<()> {
        ensure!(
            self.began.elapsed() < self.within,
            "timed out after {:?}: expected {what}. Current state: {}; {} points were reached",
            self.within,
            self.controllers.state.now(),
            self.points.reached()
        );
        Ok(())
    }

    /// Handles the events since the last look.
    async fn look(&mut self) -> Result<()> {
        for event in self.controllers.take_events()? {
            self.tally.add(&event, self.is_first);
            self.controllers.note(&event);
            let Some(number) = self.tally.number() else { continue };
            if let Some(drawn) = self.points.due(number)
                && let Some(told) = self.controllers.kill_one(drawn, &event).await?
            {
                self.points.done(number);
                self.tally.kills += 1;
                tell(&format!(
                    "point {:>2}/{} at event {number:>3}: {event}: {told}",
                    self.points.reached(),
                    self.points.count()
                ));
            }
        }
        for program in self.controllers.revive()? {
            tell(&format!("the {program} could not renew its Lease in time, exited, and was restarted"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }
}
