//! Tests of the account of an instance: it is recorded, and compared when the Secret changes.

use std::collections::BTreeMap;

use machinist_instance::{Place, ProviderId};
use machinist_plan::facts::ACCOUNT;

use super::*;

const OURS: &str = "dG9rZW4tb2Ytb3Vycw==";
const RENEWED: &str = "cmVuZXdlZC10b2tlbg==";
const OTHER: &str = "dG9rZW4tb2Ytb3RoZXJz";

/// Starts a world with one running Machine, created with the token [`OURS`]. [`RENEWED`] opens the
/// same project, and [`OTHER`] another one.
async fn running_in_a_project() -> (World, (Running, Running)) {
    let world = World::new().await;
    world.cloud.configure(|settings| {
        let projects = [("token-of-ours", "ours"), ("renewed-token", "ours"), ("token-of-others", "others")];
        settings.projects.extend(projects.map(|(token, project)| (token.to_owned(), project.to_owned())));
    });
    world.apply(0).await;
    set_token(&world, OURS).await;
    let processes = world.start();
    world.scale(1).await;
    world.until_running(1).await;
    (world, processes)
}

async fn set_token(world: &World, token: &str) {
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"data": {"token": token}}));
    secrets.patch("s", &PatchParams::default(), &patch).await.expect("the Secret is accepted");
}

fn reason(controller: &Running, machine: &str) -> String {
    let key = Key::Machine(ObjectKey::new(NAMESPACE, machine));
    controller.inspector().why(&key).map(|record| record.why.to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn the_account_is_recorded_with_the_provider_id() {
    let (world, _processes) = running_in_a_project().await;
    let machine = world.machines().await.remove(0);
    let annotations = machine.metadata.annotations.clone().unwrap_or_default();
    let recorded = annotations.get(ACCOUNT).expect("the account is recorded");
    let credential = Credential::new(BTreeMap::from([("token".to_owned(), b"token-of-ours".to_vec())]));
    let provider = SimProvider::in_process(world.cloud.clone());
    assert_eq!(recorded, provider.account(&credential, &Place::WHOLE).as_str());
    assert!(!serde_json::to_string(&machine).expect("json").contains("token-of-ours"));
    let calls = world.cloud.call_counts();
    assert_eq!(
        calls.get(&machinist_cloud_sim::Operation::List),
        None,
        "no list is needed without a second account"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewed_credential_causes_one_lookup_and_no_wait() {
    let (world, _processes) = running_in_a_project().await;
    set_token(&world, RENEWED).await;
    world.scale(0).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn with_another_account_a_deletion_waits_and_reports_why() {
    let (world, (controller, _manager)) = running_in_a_project().await;
    let name = world.machines().await.remove(0).metadata.name.unwrap_or_default();
    set_token(&world, OTHER).await;
    world.scale(0).await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (1, 1));
    let why = reason(&controller, &name);
    assert!(why.contains("the credential in Secret default/s seems to open another account"), "{why}");
    assert!(why.contains("or set label force-deletion=true"), "{why}");
    let lists = world.cloud.call_counts()[&machinist_cloud_sim::Operation::List];
    assert!(lists <= 5, "the account was listed {lists} times in 20 minutes");
    assert_eq!(world.events("FailedDelete").await.len(), 1, "the Event is emitted once");

    set_token(&world, OURS).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn force_deletion_reports_the_instance_it_leaves_behind() {
    let (world, _processes) = running_in_a_project().await;
    let machine = world.machines().await.remove(0);
    let id = machine.spec.provider_id().expect("the machine has an instance").to_owned();
    set_token(&world, OTHER).await;
    world.scale(0).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    let name = machine.metadata.name.unwrap_or_default();
    let label = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
    machines.patch(&name, &PatchParams::default(), &label).await.expect("labelled");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (0, 1));
    let events = world.events("InstanceLeftBehind").await;
    let expected = format!("Instance {id} may be left behind: Secret default/s may open another account");
    let messages: Vec<_> = events.iter().filter_map(|event| event.message.clone()).collect();
    assert!(messages.iter().any(|message| message.starts_with(&expected)), "{messages:?}");
}

/// For Machines of another program, one sibling that the account shows is enough evidence, even if
/// their ids are spelled differently.
#[tokio::test(start_paused = true)]
async fn a_sibling_is_recognized_by_another_spelling_of_its_id() {
    let world = World::new().await;
    world.apply(0).await;
    for number in [1, 2] {
        let (name, id) = (format!("m{number}"), format!("sim:///i-{number}"));
        world.leave_machine(&name, &format!("sim:///sim-1a/i-{number}")).await;
        world.leave_instance(&name, Some(&id), 0);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let _processes = world.start();
    world.until_running(2).await;
    let gone = ProviderId::parse("sim:///i-2").expect("not empty");
    world.cloud.kill(&gone).expect("the instance exists");
    world.delete_machine("m2").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (1, 1));
}
