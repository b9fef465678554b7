//! After the provider id is recorded: the bootstrap, and the Node.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::ConditionStatus;
use machinist_api::capi::constants::conditions::{BOOTSTRAP_COMPLETED, BOOTSTRAP_EXEC_SUCCEEDED};
use machinist_core::{Step, plus};
use machinist_instance::{BootstrapCause, BootstrapFailure, BootstrapState, BootstrapStatus, Instance};

use super::status::{self, Container, Depth, with_changed_status};
use super::{
    Action, COMPLETE_NODE, LASTING, LOOK_EVERY, OBSERVE_EVERY, PROGRESS, START_BOOTSTRAP, Work, observe, wait,
};
use crate::capi::conditions::ConditionReport;
use crate::capi::why::{CapiReason, Plan, Reason, Why};

/// Reason of a condition: the container has lost an address that is configured in it.
const ADDRESS_CHANGED: &str = "AddressChanged";
/// Time between two looks for a Node that has not registered.
const NODE_AGAIN: Duration = Duration::from_secs(5);
/// Time between two looks at a Node that is complete.
const NODE_CONFIRMED_EVERY: Duration = Duration::from_secs(600);
/// After this many failures in a row the condition says that the workload cluster is unreachable.
const UNREACHABLE_FROM: u32 = 3;
/// Folder in the container with the output of the bootstrap.
const OUTPUT: &str = "/var/lib/machinist/bootstrap";
/// Number of lines at the end of an output that the status shows.
const SHOWN_LINES: usize = 12;
/// Longest line of an output that explains a failure, in characters.
const MAX_LINE_LEN: usize = 400;
/// The longest wait before another attempt to reach a workload cluster.
const UNREACHABLE_AGAIN: Duration = Duration::from_secs(30);

/// The Node of a container, as the workload cluster showed it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeCompletion {
    /// The Node has not registered.
    Missing,
    /// The Node has the provider id, and no taint of an uninitialized Node.
    Complete,
    /// The Node has another provider id, which cannot be changed.
    OtherId(String),
}

/// Marks the machine as provisioned, bootstraps it and completes its Node.
pub(super) fn after_provision(work: &Work<'_>, instance: &Instance) -> Plan<Action> {
    let s = work.s;
    if let Some(plan) = moved(work, instance) {
        return plan;
    }
    let (report, plan) = if done_before(work) {
        (status::bootstrapped(hint(work)), completed(work, instance))
    } else {
        bootstrap(work, instance)
    };
    // That write changes the generation of the object, which every condition contains. So the
    // status is written after it, and only once.
    if plan.actions.iter().any(|action| matches!(action, Action::RecordBootstrapped)) {
        return plan;
    }
    let is_done = report.status == ConditionStatus::True;
    let is_balanced = work.owner.is_control_plane.then(|| work.is_balanced());
    let node = node_report(work, instance).map(Box::new);
    let depth = Depth::Bootstrap { bootstrap: Box::new(report), node };
    with_changed_status(s, plan, Container::Runs, depth, |status| {
        // The start of the bootstrap implies the load balancer, so this field alone causes no
        // write.
        let is_written = is_done || status.load_balancer_configured.is_none();
        status::provisioned(status, instance, is_balanced.filter(|_| is_written));
    })
}

/// Reports that a control plane no longer has the address for which kubeadm configured it.
/// The status keeps that address, so that a user can give it back.
fn moved(work: &Work<'_>, instance: &Instance) -> Option<Plan<Action>> {
    let s = work.s;
    if !work.owner.is_control_plane || !done_before(work) {
        return None;
    }
    let from = status::recorded_ips(s);
    let to = status::ips(instance);
    if from.is_empty() || to.is_empty() || to.iter().any(|address| from.contains(address)) {
        return None;
    }
    let (container, from, to) = (instance.name.to_string(), from.join(", "), to.join(", "));
    let fix = format!(
        "stop the container that has {from}, then stop and start container {container}; or delete the Machine if the \
         cluster has other machines of the control plane"
    );
    let reason = CapiReason::ContainerMoved { container, from, to };
    let state = Container::Failed(ADDRESS_CHANGED, format!("{reason}. To continue, {fix}"));
    let depth = Depth::Bootstrap { bootstrap: Box::new(status::bootstrapped(hint(work))), node: None };
    let plan = Plan::idle(Why::new(reason, Step::Fix(fix)));
    Some(status::with_status(s, plan, state, depth))
}

/// Whether the bootstrap is known to have succeeded: from the object, or after a move because the
/// Machine has a Node. Other Docker providers of Cluster API record it under the older name.
fn done_before(work: &Work<'_>) -> bool {
    let machine = &work.s.machine;
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let is_reported = conditions
        .filter(|condition| [BOOTSTRAP_COMPLETED, BOOTSTRAP_EXEC_SUCCEEDED].contains(&&*condition.type_))
        .any(|condition| condition.status == ConditionStatus::True);
    is_reported || machine.spec.bootstrapped == Some(true) || work.owner.node.is_some()
}

/// Returns the text about parts of the user data that this provider skips: from the container, or
/// as the status shows it.
fn hint(work: &Work<'_>) -> String {
    let seen = work.s.steps.progress.as_ref().and_then(|progress| progress.answer.as_ref().ok());
    if let Some(BootstrapStatus { state: BootstrapState::Succeeded, ignored }) = seen {
        return match ignored.as_slice() {
            [] => String::new(),
            parts => format!("These parts of the user data were skipped: {}", parts.join(", ")),
        };
    }
    status::recorded_hint(work.s)
}

/// Records that the bootstrap has ended, then completes the Node. The field survives a move, and
/// clients of the contract v1beta1 read it.
fn completed(work: &Work<'_>, instance: &Instance) -> Plan<Action> {
    if work.s.machine.spec.bootstrapped == Some(true) {
        return complete_node(work, instance);
    }
    let why = Why::new(
        Reason::Writing("recording that the bootstrap has ended"),
        Step::Expect("the Node is completed"),
    );
    Plan::act(Action::RecordBootstrapped, why)
}

impl Work<'_> {
    /// Whether the load balancer has this machine.
    fn is_balanced(&self) -> bool {
        self.infrastructure.balances(&self.s.machine.object.name)
    }
}

fn bootstrap(work: &Work<'_>, instance: &Instance) -> (ConditionReport, Plan<Action>) {
    let s = work.s;
    let which = || s.which_is(instance);
    let look = || {
        let why = Why::new(Reason::Calling(PROGRESS), Step::Expect("the engine shows the bootstrap"));
        Plan::act(Action::ObserveBootstrap(which()), why)
    };
    let unchanged = || recorded_report(work).unwrap_or_else(|| status::bootstrapping(String::new()));
    let Some(progress) = &s.steps.progress else { return (unchanged(), look()) };
    // A start that was answered later than the last look has changed the progress. At the same
    // moment the order is not known, so the container is looked at again a little later.
    let started = s.steps.start.as_ref().filter(|started| started.answer.is_ok());
    match started.map(|started| progress.started.cmp(&started.ended)) {
        Some(Ordering::Less) => return (unchanged(), look()),
        Some(Ordering::Equal) => {
            let due = plus(progress.ended, OBSERVE_EVERY.0);
            let plan = if due <= s.now { look() } else { Plan::until(due, look().why) };
            return (unchanged(), plan);
        }
        Some(Ordering::Greater) | None => {}
    }
    let seen = match &progress.answer {
        Ok(seen) => seen,
        Err(error) => {
            let plan =
                work.step_failed(PROGRESS, error, progress.ended, || Action::ObserveBootstrap(which()));
            return (unchanged(), plan);
        }
    };
    match &seen.state {
        BootstrapState::NotStarted => start(work, instance, progress.ended),
        BootstrapState::Running { .. } => {
            let text = seen.state.to_string();
            let since = s.steps.doing_since(&text, progress.ended);
            let why = wait(CapiReason::Bootstrapping { progress: text.clone() }, "the bootstrap ends").why;
            let plan = observe(s, since, progress.ended, why, || Action::ObserveBootstrap(which()));
            lasting(work, plan, since, &text)
        }
        BootstrapState::Succeeded => (status::bootstrapped(hint(work)), completed(work, instance)),
        BootstrapState::Failed(failure) => {
            let fix = format!(
                "read the whole output with docker exec {} sh -c 'cat {OUTPUT}/stdout {OUTPUT}/stderr'; then delete the \
                 Machine, or let a MachineHealthCheck replace it",
                instance.name
            );
            let reason = CapiReason::BootstrapFailed { cause: cause(failure) };
            (failed(failure), Plan::idle(Why::new(reason, Step::Fix(fix))))
        }
    }
}

/// Returns the report that the status shows, or after some time one with this message. The
/// bootstrap has many steps, and most are short.
fn lasting(
    work: &Work<'_>,
    plan: Plan<Action>,
    since: Timestamp,
    message: &str,
) -> (ConditionReport, Plan<Action>) {
    let due = plus(since, LASTING);
    match (due <= work.s.now, recorded_report(work)) {
        (true, _) => (status::bootstrapping(message.to_owned()), plan),
        (false, None) => (status::bootstrapping(String::new()), plan.no_later_than(due)),
        (false, Some(shown)) => (shown, plan.no_later_than(due)),
    }
}

/// Starts the bootstrap. A machine of the control plane must be behind the load balancer first,
/// because its bootstrap connects through the load balancer.
fn start(work: &Work<'_>, instance: &Instance, looked: Timestamp) -> (ConditionReport, Plan<Action>) {
    let s = work.s;
    let Some(secret) = work.owner.bootstrap_secret.clone() else {
        let why = CapiReason::BootstrapDataMissing { machine: work.owner.object.name.clone() };
        let plan = wait(why, "the bootstrap provider creates the data");
        return lasting(work, plan, looked, "Waiting for bootstrap data");
    };
    if work.owner.is_control_plane && !work.is_balanced() {
        let cluster = work.infrastructure.object.name.clone();
        let plan = wait(CapiReason::LoadBalancerPending { cluster }, "the load balancer is configured");
        return lasting(work, plan, looked, "Waiting for the load balancer");
    }
    let timeout = s.machine.spec.bootstrap_timeout.as_ref();
    let timeout = timeout.and_then(|text| text.duration()?.to_std()).filter(|timeout| !timeout.is_zero());
    let action = || Action::StartBootstrap {
        which: s.which_is(instance),
        secret: secret.clone(),
        timeout: timeout.unwrap_or(s.options.bootstrap_timeout),
    };
    let calling = || Why::new(Reason::Calling(START_BOOTSTRAP), Step::Expect("the bootstrap runs"));
    let begins = |since, plan| lasting(work, plan, since, "Starting");
    match s.steps.start.as_ref().map(|started| (&started.answer, started.ended)) {
        None => begins(s.now, Plan::act(action(), calling())),
        Some((Err(error), ended)) => {
            let reason = match error.kind {
                machinist_instance::ErrorKind::InvalidSpec => "InvalidBootstrapData",
                _ => "NotCompleted",
            };
            let report = status::bootstrap_failed(reason, error.message.clone());
            (report, work.step_failed(START_BOOTSTRAP, error, ended, action))
        }
        // The start was accepted, and a later look shows nothing. The call is idempotent.
        Some((Ok(()), started)) if plus(looked, OBSERVE_EVERY.1) <= s.now => {
            begins(started, Plan::act(action(), calling()))
        }
        Some((Ok(()), started)) => begins(started, Plan::until(plus(looked, OBSERVE_EVERY.1), calling())),
    }
}

fn failed(failure: &BootstrapFailure) -> ConditionReport {
    let reason = match failure.cause {
        BootstrapCause::Exited { .. } | BootstrapCause::Interrupted => "Failed",
        BootstrapCause::SuccessFileMissing => "SentinelMissing",
        BootstrapCause::TimedOut { .. } => "TimedOut",
    };
    let mut message = cause(failure);
    // Programs write their errors to stderr. Both outputs are in the container.
    let (name, output) = if failure.stderr.trim().is_empty() {
        ("stdout", &failure.stdout)
    } else {
        ("stderr", &failure.stderr)
    };
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default();
    if !shown.is_empty() {
        message.push_str(&format!("\nend of {name}:\n{}", shown.join("\n")));
    }
    status::bootstrap_failed(reason, message)
}

/// Returns the cause with the line of the output that explains it best, so that a short message
/// suffices. kubeadm marks such lines.
fn cause(failure: &BootstrapFailure) -> String {
    let lines = || failure.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let marked = lines().find(|line| line.contains("[ERROR ")).or_else(|| lines().next_back());
    match marked {
        Some(line) => {
            let line: String = line.chars().take(MAX_LINE_LEN).collect();
            format!("{}: {line}", failure.cause)
        }
        None => failure.cause.to_string(),
    }
}

/// Returns the report that the status shows, so that a new process does not change it before it has
/// looked.
fn recorded_report(work: &Work<'_>) -> Option<ConditionReport> {
    let mut conditions = work.s.machine.status.iter().flat_map(|status| &status.conditions);
    let shown = conditions.rfind(|condition| condition.type_ == BOOTSTRAP_COMPLETED)?;
    let known = ["Failed", "SentinelMissing", "TimedOut", "InvalidBootstrapData"];
    match known.iter().find(|reason| **reason == shown.reason) {
        Some(reason) => Some(status::bootstrap_failed(reason, shown.message.clone())),
        None => Some(status::bootstrapping(shown.message.clone())),
    }
}

/// Returns the condition of a Node with a problem that users must know, and of a Node that had the
/// problem.
fn node_report(work: &Work<'_>, instance: &Instance) -> Option<ConditionReport> {
    let (s, node) = (work.s, instance.name.as_str());
    match &s.steps.node.as_ref()?.answer {
        Ok(NodeCompletion::Complete) => status::node_complete(s),
        Ok(NodeCompletion::Missing) => None,
        Ok(NodeCompletion::OtherId(id)) => {
            let reason = CapiReason::NodeIdMismatch { node: node.to_owned(), id: id.clone() };
            Some(status::node_incomplete("NodeProviderIDMismatch", reason.to_string()))
        }
        // The API server of a new cluster does not answer at once.
        Err(_) if s.steps.failures < UNREACHABLE_FROM => None,
        Err(error) => {
            let (cluster, message) = (work.cluster.object.name.clone(), error.message.clone());
            let reason = CapiReason::WorkloadUnreachable { cluster, message };
            Some(status::node_incomplete("WorkloadClusterUnreachable", reason.to_string()))
        }
    }
}

/// Gives the Node its provider id and removes the taint of an uninitialized Node.
fn complete_node(work: &Work<'_>, instance: &Instance) -> Plan<Action> {
    let (s, cluster) = (work.s, work.cluster);
    if cluster.has_control_plane && !cluster.control_plane_initialized {
        let why = CapiReason::ControlPlaneNotInitialized { cluster: cluster.object.name.clone() };
        return wait(why, "the control plane serves its API");
    }
    let node = instance.name.as_str().to_owned();
    let complete = || {
        let action = Action::CompleteNode {
            cluster: cluster.object.name.clone(),
            node: node.clone(),
            id: instance.id.clone(),
            addresses: status::ips(instance),
        };
        Plan::act(action, Why::new(Reason::Calling(COMPLETE_NODE), Step::Expect("the Node is complete")))
    };
    let again = |ended, after, reason: CapiReason, next| {
        let due = plus(ended, after);
        if due <= s.now { complete() } else { Plan::until(due, wait(reason, next).why) }
    };
    match s.steps.node.as_ref().map(|answered| (&answered.answer, answered.ended)) {
        None => complete(),
        // A Node that was deleted registers again, without a provider id.
        Some((Ok(NodeCompletion::Complete), ended)) => {
            let due = plus(ended, NODE_CONFIRMED_EVERY);
            if due <= s.now { complete() } else { Plan::until(due, Why::up_to_date()) }
        }
        Some((Ok(NodeCompletion::Missing), ended)) => again(
            ended,
            NODE_AGAIN,
            CapiReason::NodeMissing { node: node.clone() },
            "the kubelet registers the Node",
        ),
        Some((Ok(NodeCompletion::OtherId(id)), ended)) => {
            let reason = CapiReason::NodeIdMismatch { node: node.clone(), id: id.clone() };
            again(ended, LOOK_EVERY, reason, "a user deletes the Node, and the kubelet registers it again")
        }
        Some((Err(error), ended)) => {
            let after = NODE_AGAIN.saturating_mul(s.steps.failures.max(1)).min(UNREACHABLE_AGAIN);
            let cluster = cluster.object.name.clone();
            let reason = CapiReason::WorkloadUnreachable { cluster, message: error.message.clone() };
            again(ended, after, reason, "the workload cluster answers")
        }
    }
}
