//! C1 to C12: the rules of the cloud-controller-manager. The table is in [`crate::invariants`].

use http::Method;
use jiff::SignedDuration;
use machinist_apiserver::Commit;
use serde_json::Value;

use super::project::{FINALIZER, ProjectChange};
use crate::actor::{Side, TestedProcess};
use crate::faults::{LongKind, Profile};
use crate::history::{Event, RunState};
use crate::invariants::{Id, Invariant, Violations};
use crate::sight::{NODES, SERVICES, SeenObject};

/// The annotation by which a Service names its load balancer.
pub(crate) const NAME: &str = "load-balancer.hetzner.cloud/name";
/// The table of Events.
pub(super) const EVENTS: &str = "events";
/// The taint of a Node that is not initialised.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The time between the two lookups that prove an absence: the product's default, less the second
/// by which the clock of the process may drift without counting as a step.
const CONFIRM_PERIOD: SignedDuration = SignedDuration::from_secs(14);

/// All rules that are checked during the run, which has these faults.
pub fn all(profile: &Profile) -> Vec<Box<dyn Invariant>> {
    let hides = |kind: LongKind| match kind {
        LongKind::ServerAway | LongKind::SilentWatch | LongKind::Suspended => true,
        LongKind::CloudAway
        | LongKind::Down
        | LongKind::NoStock
        | LongKind::ZoneOut
        | LongKind::RateLimit
        | LongKind::ForeignMarks
        | LongKind::RefusedEvictions
        | LongKind::LateWrites
        | LongKind::RefusedTargets
        | LongKind::FinalizersOff
        | LongKind::ControlRestored
        | LongKind::TargetRestored
        | LongKind::SecondReplica
        | LongKind::Crowd
        | LongKind::Restarts => false,
    };
    let is_blind = profile.long.iter().any(|fault| hides(fault.kind));
    vec![
        Box::new(BalancerOnlyWithCause { is_blind }),
        Box::new(OneForOneName),
        Box::new(BalancerOfItsService),
        Box::new(FinalizerUntilGone),
        Box::new(NodeOfMissingServer),
        Box::new(TaintLast),
        Box::new(OwnIdentity),
        Box::new(OwnAddresses),
    ]
}

/// C1 and C2: at most one load balancer per Service, and only while the Service has the finalizer.
struct BalancerOfItsService;

impl Invariant for BalancerOfItsService {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Hcloud(ProjectChange::BalancerLabelled { id, service }) = event else { return };
        let twin =
            state.project().balancers().find(|(other, track)| other != id && track.service == *service);
        if let Some((other, _)) = twin.filter(|_| !service.is_empty()) {
            found
                .add(Id::C1, format!("the load balancers {other} and {id} both belong to Service {service}"));
        }
        match state.by_uid(Side::Target, SERVICES, service) {
            // A call may be in flight, or the process may not see yet what another actor has done.
            _ if service.is_empty() || state.stripped_at(service).is_some() => {}
            Some(service) if service.has_finalizer(FINALIZER) => {}
            Some(service) => {
                let name = service.name();
                found.add(
                    Id::C2,
                    format!("load balancer {id} appeared for Service {name}, which has no finalizer"),
                );
            }
            None => {
                found.add(Id::C2, format!("load balancer {id} appeared for {service}, which does not exist"));
            }
        }
    }
}

/// C3: the finalizer is removed, and the Service disappears, only after its load balancer.
struct FinalizerUntilGone;

impl Invariant for FinalizerUntilGone {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((Some(old), new, commit)) = of_table(event, SERVICES) else { return };
        let keeps_it = new.is_some_and(|new| new.has_finalizer(FINALIZER));
        let is_ours = TestedProcess::of_agent(&commit.user_agent).is_some();
        let was_stripped = state.stripped_at(old.uid()).is_some();
        if keeps_it || (was_stripped && !(is_ours && old.has_finalizer(FINALIZER))) {
            return;
        }
        let left = state.project().balancers().find(|(_, track)| track.service == old.uid());
        if let Some((id, _)) = left {
            let name = old.name();
            found.add(Id::C3, format!("Service {name} is released while its load balancer {id} exists"));
        }
    }
}

/// C8: a load balancer is deleted only if its Service is being deleted. A load balancer that lost
/// its Service to another actor stays for a person.
struct BalancerOnlyWithCause {
    /// Whether the process may not see for long what another actor has done.
    is_blind: bool,
}

/// Calls that the process sent before it saw the loss of a Service end within this time.
const LAST_CALLS: SignedDuration = SignedDuration::from_secs(180);

impl Invariant for BalancerOnlyWithCause {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Hcloud(ProjectChange::BalancerGone(id)) = event else { return };
        let Some(track) = state.project().balancer(*id).filter(|track| !track.service.is_empty()) else {
            return;
        };
        match state.by_uid(Side::Target, SERVICES, &track.service) {
            Some(service) if service.is_deleting() || service.text("/spec/type") != "LoadBalancer" => {}
            Some(service) => {
                let name = service.name();
                found.add(Id::C8, format!("load balancer {id} is deleted, and Service {name} wants it"));
            }
            None => {
                let lost = state.lost_at(&track.service).map(|at| state.now.duration_since(at));
                if lost.is_some_and(|age| LAST_CALLS < age) && !self.is_blind {
                    let what =
                        format!("load balancer {id} is deleted, which lost its Service to another actor");
                    found.add(Id::C8, what);
                }
            }
        }
    }
}

/// C12: of several Services that choose one name, one at a time has a load balancer.
struct OneForOneName;

impl Invariant for OneForOneName {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Hcloud(ProjectChange::BalancerLabelled { id, service }) = event else { return };
        let chooses = |uid: &str| {
            let service = state.by_uid(Side::Target, SERVICES, uid)?;
            let name = service.annotation(NAME);
            (!name.is_empty() && !service.is_deleting()).then_some(name)
        };
        let Some(name) = chooses(service) else { return };
        let mut others = state.project().balancers().filter(|(other, _)| other != id);
        if let Some((other, _)) = others.find(|(_, track)| chooses(&track.service) == Some(name)) {
            found.add(
                Id::C12,
                format!(
                    "load balancer {id} appeared, and load balancer {other} is for the same name, {name}"
                ),
            );
        }
    }
}

/// C4: a Node is deleted only if its server does not exist, and the process has proof of that.
struct NodeOfMissingServer;

impl Invariant for NodeOfMissingServer {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Target, commit, cause } = event else { return };
        let process = TestedProcess::of_agent(&commit.user_agent);
        let is_ours = process.is_some();
        let is_deletion = cause.is_none_or(|sent| sent.method == Method::DELETE);
        let Some(node) = deleted_node(commit).filter(|_| is_ours && is_deletion) else { return };
        let (name, id) = (node.name(), node.provider_id());
        let Some(server) = state.project().server(id) else {
            found.add(
                Id::C4,
                format!("Node {name} ({id:?}) is deleted, but belongs to no server that ever existed"),
            );
            return;
        };
        let Some(gone) = server.gone else {
            found.add(Id::C4, format!("Node {name} is deleted, but its server {id} exists"));
            return;
        };
        // The machine controller has its own rules for the evidence (S7).
        if process != Some(TestedProcess::CloudController) {
            return;
        }
        // The row of absences after the last answer that showed the server.
        let row: Vec<_> = state.project().lookups(id).rev().take_while(|lookup| !lookup.is_shown).collect();
        let is_proven = row.iter().any(|last| {
            row.iter().any(|first| {
                let are_apart = CONFIRM_PERIOD <= last.asked.duration_since(first.asked);
                first.life == last.life && gone <= first.answered && are_apart
            })
        });
        if !is_proven {
            let seen: Vec<String> = row.iter().map(ToString::to_string).collect();
            found.add(
                Id::C4,
                format!(
                    "Node {name} is deleted without two absences of {id} in one life, {CONFIRM_PERIOD:#} apart: {seen:?}"
                ),
            );
        }
    }
}

/// C5: the taint is removed last.
struct TaintLast;

impl Invariant for TaintLast {
    fn see(&mut self, _: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((Some(old), Some(new), commit)) = of_table(event, NODES) else { return };
        let is_ours = TestedProcess::of_agent(&commit.user_agent) == Some(TestedProcess::CloudController);
        if !is_ours || !has_taint(old, UNINITIALIZED) || has_taint(new, UNINITIALIZED) {
            return;
        }
        if new.provider_id().is_empty() || external_addresses(new).next().is_none() {
            let (name, id) = (new.name(), new.provider_id());
            let addresses: Vec<&str> = external_addresses(new).collect();
            found.add(
                Id::C5,
                format!("Node {name} loses its taint with provider id {id:?} and addresses {addresses:?}"),
            );
        }
    }
}

/// C6: the provider id is set once, and names the server of the Node.
struct OwnIdentity;

impl Invariant for OwnIdentity {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((old, Some(new), _)) = of_table(event, NODES) else { return };
        let (was, id, name) = (old.map_or("", SeenObject::provider_id), new.provider_id(), new.name());
        if was == id {
            return;
        }
        if !was.is_empty() {
            found.add(Id::C6, format!("the provider id of Node {name} changes from {was} to {id:?}"));
            return;
        }
        // The kubelet reports the id of its machine.
        let machine = new.text("/status/nodeInfo/systemUUID");
        if id != machine {
            found.add(Id::C6, format!("Node {name} of server {machine} gets the provider id {id}"));
        }
        let twin = state
            .objects(Side::Target, NODES)
            .find(|other| other.provider_id() == id && other.uid() != new.uid() && !other.is_deleting());
        if let Some(twin) = twin {
            found.add(Id::C6, format!("Nodes {} and {name} have the same provider id, {id}", twin.name()));
        }
        if state.project().server(id).is_none_or(|server| !server.names.contains(name)) {
            found.add(Id::C6, format!("Node {name} gets the provider id {id} of another server"));
        }
    }
}

/// C7: the addresses of an initialised Node belong to its server.
struct OwnAddresses;

impl Invariant for OwnAddresses {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((_, Some(new), commit)) = of_table(event, NODES) else { return };
        let is_ours = TestedProcess::of_agent(&commit.user_agent) == Some(TestedProcess::CloudController);
        if !is_ours || new.provider_id().is_empty() {
            return;
        }
        let Some(server) = state.project().server(new.provider_id()) else { return };
        for address in external_addresses(new) {
            if !server.addresses.iter().any(|own| is_within(address, own)) {
                let (name, id) = (new.name(), new.provider_id());
                found.add(Id::C7, format!("Node {name} of {id} has the address {address} of another server"));
            }
        }
    }
}

/// Whether an address is this address, or the first of this IPv6 network.
fn is_within(address: &str, own: &str) -> bool {
    let network = own.split_once('/').map(|(network, _)| network);
    address == own || network.is_some_and(|network| address.starts_with(network.trim_end_matches(':')))
}

/// The object before and after a commit of the target server, if it is of that table.
fn of_table<'e>(
    event: &Event<'e>,
    table: &str,
) -> Option<(Option<SeenObject<'e>>, Option<SeenObject<'e>>, &'e Commit)> {
    let Event::Committed { side: Side::Target, commit, .. } = event else { return None };
    if *commit.resource != *table {
        return None;
    }
    let commit: &'e Commit = commit;
    let old = commit.old.as_deref().map(|object| SeenObject(object.value()));
    let new = commit.new.as_deref().map(|object| SeenObject(object.value()));
    Some((old, new, commit))
}

/// The Node that this commit begins to delete, or deletes at once.
fn deleted_node(commit: &Commit) -> Option<SeenObject<'_>> {
    let old = commit.old.as_deref().filter(|_| *commit.resource == *NODES)?;
    let was_deleting = SeenObject(old.value()).is_deleting();
    let is_deleting = commit.new.as_deref().is_none_or(|new| SeenObject(new.value()).is_deleting());
    (!was_deleting && is_deleting).then_some(SeenObject(old.value()))
}

/// Whether a Node has that taint.
pub(crate) fn has_taint(node: SeenObject<'_>, key: &str) -> bool {
    node.list("/spec/taints").iter().any(|taint| taint["key"] == key)
}

/// The addresses of a Node that come from its server.
pub(crate) fn external_addresses<'s>(node: SeenObject<'s>) -> impl Iterator<Item = &'s str> {
    let addresses = node.list("/status/addresses").iter();
    addresses
        .filter(|address| address["type"] == "ExternalIP")
        .filter_map(|address| address.get("address").and_then(Value::as_str))
}
