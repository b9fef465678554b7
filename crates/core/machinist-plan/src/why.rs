//! Why an object of the machine API is where it is: the reasons that only these objects have.
//!
//! A [`Why`] becomes a log line, an Event, a condition reason and the output of `machinist why`. Prose is rendered here, last,
//! and parsed nowhere.

use std::fmt;

use jiff::Timestamp;
use machinist_api::Phase;
use machinist_api::constants::{annotations, labels};
use machinist_core::{ContractReason, just_past};
pub use machinist_core::{Deadline, Step};

use crate::facts::{MachineFacts, Preserved, PreservedBy};

/// Why an object is where it is.
pub type Why = machinist_core::Why<McmReason>;
/// What an object waits for.
pub type Reason = machinist_core::Reason<McmReason>;

/// What an object of the machine API waits for, beyond what every object may wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McmReason {
    /// The object's own spec is wrong; only its author can mend it.
    InvalidSpec(String),
    /// The class is not there.
    ClassMissing {
        /// Its name.
        class: String,
    },
    /// The class is being deleted: nothing new is made from it.
    ClassDeleting {
        /// Its name.
        class: String,
    },
    /// The class has no finalizer yet: it might go before the instance that is made from it. This program writes it.
    ClassUnheld {
        /// Its name.
        class: String,
    },
    /// The class cannot be used as it is.
    ClassInvalid {
        /// Its name.
        class: String,
        /// Which field, and what was expected.
        message: String,
    },
    /// A Secret that the class refers to is not there.
    SecretMissing {
        /// `namespace/name`.
        secret: String,
        /// The class that refers to it.
        class: String,
    },
    /// A Secret that the class refers to is in a namespace that is not read.
    SecretElsewhere {
        /// `namespace/name`.
        secret: String,
        /// The class that refers to it.
        class: String,
        /// The namespace that is read.
        served: String,
    },
    /// The Secret is there but lacks an entry.
    SecretIncomplete {
        /// `namespace/name`.
        secret: String,
        /// The entry that is missing.
        entry: String,
    },
    /// The instance exists, its Node has not registered.
    Joining {
        /// The Node's expected name.
        node: String,
        /// Whether the bootstrap token was used.
        token: TokenUse,
    },
    /// A Node of that name exists that is not this Machine's.
    NodeNotOurs {
        /// Its name.
        node: String,
        /// What told them apart.
        evidence: String,
    },
    /// The Machine's recorded id is of another provider.
    ProviderIdNotOurs {
        /// The id.
        id: String,
        /// What an id of this provider looks like.
        expected: String,
    },
    /// The Machine's recorded id cannot be read.
    ProviderIdMalformed {
        /// The text.
        id: String,
        /// What an id of this provider looks like.
        expected: String,
    },
    /// Every id that the Machine's bootstrap token may have belongs to another Secret.
    TokenIdsTaken,
    /// An instance of the Machine's name is not the Machine's. It is left alone.
    NamesakeInstance {
        /// The instance.
        instance: String,
        /// What told them apart.
        evidence: String,
    },
    /// The Node is there but not healthy.
    Unhealthy {
        /// Its name.
        node: String,
        /// The conditions that say so, or that it went missing.
        conditions: String,
    },
    /// The Node is ready, but its critical components are not.
    CriticalComponents {
        /// Its name.
        node: String,
    },
    /// Unhealthy for too long, but another Machine of the deployment is being replaced.
    ReplacementLimit {
        /// The Machine that is being replaced.
        other: String,
    },
    /// Unhealthy for too long, but the deployment lacks Machines already: giving up another one would not be made good.
    ReplacementGap {
        /// Machines that live.
        live: u32,
        /// Machines wanted.
        wanted: u32,
        /// The set that is frozen, if one is.
        frozen: Option<String>,
    },
    /// The Machine has failed and its set will replace it.
    Failed {
        /// What the Machine says about it.
        description: String,
    },
    /// The Machine has failed and is kept all the same, because somebody promised so.
    Preserved {
        /// Its name.
        machine: String,
        /// Until when; for as long as its annotation says so, if absent.
        until: Option<Timestamp>,
        /// The Node whose annotation says so; its own does, if absent.
        node: Option<String>,
    },
    /// Pods are leaving the node.
    Draining {
        /// How many are left.
        left: usize,
        /// The first that may not leave.
        blocked: Option<BlockedPod>,
    },
    /// The pods have left the node as far as the watch shows; the API server is asked for a list before the instance is deleted.
    ConfirmingDrain {
        /// The Node.
        node: String,
        /// How many pods the last list showed that the watch does not; 0 if there was none.
        left: usize,
    },
    /// The pods have left the node, and volumes are still attached to it.
    VolumesAttached {
        /// The Node.
        node: String,
        /// How many VolumeAttachments there are.
        left: usize,
        /// The first of them.
        first: String,
        /// The PersistentVolume of the first, where it has one.
        volume: Option<String>,
    },
    /// The watch shows no Node of the Machine; the API server is asked before the instance is deleted.
    ConfirmingNoNode {
        /// The name that is looked for.
        node: String,
    },
    /// The cloud was asked to delete the instance; it is still there.
    InstanceDeleting {
        /// The instance.
        instance: String,
    },
    /// The cloud does not show the instance, but may still do so.
    AbsenceNotProven {
        /// The instance.
        instance: String,
    },
    /// The cloud shows neither the instance nor anything else that was made with the same Secret: the credential looks like another
    /// account's.
    OtherAccount {
        /// The instance.
        instance: String,
        /// What the credential comes from.
        opened_by: String,
    },
    /// The cloud does not show the instance, and nothing tells whether this is its account: it is looked for twice.
    SecondLook {
        /// The instance.
        instance: String,
    },
    /// The instance that the Machine records carries the key of another object.
    InstanceNotOurs {
        /// The instance.
        instance: String,
        /// The key that it carries.
        key: String,
        /// The installation that its tag names.
        cluster: Option<String>,
        /// The Machine that holds this key, if there is one.
        holder: Option<String>,
    },
    /// An older Machine records the same instance.
    InstanceShared {
        /// The instance.
        instance: String,
        /// The older Machine.
        machine: String,
    },
    /// The Machine's class or credential is gone, so its instance cannot be deleted.
    CannotDeleteInstance {
        /// What is missing.
        missing: String,
    },
    /// The Node object is being removed.
    NodeLeaving {
        /// Its name.
        node: String,
    },
    /// Machines are missing or not ready yet.
    MachinesPending {
        /// Available now.
        available: u32,
        /// Wanted.
        desired: u32,
        /// The first Machine that is not available, if there is one.
        first: Option<String>,
    },
    /// Machines are being deleted.
    MachinesLeaving {
        /// How many are left.
        left: u32,
        /// The first of them.
        first: Option<String>,
    },
    /// What uses it is there still, and needs it.
    InUse {
        /// What uses it, in words: one of them, and several.
        by: [&'static str; 2],
        /// How many do.
        users: usize,
        /// The first of them.
        first: String,
    },
    /// Creating or deleting a child failed.
    ChildFailed {
        /// What the API server said.
        message: String,
    },
    /// The set is frozen: it may make no Machines.
    Frozen {
        /// The reason of the condition, in the words of Go's machine-controller-manager; absent where only the label is there.
        by: Option<String>,
        /// The Machines that it has.
        machines: u32,
        /// The freeze is lifted when it has that many; absent while its deployment is not known.
        most: Option<u32>,
        /// What the API server said when it last refused to create or delete one.
        refused: Option<String>,
    },
    /// The set may make no Machines, because those of its deployment are being updated in place.
    ScaleUpDisabled,
    /// A Machine is being updated in place, or was; such updates are not built yet.
    UpdatedInPlace {
        /// Its name.
        machine: String,
        /// What shows it.
        what: String,
    },
    /// An annotation names a Machine to delete that is no Machine of the deployment.
    ChosenUnknown {
        /// The name.
        machine: String,
    },
    /// Unhealthy for too long, but the set that owns the Machine is not known.
    OwnerUnknown {
        /// The set's name.
        set: String,
    },
    /// The deployment is paused.
    Paused,
    /// A rollout waits: no more machines may exist at once.
    SurgeBound {
        /// Machines now, those being deleted included.
        machines: u32,
        /// The most allowed.
        most: u32,
        /// The Machine it waits for.
        waiting_for: Option<String>,
    },
    /// A rollout waits: no fewer machines may be available.
    UnavailableBound {
        /// Available now.
        available: u32,
        /// The fewest allowed.
        fewest: u32,
        /// The Machine it waits for.
        waiting_for: Option<String>,
    },
    /// A rollout is under way.
    RollingOut {
        /// Machines of the new template.
        updated: u32,
        /// Machines wanted.
        desired: u32,
    },
}

/// A failed Machine is kept, and what ends that.
pub(crate) fn why_preserved(machine: &MachineFacts, preserved: Preserved) -> Why {
    let node = (preserved.by == PreservedBy::Node).then(|| machine.node_name().to_owned());
    let annotation = annotations::PRESERVE;
    let next = match &node {
        Some(node) => format!(
            "remove the annotation {annotation} of Node {node}, or delete Machine {}, to have it replaced",
            machine.name
        ),
        None => format!("remove the annotation {annotation} to have it replaced"),
    };
    let reason = McmReason::Preserved { machine: machine.name.clone(), until: preserved.until, node };
    let why = match preserved.until {
        Some(until) => Why::new(reason, Step::Expect("its Node recovers"))
            .deadline(just_past(until), Step::Expect("its set deletes and replaces it")),
        None => Why::new(reason, Step::Mend(next)),
    };
    why.since(machine.status.phase_since)
}

/// A pod that may not leave yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedPod {
    /// `namespace/name`.
    pub pod: String,
    /// `namespace/name` of the budget, where one is known.
    pub budget: Option<String>,
    /// Whether the budget can never allow it.
    pub never: bool,
}

/// What is known of a bootstrap token's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenUse {
    /// Nobody looked: the running controllers do not watch signing requests.
    Unasked,
    /// No certificate was ever requested with it.
    NeverUsed,
    /// A certificate was requested with it.
    Used,
}

/// A Machine is being updated in place, or was.
pub(crate) fn why_updated_in_place(machine: &MachineFacts) -> Why {
    let what = match machine.status.phase {
        Phase::InPlaceUpdating | Phase::InPlaceUpdateFailed => format!("is {}", machine.status.phase),
        _ => format!("has the label {}={}", labels::UPDATE_RESULT, labels::UPDATE_SUCCESSFUL),
    };
    let next = "let Go's machine-controller-manager finish the update, or delete the Machine";
    Why::new(McmReason::UpdatedInPlace { machine: machine.name.clone(), what }, Step::Mend(next.to_owned()))
        .since(machine.status.phase_since)
}

impl ContractReason for McmReason {
    fn code(&self) -> &'static str {
        match self {
            Self::InvalidSpec(_) => "InvalidSpec",
            Self::ClassMissing { .. } => "ClassMissing",
            Self::ClassDeleting { .. } => "ClassDeleting",
            Self::ClassUnheld { .. } => "ClassUnheld",
            Self::ClassInvalid { .. } => "ClassInvalid",
            Self::SecretMissing { .. } => "SecretMissing",
            Self::SecretElsewhere { .. } => "SecretElsewhere",
            Self::SecretIncomplete { .. } => "SecretIncomplete",
            Self::Joining { .. } => "Joining",
            Self::NodeNotOurs { .. } => "NodeNotOurs",
            Self::ProviderIdNotOurs { .. } => "ProviderIdNotOurs",
            Self::ProviderIdMalformed { .. } => "ProviderIdMalformed",
            Self::TokenIdsTaken => "TokenIdsTaken",
            Self::NamesakeInstance { .. } => "NamesakeInstance",
            Self::Unhealthy { .. } => "Unhealthy",
            Self::CriticalComponents { .. } => "CriticalComponents",
            Self::ReplacementLimit { .. } => "ReplacementLimit",
            Self::ReplacementGap { .. } => "ReplacementGap",
            Self::Failed { .. } => "Failed",
            Self::Preserved { .. } => "Preserved",
            Self::Draining { .. } => "Draining",
            Self::ConfirmingDrain { .. } => "ConfirmingDrain",
            Self::VolumesAttached { .. } => "VolumesAttached",
            Self::ConfirmingNoNode { .. } => "ConfirmingNoNode",
            Self::InstanceDeleting { .. } => "InstanceDeleting",
            Self::AbsenceNotProven { .. } => "AbsenceNotProven",
            Self::OtherAccount { .. } => "OtherAccount",
            Self::SecondLook { .. } => "SecondLook",
            Self::InstanceNotOurs { .. } => "InstanceNotOurs",
            Self::InstanceShared { .. } => "InstanceShared",
            Self::CannotDeleteInstance { .. } => "CannotDeleteInstance",
            Self::NodeLeaving { .. } => "NodeLeaving",
            Self::MachinesPending { .. } => "MachinesPending",
            Self::MachinesLeaving { .. } => "MachinesLeaving",
            Self::InUse { .. } => "InUse",
            Self::ChildFailed { .. } => "ChildFailed",
            Self::Frozen { .. } => "Frozen",
            Self::ScaleUpDisabled => "ScaleUpDisabled",
            Self::UpdatedInPlace { .. } => "UpdatedInPlace",
            Self::ChosenUnknown { .. } => "ChosenUnknown",
            Self::OwnerUnknown { .. } => "OwnerUnknown",
            Self::Paused => "Paused",
            Self::SurgeBound { .. } => "SurgeBound",
            Self::UnavailableBound { .. } => "UnavailableBound",
            Self::RollingOut { .. } => "RollingOut",
        }
    }
}

impl fmt::Display for McmReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSpec(message) => write!(f, "its spec to be mended: {message}"),
            Self::ClassMissing { class } => write!(f, "MachineClass {class}, which does not exist"),
            Self::ClassDeleting { class } => {
                write!(f, "MachineClass {class}, which is being deleted and makes no new machines")
            }
            Self::ClassUnheld { class } => {
                write!(f, "MachineClass {class} to get its finalizer, without which it might go first")
            }
            Self::ClassInvalid { class, message } => {
                write!(f, "MachineClass {class} to be mended: {message}")
            }
            Self::SecretMissing { secret, class } => {
                write!(f, "Secret {secret}, which MachineClass {class} refers to and which does not exist")
            }
            Self::SecretElsewhere { secret, class, served } => write!(
                f,
                "Secret {secret}, which MachineClass {class} refers to: only Secrets of namespace {served} are read"
            ),
            Self::SecretIncomplete { secret, entry } => {
                write!(f, "Secret {secret} to have an entry {entry:?}")
            }
            Self::Joining { node, token } => {
                write!(f, "Node {node} to register")?;
                match token {
                    TokenUse::Unasked => Ok(()),
                    TokenUse::NeverUsed => f.write_str("; its bootstrap token was never used"),
                    TokenUse::Used => f.write_str("; its bootstrap token was used to request a certificate"),
                }
            }
            Self::NodeNotOurs { node, evidence } => {
                write!(f, "Node {node} to go: it is not this machine's ({evidence})")
            }
            Self::ProviderIdNotOurs { id, expected } => {
                write!(f, "an id of this provider in spec.providerID: expected {expected}, got {id:?}")
            }
            Self::ProviderIdMalformed { id, expected } => {
                write!(f, "a complete id in spec.providerID: expected {expected}, got {id:?}")
            }
            Self::TokenIdsTaken => {
                f.write_str("a free bootstrap token id: other Secrets have every id it may use")
            }
            Self::NamesakeInstance { instance, evidence } => write!(
                f,
                "proof that the cloud has no instance of it: {instance} has its name and is not its own ({evidence})"
            ),
            Self::Unhealthy { node, conditions } => write!(f, "Node {node} to become healthy: {conditions}"),
            Self::CriticalComponents { node } => write!(f, "the critical components of Node {node}"),
            Self::ReplacementLimit { other } => {
                write!(f, "its turn: Machine {other} of the same deployment is being replaced")
            }
            Self::ReplacementGap { live, wanted, frozen } => {
                write!(f, "its turn: the deployment wants {} and has {live}", machines(*wanted))?;
                frozen.as_ref().map_or(Ok(()), |set| write!(f, "; MachineSet {set} is frozen"))
            }
            Self::Failed { description } => write!(f, "its set to replace it: {description}"),
            Self::Preserved { machine, until: Some(until), node: _ } => {
                write!(f, "Machine {machine}, which has failed and is preserved until {until:.0}")
            }
            Self::Preserved { machine, until: None, node: None } => write!(
                f,
                "Machine {machine}, which has failed and is preserved by its annotation {}",
                annotations::PRESERVE
            ),
            Self::Preserved { machine, until: None, node: Some(node) } => write!(
                f,
                "Machine {machine}, which has failed and is preserved by the annotation {} of its Node {node}",
                annotations::PRESERVE
            ),
            Self::Draining { left, blocked } => {
                write!(f, "{} to leave the node", pods(*left))?;
                match blocked {
                    None => Ok(()),
                    Some(BlockedPod { pod, budget: None, .. }) => write!(f, "; {pod} may not be evicted"),
                    Some(BlockedPod { pod, budget: Some(budget), never: false }) => {
                        write!(f, "; {pod} is held by PodDisruptionBudget {budget}")
                    }
                    Some(BlockedPod { pod, budget: Some(budget), never: true }) => write!(
                        f,
                        "; {pod} is held by PodDisruptionBudget {budget}, which allows none of its pods to go"
                    ),
                }
            }
            Self::ConfirmingDrain { node, left } => {
                write!(f, "the API server to list no pod on Node {node}")?;
                if *left == 0 { Ok(()) } else { write!(f, "; the last list showed {}", pods(*left)) }
            }
            Self::VolumesAttached { node, left, first, volume } => {
                match *left {
                    1 => write!(f, "a volume to be detached from Node {node}: VolumeAttachment {first}")?,
                    many => write!(
                        f,
                        "{many} volumes to be detached from Node {node}; the first is VolumeAttachment {first}"
                    )?,
                }
                volume.as_ref().map_or(Ok(()), |volume| write!(f, " of PersistentVolume {volume}"))
            }
            Self::ConfirmingNoNode { node } => {
                write!(f, "the API server to say whether Node {node} exists")
            }
            Self::InstanceDeleting { instance } => write!(f, "the cloud to delete instance {instance}"),
            Self::AbsenceNotProven { instance } => {
                write!(f, "proof that instance {instance} does not exist: the cloud may not show it yet")
            }
            Self::OtherAccount { instance, opened_by } => write!(
                f,
                "the account of instance {instance}: the credential in {opened_by} looks like another account's, which shows \
                 nothing that was made with it"
            ),
            Self::SecondLook { instance } => write!(
                f,
                "a second look at instance {instance}: it is absent, and no other Machine tells whether this is its account"
            ),
            Self::InstanceNotOurs { instance, key, cluster, holder } => {
                write!(f, "instance {instance} to be its own: ")?;
                match (holder, cluster) {
                    (Some(machine), _) => write!(f, "it carries the key of Machine {machine}"),
                    (None, Some(cluster)) => write!(f, "it carries key {key} of cluster {cluster:?}"),
                    (None, None) => write!(f, "it carries key {key} and the tag of no cluster"),
                }
            }
            Self::InstanceShared { instance, machine } => {
                write!(
                    f,
                    "instance {instance} to be its own: Machine {machine}, which is older, records it, too"
                )
            }
            Self::CannotDeleteInstance { missing } => {
                write!(f, "{missing}, without which its instance cannot be deleted")
            }
            Self::NodeLeaving { node } => write!(f, "Node {node} to be removed"),
            Self::MachinesPending { available, desired, first } => {
                write!(f, "{} to be available, {available} {}", machines(*desired), are(*available))?;
                first.as_ref().map_or(Ok(()), |first| write!(f, "; the first that is not is {first}"))
            }
            Self::MachinesLeaving { left, first } => {
                write!(f, "{} to go", machines(*left))?;
                first.as_ref().map_or(Ok(()), |first| write!(f, "; the first is {first}"))
            }
            Self::InUse { by: [one, several], users, first } => match users {
                1 => write!(f, "{one} {first}, which uses it"),
                many => write!(f, "{many} {several} that use it; the first is {first}"),
            },
            Self::ChildFailed { message } => {
                write!(f, "the API server to accept a change: {message}")
            }
            Self::Frozen { by, machines: count, most, refused } => {
                match by {
                    Some(reason) => {
                        write!(f, "its freeze to end: Go's machine-controller-manager set it ({reason})")?;
                    }
                    None => {
                        f.write_str("its freeze to end: it has the label freeze and no condition Frozen")?
                    }
                }
                write!(f, "; the set has {}, and ", machines(*count))?;
                match most {
                    Some(most) => write!(f, "the freeze is lifted at {most} or fewer")?,
                    None => f.write_str("its MachineDeployment is not known yet")?,
                }
                refused.as_ref().map_or(Ok(()), |it| write!(f, "; the API server refused a change: {it}"))
            }
            Self::ScaleUpDisabled => write!(
                f,
                "the label {} to be removed: updates in place are not supported yet",
                labels::SCALE_UP_DISABLED
            ),
            Self::UpdatedInPlace { machine, what } => {
                write!(f, "Machine {machine}, which {what}: updates in place are not supported yet")
            }
            Self::ChosenUnknown { machine } => write!(
                f,
                "Machine {machine}, which the annotation {} names: no Machine of the deployment has that name",
                annotations::TRIGGER_DELETION
            ),
            Self::OwnerUnknown { set } => {
                write!(f, "MachineSet {set}, which owns the machine and does not exist")
            }
            Self::Paused => f.write_str("spec.paused to be set to false"),
            Self::SurgeBound { machines, most, waiting_for } => {
                let exist = if *machines == 1 { "exists" } else { "exist" };
                write!(f, "room for one more machine: {machines} {exist}, maxSurge allows {most}")?;
                waiting_for.as_ref().map_or(Ok(()), |first| write!(f, "; the first to wait for is {first}"))
            }
            Self::UnavailableBound { available, fewest, waiting_for } => {
                let are = are(*available);
                write!(
                    f,
                    "one more machine to be available: {available} {are}, maxUnavailable demands more than {fewest}"
                )?;
                waiting_for.as_ref().map_or(Ok(()), |first| write!(f, "; the first to wait for is {first}"))
            }
            Self::RollingOut { updated, desired } => {
                write!(
                    f,
                    "the rollout: {updated} of {} {} of the new template",
                    machines(*desired),
                    are(*updated)
                )
            }
        }
    }
}

/// So many pods, in words.
fn pods(count: usize) -> String {
    format!("{count} {}", if count == 1 { "pod" } else { "pods" })
}

/// So many machines, in words.
fn machines(count: u32) -> String {
    format!("{count} {}", if count == 1 { "machine" } else { "machines" })
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reads_differently_from_many() {
        let pending = |available, desired| McmReason::MachinesPending { available, desired, first: None };
        let surge = |machines| McmReason::SurgeBound { machines, most: 3, waiting_for: None };
        for (reason, expected) in [
            (pending(0, 1), "1 machine to be available, 0 are"),
            (pending(1, 3), "3 machines to be available, 1 is"),
            (McmReason::MachinesLeaving { left: 1, first: None }, "1 machine to go"),
            (surge(1), "room for one more machine: 1 exists, maxSurge allows 3"),
            (surge(3), "room for one more machine: 3 exist, maxSurge allows 3"),
            (
                McmReason::RollingOut { updated: 1, desired: 3 },
                "the rollout: 1 of 3 machines is of the new template",
            ),
        ] {
            assert_eq!(reason.to_string(), expected);
        }
    }
}
