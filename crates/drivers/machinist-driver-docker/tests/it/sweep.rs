//! Ends the process, or breaks a request, at each request to the engine in turn. The next attempt
//! must complete the work: one container per object, one bootstrap, and nothing left at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::{Balancers, Bootstrap, Driver, Provider as _};
use machinist_instance::{
    BalancerKey, BalancerRef, BalancerSpec, BalancerTarget, BootstrapData, BootstrapFormat, BootstrapState,
    Credential, Error, ErrorKind, InstanceKey, InstanceRef, InstanceSpec, Listener, NodeName, Place,
    Progress, Readiness, Sighting, TransportProtocol, UserData,
};
use serde_json::json;

use crate::memory::{Fault, Memory};

/// More attempts than one fault needs.
const MAX_ATTEMPTS: usize = 5;

/// Each part of a life needs more requests than this.
const FEWEST_REQUESTS: usize = 25;

fn key() -> InstanceKey {
    InstanceKey::new("uid-of-machine")
}

fn machine() -> InstanceSpec {
    InstanceSpec {
        key: key(),
        name: NodeName::new("c-cp").expect("not empty"),
        cluster: "c".to_owned(),
        provider_spec: json!({"image": "node:1", "privileges": "none", "role": "control-plane"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

fn balancer(driver: &dyn Driver) -> &dyn Balancers {
    driver.balancers().expect("this driver has balancers")
}

fn balancer_key() -> BalancerKey {
    BalancerKey::new("uid-of-cluster")
}

/// One call after another, as the controllers make them. Each may be repeated.
async fn create(driver: &dyn Driver) -> Result<(), Error> {
    let made = driver.instances().ensure(&machine()).await?;
    let which = InstanceRef { id: Some(made.id.clone()), key: Some(key()), ..InstanceRef::default() };
    let spec = BalancerSpec {
        key: balancer_key(),
        claim: Default::default(),
        id: None,
        native_id: None,
        name: "c-lb".to_owned(),
        listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 6443, target_port: 6443 }],
        targets: vec![BalancerTarget { node: "c-cp".to_owned(), instance: made.id, weight: 100 }],
        options: BTreeMap::new(),
    };
    let Progress::Done(ensured) = balancer(driver).ensure(&spec).await? else { return Err(not_yet()) };
    assert_eq!(ensured.notes, []);
    let bootstrap = driver.bootstrap().expect("containers have no user data");
    assert_eq!(bootstrap.readiness(&which).await?, Readiness::Ready);
    bootstrapped(bootstrap, &which).await
}

async fn bootstrapped(bootstrap: &dyn Bootstrap, which: &InstanceRef) -> Result<(), Error> {
    let data = BootstrapData {
        format: BootstrapFormat::CloudConfig,
        value: UserData::new("#cloud-config\nruncmd: [echo a]\n"),
        timeout: Duration::from_secs(60),
    };
    if bootstrap.progress(which).await?.state == BootstrapState::NotStarted {
        bootstrap.start(which, &data).await?;
    }
    match bootstrap.progress(which).await?.state {
        BootstrapState::Succeeded => Ok(()),
        other => panic!("expected a bootstrap that ended, got {other:?}"),
    }
}

async fn delete(driver: &dyn Driver) -> Result<(), Error> {
    let which = InstanceRef { key: Some(key()), ..InstanceRef::default() };
    #[expect(clippy::disallowed_methods, reason = "the test owns the container")]
    driver.instances().delete(&which, &key()).await?;
    assert_eq!(driver.instances().find(&which).await?, Sighting::Absent);
    let which = BalancerRef { id: None, key: balancer_key(), native_id: None, trace: None };
    balancer(driver).delete(&which).await?.done().map(drop).ok_or_else(not_yet)
}

fn not_yet() -> Error {
    Error::new(ErrorKind::Unavailable, "not yet")
}

/// Repeats a part of a life until it succeeds. A death begins a new process.
async fn live(engine: &Memory, what: &str, part: impl AsyncFn(&dyn Driver) -> Result<(), Error>) {
    for _ in 0..MAX_ATTEMPTS {
        let (process, credential) = (engine.process(), Credential::default());
        let driver: Arc<dyn Driver> = process
            .open(&process.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
            .expect("a socket needs no credential");
        let ended = tokio::select! {
            biased;
            () = engine.died() => None,
            ended = part(&*driver) => Some(ended),
        };
        match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => {
                let may_be_repeated = matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Ambiguous);
                assert!(may_be_repeated, "{what}: {error}");
            }
            None => {}
        }
    }
    panic!("{what}: not complete after {MAX_ATTEMPTS} attempts");
}

async fn sweep(fault: Fault) {
    for request in 0.. {
        let engine = Memory::start().await;
        engine.fails_at(request, fault);
        let what = format!("{fault:?} at request {request}");
        live(&engine, &what, create).await;
        {
            let state = engine.state();
            let mut names: Vec<&str> =
                state.containers.values().map(|container| container.name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["c-cp", "c-lb"], "{what}");
            assert!(state.containers.values().all(|container| container.is_running), "{what}");
            let node = state.containers.values().find(|container| container.name == "c-cp").expect("listed");
            assert_eq!(node.bootstraps, 1, "{what}");
            let networks: Vec<&String> = state.networks.keys().collect();
            assert_eq!(networks, ["kind"], "{what}");
        }
        live(&engine, &what, delete).await;
        let state = engine.state();
        assert!(state.containers.is_empty(), "{what}");
        assert!(state.volumes.is_empty(), "{what}: {:?}", state.volumes);
        drop(state);
        if engine.has_fault() {
            assert!(FEWEST_REQUESTS < request, "only {request} requests");
            return;
        }
    }
}

#[tokio::test]
async fn a_death_before_any_request_duplicates_nothing() {
    sweep(Fault::DiesBefore).await;
}

#[tokio::test]
async fn a_death_after_any_request_duplicates_nothing() {
    sweep(Fault::DiesAfter).await;
}

#[tokio::test]
async fn a_refusal_of_any_request_duplicates_nothing() {
    sweep(Fault::Refuses).await;
}

#[tokio::test]
async fn a_lost_request_duplicates_nothing() {
    sweep(Fault::LosesRequest).await;
}

#[tokio::test]
async fn a_lost_answer_duplicates_nothing() {
    sweep(Fault::LosesAnswer).await;
}
