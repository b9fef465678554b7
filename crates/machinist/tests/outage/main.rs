//! Machine controller and manager as processes on two clusters, while the API server of the Nodes
//! is away. `cargo xtask real --lane outage` provides the clusters.
//!
//! ```text
//! world       the two clusters, the cloud with its machines, and the two processes
//! proxy       between the controllers and the API server of the Nodes
//! drains, joins, stock, owners, force    the scenarios
//! ```
//!
//! Users and machines reach the API server of the Nodes past the proxy, so they go on while the
//! controllers see nothing. All scenarios share the clusters, and run in order. The first failure
//! ends the run. A scenario that checks that something does not happen waits until the deadlines
//! have passed that would cause it.
//!
//! Without an argument, the outages are as short as the rules allow. With `long`, they last ten
//! minutes, and the API server of the Nodes is also suspended (SIGSTOP).
//!
//! A separate program instead of a test harness, so that each result is printed as soon as it is
//! known.

#![expect(clippy::print_stdout, reason = "this program prints a report")]

#[path = "../clusters/mod.rs"]
mod clusters;
mod drains;
mod force;
mod joins;
mod owners;
mod processes;
mod proxy;
mod stock;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use proxy::Fault;
use world::World;

macro_rules! played {
    ($world:ident, $name:expr, $scenario:expr) => {
        let started = Instant::now();
        match $scenario(&mut $world).await {
            Ok(()) => println!("PASSED  {} ({:.0?})", $name, started.elapsed()),
            Err(error) => return Err(report(&$world, error.context($name))),
        }
    };
}

/// The length of an outage that outlasts every deadline of the scenarios, and the time for which a
/// watch counts as fresh.
const SHORT: Duration = Duration::from_secs(140);
const LONG: Duration = Duration::from_secs(600);
/// A bootstrap token lasts eleven minutes, and a machine that cannot join tries again each minute.
/// After a longer suspension it may come too late, and is replaced.
const SUSPENDED: Duration = Duration::from_secs(540);

/// How much of the scenarios is played.
enum Extent {
    Short,
    Long,
}

#[tokio::main]
async fn main() -> ExitCode {
    let has = |argument: &str| std::env::args().any(|given| given == argument);
    let extent = if has("long") { Extent::Long } else { Extent::Short };
    let Err(error) = play(extent).await else { return ExitCode::SUCCESS };
    println!("FAILED  {error:#}");
    ExitCode::FAILURE
}

async fn play(extent: Extent) -> Result<()> {
    let mut world = World::new().await?;
    played!(world, "three workers join", World::create_workers);
    let outages: &[(&str, Fault, Duration)] = match extent {
        Extent::Short => &[("refused", Fault::Refuse, SHORT)],
        Extent::Long => &[
            ("refused", Fault::Refuse, LONG),
            ("hanging", Fault::Hang, LONG),
            ("suspended", Fault::Suspend, SUSPENDED),
        ],
    };
    for (name, fault, length) in outages {
        let drained = format!("a drain and joins during an outage ({name})");
        played!(world, drained.clone(), async |w: &mut World| drains::during(w, *fault, *length).await);
    }
    played!(world, "a drain after a stop that was longer than its timeout", drains::after_a_stop);
    played!(world, "one Machine of a zone is given up while nothing can be created", stock::exhausted);
    played!(world, "orphan deletion leaves the machines", owners::orphaned);
    played!(world, "force-deletion without the API server of the Nodes", force::without_target);
    Ok(())
}

fn report(world: &World, error: anyhow::Error) -> anyhow::Error {
    println!("{}", world.report());
    error
}
