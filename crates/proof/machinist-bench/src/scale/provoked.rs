//! Decisions that the benchmark provokes while no controller runs, and the requests that show them.
//!
//! - A new Machine without a set: the machine controller adds its finalizer. It needs no pods.
//! - A deleted Machine: the machine controller drains its Node, for which it needs the pods.
//! - The replacement of the deleted Machine, which the manager creates.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use machinist_kube::{Clock as _, SystemClock};
use serde::Serialize;

use super::join::pod_prefix;
use super::machines::MeasuredMachines;
use crate::cluster_state::Counts;
use crate::objects;
use crate::pair::Pair;
use crate::progress::{until, until_quiet};
use crate::requests::{AnsweredRequest, Program, round};

/// Number of instances that the controllers create for one provocation.
pub(super) const INSTANCES: usize = 2;

/// The longest wait for the decisions: a Lease must expire, and all objects must be listed.
const DECIDED_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Number of other writes that are listed.
const OTHERS_SHOWN: usize = 5;

/// The changes of the benchmark, and the reactions of the controllers.
pub(super) struct Provoked {
    created: String,
    deleted: String,
    has_pods: bool,
    replacements: BTreeSet<String>,
    decisions: Decisions,
    others: Vec<AnsweredRequest>,
}

/// When the server received the first request of each decision.
#[derive(Debug, Clone, Copy, Default)]
struct Decisions {
    machine: Option<Timestamp>,
    drain: Option<Timestamp>,
    replacement: Option<Timestamp>,
}

/// Seconds until the first request of each decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionFigures {
    /// The first write about a new Machine, by the machine controller. It needs no pods.
    pub(super) machine_seconds: f64,
    /// The first eviction of a pod; absent if the Nodes have no pods.
    pub(super) drain_seconds: Option<f64>,
    /// The manager's POST of a replacement of a deleted Machine.
    pub(super) replacement_seconds: f64,
    /// Writes about objects that the benchmark did not change, without Events and Leases.
    pub(super) other_writes: usize,
    /// The first of these writes.
    pub(super) other_writes_shown: Vec<String>,
}

impl Provoked {
    /// Creates one Machine and deletes another one.
    ///
    /// # Errors
    /// When the server refuses a write.
    pub(super) async fn provoke(measured: &MeasuredMachines, name: &str) -> Result<Self> {
        let machines = objects::machines(&measured.client);
        let deleted = oldest_of_the_set(&measured.client).await?;
        let machine = objects::machine(name, "workers");
        machines.create(&PostParams::default(), &machine).await.context("cannot create a Machine")?;
        machines.delete(&deleted, &DeleteParams::default()).await.context("cannot delete a Machine")?;
        Ok(Self {
            created: name.to_owned(),
            deleted,
            has_pods: measured.pods != 0,
            replacements: BTreeSet::new(),
            decisions: Decisions::default(),
            others: Vec::new(),
        })
    }

    /// Waits for all decisions, and until the controllers write nothing more.
    ///
    /// # Errors
    /// When a decision does not follow in time, or a controller exits.
    pub(super) async fn until_decided(&mut self, measured: &mut MeasuredMachines) -> Result<()> {
        let is_decided = async || {
            measured.ensure_alive()?;
            for request in measured.requests.take()? {
                self.note(request);
            }
            Ok(self.is_decided())
        };
        let in_time = until(DECIDED_WITHIN, LOOK_EVERY, is_decided).await;
        in_time.map_err(|_elapsed| {
            anyhow!("a decision did not follow within {DECIDED_WITHIN:?}: {:?}", self.decisions)
        })??;
        until_quiet(|| {
            let mut has_written = false;
            for request in measured.requests.take()? {
                has_written |= request.is_controllers_write();
                self.note(request);
            }
            Ok(has_written)
        })
        .await
        .map(drop)
    }

    /// Deletes the Machine that was created, and waits for the former number of Machines.
    ///
    /// # Errors
    /// When that number is not reached in time.
    pub(super) async fn clean_up(&self, measured: &mut MeasuredMachines, machines: u32) -> Result<()> {
        let api = objects::machines(&measured.client);
        api.delete(&self.created, &DeleteParams::default()).await.context("cannot delete a Machine")?;
        let is_settled = |counts: &Counts| {
            counts.machines == machines && counts.running() == machines && counts.nodes == machines
        };
        measured.state.until("the provoked Machines to be gone", DECIDED_WITHIN, is_settled).await?;
        until_quiet(|| Ok(measured.requests.take()?.iter().any(AnsweredRequest::is_controllers_write)))
            .await
            .map(drop)
    }

    /// The figures, in seconds since a time of each controller.
    ///
    /// # Errors
    /// When a decision is missing.
    pub(super) fn figures(&self, since: Pair<Timestamp>) -> Result<DecisionFigures> {
        let seconds = |at: Timestamp, since: Timestamp| round(at.duration_since(since).as_secs_f64());
        let Decisions { machine, drain, replacement } = self.decisions;
        Ok(DecisionFigures {
            machine_seconds: seconds(
                machine.context("no decision about the new Machine")?,
                since.machine_controller,
            ),
            drain_seconds: drain.map(|at| seconds(at, since.machine_controller)),
            replacement_seconds: seconds(replacement.context("no replacement")?, since.manager),
            other_writes: self.others.len(),
            other_writes_shown: self.others.iter().take(OTHERS_SHOWN).map(ToString::to_string).collect(),
        })
    }

    fn is_decided(&self) -> bool {
        let Decisions { machine, drain, replacement } = self.decisions;
        machine.is_some() && replacement.is_some() && (drain.is_some() || !self.has_pods)
    }

    fn note(&mut self, request: AnsweredRequest) {
        if !request.is_controllers_write() {
            return;
        }
        let at = request.received.unwrap_or_else(|| SystemClock.now());
        let first = |known: &mut Option<Timestamp>| *known = Some(known.map_or(at, |known| known.min(at)));
        if request.makes_machine() && request.program == Program::Manager {
            first(&mut self.decisions.replacement);
            self.replacements.insert(request.name.clone());
        }
        if request.program == Program::MachineController && request.name == self.created {
            first(&mut self.decisions.machine);
        }
        if request.resource == "pods/eviction" {
            first(&mut self.decisions.drain);
        }
        if !self.follows(&request) {
            self.others.push(request);
        }
    }

    /// Whether the change of the benchmark is the reason of the write: it is about one of the
    /// Machines, or its Node, pods or token, or about the counts of its set.
    fn follows(&self, request: &AnsweredRequest) -> bool {
        let is_of_set = ["machinesets", "machinedeployments"]
            .iter()
            .any(|kind| request.resource.split('/').next() == Some(*kind));
        let is_token = request.resource == "secrets" && matches!(request.verb.as_str(), "create" | "delete");
        let is_machine = [&self.created, &self.deleted].contains(&&request.name)
            || self.replacements.contains(&request.name);
        is_of_set || is_token || is_machine || request.name.starts_with(&pod_prefix(&self.deleted))
    }
}

async fn oldest_of_the_set(client: &Client) -> Result<String> {
    let machines = objects::list_machines(client).await?;
    let owned = machines.iter().filter(|machine| !machine.owner_references().is_empty());
    let oldest = owned.filter(|machine| machine.metadata.deletion_timestamp.is_none());
    let oldest = oldest.min_by_key(|machine| (machine.creation_timestamp(), machine.name_any()));
    Ok(oldest.context("no set has a Machine")?.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(program: Program, verb: &str, resource: &str, name: &str, second: i64) -> AnsweredRequest {
        let received = Some(Timestamp::from_second(second).expect("a time"));
        let name = name.to_owned();
        AnsweredRequest { received, name, ..AnsweredRequest::test(program, verb, resource, 200) }
    }

    #[test]
    fn decisions_and_writes_about_other_objects_are_told_apart() {
        let mut provoked = Provoked {
            created: "new".to_owned(),
            deleted: "old".to_owned(),
            has_pods: true,
            replacements: BTreeSet::new(),
            decisions: Decisions::default(),
            others: Vec::new(),
        };
        let (controller, manager) = (Program::MachineController, Program::Manager);
        for request in [
            request(manager, "list", "machines", "", 1),
            request(controller, "patch", "nodes/status", "old", 2),
            request(controller, "patch", "machines", "new", 3),
            request(controller, "patch", "machines/status", "new", 4),
            request(manager, "create", "machines", "replaced", 5),
            request(controller, "patch", "nodes", "replaced", 6),
            request(controller, "create", "secrets", "bootstrap-token-abcdef", 6),
            request(manager, "patch", "machinesets/status", "workers-1", 6),
            request(controller, "create", "pods/eviction", "old-pod-3", 7),
        ] {
            assert!(!provoked.is_decided(), "{request}");
            provoked.note(request);
        }
        assert!(provoked.is_decided());
        provoked.note(request(controller, "patch", "machines/status", "other", 8));
        let start = Timestamp::from_second(1).expect("a time");
        let figures =
            provoked.figures(Pair { machine_controller: start, manager: start }).expect("all decisions");
        assert_eq!(
            (figures.machine_seconds, figures.drain_seconds, figures.replacement_seconds),
            (2.0, Some(6.0), 4.0)
        );
        assert_eq!(
            figures.other_writes_shown,
            ["patch machines/status other -> 200 by the machine controller"]
        );
    }
}
