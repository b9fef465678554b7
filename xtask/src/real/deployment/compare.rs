//! Compares the Machines and Nodes of a cluster with the instances of a cloud.
//!
//! Pure functions. The lists of the cloud come from the observer, and not from a driver.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Tags, labels or metadata of an object of a cloud.
pub(in crate::real) type Marks = BTreeMap<String, String>;

/// The kind of the object that has a Machine's name and recorded id. Other kinds are its parts.
const INSTANCE: &str = "instance";

/// An instance that exists.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::real) struct Instance {
    /// The provider id as Go writes it to the Machine.
    pub(in crate::real) id: String,
    /// Name of the Machine, as the instance carries it.
    pub(in crate::real) machine: String,
    /// Name of its Node.
    pub(in crate::real) node: String,
    /// The provider id as a cloud-controller-manager writes it to the Node.
    pub(in crate::real) node_id: String,
    pub(in crate::real) runs: bool,
    /// The type of the class from which it was made.
    #[serde(rename = "type")]
    pub(in crate::real) instance_type: String,
    pub(in crate::real) marks: Marks,
}

/// An object that a cloud has for an instance, in addition to the instance: a port, a volume, an
/// address.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::real) struct Part {
    pub(in crate::real) kind: String,
    pub(in crate::real) id: String,
    /// Name of the Machine, as the part carries it.
    pub(in crate::real) machine: String,
    /// Id of the instance that has it.
    pub(in crate::real) instance: Option<String>,
    pub(in crate::real) marks: Marks,
}

/// All that a cloud has.
#[derive(Debug, Clone, Default, Deserialize)]
pub(in crate::real) struct Inventory {
    pub(in crate::real) instances: Vec<Instance>,
    pub(in crate::real) parts: Vec<Part>,
    /// Number of instances that were ever made.
    pub(in crate::real) ever: usize,
}

#[derive(Debug, Clone)]
pub(in crate::real) struct Machine {
    pub(in crate::real) uid: String,
    pub(in crate::real) name: String,
    /// Empty until a provider id is recorded.
    pub(in crate::real) id: String,
    pub(in crate::real) node: String,
    pub(in crate::real) phase: String,
    pub(in crate::real) class: String,
    pub(in crate::real) is_deleted: bool,
}

/// All Machines and Nodes of a cluster.
#[derive(Debug, Clone, Default)]
pub(in crate::real) struct Objects {
    pub(in crate::real) machines: Vec<Machine>,
    pub(in crate::real) nodes: BTreeSet<String>,
}

/// The state in which both sides are compared.
#[derive(Debug, Clone, Copy)]
pub(in crate::real) enum Stage<'a> {
    /// All work is done: that many Machines run, with that class and type.
    Settled { machines: usize, class: &'a str, instance_type: &'a str },
    /// Instances are being created and deleted.
    InBetween,
}

/// The facts of earlier comparisons, and the marks that each object must carry.
#[derive(Debug, Default)]
pub(in crate::real) struct Memory {
    /// The marks of the class, by the kind of the object.
    required: BTreeMap<String, Marks>,
    /// The recorded provider ids, by the UID of the Machine.
    ids: BTreeMap<String, String>,
    /// The marks of each object at its first comparison.
    marks: BTreeMap<String, Marks>,
    /// The UID of every Machine.
    machines: BTreeSet<String>,
}

/// Returns instances that a Machine has in addition to another instance. One list of the cloud
/// shows them, so this holds at any time.
pub(in crate::real) fn doubles(inventory: &Inventory) -> Vec<String> {
    let mut of_machine: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for instance in &inventory.instances {
        of_machine.entry(&instance.machine).or_default().push(&instance.id);
    }
    let several = of_machine.iter().filter(|(_, ids)| 1 < ids.len());
    several.map(|(machine, ids)| format!("Machine {machine} has {}", ids.join(" and "))).collect()
}

impl Memory {
    /// Begins with the marks that each kind of object must have.
    pub(in crate::real) fn new(required: BTreeMap<String, Marks>) -> Self {
        Self { required, ..Self::default() }
    }

    /// Number of Machines that ever existed.
    pub(in crate::real) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// Remembers the recorded ids. Returns those that changed.
    pub(in crate::real) fn changed_ids(&mut self, objects: &Objects) -> Vec<String> {
        let mut changed = Vec::new();
        for Machine { uid, name, id, .. } in &objects.machines {
            self.machines.insert(uid.clone());
            match self.ids.get(uid) {
                Some(before) if before != id => {
                    changed.push(format!("spec.providerID of Machine {name} was {before}, and is {id:?}"));
                }
                None if !id.is_empty() => {
                    self.ids.insert(uid.clone(), id.clone());
                }
                Some(_) | None => {}
            }
        }
        changed
    }

    /// Returns every difference, as a line for people. No controller may run meanwhile, unless
    /// everything is settled.
    pub(in crate::real) fn differences(
        &mut self,
        objects: &Objects,
        inventory: &Inventory,
        stage: Stage<'_>,
    ) -> Vec<String> {
        let mut found = doubles(inventory);
        found.extend(self.changed_ids(objects));
        found.extend(left_over(objects, inventory));
        found.extend(lost(objects, inventory));
        found.extend(self.wrong_marks(objects, inventory));
        if let Stage::Settled { machines, class, instance_type } = stage {
            found.extend(wrong_counts(objects, inventory, machines));
            found.extend(unsettled(objects, inventory, class, instance_type));
            found.extend(self.wrong_parts(inventory));
        }
        found
    }

    /// Marks of the class that are absent, and marks that changed since the first comparison. Until
    /// a Machine runs for the first time, its creation may still complete them.
    fn wrong_marks(&mut self, objects: &Objects, inventory: &Inventory) -> Vec<String> {
        let runs = |name: &str| {
            objects.machines.iter().any(|machine| machine.name == name && machine.phase == "Running")
        };
        let instances = inventory.instances.iter();
        let instances = instances.map(|one| (INSTANCE, &one.id, &one.machine, &one.marks));
        let parts = inventory.parts.iter().map(|one| (one.kind.as_str(), &one.id, &one.machine, &one.marks));
        let mut wrong = Vec::new();
        for (kind, id, machine, marks) in instances.chain(parts) {
            if !self.marks.contains_key(id) && !runs(machine) {
                continue;
            }
            let first = self.marks.entry(id.clone()).or_insert_with(|| marks.clone());
            let mut expected = first.clone();
            expected.extend(self.required.get(kind).cloned().unwrap_or_default());
            for (name, value) in &expected {
                if marks.get(name) != Some(value) {
                    let now = marks.get(name).map_or("absent", String::as_str);
                    wrong.push(format!("mark {name} of {kind} {id} was {value}, and is {now}"));
                }
            }
        }
        wrong
    }

    /// Whether the recorded instance of a Machine runs and has all its parts.
    pub(in crate::real) fn is_complete(&self, machine: &Machine, inventory: &Inventory) -> bool {
        let instance = inventory.instances.iter().find(|instance| instance.id == machine.id && instance.runs);
        let Some(instance) = instance else { return false };
        let only = Inventory { instances: vec![instance.clone()], ..inventory.clone() };
        self.wrong_parts(&only).is_empty()
    }

    /// Instances without exactly one part of each kind.
    fn wrong_parts(&self, inventory: &Inventory) -> Vec<String> {
        let kinds = self.required.keys().filter(|kind| *kind != INSTANCE);
        let mut wrong = Vec::new();
        for kind in kinds {
            for instance in &inventory.instances {
                let is_its =
                    |part: &&Part| part.kind == *kind && part.instance.as_ref() == Some(&instance.id);
                let count = inventory.parts.iter().filter(is_its).count();
                if count != 1 {
                    wrong.push(format!("instance {} has {count} of the kind {kind}", instance.id));
                }
            }
        }
        wrong
    }
}

/// Instances and parts that belong to no Machine.
fn left_over(objects: &Objects, inventory: &Inventory) -> Vec<String> {
    let machine = |name: &str| objects.machines.iter().find(|machine| machine.name == name);
    let instances = inventory.instances.iter().filter_map(|instance| match machine(&instance.machine) {
        None => Some(format!("instance {} ({}) belongs to no Machine", instance.id, instance.machine)),
        Some(machine) if !machine.id.is_empty() && machine.id != instance.id => {
            Some(format!("Machine {} records {}, and has {}", machine.name, machine.id, instance.id))
        }
        Some(_) => None,
    });
    let parts = inventory.parts.iter().filter(|part| machine(&part.machine).is_none());
    let parts =
        parts.map(|part| format!("{} {} ({}) belongs to no Machine", part.kind, part.id, part.machine));
    instances.chain(parts).collect()
}

/// Machines whose recorded instance does not exist.
fn lost(objects: &Objects, inventory: &Inventory) -> Vec<String> {
    let exists = |id: &str| inventory.instances.iter().any(|instance| instance.id == id);
    let stays = objects.machines.iter().filter(|machine| !machine.id.is_empty() && !machine.is_deleted);
    let lost = stays.filter(|machine| !exists(&machine.id));
    lost.map(|machine| format!("Machine {} has lost {}", machine.name, machine.id)).collect()
}

fn wrong_counts(objects: &Objects, inventory: &Inventory, expected: usize) -> Vec<String> {
    let counts = [
        ("Machines", objects.machines.len()),
        ("instances", inventory.instances.len()),
        ("Nodes", objects.nodes.len()),
    ];
    let wrong = counts.iter().filter(|(_, count)| *count != expected);
    wrong.map(|(what, count)| format!("{count} {what} instead of {expected}")).collect()
}

/// Machines, Nodes and instances that are not yet as the deployment wants them.
fn unsettled(objects: &Objects, inventory: &Inventory, class: &str, instance_type: &str) -> Vec<String> {
    let mut found = Vec::new();
    for machine in &objects.machines {
        let Machine { name, id, node, phase, class: has, is_deleted, .. } = machine;
        if phase != "Running" || *is_deleted || has != class || id.is_empty() {
            found.push(format!("Machine {name} has the phase {phase:?}, the class {has} and the id {id:?}"));
        } else if !objects.nodes.contains(node) {
            found.push(format!("Machine {name} has no Node {node:?}"));
        }
    }
    for instance in &inventory.instances {
        if !instance.runs || instance.instance_type != instance_type {
            let Instance { id, instance_type: has, runs, .. } = instance;
            found.push(format!("instance {id} has the type {has} (it runs: {runs})"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(value: &str) -> Marks {
        Marks::from([("cluster".to_owned(), value.to_owned())])
    }

    fn instance(id: &str, machine: &str) -> Instance {
        Instance {
            id: id.to_owned(),
            machine: machine.to_owned(),
            node: machine.to_owned(),
            node_id: id.to_owned(),
            runs: true,
            instance_type: "small".to_owned(),
            marks: marks("a"),
        }
    }

    fn machine(name: &str, id: &str) -> Machine {
        Machine {
            uid: format!("uid-{name}"),
            name: name.to_owned(),
            id: id.to_owned(),
            node: name.to_owned(),
            phase: "Running".to_owned(),
            class: "v1".to_owned(),
            is_deleted: false,
        }
    }

    fn port(id: &str, machine: &str, instance: &str) -> Part {
        Part {
            kind: "port".to_owned(),
            id: id.to_owned(),
            machine: machine.to_owned(),
            instance: Some(instance.to_owned()),
            marks: marks("a"),
        }
    }

    /// Two Machines that are settled.
    fn settled() -> (Memory, Objects, Inventory) {
        let required = ["instance", "port"].map(|kind| (kind.to_owned(), marks("a")));
        let memory = Memory { required: required.into(), ..Memory::default() };
        let objects = Objects {
            machines: vec![machine("a", "1"), machine("b", "2")],
            nodes: ["a", "b"].map(str::to_owned).into(),
        };
        let inventory = Inventory {
            instances: vec![instance("1", "a"), instance("2", "b")],
            parts: vec![port("p1", "a", "1"), port("p2", "b", "2")],
            ever: 2,
        };
        (memory, objects, inventory)
    }

    const TWO: Stage<'_> = Stage::Settled { machines: 2, class: "v1", instance_type: "small" };

    #[test]
    fn equal_sides_have_no_difference() {
        let (mut memory, objects, inventory) = settled();
        assert!(memory.differences(&objects, &inventory, TWO).is_empty());
    }

    #[test]
    fn a_lost_instance_is_named() {
        let (mut memory, objects, mut inventory) = settled();
        inventory.instances.remove(0);
        let found = memory.differences(&objects, &inventory, Stage::InBetween);
        assert_eq!(found, ["Machine a has lost 1"]);
    }

    #[test]
    fn a_second_instance_of_a_machine_is_named() {
        let (mut memory, objects, mut inventory) = settled();
        inventory.instances.push(instance("3", "a"));
        let found = memory.differences(&objects, &inventory, Stage::InBetween);
        assert_eq!(found, ["Machine a has 1 and 3", "Machine a records 1, and has 3"]);
    }

    #[test]
    fn instances_and_parts_without_a_machine_are_named() {
        let (mut memory, mut objects, inventory) = settled();
        objects.machines.remove(1);
        let found = memory.differences(&objects, &inventory, Stage::InBetween);
        assert_eq!(found, ["instance 2 (b) belongs to no Machine", "port p2 (b) belongs to no Machine"]);
    }

    #[test]
    fn an_absent_and_a_changed_mark_are_named() {
        let (mut memory, objects, mut inventory) = settled();
        inventory.instances[0].marks.insert("pool".to_owned(), "x".to_owned());
        assert!(memory.differences(&objects, &inventory, TWO).is_empty());
        inventory.instances[0].marks.insert("pool".to_owned(), "y".to_owned());
        inventory.parts[1].marks.clear();
        let found = memory.differences(&objects, &inventory, TWO);
        assert_eq!(
            found,
            ["mark pool of instance 1 was x, and is y", "mark cluster of port p2 was a, and is absent",]
        );
    }

    #[test]
    fn a_creation_in_progress_may_lack_marks() {
        let (mut memory, mut objects, mut inventory) = settled();
        objects.machines[0].phase = "Pending".to_owned();
        inventory.parts[0].marks = marks("not yet");
        assert!(memory.differences(&objects, &inventory, Stage::InBetween).is_empty());
        objects.machines[0].phase = "Running".to_owned();
        let found = memory.differences(&objects, &inventory, Stage::InBetween);
        assert_eq!(found, ["mark cluster of port p1 was a, and is not yet"]);
    }

    #[test]
    fn a_changed_provider_id_is_named() {
        let (mut memory, mut objects, inventory) = settled();
        assert!(memory.differences(&objects, &inventory, TWO).is_empty());
        objects.machines[0].id = String::new();
        let found = memory.differences(&objects, &inventory, Stage::InBetween);
        assert_eq!(found, ["spec.providerID of Machine a was 1, and is \"\""]);
    }

    #[test]
    fn a_machine_that_is_deleted_may_have_no_instance() {
        let (mut memory, mut objects, mut inventory) = settled();
        objects.machines[0].is_deleted = true;
        inventory.instances.remove(0);
        inventory.parts.remove(0);
        assert!(memory.differences(&objects, &inventory, Stage::InBetween).is_empty());
        assert!(!memory.differences(&objects, &inventory, TWO).is_empty());
    }

    #[test]
    fn an_instance_without_its_part_is_not_complete() {
        let (memory, objects, mut inventory) = settled();
        let is_complete = |inventory: &Inventory| memory.is_complete(&objects.machines[0], inventory);
        assert!(is_complete(&inventory));
        inventory.parts.remove(0);
        assert!(!is_complete(&inventory));
        inventory.instances.clear();
        assert!(!is_complete(&inventory));
    }

    #[test]
    fn a_missing_part_is_named_when_all_work_is_done() {
        let (mut memory, objects, mut inventory) = settled();
        inventory.parts.remove(0);
        assert!(memory.differences(&objects, &inventory, Stage::InBetween).is_empty());
        let found = memory.differences(&objects, &inventory, TWO);
        assert_eq!(found, ["instance 1 has 0 of the kind port"]);
    }
}
