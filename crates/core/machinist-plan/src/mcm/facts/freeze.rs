//! Facts of a freeze, which Go's machine-controller-manager writes on a set with too many Machines
//! and on its deployment.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_api::constants::{annotations, conditions, labels};

/// The freeze of an object, and whether a user requests to lift it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreezeFacts {
    /// Whether the object has the label `freeze` with the value `True`.
    pub has_label: bool,
    /// The condition `Frozen` in the status.
    pub condition: Option<FrozenCondition>,
    /// Whether the object has the annotation `unfreeze`.
    pub is_lift_asked: bool,
}

/// A condition `Frozen`. The condition's status does not count: Go's machine-controller-manager
/// removes the condition when it lifts a freeze.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenCondition {
    /// Index among the conditions: a guard must repeat it.
    pub index: usize,
    /// The condition's reason.
    pub reason: String,
    /// Time of the last transition.
    pub since: Option<Timestamp>,
}

impl FreezeFacts {
    /// Whether the object is frozen. The label alone stops a set from creating Machines; the label
    /// or the condition is enough to lift a freeze.
    pub fn is_frozen(&self) -> bool {
        self.has_label || self.condition.is_some()
    }

    /// Reads a freeze. Each condition is a type, a reason and the time of the last transition.
    pub(super) fn parse<'c>(
        labels: Option<&BTreeMap<String, String>>,
        annotations: Option<&BTreeMap<String, String>>,
        mut conditions: impl Iterator<Item = (&'c str, Option<&'c str>, Option<&'c Time>)>,
    ) -> Self {
        let label = labels.and_then(|labels| labels.get(labels::FREEZE));
        let frozen =
            conditions.by_ref().enumerate().find(|(_, (kind, _, _))| *kind == conditions::FROZEN).map(
                |(index, (_, reason, since))| FrozenCondition {
                    index,
                    reason: reason.unwrap_or_default().to_owned(),
                    since: since.map(|time| time.0),
                },
            );
        Self {
            has_label: label.is_some_and(|value| value == labels::TRUE),
            condition: frozen,
            is_lift_asked: annotations.is_some_and(|all| all.contains_key(annotations::UNFREEZE)),
        }
    }
}
