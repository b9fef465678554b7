//! Tests of the evidence that a deletion of an instance requires.

use super::*;
use crate::mcm::facts::{AttachmentFacts, PreservedBy};
use crate::mcm::reads::{LeaseRead, Renewal};
use machinist_core::{Evidence, FreshRead, Silence};

impl World {
    /// A volume that is attached to the Node.
    fn attached(self, name: &str, deleting: bool) -> Self {
        let attachment = AttachmentFacts {
            version: Version::default(),
            name: name.into(),
            uid: format!("uid-{name}"),
            node: "m".into(),
            volume: Some(format!("pv-{name}")),
            is_attached: true,
            deleting_since: deleting.then(|| at(-3)),
        };
        self.with(|s| s.attachments.push(Arc::new(attachment)))
    }

    fn with_ended_pods(mut self) -> Self {
        self.pods.iter_mut().for_each(|pod| pod["status"] = json!({"phase": "Succeeded"}));
        self
    }

    fn without_node(mut self) -> Self {
        self.node = None;
        self
    }

    /// The Node is not Ready, and only this process knows since when.
    fn silent(self, first_seen: i64) -> Self {
        let conditions =
            json!([{"type": "Ready", "status": "Unknown"}, {"type": "Terminating", "status": "True"}]);
        self.node_field("/status/conditions", conditions)
            .with(|s| s.node_seen.untimed = BTreeMap::from([("Ready".to_owned(), at(first_seen))]))
    }

    fn lease(self, looked: i64, found: Renewal) -> Self {
        let look = LeaseRead { node_uid: "uid-n".into(), started: at(looked), found };
        self.with(|s| s.reads.lease = Some(look))
    }
}

/// Returns the evidence with which the instance is deleted, if it is.
fn evidence(world: World) -> Option<Evidence> {
    world.plan().actions.into_iter().find_map(|action| match action {
        Action::Delete(permit) => Some(permit.evidence().clone()),
        _ => None,
    })
}

// === the cordon, and the list that follows it ===

#[test]
fn a_node_is_cordoned_before_its_instance_is_deleted() {
    world().draining().node_field("/spec/unschedulable", Value::Null).check(expect![[r#"
        do    node m: cordon
        why   cordoning the Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node
        wait  for a change
    "#]]);
}

#[test]
fn the_pods_are_listed_after_the_cordon_is_seen() {
    world().draining().check(expect![[r#"
        do    node m: list its pods at the API server
        why   confirming with the API server that no pod is left on Node m; since 2027-01-15T07:59:50Z; next: the instance is deleted; deadline 2027-01-15T09:59:51Z: the drain is ended by force
        wait  for a change
    "#]]);
}

#[test]
fn a_list_counts_if_it_is_young_and_began_after_the_cordon() {
    let listed = |cordoned: i64, started: i64, uid: &str| {
        let list = PodList { node_uid: uid.into(), started: at(started), leaving: 0, running: 0 };
        evidence(world().draining().with(|s| {
            s.node_seen.cordoned = Some(at(cordoned));
            s.reads.pods = Some(list);
        }))
    };
    let expected = Evidence::EmptyAfterCordon { node: "m".into(), cordoned: at(-8), listed: at(-1) };
    assert_eq!(listed(-8, -1, "uid-n"), Some(expected));
    assert!(listed(-1, -1, "uid-n").is_some(), "the list began when the cordon was seen");
    assert_eq!(listed(-1, -2, "uid-n"), None, "the list began before the cordon was seen");
    assert_eq!(listed(-60, -11, "uid-n"), None, "the list is old");
    assert_eq!(listed(-8, -1, "uid-another"), None, "the list is from another Node");
    let open_again = world().draining().listed().node_field("/spec/unschedulable", json!(false));
    assert_eq!(evidence(open_again), None, "the Node was uncordoned");
}

#[test]
fn a_pod_that_only_the_list_shows_delays_the_deletion() {
    let list = |started| PodList { node_uid: "uid-n".into(), started: at(started), leaving: 1, running: 1 };
    world().draining().with(|s| s.reads.pods = Some(list(-1))).check(expect![[r#"
        why   confirming with the API server that no pod is left on Node m; the last list showed 1 pod; since 2027-01-15T07:59:50Z; next: the instance is deleted; deadline 2027-01-15T09:59:51Z: the drain is ended by force
        wait  until 2027-01-15T08:00:04Z
    "#]]);
    let again = world().draining().with(|s| s.reads.pods = Some(list(-5))).plan();
    assert!(matches!(again.actions.as_slice(), [Action::ListPods(_)]), "{again}");
    // When the store shows the pod, it is evicted like any other.
    let shown = world().draining().pod("p").with(|s| s.reads.pods = Some(list(-1))).plan();
    assert!(matches!(shown.actions.as_slice(), [Action::Drain(drain::PodCall::Evict(_))]), "{shown}");
}

#[test]
fn a_marker_past_the_drain_needs_no_list() {
    let drained = world().draining().phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
    assert_eq!(evidence(drained), Some(Evidence::PastDrain { stage: "Initiate VM deletion" }));
}

#[test]
fn a_list_is_not_used_up_while_the_class_is_missing() {
    let missing = || world().draining().listed().with(|s| s.class = Known::Absent);
    let description =
        "Deletion is blocked: the instance cannot be deleted without MachineClass c. Initiate node drain";
    let plan = missing().plan().to_string();
    assert!(plan.contains(description) && !plan.contains("Initiate VM deletion"), "{plan}");
    let said = missing().phase("Terminating", "Delete", "Failed", description).plan();
    assert!(said.actions.is_empty(), "the status already reports it: {said}");
}

#[test]
fn a_list_is_not_used_up_while_the_deletion_has_to_wait() {
    let absent = seen(Sighting::Absent, true);
    type Change = fn(&mut Snapshot);
    let waits: [(&str, Change); 3] = [
        ("AccountPaused", |s| s.paused_until = Some(at(600))),
        ("Calling", |s| {
            s.ownership = Ownership { account: account("b"), ..s.ownership.clone() };
        }),
        ("OtherAccount", |s| {
            s.ownership = Ownership {
                account: account("b"),
                list: machinist_core::ownership::List::Ended(at(300)),
                ..s.ownership.clone()
            };
        }),
    ];
    for (reason, change) in waits {
        let world = world().draining().listed().with(|s| {
            s.answers.shown = Some(instance().id);
            s.answers.find = absent.clone();
            if let Some(find) = &mut s.answers.find {
                find.answered.account = account("b");
            }
        });
        let plan = world.with(change).plan();
        assert_eq!(plan.why.reason.code(), reason, "{plan}");
        assert!(!plan.to_string().contains("Initiate VM deletion"), "{plan}");
    }
}

// === a Node that the store does not show ===

#[test]
fn a_node_that_the_store_lacks_is_looked_up_first() {
    world().draining().without_node().check(expect![[r#"
        do    node m: look for it at the API server
        why   checking with the API server whether Node m exists; since 2027-01-15T07:59:50Z; next: the instance is deleted
        wait  for a change
    "#]]);
    let look = |seconds, uid| evidence(world().draining().without_node().looked(seconds, uid));
    assert_eq!(look(-1, None), Some(Evidence::NoNode { node: "m".into(), looked: at(-1) }));
    assert_eq!(look(-11, None), None, "the lookup is old");
    assert_eq!(look(-1, Some("uid-n")), None, "the Node exists, and the store will show it soon");
    assert_eq!(
        evidence(world().draining().without_node().force_deletion()),
        Some(Evidence::ForceDeletion),
        "a user has decided"
    );
}

#[test]
fn the_node_of_another_instance_does_not_delay_deletion() {
    let foreign = || world().draining().node_field("/spec/providerID", json!("sim:///i-0"));
    assert_eq!(evidence(foreign()), None, "the API server may have newer data");
    let looked = foreign().looked(-1, Some("uid-n"));
    assert_eq!(evidence(looked), Some(Evidence::NoNode { node: "m".into(), looked: at(-1) }));
    assert_eq!(evidence(foreign().looked(-1, Some("uid-new"))), None, "a new Node exists by now");
}

/// The Machine's own instance would never be deleted.
#[test]
fn nothing_is_deleted_after_the_recorded_id_was_overwritten() {
    let overwritten = || {
        let world = world().draining().ids("sim:///i-7", "sim:///i-1").looked(-1, Some("uid-n"));
        world.provider(|identity| identity.joined_as = Some("sim:///i-1".to_owned()))
    };
    overwritten().check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: spec.providerID is sim:///i-7, and was sim:///i-1 when Node m joined. Initiate node drain"
        do    warning FailedDelete: Deletion is blocked: spec.providerID is sim:///i-7, and was sim:///i-1 when Node m joined. Initiate node drain
        why   spec.providerID is sim:///i-7, and was sim:///i-1 when Node m joined; since 2027-01-15T07:59:50Z; next: set spec.providerID to sim:///i-1, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
    let forced = overwritten().force_deletion().plan();
    assert_ne!(forced.why.reason.code(), "ProviderIdOverwritten", "{forced}");
    let mut of_another = overwritten();
    of_another = of_another.node_field("/metadata/annotations", json!({NODE_MARK: "ours/ns/uid-before"}));
    assert_ne!(
        of_another.plan().why.reason.code(),
        "ProviderIdOverwritten",
        "an earlier Machine joined as that"
    );
}

#[test]
fn a_node_that_has_just_registered_is_labelled_and_drained() {
    let bare = || {
        let world = world().draining().node_field("/spec/providerID", Value::Null);
        world.node_field("/metadata/labels", json!({})).looked(-1, Some("uid-n")).pod("p")
    };
    let plan = bare().plan();
    assert!(matches!(plan.actions.as_slice(), [Action::SyncNode(_)]), "{plan}");
    // The Node may belong to another owner, because no label of the Machine names it.
    let mut unnamed = bare();
    unnamed.machine["metadata"]["labels"] = json!({});
    let plan = unnamed.plan();
    assert_eq!(plan.why.reason.code(), "NodeOfUnknownOwner", "it may also run on the instance: {plan}");
}

/// The list of the pods on the Node, which is not evidence of a cordon.
fn with_pods_listed(world: World, leaving: usize) -> World {
    world.with(|s| {
        s.reads.pods = Some(PodList { node_uid: "uid-n".into(), started: at(-1), leaving, running: leaving });
    })
}

#[test]
fn a_node_with_our_label_is_drained_whatever_its_id_is() {
    let kubelet = || {
        let world = world().draining().ids("sim:///i-1", "k3s://m").pod("web");
        world.provider(|identity| identity.node_id_is_read = false)
    };
    let plan = kubelet().plan();
    assert!(plan.actions.iter().any(|action| matches!(action, Action::Drain(_))), "{plan}");
    // The mark of another Machine is stronger than the label.
    let marked = |mark: &str| {
        let applied = r#"{"metadata":{},"spec":{}}"#;
        let mark = json!({
            "machinist.dev/machine": mark, "node.machine.sapcloud.io/last-applied-anno-labels-taints": applied,
        });
        kubelet().looked(-1, Some("uid-n")).node_field("/metadata/annotations", mark)
    };
    let held = marked("theirs/ns/another").plan().to_string();
    assert!(held.contains("next: remove annotation machinist.dev/machine of the Node"), "{held}");
    // A label that another program changed to an existing Machine is weaker than our mark.
    let label = json!({"node.gardener.cloud/machine-name": "m2"});
    let relabelled = marked("ours/ns/uid-m").node_field("/metadata/labels", label).provider(|identity| {
        identity.node_id_is_read = false;
        identity.claimed_by = Some("m2".to_owned());
    });
    assert_eq!(relabelled.plan().why.reason.code(), "NodeOfUnknownOwner");
}

#[test]
fn pods_on_a_node_of_unknown_owner_hold_the_deletion() {
    let unlabelled = || {
        let world = world().draining().ids("sim:///i-1", "k3s://m").looked(-1, Some("uid-n"));
        let world = world.node_field("/metadata/labels", json!({}));
        let old = at(-90_000).to_string().into();
        world
            .node_field("/metadata/creationTimestamp", old)
            .provider(|identity| identity.node_id_is_read = false)
    };
    unlabelled().pod("web").check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: 1 pod runs on Node m, and it is not known whose Node it is (its provider id is k3s://m, and its label does not name this machine). Initiate node drain"
        do    warning FailedDelete: Deletion is blocked: 1 pod runs on Node m, and it is not known whose Node it is (its provider id is k3s://m, and its label does not name this machine). Initiate node drain
        why   1 pod runs on Node m, and it is not known whose Node it is (its provider id is k3s://m, and its label does not name this machine); since 2027-01-15T07:59:50Z; next: set label node.gardener.cloud/machine-name=m on the Node if it runs on this machine's instance; otherwise empty the Node, or delete it
        wait  for a change
    "#]]);
    unlabelled().check(expect![[r#"
        do    node m: list its pods at the API server
        why   confirming with the API server that no pod is left on Node m; since 2027-01-15T07:59:50Z; next: the instance is deleted
        wait  for a change
    "#]]);
    assert_eq!(evidence(with_pods_listed(unlabelled(), 1)), None);
    let empty = Some(Evidence::NoPods { node: "m".into(), listed: at(-1) });
    assert_eq!(evidence(with_pods_listed(unlabelled(), 0)), empty);
    let ended = unlabelled().pod("job").with_ended_pods();
    assert_eq!(evidence(with_pods_listed(ended, 0)), empty, "a pod that has ended is not lost");
    // The pods of another Machine's Node do not matter.
    let of_another = unlabelled().pod("web").provider(|identity| {
        identity.node_id_is_read = false;
        identity.recorded_by = Some("other".to_owned());
    });
    assert_eq!(evidence(of_another), Some(Evidence::NoNode { node: "m".into(), looked: at(-1) }));
}

#[test]
fn a_machine_that_does_not_own_its_instance_deletes_nothing() {
    let copy = || {
        let label = json!({"node.gardener.cloud/machine-name": "original"});
        let world = world().draining().node_field("/metadata/labels", label);
        world.provider(|identity| identity.held_by = Some("original".to_owned()))
    };
    copy().check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: instance sim:///i-1 has another owner: Machine original also records it. Initiate node drain"
        do    warning FailedDelete: Deletion is blocked: instance sim:///i-1 has another owner: Machine original also records it. Initiate node drain
        why   instance sim:///i-1 has another owner: Machine original also records it; since 2027-01-15T07:59:50Z; next: correct spec.providerID of the Machine that does not own the instance, or set label force-deletion=true to leave it to Machine original
        wait  for a change
    "#]]);
    let forced = copy().force_deletion().plan();
    let keeps = |action: &Action| matches!(action, Action::RemoveFinalizer | Action::Tell { .. });
    assert!(forced.actions.iter().all(keeps), "neither Node nor instance is deleted: {forced}");
}

#[test]
fn a_node_may_register_late_so_it_is_looked_up_last() {
    let gone = || {
        drained().without_node().with(|s| {
            s.answers.delete =
                deleted(Answered { started: at(-4), ended: at(-3), account: account("a"), answer: Ok(()) });
            s.answers.find = seen(Sighting::Absent, true);
        })
    };
    let early = gone().looked(-5, None).plan();
    assert!(matches!(early.actions.as_slice(), [Action::LookForNode(_)]), "{early}");
    let late = gone().looked(0, None).plan();
    assert!(matches!(late.actions.as_slice(), [Action::RemoveFinalizer]), "{late}");
}

/// Another Node of the instance, its cordon, and the number of pods that a list has shown.
fn with_other_node(world: World, cordoned: Option<i64>, leaving: Option<usize>) -> World {
    let node = json!({
        "metadata": {
            "name": "renamed", "uid": "uid-2", "finalizers": ["node.machine.sapcloud.io/machine-controller"],
        },
        "spec": {"providerID": "sim:///i-1", "unschedulable": cordoned.is_some()},
        "status": {"conditions": [{"type": "Terminating", "status": "True"}]},
    });
    let node = Arc::new(NodeFacts::parse(&parse(&node)));
    let list = |leaving| PodList { node_uid: "uid-2".into(), started: at(-2), leaving, running: leaving };
    world.with(|s| {
        s.other_nodes = vec![OtherNode { node, cordoned: cordoned.map(at), pods: Vec::new() }];
        s.reads.other_pods = leaving.map(list).into_iter().collect();
    })
}

#[test]
fn each_node_of_the_instance_is_emptied_before_it_is_deleted() {
    let polite = |cordoned, leaving| with_other_node(world().draining().listed(), cordoned, leaving);
    polite(None, Some(0)).check(expect![[r#"
        do    node renamed: cordon
        why   cordoning the Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node
        wait  for a change
    "#]]);
    polite(Some(-8), None).check(expect![[r#"
        do    node renamed: list its pods at the API server
        why   confirming with the API server that no pod is left on Node renamed; since 2027-01-15T07:59:50Z; next: the instance is deleted; deadline 2027-01-15T09:59:51Z: the drain is ended by force
        wait  for a change
    "#]]);
    assert_eq!(evidence(polite(Some(-8), Some(1))), None, "the list shows a pod");
    assert_eq!(evidence(polite(Some(-1), Some(0))), None, "the list began before the cordon");
    let expected = Evidence::EmptyAfterCordon { node: "m".into(), cordoned: at(-8), listed: at(-1) };
    assert_eq!(evidence(polite(Some(-8), Some(0))), Some(expected));
}

#[test]
fn a_forced_drain_also_asks_about_the_other_nodes() {
    let timed_out = |leaving| {
        let said = "Drain is blocked: 1 pod. Initiate node drain";
        let world = world().draining().deleting(7_300).phase("Terminating", "Delete", "Failed", said);
        let pods = vec![Arc::new(PodFacts::parse(&parse(&json!({
            "metadata": {"name": "q", "namespace": "ns", "uid": "uid-q"},
            "spec": {"nodeName": "renamed", "containers": []},
        }))))];
        with_other_node(world.listed(), None, leaving).with(|s| {
            s.process.started = at(-9000);
            s.other_nodes[0].pods = if leaving == Some(0) { Vec::new() } else { pods };
        })
    };
    let is_list = |action: &Action| matches!(action, Action::ListPods(node) if node.name == "renamed");
    let plan = timed_out(None).plan();
    assert!(plan.actions.iter().any(is_list), "{plan}");
    let ends = |world: World| world.plan().to_string().contains("Delete Volume Attachments");
    assert!(!ends(timed_out(Some(1))), "a pod is left");
    assert!(ends(timed_out(Some(0))));
    let answered = |outcome| {
        let attempts = BTreeMap::from([("uid-q".to_owned(), tried(1, -95, -95, outcome))]);
        timed_out(Some(1)).with(|s| s.evictions = Arc::new(attempts))
    };
    assert!(ends(answered(EvictionAnswer::Deleted)), "a finalizer keeps the pod");
    assert!(!ends(answered(EvictionAnswer::Unanswered("reset".into()))));
}

/// The other Node has been dead for minutes, and a finalizer keeps its pod.
#[test]
fn each_node_is_judged_by_its_own_conditions() {
    let dead = |asked: i64| {
        let world = with_other_node(world().draining().listed(), Some(-8), Some(1));
        world.with(|s| {
            s.process.started = at(-9000);
            let mut node = (*s.other_nodes[0].node).clone();
            let condition = json!({
                "metadata": {"name": "renamed", "uid": "uid-2"},
                "status": {"conditions": [{
                    "type": "Ready", "status": "Unknown", "lastTransitionTime": at(-600).to_string(),
                }]},
            });
            node.conditions = NodeFacts::parse(&parse(&condition)).conditions;
            s.other_nodes[0].node = Arc::new(node);
            s.other_nodes[0].pods = vec![Arc::new(PodFacts::parse(&parse(&json!({
                "metadata": {"name": "q", "namespace": "ns", "uid": "uid-q"},
                "spec": {"nodeName": "renamed", "containers": []},
            }))))];
            let attempt = tried(1, asked, asked, EvictionAnswer::Deleted);
            s.evictions = Arc::new(BTreeMap::from([("uid-q".to_owned(), attempt)]));
        })
    };
    let expected = Evidence::EmptyAfterCordon { node: "m".into(), cordoned: at(-8), listed: at(-1) };
    assert_eq!(evidence(dead(-5)), Some(expected), "its deletion was accepted after the force began");
    let again = dead(-20).plan();
    assert!(again.actions.iter().any(|action| matches!(action, Action::Drain(_))), "{again}");
}

#[test]
fn all_nodes_of_the_instance_are_deleted_with_it() {
    let drained = world().draining().phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
    let gone = with_other_node(drained, Some(-8), None).with(|s| {
        s.answers.delete =
            deleted(Answered { started: at(-4), ended: at(-3), account: account("a"), answer: Ok(()) });
        s.answers.find = seen(Sighting::Absent, true);
    });
    gone.check(expect![[r#"
        do    node m: remove finalizer
        do    node m: delete
        do    node renamed: remove finalizer
        do    node renamed: delete
        do    machine: remove finalizer
        why   removing the Node and the finalizer; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
}

// === volumes ===

/// A Machine whose pods left this many seconds ago, and whose volumes are still attached.
fn awaiting_volumes(seconds_ago: i64) -> World {
    let text = "The pods have left the Node; waiting for volumes. Initiate node drain";
    let mut world = world().draining().deleting(600).listed().attached("va", false).attached("vb", true);
    world = world.phase("Terminating", "Delete", "Processing", text).with(|s| s.process.started = at(-9000));
    world.machine["status"]["lastOperation"]["lastUpdateTime"] = at(-seconds_ago).to_string().into();
    world
}

#[test]
fn a_polite_drain_waits_for_volumes_for_a_while() {
    world().draining().listed().attached("va", false).attached("vb", true).check(expect![[r#"
        do    status: Delete Processing "The pods have left the Node; waiting for volumes. Initiate node drain"
        why   waiting for 2 volumes to be detached from Node m; the first is VolumeAttachment va of PersistentVolume pv-va; since 2027-01-15T07:59:50Z; next: the volumes are detached
        wait  for a change
    "#]]);
    awaiting_volumes(119).check(expect![[r#"
        why   waiting for 2 volumes to be detached from Node m; the first is VolumeAttachment va of PersistentVolume pv-va; since 2027-01-15T07:50:00Z; next: the volumes are detached; deadline 2027-01-15T08:00:02Z: the instance is deleted anyway
        wait  until 2027-01-15T08:00:02Z
    "#]]);
    awaiting_volumes(121).check(expect![[r#"
        do    warning VolumesLeft: The instance is deleted with attached volumes: VolumeAttachment va, vb
        do    driver: delete sim:///i-1 because node m, cordoned since 2027-01-15T07:59:52Z, had no pod to evict at 2027-01-15T07:59:59Z
        why   waiting for the cloud to delete the instance; since 2027-01-15T07:50:00Z; next: the Node and the finalizer are removed
        wait  for a change
    "#]]);
    let skewed = awaiting_volumes(121).with(|s| s.process.skew = Duration::from_secs(31));
    assert_eq!(evidence(skewed), None, "the clocks differ");
    let restarted = |gaps: Unseen| {
        evidence(awaiting_volumes(121).with(|s| {
            s.process.started = at(-60);
            s.gaps = gaps;
        }))
    };
    assert!(restarted(Unseen::default()).is_some(), "the wait of an earlier process counts");
    assert_eq!(restarted(Unseen::known_from(at(0))), None, "it ended before anything is known");
    let again = awaiting_volumes(121).pod("p").plan().to_string();
    assert!(
        again.contains("Initiate node drain\"") && !again.contains("waiting for volumes"),
        "the wait begins again: {again}"
    );
}

#[test]
fn a_forced_drain_has_a_stage_for_volumes() {
    world().draining().deleting(7300).listed().check(expect![[r#"
        do    status: Delete Processing "Delete Volume Attachments"
        why   ending the drain by force; since 2027-01-15T05:58:20Z; next: the VolumeAttachments are deleted
        wait  for a change
    "#]]);
}

#[test]
fn a_forced_drain_lists_the_pods_while_there_is_time() {
    let forced = || world().draining().deleting(7210);
    let plan = forced().plan();
    assert!(matches!(plan.actions.as_slice(), [Action::ListPods(_)]), "{plan}");
    let listed = forced().listed().plan().to_string();
    assert!(listed.contains("Delete Volume Attachments"), "{listed}");
    // The label is a user's decision, so no list is requested.
    let labelled = world().draining().force_deletion().plan().to_string();
    assert!(labelled.contains("Delete Volume Attachments"), "{labelled}");
}

#[test]
fn a_rejected_node_write_does_not_stop_a_forced_drain() {
    let open = || world().draining().deleting(7300).node_field("/spec/unschedulable", Value::Null);
    let plan = open().plan();
    assert!(matches!(plan.actions.as_slice(), [Action::ListPods(_)]), "{plan}");
    let plan = open().listed().plan();
    assert!(matches!(plan.actions.as_slice(), [Action::SetStatus(_)]), "{plan}");
    let held = tried(9, -7000, -20, EvictionAnswer::Held("no".into()));
    let held = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]));
    let plan = open().pod("p").with(|s| s.evictions = held).plan();
    assert!(matches!(plan.actions.as_slice(), [Action::Drain(drain::PodCall::Delete(_))]), "{plan}");
}

/// A Machine that reached the stage of volumes this many seconds ago.
fn detaching(seconds_ago: i64) -> World {
    let mut world =
        world().draining().phase("Terminating", "Delete", "Processing", "Delete Volume Attachments");
    world.machine["status"]["lastOperation"]["lastUpdateTime"] = at(-seconds_ago).to_string().into();
    world
}

#[test]
fn attachments_are_deleted_before_the_instance() {
    detaching(10).attached("va", false).attached("vb", true).listed().check(expect![[r#"
        do    volume attachment va: delete
        why   waiting for 2 volumes to be detached from Node m; the first is VolumeAttachment va of PersistentVolume pv-va; since 2027-01-15T07:59:50Z; next: the attacher detaches the volumes; deadline 2027-01-15T08:01:51Z: the instance is deleted anyway
        wait  until 2027-01-15T08:01:51Z
    "#]]);
    assert_eq!(evidence(detaching(10).listed()), Some(Evidence::Forced), "no volume is attached");
    let unlisted = detaching(10).plan();
    assert!(matches!(unlisted.actions.as_slice(), [Action::ListPods(_)]), "{unlisted}");
    let by_label = detaching(10).force_deletion();
    assert_eq!(evidence(by_label), Some(Evidence::ForceDeletion));
}

/// The outage ended after the drain by force, and pods run there again with these volumes.
#[test]
fn volumes_of_a_node_that_recovered_are_not_detached() {
    let back = || detaching(10).attached("va", false).node_field("/spec/unschedulable", json!(null));
    let deletes = |plan: &Plan<Action>| plan.actions.iter().any(|a| matches!(a, Action::DeleteAttachment(_)));
    let unlisted = back().plan();
    assert!(matches!(unlisted.actions.as_slice(), [Action::ListPods(_)]), "{unlisted}");
    let plan = back().pod("new").listed().plan();
    assert!(!deletes(&plan), "{plan}");
    assert!(plan.to_string().contains("starting the drain again"), "{plan}");
    let forced = back().pod("new").force_deletion().plan();
    assert!(deletes(&forced), "{forced}");
}

/// The kubelet registered again after the drain by force, under the same name.
#[test]
fn a_node_of_unknown_owner_is_drained_again_after_the_force() {
    let unknown = || {
        let world = detaching(3600).node_field("/spec/providerID", Value::Null);
        world.node_field("/metadata/labels", json!({})).node_field("/metadata/annotations", json!({}))
    };
    let plan = unknown().pod("new").listed().plan();
    assert!(plan.to_string().contains("starting the drain again"), "{plan}");
}

/// The Node, which showed the owner, is deleted before the finalizer is removed.
#[test]
fn the_owner_stays_the_owner_when_its_node_is_gone() {
    let gone = || drained().without_node();
    let shared: fn(&mut MachineIdentity) = |identity| identity.held_by = Some("older".to_owned());
    let plan = gone().provider(shared).plan();
    assert_ne!(plan.why.reason.code(), "InstanceShared", "{plan}");
}

/// Another actor may have uncordoned the Node, and pods may be bound to it.
#[test]
fn an_empty_list_counts_only_with_a_fresh_node() {
    let listed = || world().draining().listed();
    assert!(evidence(listed()).is_some());
    let read = FreshRead::Possible;
    let silent = Silence { server: "the API server".to_owned(), since: at(-300), read };
    let plan = listed().with(|s| s.nodes_freshness = Freshness::Stale(silent)).plan();
    assert!(matches!(plan.actions.as_slice(), [Action::ReadNodes]), "{plan}");
}

/// The cloud could not delete the instance for a while, and the dead Node became ready.
#[test]
fn a_node_that_recovers_after_the_force_is_drained_again() {
    let back = || detaching(3600).node_field("/spec/unschedulable", json!(null)).listed();
    back().check(expect![[r#"
        do    status: Delete Processing "Initiate node drain"
        why   starting the drain again; since 2027-01-15T07:59:50Z; next: the pods leave the Node
        wait  for a change
    "#]]);
    assert_eq!(evidence(back().force_deletion()), Some(Evidence::ForceDeletion));
    let is_drained_again = |world: World| {
        let plan = world.plan().to_string();
        plan.starts_with("do    status: Delete Processing \"Initiate node drain\"")
    };
    let with_pod = || detaching(3600).pod("new").listed();
    assert!(is_drained_again(with_pod()), "a pod came before the cordon");
    let timed_out = |world: World| world.deleting(9000).with(|s| s.process.started = at(-9100));
    assert_eq!(evidence(timed_out(back())), Some(Evidence::Forced), "the cordon was rejected all the time");
    assert!(is_drained_again(timed_out(with_pod())), "the new pod was never evicted");
    let attempts = BTreeMap::from([("uid-new".to_owned(), tried(1, -50, -40, EvictionAnswer::Deleted))]);
    let killed = timed_out(with_pod()).with(|s| s.evictions = Arc::new(attempts));
    assert_eq!(evidence(killed), Some(Evidence::Forced), "its deletion was accepted after the force began");
    let dead = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-400).to_string()}]);
    let still_dead = back().node_field("/status/conditions", dead);
    assert_eq!(evidence(still_dead), Some(Evidence::Forced));
    let read = FreshRead::Possible;
    let silent = Silence { server: "the API server".to_owned(), since: at(-300), read };
    let unseen = detaching(3600).with(|s| s.nodes_freshness = Freshness::Stale(silent));
    assert_eq!(evidence(unseen), None, "the Node may have recovered");
    let mut missing = detaching(3600);
    missing.node = None;
    let plan = missing.plan();
    assert!(matches!(plan.actions.as_slice(), [Action::LookForNode(_)]), "the watch may lag: {plan}");
}

#[test]
fn the_wait_for_an_attachment_ends_after_two_minutes() {
    let world = |seconds_ago| {
        detaching(seconds_ago).attached("va", true).listed().with(|s| s.process.started = at(-9000))
    };
    assert_eq!(evidence(world(119)), None);
    assert_eq!(evidence(world(121)), Some(Evidence::Forced));
    let skewed = world(121).with(|s| s.process.skew = Duration::from_secs(31));
    assert_eq!(evidence(skewed), None, "the clocks differ");
    // Nothing is known about the time before this process.
    let unknown = |s: &mut Snapshot| s.gaps = Unseen::known_from(at(-60));
    assert_eq!(evidence(world(9000).with(unknown)), None);
}

#[test]
fn attachments_of_another_machines_node_are_left_alone() {
    let foreign = detaching(10).attached("va", false).node_field("/spec/providerID", json!("sim:///i-0"));
    assert_eq!(evidence(foreign), Some(Evidence::Forced));
}

// === after the instance ===

#[test]
fn t_46_t_47_after_the_instance_the_cloud_is_not_called() {
    let at_marker = |marker| world().draining().phase("Terminating", "Delete", "Processing", marker);
    at_marker("Initiate node object deletion").check(expect![[r#"
        do    node m: remove finalizer
        do    node m: delete
        do    machine: remove finalizer
        why   removing the Node and the finalizer; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
    let node_gone = at_marker("Initiate machine object finalizer removal").without_node().looked(-1, None);
    node_gone.check(expect![[r#"
        do    machine: remove finalizer
        why   removing the Node and the finalizer; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
}

// === a dead Node without timestamps ===

#[test]
fn a_dead_node_without_times_is_judged_by_its_lease() {
    world().draining().silent(-4).pod("p").check(expect![[r#"
        do    node m: look at its lease
        why   reading the Lease of the Node, which shows the last kubelet heartbeat, from the API server; since 2027-01-15T07:59:50Z; next: the Node is drained
        wait  for a change
    "#]]);
}

#[test]
fn pods_of_a_node_without_a_recent_lease_are_deleted_at_once() {
    let by_force = |world: World| {
        let plan = world.pod("p").plan();
        plan.actions.iter().any(|action| matches!(action, Action::Drain(drain::PodCall::Delete(_))))
    };
    let silent = || world().draining().silent(-4).looked(-1, Some("uid-n"));
    assert!(by_force(silent().lease(0, Renewal::Never)), "the Lease does not exist");
    assert!(by_force(silent().lease(0, Renewal::At(at(-301)))), "the Lease is old");
    assert!(!by_force(silent().lease(0, Renewal::At(at(-299)))), "the Lease is recent");
    assert!(!by_force(silent().lease(0, Renewal::Unknown)), "the Lease is not readable");
    assert!(
        by_force(silent().silent(-301).lease(0, Renewal::Unknown)),
        "the silence was observed for long enough"
    );
    let skewed = silent().lease(0, Renewal::Never).with(|s| s.process.skew = Duration::from_secs(31));
    assert!(!by_force(skewed), "the clocks differ");
    let before = silent().lease(-5, Renewal::Never).pod("p").plan();
    assert!(
        matches!(before.actions.as_slice(), [Action::LookAtLease(_)]),
        "the lookup is older than the observed silence"
    );
}

#[test]
fn with_a_recent_lease_the_first_observed_silence_counts() {
    world().draining().silent(-4).lease(0, Renewal::At(at(-10))).pod("p").check(expect![[r#"
        do    pod ns/p: evict
        why   waiting for 1 pod to leave the Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T08:04:57Z: the pods are deleted without grace
        wait  until 2027-01-15T08:00:20Z
    "#]]);
}

// === preserve ===

/// A Running Machine with a preserve annotation on its Node.
fn wish(value: &str) -> World {
    let mut world = world().running();
    let node = world.node.as_mut().expect("a running Machine has a Node");
    node["metadata"]["annotations"]["node.machine.sapcloud.io/preserve"] = value.into();
    world
}

impl World {
    fn carries(mut self, value: &str) -> Self {
        let key = "node.machine.sapcloud.io/last-applied-node-preserve-value";
        self.machine["metadata"]["annotations"][key] = value.into();
        self
    }
}

#[test]
fn the_preserve_annotation_of_the_node_is_copied() {
    wish("when-failed").check(expect![[r#"
        do    machine: record preserve "when-failed" of its node
        why   recording the preserve annotation of the Node
        wait  for a change
    "#]]);
    assert!(
        wish("when-failed").carries("when-failed").plan().actions.is_empty(),
        "the Machine already carries the value"
    );
    assert!(wish("maybe").plan().actions.is_empty(), "the value is unknown");
    let taken_back = world().running().carries("now").plan();
    assert!(matches!(taken_back.actions.as_slice(), [Action::CarryPreserve(value)] if value.is_empty()));
}

#[test]
fn t_80_the_annotation_of_the_node_takes_precedence() {
    let kept = |own: Option<&str>, of_node: &str| {
        let mut world = world().recorded().phase("Failed", "HealthCheck", "Failed", "it failed");
        if let Some(own) = own {
            world.machine["metadata"]["annotations"]["node.machine.sapcloud.io/preserve"] = own.into();
        }
        let machine = MachineFacts::parse(&parse::<Machine>(&world.carries(of_node).machine));
        machine.preserved(at(0)).map(|preserved| preserved.by)
    };
    assert_eq!(kept(None, "when-failed"), Some(PreservedBy::Node));
    assert_eq!(kept(Some("false"), "now"), Some(PreservedBy::Node));
    assert_eq!(kept(Some("now"), "false"), None);
    assert_eq!(kept(Some("now"), ""), Some(PreservedBy::Machine), "the Node no longer has the annotation");
}

#[test]
fn a_machine_preserved_by_its_node_gets_an_expiry() {
    let failed = world().recorded().phase("Failed", "HealthCheck", "Failed", "it failed");
    failed.carries("when-failed").check(expect![[r#"
        do    status: preserved until the timeout
        do    event MachinePreserved: Machine m is preserved until 2027-01-19T08:00:00Z
        why   recording until when the Machine is preserved
        wait  for a change
    "#]]);
}

// === a wrong label `node` ===

#[test]
fn a_wrong_label_is_corrected_before_the_drain() {
    let mut world = world().draining().listed();
    world.machine["metadata"]["labels"]["node"] = "x".into();
    world.check(expect![[r#"
        do    machine: label node m
        why   recording the Node; next: the Node is drained
        wait  for a change
    "#]]);
}

#[test]
fn a_wrong_label_of_a_living_machine_is_corrected() {
    let mut world = world().running();
    world.machine["metadata"]["labels"]["node"] = "x".into();
    world.check(expect![[r#"
        do    machine: label node m
        why   up to date; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

/// The label may name another Node than the Node of the instance, which the store does not show
/// yet.
#[test]
fn the_absence_of_a_node_counts_only_with_fresh_nodes() {
    let absent = || world().draining().without_node().looked(-1, None);
    assert!(evidence(absent()).is_some());
    let silence = |read| Silence { server: "the API server".to_owned(), since: at(-300), read };
    let stale = |read| absent().with(|s| s.nodes_freshness = Freshness::Stale(silence(read))).plan();
    let plan = stale(FreshRead::Possible);
    assert!(matches!(plan.actions.as_slice(), [Action::ReadNodes]), "{plan}");
    let plan = stale(FreshRead::InFlight(at(9)));
    assert!(plan.actions.is_empty(), "{plan}");
}
