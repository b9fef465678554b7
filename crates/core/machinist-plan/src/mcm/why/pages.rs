//! The page of the book about the reasons of the machine API: `docs/src/stuck.md`.

use machinist_core::Call;
use machinist_instance::ErrorKind;

use super::*;
use crate::pages::{Page, Section, rows};

/// Sections about reasons that another crate renders. A test of that crate compares the quoted
/// text.
const OF_OTHER_CRATES: [(&str, &str, &str); 2] = [
    (
        CLUSTER,
        "stuck.md#namespace-not-served",
        "no running controller serves namespace team (the machine-controller serves default)",
    ),
    (
        CLOUD,
        "stuck.md#cloud-silent",
        "the engine at unix:///var/run/docker.sock does not answer: no answer within 700 ms",
    ),
];

const CREATION: &str = "An instance cannot be created";
const CLOUD: &str = "A call to the cloud";
const HEALTH: &str = "A Node does not join, or is unhealthy";
const DELETION: &str = "A Machine is not deleted";
const SETS: &str = "A MachineSet or MachineDeployment waits";
const CLUSTER: &str = "The API server, or the controller itself";

use McmReason as M;
use Reason as R;

rows! {
    never [];

    CREATION: R::Contract(M::InvalidSpec(_)) => [
        M::InvalidSpec("spec.class.name is empty: expected the name of a MachineClass".into()),
    ];
    CREATION: R::Contract(M::ClassMissing { .. }) => [M::ClassMissing { class: class() }];
    CREATION: R::Contract(M::ClassDeleting { .. }) => [M::ClassDeleting { class: class() }];
    CREATION: R::Contract(M::ClassMoved { .. }) => [
        M::ClassMoved { class: class(), began: "eu-1".into(), now: "eu-2".into() },
    ];
    CREATION: R::Contract(M::CreationElsewhere { .. }) => [
        M::CreationElsewhere { class: class(), began: Some("subnet-1".into()), now: "subnet-2".into() },
        M::CreationElsewhere { class: class(), began: None, now: "subnet-2".into() },
    ];
    CREATION: R::Contract(M::ClassUnheld { .. }) => [M::ClassUnheld { class: class() }];
    CREATION: R::Contract(M::ClassInvalid { .. }) => [
        M::ClassInvalid { class: class(), message: "nodeTemplate.zone: expected a zone, got nothing".into() },
    ];
    CREATION: R::Contract(M::FieldsWithoutEffect { .. }) => [
        M::FieldsWithoutEffect { fields: vec!["providerSpec.monitoring".into(), "providerSpec.networkNmae".into()] },
    ];
    CREATION: R::Contract(M::SecretMissing { .. }) => [M::SecretMissing { secret: secret(), class: class() }];
    CREATION: R::Contract(M::SecretElsewhere { .. }) => [
        M::SecretElsewhere { secret: "team/workers".into(), class: class(), served: "default".into() },
    ];
    CREATION: R::Contract(M::SecretIncomplete { .. }) => [
        M::SecretIncomplete { secret: secret(), entry: "userData".into() },
    ];
    CREATION: R::Contract(M::TokenIdsTaken) => [M::TokenIdsTaken];
    CREATION: R::Contract(M::ProviderIdNotOurs { .. }) => [
        M::ProviderIdNotOurs { id: "aws:///eu-west-1/i-0a1b2c".into(), expected: "sim:///IDENTITY or sim:///ZONE/IDENTITY".into() },
    ];
    CREATION: R::Contract(M::ProviderIdMalformed { .. }) => [
        M::ProviderIdMalformed { id: "sim://".into(), expected: "sim:///IDENTITY or sim:///ZONE/IDENTITY".into() },
    ];
    CREATION: R::Contract(M::Uninitialized { .. }) => [
        M::Uninitialized { instance: instance(), message: "its network interface is being attached".into() },
    ];
    CREATION: R::Contract(M::InstanceFailed { .. }) => [
        M::InstanceFailed { instance: instance(), message: "no valid host was found".into() },
    ];

    CLOUD: R::Calling(_) => [R::Calling(Call::ENSURE), R::Calling(Call::FIND), R::Calling(Call::DELETE), R::Calling(Call::LIST)];
    CLOUD: R::Contract(M::Queued(_)) => [M::Queued(Call::ENSURE), M::Queued(Call::DELETE)];
    CLOUD: R::CallFailed { .. } => [
        R::CallFailed {
            call: Call::ENSURE,
            kind: ErrorKind::Exhausted,
            message: "quota exceeded: quota of 3 instances is used up".into(),
            failures: 1,
        },
        R::CallFailed {
            call: Call::DELETE,
            kind: ErrorKind::Denied,
            message: "the token is not valid".into(),
            failures: 4,
        },
    ];
    CLOUD: R::AccountPaused => [R::AccountPaused];
    CLOUD: R::PredecessorCalls => [R::PredecessorCalls];
    CLOUD: R::Contract(M::Orphans { .. }) => [
        M::Orphans {
            count: 1,
            first: instance(),
            held: "its Node workers-6b9f4-84j5n exists, so pods may run on it".into(),
        },
        M::Orphans { count: 3, first: instance(), held: "the limit of deletions in 15 minutes is reached".into() },
    ];
    CLOUD: R::Contract(M::OtherAccount { .. }) => [
        M::OtherAccount { instance: instance(), opened_by: "Secret default/workers".into() },
    ];

    HEALTH: R::Contract(M::BootFailed { .. }) => [
        M::BootFailed { description: boot_failed(false) },
        M::BootFailed { description: boot_failed(true) },
    ];
    HEALTH: R::Contract(M::Joining { .. }) => [
        M::Joining { node: machine(), token: TokenUse::Unasked },
        M::Joining { node: machine(), token: TokenUse::NeverUsed },
        M::Joining { node: machine(), token: TokenUse::Used },
    ];
    HEALTH: R::Contract(M::NodeNotAsked { .. }) => [M::NodeNotAsked { node: machine() }];
    HEALTH: R::Contract(M::NodeNotOurs { .. }) => [
        M::NodeNotOurs { node: machine(), evidence: "its label names machine workers-6b9f4-q7kzm".into() },
    ];
    HEALTH: R::Contract(M::CriticalComponents { .. }) => [M::CriticalComponents { node: machine() }];
    HEALTH: R::Contract(M::Unhealthy { .. }) => [
        M::Unhealthy { node: machine(), conditions: "Ready is Unknown".into() },
        M::Unhealthy { node: machine(), conditions: "the Node object went missing".into() },
    ];
    HEALTH: R::Contract(M::ReplacementLimit { .. }) => [M::ReplacementLimit { other: other_machine() }];
    HEALTH: R::Contract(M::ReplacementGap { .. }) => [
        M::ReplacementGap { live: 2, wanted: 3, frozen: None },
        M::ReplacementGap { live: 2, wanted: 3, frozen: Some("workers-6b9f4".into()) },
    ];
    HEALTH: R::Contract(M::ReplacementImpossible { .. }) => [
        M::ReplacementImpossible {
            machine: "workers-6b9f4-wvhp9".into(),
            description: "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]"
                .into(),
        },
    ];
    HEALTH: R::Contract(M::OwnerUnknown { .. }) => [M::OwnerUnknown { set: "workers-6b9f4".into() }];
    HEALTH: R::Contract(M::Failed { .. }) => [
        M::Failed {
            description: "Machine workers-6b9f4-84j5n failed to join the cluster in time. Last state: waiting for Node \
                workers-6b9f4-84j5n to register"
                .into(),
        },
    ];
    HEALTH: R::Contract(M::Preserved { .. }) => [
        M::Preserved { machine: machine(), until: "2027-01-15T08:00:00Z".parse().ok(), node: None },
        M::Preserved { machine: machine(), until: None, node: None },
        M::Preserved { machine: machine(), until: None, node: Some(machine()) },
    ];
    HEALTH: R::Contract(M::PreservedDraining { .. }) => [
        M::PreservedDraining {
            machine: machine(),
            until: "2027-01-15T08:00:00Z".parse().unwrap_or_default(),
            left: 2,
            blocked: Some(blocked(Some("default/web"), false)),
        },
    ];
    HEALTH: R::Contract(M::AwaitingPreservation { .. }) => [
        M::AwaitingPreservation { machine: machine(), deployment: "workers".into() },
    ];
    HEALTH: R::Contract(M::UpdatedInPlace { .. }) => [
        M::UpdatedInPlace { machine: machine(), what: "is InPlaceUpdating".into() },
        M::UpdatedInPlace {
            machine: machine(),
            what: "has the label node.machine.sapcloud.io/update-result=successful".into(),
        },
    ];

    DELETION: R::Contract(M::Draining { .. }) => [
        M::Draining { left: 3, blocked: None },
        M::Draining { left: 1, blocked: Some(blocked(None, false)) },
        M::Draining { left: 1, blocked: Some(blocked(Some("default/web"), false)) },
        M::Draining { left: 1, blocked: Some(blocked(Some("default/web"), true)) },
        M::Draining { left: 1, blocked: Some(rejected(RejectedRequest::Eviction)) },
        M::Draining { left: 1, blocked: Some(rejected(RejectedRequest::Deletion)) },
    ];
    DELETION: R::Contract(M::NodesUnanswered { .. }) => [
        M::NodesUnanswered {
            since: "2027-01-15T08:00:00Z".parse().unwrap_or_default(),
            error: "connection refused".into(),
            waiting: "waiting for 2 pods to leave the Node".into(),
        },
    ];
    DELETION: R::Contract(M::ConfirmingDrain { .. }) => [
        M::ConfirmingDrain { node: machine(), left: 0 },
        M::ConfirmingDrain { node: machine(), left: 2 },
    ];
    DELETION: R::Contract(M::VolumesAttached { .. }) => [
        M::VolumesAttached { node: machine(), left: 1, first: "csi-1f0c".into(), volume: Some("pv-data".into()) },
        M::VolumesAttached { node: machine(), left: 2, first: "csi-1f0c".into(), volume: None },
    ];
    DELETION: R::Contract(M::VolumesUnattached { .. }) => [
        M::VolumesUnattached {
            node: machine(),
            left: 1,
            volume: "pv-data".into(),
            claim: "default/data-0".into(),
            id: "4711".into(),
        },
        M::VolumesUnattached {
            node: machine(),
            left: 2,
            volume: "pv-data".into(),
            claim: "default/data-0".into(),
            id: "4711".into(),
        },
    ];
    DELETION: R::Contract(M::VolumeTurn { .. }) => [
        M::VolumeTurn { pods: 3, moving: Some(moving(VolumeStep::Detach)) },
        M::VolumeTurn { pods: 1, moving: Some(moving(VolumeStep::Attach)) },
        M::VolumeTurn { pods: 1, moving: None },
    ];
    DELETION: R::Contract(M::ConfirmingNoNode { .. }) => [M::ConfirmingNoNode { node: machine() }];
    DELETION: R::Contract(M::InstanceDeleting { .. }) => [M::InstanceDeleting { instance: instance() }];
    DELETION: R::Contract(M::PartsDeleting { .. }) => [
        M::PartsDeleting { instance: instance(), parts: "port 7f0c, volume 51aa".into() },
    ];
    DELETION: R::Contract(M::AbsenceNotProven { .. }) => [M::AbsenceNotProven { instance: instance() }];
    DELETION: R::Contract(M::SecondLook { .. }) => [M::SecondLook { instance: instance() }];
    DELETION: R::Contract(M::InstanceNotOurs { .. }) => [
        M::InstanceNotOurs {
            instance: instance(),
            key: "7ece3c7f".into(),
            cluster: Some("prod".into()),
            holder: Some(other_machine()),
        },
        M::InstanceNotOurs { instance: instance(), key: "7ece3c7f".into(), cluster: Some("prod".into()), holder: None },
        M::InstanceNotOurs { instance: instance(), key: "7ece3c7f".into(), cluster: None, holder: None },
    ];
    DELETION: R::Contract(M::InstanceWithoutKey { .. }) => [
        M::InstanceWithoutKey {
            instance: instance(),
            doubt: "does not carry the marks of MachineClass workers".into(),
        },
        M::InstanceWithoutKey {
            instance: instance(),
            doubt: format!("Machine {} also records it", other_machine()),
        },
        M::InstanceWithoutKey {
            instance: instance(),
            doubt: "is older than the Machine and has another name".into(),
        },
        M::InstanceWithoutKey {
            instance: instance(),
            doubt: "carries the marks of another cluster than MachineClass workers".into(),
        },
        M::InstanceWithoutKey {
            instance: instance(),
            doubt: format!("Machine {}, which cannot be parsed, may record it", other_machine()),
        },
    ];
    DELETION: R::Contract(M::InstanceShared { .. }) => [
        M::InstanceShared { instance: instance(), machine: other_machine() },
    ];
    DELETION: R::Contract(M::ProviderIdOverwritten { .. }) => [
        M::ProviderIdOverwritten {
            id: "sim:///i-7".into(),
            joined_as: instance(),
            node: machine(),
        },
    ];
    DELETION: R::Contract(M::NodeOfUnknownOwner { .. }) => [
        M::NodeOfUnknownOwner {
            node: machine(),
            pods: 3,
            evidence: "it has no provider id, and its label does not name this machine".into(),
        },
        M::NodeOfUnknownOwner {
            node: machine(),
            pods: 1,
            evidence: "its provider id is k3s://worker-1, and its label does not name this machine".into(),
        },
    ];
    DELETION: R::Contract(M::NamesakeInstance { .. }) => [
        M::NamesakeInstance {
            instance: format!("instance {}", instance()),
            evidence: "it has no key and was created at 2027-01-14T08:00:00Z, the machine at 2027-01-15T08:00:00Z".into(),
        },
        M::NamesakeInstance {
            instance: "an instance".into(),
            evidence: "it was created for key 7ece3c7f".into(),
        },
    ];
    DELETION: R::Contract(M::CannotDeleteInstance { .. }) => [
        M::CannotDeleteInstance { missing: "MachineClass workers".into() },
        M::CannotDeleteInstance { missing: "Secret default/workers".into() },
    ];
    DELETION: R::Contract(M::NodeLeaving { .. }) => [M::NodeLeaving { node: machine() }];
    DELETION: R::Awaiting(_) => [
        R::Awaiting("waiting for other clients to remove their finalizers"),
        R::Awaiting("waiting for the garbage collector to release the children"),
    ];
    DELETION: R::Contract(M::UserUnreadable { .. }) => [
        M::UserUnreadable { kind: "Machine", name: machine() },
        M::UserUnreadable { kind: "MachineClass", name: class() },
    ];
    DELETION: R::Contract(M::InUse { .. }) => [
        M::InUse { by: ["Machine", "machines"], users: 1, first: machine() },
        M::InUse { by: ["MachineClass", "classes"], users: 2, first: class() },
    ];

    SETS: R::Contract(M::MachinesPending { .. }) => [
        M::MachinesPending { available: 2, desired: 3, first: Some(machine()) },
        M::MachinesPending { available: 0, desired: 3, first: None },
    ];
    SETS: R::Contract(M::MachinesLeaving { .. }) => [M::MachinesLeaving { left: 2, first: Some(machine()) }];
    SETS: R::Contract(M::SizeOutdated { .. }) => [M::SizeOutdated { deployment: "workers".into(), size: 4 }];
    SETS: R::Contract(M::ChildFailed { .. }) => [
        M::ChildFailed { message: "admission webhook \"limits.example.com\" denied the request".into() },
    ];
    SETS: R::Contract(M::MachinesStray { .. }) => [
        M::MachinesStray {
            message: "MachineSet workers-6b9f4 does not select the labels of its new Machine workers-6b9f4-x2: \
                      another program, for example an admission webhook, changes metadata.labels"
                .into(),
        },
    ];
    SETS: R::Contract(M::SetUnreadable { .. }) => [M::SetUnreadable { set: "workers-6b9f4".into() }];
    SETS: R::Contract(M::Frozen { .. }) => [
        M::Frozen { by: Some("OverShootingReplicaCount".into()), machines: 8, most: Some(5), refused: None },
        M::Frozen { by: None, machines: 3, most: None, refused: None },
    ];
    SETS: R::Contract(M::ScaleUpDisabled) => [M::ScaleUpDisabled];
    SETS: R::Contract(M::ChosenUnknown { .. }) => [M::ChosenUnknown { machine: machine() }];
    SETS: R::Contract(M::Paused) => [M::Paused];
    SETS: R::Contract(M::SurgeBound { .. }) => [
        M::SurgeBound { machines: 4, most: 4, waiting_for: Some(machine()) },
    ];
    SETS: R::Contract(M::UnavailableBound { .. }) => [
        M::UnavailableBound { available: 2, fewest: 2, waiting_for: Some(machine()) },
    ];
    SETS: R::Contract(M::RollingOut { .. }) => [M::RollingOut { updated: 1, desired: 3 }];
    SETS: R::Contract(M::UpdatingInPlace { .. }) => [
        M::UpdatingInPlace { updated: 1, desired: 3, waiting_for: None },
        M::UpdatingInPlace { updated: 1, desired: 3, waiting_for: Some(machine()) },
    ];

    CLUSTER: R::Settled => [R::Settled];
    CLUSTER: R::Writing(_) => [
        R::Writing("adding the finalizer, which records that an instance may exist"),
        R::Writing("recording the instance"),
        R::Writing("cordoning the Node"),
    ];
    CLUSTER: R::Looking(_) => [
        R::Looking("the Lease of the Node, which shows the last kubelet heartbeat,"),
        R::Looking("the machines chosen by the cluster-autoscaler"),
    ];
    CLUSTER: R::WriteUnsettled { .. } => [
        R::WriteUnsettled { write: format!("DELETE of machines default/{}", machine()) },
    ];
    CLUSTER: R::ChangeRefused { .. } => [
        R::ChangeRefused { message: "machines.machine.sapcloud.io is forbidden: User \"mcm\" cannot patch resource".into() },
    ];
    CLUSTER: R::NoEffect { .. } => [R::NoEffect { action: format!("node {}: cordon", machine()) }];
    CLUSTER: R::ProgramFailed { .. } => [
        R::ProgramFailed {
            what: "the rule engine failed on this object",
            at: "crates/core/machinist-plan/src/mcm/rollout.rs:120".into(),
            message: "attempt to subtract with overflow".into(),
        },
    ];
    CLUSTER: R::ClockSkew { .. } => [R::ClockSkew { seconds: 45 }];
    CLUSTER: R::ServerSilent { .. } => [
        R::ServerSilent { server: "the API server of the target cluster".into() },
    ];
}

fn boot_failed(is_final: bool) -> String {
    let cause = if is_final {
        "container workers-6b9f4-84j5n restarts again and again; its first process exits with code 1"
    } else {
        "step 1 of 1 of the user data exited with code 3"
    };
    let trouble = machinist_instance::BootTrouble {
        cause: cause.to_owned(),
        output: vec!["curl: (6) Could not resolve host: example.com".to_owned()],
        see: "docker logs workers-6b9f4-84j5n".to_owned(),
        is_final,
    };
    crate::mcm::machine::boot_problem(&trouble)
}

fn class() -> String {
    "workers".to_owned()
}

fn secret() -> String {
    "default/workers".to_owned()
}

fn machine() -> String {
    "workers-6b9f4-84j5n".to_owned()
}

fn other_machine() -> String {
    "workers-6b9f4-wvhp9".to_owned()
}

fn instance() -> String {
    format!("sim:///{}", machine())
}

fn blocked(budget: Option<&str>, never: bool) -> BlockedPod {
    BlockedPod { pod: "default/web-0".to_owned(), budget: budget.map(str::to_owned), never, rejection: None }
}

fn rejected(of: fn(String) -> RejectedRequest) -> BlockedPod {
    let message = "admission webhook \"pods.example.com\" denied the request: frozen".to_owned();
    BlockedPod { rejection: Some(of(message)), ..blocked(None, false) }
}

fn moving(step: VolumeStep) -> AwaitedVolume {
    AwaitedVolume {
        volume: "pv-data".to_owned(),
        claim: "default/data-0".to_owned(),
        id: "4711".to_owned(),
        step,
        until: Timestamp::UNIX_EPOCH,
    }
}

fn page() -> Page {
    let others = OF_OTHER_CRATES.map(|(group, link, text)| Section {
        group,
        link: link.to_owned(),
        texts: vec![text.to_owned()],
    });
    Page { path: McmReason::PAGE, sections: sections().into_iter().chain(others).collect() }
}

#[test]
fn every_reason_has_a_section_and_every_section_a_reason() {
    page().check_sections();
}

#[test]
fn quoted_texts_and_tables_are_up_to_date() {
    page().check_contents();
}
