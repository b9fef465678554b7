//! Tests of the hash label of adopted sets.

use super::*;

fn without_hash(set: &mut Value) {
    for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        set.pointer_mut(labels)
            .and_then(Value::as_object_mut)
            .expect("labels")
            .remove("machine-template-hash");
    }
}

/// A set whose template has the hash `7`, and whose selector lacks it.
fn with_hash_in_template(observed: i64) -> impl Fn(&mut Value) {
    move |set| {
        without_hash(set);
        set["spec"]["template"]["metadata"]["labels"]["machine-template-hash"] = "7".into();
        set["metadata"]["generation"] = 2.into();
        set["status"] = json!({"observedGeneration": observed});
    }
}

fn labelled(mut world: World, machines: &[usize]) -> World {
    for index in machines {
        world.sets[0].1[*index]["metadata"]["labels"]["machine-template-hash"] = "7".into();
    }
    world
}

#[test]
fn an_adopted_set_gets_its_hash_in_three_steps() {
    let actions = world(2).set_with("mine", "c", 2, &[RUNNING; 2], without_hash).actions();
    assert!(actions.len() == 1 && actions[0].starts_with("set mine: label template "), "{actions:?}");
    let templated = || world(2).set_with("mine", "c", 2, &[RUNNING; 2], with_hash_in_template(2));
    assert_eq!(templated().actions(), ["machine mine-0: label 7", "machine mine-1: label 7"]);
    assert_eq!(labelled(templated(), &[1]).actions(), ["machine mine-0: label 7"]);
    assert_eq!(labelled(templated(), &[0, 1]).actions(), ["set mine: select 7"]);
}

#[test]
fn the_selector_waits_until_no_old_machine_can_appear() {
    let unseen = world(2).set_with("mine", "c", 2, &[RUNNING; 2], with_hash_in_template(1));
    assert_eq!(labelled(unseen, &[0, 1]).actions(), [""; 0], "the set has not seen its template");
    let missing = world(2).set_with("mine", "c", 2, &[RUNNING], with_hash_in_template(2));
    assert_eq!(labelled(missing, &[0]).actions(), [""; 0], "a Machine is being created");
    let mut taken_over =
        labelled(world(2).set_with("mine", "c", 2, &[RUNNING; 2], with_hash_in_template(2)), &[0, 1]);
    taken_over.predecessor_until = Some(at(30));
    assert_eq!(taken_over.actions(), [""; 0], "a write of the former leader may take effect late");
}
