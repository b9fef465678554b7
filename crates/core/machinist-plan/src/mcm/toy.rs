//! A toy API server for planner tests: objects in memory, actions that apply at once, and a clock
//! that only tests advance.
//!
//! The toy also simulates events of Machines (join, failure, deletion) in the order that a test or
//! a seed determines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_api::constants::{annotations, labels, reasons};
use machinist_api::{Machine, MachineDeployment, MachineSet, Phase};
use serde_json::{Value, json};

use super::live::{is_available, is_live};
use super::machine_deployment::{self, Owned};
use super::{machine_set, replacement};
use crate::mcm::facts::{MachineDeploymentFacts, MachineFacts, MachineSetFacts};

const EPOCH: i64 = 1_800_000_000;
/// Seconds.
const HEALTH_TIMEOUT: i64 = 600;

/// All objects of one namespace.
pub(crate) struct Toy {
    pub(crate) deployment: Option<MachineDeployment>,
    pub(crate) sets: BTreeMap<String, MachineSet>,
    pub(crate) machines: BTreeMap<String, Machine>,
    pub(crate) seconds: i64,
    pub(crate) uids: u32,
    /// The performed actions, one per line.
    pub(crate) trace: Vec<String>,
    /// Violations, checked at each create and each delete.
    pub(crate) violations: Vec<String>,
    /// The maximum number of Machines that any spec so far allows: a set may still act on an
    /// earlier spec.
    pub(crate) most: usize,
    /// The minimum number of available Machines that any spec so far requires.
    pub(crate) fewest: usize,
    /// Machines that the test made unhealthy. They count as available, because an earlier decision
    /// could not know this.
    pub(crate) hurt: BTreeSet<String>,
    /// Whether sets delete Machines without a look at their deployment.
    pub(crate) sets_look_away: bool,
    /// By set, the numbers of Machines that the set has created.
    settled: BTreeMap<String, BTreeSet<u64>>,
}

impl Toy {
    pub(crate) fn new(replicas: u32, surge: u32, unavailable: u32) -> Self {
        let deployment = json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "uid-w", "generation": 1},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"name": "w"}},
                "strategy": {"type": "RollingUpdate",
                             "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
                "template": {"metadata": {"labels": {"name": "w"}},
                             "spec": {"class": {"kind": "MachineClass", "name": "c-1"}, "nodeTemplate": {}}},
            },
        });
        let mut toy = Self {
            deployment: Some(parse(deployment)),
            sets: BTreeMap::new(),
            machines: BTreeMap::new(),
            seconds: 0,
            uids: 0,
            trace: Vec::new(),
            violations: Vec::new(),
            most: 0,
            fewest: usize::MAX,
            hurt: BTreeSet::new(),
            sets_look_away: false,
            settled: BTreeMap::new(),
        };
        toy.note_bounds();
        toy
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_second(EPOCH + self.seconds).expect("a moment of this century")
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{:04}", self.uids)
    }

    /// Changes the deployment's spec, as a user does.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut MachineDeployment)) {
        if let Some(deployment) = &mut self.deployment {
            change(deployment);
            deployment.metadata.generation = deployment.metadata.generation.map(|generation| generation + 1);
        }
        self.note_bounds();
    }

    pub(crate) fn use_class(&mut self, class: &str) {
        self.edit(|deployment| deployment.spec.template.spec.class.name = Some(class.to_owned()));
    }

    fn note_bounds(&mut self) {
        if let Some(facts) = self.deployment.as_ref().map(MachineDeploymentFacts::parse) {
            self.most = self.most.max(usize::try_from(facts.replicas() + facts.max_surge()).expect("small"));
            let fewest = facts.replicas().saturating_sub(facts.max_unavailable());
            self.fewest = self.fewest.min(usize::try_from(fewest).expect("small"));
        }
    }

    fn facts(&self) -> Option<MachineDeploymentFacts> {
        self.deployment.as_ref().map(MachineDeploymentFacts::parse)
    }

    fn machines_of(&self, uid: &str) -> Vec<Arc<MachineFacts>> {
        let all = self.machines.values().map(MachineFacts::parse);
        all.filter(|machine| machine.owner.as_ref().is_some_and(|owner| owner.uid == uid))
            .map(Arc::new)
            .collect()
    }

    fn live(&self) -> usize {
        self.machines.values().map(MachineFacts::parse).filter(is_live).count()
    }

    pub(crate) fn deployment_snapshot(&self) -> Option<machine_deployment::Snapshot> {
        let deployment = self.facts()?;
        let mut sets: Vec<_> = self
            .sets
            .values()
            .map(MachineSetFacts::parse)
            .map(|set| Owned { machines: self.machines_of(&set.uid), unreadable: 0, set: Arc::new(set) })
            .collect();
        sets.sort_by(|a, b| (a.set.created, &a.set.uid).cmp(&(b.set.created, &b.set.uid)));
        Some(machine_deployment::Snapshot {
            now: self.now(),
            deployment: Arc::new(deployment),
            sets,
            unreadable_sets: Vec::new(),
            machines_freshness: Default::default(),
            adoptable: Vec::new(),
            taken_names: Default::default(),
            looked_for: Default::default(),
            set_failure: None,
            protects_nodes: true,
            status_written: None,
            open_raises: Vec::new(),
            late_adoptions: Vec::new(),
            predecessor_until: None,
        })
    }

    pub(crate) fn set_snapshot(&self, name: &str) -> Option<machine_set::Snapshot> {
        let set = MachineSetFacts::parse(self.sets.get(name)?);
        let owner = self.deployment_snapshot().filter(|_| !self.sets_look_away);
        let limits = owner.and_then(|owner| {
            machine_deployment::limits(owner.now, &owner.deployment, &owner.sets, &set.uid)
        });
        Some(machine_set::Snapshot {
            now: self.now(),
            skew: std::time::Duration::ZERO,
            machines: self.machines_of(&set.uid),
            set: Arc::new(set),
            unreadable: Vec::new(),
            adoptable: Vec::new(),
            deployment: self.facts().map(Arc::new),
            limits,
            auto_preserve: self.auto_preserve(),
            margins: Default::default(),
            overshooting_since: None,
            finished_numbers: self.settled.get(name).cloned().unwrap_or_default(),
            status_written: None,
            failure: None,
            strays: None,
            rejected: Default::default(),
            late_adoptions: Vec::new(),
            machines_freshness: Default::default(),
        })
    }

    /// Returns which failed Machines the deployment is about to preserve.
    fn auto_preserve(&self) -> machine_set::AutoPreserve {
        match self.deployment_snapshot() {
            None => machine_set::AutoPreserve::Own,
            Some(s) => machine_set::AutoPreserve::Deployment {
                about_to: machine_deployment::about_to_preserve(&s.deployment, &s.sets),
            },
        }
    }

    /// Writes or removes the annotation of the automatic preservation.
    fn preserve(&mut self, name: &str, value: Option<&str>) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        let annotations = machine.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(annotations::PRESERVE.to_owned(), value.to_owned()),
            None => annotations.remove(annotations::PRESERVE),
        };
    }

    /// Runs one pass over the deployment. Returns whether any action was performed.
    pub(crate) fn reconcile_deployment(&mut self) -> bool {
        let Some(snapshot) = self.deployment_snapshot() else { return false };
        let plan = machine_deployment::plan(&snapshot);
        let acted = !plan.actions.is_empty();
        for action in plan.actions {
            self.trace.push(action.to_string());
            self.apply_deployment(action);
        }
        acted
    }

    fn apply_deployment(&mut self, action: machine_deployment::Action) {
        use machine_deployment::Action;
        let uid = self.uid();
        let now = Some(Time(self.now()));
        let Some(deployment) = &mut self.deployment else { return };
        match action {
            Action::AddFinalizer => add_finalizer(&mut deployment.metadata),
            Action::RemoveFinalizer => self.deployment = None,
            Action::Annotate(all) => deployment.metadata.annotations.get_or_insert_default().extend(all),
            Action::SetStatus(status) => deployment.status = Some(*status),
            Action::CreateSet(mut set) => {
                set.metadata.uid = Some(uid);
                set.metadata.generation = Some(1);
                set.metadata.creation_timestamp = now;
                self.sets.insert(set.metadata.name.clone().unwrap_or_default(), *set);
            }
            Action::PatchSet(patch) => {
                let Some(set) = self.sets.get_mut(&patch.set.name) else { return };
                change(set.metadata.annotations.get_or_insert_default(), patch.annotations);
                if let Some(replicas) = patch.replicas {
                    set.spec.replicas = i32::try_from(replicas).ok();
                    set.metadata.generation = set.metadata.generation.map(|generation| generation + 1);
                }
                if let Some(template) = patch.template {
                    set.spec.template.spec = *template.spec;
                    if template.auto_preserve_max.is_some() {
                        set.spec.auto_preserve_failed_machine_max = template.auto_preserve_max;
                    }
                }
                change(set.metadata.labels.get_or_insert_default(), patch.labels);
            }
            Action::Relabel(step) => {
                let Some(machine) = self.machines.get_mut(&step.machine.name) else { return };
                change(machine.metadata.labels.get_or_insert_default(), step.labels);
                if let Some(set) = step.owner {
                    machine.metadata.owner_references = Some(vec![machine_set::owner_reference(&set)]);
                }
            }
            Action::DeleteSet(set) | Action::DeleteOwnedSet(set) => {
                if let Some(set) = self.sets.get_mut(&set.name) {
                    set.metadata.deletion_timestamp = now;
                }
            }
            Action::AddHash { .. } => unreachable!("the toy's deployment creates its sets"),
            Action::Adopt(_) | Action::Release(_) => unreachable!("every set of the toy has an owner"),
            Action::Warn(_) => unreachable!("the toy's deployment is valid"),
            Action::MarkMachine { machine, since } => self.mark(&machine.name, since),
            Action::Preserve(machine) => self.preserve(&machine.name, Some(annotations::PRESERVE_AUTO)),
            Action::EndPreservation(machine) => self.preserve(&machine.name, None),
            Action::SetChosen(chosen) => {
                let annotations = deployment.metadata.annotations.get_or_insert_default();
                match chosen {
                    Some(chosen) => annotations.insert(annotations::TRIGGER_DELETION.to_owned(), chosen),
                    None => annotations.remove(annotations::TRIGGER_DELETION),
                };
            }
            Action::RollBack(rollback) => {
                change(deployment.metadata.annotations.get_or_insert_default(), rollback.annotations);
                deployment.spec.template = rollback.template;
                deployment.spec.rollback_to = None;
                deployment.metadata.generation =
                    deployment.metadata.generation.map(|generation| generation + 1);
            }
            Action::EndRollback(_) => deployment.spec.rollback_to = None,
            Action::ReadMachines => unreachable!("the toy's Machines are fresh"),
            Action::LookFor(_) => unreachable!("the toy's autoscaler knows its Machines"),
            Action::AddFreeze | Action::RemoveFrozen { .. } | Action::RemoveFreeze => {
                unreachable!("the toy is never frozen")
            }
        }
    }

    /// Runs one pass over a set. Returns whether any action was performed.
    pub(crate) fn reconcile_set(&mut self, name: &str) -> bool {
        let Some(snapshot) = self.set_snapshot(name) else { return false };
        let plan = machine_set::plan(&snapshot);
        let acted = !plan.actions.is_empty();
        for action in plan.actions {
            self.trace.push(format!("{name}: {action}"));
            self.apply_set(&snapshot.set, action);
        }
        acted
    }

    fn apply_set(&mut self, facts: &MachineSetFacts, action: machine_set::Action) {
        use machine_set::Action;
        let uid = self.uid();
        let now = Some(Time(self.now()));
        let name = facts.name.clone();
        match action {
            Action::Create { number, name } => {
                // As in the controller: whether the name was free or not, the number is in use now.
                self.settled.entry(facts.name.clone()).or_default().insert(number);
                if self.machines.contains_key(&name) {
                    return;
                }
                if self.most <= self.live() {
                    self.violations.push(format!("too many: {name} created while {} are live", self.live()));
                }
                let mut machine = machine_set::child(facts, &name);
                machine.metadata.uid = Some(uid);
                machine.metadata.creation_timestamp = now;
                self.machines.insert(name, machine);
            }
            Action::Delete(machine) | Action::DeleteOwned(machine) => {
                self.judge_deletion(&machine);
                if let Some(machine) = self.machines.get_mut(&machine.name) {
                    machine.metadata.deletion_timestamp = now;
                }
            }
            Action::SyncMachine(machine) => {
                let template = facts.spec.template.spec.clone();
                if let Some(machine) = self.machines.get_mut(&machine.name) {
                    machine.spec.node_template = template.node_template;
                    machine.spec.configuration = template.configuration;
                }
            }
            Action::Preserve(machine) => self.preserve(&machine.name, Some(annotations::PRESERVE_AUTO)),
            Action::EndPreservation(machine) => self.preserve(&machine.name, None),
            Action::Adopt(_) | Action::Release(_) => unreachable!("every Machine of the toy has an owner"),
            Action::ReadMachines => unreachable!("the Machines of the toy are fresh"),
            Action::Warn(_) => unreachable!("the toy's sets are valid"),
            Action::AddFreeze
            | Action::TellFrozen(_)
            | Action::RemoveFrozen { .. }
            | Action::RemoveFreeze
            | Action::TellThawed(_) => {
                unreachable!("the toy is never frozen")
            }
            Action::AddFinalizer => {
                if let Some(set) = self.sets.get_mut(&name) {
                    add_finalizer(&mut set.metadata);
                }
            }
            Action::RemoveFinalizer => {
                self.sets.remove(&name);
            }
            Action::Reserve(reserved) => {
                let Some(set) = self.sets.get_mut(&name) else { return };
                let annotations = set.metadata.annotations.get_or_insert_default();
                annotations.insert(machine_set::RESERVED_NUMBERS.to_owned(), reserved.to_string());
                if let Some(settled) = self.settled.get_mut(&name) {
                    settled.retain(|number| reserved.pending.contains(number));
                }
            }
            Action::SetStatus(status) => {
                if let Some(set) = self.sets.get_mut(&name) {
                    set.status = Some(*status);
                }
            }
        }
    }

    fn mark(&mut self, name: &str, since: String) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        let annotations = machine.metadata.annotations.get_or_insert_default();
        annotations.insert(annotations::MACHINE_PRIORITY.to_owned(), "1".to_owned());
        annotations.insert(annotations::MARKED_FOR_DELETION_TIME.to_owned(), since);
    }

    /// Sets the deletion priority of a Machine, as a user does.
    pub(crate) fn prioritise(&mut self, name: &str, priority: usize) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        let annotations = machine.metadata.annotations.get_or_insert_default();
        annotations.insert(annotations::MACHINE_PRIORITY.to_owned(), priority.to_string());
    }

    /// Reports a violation if an available Machine is deleted and too few remain.
    fn judge_deletion(&mut self, machine: &MachineFacts) {
        self.judge_loss(machine, "deleted");
    }

    fn judge_loss(&mut self, machine: &MachineFacts, how: &str) {
        let Some(deployment) = self.facts() else { return };
        if !is_available(machine) || deployment.deleting_since.is_some() {
            return;
        }
        let all = self.machines.values().map(MachineFacts::parse).filter(|other| other.name != machine.name);
        let counts =
            |other: &MachineFacts| is_available(other) || (is_live(other) && self.hurt.contains(&other.name));
        let left = all.filter(counts).count();
        if left < self.fewest {
            self.violations.push(format!("too few: {} {how}, {left} are left", machine.name));
        }
    }

    /// Makes a Node unhealthy.
    pub(crate) fn hurt(&mut self, name: &str) {
        if self.machines.get(name).is_some_and(|machine| machine.phase() == Phase::Running) {
            self.trace.push(format!("machine {name}: Unknown"));
            self.set_phase(name, Phase::Unknown);
            self.hurt.insert(name.to_owned());
        }
    }

    /// Runs one pass of the replacement planner. Returns whether any action was performed.
    pub(crate) fn reconcile_replacement(&mut self) -> bool {
        let plan = replacement::plan(&self.replacement_snapshot());
        let acted = !plan.actions.is_empty();
        for action in plan.actions {
            let replacement::Action::MarkFailed { machine, .. } = action else { continue };
            let is_other = |other: &&Machine| other.metadata.name.as_deref() != Some(&machine.name);
            let failed = self.machines.values().filter(is_other).find(|other| other.phase() == Phase::Failed);
            if let Some(other) = failed.and_then(|other| other.metadata.name.clone()) {
                self.violations
                    .push(format!("two at a time: {} marked Failed while {other} is Failed", machine.name));
            }
            self.trace.push(format!("machine {}: Failed", machine.name));
            self.set_phase(&machine.name, Phase::Failed);
        }
        acted
    }

    /// Deletes a Machine, as a user does.
    pub(crate) fn delete_machine(&mut self, name: &str) {
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(name) {
            machine.metadata.deletion_timestamp = Some(Time(now));
        }
    }

    pub(crate) fn set_phase(&mut self, name: &str, phase: Phase) {
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(name) {
            let current = machine.status.get_or_insert_default().current_status.get_or_insert_default();
            current.phase = Some(phase);
            current.last_update_time = Some(now.into());
        }
    }

    /// Simulates the next event of a Machine: it becomes Pending, then Running. A Machine that is
    /// being deleted disappears.
    pub(crate) fn progress(&mut self, name: &str) -> bool {
        let Some(machine) = self.machines.get(name) else { return false };
        if machine.is_deleting() {
            self.machines.remove(name);
            self.trace.push(format!("machine {name}: gone"));
            return true;
        }
        let facts = MachineFacts::parse(machine);
        if self.becomes_candidate(&facts) {
            self.set_stage(name, reasons::CANDIDATE_FOR_UPDATE);
            return true;
        }
        let next = match machine.phase() {
            Phase::Empty => Phase::Pending,
            Phase::Pending | Phase::InPlaceUpdateSuccessful => Phase::Running,
            Phase::Running if facts.is_selected_for_update() => {
                self.judge_loss(&facts, "drained");
                Phase::InPlaceUpdating
            }
            Phase::InPlaceUpdating => Phase::InPlaceUpdateSuccessful,
            _ => return false,
        };
        self.trace.push(format!("machine {name}: {next}"));
        self.set_phase(name, next.clone());
        let Some(machine) = self.machines.get_mut(name) else { return true };
        let labels = machine.metadata.labels.get_or_insert_default();
        if next == Phase::Running {
            labels.insert(labels::NODE.to_owned(), name.to_owned());
        } else if next == Phase::InPlaceUpdateSuccessful {
            labels.insert(labels::UPDATE_RESULT.to_owned(), labels::UPDATE_SUCCESSFUL.to_owned());
            self.set_stage(name, reasons::UPDATE_SUCCESSFUL);
        }
        true
    }

    /// Whether the machine controller is about to show that a Machine may be selected for an
    /// update.
    fn becomes_candidate(&self, machine: &MachineFacts) -> bool {
        let owner = machine.owner.as_ref().map(|owner| owner.uid.as_str());
        let set = self.sets.values().find(|set| set.metadata.uid.as_deref() == owner);
        let is_old = set.is_some_and(|set| MachineSetFacts::parse(set).is_scale_up_disabled());
        let is_shown = machine.update_stage() == Some(reasons::CANDIDATE_FOR_UPDATE);
        let is_running = machine.status.phase == Phase::Running;
        is_old && is_running && !is_shown && !machine.is_updated_in_place()
    }

    fn set_stage(&mut self, name: &str, stage: &str) {
        let condition = json!({"type": "InPlaceUpdate", "status": "True", "reason": stage});
        let condition = serde_json::from_value(condition).expect("a condition");
        if let Some(machine) = self.machines.get_mut(name) {
            machine.status.get_or_insert_default().conditions = vec![condition];
        }
    }

    /// Runs all controllers in turn until nothing changes.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..2_000 {
            self.seconds += 1;
            let mut changed = self.reconcile_deployment();
            for name in self.sets.keys().cloned().collect::<Vec<_>>() {
                changed |= self.reconcile_set(&name);
            }
            if !changed {
                let names: Vec<_> = self.machines.keys().cloned().collect();
                changed = names.iter().any(|name| self.progress(name));
            }
            if !changed {
                changed = self.reconcile_replacement();
            }
            if !changed && self.machines.values().any(|machine| machine.phase() == Phase::Unknown) {
                self.seconds += HEALTH_TIMEOUT;
                changed = true;
            }
            if !changed {
                return;
            }
        }
        panic!("the toy does not settle:\n{}", self.trace.join("\n"));
    }

    pub(crate) fn replacement_snapshot(&self) -> replacement::Snapshot {
        replacement::Snapshot {
            now: self.now(),
            skew: std::time::Duration::ZERO,
            gaps: machinist_core::Unseen::default(),
            nodes_freshness: machinist_core::Freshness::Fresh,
            frozen: None,
            nodes: self
                .machines
                .values()
                .map(|machine| replacement::sick_node(&MachineFacts::parse(machine), self.now()))
                .collect(),
            machines: self.machines.values().map(MachineFacts::parse).map(Arc::new).collect(),
            unheard: BTreeSet::new(),
            sets: self.sets.values().map(MachineSetFacts::parse).map(Arc::new).collect(),
            unknown_owner: None,
            boots: BTreeMap::new(),
            never_joined: BTreeMap::new(),
            unseen: None,
            defaults: Arc::new(super::machine::Defaults {
                health_timeout: std::time::Duration::from_secs(HEALTH_TIMEOUT.unsigned_abs()),
                ..super::machine::Defaults::default()
            }),
        }
    }
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("test objects are well-formed")
}

fn add_finalizer(metadata: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) {
    let finalizer = machinist_api::constants::finalizers::MACHINE_CONTROLLER_MANAGER;
    metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
}

/// Sets values of a map, and removes keys without a value.
fn change(map: &mut BTreeMap<String, String>, changes: BTreeMap<String, Option<String>>) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }
}
