//! Connects the routes with the work loop. The rules are in `machinist_plan::ccm::route`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{Answered, Call};
use machinist_driver::{Driver, Routes};
use machinist_instance::{AccountId, Error, Route, RouteSpec};
use machinist_kube::ObjectKey;
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::names::NETWORK_UNAVAILABLE;
use machinist_plan::ccm::route::{
    Action, CREATE_ROUTE, DELETE_ROUTE, LIST_ROUTES, NetworkCondition, RouteMemory, RoutedNode, Snapshot,
    abandoned, elsewhere, nodes_without_route, plan,
};
use machinist_plan::ccm::{Plan, Why};
use machinist_runtime::{Kind, Observed, Stop};
use serde_json::{Value, json};

use super::cloud::{self, Start};
use super::contract::{Ccm, Runtime, World, Write};
use super::events::{reference_of_program, tell};
use super::key::Key;
use super::measure;
use super::memory;
use super::node::{recorded, reference_of};
use super::options::Tools;
use super::seen::Seen;

/// Subject of every call about routes: at most one is in flight.
const SUBJECT: &str = "routes";

/// The routes in the work loop.
pub(crate) struct RouteTables;

impl Kind<Ccm> for RouteTables {
    type Id = ();
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(_: &Seen, _: &Tools) -> Vec<()> {
        vec![()]
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.route
    }

    fn observe(runtime: &Runtime, world: &World, (): &()) -> Observed<Snapshot> {
        let seen = &world.seen;
        let opened = cloud::open(runtime, seen).ok();
        let nodes = seen.nodes.iter().map(|(_, node)| RoutedNode {
            recorded: recorded(runtime, &node.facts),
            node: node.facts.clone(),
        });
        let in_flight = world.asks.of(SUBJECT);
        Observed::Ready(Snapshot {
            now: runtime.now(),
            options: runtime.tools.options.routes.clone(),
            nodes: nodes.collect(),
            is_synced: seen.nodes.synced(),
            nodes_freshness: runtime.freshness::<CloudNodeFacts>(world),
            account: cloud::account(runtime, world, opened.as_ref()),
            memory: RouteMemory { in_flight, ..seen.memory.routes.clone() },
            emitted: seen.memory.emitted(memory::ROUTES),
        })
    }

    fn plan(_: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot)
    }

    /// Stores why Nodes lack a route, because a user asks about the Node, since when routes have
    /// had no Node, and which routes belong to Nodes elsewhere.
    fn publish(runtime: &Runtime, snapshot: &Snapshot, why: &Why) {
        {
            let routes = &mut runtime.lock().seen.memory.routes;
            routes.abandoned = abandoned(snapshot);
            routes.elsewhere = elsewhere(snapshot);
        }
        note_nodes(runtime, nodes_without_route(snapshot, why));
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        match action {
            Action::Tell { node, event } => {
                let object =
                    node.as_ref().map_or_else(|| reference_of_program(runtime), |node| reference_of(node));
                tell(runtime, &object, memory::ROUTES, &event);
                Ok(())
            }
            Action::ReadNodes => {
                runtime.read_soon::<CloudNodeFacts>(&Key::Routes);
                Ok(())
            }
            Action::List => list(runtime),
            Action::Create(spec) => create(runtime, s, spec),
            Action::Delete(route) => delete(runtime, s, route),
            Action::SetNetwork(condition) => {
                let name = &condition.node.name;
                let charged = [Key::Routes, Key::Node(name.clone())];
                let write = Write { runtime, charged: &charged, key: ObjectKey::cluster_scoped(name) };
                write.merge_status::<CloudNodeFacts>(patch_of(&condition)).await
            }
        }
    }

    /// The conditions of different Nodes are independent.
    fn is_independent(action: &Action) -> bool {
        matches!(action, Action::SetNetwork(_))
    }

    fn is_rehearsed(runtime: &Runtime, action: &Action) -> bool {
        runtime.tools.options.dry_run
            && match action {
                Action::ReadNodes | Action::List => false,
                Action::Create(_) | Action::Delete(_) | Action::SetNetwork(_) | Action::Tell { .. } => true,
            }
    }

    /// The key stands for all routes.
    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Stores why Nodes lack a route, and wakes the Nodes whose reason changed: a user asks about the
/// Node.
fn note_nodes(runtime: &Runtime, whys: BTreeMap<String, Why>) {
    let before = std::mem::replace(&mut runtime.lock().seen.memory.unrouted, whys.clone());
    let names = before.keys().chain(whys.keys());
    let changed: BTreeSet<&String> = names.filter(|name| before.get(*name) != whys.get(*name)).collect();
    changed.into_iter().for_each(|name| runtime.wake(Key::Node(name.clone())));
}

/// Returns the patch of one condition. Strategic merge keeps the other conditions of the Node.
fn patch_of(condition: &NetworkCondition) -> Value {
    json!({
        "metadata": { "uid": condition.node.uid },
        "status": { "conditions": [{
            "type": NETWORK_UNAVAILABLE,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": seconds(condition.heartbeat),
            "lastTransitionTime": seconds(condition.transition),
        }] },
    })
}

/// Renders a time as API objects spell it: in whole seconds.
fn seconds(at: jiff::Timestamp) -> String {
    format!("{at:.0}")
}

fn list(runtime: &Arc<Runtime>) -> Result<(), Stop> {
    let metrics = runtime.options.metrics.clone();
    let remember = move |memory: &mut RouteMemory, answered| {
        measure::routes_synced(&metrics);
        memory.take_list(answered);
    };
    start(runtime, LIST_ROUTES, None, remember, |driver| async move { routes(&*driver)?.list().await })
}

fn create(runtime: &Arc<Runtime>, s: &Snapshot, spec: RouteSpec) -> Result<(), Stop> {
    let wanted = spec.clone();
    let remember = move |memory: &mut RouteMemory, answered| memory.take_create(&wanted, answered);
    let decided_for = s.account.id.clone();
    start(runtime, CREATE_ROUTE, decided_for, remember, |driver| async move {
        routes(&*driver)?.create(&spec).await
    })
}

fn delete(runtime: &Arc<Runtime>, s: &Snapshot, route: Route) -> Result<(), Stop> {
    let wrong = route.clone();
    let remember = move |memory: &mut RouteMemory, answered| memory.take_delete(&wrong, answered);
    let decided_for = s.account.id.clone();
    start(runtime, DELETE_ROUTE, decided_for, remember, |driver| async move {
        routes(&*driver)?.delete(&route).await
    })
}

fn routes(driver: &dyn Driver) -> Result<&dyn Routes, Error> {
    driver.routes().ok_or_else(|| Error::unsupported("routes"))
}

fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    runtime: &Arc<Runtime>,
    call: Call,
    decided_for: Option<AccountId>,
    remember: impl FnOnce(&mut RouteMemory, Answered<T>) + Send + 'static,
    made: impl FnOnce(Arc<dyn Driver>) -> F,
) -> Result<(), Stop> {
    let start = Start {
        subject: SUBJECT.to_owned(),
        key: Key::Routes,
        call,
        decided_for,
        bound: cloud::LONG_CALL,
        begins_by: None,
        confirm: None,
        // Nodes may have changed since the decision. A route that is no longer wanted is deleted
        // by the next decision, and a deleted one is created again.
        still_wanted: Box::new(|seen: &Seen| seen.nodes.synced()),
        remember: Box::new(move |seen: &mut Seen, answered: Answered<T>| {
            remember(&mut seen.memory.routes, answered);
        }),
    };
    cloud::start(runtime, start, made)
}
