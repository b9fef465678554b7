//! Tests of rollouts: the strategy Recreate, and rollbacks.

use std::collections::BTreeSet;

use super::*;

/// Changes the deployment as a user does.
async fn edit(world: &World, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    world.deployments().patch("w", &PatchParams::default(), &patch).await.expect("patched");
}

/// The value of the label `color` of each Machine, which each template sets.
async fn colors(world: &World) -> BTreeSet<String> {
    let color = |machine: Machine| machine.metadata.labels.unwrap_or_default().remove("color");
    world.machines().await.into_iter().map(|machine| color(machine).unwrap_or_default()).collect()
}

fn painted(color: &str) -> Value {
    json!({"template": {"metadata": {"labels": {"color": color}}}})
}

/// Waits until all Machines of a rollout run, and lets their Nodes join meanwhile.
async fn until_all_are(world: &World, color: &str, count: usize) {
    for _ in 0..120 {
        world.join().await;
        let machines = world.machines().await;
        let is_done = machines.len() == count
            && running(world).await == count
            && colors(world).await == [color.to_owned()].into();
        if is_done {
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    panic!("not all {count} Machines became {color}: {:#?}", world.machines().await);
}

#[tokio::test(start_paused = true)]
async fn all_old_machines_are_gone_before_a_new_one_exists() {
    let world = World::new().await;
    let (_machine_controller, manager) = world.start();
    world.apply(3).await;
    edit(&world, json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})).await;
    world.until_running(3).await;
    edit(&world, painted("blue")).await;
    let key = Key::Deployment(ObjectKey::new(NAMESPACE, "w"));
    let mut whys = BTreeSet::new();
    for _ in 0..600 {
        whys.extend(manager.inspector().why(&key).map(|record| record.why.to_string()));
        let colors = colors(&world).await;
        assert!(colors.len() <= 1, "two templates exist together");
        if colors.contains("blue") {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(
        whys.iter().any(|why| why.contains("created after the old ones are gone")),
        "the reason while the old Machines leave: {whys:#?}"
    );
    assert_eq!(world.cloud.ledger().ever().len() - world.cloud.alive(), 3, "the old instances are gone");
    until_all_are(&world, "blue", 3).await;
    assert_eq!(world.cloud.ledger().ever().len(), 6);
}

/// The update ended when the user chose Recreate and another template. The set that the Machine
/// would move to does not exist before all old Machines are gone.
#[tokio::test(start_paused = true)]
async fn recreate_does_not_wait_for_a_machine_updated_in_place() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    let name = world.machines().await.remove(0).metadata.name.unwrap_or_default();
    let label = json!({"node.machine.sapcloud.io/update-result": "successful"});
    let patch = Patch::Merge(json!({"metadata": {"labels": label}}));
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    machines.patch(&name, &PatchParams::default(), &patch).await.expect("patched");
    let mut spec = painted("blue");
    spec["strategy"] = json!({"type": "Recreate", "rollingUpdate": null});
    edit(&world, spec).await;
    until_all_are(&world, "blue", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_returns_to_the_former_template() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    edit(&world, painted("red")).await;
    until_all_are(&world, "red", 2).await;
    edit(&world, painted("blue")).await;
    until_all_are(&world, "blue", 2).await;
    let rollback_to = async |revision: i64| {
        edit(&world, json!({"rollbackTo": {"revision": revision}})).await;
        world
            .until("the rollback is done", async |w| {
                w.deployments().get("w").await.expect("it exists").spec.rollback_to.is_none()
            })
            .await;
    };
    rollback_to(0).await;
    until_all_are(&world, "red", 2).await;
    let deployment = world.deployments().get("w").await.expect("it exists");
    let labels = &deployment.spec.template.metadata.labels;
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["color", "name"], "the hash of the set stays there");
    let [event] = world.events("DeploymentRollback").await.try_into().expect("one Event");
    assert!(
        event.message.is_some_and(|message| message.starts_with("Rolled back to the template of revision"))
    );

    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let before = sets.list(&ListParams::default()).await.expect("a list").items.len();
    rollback_to(99).await;
    let [event] = world.events("DeploymentRollbackRevisionNotFound").await.try_into().expect("one Event");
    assert!(event.message.is_some_and(|message| message.contains("There is no revision 99")));
    until_all_are(&world, "red", 2).await;
    assert_eq!(sets.list(&ListParams::default()).await.expect("a list").items.len(), before);
}
