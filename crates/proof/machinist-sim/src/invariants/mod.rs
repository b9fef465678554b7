//! Rules that must hold in every run, under every fault.
//!
//! | | holds | judged |
//! |---|---|---|
//! | S1 | one instance per Machine, ever | each commit of the ledger |
//! | S2 | an instance is deleted only if its Machine is being deleted, or if it is an orphan without a Node | each commit of the ledger |
//! | S3 | the finalizer means "an instance may exist": it is set before the instance is created, and removed after the instance is deleted | both |
//! | S4 | no Machine is made beyond replicas + surge | each Machine that is made |
//! | S5 | no voluntary deletion takes availability below replicas - maxUnavailable | each deletion of a Machine |
//! | S6 | cordon before the first eviction; before the drain may use force, no pod is deleted, and no instance is deleted under a pod that has to leave | each write about pods, each deletion in the ledger |
//! | S7 | provider ids are set once and unique; a Node is deleted only with its own Machine | each commit |
//! | S13 | of a deployment, one unhealthy Machine at a time is replaced | each Machine that is marked Failed |
//! | S14 | a timeout ends a drain by force only after the server answered about each pod | each write about pods, each deletion in the ledger |
//! | S15 | a Machine is given up only while its Node is not healthy | each Machine that is marked Failed |
//! | S16 | no Machine is replaced while its set cannot create instances | each Machine that is marked Failed |
//! | S17 | no object is written in a circle | each commit |
//! | S18 | objects that a user orphans stay | each deletion of a Machine or a set |
//! | S19 | a Machine whose instance exists is not given up as a Machine that was never created | each Machine that is marked Failed |
//! | S20 | a Machine is given up as a Machine that cannot be created only if an attempt has failed | each Machine that is marked Failed |
//! | S21 | a write changes or deletes only the object that its sender has seen | each commit |
//! | S23 | a pod whose eviction is rejected is named in the status before it is deleted by force | each write about pods |
//! | S22 | only the replica that holds the Lease writes, unless the Lease is free | each write that is sent |
//! | S25 | with `Recreate`, no Machine is made while the manager sees one of another class | each Machine that is made |
//! | S26 | a failed Machine that is preserved is not deleted by its set, unless the set has too many | each deletion of a Machine |
//! | S27 | an update in place deletes no Machine, and takes no more out of service than is allowed | each deletion and each selection of a Machine |
//! | S28 | before the drain may use force, no instance is deleted under an attached volume that was not waited for | each deletion in the ledger |
//! | S29 | Nodes and tokens with the mark of another installation stay as they are | each commit |
//! | S30 | a Node is annotated as not managed only if it is old and no Machine has it | each commit |
//! | S31 | an instance that needs it is initialized after its id is recorded, and before its Machine is Pending | each commit of a Machine, each call |
//! | S32 | a set that has lost three new Machines to another program waits before it creates the next | each Machine that is made |
//! | S24 | while many Machines wait for their creation, most calls of the cloud create | each call |
//! | L1 | the requested objects exist, and remain | at the end |
//! | L2 | nothing else is left | at the end |
//! | L4 | no writes, calls or passes when there is nothing to do | at the end |
//! | L8 | after an outage of an API server, work goes on within 5 s, or a little later if many objects wait | after each outage |
//! | L9 | no Machine counts as up to date while it makes no progress | every minute of runs with long faults |
//! | L9 | a Node, a Service, or an object of Cluster API counts as up to date if and only if nothing of it is missing | at the end |
//! | L10 | the label `force-deletion` works without the API server of the Nodes | every minute of runs with long faults |
//! | L6 | 6 writes to make a Machine, 7 to delete one | at the end, without faults |
//!
//! Rules of the cloud-controller-manager ([`crate::ccm::invariants`]):
//!
//! | | holds | judged |
//! |---|---|---|
//! | C1 | a Service never has two load balancers | each change of the cloud |
//! | C2 | a load balancer appears only while its Service has the finalizer | each change of the cloud |
//! | C3 | a Service keeps the finalizer, and exists, until its load balancer no longer exists | each commit of a Service |
//! | C4 | a Node is deleted only if its server does not exist, which two lookups by id of one process showed | each deletion of a Node |
//! | C5 | a Node loses the taint of uninitialised Nodes only with its provider id and addresses | each commit of a Node |
//! | C6 | the provider id of a Node is set once, and names the Node's own server | each commit of a Node |
//! | C7 | an initialised Node has only addresses of its own server | each commit of a Node |
//! | C8 | a load balancer is deleted only if its Service is being deleted; a load balancer that lost its Service to another actor stays | each change of the cloud |
//! | C9 | a load balancer that lost its Service to another actor is named in an Event | at the end |
//! | C10 | for a minute after it took over from a leader that did not release its Lease, a replica deletes no Node | each write that is sent |
//! | C11 | a Service that is deleted is released within minutes, although the process is killed again and again | every 20 s of runs with restarts |
//! | C12 | of several Services that choose one name, one at a time has a load balancer | each change of the cloud |
//!
//! Rules of the providers of Cluster API ([`crate::capi::invariants`]):
//!
//! | | holds | judged |
//! |---|---|---|
//! | K1 | a DockerMachine never has two containers, a DockerCluster never two load balancers | each change of the engine |
//! | K2 | a container or a load balancer is deleted only if its object is being deleted | each change of the engine |
//! | K3 | the finalizer means "something may exist": it is set before, and removed after | both |
//! | K4 | a container of another owner is not started, changed or deleted | each change of the engine |
//! | K5 | a container is bootstrapped only when it is recorded, and one of the control plane only behind the load balancer | each change of the engine |
//! | K6 | a request is sent by one mail, ever | each mail |
//! | K7 | a mail is sent only after its intent | each mail |
//! | K8 | a load balancer loses a container of the control plane only with a cause, and before the container is deleted | each change of the engine |
//! | K9 | the endpoint, and the ids of container and mail, are written once | each commit |
//! | K10 | no object counts as up to date while something is missing | at the end |
//!
//! Invariants are judged on the commit log and the ledger, never by polling. If a rule depends on
//! the knowledge of a process, it uses the newest revision that the process had received when it
//! sent the write.

mod availability;
mod budget;
mod circles;
mod drain;
mod end;
mod identity;
mod in_place;
pub mod initialization;
mod installations;
mod instances;
pub mod leader;
pub mod outage;
mod preserve;
mod recreate;
mod replacement;
mod stale;
mod strays;
mod surge;
mod violation;
mod volumes;

pub use self::end::{Disturbed, EndState, Quiet, Spent};
pub use self::violation::{Id, Violation, Violations};
pub use crate::history::Invariant;

/// All rules, also those that the program does not keep yet under every fault. Only `cargo xtask
/// sim` checks them.
pub fn every() -> Vec<Box<dyn Invariant>> {
    let mut every = all();
    every.push(Box::new(replacement::NothingToReplaceWith));
    every.push(Box::new(budget::CreationsFirst::default()));
    every
}

/// The rules that every test checks during the run.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(instances::OnePerMachine),
        Box::new(instances::OnlyWithCause),
        Box::new(instances::FinalizerTruth),
        Box::new(surge::SurgeBound),
        Box::new(availability::Availability),
        Box::new(recreate::OneTemplate),
        Box::new(preserve::PreservedStay),
        Box::new(in_place::InstancesStay),
        Box::new(drain::DrainOrder::default()),
        Box::<volumes::VolumesFirst>::default(),
        Box::new(identity::ProviderIds),
        Box::new(identity::OwnNodesOnly),
        Box::new(replacement::OneAtATime),
        Box::new(replacement::NoHealthyVictim),
        Box::new(replacement::NoForgottenInstance),
        Box::new(replacement::NoUntriedVictim),
        Box::<circles::NoCircles>::default(),
        Box::new(circles::OrphansStay),
        Box::new(stale::SameObject),
        Box::new(initialization::InitializedFirst),
        Box::new(installations::OthersStay),
        Box::new(installations::ManagedStay),
        Box::<strays::FewStrays>::default(),
    ]
}

/// S17, for the other contracts.
pub(crate) fn no_circles() -> Box<dyn Invariant> {
    Box::<circles::NoCircles>::default()
}
