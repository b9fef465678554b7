//! Tests of the marks on sets for the Nodes of their Machines.

use super::*;

const OUTDATED: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
const PROTECTED: &str = "machinist.dev/protected-from-autoscaler";

/// Returns the changes of the marks of a set, like `+outdated -protected`.
fn marks(world: &World, name: &str) -> Vec<String> {
    let actions = plan(&world.snapshot()).actions;
    let patches = actions.iter().filter_map(|action| match action {
        Action::PatchSet(patch) if patch.set.name == name => Some(patch),
        _ => None,
    });
    let shown = |(key, value): (&String, &Option<String>)| {
        let what = [(OUTDATED, "outdated"), (PROTECTED, "protected")];
        let what = what.into_iter().find(|(known, _)| known == key)?.1;
        Some(format!("{}{what}", if value.is_some() { "+" } else { "-" }))
    };
    patches.flat_map(|patch| patch.annotations.iter().filter_map(shown).collect::<Vec<_>>()).collect()
}

fn marked(keys: &'static [&'static str]) -> impl Fn(&mut Value) {
    move |set| {
        for key in keys {
            set["metadata"]["annotations"][*key] = "True".into();
        }
    }
}

fn rollout(old: u32, old_phases: &[&str], new: u32, new_phases: &[&str]) -> World {
    let mut world = world(3).set("o", "b", old, old_phases).set("n", "c", new, new_phases);
    world.protects_nodes = true;
    world
}

#[test]
fn a_rollout_marks_the_old_set_and_protects_both() {
    let begins = rollout(3, &[RUNNING; 3], 0, &[]);
    assert_eq!(marks(&begins, "o"), ["+outdated", "+protected"]);
    assert_eq!(marks(&begins, "n"), ["+protected"], "in the patch that lets it grow");
    assert_eq!(marks(&rollout(3, &[RUNNING; 3], 1, &["Pending"]), "n"), ["+protected"]);
    let last = rollout(0, &["Terminating"], 3, &[RUNNING; 3]);
    assert_eq!(marks(&last, "n"), ["+protected"], "a Machine is still being drained");
}

#[test]
fn protection_ends_when_the_rollout_is_complete() {
    let with = |phases: &[&str]| {
        let mut world = world(3).set("o", "b", 0, &[]).set_with("n", "c", 3, phases, marked(&[PROTECTED]));
        world.protects_nodes = true;
        world
    };
    assert_eq!(marks(&with(&[RUNNING, RUNNING, "Pending"]), "n"), [""; 0]);
    assert_eq!(marks(&with(&[RUNNING; 3]), "n"), ["-protected"]);
}

#[test]
fn a_set_that_is_the_newest_again_loses_its_mark() {
    let back =
        world(3).set_with("o", "c", 2, &[RUNNING; 2], marked(&[OUTDATED])).set("n", "b", 1, &[RUNNING]);
    assert_eq!(marks(&back, "o"), ["-outdated"]);
    assert_eq!(marks(&back, "n"), ["+outdated"]);
}

#[test]
fn marks_that_go_left_are_removed_from_the_newest_set() {
    let settled = world(3).set_with("n", "c", 3, &[RUNNING; 3], marked(&[OUTDATED]));
    assert_eq!(marks(&settled, "n"), ["-outdated"]);
}

#[test]
fn no_mark_changes_in_a_pause_or_on_a_set_without_machines() {
    let paused = rollout(3, &[RUNNING; 3], 1, &[RUNNING]).field("/spec/paused", true.into());
    assert_eq!([marks(&paused, "o"), marks(&paused, "n")], [vec![], Vec::<String>::new()]);
    let mut settled =
        world(3).set_with("o", "b", 0, &[], marked(&[OUTDATED, PROTECTED])).set("n", "c", 3, &[RUNNING; 3]);
    settled.protects_nodes = true;
    assert_eq!(settled.actions(), [""; 0]);
}

#[test]
fn without_the_flag_no_set_is_protected() {
    let mut unprotected = rollout(3, &[RUNNING; 3], 1, &[RUNNING]);
    unprotected.protects_nodes = false;
    assert_eq!([marks(&unprotected, "o"), marks(&unprotected, "n")], [vec!["+outdated"], vec![]]);
    let mut protected = world(3).set_with("n", "c", 3, &[RUNNING, RUNNING, "Pending"], marked(&[PROTECTED]));
    protected.protects_nodes = false;
    assert_eq!(marks(&protected, "n"), ["-protected"]);
}

#[test]
fn recreation_protects_nodes_and_taints_none() {
    let mut world = rollout(3, &[RUNNING; 3], 0, &[]).field("/spec/strategy", json!({"type": "Recreate"}));
    world.protects_nodes = true;
    assert_eq!(marks(&world, "o"), ["+protected"]);
}
