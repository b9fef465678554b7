//! Everything that a process has seen: its stores, the credential, and its memory.

use k8s_openapi::api::core::v1::ConfigMap;
use machinist_kube::Store;
use machinist_plan::ccm::facts::{CloudNodeFacts, OwningMachineFacts, ServiceFacts};
use machinist_plan::ccm::names::ALLOW_NODE_DELETION_UNTIL;

use super::credential::Versioned;
use super::memory::Memory;

/// Index: Nodes by their `spec.providerID`, if it is set.
pub(crate) const BY_ID: &str = "id";
/// Index: Nodes by the account that is recorded on them, if there is one.
pub(crate) const BY_ACCOUNT: &str = "account";
/// Index: Nodes that wait for their initialisation, under [`YES`].
pub(crate) const UNINITIALIZED: &str = "uninitialized";
/// Index: initialised Nodes that are not ready, under [`YES`].
pub(crate) const NOT_READY: &str = "notready";
/// Index: Services that have or want a load balancer, under [`YES`].
pub(crate) const BALANCED: &str = "balanced";
/// Index: Services by each annotation that may be the name of a load balancer, as `KEY=NAME`.
pub(crate) const BY_BALANCER_NAME: &str = "balancername";
/// Index: Machines by the name of their Node.
pub(crate) const BY_NODE: &str = "node";
/// The end of the key of an annotation that may be the name of a load balancer.
pub(crate) const NAME_SUFFIX: &str = "/name";
/// The single value of indexes with a yes-or-no answer.
pub(crate) const YES: &str = "yes";

/// The stores and the memory of a process.
pub struct Seen {
    pub(crate) credential: Option<Versioned>,
    pub(crate) nodes: Store<CloudNodeFacts>,
    pub(crate) services: Store<ServiceFacts>,
    pub(crate) settings: Store<Settings>,
    pub(crate) machines: Store<OwningMachineFacts>,
    pub(crate) memory: Memory,
}

/// The settings that a user changes while the process runs: annotations of one ConfigMap.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The time until which the limit on deletions does not apply, as text.
    pub allow_deletion_until: Option<String>,
}

impl Settings {
    pub(crate) fn parse(object: &ConfigMap) -> Self {
        let annotation = |key: &str| object.metadata.annotations.as_ref()?.get(key).cloned();
        Self { allow_deletion_until: annotation(ALLOW_NODE_DELETION_UNTIL) }
    }
}

/// Returns the value of an index with a yes-or-no answer.
fn yes(holds: bool) -> Option<String> {
    holds.then(|| YES.to_owned())
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            credential: None,
            nodes: Store::new(&[
                (BY_ID, |n: &CloudNodeFacts, keys| keys.extend(n.provider_id().map(str::to_owned))),
                (BY_ACCOUNT, |n, keys| keys.extend(n.account().map(|account| account.as_str().to_owned()))),
                (UNINITIALIZED, |n, keys| keys.extend(yes(n.is_uninitialized()))),
                (NOT_READY, |n, keys| keys.extend(yes(!n.is_uninitialized() && !n.is_ready()))),
            ]),
            services: Store::new(&[
                (BALANCED, |s: &ServiceFacts, keys| {
                    keys.extend(yes(s.is_load_balancer || s.has_finalizer));
                }),
                (BY_BALANCER_NAME, |s, keys| {
                    // The prefix of the cloud is an option of the process.
                    let names = s.annotations.iter().filter(|(key, _)| key.ends_with(NAME_SUFFIX));
                    keys.extend(names.map(|(key, name)| format!("{key}={}", name.trim())));
                }),
            ]),
            settings: Store::new(&[]),
            machines: Store::new(&[(BY_NODE, |machine: &OwningMachineFacts, keys| {
                keys.push(machine.node_name.clone());
            })]),
            memory: Memory::default(),
        }
    }
}
