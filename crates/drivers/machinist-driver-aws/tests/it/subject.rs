//! The fake as a subject of the contract. It can inject every trouble.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::Provider;
use machinist_driver::contract::{DriverVerb, Hook, Subject, Trouble};
use machinist_driver_aws::PROMISES;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, ProviderId, VolumeSource};
use serde_json::{Value, json};

use crate::cloud::{ACCESS_KEY, ACCOUNT, Cloud, MARKS, OTHER_ACCESS_KEY, REGION, class, credential, native};
use crate::fake::{FaultKind, Settings};

pub(crate) const FOREIGN_IDS: [&str; 3] = ["hcloud://1", "openstack:///eu/1", "machine-w-1"];
pub(crate) const MALFORMED_IDS: [&str; 3] = ["aws://", "aws:///eu-west-1/", "i-"];

pub(crate) fn other_spellings(id: &ProviderId) -> Vec<String> {
    let id = native(id);
    vec![format!("aws:///eu-west-1a/{id}"), format!("aws:////{id}"), id.to_owned()]
}

/// Settings for the contract.
pub(crate) fn settings() -> Settings {
    Settings { names_by_tag: true, page: 3, ..Settings::default() }
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
        Some(credential(OTHER_ACCESS_KEY))
    }

    fn provider_spec(&self) -> Value {
        class()
    }

    fn elsewhere(&self) -> Option<Value> {
        let mut class = class();
        class["region"] = json!("us-gov-west-1");
        Some(class)
    }

    fn other_key_scope(&self) -> Option<Value> {
        let mut class = class();
        class["networkInterfaces"][0]["subnetID"] = json!("subnet-2");
        Some(class)
    }

    fn uninitialized_spec(&self) -> Option<Value> {
        let mut class = class();
        class["srcAndDstChecksEnabled"] = json!(false);
        class["networkInterfaces"][0]["ipv6PrefixCount"] = json!(1);
        Some(class)
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        let mut class = class();
        class["blockDevices"][0]["ebs"]["volumeSize"] = json!("50");
        (class, "providerSpec.blockDevices[0].ebs.volumeSize")
    }

    fn volumes(&self) -> Vec<VolumeSource> {
        let volume = |plugin: &str, id: &str| VolumeSource { plugin: plugin.to_owned(), id: id.to_owned() };
        vec![
            volume("ebs.csi.aws.com", "vol-0a1b"),
            volume("kubernetes.io/aws-ebs", "aws://eu-west-1a/vol-0a1c"),
        ]
    }

    fn other_spellings(&self, id: &ProviderId) -> Vec<String> {
        other_spellings(id)
    }

    fn foreign_ids(&self) -> Vec<String> {
        FOREIGN_IDS.map(str::to_owned).into()
    }

    fn malformed_ids(&self) -> Vec<String> {
        MALFORMED_IDS.map(str::to_owned).into()
    }

    fn run_id(&self) -> String {
        "run-1".to_owned()
    }

    fn now(&self) -> Timestamp {
        // Creation times of instances have no fractions of a second.
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
            // Each call begins with a read.
            Trouble::Outage(_) => self.fake.inject("DescribeInstances", refusal(503, "Unavailable")),
            Trouble::Throttled(verb) => {
                let retry_after = Some(5);
                let kind = FaultKind::Refuse { status: 503, code: "RequestLimitExceeded", retry_after };
                self.fake.inject(action(verb), kind);
            }
            Trouble::SlowReads => set(|settings| settings.lag = PROMISES.visible_within),
            Trouble::SlowDeletion => set(|settings| settings.deletion = PROMISES.call_bound * 3),
            Trouble::RevokedCredential => drop(self.fake.lock().access_keys.remove(ACCESS_KEY)),
            Trouble::QuotaUsedUp => set(|settings| settings.quota = Some(0)),
            Trouble::StockUsedUp => set(|settings| settings.has_stock = false),
            // An instance of EC2 needs no parts.
            Trouble::RefusedAfterParts => return Hook::Missing,
        }
        Hook::Arranged
    }

    async fn clear_trouble(&self) {
        let mut state = self.fake.lock();
        state.faults.clear();
        state.settings = settings();
        state.access_keys.insert(ACCESS_KEY.to_owned(), ACCOUNT.to_owned());
    }

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        let tags = [&MARKS[..], &[("Name", name.as_str())]].concat();
        let id = self.fake.create(ACCOUNT, REGION, &tags);
        self.fake.change(&id, |machine| machine.launched = created);
        Hook::Arranged
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        Some(self.fake.alive("machinist.dev/key", key.as_str()))
    }

    async fn changing_requests(&self) -> Option<u64> {
        let actions = self.fake.actions();
        let changes = actions.iter().filter(|action| !action.starts_with("Describe")).count();
        u64::try_from(changes).ok()
    }
}

pub(crate) fn refusal(status: u16, code: &'static str) -> FaultKind {
    FaultKind::Refuse { status, code, retry_after: None }
}

/// The request by which the driver makes a call.
pub(crate) fn action(verb: DriverVerb) -> &'static str {
    match verb {
        DriverVerb::Ensure => "RunInstances",
        DriverVerb::Find | DriverVerb::List => "DescribeInstances",
        DriverVerb::Delete => "TerminateInstances",
    }
}
