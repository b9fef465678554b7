//! Facts of a MachineDeployment.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinist_api::constants::finalizers;
use machinist_api::scaled_value::{Rounding, scaled_value};
use machinist_api::validation::validate_machine_deployment;
use machinist_api::{
    InPlaceUpdateStrategy, MachineDeployment, MachineDeploymentSpec, MachineDeploymentStatus,
    OrchestrationType, StrategyType,
};
use machinist_labels::Selector;

use super::freeze::FreezeFacts;
use super::machine::has_finalizer;
use crate::facts::Version;

/// Planner facts of a MachineDeployment.
#[derive(Debug, Clone)]
pub struct MachineDeploymentFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the MachineDeployment.
    pub namespace: String,
    /// Name of the MachineDeployment.
    pub name: String,
    /// UID of the MachineDeployment.
    pub uid: String,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether the MachineDeployment has our finalizer.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// Labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations. Guards distinguish absent from empty.
    pub annotations: Option<BTreeMap<String, String>>,
    /// The first validation error of the spec: the field, and a sentence.
    pub invalid: Option<(String, String)>,
    /// Selector of the MachineSets; absent if the spec has none.
    pub selector: Option<Selector>,
    /// The spec, as on the wire.
    pub spec: MachineDeploymentSpec,
    /// The status, as on the wire; absent if there is none.
    pub status: Option<MachineDeploymentStatus>,
}

impl MachineDeploymentFacts {
    /// Reads a MachineDeployment.
    pub fn parse(deployment: &MachineDeployment) -> Self {
        let metadata = &deployment.metadata;
        Self {
            version: Version::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            has_finalizer: has_finalizer(metadata, finalizers::MACHINE_CONTROLLER_MANAGER),
            finalizers: metadata.finalizers.clone(),
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            invalid: validate_machine_deployment(deployment)
                .into_iter()
                .next()
                .map(|e| (e.field.to_string(), e.to_string())),
            selector: deployment.spec.selector.as_ref().map(Selector::from),
            spec: deployment.spec.clone(),
            status: deployment.status.clone(),
        }
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the number of desired Machines.
    pub fn replicas(&self) -> u32 {
        u32::try_from(self.spec.replicas()).unwrap_or(0)
    }

    /// Returns how many additional Machines a rollout may create; rounded up, and 0 for `Recreate`.
    pub fn max_surge(&self) -> u32 {
        self.bounds().0
    }

    /// Returns how many Machines may be unavailable; rounded down, and at most `replicas`. With
    /// `Recreate` it is 0, and does not bind while old Machines are deleted.
    pub fn max_unavailable(&self) -> u32 {
        self.bounds().1
    }

    /// Returns the surge of a rolling update, or else of an in-place update; rounded up.
    pub fn any_surge(&self) -> u32 {
        let strategy = self.spec.strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let in_place = self.in_place();
        let surge = match rolling {
            Some(rolling) => rolling.max_surge.as_ref(),
            None => in_place.and_then(|in_place| in_place.max_surge.as_ref()),
        };
        self.part_of_replicas(surge, Rounding::Up)
    }

    /// Whether the strategy is `InPlaceUpdate`.
    pub fn is_in_place(&self) -> bool {
        self.strategy() == Some(&StrategyType::InPlaceUpdate)
    }

    /// Whether the strategy is `Recreate`: all Machines of the old template are deleted before the
    /// first one of the new template is created.
    pub fn recreates(&self) -> bool {
        self.strategy() == Some(&StrategyType::Recreate)
    }

    /// Whether this program selects the Machines of an update in place, and not a user.
    pub fn selects_for_update(&self) -> bool {
        let in_place = self.in_place().and_then(|in_place| in_place.orchestration_type.as_ref());
        self.is_in_place() && in_place == Some(&OrchestrationType::Auto)
    }

    /// Returns how many additional Machines a rolling update may create; 0 for other strategies.
    pub fn rolling_surge(&self) -> u32 {
        if self.is_in_place() { 0 } else { self.max_surge() }
    }

    fn in_place(&self) -> Option<&InPlaceUpdateStrategy> {
        self.spec.strategy.as_ref()?.in_place_update.as_ref()
    }

    fn strategy(&self) -> Option<&StrategyType> {
        self.spec.strategy.as_ref()?.type_.as_ref()
    }

    /// Returns the freeze of the deployment.
    pub fn freeze(&self) -> FreezeFacts {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        let conditions = conditions.map(|condition| {
            (condition.type_.as_str(), condition.reason.as_deref(), condition.last_transition_time.as_ref())
        });
        FreezeFacts::parse(self.labels.as_ref(), self.annotations.as_ref(), conditions)
    }

    fn part_of_replicas(&self, bound: Option<&IntOrString>, rounding: Rounding) -> u32 {
        let replicas = i32::try_from(self.replicas()).unwrap_or(i32::MAX);
        let value = bound.and_then(|value| scaled_value(value, replicas, rounding));
        u32::try_from(value.unwrap_or(0)).unwrap_or(0)
    }

    fn bounds(&self) -> (u32, u32) {
        let replicas = self.replicas();
        if self.recreates() {
            return (0, 0);
        }
        let (surge, unavailable) = if self.is_in_place() {
            let in_place = self.in_place();
            // If a user selects the Machines, only the user creates the room for their pods.
            let auto = in_place.filter(|_| self.selects_for_update());
            (
                auto.and_then(|auto| auto.max_surge.as_ref()),
                in_place.and_then(|in_place| in_place.max_unavailable.as_ref()),
            )
        } else {
            let rolling = self.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
            (
                rolling.and_then(|rolling| rolling.max_surge.as_ref()),
                rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
            )
        };
        let surge = self.part_of_replicas(surge, Rounding::Up);
        let unavailable = self.part_of_replicas(unavailable, Rounding::Down);
        // If both are 0, no Machine could ever be replaced. Then one Machine may be missing.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        (surge, unavailable.min(replicas))
    }
}
