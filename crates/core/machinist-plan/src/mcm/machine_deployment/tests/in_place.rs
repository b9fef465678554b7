//! Tests of updates in place: selection, moves and sizes.

use super::*;

fn in_place(replicas: u32, surge: u32, unavailable: u32) -> World {
    with_type("Auto", replicas, surge, unavailable)
}

fn with_type(orchestration: &str, replicas: u32, surge: u32, unavailable: u32) -> World {
    world(replicas).field(
        "/spec/strategy",
        json!({
            "type": "InPlaceUpdate",
            "inPlaceUpdate": {
                "maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": orchestration,
            },
        }),
    )
}

/// The set of an old template in a running update.
fn old(set: &mut Value) {
    set["metadata"]["labels"]["node.machine.sapcloud.io/scale-up-disabled"] = "true".into();
    set["metadata"]["annotations"]["deployment.machine.sapcloud.io/prefer-no-schedule"] = "True".into();
    sized(set);
}

fn sized(set: &mut Value) {
    let annotations = &mut set["metadata"]["annotations"];
    annotations["deployment.kubernetes.io/max-replicas"] =
        annotations["deployment.kubernetes.io/desired-replicas"].clone();
}

impl World {
    /// Adds an old set `o` and a new set `n`, whose Machines have Nodes.
    fn updating(self, old_size: u32, old_phases: &[&str], new_size: u32, new_phases: &[&str]) -> Self {
        let mut world = self
            .set_with("o", "b", old_size, old_phases, old)
            .set_with("n", "c", new_size, new_phases, sized);
        for machine in world.sets.iter_mut().flat_map(|(_, machines)| machines) {
            machine["metadata"]["labels"]["node"] = machine["metadata"]["name"].clone();
            let condition =
                json!({"type": "InPlaceUpdate", "status": "True", "reason": "CandidateForUpdate"});
            machine["status"]["conditions"] = json!([condition]);
        }
        world
    }

    fn labelled(mut self, set: usize, machine: usize, label: &str, value: &str) -> Self {
        let key = format!("node.machine.sapcloud.io/{label}");
        self.sets[set].1[machine]["metadata"]["labels"][key] = value.into();
        self
    }
}

const UPDATED: (&str, &str) = ("update-result", "successful");

#[test]
fn an_update_begins_with_marks_on_the_old_set() {
    let world = in_place(3, 0, 1).set_with("o", "b", 3, &[RUNNING; 3], sized);
    let actions = world.clone().set_with("n", "c", 0, &[], sized).actions();
    assert_eq!(actions[0], "set o: annotations prefer-no-schedule labels scale-up-disabled", "{actions:?}");
    assert!(world.actions()[0].ends_with("create with 0 replicas"), "no instance is created for it");
}

#[test]
fn t_99_as_many_machines_are_selected_as_may_be_unavailable() {
    let selected = |world: World| -> Vec<String> {
        world.actions().into_iter().filter(|action| action.contains("select for")).collect()
    };
    let world = |new: &[&str]| in_place(3, 0, 1).updating(2, &[RUNNING; 2], 1, new);
    assert_eq!(selected(world(&[RUNNING])), ["machine o-1: select for the update in place"]);
    assert_eq!(selected(world(&["Pending"])), [""; 0], "too few are available");
    let one_is_selected = world(&[RUNNING]).labelled(0, 0, "selected-for-update", "true");
    assert_eq!(selected(one_is_selected), [""; 0]);
    let without_nodes =
        in_place(3, 0, 1).set_with("o", "b", 2, &[RUNNING; 2], old).set("n", "c", 1, &[RUNNING]);
    assert_eq!(selected(without_nodes), [""; 0], "no Machine has a Node");
    let mut unknown = in_place(4, 0, 1).updating(3, &[RUNNING; 3], 1, &[RUNNING]);
    assert_eq!(selected(unknown.clone()).len(), 1);
    unknown.sets[0].1[0]["status"]["conditions"] = json!([]);
    assert_eq!(selected(unknown), [""; 0], "another program may have selected its Node");
    let manual = with_type("Manual", 3, 0, 1).updating(2, &[RUNNING; 2], 1, &[RUNNING]);
    assert_eq!(selected(manual.clone()), [""; 0]);
    assert!(
        manual.reason().starts_with("update in place: 1 of 3 machines is updated"),
        "{}",
        manual.reason()
    );
    let paused = world(&[RUNNING]).field("/spec/paused", true.into());
    assert_eq!(selected(paused), [""; 0]);
}

#[test]
fn no_machine_is_selected_by_an_old_view_or_after_a_failover() {
    let world = in_place(3, 0, 1).updating(2, &[RUNNING; 2], 1, &[RUNNING]);
    let mut s = world.snapshot();
    s.machines_freshness = Freshness::Stale(Silence {
        server: "the API server".to_owned(),
        since: at(-200),
        read: FreshRead::Possible,
    });
    let actions: Vec<String> = plan(&s).actions.iter().map(ToString::to_string).collect();
    assert_eq!(actions, ["machines: list them at the API server"]);
    let mut taken_over = world;
    taken_over.predecessor_until = Some(at(30));
    assert!(!taken_over.actions().iter().any(|action| action.contains("select for")));
}

#[test]
fn an_updated_machine_moves_and_both_sizes_follow() {
    let updated = in_place(3, 0, 1).updating(3, &[RUNNING; 3], 0, &[]).labelled(0, 0, UPDATED.0, UPDATED.1);
    assert_eq!(updated.actions(), ["machine o-0: move to the new set"]);
    let plan = plan(&updated.snapshot());
    let Some(Action::Relabel(step)) = plan.actions.first() else { panic!("{plan}") };
    assert_eq!(step.labels["machine-template-hash"].as_deref(), Some("c"));
    assert_eq!(step.labels["node.machine.sapcloud.io/selected-for-update"], None);
    assert_eq!(step.owner.as_ref().map(|set| set.name.as_str()), Some("n"));
    let moved =
        in_place(3, 0, 1).updating(3, &[RUNNING; 2], 0, &[RUNNING]).labelled(1, 0, UPDATED.0, UPDATED.1);
    assert_eq!(moved.sizes(), [2, 1]);
    let counted =
        in_place(3, 0, 1).updating(2, &[RUNNING; 2], 1, &[RUNNING]).labelled(1, 0, UPDATED.0, UPDATED.1);
    assert_eq!(counted.actions(), ["machine n-0: end the move"]);
}

#[test]
fn t_97_a_machine_that_has_moved_beyond_the_size_is_counted() {
    let world =
        in_place(3, 1, 0).updating(1, &[RUNNING], 2, &[RUNNING; 3]).labelled(1, 2, UPDATED.0, UPDATED.1);
    assert_eq!(world.sizes(), [1, 3]);
    let counted =
        in_place(3, 1, 0).updating(1, &[RUNNING], 3, &[RUNNING; 3]).labelled(1, 2, UPDATED.0, UPDATED.1);
    assert!(counted.actions().contains(&"machine n-2: end the move".to_owned()), "{:?}", counted.actions());
}

#[test]
fn t_98_an_old_set_does_not_replace_what_has_moved() {
    let world = in_place(2, 0, 1).updating(2, &[RUNNING], 1, &[RUNNING]);
    assert_eq!(world.sizes(), [1, 1]);
}

#[test]
fn t_100_the_surplus_of_the_surge_is_deleted_at_the_end() {
    let world = in_place(3, 2, 0).updating(2, &[RUNNING; 2], 3, &[RUNNING; 3]);
    assert_eq!(world.sizes(), [0, 3]);
    let pending = in_place(3, 2, 0).updating(2, &[RUNNING; 2], 3, &[RUNNING, "Pending", "Pending"]);
    assert_eq!(pending.sizes(), [2, 3], "too few of the new ones are available");
}

/// The values of updates in place.
#[test]
fn t_95_only_surge_creates_machines_beside_old_ones() {
    let size = |world: World| world.updating(4, &[RUNNING; 4], 2, &[RUNNING; 2]).sizes()[1];
    assert_eq!(size(in_place(5, 2, 0)), 3);
    assert_eq!(size(in_place(5, 1, 0)), 2);
    assert_eq!(size(with_type("Manual", 5, 2, 0)), 2);
}

/// The values of updates in place.
#[test]
fn t_94_unavailable_machines_of_an_update_are_bounded() {
    let bound = |orchestration, replicas, surge, unavailable| {
        with_type(orchestration, replicas, surge, unavailable).snapshot().deployment.max_unavailable()
    };
    assert_eq!(bound("Auto", 3, 0, 10), 3);
    assert_eq!(bound("Manual", 5, 0, 2), 2);
    assert_eq!(bound("Manual", 5, 3, 0), 1, "a surge does not count, so one Machine may be missing");
    assert_eq!(bound("Auto", 5, 3, 0), 0);
}

#[test]
fn a_deployment_is_scaled_during_the_update() {
    let up = in_place(5, 0, 1).updating(2, &[RUNNING; 2], 1, &[RUNNING]);
    assert_eq!(up.sizes(), [2, 3], "the new set grows");
    let down = in_place(2, 0, 1).updating(2, &[RUNNING; 2], 1, &[RUNNING]);
    assert_eq!(down.sizes(), [1, 1], "the old set shrinks");
}

/// A template that becomes the present one again can create Machines again, and loses the
/// selection.
#[test]
fn a_rolled_back_template_creates_machines_again() {
    let back = in_place(2, 0, 1)
        .set_with("o", "c", 2, &[RUNNING; 2], old)
        .set_with("n", "b", 0, &[], sized)
        .labelled(0, 0, "selected-for-update", "true");
    let actions = back.actions();
    assert!(
        actions[0].contains("-prefer-no-schedule") && actions[0].contains("-scale-up-disabled"),
        "{actions:?}"
    );
    assert!(actions.contains(&"machine o-0: deselect".to_owned()), "{actions:?}");
}
