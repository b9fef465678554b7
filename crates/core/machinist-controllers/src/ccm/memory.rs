//! Memory of a process besides its stores. All of it may be lost at any time: it only saves calls
//! and repeated Events.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::{Answered, Answers, Silence};
use machinist_instance::{AccountId, BalancerKey, Error, ErrorKind, Power};
use machinist_plan::ccm::account::{AccountFacts, BalancerProof, Failure, Outage, Proof, is_outage};
use machinist_plan::ccm::backends::{Backends, Departed};
use machinist_plan::ccm::facts::ServiceFacts;
use machinist_plan::ccm::listed_balancers::ListedBalancers;
use machinist_plan::ccm::node;
use machinist_plan::ccm::node_removal::{self, DeletionRefusal};
use machinist_plan::ccm::route::RouteMemory;
use machinist_plan::ccm::service::ServiceAnswers;
use machinist_plan::ccm::{CcmReason, Why};
use machinist_plan::{EmittedEvents, EventText};

/// The proofs of all accounts. One credential opens them all.
pub(crate) type Proofs = crate::account_proof::AccountProofs<()>;

/// Subject of Events about the account.
pub(crate) const ACCOUNT: &str = "account";
/// Subject of Events about the removal of Nodes.
pub(crate) const REMOVAL: &str = "removal";
/// Subject of Events about routes.
pub(crate) const ROUTES: &str = "routes";
/// Subject of Events about load balancers without a Service.
pub(crate) const DRIFT: &str = "drift";

#[derive(Default)]
pub(crate) struct Memory {
    /// Answers about instances, by Node UID.
    pub answers: BTreeMap<String, Answers>,
    /// Answers about load balancers, by Service UID.
    pub balancers: BTreeMap<String, ServiceAnswers>,
    /// The class of each Service when its type was LoadBalancer for the last time, by UID. A change
    /// of the type removes the class.
    pub classes: BTreeMap<String, Option<String>>,
    /// Answers about routes.
    pub routes: RouteMemory,
    /// The list of load balancers.
    pub drift: Drift,
    /// The list of instances, and whether calls work.
    pub account: AccountMemory,
    /// Proofs from the accounts.
    pub proofs: Proofs,
    /// Emitted Events, by UID of the object or by one of the constants of this module.
    emitted: BTreeMap<String, Arc<EmittedEvents>>,
    /// Names of the Nodes whose instance was absent in the last lookup by id, by Node UID.
    pub suspects: BTreeMap<String, String>,
    /// DELETEs that the API server rejected, by Node UID.
    pub refused: BTreeMap<String, DeletionRefusal>,
    /// When the first of several answers showed the instance as stopped, by Node UID.
    pub stopped: BTreeMap<String, Timestamp>,
    /// When this process deleted Nodes; only recent times.
    pub removed: Vec<Timestamp>,
    /// Number of Nodes that this process deleted.
    pub removed_in_all: usize,
    /// The reason of the last decision about the deletion of Nodes, if it suspended the deletion.
    pub brake: Option<Why>,
    /// Why Nodes lack a route, by their names.
    pub unrouted: BTreeMap<String, Why>,
    /// The Nodes behind load balancers; absent until they were computed for the first time.
    pub backends: Option<Arc<Backends>>,
    /// Since when Nodes of another cloud are among them without being registered.
    pub departed: Departed,
    /// Number of changes that may change the Nodes behind load balancers.
    pub node_changes: u64,
    /// The number of changes when these Nodes were computed; absent before that.
    pub backends_computed: Option<u64>,
    /// The keys of all Services; absent if they must be collected again.
    pub service_keys: Option<Arc<Vec<BalancerKey>>>,
    /// When the first of the Nodes that wait for a lookup appeared.
    pub first_uninitialized: Option<Timestamp>,
}

/// The list of the account's instances, and whether its calls work.
#[derive(Debug, Default)]
pub(crate) struct AccountMemory {
    /// The last list, if it failed.
    pub list_failed: Option<Failure>,
    /// When the last successful list was answered.
    pub listed: Option<Timestamp>,
    /// The account of the last successful list, and its end.
    pub checked: Option<(AccountId, Timestamp)>,
    /// The outage of the cloud, if calls fail now.
    pub outage: Option<Outage>,
    /// End of the answer that ended the last outage.
    pub works_since: Option<Timestamp>,
    /// The message of the cloud, if it rejected the credential in the last call.
    pub denied: Option<String>,
    /// Whether the credential opened no account at the last decision about the account.
    pub opens_none: bool,
    /// The setting that does not fit the account, as the last list showed.
    pub misconfigured: Option<String>,
    /// Whether the account was known to be the account of the Nodes at the last decision about it.
    pub was_proven: bool,
    /// Whether an account was ever known to be the account of the Nodes.
    pub was_ever_proven: bool,
    /// The proof of the account at the last decision about it.
    pub proof: Option<Proof>,
    /// The proof by load balancers at the last decision about it.
    pub balancers: BalancerProof,
}

/// The list of the account's load balancers.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    /// The last successful list.
    pub listed: Option<Arc<ListedBalancers>>,
    /// The last list, if it failed.
    pub failed: Option<Failure>,
    /// When this process last asked for a list of the Nodes because their watch was silent.
    pub nodes_asked: Option<Timestamp>,
    /// The silence of the watch of Nodes, if that list has failed.
    pub nodes_silence: Option<Silence>,
}

/// Returns the failure that follows an earlier one of the same call.
pub(crate) fn next_failure(last: Option<&Failure>, error: Error, ended: Timestamp) -> Failure {
    Failure { error, ended, count: last.map_or(0, |last| last.count).saturating_add(1) }
}

impl AccountMemory {
    /// Stores the proof of the account.
    pub(crate) fn note_proof(&mut self, account: &AccountFacts) {
        self.proof = account.id.as_ref().map(|_| account.proof);
        self.balancers = account.balancers.clone();
        self.was_ever_proven |= account.id.is_some() && account.is_proven();
    }

    /// Whether the account shows no server of any Node, or, without such Nodes, no load balancer of
    /// any Service.
    pub(crate) fn is_unproven(&self) -> bool {
        self.doubt().is_some()
    }

    /// Returns why the account is not proven, as far as answers of the cloud show it.
    fn doubt(&self) -> Option<String> {
        match (self.proof, &self.balancers) {
            (Some(Proof::Missing), _) => Some(CcmReason::AccountUnproven.to_string()),
            (_, BalancerProof::Missing(missing)) => Some(missing.unseen().reason.to_string()),
            (_, BalancerProof::Given | BalancerProof::Unlisted(_)) => None,
        }
    }

    /// Returns why nothing can be done in the account, for a process that could never do anything.
    /// A rollout with a wrong credential must not go on. A cloud that does not answer proves
    /// nothing.
    pub(crate) fn unproven(&self) -> Option<String> {
        if self.was_ever_proven {
            return None;
        }
        if let Some(doubt) = self.doubt() {
            return Some(doubt);
        }
        match (self.proof, &self.balancers) {
            (Some(Proof::Given), BalancerProof::Unlisted(None)) => {
                Some("the load balancers of the account were not listed yet".to_owned())
            }
            (Some(Proof::Given), _) => None,
            (Some(Proof::Unlisted | Proof::Missing) | None, _) => self
                .list_failed
                .is_none()
                .then(|| "the servers of the account were not listed yet".to_owned()),
        }
    }

    /// Returns what a user should know although the process is ready.
    pub(crate) fn remark(&self) -> Option<String> {
        if let Some(doubt) = self.doubt() {
            return Some(doubt);
        }
        if let (None, BalancerProof::Unlisted(Some(failure))) = (self.outage, &self.balancers) {
            return Some(format!("the cloud failed to list the load balancers: {}", failure.error.message));
        }
        let failed = self.list_failed.as_ref().map(|failure| &failure.error.message);
        match (self.outage, failed) {
            (Some(outage), _) => Some(format!("the cloud does not answer since {:.0}", outage.since)),
            (None, Some(message)) => Some(format!("the cloud failed to list the servers: {message}")),
            (None, None) => None,
        }
    }

    /// Records whether a call worked. Returns whether an outage has just ended.
    pub(crate) fn note<T>(&mut self, answered: &Answered<T>) -> bool {
        match &answered.answer {
            Ok(_) => {
                self.denied = None;
                let has_ended = self.outage.take().is_some_and(|outage| outage.wakes_at(answered.ended));
                if has_ended {
                    self.works_since = Some(answered.ended);
                }
                has_ended
            }
            Err(error) => {
                self.denied = (error.kind == ErrorKind::Denied).then(|| error.message.clone());
                if is_outage(error.kind) {
                    self.outage.get_or_insert(Outage { since: answered.ended, probed: None });
                } else if error.kind == ErrorKind::Denied && answered.account.is_some() {
                    // The cloud answers again, and rejects the credential.
                    self.outage = None;
                }
                false
            }
        }
    }
}

impl Memory {
    /// Whether a Node has changed since the Nodes behind load balancers were computed.
    pub(crate) fn are_backends_stale(&self) -> bool {
        self.backends_computed != Some(self.node_changes)
    }

    /// Returns the Events that were emitted about a subject.
    pub(crate) fn emitted(&self, subject: &str) -> Arc<EmittedEvents> {
        self.emitted.get(subject).cloned().unwrap_or_default()
    }

    /// Records that an Event was emitted.
    pub(crate) fn note_emitted(&mut self, subject: &str, event: &EventText, now: Timestamp) {
        Arc::make_mut(self.emitted.entry(subject.to_owned()).or_default()).note(event, now);
    }

    /// Records whether the last lookup of a Node's instance found nothing.
    pub(crate) fn suspect(&mut self, uid: &str, name: &str) {
        let is_absent = self.answers.get(uid).is_some_and(|answers| answers.absence.is_some());
        if is_absent {
            self.suspects.insert(uid.to_owned(), name.to_owned());
        } else {
            self.suspects.remove(uid);
        }
    }

    /// Records in which state the cloud showed the instance of a Node.
    pub(crate) fn note_power(&mut self, uid: &str, power: Power, ended: Timestamp) {
        match node::take_power(self.stopped.get(uid).copied(), power, ended) {
            Some(since) => self.stopped.insert(uid.to_owned(), since),
            None => self.stopped.remove(uid),
        };
    }

    /// Records that a Node was deleted. A deletion that another program announced does not count
    /// towards the brake.
    pub(crate) fn note_removed(&mut self, is_expected: bool, now: Timestamp) {
        let is_recent = |at: &Timestamp| now.duration_since(*at).unsigned_abs() <= node_removal::RECENT;
        self.removed.retain(is_recent);
        if !is_expected {
            self.removed.push(now);
        }
        self.removed_in_all += 1;
    }

    /// Forgets a deleted Node.
    pub(crate) fn forget_node(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.emitted.remove(uid);
        self.suspects.remove(uid);
        self.refused.remove(uid);
        self.stopped.remove(uid);
    }

    /// Records the class of a Service.
    pub(crate) fn note_class(&mut self, service: &ServiceFacts) {
        if service.is_load_balancer {
            self.classes.insert(service.uid.clone(), service.class.clone());
        } else if !service.has_finalizer {
            self.classes.remove(&service.uid);
        }
    }

    /// Forgets a deleted Service.
    pub(crate) fn forget_service(&mut self, uid: &str) {
        self.balancers.remove(uid);
        self.classes.remove(uid);
        self.emitted.remove(uid);
    }

    /// Forgets the facts that depend on the time at which they were learned. Which instances an
    /// account has shown stays valid.
    pub(crate) fn forget_moments(&mut self) {
        for answers in self.answers.values_mut() {
            *answers = Answers { shown_in: answers.shown_in.take(), ..Answers::default() };
        }
        self.proofs.forget_moments();
        self.suspects = BTreeMap::new();
        self.balancers.clear();
        // Which routes belong to Nodes elsewhere depends on no time.
        let elsewhere = std::mem::take(&mut self.routes.elsewhere);
        self.routes = RouteMemory { elsewhere, ..RouteMemory::default() };
        self.drift = Drift::default();
        let was_ever_proven = self.account.was_ever_proven;
        self.account = AccountMemory { was_ever_proven, ..AccountMemory::default() };
        self.refused.clear();
        self.stopped.clear();
        self.removed.clear();
        self.emitted.clear();
        self.first_uninitialized = None;
        // The next computation counts from its own moment.
        (self.departed, self.backends_computed) = (Departed::new(), None);
    }
}
