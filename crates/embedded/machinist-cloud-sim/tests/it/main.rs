//! Tests of the cloud as its callers and its observers see it.

mod admin;
mod behaviour;
mod durability;

use std::time::Duration;

use jiff::Timestamp;
use machinist_cloud_sim::{
    Clock, Cloud, CloudRefusal, CreateRequest, DeleteRequest, NoAnswer, Reply, Request, Settings,
};
use machinist_instance::{Instance, InstanceKey, InstanceRef, NodeName, UserData};

fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a time"))
}

fn cloud(settings: Settings) -> Cloud {
    Cloud::in_memory(settings, clock())
}

fn create(name: &str) -> CreateRequest {
    CreateRequest {
        key: InstanceKey::new(format!("uid-of-{name}")),
        name: NodeName::new(name).expect("not empty"),
        cluster: "c".to_owned(),
        instance_type: "m5.large".to_owned(),
        region: None,
        zone: None,
        image: None,
        boot_seconds: None,
        user_data: UserData::new("secret-of-the-machine"),
        tags: Default::default(),
        adopt_made_since: None,
    }
}

async fn call(cloud: &Cloud, request: Request) -> Result<Reply, CloudRefusal> {
    cloud.call(None, request).await.expect("an answer")
}

async fn ensure(cloud: &Cloud, request: CreateRequest) -> Result<Instance, CloudRefusal> {
    match call(cloud, Request::Ensure(request)).await? {
        Reply::Instance(instance) => Ok(instance),
        other => panic!("ensure answers with an instance, not {other:?}"),
    }
}

async fn find(cloud: &Cloud, which: InstanceRef) -> Option<Instance> {
    match call(cloud, Request::Find(which)).await {
        Ok(Reply::Found(found)) => found,
        other => panic!("find answers with what it found, not {other:?}"),
    }
}

async fn delete(cloud: &Cloud, instance: &Instance) -> Result<Reply, CloudRefusal> {
    let owner = instance.key.clone().unwrap_or_else(|| InstanceKey::new("unknown"));
    call(cloud, Request::Delete(DeleteRequest { which: by_id(instance), owner })).await
}

fn by_id(instance: &Instance) -> InstanceRef {
    InstanceRef { id: Some(instance.id.clone()), ..InstanceRef::default() }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asserts that the answer was lost.
fn lost<T: std::fmt::Debug>(answer: Result<T, NoAnswer>) {
    assert!(matches!(answer, Err(NoAnswer::Lost(_))), "{answer:?}");
}
