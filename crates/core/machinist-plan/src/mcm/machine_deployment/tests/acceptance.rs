//! Acceptance cases about a deployment that no other test shows. The name of a test begins with the
//! id of its case; `docs/src/develop/acceptance-cases.md` lists the cases.

use super::*;

const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";

/// Machinist creates the new set empty. The next pass sizes it by the Machines that exist, to the
/// surge. Go creates it with one Machine more.
#[test]
fn t_85_a_new_class_begins_a_rollout() {
    let old = || world(5).bounds(json!(2), json!(0)).set_with("o", "b", 5, &[RUNNING; 5], sized(5, 7));
    let actions = old().actions();
    assert!(actions[0].ends_with("create with 0 replicas"), "{actions:?}");
    assert_eq!(old().sizes(), [5], "the old set is unchanged");
    assert_eq!(old().set_with("n", "c", 0, &[], sized(5, 7)).sizes(), [5, 2]);
}

/// Gives a set the annotations of a deployment with `desired` replicas and `most` Machines.
fn sized(desired: u32, most: u32) -> impl Fn(&mut Value) + Copy {
    move |set| {
        set["metadata"]["annotations"][DESIRED] = desired.to_string().into();
        set["metadata"]["annotations"][MOST] = most.to_string().into();
    }
}

/// The size of each set after the plan, and the annotations of all sets.
fn scaled(from: u32, to: u32, sizes: [u32; 3]) -> (Vec<u32>, Vec<String>) {
    let running = |count: u32| vec![RUNNING; count as usize];
    let world = world(to).bounds(json!(2), json!(0));
    let world = world.set_with("o", "a", sizes[0], &running(sizes[0]), sized(from, from + 2));
    let world = world.set_with("p", "b", sizes[1], &running(sizes[1]), sized(from, from + 2));
    let world = world.set_with("n", "c", sizes[2], &running(sizes[2]), sized(from, from + 2));
    let annotations = plan(&world.snapshot()).actions.into_iter().filter_map(|action| match action {
        Action::PatchSet(patch) => {
            let of = |key: &str| patch.annotations.get(key).cloned().flatten();
            Some(format!("{}/{}", of(DESIRED)?, of(MOST)?))
        }
        _ => None,
    });
    (world.sizes(), annotations.collect())
}

#[test]
fn t_90_growth_during_a_rollout_goes_to_the_newest_set() {
    assert_eq!(scaled(7, 10, [1, 3, 5]), (vec![1, 3, 8], vec!["10/12".to_owned(); 3]));
}

#[test]
fn t_91_t_92_sets_shrink_in_proportion() {
    assert_eq!(scaled(7, 3, [1, 3, 5]), (vec![1, 2, 2], vec!["3/5".to_owned(); 3]));
    assert_eq!(scaled(8, 5, [1, 3, 6]), (vec![1, 2, 4], vec!["5/7".to_owned(); 3]));
}

#[test]
fn t_93_an_outdated_annotation_is_refreshed() {
    let world = world(3).set_with("w-1", "c", 3, &[RUNNING; 3], sized(2, 3));
    assert_eq!(world.actions(), ["set w-1: annotations desired-replicas max-replicas"]);
    assert_eq!(world.sizes(), [3]);
}

/// The values of rolling updates. A deployment with an unknown strategy is not reconciled (T-84),
/// so nothing uses its limit.
#[test]
fn t_94_at_most_all_machines_may_be_unavailable() {
    let most = |replicas, unavailable| {
        world(replicas).bounds(json!(1), json!(unavailable)).snapshot().deployment.max_unavailable()
    };
    assert_eq!([most(5, 1), most(5, 10), most(0, 1)], [1, 5, 0]);
}

/// The values of rolling updates. With Recreate the new set waits until the old Machines are gone
/// (T-86). A deployment with an unknown strategy is not reconciled (T-84).
#[test]
fn t_95_the_new_set_grows_up_to_the_surge() {
    let size = |new: u32| {
        let world = world(5).bounds(json!(2), json!(0));
        let world = world.set_with("o", "b", 4, &[RUNNING; 4], sized(5, 7));
        let world = world.set_with("n", "c", new, &vec!["Pending"; new as usize], sized(5, 7));
        world.sizes()[1]
    };
    assert_eq!([size(2), size(3)], [3, 3]);
}
