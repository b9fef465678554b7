//! The status of a DockerMachine: conditions, addresses, and whether it is provisioned.

use jiff::Timestamp;
use machinist_api::ConditionStatus;
use machinist_api::capi::constants::conditions::{
    BOOTSTRAP_COMPLETED, BOOTSTRAP_EXEC_SUCCEEDED, CGROUPS_READY, CONTAINER_PROVISIONED, ENGINE_CLOSED,
    KEY_TAKEN, NODE_INITIALIZED, PAUSED, PRELOADED_IMAGES_READY,
};
use machinist_api::capi::{Condition, DockerMachineStatus, Initialization, MachineAddress};
use machinist_core::plus;
use machinist_instance::{AddressKind, Instance};

use super::{Action, CREATING, LASTING, Snapshot};
use crate::capi::conditions::{self, ConditionReport, Problem};
use crate::capi::why::Plan;

/// Number of conditions that the summary of the contract v1beta1 counts: ContainerProvisioned and
/// BootstrapExecSucceeded.
const V1_CONDITIONS: usize = 2;

/// Reason in v1beta1 of a container that does not run because of an error.
const CREATION_FAILED: &str = "ContainerProvisioningFailed";
/// Reason in v1beta1 of a container whose deletion failed.
const DELETION_FAILED: &str = "DeletionFailed";

/// The state of the container, for the condition ContainerProvisioned.
pub(super) enum Container {
    /// Something else comes first: the reason, the reason in v1beta1, and a message.
    Waiting(&'static str, &'static str, String),
    /// The container does not run: the reason and a message.
    Failed(&'static str, String),
    /// The container no longer exists.
    Deleted(String),
    /// The object is being deleted: the error of the last call, or an empty text.
    Deleting(String),
    /// The container runs.
    Runs,
}

/// How far the work in the container is.
pub(super) enum Depth {
    /// The container does not run.
    Nothing,
    /// The operating system starts. The text says what is missing.
    Starting(String),
    /// Images are loaded. The text says which.
    Loading(String),
    /// The bootstrap is pending, runs or has ended.
    Bootstrap {
        /// The state of the bootstrap.
        bootstrap: Box<ConditionReport>,
        /// The state of the Node, if there is or was a problem.
        node: Option<Box<ConditionReport>>,
    },
}

fn container(container: Container) -> ConditionReport {
    let no = |reason, v1, severity, message| {
        ConditionReport::no(CONTAINER_PROVISIONED, reason, message).in_v1(CONTAINER_PROVISIONED, v1, severity)
    };
    match container {
        Container::Waiting(reason, v1, message) => no(reason, v1, "Info", message),
        Container::Failed(reason, message) => no(reason, CREATION_FAILED, "Warning", message),
        Container::Deleted(message) => no("NotProvisioned", "ContainerDeleted", "Error", message),
        Container::Deleting(error) if error.is_empty() => no("Deleting", "Deleting", "Info", error),
        Container::Deleting(error) => no("Deleting", DELETION_FAILED, "Warning", error),
        Container::Runs => ConditionReport::yes(CONTAINER_PROVISIONED, "Provisioned").in_v1(
            CONTAINER_PROVISIONED,
            "Provisioned",
            "Info",
        ),
    }
}

/// Returns the reports in the order of the summary, and the report about the Node. The Node belongs
/// to the workload cluster, so it is not part of the summary.
fn parts(s: &Snapshot, state: Container, depth: Depth) -> (Vec<ConditionReport>, Option<ConditionReport>) {
    let waits = |type_, reason| ConditionReport::no(type_, reason, "");
    let mut of_node = None;
    let [cgroups, images, bootstrap] = match depth {
        // A stopped container keeps its files, and is never bootstrapped again.
        Depth::Nothing if s.machine.spec.bootstrapped == Some(true) => [
            waits(CGROUPS_READY, "WaitingForContainer"),
            ConditionReport::yes(PRELOADED_IMAGES_READY, "Ready"),
            bootstrapped(recorded_hint(s)),
        ],
        Depth::Nothing => [
            waits(CGROUPS_READY, "WaitingForContainer"),
            waits(PRELOADED_IMAGES_READY, "WaitingForContainer"),
            waits(BOOTSTRAP_COMPLETED, "WaitingForContainer"),
        ],
        Depth::Starting(missing) => [
            ConditionReport::no(CGROUPS_READY, "NotReady", missing),
            waits(PRELOADED_IMAGES_READY, "WaitingForCGroups"),
            waits(BOOTSTRAP_COMPLETED, "WaitingForCGroups"),
        ],
        Depth::Loading(image) => [
            ConditionReport::yes(CGROUPS_READY, "Ready"),
            ConditionReport::no(PRELOADED_IMAGES_READY, "NotReady", image),
            waits(BOOTSTRAP_COMPLETED, "WaitingForPreloadedImages"),
        ],
        Depth::Bootstrap { bootstrap, node } => {
            of_node = node.map(|report| *report);
            [
                ConditionReport::yes(CGROUPS_READY, "Ready"),
                ConditionReport::yes(PRELOADED_IMAGES_READY, "Ready"),
                *bootstrap,
            ]
        }
    };
    (vec![cgroups, container(state), images, bootstrap], of_node)
}

/// Returns the report about a bootstrap that runs.
pub(super) fn bootstrapping(message: String) -> ConditionReport {
    ConditionReport::no(BOOTSTRAP_COMPLETED, "NotCompleted", message).in_v1(
        BOOTSTRAP_EXEC_SUCCEEDED,
        "Bootstrapping",
        "Info",
    )
}

/// Returns the report about a bootstrap that has failed.
pub(super) fn bootstrap_failed(reason: &'static str, message: String) -> ConditionReport {
    ConditionReport::no(BOOTSTRAP_COMPLETED, reason, message).in_v1(
        BOOTSTRAP_EXEC_SUCCEEDED,
        "BootstrapFailed",
        "Warning",
    )
}

/// Returns the report about a bootstrap that has succeeded. The hint names parts of the user data
/// that were skipped; it may be empty.
pub(super) fn bootstrapped(hint: String) -> ConditionReport {
    let done = ConditionReport::yes(BOOTSTRAP_COMPLETED, "Completed").in_v1(
        BOOTSTRAP_EXEC_SUCCEEDED,
        "Completed",
        "Info",
    );
    ConditionReport { message: conditions::bounded(hint), ..done }
}

/// The reason of the Event about skipped parts of the user data.
const PARTS_SKIPPED: &str = "BootstrapDataPartsSkipped";

/// Returns the hint about skipped parts of the user data, if the new status is the first to show
/// it.
pub fn skipped_parts<'c>(
    old: Option<&DockerMachineStatus>,
    new: &'c DockerMachineStatus,
) -> Option<Problem<'c>> {
    fn hint(status: &DockerMachineStatus) -> Option<&str> {
        let is_hint = |condition: &&Condition| {
            condition.type_ == BOOTSTRAP_COMPLETED && condition.status == ConditionStatus::True
        };
        let shown = status.conditions.iter().find(is_hint).map(|condition| condition.message.as_str());
        shown.filter(|message| !message.is_empty())
    }
    let message = hint(new).filter(|message| old.and_then(hint) != Some(message))?;
    Some(Problem { reason: PARTS_SKIPPED, message })
}

/// Returns the hint that the status shows about skipped parts of the user data.
pub(super) fn recorded_hint(s: &Snapshot) -> String {
    let mut conditions = s.machine.status.iter().flat_map(|status| &status.conditions);
    let is_hint = |condition: &&Condition| {
        condition.type_ == BOOTSTRAP_COMPLETED && condition.status == ConditionStatus::True
    };
    conditions.find(is_hint).map(|condition| condition.message.clone()).unwrap_or_default()
}

/// Returns the report about a Node that is not complete for a reason that users must know.
pub(super) fn node_incomplete(reason: &'static str, message: String) -> ConditionReport {
    ConditionReport::no(NODE_INITIALIZED, reason, message)
}

/// Returns the report about a complete Node, if the status shows an earlier problem.
pub(super) fn node_complete(s: &Snapshot) -> Option<ConditionReport> {
    let mut conditions = s.machine.status.iter().flat_map(|status| &status.conditions);
    let had_a_problem = conditions.any(|shown| shown.type_ == NODE_INITIALIZED);
    had_a_problem.then(|| ConditionReport::yes(NODE_INITIALIZED, "Initialized"))
}

/// Puts the write of the status before the actions of a plan, if the status differs. During the
/// next attempt at a creation that failed, the status shows the failure.
pub(super) fn with_status(s: &Snapshot, plan: Plan<Action>, state: Container, depth: Depth) -> Plan<Action> {
    let is_attempt = matches!(state, Container::Waiting(_, CREATING, _));
    if is_attempt && recorded_v1_reason(s) == Some(CREATION_FAILED) && !shows_pause(s) {
        return plan;
    }
    with_changed_status(s, plan, state, depth, |_| {})
}

/// The same for a state that usually ends soon: its status is written after it has lasted.
pub(super) fn with_lasting_status(
    s: &Snapshot,
    plan: Plan<Action>,
    since: Timestamp,
    state: Container,
    depth: Depth,
) -> Plan<Action> {
    with_status_from(s, plan, plus(since, LASTING), state, depth)
}

/// The same for a state whose status is written from `due` on.
pub(super) fn with_status_from(
    s: &Snapshot,
    plan: Plan<Action>,
    due: Timestamp,
    state: Container,
    depth: Depth,
) -> Plan<Action> {
    // A pause that has ended must not stay in the status.
    if due <= s.now || shows_pause(s) {
        return with_status(s, plan, state, depth);
    }
    plan.no_later_than(due)
}

/// Returns the reason of the recorded problem of the container, in the contract v1beta1.
fn recorded_v1_reason(s: &Snapshot) -> Option<&str> {
    let shown = s.machine.status.as_ref()?.deprecated.as_ref();
    conditions::shown_trouble(shown, CONTAINER_PROVISIONED)?.reason.as_deref()
}

/// Returns the recorded problem of the container if it has this cause. The end of an output may
/// differ at each look, which is not news.
pub(super) fn recorded_container_problem(s: &Snapshot, cause: &str) -> Option<String> {
    let mut conditions = s.machine.status.iter().flat_map(|status| &status.conditions);
    let shown = conditions.find(|shown| shown.type_ == CONTAINER_PROVISIONED)?;
    Some(shown.message.clone()).filter(|message| message.starts_with(cause))
}

/// Returns the recorded error of a deletion.
pub(super) fn recorded_deletion_error(s: &Snapshot) -> Option<String> {
    let shown = s.machine.status.as_ref()?.deprecated.as_ref();
    let shown = conditions::shown_trouble(shown, CONTAINER_PROVISIONED)?;
    shown.message.clone().filter(|_| shown.reason.as_deref() == Some(DELETION_FAILED))
}

/// Whether the recorded status says that the object is paused.
fn shows_pause(s: &Snapshot) -> bool {
    let mut conditions = s.machine.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|shown| shown.type_ == PAUSED && shown.status == ConditionStatus::True)
}

/// The same, with further changes of the status.
pub(super) fn with_changed_status(
    s: &Snapshot,
    mut plan: Plan<Action>,
    state: Container,
    depth: Depth,
    change: impl FnOnce(&mut DockerMachineStatus),
) -> Plan<Action> {
    let (mut reports, node) = parts(s, state, depth);
    let mut ready = conditions::ready(&reports);
    if s.machine.provider_id().is_none() && s.machine.object.deleting_since.is_none() {
        ready = ready.with_steps_in_v1(&reports, V1_CONDITIONS);
    }
    reports.push(ready);
    reports.push(conditions::paused("DockerMachine", false, false));
    reports.extend(node);
    plan.actions.splice(0..0, with_reports(s, &reports, change));
    plan
}

/// Reports that the state of the container is not known, because nothing listens at the address of
/// the engine. The other conditions stay.
pub(super) fn with_unknown_container(s: &Snapshot, mut plan: Plan<Action>, message: String) -> Plan<Action> {
    let report = ConditionReport::unknown(CONTAINER_PROVISIONED, ENGINE_CLOSED, message).in_v1(
        CONTAINER_PROVISIONED,
        ENGINE_CLOSED,
        "Warning",
    );
    let ready = conditions::ready(std::slice::from_ref(&report));
    plan.actions.splice(0..0, with_reports(s, &[report, ready], |_| {}));
    plan
}

/// Reports that another object has the key or the container. The other conditions stay.
pub(super) fn with_taken_key(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let report = ConditionReport::no(CONTAINER_PROVISIONED, KEY_TAKEN, plan.why.reason.to_string()).in_v1(
        CONTAINER_PROVISIONED,
        KEY_TAKEN,
        "Warning",
    );
    let ready = conditions::ready(std::slice::from_ref(&report));
    plan.actions.splice(0..0, with_reports(s, &[report, ready], |_| {}));
    plan
}

/// Returns the write of the status with these reports, if the status differs.
pub(super) fn with_reports(
    s: &Snapshot,
    reports: &[ConditionReport],
    change: impl FnOnce(&mut DockerMachineStatus),
) -> Option<Action> {
    let old = s.machine.status.clone().unwrap_or_default();
    let mut new = old.clone();
    change(&mut new);
    new.conditions = conditions::merge(&old.conditions, reports, s.machine.object.generation, s.now);
    new.deprecated = conditions::merge_v1(old.deprecated.as_ref(), reports, s.now);
    (new != old).then(|| Action::SetStatus(Box::new(new)))
}

/// Marks the machine as provisioned, with the facts that the engine shows. The mark is never
/// removed.
pub(super) fn provisioned(status: &mut DockerMachineStatus, instance: &Instance, is_balanced: Option<bool>) {
    status.ready = Some(true);
    status.initialization = Some(Initialization { provisioned: Some(true) });
    if !ips(instance).is_empty() {
        status.addresses = addresses(instance);
    }
    if instance.zone.is_some() {
        status.failure_domain.clone_from(&instance.zone);
    }
    status.load_balancer_configured = is_balanced.or(status.load_balancer_configured);
}

/// Returns the host name, and each address as an internal and an external one.
fn addresses(instance: &Instance) -> Vec<MachineAddress> {
    let of =
        |type_: &str, address: &str| MachineAddress { type_: type_.to_owned(), address: address.to_owned() };
    let mut all = vec![of("Hostname", instance.name.as_str())];
    for address in ips(instance) {
        all.push(of("InternalIP", &address));
        all.push(of("ExternalIP", &address));
    }
    all
}

/// Returns the IP addresses that the status shows.
pub(super) fn recorded_ips(s: &Snapshot) -> Vec<String> {
    let shown = s.machine.status.iter().flat_map(|status| &status.addresses);
    let internal = shown.filter(|address| address.type_ == "InternalIP");
    internal.map(|address| address.address.clone()).collect()
}

/// Returns the IP addresses of the container, IPv4 first, each once.
pub(super) fn ips(instance: &Instance) -> Vec<String> {
    let is_ip = |kind| match kind {
        AddressKind::InternalIP | AddressKind::ExternalIP => true,
        AddressKind::Hostname | AddressKind::InternalDNS | AddressKind::ExternalDNS => false,
    };
    let mut ips: Vec<std::net::IpAddr> = Vec::new();
    for address in instance.addresses.iter().filter(|address| is_ip(address.kind)) {
        match address.address.parse() {
            Ok(ip) if !ips.contains(&ip) => ips.push(ip),
            Ok(_) | Err(_) => {}
        }
    }
    ips.sort_by_key(|ip| ip.is_ipv6());
    ips.iter().map(ToString::to_string).collect()
}
