//! Tests of updates in place: the stages of one Machine and its Node.

use super::*;
use crate::mcm::facts::NodeMarks;

const CANDIDATE: &str = "candidate-for-update";
const SELECTED: &str = "selected-for-update";
const RESULT: &str = "update-result";

impl World {
    /// A Machine of an old template whose Node reports that stage of the update.
    fn at_stage(stage: Option<&str>) -> Self {
        let mut world = world().running().node_label(CANDIDATE, "true").of_set(true);
        if let Some(stage) = stage {
            let conditions = json!([
                {"type": "Ready", "status": "True"},
                {"type": "InPlaceUpdate", "status": "True", "reason": stage,
                 "lastTransitionTime": at(-60).to_string()},
            ]);
            world.machine["status"]["conditions"] = conditions.clone();
            world = world.node_field("/status/conditions", conditions);
        }
        world
    }

    /// Whether the Machine is in a set of an old template.
    fn of_set(self, is_candidate: bool) -> Self {
        let marks = NodeMarks { is_candidate, ..NodeMarks::default() };
        self.with(|s| s.node_marks = Some(marks))
    }

    fn node_label(mut self, label: &str, value: &str) -> Self {
        let node = self.node.as_mut().expect("the test has a Node");
        node["metadata"]["labels"][format!("node.machine.sapcloud.io/{label}")] = value.into();
        self
    }

    fn machine_label(mut self, label: &str, value: &str) -> Self {
        self.machine["metadata"]["labels"][format!("node.machine.sapcloud.io/{label}")] = value.into();
        self
    }

    fn selected(stage: &str) -> Self {
        Self::at_stage(Some(stage)).node_label(SELECTED, "true").machine_label(SELECTED, "true")
    }

    /// A selected Machine whose cordoned Node is being drained.
    fn draining_for_update() -> Self {
        Self::selected("SelectedForUpdate").cordoned(&at(-50).to_string())
    }

    /// The Node is cordoned, and records who did so.
    fn cordoned(self, by: &str) -> Self {
        self.node_field("/spec/unschedulable", true.into())
            .node_field("/metadata/annotations/machinist.dev~1cordoned-for-update", by.into())
            .with(|s| s.node_seen.cordoned = Some(at(-50)))
    }

    fn in_update(self, phase: &str, since: i64) -> Self {
        let conditions = self.machine["status"]["conditions"].clone();
        let mut world = self.phase(phase, "InPlaceUpdate", "Processing", "x");
        world.machine["status"]["conditions"] = conditions;
        world.machine["status"]["currentStatus"]["lastUpdateTime"] = at(since).to_string().into();
        world
    }

    fn steps(&self) -> Vec<String> {
        self.clone().plan().actions.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_node_of_an_old_template_becomes_a_candidate() {
    assert_eq!(
        world().running().of_set(true).steps(),
        ["node m: sync labels candidate-for-update", "node m: InPlaceUpdate, CandidateForUpdate"]
    );
    assert_eq!(World::at_stage(Some("CandidateForUpdate")).steps(), [""; 0]);
    assert_eq!(
        World::at_stage(Some("UpdateSuccessful")).steps(),
        ["node m: InPlaceUpdate, CandidateForUpdate"]
    );
    assert_eq!(world().running().of_set(false).steps(), [""; 0]);
}

#[test]
fn a_selected_node_is_cordoned_and_drained() {
    let chosen = World::at_stage(Some("CandidateForUpdate")).machine_label(SELECTED, "true");
    assert_eq!(chosen.steps(), ["node m: sync labels selected-for-update"]);
    let by_user = World::at_stage(Some("CandidateForUpdate")).node_label(SELECTED, "true");
    assert_eq!(by_user.steps(), ["node m: InPlaceUpdate, SelectedForUpdate"]);
    assert_eq!(
        World::selected("SelectedForUpdate").steps(),
        ["node m: sync annotations cordoned-for-update, cordon"]
    );
    assert_eq!(World::draining_for_update().pod("p").steps(), ["pod ns/p: evict"]);
}

#[test]
fn a_node_is_ready_for_its_update_only_after_a_list_of_its_pods() {
    let empty = World::draining_for_update();
    assert_eq!(empty.steps(), ["node m: list its pods at the API server"]);
    let before_cordon = empty.clone().listed().with(|s| s.node_seen.cordoned = Some(at(0)));
    assert_eq!(before_cordon.steps(), ["node m: list its pods at the API server"]);
    let drained = empty.listed().steps();
    assert_eq!(
        drained,
        [
            "status: InPlaceUpdating, InPlaceUpdate Processing \"Node drain successful. Node is ready for update\""
        ]
    );
}

#[test]
fn the_drain_of_an_update_has_the_rules_of_a_deletion() {
    let late = || World::draining_for_update().pod("p").with(|s| s.defaults = patience(45));
    assert_eq!(late().steps(), ["pod ns/p: evict"], "it is tried politely first");
    let held = EvictionAnswer::Held("budget".to_owned());
    let tried = |seconds| {
        let answer = Eviction { is_deletion: false, ..tried(1, -40, seconds, held.clone()) };
        late().with(|s| s.evictions = Arc::new([("uid-p".to_owned(), answer)].into()))
    };
    assert_eq!(tried(-25).steps(), ["pod ns/p: delete without grace"]);
    let stale = tried(-25).with(|s| s.nodes_freshness = stale());
    assert!(!stale.steps().contains(&"pod ns/p: delete without grace".to_owned()), "{:?}", stale.steps());
    let forced = World::draining_for_update().pod("p");
    let mut forced = forced;
    forced.machine["metadata"]["labels"]["force-drain"] = "True".into();
    assert_eq!(forced.steps(), ["pod ns/p: delete without grace"]);
}

fn stale() -> Freshness {
    Freshness::Stale(machinist_core::Silence {
        server: "the API server".to_owned(),
        since: at(-300),
        read: machinist_core::FreshRead::Possible,
    })
}

fn patience(seconds: u64) -> Arc<Defaults> {
    Arc::new(Defaults { drain_timeout: Duration::from_secs(seconds), ..Defaults::default() })
}

#[test]
fn the_condition_follows_the_drain() {
    let updating =
        |stage: &str| World::selected(stage).cordoned(&at(-50).to_string()).in_update("InPlaceUpdating", -10);
    assert_eq!(updating("SelectedForUpdate").listed().steps(), ["node m: InPlaceUpdate, DrainSuccessful"]);
    assert_eq!(
        updating("SelectedForUpdate").steps(),
        ["node m: list its pods at the API server"],
        "a phase without a drain allows no update"
    );
    assert_eq!(updating("DrainSuccessful").listed().steps(), ["node m: InPlaceUpdate, ReadyForUpdate"]);
    assert_eq!(
        updating("DrainSuccessful").steps(),
        ["node m: list its pods at the API server"],
        "the Node may have taken pods since its drain"
    );
    assert_eq!(updating("DrainSuccessful").pod("p").steps(), ["pod ns/p: evict"]);
    for stage in ["SelectedForUpdate", "DrainSuccessful"] {
        let unseen = updating(stage).listed().with(|s| s.nodes_freshness = stale());
        assert_eq!(unseen.steps(), ["nodes: list them at the API server"], "{stage}: it may be open again");
    }
    let open = updating("DrainSuccessful").node_field("/spec/unschedulable", false.into());
    assert_eq!(open.steps(), ["node m: InPlaceUpdate, SelectedForUpdate"], "it takes pods again");
    assert_eq!(updating("ReadyForUpdate").steps(), [""; 0]);
}

#[test]
fn a_failed_update_is_repeated_only_after_another_drain() {
    let failed = |stage: &str| World::selected(stage).in_update("InPlaceUpdateFailed", -10);
    assert_eq!(failed("UpdateFailed").steps(), ["node m: InPlaceUpdate, SelectedForUpdate"]);
    let again = failed("SelectedForUpdate").steps();
    assert_eq!(again, ["node m: sync annotations cordoned-for-update, cordon"]);
    assert_eq!(failed("ReadyForUpdate").steps(), [""; 0], "an update without a result is not repeated");
}

#[test]
fn only_machines_with_a_healthy_node_are_selected_and_drained() {
    for phase in ["Failed", "Pending", "Unknown"] {
        let mut world = World::draining_for_update().in_update(phase, -10).pod("p");
        world.machine["status"]["lastOperation"]["type"] = "HealthCheck".into();
        let world = world.node_field("/status/conditions/0/status", "False".into());
        let steps = world.steps();
        assert!(
            !steps.iter().any(|step| step.contains("evict") || step.contains("InPlace")),
            "{phase}: {steps:?}"
        );
    }
}

#[test]
fn a_machine_without_its_node_ends_its_update_in_time() {
    let mut world = World::selected("ReadyForUpdate").in_update("InPlaceUpdating", -1300);
    world.node = None;
    assert!(world.steps()[0].starts_with("status: InPlaceUpdateFailed"), "{:?}", world.steps());
}

#[test]
fn t_29_the_label_of_the_node_ends_the_update() {
    let reports = |result| {
        World::selected("ReadyForUpdate").in_update("InPlaceUpdating", -10).node_label(RESULT, result)
    };
    assert_eq!(reports("successful").steps(), ["machine: label as updated"]);
    let labelled = reports("successful").machine_label(RESULT, "successful");
    assert_eq!(
        labelled.steps(),
        [
            "node m: InPlaceUpdate, UpdateSuccessful",
            "status: InPlaceUpdateSuccessful, InPlaceUpdate Successful \"The Node was updated\""
        ]
    );
    let failed = reports("failed").node_annotation_of_failure("no disk");
    assert_eq!(
        failed.steps(),
        [
            "node m: InPlaceUpdate, UpdateFailed",
            "status: InPlaceUpdateFailed, InPlaceUpdate Failed \"The update of the Node failed: no disk\"",
            "warning UpdateFailed: The update of the Node failed: no disk"
        ]
    );
    let in_time = World::selected("ReadyForUpdate").in_update("InPlaceUpdating", -1200);
    assert_eq!(in_time.steps(), [""; 0]);
    let late = World::selected("ReadyForUpdate").in_update("InPlaceUpdating", -1202);
    assert!(late.steps()[0].starts_with("status: InPlaceUpdateFailed"), "{:?}", late.steps());
    let unseen = late.with(|s| s.nodes_freshness = stale());
    assert_eq!(unseen.steps(), ["nodes: list them at the API server"], "the result may be there");
}

impl World {
    fn node_annotation_of_failure(mut self, cause: &str) -> Self {
        let node = self.node.as_mut().expect("the test has a Node");
        node["metadata"]["annotations"]["node.machine.sapcloud.io/update-failed-reason"] = cause.into();
        self
    }
}

#[test]
fn the_result_of_an_earlier_update_does_not_end_this_one() {
    let stale = World::at_stage(Some("UpdateSuccessful")).node_label(SELECTED, "true");
    let stale = stale.node_label(RESULT, "successful").cordoned(&at(-50).to_string());
    let removed = "node m: sync labels -selected-for-update -update-result";
    assert_eq!(stale.steps(), [removed]);
    let selected_again = stale.machine_label(SELECTED, "true");
    assert_eq!(selected_again.steps(), [removed], "the Node is labelled again in the next pass");
}

#[test]
fn an_update_that_go_ended_moves_its_machine() {
    let of_go = World::at_stage(Some("UpdateSuccessful"))
        .node_label(SELECTED, "true")
        .node_label(RESULT, "successful")
        .node_field("/spec/unschedulable", true.into());
    assert_eq!(of_go.steps(), ["machine: label as updated"]);
    assert_eq!(of_go.in_update("InPlaceUpdateSuccessful", -5).steps(), ["machine: label as updated"]);
}

const ALL: &str = "labels -candidate-for-update -selected-for-update -update-result";

#[test]
fn a_machine_in_its_new_set_takes_pods_again() {
    let moved = || World::selected("UpdateSuccessful").node_label(RESULT, "successful").of_set(false);
    let time = at(-50).to_string();
    let removed = "annotations -cordoned-for-update";
    assert_eq!(
        moved().cordoned(&time).steps(),
        [format!("node m: sync {ALL}, {removed}, 1 taints, uncordon")]
    );
    assert_eq!(
        moved().cordoned("by-others").steps(),
        [format!("node m: sync {ALL}, {removed}, 1 taints")],
        "a user has cordoned it"
    );
    let by_go = moved().node_field("/spec/unschedulable", true.into());
    assert_eq!(by_go.steps(), [format!("node m: sync {ALL}, 1 taints, uncordon")]);
    let tainted = moved().cordoned(&time).node_field(
        "/spec/taints",
        json!([{"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}]),
    );
    assert_eq!(
        tainted.steps(),
        [format!("node m: sync {ALL}, {removed}, uncordon")],
        "the taint exists once"
    );
}

#[test]
fn a_template_that_is_the_present_one_again_ends_the_selection() {
    let drained = World::draining_for_update().of_set(false);
    assert_eq!(
        drained.steps(),
        [
            "node m: sync labels -candidate-for-update -selected-for-update, annotations -cordoned-for-update, uncordon",
            "node m: InPlaceUpdate, CandidateForUpdate"
        ]
    );
    let only_cordoned = world().running().cordoned(&at(-50).to_string()).of_set(false);
    assert_eq!(only_cordoned.steps(), ["node m: sync annotations -cordoned-for-update, uncordon"]);
    let at_work = World::selected("ReadyForUpdate").in_update("InPlaceUpdating", -10).of_set(false);
    assert_eq!(at_work.steps(), [""; 0], "the program on the Node may be at work");
    let not_allowed = World::selected("SelectedForUpdate").in_update("InPlaceUpdating", -10).of_set(false);
    assert!(not_allowed.steps()[0].starts_with("status: Unknown, HealthCheck"), "{:?}", not_allowed.steps());
    let by_user = world().running().node_label(SELECTED, "true").of_set(false);
    assert_eq!(by_user.steps(), [""; 0], "a user selects early");
}

#[test]
fn a_deselected_node_takes_pods_again() {
    let deselected = World::at_stage(Some("SelectedForUpdate")).cordoned(&at(-50).to_string());
    assert_eq!(deselected.steps(), ["node m: InPlaceUpdate, CandidateForUpdate"]);
    let candidate = World::at_stage(Some("CandidateForUpdate")).cordoned(&at(-50).to_string());
    assert_eq!(candidate.steps(), ["node m: sync annotations -cordoned-for-update, uncordon"]);
}

#[test]
fn a_node_that_a_user_cordoned_is_remembered() {
    let cordoned = World::selected("SelectedForUpdate").node_field("/spec/unschedulable", true.into());
    assert_eq!(cordoned.steps(), ["node m: sync annotations cordoned-for-update"]);
    assert_eq!(cordoned.sync_annotation("machinist.dev/cordoned-for-update").as_deref(), Some("by-others"));
}

impl World {
    fn sync_annotation(&self, key: &str) -> Option<String> {
        self.clone().plan().actions.into_iter().find_map(|action| match action {
            Action::SyncNode(sync) => sync.annotations.get(key).cloned().flatten(),
            _ => None,
        })
    }
}
