//! Writes to a Node: our finalizer with its mark, the Machine's name, and the template's labels,
//! annotations and taints.
//!
//! The mark names the Machine that added the finalizer ([`crate::mcm::orphaned_node`]). It is
//! written with the finalizer, and to the Machine's own Node if that has the finalizer of Go MCM.
//! It is written again if a restored Machine has another UID, and if it names another installation
//! although this Machine records the Node's instance: then the Machine was moved here.
//!
//! During a rollout, the set of the Machine asks for a taint, and for protection from the
//! autoscaler ([`NodeMarks`]). The protection is two annotations: the autoscaler reads the first,
//! and the second says who set it. A Node that a user has protected already gets neither, so that
//! the end of the rollout does not end the user's protection. One patch writes all changes. It is
//! computed against the last applied template (an annotation on the Node), so that values of other
//! clients stay.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use machinist_api::NodeTemplateSpec;
use machinist_api::constants::{annotations, finalizers, labels, taints};
use machinist_labels::{KeyValues, is_value};

use crate::mcm::facts::{MachineFacts, NODE_MARK, NodeFacts, NodeMark, NodeMarks};

/// One patch of a Node. Parts that are absent need no change.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSync {
    /// The Node as it was read. The raw values are the preconditions of the patch.
    pub node: Arc<NodeFacts>,
    /// The new finalizers.
    pub finalizers: Option<Vec<String>>,
    /// Labels to set, and to remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, and to remove (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// All new taints.
    pub taints: Option<Vec<Taint>>,
    /// Whether the Node becomes schedulable or unschedulable; absent if that stays.
    pub schedulable: Option<bool>,
}

impl PartialEq for NodeFacts {
    fn eq(&self, other: &Self) -> bool {
        self.uid == other.uid && self.labels == other.labels && self.annotations == other.annotations
    }
}

impl NodeSync {
    /// A patch of a Node that changes nothing yet.
    pub(super) fn empty(node: &Arc<NodeFacts>) -> Self {
        let (labels, annotations) = (BTreeMap::new(), BTreeMap::new());
        Self { node: node.clone(), finalizers: None, labels, annotations, taints: None, schedulable: None }
    }

    /// Returns the patch that a Node needs, if any. `marks` is what the set asks for; absent if the
    /// set is unknown, or the Node is about to be deleted.
    pub fn needed(
        machine: &MachineFacts,
        node: &Arc<NodeFacts>,
        cluster: &str,
        marks: Option<NodeMarks>,
    ) -> Option<Self> {
        let desired = &machine.spec.node_template;
        // An annotation that cannot be parsed counts as empty and is overwritten, because only this
        // program writes it.
        let last: NodeTemplateSpec = node
            .annotation(annotations::LAST_APPLIED_NODE_TEMPLATE)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();

        let mut labels = changes(node.labels.as_ref(), &last.metadata.labels, &desired.metadata.labels);
        // A Machine whose name is too long for a label was created by another program. All other
        // fields of its Node are still synced.
        if node.machine_name() != Some(&machine.name) && is_value(&machine.name) {
            labels.insert(labels::MACHINE_NAME.to_owned(), Some(machine.name.clone()));
        }
        let mut annotations =
            changes(node.annotations.as_ref(), &last.metadata.annotations, &desired.metadata.annotations);
        let never_applied = node.annotation(annotations::LAST_APPLIED_NODE_TEMPLATE).is_none();
        if *desired != last || never_applied {
            // A template can always be written as JSON. If that ever failed, the annotation would
            // claim nothing as applied.
            let text = serde_json::to_string(desired).unwrap_or_default();
            annotations.insert(annotations::LAST_APPLIED_NODE_TEMPLATE.to_owned(), Some(text));
        }
        let finalizers = (!node.has_finalizer && node.deleting_since.is_none()).then(|| {
            let mut all = node.finalizers.clone().unwrap_or_default();
            all.push(finalizers::NODE.to_owned());
            all
        });
        let mark = NodeMark::of(machine, cluster);
        let records_instance = machine.spec.provider_id().is_some_and(|id| node.provider_id() == Some(id));
        let is_earlier = |old: NodeMark| {
            let is_own = (&old.cluster, &old.namespace) == (&mark.cluster, &mark.namespace);
            old != mark && (is_own || records_instance)
        };
        if finalizers.is_some() || node.mark().is_some_and(is_earlier) {
            annotations.insert(NODE_MARK.to_owned(), Some(mark.to_string()));
        }
        let current = node.taints.as_deref().unwrap_or_default();
        let mut taints = taints(current, last.taints(), desired.taints());
        if let Some(marks) = marks {
            let wanted = marks.is_outdated;
            let with_mark = mark_outdated(taints.as_deref().unwrap_or(current), desired.taints(), wanted);
            taints = with_mark.or(taints);
            annotations.extend(protection(machine, node, marks.is_protected));
        }
        let nothing = finalizers.is_none() && labels.is_empty() && annotations.is_empty() && taints.is_none();
        (!nothing).then(|| Self {
            node: node.clone(),
            finalizers,
            labels,
            annotations,
            taints,
            schedulable: None,
        })
    }
}

/// Returns the changes from `current` to `desired`: removes keys of the last template that this
/// template lacks, sets desired keys.
fn changes(
    current: Option<&KeyValues>,
    last: &BTreeMap<String, String>,
    desired: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let has = |key: &str| current.and_then(|current| current.get(key));
    let gone = last.keys().filter(|key| !desired.contains_key(*key) && has(key).is_some());
    let mut changes: BTreeMap<_, _> = gone.map(|key| (key.clone(), None)).collect();
    let new = desired.iter().filter(|(key, value)| has(key) != Some(value.as_str()));
    changes.extend(new.map(|(key, value)| (key.clone(), Some(value.clone()))));
    changes
}

/// Returns the new taints of a Node, if they differ. Key and effect identify a taint; `timeAdded`
/// belongs to other controllers.
fn taints(current: &[Taint], last: &[Taint], desired: &[Taint]) -> Option<Vec<Taint>> {
    let same = |a: &Taint, b: &Taint| a.key == b.key && a.effect == b.effect;
    let value = |taint: &Taint| taint.value.clone().unwrap_or_default();
    let mut taints: Vec<Taint> = current
        .iter()
        .filter(|taint| !last.iter().any(|l| same(l, taint)) || desired.iter().any(|d| same(d, taint)))
        .cloned()
        .collect();
    let mut differ = taints.len() != current.len();
    for taint in desired {
        match taints.iter_mut().find(|t| same(t, taint)) {
            Some(present) if value(present) == value(taint) => {}
            Some(present) => {
                present.value.clone_from(&taint.value);
                differ = true;
            }
            None => {
                taints.push(taint.clone());
                differ = true;
            }
        }
    }
    differ.then_some(taints)
}

/// Returns the taints with or without the taint of an outdated template, if they differ. A taint
/// that the node template asks for stays.
fn mark_outdated(current: &[Taint], desired: &[Taint], wanted: bool) -> Option<Vec<Taint>> {
    let is_mark = |taint: &Taint| {
        taint.key == taints::PREFER_NO_SCHEDULE && taint.effect == taints::EFFECT_PREFER_NO_SCHEDULE
    };
    match (current.iter().any(is_mark), wanted) {
        (false, true) => {
            let mark = Taint {
                key: taints::PREFER_NO_SCHEDULE.to_owned(),
                value: Some(taints::PREFER_NO_SCHEDULE_VALUE.to_owned()),
                effect: taints::EFFECT_PREFER_NO_SCHEDULE.to_owned(),
                time_added: None,
            };
            Some(current.iter().cloned().chain([mark]).collect())
        }
        (true, false) if !desired.iter().any(is_mark) => {
            Some(current.iter().filter(|taint| !is_mark(taint)).cloned().collect())
        }
        (true, _) | (false, false) => None,
    }
}

/// Returns the changes of the annotations that protect a Node from the autoscaler. The end of a
/// rollout changes nothing for a preserved Machine.
fn protection(
    machine: &MachineFacts,
    node: &NodeFacts,
    is_wanted: Option<bool>,
) -> BTreeMap<String, Option<String>> {
    let keys = [annotations::SCALE_DOWN_DISABLED, annotations::SCALE_DOWN_DISABLED_BY_MCM];
    let [is_protected, is_by_us] = keys.map(|key| node.annotation(key) == Some("true"));
    let value = match is_wanted {
        Some(true) if !is_protected => Some("true".to_owned()),
        Some(false) if is_by_us && machine.status.preserve_until.is_none() => None,
        Some(true | false) | None => return BTreeMap::new(),
    };
    let is_news = |key: &&str| node.annotation(key) != value.as_deref();
    keys.into_iter().filter(is_news).map(|key| (key.to_owned(), value.clone())).collect()
}

impl fmt::Display for NodeSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.finalizers.is_some() {
            parts.push("finalizer".to_owned());
        }
        let named = |what: &str, changes: &BTreeMap<String, Option<String>>| {
            let short = |key: &String| key.rsplit('/').next().unwrap_or(key).to_owned();
            let all = changes.iter().map(|(key, value)| match value {
                Some(_) => short(key),
                None => format!("-{}", short(key)),
            });
            format!("{what} {}", all.collect::<Vec<_>>().join(" "))
        };
        if !self.labels.is_empty() {
            parts.push(named("labels", &self.labels));
        }
        if !self.annotations.is_empty() {
            parts.push(named("annotations", &self.annotations));
        }
        if let Some(taints) = &self.taints {
            parts.push(format!("{} taints", taints.len()));
        }
        if let Some(is_schedulable) = self.schedulable {
            parts.push(if is_schedulable { "uncordon" } else { "cordon" }.to_owned());
        }
        write!(f, "sync {}", parts.join(", "))
    }
}
