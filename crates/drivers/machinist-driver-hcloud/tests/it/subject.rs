//! The stand-in as a subject of the contract. It can inject every trouble.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::Provider;
use machinist_driver::contract::{DriverVerb, Hook, Subject, Trouble};
use machinist_driver_hcloud::PROMISES;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, ProviderId, VolumeSource};
use machinist_standin_hcloud::{Access, Fault, FaultRule, NewServer};
use serde_json::{Value, json};

use crate::cloud::{Cloud, NETWORK, OTHER_TOKEN, PROJECT, TOKEN, credential, settings};
use crate::gardener::class_with_pool;

/// Longer than the driver waits for an answer.
const FOR_EVER: Duration = Duration::from_secs(600);

#[async_trait]
impl Subject for Cloud {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        Self::account(self)
    }

    fn another_account(&self) -> Option<Credential> {
        Some(credential(OTHER_TOKEN))
    }

    fn provider_spec(&self) -> Value {
        json!({"serverType": "cx22", "image": "ubuntu-24.04", "location": "fsn1", "networks": [NETWORK]})
    }

    /// A class of the other provider, whose servers get a floating address.
    fn uninitialized_spec(&self) -> Option<Value> {
        Some(class_with_pool())
    }

    fn volumes(&self) -> Vec<VolumeSource> {
        let volume = |id: &str| VolumeSource { plugin: "csi.hetzner.cloud".to_owned(), id: id.to_owned() };
        vec![volume("4711"), volume("4712")]
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        (json!({"serverType": "cx22", "image": 1.5}), "providerSpec.image")
    }

    fn other_spellings(&self, id: &ProviderId) -> Vec<String> {
        vec![format!("hcloud:///fsn1-dc14/{}", id.identity())]
    }

    fn foreign_ids(&self) -> Vec<String> {
        ["aws:///eu-west-1a/i-1", "hrobot://1", "hcloud://bm-1"].map(str::to_owned).into()
    }

    fn malformed_ids(&self) -> Vec<String> {
        ["hcloud://", "hcloud://workers-1"].map(str::to_owned).into()
    }

    fn run_id(&self) -> String {
        "run-1".to_owned()
    }

    fn now(&self) -> Timestamp {
        // Creation times of servers have no fractions of a second.
        let seconds = self.standin.now().as_second();
        Timestamp::from_second(seconds).expect("a valid second")
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    async fn inject(&self, trouble: Trouble) -> Hook {
        let error = |code: &str| Fault::Error { code: code.to_owned(), status: None };
        let (verb, fault) = match trouble {
            Trouble::ErrorAfterEffect(verb) => {
                (verb, Fault::EffectThenError { code: "server_error".to_owned() })
            }
            Trouble::SilenceAfterEffect(verb) => (verb, Fault::EffectThenHang { span: FOR_EVER }),
            Trouble::LateEffect(verb) => {
                (verb, Fault::Delay { by: PROMISES.call_bound - Duration::from_secs(1) })
            }
            Trouble::Outage(verb) => (verb, error("unavailable")),
            // The headers of the answer explain it: the bucket is empty.
            Trouble::Throttled(_) => {
                self.standin.set_rate(PROJECT, RATE, 0);
                return Hook::Arranged;
            }
            Trouble::SlowReads => {
                self.standin.configure(|settings| {
                    settings.visible_by_id = PROMISES.visible_within;
                    settings.visible_in_lists = PROMISES.visible_within;
                });
                return Hook::Arranged;
            }
            Trouble::SlowDeletion => {
                self.standin.configure(|settings| settings.action = PROMISES.call_bound * 3);
                return Hook::Arranged;
            }
            Trouble::RevokedCredential => {
                self.standin.revoke_token(TOKEN);
                return Hook::Arranged;
            }
            Trouble::QuotaUsedUp => {
                let alive =
                    self.standin.servers_ever().iter().filter(|server| server.deleted.is_none()).count();
                self.standin.configure(|settings| settings.server_limit = Some(alive));
                return Hook::Arranged;
            }
            Trouble::StockUsedUp => {
                self.standin.configure(|settings| settings.out_of_stock.push("cx22".to_owned()));
                return Hook::Arranged;
            }
            // Nothing is made before an instance.
            Trouble::RefusedAfterParts => return Hook::Missing,
        };
        let (method, path) = request_of(verb);
        self.standin.add_fault(FaultRule::once(method, path, fault));
        Hook::Arranged
    }

    async fn clear_trouble(&self) {
        self.standin.clear_faults();
        self.standin.set_rate(PROJECT, RATE, RATE);
        self.standin.configure(|current| {
            *current = settings();
            current.tokens.set(TOKEN, PROJECT, Access::ReadWrite);
        });
    }

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        let server = self.standin.create_server(&NewServer::new(PROJECT, name.as_str())).expect("a server");
        self.standin.change_server(server.id, |server| server.created = created).expect("the server exists");
        Hook::Arranged
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        let label = "machinist.dev/key";
        let alive = self.standin.truly_alive(label);
        let has_key =
            |labels: &BTreeMap<String, String>| labels.get(label).map(String::as_str) == Some(key.as_str());
        Some(alive.iter().filter(|server| has_key(&server.labels)).count())
    }

    async fn changing_requests(&self) -> Option<u64> {
        Some(self.changes())
    }
}

/// Requests per hour of a project, and the size of its bucket.
const RATE: u32 = 3600;

/// The request by which the driver makes a call.
fn request_of(verb: DriverVerb) -> (&'static str, &'static str) {
    match verb {
        DriverVerb::Ensure => ("POST", "/v1/servers"),
        DriverVerb::Find | DriverVerb::List => ("GET", "/v1/servers"),
        DriverVerb::Delete => ("DELETE", "/v1/servers/{id}"),
    }
}
