//! Decides when the table of `up` is drawn: after a change, but at a limited rate.
//!
//! Changes come from the commit log, from decisions of the controllers, and from the signal for a
//! new terminal size. There is no polling; without a change the table is not drawn.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::time::Duration;

use machinist_controllers::mcm::{Inspector, Key};
use machinist_plan::mcm::{Reason, Why};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::table::{self, Waits};
use super::view::View;
use crate::output::Output;
use crate::progress::Form;

/// Minimum time between two drawings. Ten drawings per second look fluent; more only cost CPU.
const BETWEEN_DRAWINGS: Duration = Duration::from_millis(100);

/// How long a controller may be about to write before the table shows it. A write takes a moment,
/// unless the API server does not answer.
const ACTING_IS_SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The table on the terminal, if the output has one.
pub(super) struct Screen(Option<Table>);

/// The table and the sources of its changes.
struct Table {
    output: Output,
    inspectors: [Inspector; 2],
    resized: Signal,
    /// Whether something changed since the last drawing.
    is_stale: bool,
    drawn_at: Instant,
    acting: Acting,
}

/// Objects for which a controller is about to write, with the reason and the start.
#[derive(Default)]
struct Acting(BTreeMap<Key, (Reason, Instant)>);

impl Acting {
    /// Removes writes that usually finish before a user can read about them.
    fn drop_short(&mut self, waits: Waits, now: Instant) -> Waits {
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

    /// Returns when the next of the removed writes becomes visible.
    fn next(&self, now: Instant) -> Option<Instant> {
        let told_at = self.0.values().map(|(_, since)| *since + ACTING_IS_SHOWN_AFTER);
        told_at.filter(|at| now < *at).min()
    }
}

impl Screen {
    /// Creates a table if progress has that form.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
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

    /// Notes a change that the table may show.
    pub(super) fn changed(&mut self) {
        if let Some(table) = &mut self.0 {
            table.is_stale = true;
        }
    }

    /// Waits until the table must be drawn; forever without a table. Dropping the future loses no
    /// change.
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

    /// Draws the table.
    ///
    /// # Errors
    /// If the terminal is closed.
    pub(super) fn draw(&mut self, view: &View) -> io::Result<()> {
        let Some(table) = &mut self.0 else { return Ok(()) };
        let waits: Waits = table.inspectors.iter().flat_map(Inspector::waits).collect();
        let now = Instant::now();
        let waits = table.acting.drop_short(waits, now);
        table.output.show(table::render(view, &waits, table.output.size()))?;
        table.is_stale = false;
        table.drawn_at = now;
        Ok(())
    }

    /// Draws the table for the last time. An empty table is erased.
    ///
    /// # Errors
    /// If the terminal is closed.
    pub(super) fn end(&mut self, view: &View) -> io::Result<()> {
        let drawn = self.draw(view);
        let Some(table) = self.0.take() else { return drawn };
        let is_empty = view.listed().next().is_none();
        let drawn = if is_empty { drawn.and_then(|()| table.output.show(Vec::new())) } else { drawn };
        table.output.keep_table();
        drawn
    }
}

/// Waits until the given time; forever without one.
pub(super) async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => pending().await,
    }
}

/// Installs a panic hook that makes the table permanent. The panic message appears below it, and
/// the next table below the message.
fn leave_room_for_panics(output: &Output) {
    let output = output.clone();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        output.keep_table_if_idle();
        before(info);
    }));
}

#[cfg(test)]
mod tests {
    use machinist_core::Step;
    use machinist_kube::ObjectKey;
    use machinist_plan::mcm::McmReason;

    use super::*;
    use crate::output::{Line, Look};

    #[test]
    fn a_pending_write_is_shown_only_if_it_takes_long() {
        let waits = |reason: Reason| {
            Waits::from([(Key::Machine(ObjectKey::new("default", "a")), Why::new(reason, Step::Nothing))])
        };
        let mut acting = Acting::default();
        let start = Instant::now();
        let mut shown = |after: Duration, reason: Reason| {
            let now = start + after;
            (acting.drop_short(waits(reason), now).len(), acting.next(now).map(|at| at - now))
        };
        let (begin, second) = (Duration::ZERO, ACTING_IS_SHOWN_AFTER);
        assert_eq!(
            shown(begin, Reason::Contract(McmReason::Paused)),
            (1, None),
            "other reasons are shown at once"
        );
        assert_eq!(shown(begin, Reason::Writing("its finalizer")), (0, Some(second)));
        assert_eq!(shown(second / 2, Reason::Writing("its finalizer")), (0, Some(second / 2)));
        assert_eq!(
            shown(second, Reason::Writing("its status")),
            (0, Some(second)),
            "the next write starts a new delay"
        );
        assert_eq!(shown(second * 2, Reason::Writing("its status")), (1, None));
        assert_eq!(shown(second * 2, Reason::Settled), (1, None));
        assert_eq!(
            shown(second * 2, Reason::Writing("its status")),
            (0, Some(second)),
            "a repeated write starts a new delay"
        );
    }

    #[test]
    fn after_a_panic_the_next_table_is_drawn_below_the_old_one() {
        let (output, written) = Output::memory();
        let table = |text: &str| vec![Line { look: Look::Plain, text: text.to_owned() }];
        leave_room_for_panics(&output);
        output.show(table("before")).expect("shown");
        let panicked = std::panic::catch_unwind(|| panic!("a bug of the test, on purpose"));
        assert!(panicked.is_err());
        let before = written.text();
        output.show(table("after")).expect("shown");
        let after = written.text();
        let after = after.strip_prefix(&before).expect("the old output is unchanged");
        assert!(after.contains("after") && !after.contains("\x1b[1A"), "the cursor goes up: {after:?}");
    }
}
