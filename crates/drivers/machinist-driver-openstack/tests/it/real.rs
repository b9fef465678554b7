//! The driver with a counterpart that is another program: an OpenStack whose settings are in the
//! JSON file that `MACHINIST_OPENSTACK` names. Without the variable, the tests print that they are
//! skipped.
//!
//! | Field of the file | |
//! |---|---|
//! | `authURL`, `username`, `password`, `project`, `domain` | the login; `domain` and `project` are names |
//! | `region`, `availabilityZone` | the place of instances |
//! | `imageID`, `flavorName`, `keyName`, `securityGroup` | what an instance is made from |
//! | `networkID`, `subnetID` | the network of its port |
//! | `volumeType` | type of a root volume; without it, no test makes a volume |
//!
//! The tests delete what they make. They need a quota of 20 servers, 20 ports and one volume.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use machinist_driver::contract::{Hook, Subject, Trouble, run};
use machinist_driver::{Driver, Provider};
use machinist_driver_http::{Http, Transport as _};
use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider};
use machinist_instance::{
    AccountId, Credential, Error, ErrorKind, Instance, InstanceKey, InstanceSpec, NodeName, Place, Power,
    ProviderId, Scope, Sighting, VolumeSource,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cloud::{MARKS, instance_spec, native, of_machine, secret};

/// The longest wait for work of the cloud, in seconds.
const PATIENCE: usize = 120;

/// Number of instances that live at the same time.
const MANY: usize = 10;

struct Real {
    settings: Value,
    provider: OpenStackProvider,
    raw: OnceCell<Raw>,
    /// The URLs of the servers that another program made.
    foreign: Mutex<Vec<String>>,
}

/// The token, the URL of Nova and the flavor that another program needs to create a server.
struct Raw {
    token: String,
    nova: String,
    flavor: String,
}

impl Real {
    /// Reads the settings. `None` without the variable.
    fn prepare() -> Option<Self> {
        let Ok(path) = std::env::var("MACHINIST_OPENSTACK") else {
            println!("skipped: MACHINIST_OPENSTACK is not set");
            return None;
        };
        let text = std::fs::read_to_string(&path).expect("MACHINIST_OPENSTACK names a file");
        let settings: Value = serde_json::from_str(&text).expect("a JSON object");
        let region = settings["region"].as_str().map(str::to_owned);
        Some(Self {
            settings,
            provider: OpenStackProvider::new(OpenStackOptions { region }),
            raw: OnceCell::new(),
            foreign: Mutex::default(),
        })
    }

    fn text(&self, name: &str) -> &str {
        self.settings[name].as_str().unwrap_or_else(|| panic!("{name}: expected text"))
    }

    fn credential(&self) -> Credential {
        secret(&[
            ("authURL", self.text("authURL")),
            ("username", self.text("username")),
            ("password", self.text("password")),
            ("domainName", self.text("domain")),
            ("tenantName", self.text("project")),
        ])
    }

    /// Sends a request as another program, and returns the answer.
    async fn ask(&self, method: &str, url: &str, token: &str, body: &Value) -> Response<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .header("x-auth-token", token)
            .body(Bytes::from(body))
            .expect("a request");
        let answer = Http::plain().send(request).await.expect("an answer");
        answer.map(|body| serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn raw(&self) -> &Raw {
        let log_in = async || {
            let domain = json!({"name": self.text("domain")});
            let user = json!({
                "name": self.text("username"), "password": self.text("password"), "domain": domain,
            });
            let project = json!({"name": self.text("project"), "domain": domain});
            let identity = json!({"methods": ["password"], "password": {"user": user}});
            let body = json!({"auth": {"identity": identity, "scope": {"project": project}}});
            let url = format!("{}/auth/tokens", self.text("authURL"));
            let answer = self.ask("POST", &url, "", &body).await;
            let token = answer.headers()["x-subject-token"].to_str().expect("text").to_owned();
            let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let catalog = all(&answer.body()["token"]["catalog"]);
            let compute = catalog.iter().find(|service| service["type"] == "compute").expect("Nova");
            let endpoints = all(&compute["endpoints"]);
            let is_public = |endpoint: &&Value| {
                endpoint["interface"] == "public" && endpoint["region"] == self.text("region")
            };
            let nova = endpoints.iter().find(is_public).expect("an endpoint")["url"].clone();
            let nova = nova.as_str().expect("a URL").to_owned();
            let flavors = self.ask("GET", &format!("{nova}/flavors/detail"), &token, &Value::Null).await;
            let flavors = all(&flavors.body()["flavors"]);
            let flavor = flavors.iter().find(|flavor| flavor["name"] == self.text("flavorName"));
            let flavor = flavor.expect("the flavor")["id"].as_str().expect("an id").to_owned();
            Raw { token, nova, flavor }
        };
        self.raw.get_or_init(log_in).await
    }

    /// Deletes what another program made. The suite deletes only what it made itself.
    async fn delete_foreign(&self) {
        let made = std::mem::take(&mut *self.foreign.lock().unwrap_or_else(PoisonError::into_inner));
        for server in made {
            let raw = self.raw().await;
            self.ask("DELETE", &server, &raw.token, &Value::Null).await;
        }
    }

    fn driver(&self) -> Arc<dyn Driver> {
        let (account, credential) = self.account();
        self.provider.open(&account, &credential, &Place::WHOLE).expect("a credential")
    }

    fn class(&self) -> Value {
        json!({
            "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig",
            "spec": {
                "imageID": self.text("imageID"), "region": self.text("region"),
                "availabilityZone": self.text("availabilityZone"),
                "flavorName": self.text("flavorName"), "keyName": self.text("keyName"),
                "securityGroups": [self.text("securityGroup")], "networkID": self.text("networkID"),
                "subnetIDs": [self.text("subnetID")], "podNetworkCIDRs": ["100.96.0.0/11"],
                "tags": {MARKS[0].0: "1", MARKS[1].0: "1"},
            },
        })
    }

    /// A class with a root volume of our own, if the counterpart has a type of volumes.
    fn class_with_volume(&self) -> Option<Value> {
        let volume_type = self.settings["volumeType"].as_str().filter(|text| !text.is_empty())?;
        let mut class = self.class();
        class["spec"]["rootDiskSize"] = json!(1);
        class["spec"]["rootDiskType"] = json!(volume_type);
        Some(class)
    }
}

/// A text that no other run against the counterpart uses.
#[expect(clippy::disallowed_methods, reason = "the counterpart has the clock of the computer")]
fn run_id() -> String {
    static OF_PROCESS: OnceLock<String> = OnceLock::new();
    OF_PROCESS.get_or_init(|| format!("run-{:x}", Timestamp::now().as_millisecond())).clone()
}

#[async_trait]
impl Subject for Real {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        let credential = self.credential();
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    fn another_account(&self) -> Option<Credential> {
        None
    }

    fn provider_spec(&self) -> Value {
        self.class()
    }

    fn uninitialized_spec(&self) -> Option<Value> {
        let mut class = self.class();
        class["spec"]["subnetIDs"] = json!([]);
        Some(class)
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        let mut class = self.class();
        class["spec"]["rootDiskSize"] = json!("50");
        (class, "providerSpec.spec.rootDiskSize")
    }

    fn volumes(&self) -> Vec<VolumeSource> {
        let volume =
            |id: &str| VolumeSource { plugin: "cinder.csi.openstack.org".to_owned(), id: id.to_owned() };
        vec![volume("v-1"), volume("v-2")]
    }

    fn other_spellings(&self, id: &ProviderId) -> Vec<String> {
        vec![format!("openstack:///{}", native(id))]
    }

    fn run_id(&self) -> String {
        run_id()
    }

    #[expect(clippy::disallowed_methods, reason = "the counterpart has the clock of the computer")]
    fn now(&self) -> Timestamp {
        Timestamp::from_second(Timestamp::now().as_second()).expect("a valid second")
    }

    /// The counterpart shows changes at once, so no promise is waited for in full.
    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span.min(Duration::from_secs(2))).await;
    }

    async fn inject(&self, _: Trouble) -> Hook {
        Hook::Missing
    }

    async fn clear_trouble(&self) {}

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        let raw = self.raw().await;
        let server = json!({
            "name": name.as_str(), "flavorRef": raw.flavor, "imageRef": self.text("imageID"),
            "availability_zone": self.text("availabilityZone"),
            "networks": [{"uuid": self.text("networkID")}],
            "metadata": {MARKS[0].0: "1", MARKS[1].0: "1"},
        });
        let servers = format!("{}/servers", raw.nova);
        let made = self.ask("POST", &servers, &raw.token, &json!({"server": server})).await;
        let Some(id) = made.body()["server"]["id"].as_str() else { return Hook::Missing };
        let server = format!("{servers}/{id}");
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).push(server.clone());
        let shown = self.ask("GET", &server, &raw.token, &Value::Null).await;
        let shown =
            shown.body()["server"]["created"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        if shown == Some(created) {
            return Hook::Arranged;
        }
        // Another second has begun, and Nova cannot create a server in the past.
        self.ask("DELETE", &server, &raw.token, &Value::Null).await;
        Hook::Missing
    }

    async fn truly_alive(&self, _: &InstanceKey) -> Option<usize> {
        None
    }
}

#[tokio::test]
async fn the_driver_keeps_the_contract_with_openstack() {
    let Some(real) = Real::prepare() else { return };
    let report = run(&real).await;
    println!("{report}");
    real.delete_foreign().await;
    assert_eq!(report.failed().count(), 0, "\n{report}");
}

/// Calls again, as the controller does, while the cloud works.
async fn while_in_progress<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..PATIENCE {
        match call().await {
            Ok(value) => return value,
            Err(error) if error.is_in_progress() => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the cloud does not end its work within {PATIENCE} s")
}

#[expect(clippy::disallowed_methods, reason = "the test deletes what it created")]
async fn delete(driver: &dyn Driver, spec: &InstanceSpec, id: &ProviderId) {
    let which = of_machine(spec, Some(id));
    for _ in 0..PATIENCE {
        match driver.instances().delete(&which, &spec.key).await {
            Ok(()) => {}
            // A part is still in use.
            Err(error) if error.kind == ErrorKind::Unavailable => {}
            Err(error) => panic!("{error}"),
        }
        if driver.instances().find(&which).await == Ok(Sighting::Absent) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{which} is not deleted within {PATIENCE} s")
}

async fn live_and_end(real: &Real, class: &Value, number: usize) {
    let driver = real.driver();
    let cluster = format!("{}-{number}", run_id());
    let spec = |number: usize| {
        let spec = instance_spec(&format!("{cluster}-{number}"), class.clone());
        InstanceSpec { cluster: cluster.clone(), ..spec }
    };
    let specs: Vec<InstanceSpec> = (0..number).map(spec).collect();
    let mut made: Vec<Instance> = Vec::new();
    for spec in &specs {
        made.push(while_in_progress(async || driver.instances().ensure(spec).await).await);
    }
    let ids: BTreeSet<&ProviderId> = made.iter().map(|instance| &instance.id).collect();
    assert_eq!(ids.len(), number);
    let initializer = driver.initialization().expect("a driver with initialization");
    for (spec, instance) in specs.iter().zip(&made) {
        let initialize = async || initializer.initialize(&instance.id, &spec.key, &spec.provider_spec).await;
        while_in_progress(initialize).await;
        assert_eq!(driver.instances().ensure(spec).await.map(|again| again.id), Ok(instance.id.clone()));
        match driver.instances().find(&of_machine(spec, None)).await {
            Ok(Sighting::Present(found)) => assert_eq!(found.power, Power::Running),
            other => panic!("{other:?}"),
        }
    }
    let ours = Scope::Ours(cluster.clone());
    assert_eq!(driver.instances().list(&ours).await.expect("a list").len(), number);
    for (spec, instance) in specs.iter().zip(&made) {
        delete(&*driver, spec, &instance.id).await;
    }
    assert!(driver.instances().list(&ours).await.expect("a list").is_empty());
}

#[tokio::test]
async fn many_instances_live_and_end_on_openstack() {
    let Some(real) = Real::prepare() else { return };
    live_and_end(&real, &real.class(), MANY).await;
}

#[tokio::test]
async fn a_root_volume_lives_and_ends_on_openstack() {
    let Some(real) = Real::prepare() else { return };
    match real.class_with_volume() {
        Some(class) => live_and_end(&real, &class, 1).await,
        None => println!("skipped: the counterpart has no type of volumes"),
    }
}
