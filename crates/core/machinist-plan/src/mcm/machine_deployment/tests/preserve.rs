//! Tests of the automatic preservation over all sets of a deployment.

use super::*;

const MAX: &str = "/spec/autoPreserveFailedMachineMax";

impl World {
    /// Changes a Machine of the set with that number.
    fn machine(mut self, set: usize, machine: usize, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.sets[set].1[machine]);
        self
    }

    /// The planned annotations, without the name of the action's object.
    fn preserved(&self) -> Vec<String> {
        self.actions().into_iter().filter(|action| action.contains("preserve")).collect()
    }
}

fn created(age: i64) -> impl FnOnce(&mut Value) {
    move |machine| machine["metadata"]["creationTimestamp"] = at(-age).to_string().into()
}

fn auto(machine: &mut Value) {
    machine["metadata"]["annotations"] = json!({"node.machine.sapcloud.io/preserve": "auto-preserved"});
}

/// A deployment in a rollout from class `b` to class `c`. Each set has a failed Machine, and the
/// Machine of the old set is the newer one.
fn rolling(most: i32) -> World {
    let world = world(4).field(MAX, json!(most));
    let world = world.set("o", "b", 2, &["Failed", "Running"]).set("n", "c", 2, &["Failed", "Running"]);
    world.machine(0, 0, created(100)).machine(1, 0, created(200))
}

/// In Go MCM, each of the two sets preserves as many Machines as the limit allows.
#[test]
fn the_old_and_the_new_set_share_the_limit() {
    assert_eq!(rolling(0).preserved(), [""; 0]);
    assert_eq!(rolling(1).preserved(), ["machine o-0: preserve"]);
    assert_eq!(rolling(2).preserved(), ["machine o-0: preserve", "machine n-0: preserve"]);
    assert_eq!(rolling(1).machine(1, 0, auto).preserved(), [""; 0], "the new set has used the limit");
    let both = rolling(1).machine(0, 0, auto).machine(1, 0, auto);
    let both = both.machine(0, 0, created(100)).machine(1, 0, created(200));
    assert_eq!(both.preserved(), ["machine n-0: preserve no longer"], "the oldest is released");
}

#[test]
fn the_sets_keep_the_machines_that_are_about_to_be_preserved() {
    let kept = |world: World| {
        let s = world.snapshot();
        about_to_preserve(&s.deployment, &s.sets).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(kept(rolling(1)), ["uid-o-0"]);
    assert_eq!(kept(rolling(1).machine(1, 0, auto)), [""; 0]);
    let leaving = rolling(1).field("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    assert_eq!(kept(leaving), [""; 0]);
}

/// A deployment that rests still has sets that delete failed Machines.
#[test]
fn a_paused_or_invalid_deployment_preserves_machines() {
    assert_eq!(rolling(1).field("/spec/paused", json!(true)).preserved(), ["machine o-0: preserve"]);
    let invalid = rolling(1).field("/spec/strategy/type", json!("Unknown"));
    assert_eq!(invalid.preserved(), ["machine o-0: preserve"]);
}

#[test]
fn an_old_view_of_the_machines_ends_no_preservation() {
    let silence = Silence { server: "x".into(), since: at(-200), read: FreshRead::Possible };
    let mut stale = rolling(0).machine(0, 0, auto).snapshot();
    stale.machines_freshness = Freshness::Stale(silence);
    let actions: Vec<_> = plan(&stale).actions.iter().map(ToString::to_string).collect();
    assert!(actions.contains(&"machines: list them at the API server".to_owned()), "{actions:?}");
    assert!(!actions.iter().any(|action| action.contains("no longer")), "{actions:?}");
}

#[test]
fn the_limit_reaches_the_new_set_without_a_rollout() {
    let most = |world: World| {
        let actions = plan(&world.snapshot()).actions;
        actions.into_iter().find_map(|action| match action {
            Action::PatchSet(patch) => Some(patch.template?.auto_preserve_max),
            _ => None,
        })
    };
    let with_set = |most: i32, of_set: Option<i32>| {
        world(1).field(MAX, json!(most)).set_with("n", "c", 1, &["Running"], |set| {
            set["spec"]["autoPreserveFailedMachineMax"] = of_set.into();
        })
    };
    assert_eq!(most(with_set(2, None)), Some(Some(2)));
    assert_eq!(most(with_set(0, Some(2))), Some(Some(0)));
    assert_eq!(most(with_set(2, Some(2))), None);
    assert_eq!(most(with_set(0, None)), None, "absent and 0 are equal");
}
