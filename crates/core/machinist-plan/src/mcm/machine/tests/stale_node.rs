//! Tests of instances with the name of a Node that exists already.

use super::*;

/// The cloud has created the instance and called it `ip-10-0-0-1`. A Node of that name, which is
/// older than the Machine, has this provider id.
fn created(node_id: &str) -> World {
    let mut world = world().recorded().node("True").created(-5);
    world.machine["metadata"]["labels"]["node"] = "ip-10-0-0-1".into();
    let world = world
        .node_field("/metadata/name", json!("ip-10-0-0-1"))
        .node_field("/metadata/creationTimestamp", json!(at(-9000).to_string()));
    world.ids("sim:///i-1", node_id)
}

fn look(world: World, uid: Option<&str>) -> World {
    let look = NodeRead { name: "ip-10-0-0-1".into(), started: at(-1), uid: uid.map(str::to_owned) };
    world.with(|s| s.reads.nodes = vec![look])
}

fn status(plan: &Plan<Action>) -> Option<String> {
    plan.actions.iter().find_map(|action| match action {
        Action::SetStatus(write) => Some(write.to_string()),
        _ => None,
    })
}

const PENDING: &str = "Pending, Create Processing \"Creating machine on cloud provider\"";
const FAILED: &str = "Failed, Create Failed \"VM using old node obj\"";

/// The id is on the Machine before anything is decided. So a crash loses no instance.
#[test]
fn f11_the_id_is_recorded_before_the_machine_fails() {
    let made = Instance { name: NodeName::new("ip-10-0-0-1").expect("a name"), ..instance() };
    let plan = world().ensured(Ok(made)).plan();
    let [Action::Record { provider_id, .. }] = &plan.actions[..] else { panic!("a record: {plan:?}") };
    assert_eq!(provider_id.as_str(), "sim:///i-1");
}

/// The set deletes the Failed Machine, and its deletion removes the instance.
#[test]
fn t_11_an_instance_with_the_name_of_an_old_node_fails() {
    for id in ["sim:///i-old", ""] {
        let plan = created(id).plan();
        let [Action::LookForNode(name)] = &plan.actions[..] else { panic!("a GET: {plan:?}") };
        assert_eq!(name, "ip-10-0-0-1", "a store may be older than the deletion of the Node");
        let plan = look(created(id), Some("uid-n")).plan();
        assert_eq!(status(&plan).as_deref(), Some(FAILED), "{id:?}");
        assert!(!plan.actions.iter().any(|action| matches!(action, Action::Delete(_))), "{plan:?}");
        let plan = look(created(id), None).plan();
        assert_eq!(status(&plan).as_deref(), Some(PENDING), "the Node was deleted meanwhile");
    }
}

#[test]
fn t_56_no_machine_fails_for_an_old_node_while_frozen() {
    let world = look(created("sim:///i-old"), Some("uid-n"));
    let plan = world.with(|s| s.frozen = Some(frozen())).plan();
    assert_eq!(status(&plan), None, "{plan:?}");
    assert_eq!(plan.wait, Wait::Until(at(10)));
}

/// The instance has joined before its creation was answered.
#[test]
fn t_11_a_node_of_the_instance_is_not_stale() {
    let plan = look(created("sim:///i-1"), Some("uid-n")).plan();
    assert_eq!(status(&plan).as_deref(), Some(PENDING));
    let young = created("").node_field("/metadata/creationTimestamp", json!(at(-3).to_string()));
    assert_eq!(status(&look(young, Some("uid-n")).plan()).as_deref(), Some(PENDING));
}

#[test]
fn t_11_a_node_with_the_name_of_the_machine_is_not_stale() {
    let mut world = created("sim:///i-old").node_field("/metadata/name", json!("m"));
    world.machine["metadata"]["labels"]["node"] = "m".into();
    assert_eq!(status(&world.plan()).as_deref(), Some(PENDING), "as in Go MCM");
}

/// The deletion of the Failed Machine deletes its instance and spares the Node.
#[test]
fn t_11_the_deletion_spares_the_old_node() {
    let terminating = |marker| {
        let world = created("sim:///i-old").phase("Terminating", "Delete", "Processing", marker);
        look(world.deleting(10), Some("uid-n"))
    };
    let plan = terminating("Initiate node drain").plan();
    assert!(matches!(plan.actions[..], [Action::Delete(_)]), "{plan:?}");
    let plan = terminating("Initiate node object deletion").plan();
    assert!(matches!(plan.actions[..], [Action::RemoveFinalizer]), "{plan:?}");
}

/// Go MCM repeats the creation of a failed Machine until the set deletes the Machine.
#[test]
fn f11_a_failed_machine_creates_no_instance() {
    let plan = world().phase("Failed", "Create", "Failed", "x").created(-9000).plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    let deleting = world().phase("Failed", "Create", "Failed", "x").deleting(1).plan();
    assert!(!deleting.actions.iter().any(|action| matches!(action, Action::Ensure { .. })), "{deleting:?}");
}
