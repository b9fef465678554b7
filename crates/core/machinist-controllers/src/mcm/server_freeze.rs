//! Collects the facts about API servers that do not answer. The rule is in
//! `machinist_plan::mcm::server_freeze`.

use machinist_core::Freshness;
use machinist_plan::mcm::facts::{MachineFacts, NodeFacts};
use machinist_plan::mcm::server_freeze::{Frozen, SilentKind, frozen};
use machinist_runtime::{Fed, ServerChecks};

use super::contract::{Mcm, Runtime, World};
use super::options::MachineOptions;

/// The kinds whose silence freezes the machine controller.
const KINDS: &[&str] = &[<MachineFacts as Fed<Mcm>>::RESOURCE, <NodeFacts as Fed<Mcm>>::RESOURCE];

/// Returns the freeze of this machine controller, if it is frozen: Machines or Nodes are not fresh,
/// and their API server has not answered for too long. Then no Machine may be marked Failed, and no
/// instance may be collected as an orphan.
pub(crate) fn frozen_by_server(runtime: &Runtime, world: &World) -> Option<Frozen> {
    let limits = runtime.tools.machine.as_ref()?.server_limits?;
    let all = [unanswered::<MachineFacts>(runtime, world), unanswered::<NodeFacts>(runtime, world)];
    frozen(all.into_iter().flatten(), limits.timeout)
}

/// The checks that the runtime makes for this rule.
pub(crate) fn server_checks(options: &MachineOptions) -> Option<ServerChecks> {
    let limits = options.server_limits?;
    Some(ServerChecks { kinds: KINDS, timeout: limits.timeout, period: limits.period })
}

fn unanswered<F: Fed<Mcm>>(runtime: &Runtime, world: &World) -> Option<SilentKind> {
    let since = runtime.unanswered_since::<F>(&world.seen)?;
    match runtime.freshness::<F>(world) {
        Freshness::Fresh => None,
        Freshness::Stale(silence) => Some(SilentKind { silence, lasts: since.elapsed() }),
    }
}
