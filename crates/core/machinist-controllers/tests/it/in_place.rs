//! Tests of updates in place, and of the marks on Nodes during rollouts, with real requests to the
//! embedded server. The test plays the program on the Nodes that updates them.

use std::collections::BTreeSet;

use super::*;

const RESULT: &str = "node.machine.sapcloud.io/update-result";
const SELECTED: &str = "node.machine.sapcloud.io/selected-for-update";
const CANDIDATE: &str = "node.machine.sapcloud.io/candidate-for-update";
const NOT_READY: &str = "node.gardener.cloud/critical-components-not-ready";
const OUTDATED: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

async fn edit(world: &World, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    world.deployments().patch("w", &PatchParams::default(), &patch).await.expect("patched");
}

async fn update_in_place(world: &World, orchestration: &str) {
    let in_place = json!({"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": orchestration});
    edit(
        world,
        json!({"strategy": {"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": in_place}}),
    )
    .await;
}

async fn paint(world: &World, color: &str) {
    edit(world, json!({"template": {"metadata": {"labels": {"color": color}}}})).await;
}

async fn nodes(world: &World) -> Vec<Node> {
    let nodes: Api<Node> = Api::all(world.user.clone());
    nodes.list(&ListParams::default()).await.expect("a list").items
}

async fn patch_node(world: &World, name: &str, change: Value) {
    let nodes: Api<Node> = Api::all(world.user.clone());
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.expect("patched");
}

fn stage(node: &Node) -> Option<String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut stages = conditions.filter(|condition| condition.type_ == "InPlaceUpdate");
    stages.next().and_then(|condition| condition.reason.clone())
}

fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The taints that the controller writes. The server writes others.
fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let keys = taints.map(|taint| taint.key.clone());
    keys.filter(|key| [OUTDATED, NOT_READY].contains(&key.as_str())).collect()
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Plays the program on each Node: it reports this result of an update that was allowed, and takes
/// the taint off when it is ready.
async fn play_agents(world: &World, result: &str) {
    for node in nodes(world).await {
        let name = node.metadata.name.clone().unwrap_or_default();
        if stage(&node).as_deref() == Some("ReadyForUpdate") && label(&node, RESULT).is_none() {
            assert!(is_cordoned(&node), "a Node is updated after its drain");
            patch_node(world, &name, json!({"metadata": {"labels": {RESULT: result}}})).await;
        }
        if taints(&node).iter().any(|key| key == NOT_READY) {
            let rest: Vec<_> = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let rest: Vec<_> = rest.into_iter().filter(|taint| taint.key != NOT_READY).collect();
            patch_node(world, &name, json!({"spec": {"taints": rest}})).await;
        }
    }
}

/// The UIDs of the sets that own Machines.
async fn owners(world: &World) -> BTreeSet<String> {
    let machines = world.machines().await.into_iter();
    machines.flat_map(|machine| machine.metadata.owner_references).flatten().map(|owner| owner.uid).collect()
}

async fn is_updated(world: &World, count: usize, old: &BTreeSet<String>) -> bool {
    let owners = owners(world).await;
    let is_clean = |node: &Node| {
        [RESULT, SELECTED, CANDIDATE].iter().all(|key| label(node, key).is_none())
            && taints(node).is_empty()
            && !is_cordoned(node)
    };
    owners.len() == 1
        && owners.is_disjoint(old)
        && running(world).await == count
        && nodes(world).await.iter().all(is_clean)
}

#[tokio::test(start_paused = true)]
async fn instances_stay_when_they_are_updated_in_place() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(3).await;
    update_in_place(&world, "Auto").await;
    world.until_running(3).await;
    let old = owners(&world).await;
    let names: BTreeSet<_> = world.machines().await.into_iter().filter_map(|m| m.metadata.name).collect();
    paint(&world, "blue").await;
    let mut most = 0;
    for _ in 0..600 {
        play_agents(&world, "successful").await;
        most = most.max(nodes(&world).await.iter().filter(|node| is_cordoned(node)).count());
        if is_updated(&world, 3, &old).await {
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(is_updated(&world, 3, &old).await, "{:#?}", world.machines().await);
    assert_eq!(most, 1, "one Node at a time");
    assert_eq!(world.cloud.ledger().ever().len(), 3, "no instance was created or deleted");
    let after: BTreeSet<_> = world.machines().await.into_iter().filter_map(|m| m.metadata.name).collect();
    assert_eq!(after, names);
    let labels = world.machines().await.into_iter().flat_map(|machine| machine.metadata.labels).flatten();
    assert!(labels.into_iter().all(|(key, _)| key != RESULT && key != SELECTED));
}

#[tokio::test(start_paused = true)]
async fn a_user_selects_the_nodes_of_a_manual_update() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    update_in_place(&world, "Manual").await;
    world.until_running(2).await;
    let old = owners(&world).await;
    paint(&world, "blue").await;
    world
        .until("both Nodes are candidates", async |w| {
            nodes(w).await.iter().all(|node| stage(node).as_deref() == Some("CandidateForUpdate"))
        })
        .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(nodes(&world).await.iter().all(|node| label(node, SELECTED).is_none() && !is_cordoned(node)));
    for node in nodes(&world).await {
        let name = node.metadata.name.unwrap_or_default();
        patch_node(&world, &name, json!({"metadata": {"labels": {SELECTED: "true"}}})).await;
    }
    for _ in 0..300 {
        play_agents(&world, "successful").await;
        if is_updated(&world, 2, &old).await {
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(is_updated(&world, 2, &old).await, "{:#?}", nodes(&world).await);
    assert_eq!(world.cloud.ledger().ever().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_update_is_shown_and_stops_the_next_one() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    update_in_place(&world, "Auto").await;
    world.until_running(2).await;
    let patch = json!({"template": {"metadata": {"labels": {"color": "blue"}}}, "replicas": 2});
    edit(&world, patch).await;
    for _ in 0..120 {
        play_agents(&world, "failed").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let phases: Vec<_> = world.machines().await.iter().map(Machine::phase).collect();
    let failed = phases.iter().filter(|phase| **phase == Phase::InPlaceUpdateFailed).count();
    assert_eq!((failed, phases.len()), (1, 2), "{phases:?}");
    let [event] = world.events("UpdateFailed").await.try_into().expect("one Event");
    assert!(event.message.is_some_and(|message| message.contains("The update of the Node failed")));
}

#[tokio::test(start_paused = true)]
async fn old_nodes_are_marked_while_new_ones_replace_them() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    let user_protects = nodes(&world).await[0].metadata.name.clone().unwrap_or_default();
    patch_node(&world, &user_protects, json!({"metadata": {"annotations": {PROTECTED: "true"}}})).await;
    let old: BTreeSet<_> = nodes(&world).await.into_iter().filter_map(|node| node.metadata.name).collect();
    let is_protected =
        |node: &Node| node.metadata.annotations.iter().flatten().any(|(key, _)| key == PROTECTED);
    paint(&world, "blue").await;
    world
        .until("the old Nodes are marked", async |w| {
            let nodes = nodes(w).await;
            let mut marked = nodes.iter().filter(|node| taints(node).iter().any(|key| key == OUTDATED));
            marked.clone().count() == 2 && marked.all(is_protected)
        })
        .await;
    let by_us = |node: &Node| {
        let by_us = format!("{PROTECTED}-by-mcm");
        node.metadata.annotations.iter().flatten().any(|(key, _)| *key == by_us)
    };
    let of_user =
        nodes(&world).await.into_iter().find(|node| node.metadata.name.as_ref() == Some(&user_protects));
    assert!(!by_us(&of_user.expect("it exists")), "the protection of a user is not taken over");
    for _ in 0..300 {
        world.join().await;
        let nodes = nodes(&world).await;
        let is_new = |node: &Node| node.metadata.name.as_ref().is_some_and(|name| !old.contains(name));
        let is_clean = |node: &Node| !is_protected(node) && taints(node).is_empty();
        if nodes.len() == 2 && nodes.iter().all(|node| is_new(node) && is_clean(node)) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    panic!("the marks of the rollout stay: {:#?}", nodes(&world).await);
}
