//! Kills controllers in the middle of their work, on real clusters where every program is a
//! separate process.
//!
//! ```text
//! scale    3 machines -> N -> 0
//! rollout  new templates for N machines, one after another, one in the middle of another, and back
//! drain    N machines with pods and a PodDisruptionBudget, of which some are deleted, again and again
//! ```
//!
//! A point is the number of an *event*: a commit at an API server by one of the two controllers, or
//! an entry in the cloud's ledger. Events are counted from the first Machine that is created (or
//! deleted). At a point, one of the two controllers gets SIGKILL and is restarted at once, with
//! `--other` in turns as one of two programs. The seed also draws which one. If the drawn
//! controller has done nothing since its last start, it still waits for its Lease, and killing it
//! would prove little. Then the controller that caused the event is killed instead.
//!
//! The cloud is never killed, because a real cloud continues while controllers are down.

mod controllers;
mod drain;
mod events;
mod killer;
mod limits;
mod notice;
mod options;
mod points;
mod rollout;
mod scaling;
mod takeovers;
mod verdict;
mod workload;

use anyhow::Result;

use self::controllers::KilledControllers;
pub use self::options::Args;
use self::options::Work;
pub use self::verdict::KillVerdict;

/// Runs the test and reports each point.
///
/// # Errors
/// When a program cannot be started or a state is not reached. Errors in a reached state are in the
/// verdict.
pub async fn run(args: &Args) -> Result<KillVerdict> {
    let mut controllers =
        KilledControllers::start(args.machinist.clone(), args.other.clone(), args.logs.as_deref()).await?;
    match args.work {
        Work::Scale => scaling::run(&mut controllers, args).await,
        Work::Rollout => rollout::run(&mut controllers, args).await,
        Work::Drain => drain::run(&mut controllers, args).await,
    }
}
