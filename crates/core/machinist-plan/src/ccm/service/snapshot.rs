//! All facts for one decision about one Service.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::{Process, Silence};
use machinist_instance::{Address, ProviderId};

use super::answers::ServiceAnswers;
use super::options::Options;
use super::served::Served;
use crate::ccm::account::{AccountFacts, Failure};
use crate::ccm::backends::Backends;
use crate::ccm::facts::ServiceFacts;
use crate::ccm::listed_balancers::ListedBalancer;
use crate::event::EmittedEvents;

/// All facts for one decision about one Service.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The flags of the service controller.
    pub options: Arc<Options>,
    /// The Service to decide about.
    pub service: Arc<ServiceFacts>,
    /// The Nodes that may be behind the load balancer.
    pub backends: Arc<Backends>,
    /// The silence of the watch of Nodes, if a list of them has failed, too. So Nodes may be
    /// missing.
    pub nodes_silence: Option<Silence>,
    /// The state of today's account.
    pub account: AccountFacts,
    /// The driver's answers for this Service, by its UID.
    pub answers: ServiceAnswers,
    /// The result of the last list of load balancers for this Service, in today's account.
    pub listed: Option<ListedBalancer>,
    /// The last list of load balancers, if it failed.
    pub list_failed: Option<Failure>,
    /// The skipped targets of the load balancer in the last list of instances, in today's account.
    pub targets: Option<ListedTargets>,
    /// The program that served the Service when its type was LoadBalancer.
    pub served: Served,
    /// The other Services whose load balancer has, or should have, the name of this one.
    pub rivals: Vec<Rival>,
    /// Events that were emitted about the Service.
    pub emitted: Arc<EmittedEvents>,
    /// The dry run, if the process changes nothing.
    pub rehearsal: Option<Rehearsal>,
}

impl Hash for Snapshot {
    /// The process is excluded like the moment. The keys of other Services are excluded: they
    /// change often, and rarely matter.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            process: _,
            options: _,
            service,
            backends,
            nodes_silence,
            account,
            answers,
            listed,
            list_failed,
            targets,
            served,
            rivals,
            emitted,
            rehearsal,
        } = self;
        (service, backends, account, answers, listed, targets, served, rivals, emitted, rehearsal)
            .hash(state);
        (nodes_silence.is_some(), list_failed).hash(state);
    }
}

/// A Service that wants the same name for its load balancer as another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rival {
    /// `namespace/name` of the Service.
    pub service: String,
    /// UID of the Service.
    pub uid: String,
    /// Creation timestamp of the Service.
    pub created: Timestamp,
    /// The name that its load balancer has, as far as this process knows.
    pub balancer_name: Option<String>,
    /// Whether this process has begun to create its load balancer.
    pub has_begun: bool,
}

/// The addresses of the skipped instances in the last list of the account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedTargets {
    /// When the list began.
    pub started: Timestamp,
    /// The addresses of the skipped instances that the list contains.
    pub addresses: BTreeMap<ProviderId, Vec<Address>>,
}

/// The facts that only a dry run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rehearsal {
    /// Whether the process would first write the finalizer. A dry run does not write it, and
    /// decides as if the Service had it.
    pub lacks_finalizer: bool,
}
