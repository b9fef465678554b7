//! Decides which instance and which Node belong to a Machine.
//!
//! Clouds reuse names, and they spell the id of one instance in several ways: on AWS the Machine's
//! id has the region, and the Node's id has the zone. So neither equal names nor different ids
//! prove anything. The required proof depends on the operation:
//!
//! - To judge a Machine's health by a Node, it must be the same instance, which no other Machine
//!   owns. Otherwise three facts are enough: the Machine names the Node, no other Machine is
//!   named on the Node, and the Node can belong to this Machine. It can if it is younger than the
//!   Machine, or has our label and was not being deleted before the Machine existed.
//! - To drain or delete a Node, it must be the same instance, or have our label, no mark of another
//!   Machine, and no id that the provider can parse. A Node by which the Machine may be judged
//!   receives our label first.
//! - To delete the instance without a drain, the Node must be another's: another instance, or
//!   recorded or named by another Machine. A Node of unknown owner may run on this instance.
//!
//! If several Machines record the same instance, one of them owns it: the Machine that the mark of
//! the Node names, otherwise the Machine that the label of the Node names, otherwise the oldest.
//! The others are copies, or a user wrote the id of the owner's instance into them. They change no
//! Node, and their deletion removes nothing of the owner. The oldest one changes no Node either
//! while nothing but its age says that it is the owner.
//!
//! The provider decides which ids denote the same instance and which texts are ids. It is called
//! once, when facts are collected.

use std::cmp::Reverse;
use std::sync::Arc;

use machinist_api::constants::labels;
use machinist_instance::{InstanceRef, NodeName, RecordedId};
use machinist_labels::is_value;

use super::node_sync::NodeSync;
use super::snapshot::Snapshot;
use crate::mcm::facts::{MachineFacts, NODE_MARK, NodeFacts, NodeMark};
use crate::mcm::why::{McmReason, Step, Why};
use machinist_core::Known;

/// The provider's comparison of the ids of a Machine and its Node, and the owner in the Node's
/// label according to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineIdentity {
    /// The Machine's `spec.providerID`, as the provider parsed it.
    pub recorded: RecordedId,
    /// Whether the Node's `spec.providerID` names the same instance.
    pub same_instance: bool,
    /// Whether the provider can parse the Node's `spec.providerID`. Other programs may have set it,
    /// such as the kubelet of a small distribution.
    pub node_id_is_read: bool,
    /// The other Machine that records the Node's `spec.providerID`, if any.
    pub recorded_by: Option<String>,
    /// The other Machine that the Node's label names, if that Machine exists. A label with an
    /// unknown name is a leftover.
    pub claimed_by: Option<String>,
    /// The other Machine that owns the same recorded instance, if any ([`owner`]).
    pub held_by: Option<String>,
    /// Another Machine that records the same instance, if this Machine counts as the owner by its
    /// age alone. Then no Node is drained: it may be the other Machine's.
    pub shared_with: Option<String>,
    /// The id that the Node's Machine recorded when it marked the Node
    /// ([`crate::mcm::facts::JOINED_AS`]), unless that is the recorded instance.
    pub joined_as: Option<String>,
}

/// The owner of an instance that several Machines record.
#[derive(Debug, Clone, Copy)]
pub struct InstanceOwner<'m> {
    /// The owner.
    pub machine: &'m MachineFacts,
    /// Whether a Node of the instance names the owner. Otherwise the owner is the oldest Machine.
    pub is_shown: bool,
}

/// Returns the owner of an instance that these Machines record. `nodes` are the Nodes of the
/// instance.
///
/// Age alone does not show the owner: a user may write the id of a younger Machine's instance into
/// an older Machine.
pub fn owner<'m>(
    recording: impl Iterator<Item = &'m MachineFacts>,
    nodes: &[&NodeFacts],
) -> Option<InstanceOwner<'m>> {
    let marks: Vec<NodeMark> = nodes.iter().filter_map(|node| node.mark()).collect();
    let rank = |one: &'m MachineFacts| {
        let is_marked = marks.iter().any(|mark| mark.machine_uid == one.uid);
        let is_labelled = nodes.iter().any(|node| node.machine_name() == Some(&*one.name));
        (is_marked, is_labelled, Reverse((one.created, one.uid.as_str())))
    };
    let ranked = recording.map(|machine| (rank(machine), machine));
    let ((is_marked, is_labelled, _), machine) = ranked.max_by(|(a, _), (b, _)| a.cmp(b))?;
    Some(InstanceOwner { machine, is_shown: is_marked || is_labelled })
}

/// The owner of the Node with the expected name.
pub(super) enum OwnNode<'s> {
    /// No Node with that name exists.
    Missing,
    /// The Node belongs to the Machine.
    Ours(&'s Arc<NodeFacts>),
    /// The Node belongs to another owner, with the evidence.
    NotOurs(&'s Arc<NodeFacts>, String),
}

impl Snapshot {
    /// Returns the proof that a Node belongs to another Machine or instance.
    pub(super) fn of_another(&self, node: &NodeFacts) -> Option<String> {
        let MachineIdentity {
            recorded,
            same_instance,
            node_id_is_read,
            recorded_by,
            claimed_by,
            held_by,
            ..
        } = &self.identity;
        if let Some(other) = held_by {
            return Some(format!("machine {other} records the same instance"));
        }
        if *same_instance {
            return None;
        }
        if let Some(other) = recorded_by {
            return Some(format!("machine {other} records its provider id"));
        }
        let are_comparable = *node_id_is_read && recorded.ours().is_some();
        match node.provider_id() {
            Some(id) if are_comparable => Some(format!("its provider id is {id}")),
            // Other programs write labels. This one wrote the mark, for this Machine.
            _ if node.mark().as_ref() == Some(&self.mark()) => None,
            _ => claimed_by.as_ref().map(|other| format!("its label names machine {other}")),
        }
    }

    /// Returns the patch that the Machine's Node needs, if any.
    pub(super) fn node_sync(&self, node: &Arc<NodeFacts>) -> Option<NodeSync> {
        let mut needed = NodeSync::needed(&self.machine, node, &self.cluster, self.node_marks);
        // Go MCM adds the finalizer without a mark. Another installation in the cluster would treat
        // the Node as a Node without a Machine.
        let lacks_mark = node.has_finalizer && node.deleting_since.is_none() && node.mark().is_none();
        if lacks_mark && self.identity.same_instance {
            let sync = needed.get_or_insert_with(|| NodeSync::empty(node));
            sync.annotations.insert(NODE_MARK.to_owned(), Some(self.mark().to_string()));
        }
        needed.filter(|_| self.may_mark())
    }

    /// Whether the Machine may write its mark and label to a Node. They show who owns the instance,
    /// so a Machine that may not be the owner does not write them.
    pub(super) fn may_mark(&self) -> bool {
        self.identity.held_by.is_none() && self.identity.shared_with.is_none()
    }

    /// The mark of this Machine's Node.
    fn mark(&self) -> NodeMark {
        NodeMark::of(&self.machine, &self.cluster)
    }

    /// Returns the reference for the lookup of the instance, with all known properties.
    pub(super) fn instance(&self) -> InstanceRef {
        InstanceRef {
            id: self.identity.recorded.ours().cloned(),
            key: Some(self.key()),
            name: NodeName::new(&self.machine.name),
            node_name: self.machine.node.clone().filter(|node| node.as_str() != self.machine.name),
            last_known_state: self.machine.status.last_known_state.clone(),
            ..InstanceRef::default()
        }
    }

    /// Returns the Node if the proof is strong enough to drain and delete it.
    pub(super) fn own_node(&self) -> OwnNode<'_> {
        let Known::Present(node) = &self.node else { return OwnNode::Missing };
        if let Some(evidence) = self.of_another(node) {
            return OwnNode::NotOurs(node, evidence);
        }
        if self.identity.same_instance {
            return match &self.identity.shared_with {
                None => OwnNode::Ours(node),
                Some(other) => OwnNode::NotOurs(node, format!("machine {other} records the same instance")),
            };
        }
        let id = node.provider_id();
        if let Some(id) = id.filter(|_| self.identity.node_id_is_read) {
            return OwnNode::NotOurs(node, format!("its provider id is {id}"));
        }
        if node.machine_name() != Some(&self.machine.name) {
            let id = id
                .map_or_else(|| "it has no provider id".to_owned(), |id| format!("its provider id is {id}"));
            return OwnNode::NotOurs(node, format!("{id}, and its label does not name this machine"));
        }
        if node.mark().is_none_or(|mark| mark == self.mark()) {
            OwnNode::Ours(node)
        } else {
            OwnNode::NotOurs(node, format!("its annotation {NODE_MARK} names another machine"))
        }
    }

    /// Returns the Node with the expected name if nothing proves whose it is. It may run on the
    /// Machine's instance.
    pub(super) fn node_of_unknown_owner(&self) -> Option<(&Arc<NodeFacts>, String)> {
        match self.own_node() {
            OwnNode::NotOurs(node, evidence) if self.of_another(node).is_none() => Some((node, evidence)),
            _ => None,
        }
    }

    /// Returns the Node if the proof is strong enough to judge the Machine by it, and to add our
    /// label and finalizer to it.
    pub(super) fn joined_node(&self) -> OwnNode<'_> {
        joined_node(&self.machine, &self.node, &self.identity)
    }

    /// Returns the name of the Node of the instance if the Machine does not name that Node.
    pub(super) fn unrecorded_node(&self) -> Option<NodeName> {
        let OwnNode::Ours(node) = self.own_node() else { return None };
        let is_recorded = self.machine.node.as_ref().is_some_and(|name| name.as_str() == node.name);
        let may_be_recorded = self.machine.provider_id.is_some() && is_value(&node.name);
        if is_recorded || !may_be_recorded { None } else { NodeName::new(&node.name) }
    }

    /// Whether the recorded instance may have a Node that the store does not show. Only a fresh
    /// store shows all Nodes by their provider ids.
    pub(super) fn may_have_another_node(&self) -> bool {
        self.machine.provider_id.is_some() && !self.nodes_freshness.is_fresh()
    }

    /// Returns why nothing is deleted if the Machine recorded another instance when this program
    /// marked its Node: someone has overwritten the id. The recorded instance may be absent, or may
    /// belong to another Machine, and the Machine's own instance would never be deleted.
    pub(super) fn overwritten_id(&self) -> Option<Why> {
        let Known::Present(node) = &self.node else { return None };
        let MachineIdentity { recorded, joined_as, .. } = &self.identity;
        let (id, joined_as) = (recorded.ours()?.to_string(), joined_as.clone()?);
        let node = (node.mark()? == self.mark()).then(|| node.name.clone())?;
        let fix = format!("set spec.providerID to {joined_as}");
        let reason = McmReason::ProviderIdOverwritten { id, joined_as, node };
        Some(Why::new(reason, Step::Fix(fix)))
    }

    /// Returns why nothing is created or deleted for the Machine if the provider cannot parse its
    /// recorded id.
    pub(super) fn unusable_id(&self) -> Option<Why> {
        let id = self.machine.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        match &self.identity.recorded {
            RecordedId::Unset | RecordedId::Ours(_) => None,
            RecordedId::NotOurs { expected } => {
                let fix =
                    "run the controller of the provider that created this id, or correct spec.providerID";
                let reason = McmReason::ProviderIdNotOurs { id, expected: expected.clone() };
                Some(Why::new(reason, Step::Fix(fix.to_owned())))
            }
            RecordedId::Malformed { expected } => {
                let fix = "set spec.providerID to the id of the machine's instance";
                let reason = McmReason::ProviderIdMalformed { id, expected: expected.clone() };
                Some(Why::new(reason, Step::Fix(fix.to_owned())))
            }
        }
    }
}

/// Returns the Node if the proof is strong enough to judge the Machine by it.
pub(super) fn joined_node<'s>(
    machine: &MachineFacts,
    node: &'s Known<Arc<NodeFacts>>,
    identity: &MachineIdentity,
) -> OwnNode<'s> {
    let Known::Present(node) = node else { return OwnNode::Missing };
    let not_ours = |evidence: String| OwnNode::NotOurs(node, evidence);
    // A wrong label must not make a healthy Machine look unhealthy. It is corrected.
    if identity.same_instance && identity.held_by.is_none() {
        return OwnNode::Ours(node);
    }
    if let Some(other) = &identity.claimed_by {
        return not_ours(format!("its label names machine {other}"));
    }
    if identity.same_instance {
        return OwnNode::Ours(node);
    }
    match node.machine_name() {
        // It belonged to an earlier Machine of that name, and another client keeps it.
        Some(_) if node.deleting_since.is_some_and(|since| since <= machine.created) => {
            not_ours("its deletion began before this machine was created".to_owned())
        }
        Some(name) if name == machine.name => OwnNode::Ours(node),
        Some(name) => not_ours(format!("its label names machine {name}")),
        // Only name and age match. Then the name must be the recorded name, not just the Machine's
        // name.
        None if machine.node.is_none() => {
            not_ours(format!("the machine has no label {} that names it", labels::NODE))
        }
        None if node.created < machine.created => not_ours(older(node)),
        None if node.deleting_since.is_some() => not_ours("it is being deleted".to_owned()),
        None => OwnNode::Ours(node),
    }
}

fn older(node: &NodeFacts) -> String {
    let older = "it is older than this machine";
    node.provider_id().map_or_else(|| older.to_owned(), |id| format!("{older}, and its provider id is {id}"))
}
