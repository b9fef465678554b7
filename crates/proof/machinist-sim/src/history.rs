//! The history of a run. It records the commits of both servers and of the cloud's ledger, and the
//! writes and driver calls of the processes, in one order. Every invariant checks every event.
//!
//! The servers' commits arrive in channels. The history reads these channels before it records
//! anything else, so it always sees a commit before the effects of the commit's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;
use jiff::Timestamp;
use machinist_api::capi::constants::{DOCKER_CLUSTER_FINALIZER, DOCKER_MACHINE_FINALIZER};
use machinist_api::constants::finalizers;
use machinist_apiserver::{Commit, Object, Subscription};
use machinist_cloud_sim as cloud;
use machinist_kube::SharedClock;

use crate::actor::{RESTORE, STRANGER, Side, TestedProcess};
use crate::ask::{WholeRequest, WriteInFlight};
use crate::capi::outside::{self, By, Outside};
use crate::ccm::project::{self, FINALIZER as BALANCER_FINALIZER, Lookup, Project};
use crate::faults::OutageMode;
use crate::invariants::{Id, Violation, Violations};
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES, LEASES, MACHINES, NODES, PODS, SERVICES, SeenObject};
use crate::trace::{Line, LineKind, Trace};

/// The state after all events so far, as the invariants see it.
#[derive(Debug)]
pub struct RunState {
    /// The current time.
    pub now: Timestamp,
    tables: BTreeMap<Side, BTreeMap<Arc<str>, BTreeMap<String, Track>>>,
    instances: BTreeMap<String, InstanceTrack>,
    project: Project,
    outside: Outside,
    in_flight: BTreeMap<u64, Arc<WriteInFlight>>,
    arrived: BTreeSet<u64>,
    by_hand: ByHand,
    undelivered: BTreeMap<Undelivered, (Timestamp, OutageMode)>,
    pods: BTreeMap<String, PodAnswers>,
    taken_over: BTreeMap<TestedProcess, (String, Timestamp)>,
    initialized: BTreeSet<String>,
    born: BTreeMap<TestedProcess, Timestamp>,
}

/// The answers about one pod that a process received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodAnswers {
    /// Whether an eviction of the pod was answered.
    pub eviction: bool,
    /// Whether a deletion of the pod was accepted or rejected. An answer 429 is neither.
    pub deletion: bool,
    /// The first and the last answer that rejected an eviction of the pod for another reason than a
    /// budget, since the process started.
    pub rejected: Option<(Timestamp, Timestamp)>,
}

/// An object about which the last write of a process did not reach the server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undelivered {
    /// The process.
    pub process: TestedProcess,
    /// The server.
    pub side: Side,
    /// The table of the object.
    pub table: String,
    /// `namespace/name`, or `name`.
    pub key: String,
}

impl Undelivered {
    fn of(process: TestedProcess, side: Side, ask: &WholeRequest) -> Self {
        Self { process, side, table: ask.about.table.clone(), key: ask.about.key() }
    }
}

/// The changes that other actors made to Machines, Services and objects of Cluster API, by UID.
#[derive(Debug, Clone, Default)]
struct ByHand {
    /// When another actor last took our finalizer off.
    stripped: BTreeMap<String, Timestamp>,
    /// When an object was deleted that had lost our finalizer to another actor, or that a restore
    /// does not contain.
    lost: BTreeMap<String, Timestamp>,
    /// Machines that another actor created under the name of an older one.
    replaced: BTreeSet<String>,
    /// When a cluster was last restored.
    restored: Option<Timestamp>,
}

/// All versions of one object, oldest first; `None` where the object did not exist.
#[derive(Debug, Default)]
pub struct Track(Vec<(u64, Option<Arc<Object>>)>);

impl Track {
    /// The object, if it exists.
    pub fn now(&self) -> Option<SeenObject<'_>> {
        self.0.last().and_then(|(_, object)| object.as_deref()).map(|object| SeenObject(object.value()))
    }

    /// The object as it was at that revision.
    pub fn at(&self, revision: u64) -> Option<SeenObject<'_>> {
        let after = self.0.partition_point(|(at, _)| *at <= revision);
        let (_, object) = self.0.get(after.checked_sub(1)?)?;
        object.as_deref().map(|object| SeenObject(object.value()))
    }

    /// Every version that was current at that revision or later.
    pub fn since(&self, revision: u64) -> impl Iterator<Item = SeenObject<'_>> {
        let after = self.0.partition_point(|(at, _)| *at <= revision);
        let versions = self.0[after.saturating_sub(1)..].iter();
        versions.filter_map(|(_, object)| object.as_deref()).map(|object| SeenObject(object.value()))
    }

    /// Number of objects that ever had this name.
    pub fn births(&self) -> usize {
        self.versions().map(|(_, object)| object.uid()).collect::<BTreeSet<_>>().len()
    }

    /// Every version, oldest first, with its revision.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = (u64, SeenObject<'_>)> {
        self.0.iter().filter_map(|(at, object)| Some((*at, SeenObject(object.as_deref()?.value()))))
    }
}

/// One instance, according to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceTrack {
    /// Provider id of the instance.
    pub id: String,
    /// The current key of the instance.
    pub key: Option<String>,
    /// Name of the instance.
    pub name: String,
    /// Tags of the instance.
    pub tags: BTreeMap<String, String>,
    /// When the instance was created.
    pub created: Timestamp,
    /// When the deletion ends, once requested.
    pub gone_at: Option<Timestamp>,
    /// Whether the instance has ceased to exist.
    pub gone: bool,
}

impl InstanceTrack {
    /// Whether the instance exists at `now`.
    pub fn is_alive_at(&self, now: Timestamp) -> bool {
        !self.gone && self.gone_at.is_none_or(|at| now < at)
    }
}

/// One event. The state already contains it.
#[derive(Debug)]
pub enum Event<'e> {
    /// An API server committed.
    Committed {
        /// The server.
        side: Side,
        /// The commit.
        commit: &'e Commit,
        /// The write of a process under test that caused the commit.
        cause: Option<&'e WriteInFlight>,
    },
    /// The cloud committed to its ledger.
    Ledger(&'e cloud::LedgerCommit),
    /// A write of a process under test reached its server; it is not committed yet.
    Arrived(&'e WriteInFlight),
    /// A driver call of a process under test reached the cloud.
    Called(cloud::Operation),
    /// The stand-in of Hetzner Cloud changed an object.
    Hcloud(&'e project::ProjectChange),
    /// The container engine or the mail service changed.
    Outside(&'e outside::OutsideChange, By),
}

/// One rule. It sees every event, in order.
pub trait Invariant: Send {
    /// Checks one event; `state` already contains it.
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations);
}

impl RunState {
    fn new(now: Timestamp) -> Self {
        Self {
            now,
            tables: BTreeMap::new(),
            instances: BTreeMap::new(),
            project: Project::default(),
            outside: Outside::default(),
            in_flight: BTreeMap::new(),
            arrived: BTreeSet::new(),
            by_hand: ByHand::default(),
            undelivered: BTreeMap::new(),
            pods: BTreeMap::new(),
            taken_over: BTreeMap::new(),
            initialized: BTreeSet::new(),
            born: BTreeMap::new(),
        }
    }

    /// When a process started last without a memory; `None` for its first start.
    pub fn born(&self, process: TestedProcess) -> Option<Timestamp> {
        self.born.get(&process).copied()
    }

    /// Whether a process got the answer that the instance of that id is initialized.
    pub fn is_initialized(&self, id: &str) -> bool {
        self.initialized.contains(id)
    }

    /// The answers about a pod that a process received; `key` is `namespace/name`.
    pub fn answers_about(&self, key: &str) -> PodAnswers {
        self.pods.get(key).copied().unwrap_or_default()
    }

    /// When a replica of that identity took over from a leader that had not released the Lease.
    pub fn taken_over(&self, process: TestedProcess, identity: &str) -> Option<Timestamp> {
        let (by, at) = self.taken_over.get(&process)?;
        (by == identity).then_some(*at)
    }

    /// When another actor last took our finalizer off the object of that UID.
    pub fn stripped_at(&self, uid: &str) -> Option<Timestamp> {
        self.by_hand.stripped.get(uid).copied()
    }

    /// When the object of that UID was lost: another actor took our finalizer off before its
    /// deletion, or a restore does not contain it.
    pub fn lost_at(&self, uid: &str) -> Option<Timestamp> {
        self.by_hand.lost.get(uid).copied()
    }

    /// Whether another actor created the Machine of that UID under the name of an older one.
    pub fn was_replaced(&self, uid: &str) -> bool {
        self.by_hand.replaced.contains(uid)
    }

    /// Whether a write about that object has not arrived.
    pub fn is_being_written(&self, side: Side, table: &str, key: &str) -> bool {
        self.in_flight.values().any(|sent| {
            sent.side == side
                && sent.about.table == table
                && sent.about.key() == key
                && !self.arrived.contains(&sent.number)
        })
    }

    /// Whether a write of a process has no answer yet.
    pub fn awaits_answer(&self, process: TestedProcess) -> bool {
        self.in_flight.values().any(|sent| sent.process == process)
    }

    /// When a cluster was last restored.
    pub fn restored_at(&self) -> Option<Timestamp> {
        self.by_hand.restored
    }

    /// The objects about which the last write of a process did not reach the server; when the
    /// process last tried, and how the server was away. An object that was changed since then is
    /// left out, because the change may have changed the decision.
    pub fn undelivered(&self) -> impl Iterator<Item = (&Undelivered, Timestamp, OutageMode)> {
        self.undelivered.iter().map(|(waiting, (at, absence))| (waiting, *at, *absence))
    }

    /// All tracks of a table, by key.
    pub fn table(&self, side: Side, table: &str) -> impl Iterator<Item = (&str, &Track)> {
        let tracks = self.tables.get(&side).and_then(|tables| tables.get(table));
        tracks.into_iter().flatten().map(|(key, track)| (key.as_str(), track))
    }

    /// How often each object of a table was created, as text.
    pub(crate) fn births(&self, side: Side, table: &str) -> String {
        let tracks = self.table(side, table);
        let births: Vec<String> =
            tracks.map(|(key, track)| format!("{key} {} times", track.births())).collect();
        births.join(", ")
    }

    /// The objects of a table that exist.
    pub fn objects(&self, side: Side, table: &str) -> impl Iterator<Item = SeenObject<'_>> {
        self.table(side, table).filter_map(|(_, track)| track.now())
    }

    /// The track of one object.
    pub fn track(&self, side: Side, table: &str, key: &str) -> Option<&Track> {
        self.tables.get(&side)?.get(table)?.get(key)
    }

    /// The existing object of that UID.
    pub fn by_uid(&self, side: Side, table: &str, uid: &str) -> Option<SeenObject<'_>> {
        self.objects(side, table).find(|object| object.uid() == uid)
    }

    /// The instances of the ledger, in the order of their ids.
    pub fn instances(&self) -> impl Iterator<Item = &InstanceTrack> {
        self.instances.values()
    }

    /// The instance of that provider id.
    pub fn instance(&self, id: &str) -> Option<&InstanceTrack> {
        self.instances.get(id)
    }

    /// The objects of the stand-in of Hetzner Cloud.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// The containers, load balancers and mails of Cluster API.
    pub fn outside(&self) -> &Outside {
        &self.outside
    }

    fn commit(&mut self, side: Side, commit: &Commit) {
        let tables = self.tables.entry(side).or_default();
        let table = tables.entry(commit.resource.clone()).or_default();
        let track = table.entry(commit.key.as_str().to_owned()).or_default();
        track.0.push((commit.revision, commit.new.clone()));
        // A kubelet writes its status all the time, which changes no decision to write.
        let is_status = *commit.resource == *NODES && commit.new.is_some();
        self.undelivered.retain(|waiting, _| {
            let is_same = waiting.side == side
                && waiting.table.split('.').next() == commit.resource.split('.').next()
                && waiting.key == commit.key.as_str();
            is_status || !is_same
        });
        if let Some(finalizer) = finalizer_of(&commit.resource) {
            self.note_by_hand(commit, finalizer);
        }
        if commit.resource.starts_with(LEASES) {
            self.note_take_over(commit);
        }
    }

    fn note_take_over(&mut self, commit: &Commit) {
        let (Some(old), Some(new)) = (commit.old.as_deref(), commit.new.as_deref()) else { return };
        let (old, new) = (SeenObject(old.value()), SeenObject(new.value()));
        let (before, holder) = (old.text("/spec/holderIdentity"), new.text("/spec/holderIdentity"));
        if let Some(process) = TestedProcess::of_agent(new.name())
            && !before.is_empty()
            && !holder.is_empty()
            && before != holder
        {
            self.taken_over.insert(process, (holder.to_owned(), self.now));
        }
    }

    fn note_by_hand(&mut self, commit: &Commit, finalizer: &str) {
        let new = commit.new.as_deref().map(|new| SeenObject(new.value()));
        let Some(old) = commit.old.as_deref().map(|old| SeenObject(old.value())) else {
            if &*commit.user_agent == STRANGER
                && let Some(new) = new
            {
                self.by_hand.replaced.insert(new.uid().to_owned());
            }
            return;
        };
        let keeps_it = new.is_some_and(|new| new.has_finalizer(finalizer));
        let is_by_others = TestedProcess::of_agent(&commit.user_agent).is_none();
        let ByHand { stripped, lost, .. } = &mut self.by_hand;
        if old.has_finalizer(finalizer) && !keeps_it && is_by_others {
            stripped.insert(old.uid().to_owned(), self.now);
        }
        let is_restore = &*commit.user_agent == RESTORE;
        if commit.new.is_none() && (is_restore || stripped.contains_key(old.uid())) {
            lost.insert(old.uid().to_owned(), self.now);
        }
    }

    fn ledger(&mut self, commit: &cloud::LedgerCommit) {
        let id = commit.id().to_string();
        match commit {
            cloud::LedgerCommit::Made { entry } => {
                let instance = InstanceTrack {
                    id: id.clone(),
                    key: entry.key.as_ref().map(|key| key.as_str().to_owned()),
                    name: entry.name.as_str().to_owned(),
                    tags: entry.tags.clone(),
                    created: entry.created,
                    gone_at: None,
                    gone: false,
                };
                self.instances.insert(id, instance);
            }
            cloud::LedgerCommit::Adopted { key, .. } | cloud::LedgerCommit::Rekeyed { key, .. } => {
                self.instances.entry(id).and_modify(|instance| instance.key = Some(key.as_str().to_owned()));
            }
            cloud::LedgerCommit::DeletionBegun { deletion, .. } => {
                self.instances.entry(id).and_modify(|instance| instance.gone_at = Some(deletion.gone_at));
            }
            cloud::LedgerCommit::Gone { .. } => {
                self.instances.entry(id).and_modify(|instance| instance.gone = true);
            }
            cloud::LedgerCommit::Stopped { .. } | cloud::LedgerCommit::Started { .. } => {}
        }
    }

    /// The write that caused a commit: of the writes that have reached their server and are not
    /// answered, the oldest one of that process to that object with a fitting method.
    fn cause(&self, side: Side, commit: &Commit) -> Option<Arc<WriteInFlight>> {
        let process = TestedProcess::of_agent(&commit.user_agent)?;
        let fits = |sent: &&Arc<WriteInFlight>| {
            self.arrived.contains(&sent.number)
                && sent.process == process
                && sent.side == side
                && sent.about.table == *commit.resource
                && sent.about.key() == commit.key.as_str()
                && does(&sent.method, commit)
        };
        self.in_flight.values().find(fits).cloned()
    }
}

/// Our finalizer on the objects of a table that means "something may exist outside".
fn finalizer_of(table: &str) -> Option<&'static str> {
    match table {
        MACHINES => Some(finalizers::MACHINE_CONTROLLER_MANAGER),
        SERVICES => Some(BALANCER_FINALIZER),
        DOCKER_CLUSTERS => Some(DOCKER_CLUSTER_FINALIZER),
        DOCKER_MACHINES => Some(DOCKER_MACHINE_FINALIZER),
        _ => None,
    }
}

/// Whether a request of that method can have caused that commit.
fn does(method: &Method, commit: &Commit) -> bool {
    let is_deleting = |object: &Option<Arc<Object>>| {
        object.as_deref().is_some_and(|object| SeenObject(object.value()).is_deleting())
    };
    match (&commit.old, &commit.new) {
        (None, _) => *method == Method::POST,
        // Deleted: by a DELETE, or by the patch that removed the last finalizer.
        (Some(_), None) => *method == Method::DELETE || is_deleting(&commit.old),
        (Some(_), Some(_)) if !is_deleting(&commit.old) && is_deleting(&commit.new) => {
            *method == Method::DELETE || *method == Method::POST
        }
        (Some(_), Some(_)) => *method == Method::PATCH || *method == Method::PUT,
    }
}

/// The history of one run. A handle: clones share the same history.
#[derive(Clone)]
pub struct RunHistory(Arc<Mutex<Inner>>);

struct Inner {
    clock: SharedClock,
    started: Timestamp,
    feeds: Vec<(Side, Subscription<Arc<Commit>>)>,
    state: RunState,
    invariants: Vec<Box<dyn Invariant>>,
    violations: Vec<Violation>,
    trace: Trace,
    next_write: u64,
}

/// The status of an answer that neither accepts nor rejects a request.
const TOO_MANY_REQUESTS: u16 = 429;
/// The answers by which an API server or a webhook rejects an eviction, other than by a budget.
const REJECTIONS: [u16; 3] = [400, 403, 500];
/// Maximum number of stored violations. More would mostly be consequences of these.
const MAX_VIOLATIONS: usize = 8;

impl RunHistory {
    /// Creates a history that begins now.
    pub fn new(clock: SharedClock, invariants: Vec<Box<dyn Invariant>>) -> Self {
        let now = clock.now();
        Self(Arc::new(Mutex::new(Inner {
            started: now,
            clock,
            feeds: Vec::new(),
            state: RunState::new(now),
            invariants,
            violations: Vec::new(),
            trace: Trace::default(),
            next_write: 0,
        })))
    }

    /// Records the commits of a server from now on.
    pub fn follow(&self, side: Side, commits: Subscription<Arc<Commit>>) {
        self.lock().feeds.push((side, commits));
    }

    /// Records the waiting commits.
    pub fn catch_up(&self) {
        self.lock().catch_up();
    }

    /// Records a commit of the cloud.
    pub fn ledger(&self, commit: &cloud::LedgerCommit) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.state.ledger(commit);
        inner.line(LineKind::Commit, describe(commit), String::new());
        inner.judge(&Event::Ledger(commit));
    }

    /// Records the objects of the stand-in of Hetzner Cloud after a change.
    pub fn hcloud(&self, objects: &machinist_standin_hcloud::State) {
        let mut inner = self.lock();
        inner.catch_up();
        let now = inner.clock.now();
        for change in inner.state.project.take(objects, now) {
            inner.line(LineKind::Commit, change.to_string(), String::new());
            inner.judge(&Event::Hcloud(&change));
        }
    }

    /// Records the changes of the container engine or the mail service. `take` finds them.
    pub fn outside(&self, by: By, take: impl FnOnce(&mut Outside, Timestamp) -> Vec<outside::OutsideChange>) {
        let mut inner = self.lock();
        inner.catch_up();
        let now = inner.clock.now();
        for change in take(&mut inner.state.outside, now) {
            inner.line(LineKind::Commit, format!("{change} by {by}"), String::new());
            inner.judge(&Event::Outside(&change, by));
        }
    }

    /// Records that the stand-in of Hetzner Cloud answered a lookup of a server by id.
    pub fn looked_up(&self, lookup: Lookup) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.line(LineKind::Note, lookup.to_string(), String::new());
        inner.state.project.looked_up(lookup);
    }

    /// Records a request of a process to a stand-in.
    pub fn requested(&self, process: TestedProcess, request: &str) {
        let mut inner = self.lock();
        inner.catch_up();
        let story = format!("{:<10} cloud  {request}", process.to_string());
        inner.line(LineKind::Call, format!("{process} cloud {request}"), story);
    }

    /// Records that a process sent a write. Returns the write for later calls.
    pub fn sent(&self, make: impl FnOnce(u64, Timestamp) -> WriteInFlight) -> Arc<WriteInFlight> {
        let mut inner = self.lock();
        inner.catch_up();
        let number = inner.next_write;
        inner.next_write += 1;
        let sent = Arc::new(make(number, inner.clock.now()));
        inner.state.in_flight.insert(number, sent.clone());
        sent
    }

    /// Records that a write reached its server.
    pub fn arrived(&self, sent: &WriteInFlight) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.state.arrived.insert(sent.number);
        inner.judge(&Event::Arrived(sent));
    }

    /// Records that the server answered a write, even if no process waits for the answer.
    pub fn answered(&self, sent: &WriteInFlight) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.state.in_flight.remove(&sent.number);
        inner.state.arrived.remove(&sent.number);
    }

    /// Records a request of a process to a server.
    pub fn asked(&self, process: TestedProcess, side: Side, ask: &WholeRequest) {
        let hash = if ask.body.is_empty() { 0 } else { crate::seed::fnv(&ask.body) };
        let text = format!("{process} {side} {} {} {hash:016x}", ask.verb(), ask.about);
        self.lock().line(LineKind::Request, text, String::new());
    }

    /// Records that a request found its server away. A write to an object that no longer exists is
    /// left out: the process learns that before it tries again.
    pub fn undelivered(&self, process: TestedProcess, side: Side, ask: &WholeRequest, absence: OutageMode) {
        let is_of_an_object =
            !ask.about.table.starts_with("events") && !ask.about.table.starts_with("leases");
        if ask.is_write() && is_of_an_object {
            let mut inner = self.lock();
            let now = inner.clock.now();
            inner.catch_up();
            let creates = ask.parts.method == Method::POST && !ask.is_eviction();
            let exists = |track: &Track| track.now().is_some();
            if creates || inner.state.track(side, &ask.about.table, &ask.about.key()).is_some_and(exists) {
                inner.state.undelivered.insert(Undelivered::of(process, side, ask), (now, absence));
            }
        }
    }

    /// Records that a request reached its server.
    pub fn delivered(&self, process: TestedProcess, side: Side, ask: &WholeRequest) {
        let mut inner = self.lock();
        if inner.state.undelivered.is_empty() {
            return;
        }
        inner.state.undelivered.remove(&Undelivered::of(process, side, ask));
        // An object that is to be created may have another name now.
        if ask.parts.method == Method::POST && !ask.is_eviction() {
            inner.state.undelivered.retain(|waiting, _| {
                waiting.process != process || waiting.side != side || waiting.table != ask.about.table
            });
        }
    }

    /// Records that a process starts without a memory.
    pub fn reborn(&self, process: TestedProcess) {
        let mut inner = self.lock();
        let now = inner.state.now;
        inner.state.born.insert(process, now);
        inner.state.undelivered.retain(|waiting, _| waiting.process != process);
        for answers in inner.state.pods.values_mut().filter(|_| process == TestedProcess::MachineController) {
            answers.rejected = None;
        }
    }

    /// Records the server's answer to a write, in the line that golden traces show.
    pub fn wrote(&self, process: TestedProcess, ask: &WholeRequest, code: u16) {
        if ask.about.table.starts_with("events") {
            return;
        }
        let outcome = if (200..300).contains(&code) { String::new() } else { format!(" -> {code}") };
        let story = format!("{process:<10} {:<6} {}{outcome}", ask.verb(), ask.about);
        self.lock().line(
            LineKind::Request,
            format!("{process} was answered {code} for {}", ask.about),
            story,
        );
    }

    /// Records that a process received an answer to a request about a pod.
    pub fn heard(&self, ask: &WholeRequest, code: u16) {
        if ask.about.table != PODS || !ask.is_write() {
            return;
        }
        let mut inner = self.lock();
        let now = inner.clock.now();
        let answers = inner.state.pods.entry(ask.about.key()).or_default();
        if ask.is_eviction() {
            answers.eviction = true;
            if REJECTIONS.contains(&code) {
                answers.rejected = Some((answers.rejected.map_or(now, |(first, _)| first), now));
            }
        } else if ask.parts.method == Method::DELETE && code != TOO_MANY_REQUESTS {
            answers.deletion = true;
        }
    }

    /// Records a call of the cloud by a process.
    pub fn called(&self, process: TestedProcess, operation: cloud::Operation, which: &str) {
        let mut inner = self.lock();
        inner.catch_up();
        let text = format!("{process} cloud {operation} {which}");
        inner.line(LineKind::Call, text, format!("{:<10} cloud  {operation} {which}", process.to_string()));
        inner.judge(&Event::Called(operation));
    }

    /// Records that a process got the answer that an instance is initialized.
    pub fn initialized(&self, id: &str) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.state.initialized.insert(id.to_owned());
    }

    /// Records that a cluster was restored.
    pub fn restored(&self) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.state.by_hand.restored = Some(inner.clock.now());
    }

    /// Records a fault, a crash or another change of the run.
    pub fn note(&self, text: impl Into<String>) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.line(LineKind::Note, text.into(), String::new());
    }

    /// Records a step of the scenario, which is also part of the story.
    pub fn step(&self, text: &str) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.line(LineKind::Note, format!("step: {text}"), format!("-- {text}"));
    }

    /// Records a violation that was found outside the invariants' own checks.
    pub fn violate(&self, id: Id, what: impl Into<String>) {
        let mut inner = self.lock();
        inner.catch_up();
        inner.report(vec![(id, what.into())], "the state of the run");
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        let mut inner = self.lock();
        inner.catch_up();
        inner.violations.clone()
    }

    /// Runs a function on the current state.
    pub fn look<T>(&self, look: impl FnOnce(&RunState) -> T) -> T {
        let mut inner = self.lock();
        inner.catch_up();
        inner.state.now = inner.clock.now();
        look(&inner.state)
    }

    /// Runs a function on the trace.
    pub fn trace<T>(&self, look: impl FnOnce(&Trace) -> T) -> T {
        let mut inner = self.lock();
        inner.catch_up();
        look(&inner.trace)
    }

    /// Takes the trace out of the history, at the end of the run.
    pub fn take_trace(&self) -> Trace {
        let mut inner = self.lock();
        inner.catch_up();
        std::mem::take(&mut inner.trace)
    }

    /// Duration of the run so far, in simulated milliseconds.
    pub fn elapsed_ms(&self) -> u64 {
        self.lock().elapsed_ms()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn catch_up(&mut self) {
        let feeds = self.feeds.iter_mut();
        let waiting: Vec<(Side, Vec<Arc<Commit>>)> = feeds
            .map(|(side, feed)| (*side, feed.drain()))
            .filter(|(_, commits)| !commits.is_empty())
            .collect();
        for (side, commits) in waiting {
            for commit in commits {
                self.committed(side, &commit);
            }
        }
    }

    fn committed(&mut self, side: Side, commit: &Commit) {
        let cause = self.state.cause(side, commit);
        self.state.now = self.clock.now();
        self.state.commit(side, commit);
        let what = match (&commit.old, &commit.new) {
            (None, _) => "+",
            (Some(_), Some(_)) => "~",
            (Some(_), None) => "-",
        };
        let Commit { resource, key, revision, user_agent, .. } = commit;
        let text = format!("{side} {what} {resource} {key} @{revision} by {user_agent}");
        self.line(LineKind::Commit, text, String::new());
        self.judge(&Event::Committed { side, commit, cause: cause.as_deref() });
    }

    fn judge(&mut self, event: &Event<'_>) {
        self.state.now = self.clock.now();
        let mut found = Violations::default();
        for invariant in &mut self.invariants {
            invariant.see(&self.state, event, &mut found);
        }
        let found = found.into_inner();
        if !found.is_empty() {
            let at = describe_event(event);
            self.report(found, &at);
        }
    }

    fn report(&mut self, found: Vec<(Id, String)>, at: &str) {
        for (id, what) in found {
            self.line(LineKind::Note, format!("VIOLATION {id}: {what}"), String::new());
            if self.violations.len() < MAX_VIOLATIONS {
                let tail = self.trace.tail();
                self.violations.push(Violation { id, what, at: at.to_owned(), tail });
            }
        }
    }

    fn line(&mut self, kind: LineKind, text: String, story: String) {
        let at_ms = self.elapsed_ms();
        self.trace.add(Line { kind, at_ms, text, story });
    }

    fn elapsed_ms(&self) -> u64 {
        let elapsed = self.clock.now().duration_since(self.started).as_millis();
        u64::try_from(elapsed).unwrap_or(0)
    }
}

fn describe(commit: &cloud::LedgerCommit) -> String {
    let id = commit.id();
    match commit {
        cloud::LedgerCommit::Made { entry } => format!("cloud + {id} {}", entry.name),
        cloud::LedgerCommit::Adopted { key, .. } => format!("cloud ~ {id} adopted for {key}"),
        cloud::LedgerCommit::Rekeyed { key, .. } => format!("cloud ~ {id} rekeyed for {key}"),
        cloud::LedgerCommit::Stopped { .. } => format!("cloud ~ {id} stopped"),
        cloud::LedgerCommit::Started { .. } => format!("cloud ~ {id} started"),
        cloud::LedgerCommit::DeletionBegun { .. } => format!("cloud ~ {id} deletion begun"),
        cloud::LedgerCommit::Gone { .. } => format!("cloud - {id}"),
    }
}

fn describe_event(event: &Event<'_>) -> String {
    match event {
        Event::Committed { side, commit, .. } => {
            format!("commit {} of the {side} server: {} {}", commit.revision, commit.resource, commit.key)
        }
        Event::Ledger(commit) => format!("commit of the ledger: {}", describe(commit)),
        Event::Arrived(sent) => {
            format!("write {}: {} {} {}", sent.number, sent.process, sent.method, sent.about)
        }
        Event::Called(operation) => format!("driver call {operation}"),
        Event::Hcloud(change) => format!("change of the stand-in: {change}"),
        Event::Outside(change, _) => format!("change of the stand-in: {change}"),
    }
}
