//! A Node that is not ready.

use machinist_core::ownership::{List, Others};

use super::*;

/// An initialised Node that is not ready for 30 s.
fn unready() -> World {
    let condition = json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(-30).to_string()}]);
    initialized().set("/status/conditions", condition)
}

fn powered(power: Power) -> Sighting {
    Sighting::Present(Instance { power, ..instance() })
}

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

fn with_shutdown_taint(world: World) -> World {
    world.set("/spec/taints", json!([{"key": SHUTDOWN, "effect": "NoSchedule"}]))
}

#[test]
fn a_ready_node_is_left_alone_whatever_the_cloud_says() {
    let gone = initialized().found(-60, Ok(Sighting::Absent)).found(-1, Ok(Sighting::Absent));
    gone.check(expect![[r#"
        why   the cloud does not show instance sim://1, but the Node reports to be ready; since 2027-01-15T07:59:59Z; next: the Node stops reporting, or the cloud shows the instance
        wait  for a change
    "#]]);
    let off = initialized().found(-1, Ok(powered(Power::Stopped)));
    assert!(off.plan().starts_with("why   up to date"), "{}", off.plan());
}

#[test]
fn a_ready_node_loses_the_shutdown_taint() {
    let planned = with_shutdown_taint(initialized()).plan();
    assert!(planned.contains("do    node: taints []\n"), "{planned}");
    assert!(!planned.contains("driver"), "{planned}");
}

#[test]
fn the_node_of_a_stopped_instance_is_tainted() {
    unready().found(-1, Ok(powered(Power::Stopped))).check(expect![[r#"
        do    node: taints [node.cloudprovider.kubernetes.io/shutdown:NoSchedule]
        why   instance sim://1 is stopped; since 2027-01-15T07:59:30Z; next: a user starts the instance
        wait  until 2027-01-15T08:00:28Z
    "#]]);
    let tainted = with_shutdown_taint(unready()).found(-1, Ok(powered(Power::Stopped))).plan();
    assert!(!tainted.contains("do "), "{tainted}");
    let new_leader = unready().found(-1, Ok(powered(Power::Stopped)));
    let new_leader = new_leader.with(|s| s.process.leading_since = Some(at(-2))).plan();
    assert!(
        new_leader.starts_with("why   this process has just started to lead"),
        "a new leader waits: {new_leader}"
    );
}

/// The taint detaches volumes by force, so the instance has to be stopped in two answers, and a
/// flag has to allow the taint.
#[test]
fn out_of_service_needs_two_answers_and_the_flag() {
    let stopped = |second, since: Option<i64>, flag| {
        let world = with_shutdown_taint(unready()).found(second, Ok(powered(Power::Stopped)));
        let options = Options { out_of_service: flag, ..Options::default() };
        world.with(|s| {
            s.options = Arc::new(options);
            s.stopped_since = since.map(at);
        })
    };
    let both = "do    node: taints [node.cloudprovider.kubernetes.io/shutdown:NoSchedule \
                node.kubernetes.io/out-of-service:NoExecute]\n";
    assert!(stopped(-1, Some(-16), true).plan().contains(both));
    for (second, since, flag) in
        [(-1, Some(-16), false), (-1, Some(-15), true), (-1, Some(-1), true), (-1, None, true)]
    {
        let planned = stopped(second, since, flag).plan();
        assert!(!planned.contains("do "), "{second} {since:?} {flag}: {planned}");
    }
    let started = take_power(take_power(None, Power::Stopped, at(-20)), Power::Running, at(-10));
    assert_eq!(take_power(started, Power::Stopped, at(-1)), Some(at(-1)), "the row begins again");
}

#[test]
fn only_a_stopped_instance_taints_its_node() {
    for power in [Power::Pending, Power::Running, Power::Changing, Power::Deleting] {
        let planned = unready().found(-1, Ok(powered(power))).plan();
        assert!(!planned.contains("do "), "{power:?}: {planned}");
        assert!(
            planned.starts_with("why   the Node is not ready, but its instance sim://1 exists"),
            "{planned}"
        );
    }
    for power in [Power::Pending, Power::Changing, Power::Deleting] {
        let planned = with_shutdown_taint(unready()).found(-1, Ok(powered(power))).plan();
        assert!(!planned.contains("do "), "the taint stays while {power:?}: {planned}");
    }
}

/// The taint is removed before the Node is ready again.
#[test]
fn a_started_instance_ends_the_shutdown_taint() {
    let planned = with_shutdown_taint(unready()).found(-1, Ok(powered(Power::Running))).plan();
    assert!(planned.contains("do    node: taints []\n"), "{planned}");
}

#[test]
fn only_an_id_of_this_cloud_is_looked_up() {
    let empty = unready().set("/spec", json!({}));
    assert!(empty.plan().starts_with("why   the Node has no provider id"), "{}", empty.plan());
    for id in ["talos://n", "k3s://n", "sim://", "sim://x x"] {
        let planned = unready().set("/spec/providerID", json!(id)).plan();
        assert!(!planned.contains("driver"), "{id}: {planned}");
    }
}

/// The lookup is repeated after a wait, or when another call of the cloud works.
#[test]
fn a_failed_lookup_changes_nothing() {
    for kind in [ErrorKind::Denied, ErrorKind::Unavailable, ErrorKind::Ambiguous, ErrorKind::Bug] {
        let planned = unready().found(-1, Err(error(kind))).plan();
        assert!(!planned.contains("do "), "{planned}");
        assert!(planned.contains(&format!("wait  until {}", at(4))), "{planned}");
    }
    let paused = unready().with(|s| s.account.paused_until = Some(at(30)));
    assert!(paused.plan().contains("why   the cloud throttles"), "{}", paused.plan());
    let recovered = unready().found(-1, Err(error(ErrorKind::Unavailable)));
    let recovered = recovered.with(|s| s.account.works_since = Some(at(0)));
    assert!(recovered.plan().contains("driver: find sim://1"));
}

/// The planner of the Node collects the proof. An instance that is found again ends it, and a
/// missing condition Ready counts as not ready.
#[test]
fn two_lookups_prove_an_absence() {
    assert!(unready().plan().contains("do    driver: find sim://1"));
    let once = |second| unready().found(second, Ok(Sighting::Absent));
    once(-1).check(expect![[r#"
        why   instance sim://1 was not found; a second lookup follows; since 2027-01-15T07:59:59Z; next: the controller looks up the instance again
        wait  until 2027-01-15T08:00:14Z
    "#]]);
    assert!(once(-15).plan().contains("do    driver: find sim://1"));
    once(-16).found(-1, Ok(Sighting::Absent)).check(expect![[r#"
        why   instance sim://1 does not exist; the Node will be deleted; next: the controller deletes the Node
        wait  until 2027-01-15T08:09:59Z
    "#]]);
    let back = once(-16).found(-1, Ok(powered(Power::Running)));
    assert!(back.plan().starts_with("why   the Node is not ready, but"), "found again: {}", back.plan());
    let missing_condition = once(-16).set("/status/conditions", json!([])).found(-1, Ok(Sighting::Absent));
    assert!(missing_condition.plan().contains("does not exist"), "no condition Ready");
}

/// A list may lack an instance that exists, so a lookup by id decides.
#[test]
fn a_list_is_only_a_hint() {
    let unlisted = unready().listed(-1, None);
    assert!(unlisted.plan().contains("do    driver: find sim://1"), "{}", unlisted.plan());
    let shown = unready().listed(-2, None).found(-1, Ok(powered(Power::Running)));
    assert!(shown.plan().starts_with("why   the Node is not ready, but"), "{}", shown.plan());
    let contradicted = unready()
        .found(-20, Ok(Sighting::Absent))
        .found(-3, Ok(Sighting::Absent))
        .listed(-1, Some(instance()));
    assert!(contradicted.plan().starts_with("why   the Node is not ready, but"), "{}", contradicted.plan());
}

/// The wait doubles, because it is as long as the Node has not been ready.
#[test]
fn an_existing_instance_is_looked_up_less_often() {
    for (unready_for, expected) in [(3, 5), (10, 10), (40, 40), (600, 60)] {
        let condition = json!([
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-unready_for).to_string()},
        ]);
        let world = unready().set("/status/conditions", condition);
        let planned = world.found(0, Ok(powered(Power::Running))).plan();
        assert!(planned.contains(&format!("wait  until {}", at(expected))), "{unready_for}: {planned}");
    }
    let many = |list_cost| {
        let world = unready().with(|s| {
            s.crowd.not_ready = 5;
            s.account.list_cost = list_cost;
        });
        world.plan()
    };
    assert!(many(2).contains("do    driver: list\n"), "one list is cheaper");
    assert!(many(5).contains("do    driver: find sim://1\n"));
}

/// An absence in another account proves nothing.
#[test]
fn an_absence_in_an_unproven_account_keeps_the_node() {
    let other = || {
        unready().found(-16, Ok(Sighting::Absent)).found(-1, Ok(Sighting::Absent)).with(|s| {
            s.answers.shown_in = None;
            s.ownership.recorded = Some(AccountId::of([&b"sim"[..], b"old token"]));
            s.ownership.others = Others::AsOld;
        })
    };
    assert!(other().plan().contains("do    driver: list\n"), "a list shows the account");
    other().with(|s| s.ownership.list = List::Ended(at(300))).check(expect![[r#"
        do    warning CloudAccountUnproven: instance sim://1 was not found, but the credential may belong to another account, so the Node is kept
        why   instance sim://1 was not found, but the credential may belong to another account, so the Node is kept; since 2027-01-15T07:59:44Z; next: check that the credential belongs to the project of the cluster's instances. If it does, and the instance was deleted, delete the Node
        wait  until 2027-01-15T08:05:00Z
    "#]]);
}

/// An annotation, the age of the Node, or a Machine that owns the Node can keep it.
#[test]
fn a_missing_instance_does_not_always_end_its_node() {
    let missing = || unready().found(-16, Ok(Sighting::Absent)).found(-1, Ok(Sighting::Absent));
    let mut skipped = missing();
    skipped.node["metadata"]["annotations"]["machinist.dev/skip-cloud-deletion"] = json!("true");
    assert!(skipped.plan().contains("but an annotation keeps the Node"), "{}", skipped.plan());
    let young = missing().set("/metadata/creationTimestamp", json!(at(-50).to_string()));
    assert!(young.plan().contains("but the Node is too young"), "{}", young.plan());
    assert!(young.plan().contains(&format!("wait  until {}", at(10))), "{}", young.plan());
    let owned = missing().with(|s| {
        s.owner = Some(Owner { machine: "default/m".to_owned(), is_deleting: false });
    });
    assert!(owned.plan().contains("waiting for Machine default/m"), "{}", owned.plan());
}

/// A Node whose instance is missing is looked up again from time to time.
#[test]
fn a_kept_node_notices_an_instance_that_returns() {
    let long_unready =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-1000).to_string()}]);
    let unready = || unready().set("/status/conditions", long_unready.clone());
    let kept = |last| unready().found(-700, Ok(Sighting::Absent)).found(last, Ok(Sighting::Absent));
    assert!(!kept(-599).plan().contains("driver"), "{}", kept(-599).plan());
    assert!(kept(-600).plan().contains("do    driver: find sim://1"));
}
