//! All existing objects at one moment, as a scenario sees them.

use std::fmt;

use machinist_api::constants::labels;
use machinist_cloud_sim::Ledger;

use crate::sight::{Item, SeenObject};

/// All existing objects at one moment. Objects of different kinds may be from slightly different
/// moments.
#[derive(Debug, Clone)]
pub struct MachineView {
    /// Machines.
    pub machines: Vec<Item>,
    /// MachineSets.
    pub sets: Vec<Item>,
    /// MachineDeployments.
    pub deployments: Vec<Item>,
    /// Nodes.
    pub nodes: Vec<Item>,
    /// Pods of the user's namespace.
    pub pods: Vec<Item>,
    /// Bootstrap tokens.
    pub tokens: Vec<Item>,
    /// The cloud's ledger: all existing and former instances.
    pub ledger: Ledger,
}

impl MachineView {
    /// The Machines.
    pub fn machines(&self) -> impl Iterator<Item = SeenObject<'_>> {
        self.machines.iter().map(Item::seen)
    }

    /// The Machine of that name.
    pub fn machine(&self, name: &str) -> Option<SeenObject<'_>> {
        self.machines().find(|machine| machine.name() == name)
    }

    /// The Node of that name.
    pub fn node(&self, name: &str) -> Option<SeenObject<'_>> {
        self.nodes.iter().map(Item::seen).find(|node| node.name() == name)
    }

    /// The pod of that name.
    pub fn pod(&self, name: &str) -> Option<SeenObject<'_>> {
        self.pods.iter().map(Item::seen).find(|pod| pod.name() == name)
    }

    /// The deployment of that name.
    pub fn deployment(&self, name: &str) -> Option<SeenObject<'_>> {
        self.deployments.iter().map(Item::seen).find(|deployment| deployment.name() == name)
    }

    /// The Machines that run and are not being deleted.
    pub fn running(&self) -> impl Iterator<Item = SeenObject<'_>> {
        self.machines().filter(|machine| machine.phase() == "Running" && !machine.is_deleting())
    }

    /// Whether a deployment has settled: `replicas` Machines of its newest template run with Ready
    /// Nodes, its status reports this, and no other Machines exist.
    pub fn has_settled(&self, name: &str, replicas: u32) -> Result<(), String> {
        let deployment = self.deployment(name).ok_or(format!("deployment {name} does not exist"))?;
        let wanted = usize::try_from(replicas).unwrap_or(usize::MAX);
        let machines: Vec<SeenObject<'_>> =
            self.machines().filter(|machine| machine.label(labels::NAME) == name).collect();
        if machines.len() != wanted {
            return Err(format!("{} Machines, expected {wanted}", machines.len()));
        }
        for machine in &machines {
            let node = self.node(machine.node_label());
            let is_ready = node.is_some_and(|node| node.condition("Ready") == "True");
            if machine.phase() != "Running" || machine.is_deleting() || !is_ready {
                return Err(format!(
                    "Machine {} has phase {:?}, Node ready: {is_ready}",
                    machine.name(),
                    machine.phase()
                ));
            }
        }
        let alive = self.ledger.alive().filter(|entry| entry.name.as_str().starts_with(name)).count();
        if alive != wanted {
            return Err(format!("{alive} instances, expected {wanted}"));
        }
        for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
            let has = deployment.number(&format!("/status/{field}")).unwrap_or(0);
            if has != i64::from(replicas) {
                return Err(format!("status.{field} is {has}"));
            }
        }
        let (generation, observed) =
            (deployment.number("/metadata/generation"), deployment.number("/status/observedGeneration"));
        if generation != observed {
            return Err(format!("generation {generation:?}, observed {observed:?}"));
        }
        Ok(())
    }

    /// Whether all objects and instances are deleted.
    pub fn is_empty(&self) -> Result<(), String> {
        let left = [
            ("Machines", self.machines.len()),
            ("sets", self.sets.len()),
            ("deployments", self.deployments.len()),
            ("instances", self.ledger.alive().count()),
            ("Nodes", self.nodes.len()),
            ("bootstrap tokens", self.tokens.len()),
        ];
        let left: Vec<String> = left
            .iter()
            .filter(|(_, count)| *count != 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        if left.is_empty() { Ok(()) } else { Err(format!("still existing: {}", left.join(", "))) }
    }
}

impl fmt::Display for MachineView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for deployment in self.deployments.iter().map(Item::seen) {
            writeln!(f, "deployment {} replicas={}", deployment.name(), deployment.replicas())?;
        }
        for set in self.sets.iter().map(Item::seen) {
            writeln!(f, "set {} replicas={}{}", set.name(), set.replicas(), going(set))?;
        }
        for machine in self.machines() {
            let (phase, says) = (machine.phase(), machine.text("/status/lastOperation/description"));
            writeln!(
                f,
                "machine {} {phase:?}{} {} {says:?}",
                machine.name(),
                going(machine),
                machine.provider_id()
            )?;
        }
        for node in self.nodes.iter().map(Item::seen) {
            let ready = node.condition("Ready");
            writeln!(f, "node {} Ready={ready}{} {}", node.name(), going(node), node.provider_id())?;
        }
        for pod in self.pods.iter().map(Item::seen) {
            let (node, ready) = (pod.text("/spec/nodeName"), pod.condition("Ready"));
            writeln!(f, "pod {} on {node} Ready={ready}{}", pod.name(), going(pod))?;
        }
        for entry in self.ledger.alive() {
            writeln!(f, "instance {} {}", entry.id, entry.name)?;
        }
        Ok(())
    }
}

fn going(object: SeenObject<'_>) -> &'static str {
    if object.is_deleting() { " (deleting)" } else { "" }
}
