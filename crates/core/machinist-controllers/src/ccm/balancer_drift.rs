//! Connects the list of load balancers with the work loop. The rules are in
//! `machinist_plan::ccm::balancer_drift`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::Answered;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_instance::{Balancer, Error};
use machinist_plan::ccm::balancer_drift::{Action, Snapshot, unanswered};
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::listed_balancers::{LIST_BALANCERS, ListedBalancers};
use machinist_plan::ccm::service::ServiceAnswers;
use machinist_plan::ccm::{Plan, Why};
use machinist_runtime::{Kind, Observed, Stop};

use super::cloud::{self, Start};
use super::contract::{Ccm, Runtime, World};
use super::events::{reference_of_program, tell};
use super::key::Key;
use super::memory::{self, next_failure};
use super::options::Tools;
use super::seen::{BALANCED, Seen, YES};

/// Subject of the list of load balancers.
const SUBJECT: &str = "balancers";

/// The list of load balancers in the work loop.
pub(crate) struct BalancerDrifts;

impl Kind<Ccm> for BalancerDrifts {
    type Id = ();
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(_: &Seen, _: &Tools) -> Vec<()> {
        vec![()]
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.service
    }

    fn observe(runtime: &Runtime, world: &World, (): &()) -> Observed<Snapshot> {
        let opened = cloud::open(runtime, &world.seen).ok();
        let memory = &world.seen.memory;
        Observed::Ready(Snapshot {
            now: runtime.now(),
            process: runtime.process_facts(opened.as_ref()),
            account: cloud::account(runtime, world, opened.as_ref()),
            in_flight: world.asks.of(SUBJECT).map(|(_, since)| since),
            listed: memory.drift.listed.clone(),
            failed: memory.drift.failed.clone(),
            services: memory.service_keys.clone().unwrap_or_default(),
            has_balancers: world.seen.services.by_index(BALANCED, YES).next().is_some(),
            late_deletion: memory.balancers.values().filter_map(ServiceAnswers::late_deletion).max(),
            period: runtime.tools.options.drift_period,
            nodes_freshness: runtime.freshness::<CloudNodeFacts>(world),
            nodes_asked: memory.drift.nodes_asked,
            emitted: memory.emitted(memory::DRIFT),
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.balancer_drift)(snapshot)
    }

    /// Stores whether a list of the silent Nodes has failed, and wakes the Services that report it.
    fn publish(runtime: &Runtime, snapshot: &Snapshot, _: &Why) {
        let silence = unanswered(&snapshot.nodes_freshness, snapshot.nodes_asked).cloned();
        let seen = &mut runtime.lock().seen;
        let before = std::mem::replace(&mut seen.memory.drift.nodes_silence, silence);
        if before.is_some() != seen.memory.drift.nodes_silence.is_some() {
            let services = seen.services.by_index(BALANCED, YES);
            services.for_each(|(key, _)| runtime.wake(Key::Service(key.clone())));
        }
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        match action {
            Action::ReadNodes => {
                runtime.lock().seen.memory.drift.nodes_asked = Some(s.now);
                runtime.read_soon::<CloudNodeFacts>(&Key::BalancerDrift);
                Ok(())
            }
            Action::List => list(runtime),
            Action::Tell(event) => {
                tell(runtime, &reference_of_program(runtime), memory::DRIFT, &event);
                Ok(())
            }
        }
    }

    fn is_rehearsed(runtime: &Runtime, action: &Action) -> bool {
        runtime.tools.options.dry_run
            && match action {
                Action::ReadNodes | Action::List => false,
                Action::Tell(_) => true,
            }
    }

    /// The list is not an object of the API.
    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

fn list(runtime: &Arc<Runtime>) -> Result<(), Stop> {
    let waker = runtime.clone();
    let services = runtime.lock().seen.memory.service_keys.clone().unwrap_or_default();
    let remember = Box::new(move |seen: &mut Seen, answered: Answered<Vec<Balancer>>| {
        let Answered { started, ended, answer, account } = answered;
        let wake_services = |seen: &Seen| {
            let services = seen.services.by_index(BALANCED, YES);
            services.for_each(|(key, _)| waker.wake(Key::Service(key.clone())));
        };
        // The list may prove the account, or fail to.
        waker.wake(Key::Account);
        match answer {
            Ok(balancers) => {
                seen.memory.drift.failed = None;
                seen.memory.drift.listed =
                    Some(Arc::new(ListedBalancers { started, ended, account, services, balancers }));
                // The check also covers the set of Nodes, so it is computed from the store.
                seen.memory.node_changes += u64::from(!is_reverted(Fix::TaintsChangeTargets));
                waker.wake(Key::Backends);
                wake_services(seen);
            }
            Err(error) => {
                let last = seen.memory.drift.failed.take();
                // Their reason names the failed list.
                wake_services(seen);
                seen.memory.drift.failed = Some(next_failure(last.as_ref(), error, ended));
            }
        }
    });
    let start = Start {
        subject: SUBJECT.to_owned(),
        key: Key::BalancerDrift,
        call: LIST_BALANCERS,
        decided_for: None,
        bound: cloud::LONG_CALL,
        begins_by: None,
        confirm: None,
        still_wanted: Box::new(|_: &Seen| true),
        remember,
    };
    cloud::start(runtime, start, |driver| async move {
        match driver.balancers() {
            Some(balancers) => balancers.list().await,
            None => Err(Error::unsupported("load balancers")),
        }
    })
}
