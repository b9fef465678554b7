//! The calls for one deployment, as values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use machinist_api::constants::labels;
use machinist_api::{MachineDeploymentStatus, MachineSet, MachineSpec, MachineTemplateSpec};
use machinist_labels::KeyValues;

use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::refusal::Refusal;

/// One call for one deployment.
#[derive(Debug)]
pub enum Action {
    /// Adds our finalizer to the deployment.
    AddFinalizer,
    /// Removes our finalizer from the deployment.
    RemoveFinalizer,
    /// Becomes the controller of a set without a controlling owner.
    Adopt(Arc<MachineSetFacts>),
    /// Gives up control of a set that the selector no longer matches.
    Release(Arc<MachineSetFacts>),
    /// POSTs the set of this template.
    CreateSet(Box<MachineSet>),
    /// Changes a set, in one patch.
    PatchSet(SetPatch),
    /// Adds the label `machine-template-hash` to an adopted set or to one of its Machines.
    AddHash {
        /// The object that gets the label.
        step: HashStep,
        /// The value of the label.
        hash: String,
    },
    /// Changes the labels of a Machine and perhaps its owner, in an update in place.
    Relabel(Box<Relabel>),
    /// DELETEs a set, by UID.
    DeleteSet(Arc<MachineSetFacts>),
    /// Reads a set of a deployment that is being deleted, and DELETEs the version that was read if
    /// the deployment still owns it.
    DeleteOwnedSet(Arc<MachineSetFacts>),
    /// Writes annotations of the deployment.
    Annotate(BTreeMap<String, String>),
    /// Marks a Machine so that its set deletes it first.
    MarkMachine {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// When the autoscaler chose the Machine, RFC 3339.
        since: String,
    },
    /// Asks the machine controller to preserve a failed Machine.
    Preserve(Arc<MachineFacts>),
    /// Removes the annotation that [`Self::Preserve`] added.
    EndPreservation(Arc<MachineFacts>),
    /// Looks up a Machine with that name at the API server.
    LookFor(String),
    /// Lists the Machines at the API server. All deployments and sets share the answer.
    ReadMachines,
    /// Writes the names of the chosen Machines, or removes the annotation if there are none.
    SetChosen(Option<String>),
    /// Copies the template and the annotations of a former revision to the deployment, and removes
    /// `spec.rollbackTo`.
    RollBack(Box<Rollback>),
    /// Removes `spec.rollbackTo`, with the reason why nothing is rolled back.
    EndRollback(Refusal),
    /// Removes the condition `Frozen` from the status.
    RemoveFrozen {
        /// Index of the condition.
        index: usize,
    },
    /// Adds the label `freeze`.
    AddFreeze,
    /// Removes the label `freeze` and the annotation `unfreeze`.
    RemoveFreeze,
    /// Emits an Event that the spec is invalid.
    Warn(Refusal),
    /// Writes the deployment's status.
    SetStatus(Box<MachineDeploymentStatus>),
}

/// One patch of a set. Absent parts are not changed.
#[derive(Debug, Clone)]
pub struct SetPatch {
    /// The set as it was read.
    pub set: Arc<MachineSetFacts>,
    /// The new replicas.
    pub replicas: Option<u32>,
    /// Annotations to set, and to remove (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// Labels to set, and to remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// The parts of the template that need no rollout, copied from the deployment.
    pub template: Option<TemplateSync>,
}

impl SetPatch {
    /// Whether the patch lowers the replicas, so that the set deletes Machines.
    pub fn is_lower(&self) -> bool {
        self.replicas.is_some_and(|replicas| replicas < self.set.replicas())
    }

    /// Whether the patch raises the replicas, so that the set creates Machines.
    pub fn is_higher(&self) -> bool {
        self.replicas.is_some_and(|replicas| self.set.replicas() < replicas)
    }
}

/// The fields that are copied from a deployment to its set without a rollout.
#[derive(Debug, Clone)]
pub struct TemplateSync {
    /// The template's Machine spec, with nodeTemplate, timeouts and class kind of the deployment.
    /// Only the fields that differ are written ([`super::synced_changes`]).
    pub spec: Box<MachineSpec>,
    /// `minReadySeconds`, if it differs.
    pub min_ready_seconds: Option<i32>,
    /// `autoPreserveFailedMachineMax`, if it differs.
    pub auto_preserve_max: Option<i32>,
}

/// One step in which an adopted set gets the label `machine-template-hash`.
#[derive(Debug, Clone)]
pub enum HashStep {
    /// Adds the label to the template of a set.
    Template(Arc<MachineSetFacts>),
    /// Adds the label to a Machine.
    Machine(Arc<MachineFacts>),
    /// Adds the label to a set and to its selector.
    Selector(Arc<MachineSetFacts>),
}

/// Changes of the labels of a Machine, and of its owner.
#[derive(Debug, Clone)]
pub struct Relabel {
    /// The Machine.
    pub machine: Arc<MachineFacts>,
    /// Labels to set, and to remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// The set that becomes the owner; absent if the owner stays.
    pub owner: Option<Arc<MachineSetFacts>>,
    /// The change, as a phrase for logs.
    pub what: &'static str,
}

impl Relabel {
    /// The labels of the Machine after the change.
    pub(super) fn labels_after(&self) -> KeyValues {
        let mut all = self.machine.labels.clone().unwrap_or_default();
        for (key, value) in &self.labels {
            match value {
                Some(value) => all.insert(key.as_str(), value.as_str()),
                None => all.remove(key),
            };
        }
        all
    }

    /// Whether the change selects the Machine, so that its Node is drained.
    pub fn selects(&self) -> bool {
        self.labels.get(labels::SELECTED_FOR_UPDATE).is_some_and(Option::is_some)
    }
}

/// The changes of a deployment that return it to a former revision.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// The revision.
    pub revision: i64,
    /// The template of that revision.
    pub template: MachineTemplateSpec,
    /// The annotations to set, and those to remove, which have no value.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("deployment: add finalizer"),
            Self::RemoveFinalizer => f.write_str("deployment: remove finalizer"),
            Self::Adopt(set) => write!(f, "set {}: adopt", set.name),
            Self::Release(set) => write!(f, "set {}: release", set.name),
            Self::CreateSet(set) => write!(
                f,
                "set {}: create with {} replicas",
                set.metadata.name.as_deref().unwrap_or_default(),
                set.spec.replicas()
            ),
            Self::PatchSet(patch) => {
                write!(f, "set {}:", patch.set.name)?;
                if let Some(replicas) = patch.replicas {
                    write!(f, " {} -> {replicas} replicas", patch.set.replicas())?;
                }
                let short = |key: &String| key.rsplit('/').next().unwrap_or(key).to_owned();
                let shown = |(key, value): (&String, &Option<String>)| match value {
                    Some(_) => short(key),
                    None => format!("-{}", short(key)),
                };
                for (what, changes) in [("annotations", &patch.annotations), ("labels", &patch.labels)] {
                    let keys: Vec<_> = changes.iter().map(shown).collect();
                    if !keys.is_empty() {
                        write!(f, " {what} {}", keys.join(" "))?;
                    }
                }
                if patch.template.is_some() { f.write_str(" template") } else { Ok(()) }
            }
            Self::AddHash { step: HashStep::Template(set), hash } => {
                write!(f, "set {}: label template {hash}", set.name)
            }
            Self::AddHash { step: HashStep::Machine(machine), hash } => {
                write!(f, "machine {}: label {hash}", machine.name)
            }
            Self::AddHash { step: HashStep::Selector(set), hash } => {
                write!(f, "set {}: select {hash}", set.name)
            }
            Self::Relabel(step) => write!(f, "machine {}: {}", step.machine.name, step.what),
            Self::DeleteSet(set) => write!(f, "set {}: delete", set.name),
            Self::DeleteOwnedSet(set) => write!(f, "set {}: delete if owned", set.name),
            Self::Annotate(annotations) => {
                let all: Vec<_> = annotations.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "deployment: annotate {}", all.join(" "))
            }
            Self::MarkMachine { machine, since } => {
                write!(f, "machine {}: mark for deletion since {since}", machine.name)
            }
            Self::Preserve(machine) => write!(f, "machine {}: preserve", machine.name),
            Self::EndPreservation(machine) => write!(f, "machine {}: preserve no longer", machine.name),
            Self::LookFor(name) => write!(f, "machine {name}: look for it"),
            Self::ReadMachines => f.write_str("machines: list them at the API server"),
            Self::SetChosen(Some(chosen)) => write!(f, "deployment: machines to delete {chosen}"),
            Self::SetChosen(None) => f.write_str("deployment: no machines to delete"),
            Self::RollBack(rollback) => write!(f, "deployment: roll back to revision {}", rollback.revision),
            Self::EndRollback(refusal) => write!(f, "deployment: no rollback, {}", refusal.message),
            Self::RemoveFrozen { .. } => f.write_str("deployment: remove condition Frozen"),
            Self::AddFreeze => f.write_str("deployment: freeze"),
            Self::RemoveFreeze => f.write_str("deployment: remove freeze"),
            Self::Warn(refusal) => write!(f, "warning {}: {}", refusal.reason, refusal.message),
            Self::SetStatus(status) => write!(
                f,
                "status: {} replicas, {} updated, {} available",
                status.replicas, status.updated_replicas, status.available_replicas
            ),
        }
    }
}
