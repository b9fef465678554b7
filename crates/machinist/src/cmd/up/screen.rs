//! When the table of `up` is drawn: after something changed, and not more often than people can follow.
//!
//! What changes comes from where everything else comes from: the commit log, what the controllers decide, and the terminal's signal
//! that its size is another. Nothing is asked, and where nothing happens nothing is drawn.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::time::Duration;

use machinist_controllers::{Inspector, Key};
use machinist_plan::{Reason, Why};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::table::{self, Waits};
use super::view::View;
use crate::output::Output;
use crate::progress::Form;

/// Ten times a second looks like motion; more only costs.
const BETWEEN_DRAWINGS: Duration = Duration::from_millis(100);

/// How long a controller may be about to write something before people are told: it is a moment's work, unless the API server does not
/// answer.
const ACTING_IS_SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The table on the terminal, or nothing where there is none.
pub(super) struct Screen(Option<Table>);

/// A table, and what changes it.
struct Table {
    output: Output,
    inspectors: [Inspector; 2],
    resized: Signal,
    /// Whether something changed since it was drawn.
    is_stale: bool,
    drawn_at: Instant,
    acting: Acting,
}

/// Whom its controller is about to do something for, and since when.
#[derive(Default)]
struct Acting(BTreeMap<Key, (Reason, Instant)>);

impl Acting {
    /// Leaves out what will be over before anybody has read it.
    fn settle(&mut self, waits: Waits, now: Instant) -> Waits {
        let mut before = std::mem::take(&mut self.0);
        let is_worth_telling = |(key, why): &(Key, Why)| {
            if !matches!(why.reason, Reason::Writing(_)) {
                return true;
            }
            let known = before.remove(key).filter(|(reason, _)| *reason == why.reason);
            let (reason, since) = known.unwrap_or_else(|| (why.reason.clone(), now));
            self.0.insert(key.clone(), (reason, since));
            since + ACTING_IS_SHOWN_AFTER <= now
        };
        waits.into_iter().filter(is_worth_telling).collect()
    }

    /// When the next of those that were left out is worth telling.
    fn next(&self, now: Instant) -> Option<Instant> {
        let told_at = self.0.values().map(|(_, since)| *since + ACTING_IS_SHOWN_AFTER);
        told_at.filter(|at| now < *at).min()
    }
}

impl Screen {
    /// A table if that is the form in which progress is told.
    ///
    /// # Errors
    /// When signals cannot be listened to.
    pub(super) fn new(form: Form, output: &Output, inspectors: &[Inspector; 2]) -> io::Result<Self> {
        match form {
            Form::Lines | Form::Json => Ok(Self(None)),
            Form::Table => {
                leave_room_for_panics(output);
                Ok(Self(Some(Table {
                    output: output.clone(),
                    inspectors: inspectors.clone(),
                    resized: signal(SignalKind::window_change())?,
                    is_stale: true,
                    drawn_at: Instant::now(),
                    acting: Acting::default(),
                })))
            }
        }
    }

    /// Something is seen that the table may show.
    pub(super) fn changed(&mut self) {
        if let Some(table) = &mut self.0 {
            table.is_stale = true;
        }
    }

    /// Waits until it should be drawn; for ever if there is no table. Nothing is lost if nobody waits to the end.
    pub(super) async fn is_due(&mut self) {
        let Some(table) = &mut self.0 else { return pending().await };
        let [first, second] = &table.inspectors;
        let next = table.acting.next(table.drawn_at);
        while !table.is_stale {
            tokio::select! {
                () = first.decided() => {}
                () = second.decided() => {}
                () = reached(next) => {}
                Some(()) = table.resized.recv() => {}
            }
            table.is_stale = true;
        }
        tokio::time::sleep_until(table.drawn_at + BETWEEN_DRAWINGS).await;
    }

    /// Draws it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn draw(&mut self, view: &View) -> io::Result<()> {
        let Some(table) = &mut self.0 else { return Ok(()) };
        let waits: Waits = table.inspectors.iter().flat_map(Inspector::waits).collect();
        let now = Instant::now();
        let waits = table.acting.settle(waits, now);
        table.output.show(table::render(view, &waits, table.output.size()))?;
        table.is_stale = false;
        table.drawn_at = now;
        Ok(())
    }

    /// Draws it for the last time, and leaves it there; unless there is nothing in it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn end(&mut self, view: &View) -> io::Result<()> {
        let drawn = self.draw(view);
        let Some(table) = self.0.take() else { return drawn };
        let is_empty = view.listed().next().is_none();
        let drawn = if is_empty { drawn.and_then(|()| table.output.show(Vec::new())) } else { drawn };
        table.output.settle();
        drawn
    }
}

/// Waits for a moment; for ever if there is none.
async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => pending().await,
    }
}

/// What a panic says goes to stderr at once. The table stays above it, and is drawn anew below.
fn leave_room_for_panics(output: &Output) {
    let output = output.clone();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        output.settle_if_idle();
        before(info);
    }));
}

#[cfg(test)]
mod tests {
    use machinist_core::Step;
    use machinist_kube::ObjectKey;
    use machinist_plan::McmReason;

    use super::*;
    use crate::output::{Line, Look};

    #[test]
    fn what_a_controller_is_about_to_do_is_told_only_if_it_is_not_done_at_once() {
        let waits = |reason: Reason| {
            Waits::from([(Key::Machine(ObjectKey::new("default", "a")), Why::new(reason, Step::Nothing))])
        };
        let mut acting = Acting::default();
        let start = Instant::now();
        let mut shown = |after: Duration, reason: Reason| {
            let now = start + after;
            (acting.settle(waits(reason), now).len(), acting.next(now).map(|at| at - now))
        };
        let (begin, second) = (Duration::ZERO, ACTING_IS_SHOWN_AFTER);
        assert_eq!(
            shown(begin, Reason::Contract(McmReason::Paused)),
            (1, None),
            "what waits for others is told at once"
        );
        assert_eq!(shown(begin, Reason::Writing("its finalizer")), (0, Some(second)));
        assert_eq!(shown(second / 2, Reason::Writing("its finalizer")), (0, Some(second / 2)));
        assert_eq!(shown(second, Reason::Writing("its status")), (0, Some(second)), "the next thing");
        assert_eq!(shown(second * 2, Reason::Writing("its status")), (1, None));
        assert_eq!(shown(second * 2, Reason::Settled), (1, None));
        assert_eq!(shown(second * 2, Reason::Writing("its status")), (0, Some(second)), "begins anew");
    }

    #[test]
    fn a_table_that_was_shown_when_something_panicked_stays_and_the_next_one_is_below() {
        let (output, written) = Output::memory();
        let table = |text: &str| vec![Line { look: Look::Plain, text: text.to_owned() }];
        leave_room_for_panics(&output);
        output.show(table("before")).expect("shown");
        let panicked = std::panic::catch_unwind(|| panic!("a bug of the test, on purpose"));
        assert!(panicked.is_err());
        let before = written.text();
        output.show(table("after")).expect("shown");
        let after = written.text();
        let after = after.strip_prefix(&before).expect("nothing is taken back");
        assert!(after.contains("after") && !after.contains("\x1b[1A"), "the cursor goes up: {after:?}");
    }
}
