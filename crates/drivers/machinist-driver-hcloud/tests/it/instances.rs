//! Instances: lookups, ownership and the mapping of a server that the API shows.

use std::sync::Arc;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_hcloud::{AddressFamily, HcloudOptions};
use machinist_instance::{
    AddressKind, Credential, Error, ErrorKind, InstanceRef, NodeName, Place, Power, ProviderId, Scope,
    Sighting,
};
use machinist_standin_hcloud::{Fault, FaultRule, Network, ServerStatus};
use tokio::time::Instant;

use crate::cloud::{Cloud, NETWORK, PROJECT, instance_spec, options, settings};

fn by_id(id: i64) -> InstanceRef {
    InstanceRef { id: ProviderId::parse(&format!("hcloud://{id}")).ok(), ..InstanceRef::default() }
}

#[tokio::test(start_paused = true)]
async fn lookups_by_id_and_by_name_find_or_prove_absence() {
    let cloud = Cloud::instant();
    let server = cloud.server("w-1");
    let driver = cloud.driver();
    let by_name = |name| InstanceRef { name: NodeName::new(name), ..InstanceRef::default() };
    for which in [by_id(server.id), by_name("w-1")] {
        let found = driver.instances().find(&which).await.expect("an answer");
        assert!(matches!(found, Sighting::Present(_)), "{which}: {found:?}");
    }
    for which in [by_id(server.id + 1), by_name("w-2")] {
        assert_eq!(driver.instances().find(&which).await, Ok(Sighting::Absent), "{which}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_never_proves_absence() {
    let cloud = Cloud::instant();
    let server = cloud.server("w-1");
    let driver = cloud.driver();
    let error = |code: &str| Fault::Error { code: code.to_owned(), status: None };
    let faults = [
        (Fault::Html404, ErrorKind::Unavailable),
        (Fault::Bare { status: 404 }, ErrorKind::Unavailable),
        (Fault::Bare { status: 502 }, ErrorKind::Unavailable),
        (error("unauthorized"), ErrorKind::Denied),
        (error("server_error"), ErrorKind::Unavailable),
        (Fault::Truncate, ErrorKind::Unavailable),
        (Fault::Reset, ErrorKind::Unavailable),
        (Fault::Hang { span: std::time::Duration::from_secs(60) }, ErrorKind::Unavailable),
    ];
    for (fault, kind) in faults {
        cloud.standin.add_fault(FaultRule::once("GET", "/v1/servers/{id}", fault.clone()));
        let found = driver.instances().find(&by_id(server.id)).await;
        assert_eq!(found.map_err(|error| error.kind), Err(kind), "{fault:?}");
    }
    cloud.standin.set_rate(PROJECT, 3600, 0);
    let throttled = driver.instances().find(&by_id(server.id)).await.expect_err("throttled");
    assert!(matches!(throttled.kind, ErrorKind::Throttled { retry_after: Some(_) }), "{throttled}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_after_fifteen_seconds() {
    let cloud = Cloud::instant();
    let server = cloud.server("w-1");
    let span = std::time::Duration::from_secs(600);
    cloud.standin.add_fault(FaultRule::once("GET", "/v1/servers/{id}", Fault::Hang { span }));
    let began = Instant::now();
    let driver = cloud.driver();
    let error = driver.instances().find(&by_id(server.id)).await.expect_err("no answer");
    assert_eq!(began.elapsed().as_secs(), 15);
    assert!(error.message.contains("no answer within 15 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_is_present_in_every_status() {
    let cloud = Cloud::instant();
    let server = cloud.server("w-1");
    let driver = cloud.driver();
    let cases = [
        (ServerStatus::Off, Power::Stopped),
        (ServerStatus::Running, Power::Running),
        (ServerStatus::Migrating, Power::Changing),
        (ServerStatus::Deleting, Power::Deleting),
    ];
    for (status, power) in cases {
        cloud.standin.change_server(server.id, |server| server.status = status).expect("it exists");
        match driver.instances().find(&by_id(server.id)).await {
            Ok(Sighting::Present(instance)) => assert_eq!(instance.power, power),
            other => panic!("{status:?}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_network_is_found_by_name_once() {
    let cloud = Cloud::instant();
    let server = cloud.server("w-1");
    let driver = cloud.driver();
    for _ in 0..3 {
        let Ok(Sighting::Present(instance)) = driver.instances().find(&by_id(server.id)).await else {
            panic!("the server exists")
        };
        let kinds: Vec<AddressKind> = instance.addresses.iter().map(|address| address.kind).collect();
        assert_eq!(kinds, [AddressKind::Hostname, AddressKind::ExternalIP, AddressKind::InternalIP]);
    }
    assert_eq!(cloud.standin.counters().get("GET /v1/networks"), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn a_network_that_does_not_exist_is_named() {
    let cloud = Cloud::with(settings(), HcloudOptions { network: Some("nowhere".to_owned()), ..options() });
    let error = cloud.driver().instances().list(&Scope::Visible).await.expect_err("no network");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("HCLOUD_NETWORK") && error.message.contains("nowhere"), "{error}");
}

/// A network was deleted and made again under the configured name.
#[tokio::test(start_paused = true)]
async fn another_network_with_the_configured_name_is_found() {
    async fn internal(driver: &Arc<dyn Driver>) -> Result<usize, Error> {
        let instances = driver.instances().list(&Scope::Visible).await?;
        let addresses = instances.iter().flat_map(|instance| &instance.addresses);
        Ok(addresses.filter(|address| address.kind == AddressKind::InternalIP).count())
    }
    let cloud = Cloud::instant();
    cloud.server("w-1");
    let driver = cloud.driver();
    let searches = || cloud.standin.counters().get("GET /v1/networks").copied().unwrap_or_default();
    assert_eq!(internal(&driver).await, Ok(1));
    assert_eq!(internal(&driver).await, Ok(1));
    assert_eq!(searches(), 1, "the server shows the network");

    let mut state = cloud.standin.dump();
    let network = state.networks.remove(&NETWORK).expect("it exists");
    let mut without = state.clone();
    without.servers.values_mut().for_each(|server| server.private_net.clear());
    let id = NETWORK + 100;
    state.networks.insert(id, Network { id, ..network });
    let nets = state.servers.values_mut().flat_map(|server| &mut server.private_net);
    nets.for_each(|net| net.network = id);

    cloud.standin.load(without).expect("in memory");
    let error = internal(&driver).await.expect_err("the network does not exist");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert_eq!(driver.misconfigured(), Some(error.message));
    assert_eq!(searches(), 2, "one for each list");

    cloud.standin.load(state).expect("in memory");
    assert_eq!(internal(&driver).await, Ok(1), "of the network with the other id");
    assert_eq!(driver.misconfigured(), None);
    assert_eq!(searches(), 3);
}

/// A newer API does not show the data center of a server.
#[tokio::test(start_paused = true)]
async fn dual_stack_shows_both_external_addresses() {
    let cloud =
        Cloud::with(settings(), HcloudOptions { address_family: AddressFamily::DualStack, ..options() });
    let server = cloud.server("w-1");
    for has_data_center in [false, true] {
        cloud.standin.configure(|settings| settings.datacenter = has_data_center);
        let Ok(Sighting::Present(instance)) = cloud.driver().instances().find(&by_id(server.id)).await else {
            panic!("the server exists")
        };
        let external = instance.addresses.iter().filter(|address| address.kind == AddressKind::ExternalIP);
        let external: Vec<bool> = external.map(|address| address.address.ends_with("::1")).collect();
        assert_eq!(external, [false, true], "{:?}", instance.addresses);
        assert_eq!(instance.zone.as_deref(), Some("fsn1-dc14"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_server_costs_one_read_and_one_creation() {
    let cloud = Cloud::with(settings(), HcloudOptions { network: None, ..options() });
    cloud.driver().instances().ensure(&instance_spec("w-1")).await.expect("created");
    assert_eq!((cloud.reads(), cloud.changes()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_missing_image_is_a_wrong_spec() {
    let cloud = Cloud::instant();
    let mut spec = instance_spec("w-1");
    spec.provider_spec["image"] = "no-such-image".into();
    let error = cloud.driver().instances().ensure(&spec).await.expect_err("no image");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("field image"), "{error}");
    assert!(error.message.starts_with("invalid_input: "), "no path and no id of a request: {error}");
}

#[test]
fn a_credential_needs_a_token_that_fits_a_header() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _guard = runtime.enter();
    let cloud = Cloud::instant();
    let open = |entry: &str, token: &str| {
        let credential = Credential::new([(entry.to_owned(), token.as_bytes().to_vec())].into());
        cloud
            .provider
            .open(&cloud.provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
            .map(drop)
    };
    assert_eq!(open("token", "secret\n"), Ok(()));
    assert_eq!(open("hcloudToken", "secret"), Ok(()));
    for (entry, token) in [("token", ""), ("token", "two\nlines"), ("password", "secret")] {
        let error = open(entry, token).expect_err("no usable token");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(!error.message.contains("secret") && !error.message.contains("lines"), "{error}");
    }
}
