//! Tests with an admission webhook that changes every new Machine.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::{ServiceExt as _, service_fn};

use super::*;

/// A client of the manager. A webhook changes the new objects of that path while `is_on`.
fn webhook_client(
    world: &World,
    is_on: Arc<AtomicBool>,
    path: &'static str,
    change: fn(&mut Value),
) -> kube::Client {
    let service = world.service();
    let pass = move |request: Request<Body>| {
        let (service, is_on) = (service.clone(), is_on.clone());
        async move {
            let is_creation = request.method() == Method::POST && request.uri().path().ends_with(path);
            if !is_creation || !is_on.load(Ordering::Relaxed) {
                return Ok::<_, tower::BoxError>(service.oneshot(request).await?);
            }
            let (parts, body) = request.into_parts();
            let mut object = serde_json::from_slice(&body.collect().await?.to_bytes())?;
            change(&mut object);
            let changed = Request::from_parts(parts, Body::from(serde_json::to_vec(&object)?));
            Ok(service.oneshot(changed).await?)
        }
    };
    layer_client(service_fn(pass), &world.client_options("manager"))
}

async fn loses_all(change: fn(&mut Value), expected: &str) {
    let world = World::new().await;
    let is_on = Arc::new(AtomicBool::new(true));
    let client = webhook_client(&world, is_on.clone(), "/machines", change);
    let clients = Clients { control: client.clone(), target: client };
    let _manager = Manager::start(clients, world.options("manager"), None);
    world.apply(20).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let made = world.machines().await.len();
    // One at a time: three at once, and the others after 1, 2, 4, 8, 16 and 32 minutes.
    assert!((4..=9).contains(&made), "{made} Machines were made in an hour");
    let events = world.events("FailedCreate").await;
    let told =
        events.iter().any(|event| event.message.as_deref().is_some_and(|text| text.contains(expected)));
    assert!(told, "{events:?}");
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let set = sets.list(&ListParams::default()).await.expect("a list").items.remove(0);
    let message =
        set.status.and_then(|status| status.conditions.first()?.message.clone()).expect("a condition");
    assert!(message.contains(expected), "{message}");
    is_on.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    world.until("the set has its Machines", async |w| w.machines().await.len() == made + 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_changes_labels_causes_no_flood() {
    let relabel = |machine: &mut Value| machine["metadata"]["labels"]["name"] = "other".into();
    loses_all(relabel, "changes metadata.labels").await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_changes_owners_causes_no_flood() {
    let take_over = |machine: &mut Value| {
        machine["metadata"]["ownerReferences"][0]["uid"] = "8c1f0a52-5d0e-4c39-9a3f-111111111111".into();
    };
    loses_all(take_over, "changes metadata.ownerReferences").await;
}

/// The first set may get all its Machines. The others stay empty.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_changes_sets_causes_no_flood() {
    let world = World::new().await;
    let relabel = |set: &mut Value| set["metadata"]["labels"]["name"] = "other".into();
    let client = webhook_client(&world, Arc::new(AtomicBool::new(true)), "/machinesets", relabel);
    let clients = Clients { control: client.clone(), target: client };
    let _manager = Manager::start(clients, world.options("manager"), None);
    world.apply(20).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let made = world.machines().await.len();
    assert_eq!(made, 20, "the Machines of the first set");
    let told = world.events("MachineSetCreateError").await;
    let explains =
        |event: &Event| event.message.as_deref().is_some_and(|text| text.contains("changes its metadata"));
    assert!(told.iter().any(explains), "{told:?}");
}
