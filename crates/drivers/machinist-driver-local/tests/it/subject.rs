//! The embedded API server as a subject of the contract.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::Provider;
use machinist_driver::contract::{DriverVerb, Hook, Subject, Trouble};
use machinist_driver_local::PROMISES;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, Place};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ELSEWHERE, Kubelet, ONE, class, credential, other_credential};
use crate::gardener::{pod_of_go, today};
use crate::pipe::{Fault, failure};

#[async_trait]
impl Subject for Cluster {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        let credential = credential(ONE, "admin");
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    fn another_account(&self) -> Option<Credential> {
        Some(other_credential())
    }

    fn provider_spec(&self) -> Value {
        class()
    }

    fn elsewhere(&self) -> Option<Value> {
        let mut class = class();
        class["namespace"] = json!(ELSEWHERE);
        Some(class)
    }

    fn uninitialized_spec(&self) -> Option<Value> {
        Some(class())
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        (json!({"image": 1}), "providerSpec.image")
    }

    fn foreign_ids(&self) -> Vec<String> {
        ["hcloud://1", "aws:///eu/i-1", "w-1"].map(str::to_owned).into()
    }

    fn malformed_ids(&self) -> Vec<String> {
        ["machine-", "machine-A", "machine-a/b"].map(str::to_owned).into()
    }

    fn node_name(&self, name: &NodeName) -> NodeName {
        NodeName::new(format!("machine-{name}")).expect("not empty")
    }

    fn longest_name(&self) -> usize {
        55
    }

    fn run_id(&self) -> String {
        "run-1".to_owned()
    }

    fn now(&self) -> Timestamp {
        // Creation times of pods have no fractions of a second.
        Timestamp::from_second(self.server.clock().now().as_second()).expect("a valid second")
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    async fn inject(&self, trouble: Trouble) -> Hook {
        match trouble {
            Trouble::ErrorAfterEffect(verb) => self.pipe.once(sort(verb), Fault::EffectThenError),
            Trouble::SilenceAfterEffect(verb) => self.pipe.once(sort(verb), Fault::EffectThenSilence),
            Trouble::LateEffect(verb) => {
                let after = PROMISES.call_bound - Duration::from_secs(1);
                self.pipe.once(sort(verb), Fault::LateEffect(after));
            }
            Trouble::Outage(verb) => self.pipe.once(sort(verb), Fault::Unreachable),
            Trouble::Throttled(verb) => {
                let mut status = failure(429, "TooManyRequests", "the server has too many requests");
                status["details"] = json!({"retryAfterSeconds": 5});
                self.pipe.once(sort(verb), Fault::Refuse(status));
            }
            // Reads come from the quorum, so they show every pod at once.
            Trouble::SlowReads => {}
            Trouble::SlowDeletion => self.set_kubelet(|kubelet| kubelet.end = PROMISES.call_bound * 3),
            Trouble::RevokedCredential => {
                self.pipe.refuse("", failure(401, "Unauthorized", "Unauthorized"));
            }
            Trouble::QuotaUsedUp => {
                let message =
                    "pods \"machine-a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1";
                self.pipe.refuse("POST pods", failure(403, "Forbidden", message));
            }
            // A scheduler reports that later. A test of its own plays it.
            Trouble::StockUsedUp => return Hook::Missing,
            Trouble::RefusedAfterParts => {
                let status = failure(403, "Forbidden", "secrets is forbidden");
                self.pipe.once("POST secrets", Fault::Refuse(status));
            }
        }
        Hook::Arranged
    }

    async fn clear_trouble(&self) {
        self.pipe.clear_trouble();
        self.set_kubelet(|kubelet| *kubelet = Kubelet::default());
    }

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        assert_eq!(created, self.now(), "the server writes its own time");
        self.make(pod_of_go(name.as_str(), today(name.as_str()))).await;
        Hook::Arranged
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        let pods = self.server.snapshot("pods");
        let is_of_key = |pod: &Value| pod["metadata"]["labels"]["machinist.dev/key"] == key.as_str();
        Some(pods.iter().filter(|pod| is_of_key(&pod.whole())).count())
    }

    async fn changing_requests(&self) -> Option<u64> {
        let requests = self.pipe.requests();
        u64::try_from(requests.iter().filter(|request| !request.starts_with("GET")).count()).ok()
    }
}

/// The request by which the driver makes a call.
fn sort(verb: DriverVerb) -> &'static str {
    match verb {
        DriverVerb::Ensure => "POST pods",
        DriverVerb::Find | DriverVerb::List => "GET pods",
        DriverVerb::Delete => "DELETE pods",
    }
}
