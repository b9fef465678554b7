//! The fake as a subject of the contract.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::Provider;
use machinist_driver::contract::{DriverVerb, Hook, Subject, Trouble};
use machinist_driver_openstack::PROMISES;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, ProviderId, VolumeSource};
use serde_json::{Value, json};

use crate::cloud::{Cloud, OTHER_USER, credential, native, users};
use crate::fake::{FaultKind, Settings};

/// Settings for the contract.
pub(crate) fn settings() -> Settings {
    Settings { page: 3, ..Settings::default() }
}

#[async_trait]
impl Subject for Cloud {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        Self::account(self)
    }

    fn another_account(&self) -> Option<Credential> {
        Some(credential(OTHER_USER))
    }

    fn provider_spec(&self) -> Value {
        self.class.clone()
    }

    fn elsewhere(&self) -> Option<Value> {
        let mut class = self.class.clone();
        class["spec"]["region"] = json!("eu-de-2");
        Some(class)
    }

    fn uninitialized_spec(&self) -> Option<Value> {
        let mut class = self.class.clone();
        class["spec"]["subnetIDs"] = json!([]);
        Some(class)
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        let mut class = self.class.clone();
        class["spec"]["rootDiskSize"] = json!("50");
        (class, "providerSpec.spec.rootDiskSize")
    }

    fn volumes(&self) -> Vec<VolumeSource> {
        let volume = |plugin: &str, id: &str| VolumeSource { plugin: plugin.to_owned(), id: id.to_owned() };
        vec![volume("cinder.csi.openstack.org", "v-1"), volume("kubernetes.io/cinder", "v-2")]
    }

    fn other_spellings(&self, id: &ProviderId) -> Vec<String> {
        let id = native(id);
        vec![format!("openstack:///{id}"), format!("openstack://eu-nl-1/{id}")]
    }

    fn foreign_ids(&self) -> Vec<String> {
        ["hcloud://1", "aws:///eu/i-1", "machine-w-1"].map(str::to_owned).into()
    }

    fn malformed_ids(&self) -> Vec<String> {
        ["openstack://", "openstack:///eu-nl-1/", "openstack:///eu-nl-1/1"].map(str::to_owned).into()
    }

    fn run_id(&self) -> String {
        "run-1".to_owned()
    }

    fn now(&self) -> Timestamp {
        // Creation times of servers have no fractions of a second.
        Timestamp::from_second(self.fake.now().as_second()).expect("a valid second")
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    async fn inject(&self, trouble: Trouble) -> Hook {
        let set = |change: fn(&mut Settings)| change(&mut self.fake.lock().settings);
        match trouble {
            Trouble::ErrorAfterEffect(verb) => {
                self.fake.inject(action(verb), FaultKind::EffectThenStatus(500))
            }
            Trouble::SilenceAfterEffect(verb) => self.fake.inject(action(verb), FaultKind::EffectThenSilence),
            Trouble::LateEffect(verb) => {
                let after = PROMISES.call_bound - Duration::from_secs(1);
                self.fake.inject(action(verb), FaultKind::LateEffect(after));
            }
            // Each call begins with a list.
            Trouble::Outage(_) => {
                self.fake.inject("GET /servers/detail", refuse(503, "computeFault", "down"))
            }
            Trouble::Throttled(verb) => {
                let kind = FaultKind::Refuse {
                    status: 429,
                    name: "overLimit",
                    text: "too many requests",
                    retry_after: Some(5),
                };
                self.fake.inject(action(verb), kind);
            }
            Trouble::SlowReads => set(|settings| settings.lag = PROMISES.visible_within),
            Trouble::SlowDeletion => set(|settings| settings.deletion = PROMISES.call_bound * 3),
            Trouble::RevokedCredential => {
                let mut state = self.fake.lock();
                state.users.clear();
                state.tokens.clear();
            }
            Trouble::QuotaUsedUp => set(|settings| settings.quota = Some(0)),
            // Nova accepts the server, and reports the missing host later.
            Trouble::StockUsedUp => return Hook::Missing,
            Trouble::RefusedAfterParts => {
                self.fake.inject("POST /servers", refuse(400, "badRequest", "Invalid key_name provided."));
            }
        }
        Hook::Arranged
    }

    async fn clear_trouble(&self) {
        let mut state = self.fake.lock();
        state.faults.clear();
        state.settings = Settings { volume: state.settings.volume, ..settings() };
        state.users = users();
    }

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        let id = self.made_by_go(name.as_str());
        self.fake.change_server(native(&id), |server| server.created = created);
        self.port_of_go(name.as_str(), native(&id));
        Hook::Arranged
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        Some(self.fake.alive(key.as_str()))
    }

    async fn changing_requests(&self) -> Option<u64> {
        let actions = self.fake.actions();
        let changes =
            actions.iter().filter(|action| !action.starts_with("GET") && !action.contains("/auth/"));
        u64::try_from(changes.count()).ok()
    }
}

pub(crate) fn refuse(status: u16, name: &'static str, text: &'static str) -> FaultKind {
    FaultKind::Refuse { status, name, text, retry_after: None }
}

/// The request by which the driver makes a call.
fn action(verb: DriverVerb) -> &'static str {
    match verb {
        DriverVerb::Ensure => "POST /servers",
        DriverVerb::Find | DriverVerb::List => "GET /servers/detail",
        DriverVerb::Delete => "DELETE /servers/ID",
    }
}
