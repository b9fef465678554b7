//! Waits for the measured programs, and explains what they wait for.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

const READY_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The controllers coalesce status writes to one a second, and a provider of Cluster API looks at
/// unfinished work every two seconds, so a write may still follow two seconds without one.
const QUIET: Duration = Duration::from_secs(3);
pub(crate) const COUNT_EVERY: Duration = Duration::from_millis(250);
/// A program that still writes after this time is taken to write forever.
const QUIET_WITHIN: Duration = Duration::from_secs(60);
/// Number of objects that a failed run explains.
const EXPLAINED: usize = 5;

/// Waits until a program is ready.
pub(crate) async fn until_ready(program: &str, is_ready: impl Fn() -> bool) -> Result<()> {
    let ready = until(READY_WITHIN, LOOK_EVERY, async || Ok(is_ready())).await;
    ready.with_context(|| format!("the {program} did not become ready in time"))?
}

/// Looks at intervals until a look returns true.
///
/// # Errors
/// The outer error says that the time was over, the inner error is the error of a look.
pub(crate) async fn until(
    within: Duration,
    look_every: Duration,
    mut look: impl AsyncFnMut() -> Result<bool>,
) -> Result<Result<()>, Elapsed> {
    let reached = async {
        while !look().await? {
            tokio::time::sleep(look_every).await;
        }
        Ok(())
    };
    tokio::time::timeout(within, reached).await
}

/// Waits until nothing has been written for a while; returns false if that never happens.
/// `has_written` says whether something was written since its last call.
pub(crate) async fn until_quiet(has_written: impl FnMut() -> Result<bool>) -> Result<bool> {
    until_quiet_for(QUIET, QUIET_WITHIN, has_written).await
}

/// Waits until nothing has happened for `quiet`; returns false if that is not so after `within`.
/// `has_happened` says whether something happened since its last call.
pub(crate) async fn until_quiet_for(
    quiet: Duration,
    within: Duration,
    mut has_happened: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let began = Instant::now();
    let mut last = Instant::now();
    while last.elapsed() < quiet {
        if within < began.elapsed() {
            return Ok(false);
        }
        tokio::time::sleep(COUNT_EVERY).await;
        if has_happened()? {
            last = Instant::now();
        }
    }
    Ok(true)
}

/// Appends the first reasons to a message.
pub(crate) fn explain(
    message: impl Into<String>,
    whys: impl IntoIterator<Item = (impl Display, impl Display)>,
) -> String {
    let mut text = message.into();
    for (key, why) in whys.into_iter().take(EXPLAINED) {
        let _ = write!(text, "\n  {key}: {why}");
    }
    text
}
