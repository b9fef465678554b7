//! The calls for one Node, as values.

use std::collections::BTreeMap;
use std::fmt;

use crate::ccm::facts::CloudNodeFacts;
use crate::event::EventText;
use k8s_openapi::api::core::v1::{NodeAddress, Taint};
use machinist_instance::{AccountId, InstanceRef, ProviderId};
use std::sync::Arc;

/// One call for one Node.
#[derive(Debug)]
pub enum Action {
    /// Asks the driver to list the account. All Nodes of the account share the answer.
    List,
    /// Asks the driver to look up the instance.
    Find(InstanceRef),
    /// Replaces `status.addresses` of the Node, guarded by the UID and the list as it was read.
    SetAddresses {
        /// The Node as it was read.
        node: Arc<CloudNodeFacts>,
        /// The new list.
        addresses: Vec<NodeAddress>,
    },
    /// Patches the Node.
    Patch(Box<NodePatch>),
    /// Emits an Event on the Node.
    Tell(EventText),
}

/// One patch of a Node. Parts that are absent need no change. Each changed field is guarded by its
/// value as it was read.
#[derive(Debug, Clone)]
pub struct NodePatch {
    /// The Node as it was read.
    pub node: Arc<CloudNodeFacts>,
    /// The provider id of a Node that has none.
    pub provider_id: Option<ProviderId>,
    /// The labels to set.
    pub labels: BTreeMap<String, String>,
    /// The account to record in the annotation [`crate::facts::ACCOUNT`].
    pub account: Option<AccountId>,
    /// All new taints.
    pub taints: Option<Vec<Taint>>,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("driver: list"),
            Self::Find(which) => write!(f, "driver: find {which}"),
            Self::SetAddresses { addresses, .. } => {
                let all: Vec<_> = addresses
                    .iter()
                    .map(|address| format!("{} {}", address.type_, address.address))
                    .collect();
                write!(f, "node/status: addresses {}", all.join(", "))
            }
            Self::Patch(patch) => patch.fmt(f),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

impl fmt::Display for NodePatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(id) = &self.provider_id {
            parts.push(format!("provider id {id}"));
        }
        if !self.labels.is_empty() {
            let all: Vec<_> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            parts.push(format!("labels {}", all.join(" ")));
        }
        if let Some(account) = &self.account {
            parts.push(format!("account {account}"));
        }
        if let Some(taints) = &self.taints {
            let all: Vec<_> = taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
            parts.push(format!("taints [{}]", all.join(" ")));
        }
        write!(f, "node: {}", parts.join(", "))
    }
}
