//! Facts of a Node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use machinist_api::constants::{annotations, finalizers, labels};

use super::machine::has_finalizer;
use super::{ConditionFacts, Version};

/// What planners know of a Node.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// Which version of the object this is.
    pub version: Version,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was created, cut to seconds.
    pub created: Timestamp,
    /// When deletion was asked for.
    pub deleting_since: Option<Timestamp>,
    /// Whether our finalizer is on it.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent when there are none.
    pub finalizers: Option<Vec<String>>,
    /// Its labels; absent and empty differ for guards.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its annotations; absent and empty differ for guards.
    pub annotations: Option<BTreeMap<String, String>>,
    /// `spec.providerID`, raw; absent and empty differ for guards.
    pub provider_id: Option<String>,
    /// `spec.unschedulable`, raw.
    pub unschedulable: Option<bool>,
    /// `spec.taints`, raw; absent and empty differ for guards.
    pub taints: Option<Vec<Taint>>,
    /// Its conditions.
    pub conditions: Vec<ConditionFacts>,
}

impl NodeFacts {
    /// Reads a Node.
    pub fn parse(node: &Node) -> Self {
        let metadata = &node.metadata;
        let spec = node.spec.as_ref();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        Self {
            version: Version::of(metadata),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            has_finalizer: has_finalizer(metadata, finalizers::NODE),
            finalizers: metadata.finalizers.clone(),
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            provider_id: spec.and_then(|spec| spec.provider_id.clone()),
            unschedulable: spec.and_then(|spec| spec.unschedulable),
            taints: spec.and_then(|spec| spec.taints.clone()),
            conditions: conditions.into_iter().flatten().filter_map(ConditionFacts::of).collect(),
        }
    }

    /// `spec.providerID`, if it is not empty.
    pub fn provider_id(&self) -> Option<&str> {
        self.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The Machine that its label names.
    pub fn machine_name(&self) -> Option<&str> {
        self.labels.as_ref()?.get(labels::MACHINE_NAME).map(String::as_str)
    }

    /// One condition.
    pub fn condition(&self, kind: &str) -> Option<&ConditionFacts> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// What it says about preserving its Machine; empty if nothing, absent if that is no value that anything is decided from.
    pub fn preserve(&self) -> Option<&str> {
        const VALUES: [&str; 5] = [
            "",
            annotations::PRESERVE_NOW,
            annotations::PRESERVE_WHEN_FAILED,
            annotations::PRESERVE_AUTO,
            annotations::PRESERVE_FALSE,
        ];
        let value = self.annotations.as_ref().and_then(|all| all.get(annotations::PRESERVE));
        let value = value.map_or("", String::as_str);
        VALUES.contains(&value).then_some(value)
    }

    /// Whether somebody asked us to leave it alone.
    pub fn is_not_managed(&self) -> bool {
        self.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::NOT_MANAGED_BY_MCM))
    }
}
