//! Tests of the Machine planner for pods with volumes.

use super::*;
use crate::mcm::drain::{SeenVolume, VolumeWait};
use crate::mcm::facts::{AttachmentFacts, ClaimFacts, VolumeFacts};
use std::num::NonZeroUsize;

impl World {
    /// A pod with a volume that is attached to the Node. The claim is named after the pod.
    fn pod_with_volume(mut self, name: &str, owner: Option<&str>) -> Self {
        let owners = owner.map(|kind| {
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "uid-o", "controller": true}])
        });
        self = self.pod(name);
        let pod = self.pods.last_mut().expect("a pod");
        pod["metadata"]["ownerReferences"] = owners.unwrap_or_default();
        pod["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": name}}]);
        self.volume(name, Some("m"))
    }

    /// A claim and its volume, attached to this Node.
    fn volume(self, name: &str, node: Option<&str>) -> Self {
        let claim: ClaimFacts = ClaimFacts::parse(&parse(&json!({
            "metadata": {"name": name, "namespace": "ns"}, "spec": {"volumeName": format!("pv-{name}")},
        })));
        let volume = VolumeFacts::parse(&parse(&json!({
            "metadata": {"name": format!("pv-{name}")},
            "spec": {"claimRef": {"namespace": "ns", "name": name},
                     "csi": {"driver": "csi.example", "volumeHandle": format!("id-{name}")}},
        })));
        let attachment = node.map(|node| {
            Arc::new(AttachmentFacts::parse(&parse(&json!({
                "metadata": {"name": format!("va-{name}"), "uid": format!("uid-va-{name}")},
                "spec": {"attacher": "csi.example", "nodeName": node,
                         "source": {"persistentVolumeName": format!("pv-{name}")}},
                "status": {"attached": true},
            }))))
        });
        self.with(|s| {
            s.attachments.extend(attachment.iter().filter(|attachment| attachment.node == "m").cloned());
            let attachments = attachment.into_iter().collect();
            let id = Some(format!("id-{name}"));
            s.volumes.claims.insert(claim.full_name.clone(), Arc::new(claim));
            let name = volume.name.clone();
            let volume = SeenVolume { facts: Arc::new(volume), id, attachments, is_used_elsewhere: true };
            s.volumes.volumes.insert(name, volume);
        })
    }

    /// The wait for the volume of a pod that left, and whose volume was detached, this long ago.
    fn detached(self, name: &str, seconds_ago: i64) -> Self {
        let wait = VolumeWait {
            node: "m".to_owned(),
            volumes: vec![format!("pv-{name}").into()],
            shared: Vec::new(),
            grace: Duration::from_secs(30),
            leaving_since: Some(at(-seconds_ago - 5)),
            detached_since: Some(at(-seconds_ago)),
        };
        self.with(|s| Arc::make_mut(&mut s.volumes.waits).extend([(format!("uid-{name}"), wait)]))
    }
}

/// The situation of the second pass: the note about the volumes is in memory.
fn noted(world: impl Fn() -> World) -> World {
    let notes = world().plan().actions.into_iter().find_map(|action| match action {
        Action::NoteVolumes(waits) => Some(waits),
        _ => None,
    });
    world().with(|s| s.volumes.waits = Arc::new(notes.unwrap_or_default()))
}

fn deletes_the_instance(world: World) -> bool {
    world.plan().actions.iter().any(|action| matches!(action, Action::Delete(_)))
}

#[test]
fn detached_volumes_are_expected_on_other_nodes() {
    let waiting = |ago| world().draining().listed().volume("data", None).detached("data", ago);
    waiting(10).check(expect![[r#"
        why   waiting for a volume to be attached to another Node, after it was detached from Node m: PersistentVolume pv-data of claim ns/data, volume id-data in the cloud; since 2027-01-15T07:59:50Z; next: the volumes are attached to other Nodes; deadline 2027-01-15T08:01:21Z: the instance is deleted anyway
        wait  until 2027-01-15T08:00:20Z
    "#]]);
    assert!(deletes_the_instance(waiting(91)), "the wait is limited");
    assert!(!deletes_the_instance(waiting(90)));
    let attached = || world().draining().listed().volume("data", Some("other")).detached("data", 10);
    assert!(deletes_the_instance(attached()));
    let unused = |ago| {
        waiting(ago).with(|s| {
            s.volumes.volumes.values_mut().for_each(|volume| volume.is_used_elsewhere = false);
        })
    };
    assert!(!deletes_the_instance(unused(20)));
    assert!(deletes_the_instance(unused(21)), "no pod is bound to another Node");
}

#[test]
fn pods_with_volumes_take_turns() {
    let one = |s: &mut Snapshot| {
        let defaults = Defaults { volumes_at_once: NonZeroUsize::new(1), ..Defaults::default() };
        s.defaults = Arc::new(defaults);
    };
    let two = || world().draining().pod_with_volume("a", None).pod_with_volume("b", None);
    two().check(expect![[r#"
        do    memory: volumes of 2 pods, 0 leaving, 0 detached
        do    pod ns/a: evict
        do    pod ns/b: evict
        why   waiting for 2 pods to leave the Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T09:59:51Z: the pods are deleted without grace
        wait  until 2027-01-15T08:00:20Z
    "#]]);
    two().with(one).check(expect![[r#"
        do    memory: volumes of 2 pods, 0 leaving, 0 detached
        do    pod ns/a: evict
        why   waiting for 2 pods to leave the Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T09:59:51Z: the pods are deleted without grace
        wait  until 2027-01-15T08:00:20Z
    "#]]);
    let accepted = Eviction { is_deletion: false, ..tried(1, -3, -3, EvictionAnswer::Accepted) };
    let accepted = Arc::new(BTreeMap::from([("uid-a".to_owned(), accepted)]));
    noted(|| two().with(one).with(|s| s.evictions = accepted.clone())).check(expect![[r#"
        why   waiting to evict 1 pod with volumes until PersistentVolume pv-a of claim ns/a is detached, and attached to another Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T09:59:51Z: the pods are deleted without grace
        wait  until 2027-01-15T08:00:20Z
    "#]]);
}

/// The volume of a pod that a drain does not evict stays attached until the instance is deleted.
#[test]
fn volumes_of_pods_that_stay_are_not_waited_for() {
    let daemon = world().draining().listed().pod_with_volume("agent", Some("DaemonSet"));
    daemon.check(expect![[r#"
        do    driver: delete sim:///i-1 because node m, cordoned since 2027-01-15T07:59:52Z, had no pod to evict at 2027-01-15T07:59:59Z
        why   waiting for the cloud to delete the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
        wait  for a change
    "#]]);
    let evicted = world().draining().listed().pod_with_volume("web", Some("ReplicaSet"));
    assert!(!deletes_the_instance(evicted));
}

#[test]
fn the_status_shows_the_progress_of_a_drain_every_30_seconds() {
    let said = |world: World| world.plan().to_string().contains("status: ");
    let terminating = |seconds_ago: i64| {
        let mut world = world().draining().deleting(seconds_ago).pod("p");
        world.pods[0]["metadata"]["deletionTimestamp"] = at(-1).to_string().into();
        world
    };
    terminating(60).check(expect![[r#"
        do    status: Delete Processing "Drain in progress: waiting for 1 pod to leave the Node. Initiate node drain"
        why   waiting for 1 pod to leave the Node; since 2027-01-15T07:59:00Z; next: the pods leave the Node; deadline 2027-01-15T09:59:01Z: the pods are deleted without grace
        wait  until 2027-01-15T09:59:01Z
    "#]]);
    assert!(!said(terminating(10)), "a short drain costs no write");
    let progress = "Drain in progress: waiting for 1 pod to leave the Node. Initiate node drain";
    assert!(
        !said(terminating(600).phase("Terminating", "Delete", "Processing", progress)),
        "nothing has changed"
    );
}

/// The phase is Terminating before the drain begins, so the description keeps the cause.
#[test]
fn the_condition_of_the_node_says_that_the_machine_had_failed() {
    let failed = world().running().deleting(10).phase("Failed", "HealthCheck", "Failed", "it failed");
    failed.check(expect![[r#"
        do    status: Terminating, Delete Processing "The Machine had failed. Initiate node drain"
        why   starting the deletion; since 2027-01-15T07:59:50Z; next: the Node is drained
        wait  for a change
    "#]]);
    let begun = |text: &str| {
        let world = world().running().deleting(10).phase("Terminating", "Delete", "Processing", text);
        world.plan().to_string()
    };
    assert!(begun("The Machine had failed. Initiate node drain").contains("Terminating, Unhealthy"));
    assert!(begun("Initiate node drain").contains("Terminating, ScaleDown"));
}
