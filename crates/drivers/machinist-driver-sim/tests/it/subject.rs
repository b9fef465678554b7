//! The simulated cloud as a subject of the contract. It can inject every trouble.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_cloud_sim::{Clock, Cloud, Code, Fault, FaultRule, Foreigner, Operation, Settings, Stockout};
use machinist_driver::Provider;
use machinist_driver::contract::{DriverVerb, Hook, Subject, Trouble};
use machinist_driver_sim::CSI_DRIVER;
use machinist_instance::{
    AccountId, Credential, InstanceKey, NodeName, Place, ProviderId, UserData, VolumeSource,
};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "secret-of-the-account";
const OTHER_TOKEN: &str = "secret-of-another-account";

pub(crate) struct SimSubject {
    pub(crate) cloud: Cloud,
    provider: Box<dyn Provider>,
}

/// A cloud without faults and with two projects. Reads lag by half a second and deletions take a
/// second.
pub(crate) fn settings() -> Settings {
    Settings {
        lag: Duration::from_millis(500),
        delete: Duration::from_secs(1),
        keys_per_zone: true,
        projects: BTreeMap::from([(OTHER_TOKEN.to_owned(), "another".to_owned())]),
        ..Settings::default()
    }
}

pub(crate) fn cloud() -> Cloud {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    Cloud::in_memory(settings(), Clock::starting_at(epoch))
}

impl SimSubject {
    pub(crate) fn new(cloud: Cloud, provider: impl Provider + 'static) -> Self {
        Self { cloud, provider: Box::new(provider) }
    }
}

#[async_trait]
impl Subject for SimSubject {
    fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        let data = BTreeMap::from([("token".to_owned(), TOKEN.as_bytes().to_vec())]);
        let credential = Credential::new(data);
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    fn another_account(&self) -> Option<Credential> {
        let data = BTreeMap::from([("token".to_owned(), OTHER_TOKEN.as_bytes().to_vec())]);
        Some(Credential::new(data))
    }

    fn provider_spec(&self) -> Value {
        json!({"size": "m5.large", "zone": "sim-1b"})
    }

    fn elsewhere(&self) -> Option<Value> {
        Some(json!({"instanceType": "m5.large", "region": "sim-2"}))
    }

    fn other_key_scope(&self) -> Option<Value> {
        Some(json!({"size": "m5.large", "zone": "sim-1c"}))
    }

    fn uninitialized_spec(&self) -> Option<Value> {
        Some(json!({"size": "m5.large", "initialize": true}))
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        (json!({"size": "m5.large", "zone": 7}), "providerSpec.zone")
    }

    fn volumes(&self) -> Vec<VolumeSource> {
        let volume = |id: &str| VolumeSource { plugin: CSI_DRIVER.to_owned(), id: id.to_owned() };
        vec![volume("vol-1"), volume("vol-2")]
    }

    fn other_spellings(&self, id: &ProviderId) -> Vec<String> {
        vec![format!("sim:///sim-1b/{}", id.identity())]
    }

    fn foreign_ids(&self) -> Vec<String> {
        vec!["aws:///eu-west-1a/i-1".to_owned()]
    }

    fn malformed_ids(&self) -> Vec<String> {
        vec!["i-1".to_owned(), "sim:///".to_owned()]
    }

    fn run_id(&self) -> String {
        "run-1".to_owned()
    }

    fn now(&self) -> Timestamp {
        self.cloud.clock().now()
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    async fn inject(&self, trouble: Trouble) -> Hook {
        let Settings { visible_within, call_bound, .. } = self.cloud.settings();
        let refuse = |code, retry_after_seconds| Fault::Refuse { code, retry_after_seconds };
        let late = Fault::LateEffect { by: call_bound - Duration::from_secs(1) };
        let rule = match trouble {
            Trouble::ErrorAfterEffect(verb) => FaultRule::once(operation(verb), Fault::EffectThenError),
            Trouble::SilenceAfterEffect(verb) => FaultRule::once(operation(verb), Fault::EffectThenSilence),
            Trouble::LateEffect(verb) => FaultRule::once(operation(verb), late),
            Trouble::Outage(verb) => FaultRule::once(operation(verb), refuse(Code::ServiceUnavailable, None)),
            Trouble::Throttled(verb) => FaultRule::once(operation(verb), refuse(Code::RateLimited, Some(3))),
            Trouble::SlowReads => FaultRule::once(Operation::Ensure, Fault::HideNew { span: visible_within }),
            Trouble::SlowDeletion => {
                FaultRule::once(Operation::Delete, Fault::Linger { span: 3 * call_bound })
            }
            Trouble::RevokedCredential => {
                self.cloud.configure(|settings| settings.revoked_tokens.extend([TOKEN.to_owned()]));
                return Hook::Arranged;
            }
            Trouble::QuotaUsedUp => {
                let alive = self.cloud.alive();
                self.cloud.configure(|settings| settings.quota = Some(alive));
                return Hook::Arranged;
            }
            Trouble::StockUsedUp => {
                self.cloud.configure(|settings| settings.stockouts.push(Stockout::default()));
                return Hook::Arranged;
            }
            // Nothing is made before an instance.
            Trouble::RefusedAfterParts => return Hook::Missing,
        };
        self.cloud.faults().add(rule);
        Hook::Arranged
    }

    async fn clear_trouble(&self) {
        self.cloud.faults().clear();
        self.cloud.configure(|current| *current = settings());
    }

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        let foreigner = Foreigner {
            id: None,
            name: name.clone(),
            key: None,
            project: String::new(),
            created,
            instance_type: "m5.large".to_owned(),
            user_data: UserData::default(),
        };
        self.cloud.load(&foreigner).expect("the cloud accepts the instance");
        Hook::Arranged
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        Some(self.cloud.ledger().alive().filter(|entry| entry.key.as_ref() == Some(key)).count())
    }
}

fn operation(verb: DriverVerb) -> Operation {
    match verb {
        DriverVerb::Ensure => Operation::Ensure,
        DriverVerb::Find => Operation::Find,
        DriverVerb::List => Operation::List,
        DriverVerb::Delete => Operation::Delete,
    }
}
