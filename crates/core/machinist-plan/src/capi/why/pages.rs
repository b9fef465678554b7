//! The page of the book about the reasons of the Cluster API providers: `docs/src/capi/stuck.md`.
//! The reasons that all contracts share have their sections in `docs/src/stuck.md`.

use machinist_core::Call;
use machinist_instance::ErrorKind;

use super::*;
use crate::capi::docker_cluster::{DELETE_BALANCER, ENSURE_BALANCER};
use crate::capi::docker_machine::{COMPLETE_NODE, LOAD_IMAGES, PROGRESS, READINESS, START_BOOTSTRAP};
use crate::capi::mail::{COPY, LOOK_UP, SEND};
use crate::pages::{Page, Section, rows};

const GATES: &str = "Nothing happens";
const CONTAINER: &str = "A container is not created, or does not run";
const BOOTSTRAP: &str = "A bootstrap does not begin or end";
const NODE: &str = "A Node is not complete";
const BALANCER: &str = "A DockerCluster has no load balancer";
const DELETION: &str = "An object is not deleted";
const MAIL: &str = "A mail is not sent, or a request is not fulfilled";
const CALLS: &str = "A call to the engine or the mail service";
const CLUSTER: &str = "The API server, or the controller itself";

use CapiReason as C;
use Reason as R;

rows! {
    never [R::AccountPaused | R::PredecessorCalls | R::ServerSilent { .. }];

    GATES: R::Contract(C::Paused { .. }) => [
        C::Paused { causes: "Cluster spec.paused is set to true".into() },
        C::Paused { causes: "DockerMachine has the cluster.x-k8s.io/paused annotation".into() },
    ];
    GATES: R::Contract(C::ManagedExternally) => [C::ManagedExternally];
    GATES: R::Contract(C::OwnerUnset { .. }) => [C::OwnerUnset { kind: "Machine" }, C::OwnerUnset { kind: "Cluster" }];
    GATES: R::Contract(C::OwnerMissing { .. }) => [C::OwnerMissing { owner: "Machine worker-1".into() }];
    GATES: R::Contract(C::ClusterUnknown) => [C::ClusterUnknown];
    GATES: R::Contract(C::InfrastructureUnset { .. }) => [C::InfrastructureUnset { cluster: cluster() }];
    GATES: R::Contract(C::InfrastructureMissing { .. }) => [
        C::InfrastructureMissing { infrastructure: "DockerCluster one".into() },
    ];
    GATES: R::Contract(C::InfrastructureNotReady { .. }) => [C::InfrastructureNotReady { cluster: cluster() }];
    GATES: R::Contract(C::ControlPlaneNotInitialized { .. }) => [
        C::ControlPlaneNotInitialized { cluster: cluster() },
    ];
    GATES: R::Contract(C::BootstrapDataMissing { .. }) => [C::BootstrapDataMissing { machine: machine() }];
    GATES: R::Contract(C::KeyTaken { .. }) => [C::KeyTaken { object: "team-a/one-worker-1".into() }];
    GATES: R::Contract(C::OtherEngine) => [C::OtherEngine];

    CONTAINER: R::Contract(C::VersionMissing { .. }) => [C::VersionMissing { machine: machine() }];
    CONTAINER: R::Contract(C::NameTooLong { .. }) => [C::NameTooLong { name: "a".repeat(64) }];
    CONTAINER: R::Contract(C::ProviderIdNotOurs { .. }) => [
        C::ProviderIdNotOurs { id: "aws:///i-1".into(), expected: "docker:////CONTAINER".into() },
    ];
    CONTAINER: R::Contract(C::ContainerNotOurs { .. }) => [C::ContainerNotOurs { container: machine() }];
    CONTAINER: R::Contract(C::ContainerUnrecorded { .. }) => [
        C::ContainerUnrecorded { container: machine() },
    ];
    CONTAINER: R::Contract(C::ContainerMissing { .. }) => [C::ContainerMissing { container: machine() }];
    CONTAINER: R::Contract(C::ContainerStopped { .. }) => [C::ContainerStopped { container: machine() }];
    CONTAINER: R::Contract(C::ContainerMoved { .. }) => [
        C::ContainerMoved { container: machine(), from: "172.18.0.3".into(), to: "172.18.0.5".into() },
    ];
    CONTAINER: R::Contract(C::ContainerStarting { .. }) => [
        C::ContainerStarting { missing: "systemd has not reached multi-user.target".into() },
    ];

    BOOTSTRAP: R::Contract(C::ImagesLoading { .. }) => [C::ImagesLoading { image: "example.com/app:1".into() }];
    BOOTSTRAP: R::Contract(C::LoadBalancerPending { .. }) => [C::LoadBalancerPending { cluster: cluster() }];
    BOOTSTRAP: R::Contract(C::Bootstrapping { .. }) => [C::Bootstrapping { progress: "Running (3 of 17)".into() }];
    BOOTSTRAP: R::Contract(C::BootstrapFailed { .. }) => [
        C::BootstrapFailed { cause: "step 3 of 17 exited with code 1".into() },
        C::BootstrapFailed { cause: "timed out in step 12 of 17".into() },
    ];

    NODE: R::Contract(C::WorkloadUnreachable { .. }) => [
        C::WorkloadUnreachable { cluster: cluster(), message: "Secret one-kubeconfig does not exist".into() },
    ];
    NODE: R::Contract(C::NodeMissing { .. }) => [C::NodeMissing { node: machine() }];
    NODE: R::Contract(C::NodeIdMismatch { .. }) => [
        C::NodeIdMismatch { node: machine(), id: "kind://docker/one/worker-1".into() },
    ];

    BALANCER: R::Contract(C::BalancerWorking { .. }) => [
        C::BalancerWorking { change: "pulling image kindest/haproxy:v20230606-42a2262b".into() },
    ];
    BALANCER: R::Contract(C::BalancerWithoutAddress) => [C::BalancerWithoutAddress];
    BALANCER: R::Contract(C::BalancerAddressChanged { .. }) => [
        C::BalancerAddressChanged { endpoint: "172.18.0.2".into(), addresses: "172.18.0.7".into() },
    ];

    DELETION: R::Contract(C::MachinesRemain { .. }) => [
        C::MachinesRemain { machines: 3 },
        C::MachinesRemain { machines: 1 },
    ];
    DELETION: R::Contract(C::ContainerLeaving { .. }) => [C::ContainerLeaving { container: machine() }];
    DELETION: R::Contract(C::AbsenceNotProven) => [C::AbsenceNotProven];

    MAIL: R::Contract(C::MailRejected { .. }) => [
        C::MailRejected { message: "400: to parameter is not a valid address".into() },
        C::MailRejected { message: COPY.into() },
    ];
    MAIL: R::Contract(C::MailUncertain) => [C::MailUncertain];
    MAIL: R::Contract(C::MailOnHold { .. }) => [
        C::MailOnHold { because: "the mail service cannot be asked: 403: this key cannot read events".into() },
        C::MailOnHold { because: "spec.onUncertain is Hold".into() },
        C::MailOnHold { because: "the mail service may have forgotten the mail".into() },
    ];
    MAIL: R::Contract(C::AwaitingFulfilment { .. }) => [
        C::AwaitingFulfilment { field: "spec.controlPlaneEndpoint" },
        C::AwaitingFulfilment { field: "spec.providerID" },
    ];

    CALLS: R::Calling(_) => [
        R::Calling(Call::ENSURE),
        R::Calling(READINESS),
        R::Calling(LOAD_IMAGES),
        R::Calling(START_BOOTSTRAP),
        R::Calling(PROGRESS),
        R::Calling(COMPLETE_NODE),
        R::Calling(ENSURE_BALANCER),
        R::Calling(DELETE_BALANCER),
        R::Calling(SEND),
        R::Calling(LOOK_UP),
    ];
    CALLS: R::CallFailed { .. } => [
        R::CallFailed {
            call: ENSURE_BALANCER,
            kind: ErrorKind::Unavailable,
            message: "cannot connect to the engine".into(),
            failures: 2,
        },
    ];

    CLUSTER: R::Settled => [R::Settled];
    CLUSTER: R::Writing(_) => [R::Writing("writing the provider id")];
    CLUSTER: R::Looking(_) => [R::Looking("the engine")];
    CLUSTER: R::Awaiting(_) => [R::Awaiting("waiting for other clients to remove their finalizers")];
    CLUSTER: R::WriteUnsettled { .. } => [
        R::WriteUnsettled { write: format!("PATCH of dockermachines default/{}", machine()) },
    ];
    CLUSTER: R::ChangeRefused { .. } => [
        R::ChangeRefused { message: "spec.providerID cannot be changed once it is set".into() },
    ];
    CLUSTER: R::NoEffect { .. } => [R::NoEffect { action: "remove the finalizer".into() }];
    CLUSTER: R::ProgramFailed { .. } => [
        R::ProgramFailed {
            what: "the rule engine failed on this object",
            at: "crates/core/machinist-plan/src/capi/docker_machine.rs:200".into(),
            message: "attempt to subtract with overflow".into(),
        },
    ];
    CLUSTER: R::ClockSkew { .. } => [R::ClockSkew { seconds: 45 }];
}

fn machine() -> String {
    "one-worker-1".to_owned()
}

fn cluster() -> String {
    "one".to_owned()
}

fn page() -> Page {
    Page { path: CapiReason::PAGE, sections: sections() }
}

#[test]
fn every_reason_has_a_section_and_every_section_a_reason() {
    page().check_sections();
}

#[test]
fn quoted_texts_and_tables_are_up_to_date() {
    page().check_contents();
}
