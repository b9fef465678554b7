//! Which instance and which Node are a Machine's own.
//!
//! Clouds use names again, and spell the id of one instance in several ways: AWS has the region in the Machine's and the zone in
//! the Node's. So neither a name nor two different texts prove anything. What proves it differs by what is at stake:
//!
//! - To judge a Machine by a Node, it is enough that the Machine names the Node, that no other Machine does on the Node, and
//!   that the Node can be of this Machine: it is the same instance, or carries our label, or is younger than the Machine.
//! - To drain or delete a Node, it must be the same instance, or carry our label and no id. A Node that the Machine may be judged
//!   by gets our label first.
//!
//! Of two Machines that record one instance the older one has it: the other is a copy, and with it goes nothing of the older one's.
//!
//! Which ids are the same instance, and which texts are ids at all, is the provider's answer. It is asked once, when facts are
//! collected.

use std::sync::Arc;

use machinist_api::constants::labels;
use machinist_instance::{InstanceRef, NodeName, RecordedId};

use super::Snapshot;
use crate::Why;
use crate::facts::NodeFacts;
use crate::why::{McmReason, Step};
use machinist_core::Known;

/// What the provider says about the ids of a Machine and of the Node of its name, and what the store says about the Node's label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The Machine's `spec.providerID`.
    pub recorded: RecordedId,
    /// Whether the Node's `spec.providerID` names the same instance.
    pub same_instance: bool,
    /// The other Machine that the Node's label names, if there is such a Machine. A label that names none is a leftover.
    pub claimed_by: Option<String>,
    /// The older Machine that records the same instance, if there is one: then this Machine is a copy of it.
    pub held_by: Option<String>,
}

/// Whose Node that is.
pub(super) enum OwnNode<'s> {
    /// There is none of that name.
    Missing,
    /// The Machine's.
    Ours(&'s Arc<NodeFacts>),
    /// Somebody else's, and what told so.
    NotOurs(&'s Arc<NodeFacts>, String),
}

impl Snapshot {
    /// How its instance is found, by everything that is known of it.
    pub(super) fn instance(&self) -> InstanceRef {
        let name = self.machine.node.clone().or_else(|| NodeName::new(&self.machine.name));
        InstanceRef { id: self.identity.recorded.ours().cloned(), key: Some(self.key()), name }
    }

    /// Its Node, if that is certain enough to drain and delete it.
    pub(super) fn own_node(&self) -> OwnNode<'_> {
        let Known::Present(node) = &self.node else { return OwnNode::Missing };
        if let Some(other) = &self.identity.held_by {
            return OwnNode::NotOurs(node, format!("machine {other} records the same instance"));
        }
        let has_our_label = node.machine_name() == Some(&self.machine.name);
        match node.provider_id() {
            _ if self.identity.same_instance => OwnNode::Ours(node),
            Some(id) => OwnNode::NotOurs(node, format!("its provider id is {id}")),
            None if has_our_label => OwnNode::Ours(node),
            None => {
                OwnNode::NotOurs(node, "it has no provider id, and its label does not name it".to_owned())
            }
        }
    }

    /// Its Node, if that is certain enough to judge the Machine by it, and to bring our label and our finalizer onto it.
    pub(super) fn joined_node(&self) -> OwnNode<'_> {
        let Known::Present(node) = &self.node else { return OwnNode::Missing };
        let not_ours = |evidence: String| OwnNode::NotOurs(node, evidence);
        if let Some(other) = &self.identity.claimed_by {
            return not_ours(format!("its label names machine {other}"));
        }
        if self.identity.same_instance {
            return OwnNode::Ours(node);
        }
        match node.machine_name() {
            Some(name) if name == self.machine.name => OwnNode::Ours(node),
            Some(name) => not_ours(format!("its label names machine {name}")),
            // Only its name and its age speak for it: then its name must be the one that was recorded, not just the Machine's own.
            None if self.machine.node.is_none() => not_ours(format!("no label {} names it", labels::NODE)),
            None if node.created < self.machine.created => not_ours(older(node)),
            None if node.deleting_since.is_some() => not_ours("it is being deleted".to_owned()),
            None => OwnNode::Ours(node),
        }
    }

    /// Why nothing is created or deleted for the Machine: its recorded id is none that the provider can read.
    pub(super) fn unusable_id(&self) -> Option<Why> {
        let id = self.machine.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        match &self.identity.recorded {
            RecordedId::Unset | RecordedId::Ours(_) => None,
            RecordedId::NotOurs { expected } => {
                let mend = "run the controller of the provider that the id is of, or correct spec.providerID";
                let reason = McmReason::ProviderIdNotOurs { id, expected: expected.clone() };
                Some(Why::new(reason, Step::Mend(mend.to_owned())))
            }
            RecordedId::Malformed { expected } => {
                let mend = "set spec.providerID to the id of the machine's instance";
                let reason = McmReason::ProviderIdMalformed { id, expected: expected.clone() };
                Some(Why::new(reason, Step::Mend(mend.to_owned())))
            }
        }
    }
}

fn older(node: &NodeFacts) -> String {
    let older = "it is older than this machine";
    node.provider_id().map_or_else(|| older.to_owned(), |id| format!("{older}, and its provider id is {id}"))
}
