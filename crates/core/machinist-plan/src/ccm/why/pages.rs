//! The page of the book about the reasons of the cloud-controller-manager: `docs/src/ccm/stuck.md`.
//! The reasons that all contracts share have their sections in `docs/src/stuck.md`.

use machinist_core::Call;
use machinist_instance::ErrorKind;

use super::*;
use crate::ccm::listed_balancers::LIST_BALANCERS;
use crate::ccm::route::LIST_ROUTES;
use crate::ccm::service::{DELETE_BALANCER, ENSURE_BALANCER};
use crate::pages::{Page, Section, rows};

const INITIALIZATION: &str = "A Node stays tainted, or belongs to another program";
const UNREADY: &str = "A Node is not ready";
const REMOVAL: &str = "A Node of a missing server is not deleted";
const BALANCERS: &str = "A Service has no load balancer, or cannot be deleted";
const ROUTES: &str = "A route is missing";
const CLOUD: &str = "A call to the cloud";
const CLUSTER: &str = "The API server, or the controller itself";

use CcmReason as C;
use Reason as R;

rows! {
    never [R::Looking(_)];

    INITIALIZATION: R::Contract(C::InstanceNotFound { .. }) => [
        C::InstanceNotFound { instance: node() },
        C::InstanceNotFound { instance: instance() },
    ];
    INITIALIZATION: R::Contract(C::LookupBatched) => [C::LookupBatched];
    INITIALIZATION: R::Contract(C::NodeIpMismatch { .. }) => [
        C::NodeIpMismatch {
            message: "--node-ip 10.0.0.2 is not an address of the instance, which has: ExternalIP 192.0.2.7, \
                Hostname worker-1"
                .into(),
        },
        C::NodeIpMismatch {
            message: "--node-ip \"10.0.0.2,10.0.0.3\": expected one IP address, or one of each IP family".into(),
        },
    ];
    INITIALIZATION: R::Contract(C::InstanceClaimed { .. }) => [
        C::InstanceClaimed { instance: instance(), node: "worker-1-old".into() },
    ];
    INITIALIZATION: R::Contract(C::NodeOfAnotherCloud { .. }) => [
        C::NodeOfAnotherCloud { id: "k3s://worker-1".into(), expected: expected() },
        C::NodeOfAnotherCloud { id: "hrobot://4321".into(), expected: expected() },
    ];
    INITIALIZATION: R::Contract(C::NodeIdMalformed { .. }) => [
        C::NodeIdMalformed { id: "hcloud://worker-1".into(), expected: expected() },
    ];
    INITIALIZATION: R::Contract(C::NodeWithoutId) => [C::NodeWithoutId];

    UNREADY: R::Contract(C::NodeNotReady { .. }) => [C::NodeNotReady { instance: instance() }];
    UNREADY: R::Contract(C::ReadyWithoutInstance { .. }) => [
        C::ReadyWithoutInstance { instance: instance() },
    ];
    UNREADY: R::Contract(C::InstanceStopped { .. }) => [C::InstanceStopped { instance: instance() }];
    UNREADY: R::Contract(C::InstanceMissing { .. }) => [C::InstanceMissing { instance: instance() }];
    UNREADY: R::Contract(C::LeaderTooYoung) => [C::LeaderTooYoung];

    REMOVAL: R::Contract(C::NodeRemovable { .. }) => [C::NodeRemovable { instance: instance() }];
    REMOVAL: R::Contract(C::NodeTooYoung { .. }) => [C::NodeTooYoung { instance: instance() }];
    REMOVAL: R::Contract(C::NodeOwned { .. }) => [
        C::NodeOwned { instance: instance(), machine: "default/worker-1".into() },
    ];
    REMOVAL: R::Contract(C::NodeDeletionSkipped { .. }) => [C::NodeDeletionSkipped { instance: instance() }];
    REMOVAL: R::Contract(C::NodeAccountUnproven { .. }) => [C::NodeAccountUnproven { instance: instance() }];
    REMOVAL: R::Contract(C::NodeDeletionSuspended { .. }) => [
        C::NodeDeletionSuspended { missing: 30, nodes: 100, held_by: BrakeRule::Limit { most: 20 } },
        C::NodeDeletionSuspended { missing: 2, nodes: 2, held_by: BrakeRule::All },
        C::NodeDeletionSuspended { missing: 3, nodes: 20, held_by: BrakeRule::NothingShown },
    ];
    REMOVAL: R::Contract(C::NodeDeletionRefused { .. }) => [C::NodeDeletionRefused { node: node() }];

    BALANCERS: R::Contract(C::OtherBalancerClass { .. }) => [
        C::OtherBalancerClass { class: "example.com/balancer".into() },
    ];
    BALANCERS: R::Contract(C::NodeSelectorInvalid { .. }) => [
        C::NodeSelectorInvalid {
            message: "annotation load-balancer.hetzner.cloud/node-selector \"pool in web\": expected a label \
                selector such as pool=web,!retired,zone in (a,b)"
                .into(),
        },
    ];
    BALANCERS: R::Contract(C::BalancerNameTaken { .. }) => [
        C::BalancerNameTaken { holder: "default/web".into() },
    ];
    BALANCERS: R::Contract(C::BalancerNameKept { .. }) => [
        C::BalancerNameKept { first_name: "a0a1b2c3d00001111222233334444555".into(), name: "edge".into() },
    ];
    BALANCERS: R::Contract(C::BalancerElsewhere { .. }) => [
        C::BalancerElsewhere { balancer: Some("42".into()), service: "default/web".into() },
        C::BalancerElsewhere { balancer: None, service: "default/web".into() },
    ];
    BALANCERS: R::Contract(C::BalancerInvalid { .. }) => [
        C::BalancerInvalid {
            message: "load-balancer.hetzner.cloud/location: expected a location here, in \
                load-balancer.hetzner.cloud/network-zone, HCLOUD_LOAD_BALANCERS_LOCATION or \
                HCLOUD_LOAD_BALANCERS_NETWORK_ZONE"
                .into(),
        },
        C::BalancerInvalid {
            message: "load-balancer.hetzner.cloud/private-ipv4: expected a free address of network 4711, but \
                server worker-1 has 10.0.0.2"
                .into(),
        },
    ];
    BALANCERS: R::Contract(C::BalancerWorking { .. }) => [
        C::BalancerWorking { change: "create_load_balancer".into() },
        C::BalancerWorking { change: "attach_to_network".into() },
        C::BalancerWorking { change: "delete_load_balancer".into() },
    ];
    BALANCERS: R::Contract(C::NoBackends) => [C::NoBackends];
    BALANCERS: R::Contract(C::TargetsSkipped { .. }) => [
        C::TargetsSkipped {
            nodes: 1,
            messages: "Node worker-1: server 42 is not attached to network 4711, and use-private-ip is true".into(),
        },
        C::TargetsSkipped {
            nodes: 2,
            messages: "Node worker-26: the load balancer has the largest number of targets of its type; choose a \
                larger type; Node worker-27: the load balancer has the largest number of targets of its type; \
                choose a larger type"
                .into(),
        },
    ];
    BALANCERS: R::Contract(C::NoPorts) => [C::NoPorts];

    ROUTES: R::Contract(C::NoNodes) => [C::NoNodes];
    ROUTES: R::Contract(C::RouteWorking { .. }) => [
        C::RouteWorking { change: "add_route".into() },
        C::RouteWorking { change: "delete_route".into() },
    ];
    ROUTES: R::Contract(C::RouteFailed { .. }) => [
        C::RouteFailed {
            change: "create the route to 10.244.1.0/24 over hcloud://42".into(),
            message: "server worker-1 is not attached to network 7".into(),
            failing: 1,
        },
        C::RouteFailed {
            change: "create the route to 10.244.1.0/24 over hcloud://42".into(),
            message: "network 7 has 100 routes, which is the limit of the cloud".into(),
            failing: 3,
        },
    ];
    ROUTES: R::Contract(C::RouteDestinationTaken { .. }) => [
        C::RouteDestinationTaken { destination: "10.244.1.0/24".into(), node: node() },
    ];

    CLOUD: R::Contract(C::AccountUnproven) => [C::AccountUnproven];
    CLOUD: R::Contract(C::CallsSaved { .. }) => [C::CallsSaved { remaining: 100, limit: 3600 }];
    CLOUD: R::Contract(C::CloudUnknown) => [C::CloudUnknown];
    CLOUD: R::Contract(C::NoAccount) => [C::NoAccount];
    CLOUD: R::Calling(_) => [
        R::Calling(ENSURE_BALANCER),
        R::Calling(DELETE_BALANCER),
        R::Calling(Call::FIND),
        R::Calling(LIST_BALANCERS),
        R::Calling(LIST_ROUTES),
    ];
    CLOUD: R::CallFailed { .. } => [
        R::CallFailed {
            call: ENSURE_BALANCER,
            kind: ErrorKind::Exhausted,
            message: "resource_limit_exceeded: load balancer limit exceeded; limit load_balancer_limit".into(),
            failures: 2,
        },
        R::CallFailed {
            call: LIST_ROUTES,
            kind: ErrorKind::Unavailable,
            message: "no answer within 15 s".into(),
            failures: 1,
        },
    ];
    CLOUD: R::AccountPaused => [R::AccountPaused];
    CLOUD: R::PredecessorCalls => [R::PredecessorCalls];

    CLUSTER: R::Settled => [R::Settled];
    CLUSTER: R::Writing(_) => [R::Writing("initializing the Node")];
    CLUSTER: R::Awaiting(_) => [R::Awaiting("waiting for other clients to remove their finalizers")];
    CLUSTER: R::WriteUnsettled { .. } => [R::WriteUnsettled { write: format!("PATCH of nodes {}", node()) }];
    CLUSTER: R::ChangeRefused { .. } => [
        R::ChangeRefused { message: "nodes \"worker-1\" is forbidden: User \"ccm\" cannot patch resource".into() },
    ];
    CLUSTER: R::NoEffect { .. } => [R::NoEffect { action: "node: taints []".into() }];
    CLUSTER: R::ProgramFailed { .. } => [
        R::ProgramFailed {
            what: "the rule engine failed on this object",
            at: "crates/core/machinist-plan/src/ccm/node.rs:120".into(),
            message: "attempt to subtract with overflow".into(),
        },
    ];
    CLUSTER: R::ClockSkew { .. } => [R::ClockSkew { seconds: 45 }];
    CLUSTER: R::ServerSilent { .. } => [
        R::ServerSilent { server: "the API server of the cluster".into() },
    ];
}

fn instance() -> String {
    "hcloud://42".to_owned()
}

fn node() -> String {
    "worker-1".to_owned()
}

fn expected() -> String {
    "hcloud://NUMBER".to_owned()
}

fn page() -> Page {
    Page { path: CcmReason::PAGE, sections: sections() }
}

#[test]
fn every_reason_has_a_section_and_every_section_a_reason() {
    page().check_sections();
}

#[test]
fn quoted_texts_and_tables_are_up_to_date() {
    page().check_contents();
}
