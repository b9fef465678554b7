//! Tests of the removal of Nodes: each test builds a snapshot and checks which Nodes are deleted.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Node;
use machinist_core::{Answered, Found};
use machinist_instance::{AccountId, Error, ErrorKind, Instance, InstanceRef, NodeName, Power, Sighting};
use serde_json::{Value, json};

use super::*;
use crate::ccm::node::Brake;
use crate::testing::{self, at};

fn account(token: &str) -> AccountId {
    AccountId::of([&b"sim"[..], token.as_bytes()])
}

/// A cluster of ten Nodes. One instance is missing, which was proven.
fn cluster() -> Snapshot {
    let process = testing::process(-3600, Duration::from_secs(30), Duration::from_secs(10));
    Snapshot {
        now: at(0),
        process,
        options: Arc::default(),
        account: AccountFacts { id: Some(account("token")), list_cost: 1, ..AccountFacts::default() },
        nodes: 10,
        shown: Some((at(-100), 9)),
        suspects: vec![suspect(1)],
        removed: Vec::new(),
        allowed_until: None,
        allowed_on: "ConfigMap kube-system/ccm".into(),
        emitted: Arc::default(),
    }
}

/// A Node that is not ready for a minute. Two lookups of its instance, 15 s apart, found nothing.
fn suspect(number: u32) -> Suspect {
    let node = json!({
        "metadata": {
            "name": format!("n{number}"), "uid": format!("uid-{number}"), "resourceVersion": "7",
            "creationTimestamp": at(-3000).to_string(),
        },
        "spec": {"providerID": format!("sim://{number}")},
        "status": {"conditions": [
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-60).to_string()},
        ]},
    });
    let mut suspect = Suspect {
        node: parse(node),
        recorded: RecordedId::any(&format!("sim://{number}")),
        answers: Answers { shown_in: Some(account("token")), ..Answers::default() },
        listed: None,
        ownership: Ownership { account: Some(account("token")), ..Ownership::default() },
        owner: None,
        refused: None,
    };
    for second in [-20, -5] {
        answer(&mut suspect, second, Ok(Sighting::Absent));
    }
    suspect
}

fn parse(node: Value) -> Arc<CloudNodeFacts> {
    let node: Node = serde_json::from_value(node).expect("a Node");
    Arc::new(CloudNodeFacts::parse(&node))
}

fn answer(suspect: &mut Suspect, second: i64, answer: Result<Sighting, Error>) {
    let by = InstanceRef { id: suspect.recorded.ours().cloned(), ..InstanceRef::default() };
    let account = Some(account("token"));
    let answered = Answered { started: at(second), ended: at(second), account, answer };
    suspect.answers.take_found(Found { by, answered });
}

fn instance() -> Instance {
    Instance { power: Power::Stopped, ..testing::instance("sim://1", "n1", -3000) }
}

/// Returns the names of the Nodes that are deleted.
fn deleted(s: &Snapshot) -> Vec<String> {
    let Plan { actions, wait, .. } = plan(s);
    let is_future = !matches!(wait, Wait::Until(at) if at <= s.now);
    assert!(is_future || !actions.is_empty(), "the planner would be called again at once");
    let deleted = actions.iter().filter_map(|action| match action {
        Action::Delete(removal) => Some(removal.node().name.clone()),
        Action::List | Action::Tell { .. } => None,
    });
    deleted.collect()
}

fn check(s: &Snapshot, expected: Expect) {
    expected.assert_eq(&plan(s).to_string());
}

/// Changes the one suspect of [`cluster`].
fn changed(change: impl FnOnce(&mut Suspect)) -> Snapshot {
    let mut s = cluster();
    change(&mut s.suspects[0]);
    s
}

fn changed_node(change: impl FnOnce(&mut CloudNodeFacts)) -> Snapshot {
    changed(|suspect| change(Arc::make_mut(&mut suspect.node)))
}

/// A cluster whose suspects are replaced.
fn missing(count: u32) -> Snapshot {
    Snapshot { suspects: (1..=count).map(suspect).collect(), ..cluster() }
}

/// The DELETE has the UID and the resourceVersion of the Node as preconditions.
#[test]
fn the_node_of_a_missing_instance_is_deleted() {
    check(
        &cluster(),
        expect![[r#"
        do    node n1: event DeletingNode: Deleting node n1 because it does not exist in the cloud provider
        do    node n1: delete because sim://1 was absent at 2027-01-15T07:59:40Z and 2027-01-15T07:59:55Z
        why   deleting the Nodes of instances that do not exist; next: the Nodes are deleted
        wait  for a change
    "#]],
    );
    let removal = plan(&cluster()).actions.into_iter().find_map(|action| match action {
        Action::Delete(removal) => Some(removal),
        Action::List | Action::Tell { .. } => None,
    });
    let removal = removal.expect("the Node is deleted");
    assert_eq!(
        (removal.node().uid.as_str(), removal.node().resource_version.as_precondition()),
        ("uid-1", "7")
    );
    assert_eq!(removal.valid_until(), at(10));
    assert!(!removal.is_expected());
    assert!(removal.absences().first < removal.absences().last);
}

/// A missing condition Ready counts as Unknown.
#[test]
fn a_node_without_conditions_can_be_deleted() {
    assert_eq!(deleted(&changed_node(|node| node.ready = None)), ["n1"]);
}

/// The instance was stopped before it was deleted.
#[test]
fn the_node_of_a_stopped_and_missing_instance_is_deleted() {
    let stopped = changed(|suspect| {
        suspect.answers = Answers { shown_in: Some(account("token")), ..Answers::default() };
        answer(suspect, -30, Ok(Sighting::Present(instance())));
        answer(suspect, -20, Ok(Sighting::Absent));
        answer(suspect, -5, Ok(Sighting::Absent));
        Arc::make_mut(&mut suspect.node).taints = Some(vec![k8s_openapi::api::core::v1::Taint {
            key: names::SHUTDOWN_TAINT.to_owned(),
            effect: names::NO_SCHEDULE.to_owned(),
            ..Default::default()
        }]);
    });
    assert_eq!(deleted(&stopped), ["n1"]);
}

/// Every part of the evidence is needed: without it, no Node is deleted.
#[test]
fn no_node_is_deleted_without_the_evidence() {
    let ready = |node: &mut CloudNodeFacts| {
        if let Some(ready) = &mut node.ready {
            ready.status = "True".to_owned();
        }
    };
    let no_second = |suspect: &mut Suspect| {
        suspect.answers = Answers { shown_in: Some(account("token")), ..Answers::default() };
        answer(suspect, -20, Ok(Sighting::Absent));
    };
    let too_close = |suspect: &mut Suspect| {
        no_second(suspect);
        answer(suspect, -6, Ok(Sighting::Absent));
    };
    let back = |suspect: &mut Suspect| answer(suspect, -1, Ok(Sighting::Present(instance())));
    let back_in_list = |suspect: &mut Suspect| {
        let instance = Some(Arc::new(instance()));
        suspect.listed = Some(ListedNode { started: at(-1), ended: at(-1), instance });
    };
    let only_listed = |suspect: &mut Suspect| {
        suspect.answers = Answers { shown_in: Some(account("token")), ..Answers::default() };
        suspect.listed = Some(ListedNode { started: at(-1), ended: at(-1), instance: None });
    };
    let by_name = |suspect: &mut Suspect| {
        if let Some(found) = &mut suspect.answers.find {
            found.by = InstanceRef { name: NodeName::new("n1"), ..InstanceRef::default() };
        }
    };
    let of_other_id = |suspect: &mut Suspect| suspect.recorded = RecordedId::any("sim://2");
    let of_other_cloud =
        |suspect: &mut Suspect| suspect.recorded = RecordedId::NotOurs { expected: "sim://NAME".to_owned() };
    let without_id = |suspect: &mut Suspect| suspect.recorded = RecordedId::Unset;
    let unproven = |suspect: &mut Suspect| suspect.answers.shown_in = None;
    for (name, s) in [
        ("ready", changed_node(ready)),
        (
            "uninitialized",
            changed_node(|node| {
                node.taints = Some(vec![k8s_openapi::api::core::v1::Taint {
                    key: names::UNINITIALIZED_TAINT.to_owned(),
                    ..Default::default()
                }]);
            }),
        ),
        ("being deleted", changed_node(|node| node.deleting_since = Some(at(-1)))),
        (
            "skipped",
            changed_node(|node| {
                node.annotations.insert(names::SKIP_CLOUD_DELETION.to_owned(), "true".to_owned());
            }),
        ),
        (
            "skipped with another spelling",
            changed_node(|node| {
                node.annotations.insert(names::SKIP_CLOUD_DELETION.to_owned(), "True".to_owned());
            }),
        ),
        ("too young", changed_node(|node| node.created = at(-59))),
        ("one lookup", changed(no_second)),
        ("two lookups that are too close", changed(too_close)),
        ("found again", changed(back)),
        ("listed again", changed(back_in_list)),
        ("only a list", changed(only_listed)),
        ("by name", changed(by_name)),
        ("another id", changed(of_other_id)),
        ("of another cloud", changed(of_other_cloud)),
        ("without an id", changed(without_id)),
        ("unproven account", changed(unproven)),
        (
            "today's account is another",
            Snapshot {
                account: AccountFacts { id: Some(account("other")), ..cluster().account },
                ..cluster()
            },
        ),
        (
            "a new leader",
            Snapshot { process: Process { leading_since: Some(at(-4)), ..cluster().process }, ..cluster() },
        ),
        (
            "clock skew",
            Snapshot { process: Process { skew: Duration::from_secs(45), ..cluster().process }, ..cluster() },
        ),
    ] {
        assert_eq!(deleted(&s), Vec::<String>::new(), "{name}");
    }
}

/// A failure after the first absence keeps it, and proves nothing itself.
#[test]
fn a_failed_lookup_is_no_absence() {
    for kind in [ErrorKind::Denied, ErrorKind::Unavailable, ErrorKind::Ambiguous, ErrorKind::Bug] {
        let failed = changed(|suspect| answer(suspect, -1, Err(Error::new(kind, "no"))));
        assert_eq!(deleted(&failed), Vec::<String>::new(), "{kind}");
        let then_absent = changed(|suspect| {
            answer(suspect, -2, Err(Error::new(kind, "no")));
            answer(suspect, -1, Ok(Sighting::Absent));
        });
        assert_eq!(deleted(&then_absent), ["n1"], "{kind}");
    }
}

/// In that time, the machine controller can replace the Machine and delete the Node itself.
#[test]
fn a_live_machine_has_two_minutes() {
    let owned = |is_deleting, first| {
        changed(|suspect| {
            suspect.owner = Some(Owner { machine: "default/m".to_owned(), is_deleting });
            suspect.answers.absence.as_mut().expect("absent").first = at(first);
            Arc::make_mut(&mut suspect.node).ready = None;
        })
    };
    assert_eq!(deleted(&owned(false, -119)), Vec::<String>::new());
    assert_eq!(deleted(&owned(false, -120)), ["n1"]);
    assert_eq!(deleted(&owned(true, -20)), ["n1"], "the Machine is being deleted");
}

/// Nodes that were deleted a short time ago, and absences that are not proven, count, too.
#[test]
fn the_brake_holds_if_too_many_are_missing() {
    assert_eq!(deleted(&missing(3)).len(), 3, "three may always be missing");
    assert_eq!(deleted(&missing(4)), Vec::<String>::new());
    check(
        &missing(4),
        expect![[r#"
            do    warning NodeDeletionSuspended: the instances of 4 of 10 Nodes are missing; no Node is deleted: at most 3 may be missing. To go on, check the credential and the instances in the cloud. If the instances were deleted on purpose, set the annotation machinist.dev/allow-node-deletion-until of ConfigMap kube-system/ccm to a time in the future.
            why   the instances of 4 of 10 Nodes are missing; no Node is deleted: at most 3 may be missing; next: check the credential and the instances in the cloud. If the instances were deleted on purpose, set the annotation machinist.dev/allow-node-deletion-until of ConfigMap kube-system/ccm to a time in the future
            wait  until 2027-01-15T08:01:00Z
        "#]],
    );
    let of_hundred = |count| Snapshot { nodes: 100, shown: Some((at(-1), 70)), ..missing(count) };
    assert_eq!(deleted(&of_hundred(30)), Vec::<String>::new(), "more than a fifth");
    assert_eq!(deleted(&of_hundred(20)).len(), MAX_AT_ONCE);
    let unproven = |count| {
        let mut s = of_hundred(count);
        s.suspects[1..].iter_mut().for_each(|suspect| suspect.answers.shown_in = None);
        s
    };
    assert_eq!(deleted(&unproven(30)), Vec::<String>::new(), "unproven absences count, too");
    let removed = Snapshot { removed: vec![at(-599); 18], ..of_hundred(6) };
    assert_eq!(deleted(&removed), Vec::<String>::new(), "18 of 118 were deleted a moment ago");
    let long_ago = Snapshot { removed: vec![at(-600); 18], ..of_hundred(6) };
    assert_eq!(deleted(&long_ago).len(), 6);
}

/// Otherwise an outage in the middle of the confirmation would release the brake.
#[test]
fn the_brake_counts_missing_instances_whose_lookup_failed() {
    let failing = |kind| {
        let mut s = missing(8);
        for suspect in &mut s.suspects[3..] {
            answer(suspect, -1, Err(Error::new(kind, "no")));
        }
        s
    };
    for kind in [ErrorKind::Unavailable, ErrorKind::Throttled { retry_after: None }, ErrorKind::Denied] {
        assert_eq!(deleted(&failing(kind)), Vec::<String>::new(), "{kind}");
        assert!(plan(&failing(kind)).to_string().contains("the instances of 8 of 10 Nodes are missing"));
    }
    let mut back = failing(ErrorKind::Unavailable);
    for suspect in &mut back.suspects[3..] {
        let id = suspect.recorded.ours().expect("an id").clone();
        answer(suspect, 0, Ok(Sighting::Present(Instance { id, ..instance() })));
    }
    assert_eq!(deleted(&back).len(), 3, "the others exist");
}

/// The credential may belong to another project.
#[test]
fn the_brake_holds_if_all_are_missing() {
    let all = Snapshot { nodes: 2, shown: Some((at(-1), 1)), ..missing(2) };
    assert_eq!(deleted(&all), Vec::<String>::new());
    assert!(plan(&all).to_string().contains("all instances are missing"));
    let single = Snapshot { nodes: 1, ..missing(1) };
    assert_eq!(deleted(&single), Vec::<String>::new());
}

/// An account that shows no instance of the cluster may be the wrong one.
#[test]
fn the_brake_needs_a_young_list_that_shows_nodes() {
    let nothing = Snapshot { shown: Some((at(-1), 0)), ..cluster() };
    assert_eq!(deleted(&nothing), Vec::<String>::new());
    assert!(plan(&nothing).to_string().contains("the account shows the instance of no Node"));
    for shown in [None, Some((at(-600), 9))] {
        let unlisted = Snapshot { shown, ..cluster() };
        assert!(plan(&unlisted).to_string().starts_with("do    driver: list\n"), "{shown:?}");
        let listing = AccountFacts { list_since: Some(at(-1)), ..cluster().account };
        assert!(plan(&Snapshot { account: listing, ..unlisted }).actions.is_empty());
    }
}

/// An annotation releases the brake for a time. Flags turn it off, or choose its limits.
#[test]
fn a_user_releases_the_brake() {
    let allowed = |text: &str| Snapshot { allowed_until: Some(text.to_owned()), ..missing(4) };
    assert_eq!(deleted(&allowed(&at(60).to_string())).len(), 4);
    assert_eq!(deleted(&allowed(&at(0).to_string())), Vec::<String>::new());
    let invalid = plan(&allowed("yes")).to_string();
    assert!(invalid.contains("its value \"yes\" is not a time"), "{invalid}");
    let off = Snapshot {
        options: Arc::new(Options { brake: None, ..Options::default() }),
        ..Snapshot { nodes: 4, ..missing(4) }
    };
    assert_eq!(deleted(&off).len(), 4);
    let wide = Brake { nodes: 4, percent: 0 };
    let wide = Arc::new(Options { brake: Some(wide), ..Options::default() });
    assert_eq!(deleted(&Snapshot { options: wide, ..missing(4) }).len(), 4);
}

/// The cluster-autoscaler deletes instances and relies on this program to delete the Nodes.
#[test]
fn announced_deletions_do_not_count_towards_the_brake() {
    let mut s = missing(6);
    for suspect in &mut s.suspects[..5] {
        Arc::make_mut(&mut suspect.node).taints = Some(vec![k8s_openapi::api::core::v1::Taint {
            key: names::AUTOSCALER_DELETION_TAINT.to_owned(),
            effect: names::NO_SCHEDULE.to_owned(),
            ..Default::default()
        }]);
    }
    assert_eq!(deleted(&s).len(), 6);
    let braked = Snapshot { shown: Some((at(-1), 0)), ..s };
    assert_eq!(deleted(&braked).len(), 5, "the brake holds only the other one");
}

/// The API server rejects the DELETE. The Node is tried again later, and does not delay the
/// others.
#[test]
fn a_rejected_deletion_is_retried_later() {
    let refusal = |count, second| {
        let attempts = Attempts { count, last: at(second) };
        Some(DeletionRefusal { attempts, message: "nodes is forbidden".to_owned() })
    };
    let refused = |count, second| {
        let mut s = missing(2);
        s.suspects[0].refused = refusal(count, second);
        s
    };
    assert_eq!(deleted(&refused(1, -9)), ["n2"]);
    assert_eq!(deleted(&refused(1, -10)), ["n1", "n2"]);
    assert_eq!(deleted(&refused(9, -299)), ["n2"]);
    let mut alone = changed(|suspect| suspect.refused = refusal(1, -1));
    check(
        &alone,
        expect![[r#"
            do    node n1: warning DeletingNodeFailed: Failed deleting node n1: nodes is forbidden
            why   the API server rejected the deletion of Node n1; next: the controller tries again
            wait  until 2027-01-15T08:00:09Z
        "#]],
    );
    let mut emitted = EmittedEvents::default();
    let message = "Failed deleting node n1: nodes is forbidden";
    emitted.note(&EventText::warning(names::DELETING_NODE_FAILED, message), alone.now);
    alone.emitted = Arc::new(emitted);
    check(
        &alone,
        expect![[r#"
        why   the API server rejected the deletion of Node n1; next: the controller tries again
        wait  until 2027-01-15T08:00:09Z
    "#]],
    );
}

#[test]
fn without_suspects_nothing_is_planned() {
    let s = Snapshot { suspects: Vec::new(), shown: None, ..cluster() };
    check(
        &s,
        expect![[r#"
        why   up to date
        wait  for a change
    "#]],
    );
}
