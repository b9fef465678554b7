//! Tests of writes that raise the size of a set and had no answer.

use expect_test::expect;
use serde_json::{Value, json};

use super::{OpenRaise, RUNNING, World, at, name, world};

impl World {
    /// A write to this set had no answer, and may take effect for 40 more seconds.
    fn raising(mut self, set: &str, generation: Option<i64>) -> Self {
        let patched = generation.map(|generation| (format!("uid-{set}"), Some(generation)));
        self.open_raises.push(OpenRaise { set: set.to_owned(), patched, until: at(40) });
        self
    }
}

#[test]
fn no_set_is_created_beside_an_unanswered_post() {
    world(3).raising("w-other", None).check(expect![[r#"
        why   the API server has not answered a POST of machinesets ns/w-other; its outcome is unknown; next: the MachineSets grow; deadline 2027-01-15T08:00:40Z: the MachineSets grow
        wait  until 2027-01-15T08:00:40Z
    "#]]);
}

#[test]
fn an_unanswered_post_is_repeated() {
    let (world, same) = (world(3), name(&world(3), 0));
    assert_eq!(world.raising(&same, None).actions(), [format!("set {same}: create with 3 replicas")]);
}

#[test]
fn a_post_that_took_effect_or_is_too_old_holds_nothing() {
    let late = world(3).set("w-other", "b", 3, &[]).raising("w-other", None);
    assert_eq!(late.actions().len(), 1, "the new set is created empty: {:?}", late.actions());
    let mut old = world(3).raising("w-other", None);
    old.open_raises[0].until = at(0);
    assert_eq!(old.actions(), [format!("set {}: create with 3 replicas", name(&old, 0))]);
}

#[test]
fn no_set_grows_beside_an_unanswered_patch() {
    let world = || world(3).set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]);
    assert_eq!(world().sizes(), [3, 1]);
    assert_eq!(world().raising("o", Some(1)).sizes(), [3, 0], "the patch of o may still take effect");
    assert_eq!(world().raising("o", Some(0)).sizes(), [3, 1], "o has a newer generation");
    assert_eq!(world().raising("n", Some(1)).sizes(), [3, 1], "the patch of n is repeated");
    assert_eq!(world().raising("gone", Some(1)).sizes(), [3, 1], "there is no such set");
}

#[test]
fn a_set_shrinks_beside_an_unanswered_patch() {
    let world = world(2).set("o", "c", 4, &[RUNNING; 4]).raising("o", Some(1));
    assert_eq!(world.sizes(), [2], "the smaller size makes the earlier patch impossible");
}

#[test]
fn the_status_waits_with_a_held_size() {
    let mut world = world(3).set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]).raising("o", Some(1));
    world.status_written = None;
    let statuses =
        |world: &World| world.actions().iter().filter(|action| action.starts_with("status")).count();
    assert_eq!(statuses(&world), 0, "{:?}", world.actions());
    world.open_raises.clear();
    assert_eq!(statuses(&world), 1);
}

/// The former leader may have sent a POST for a template between the two.
#[test]
fn after_a_takeover_a_changed_deployment_waits_to_grow() {
    let taken_over = |mut world: World| {
        world.predecessor_until = Some(at(40));
        world
    };
    let seen = |generation: i64| json!({"observedGeneration": generation});
    taken_over(world(3).field("/status", Value::Null)).check(expect![[r#"
        why   waiting for the last calls of the previous leader to end; next: the MachineSets grow; deadline 2027-01-15T08:00:40Z: the MachineSets grow
        wait  until 2027-01-15T08:00:40Z
    "#]]);
    for world in [
        taken_over(world(3).field("/status", seen(5))),
        taken_over(world(3).field("/metadata/generation", 1.into())),
    ] {
        assert_eq!(world.actions(), [format!("set {}: create with 3 replicas", name(&world, 0))]);
    }
    let scaled = taken_over(world(3).field("/status", seen(4))).set("o", "c", 1, &[RUNNING]);
    assert_eq!(scaled.sizes(), [3], "the only set is patched, and only one of two patches takes effect");
    let rolling = taken_over(world(3).field("/status", seen(4)));
    let rolling = rolling.set("o", "b", 3, &[RUNNING; 3]).set("n", "c", 0, &[]);
    assert_eq!(rolling.sizes(), [3, 0]);
}
