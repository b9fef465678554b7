//! Collects the facts of one decision about a Machine, and opens the account of its class.

use std::sync::Arc;
use std::time::Duration;

use machinist_api::Phase;
use machinist_core::instance::{Listed, Shared};
use machinist_core::reverted::{Fix, is_reverted};
use machinist_core::{Answers, Call, Known};
use machinist_driver::Provider;
use machinist_instance::{Credential, Error, KeyScope, Place, ProviderId};
use machinist_kube::{Cluster, Entry, ObjectKey, Store};
use machinist_plan::mcm::drain::{Eviction, NodeVolumes};
use machinist_plan::mcm::facts::{
    ClassFacts, CreationIntent, JOINED_AS, MachineFacts, NodeFacts, NodeMarks, PodFacts,
};
use machinist_plan::mcm::machine::{
    KeyScopeFacts, MachineIdentity, OtherNode, PlaceFacts, SecretNeed, Snapshot, owner,
};
use machinist_plan::mcm::{Reads, TargetSilence, TokenUse, node_choice};
use machinist_runtime::{Account, Opened, fingerprint};
use serde_json::Value;
use tokio::time::Instant;

use super::token::token;
use super::volumes::{OnNodes, volumes};
use crate::mcm::account_proof;
use crate::mcm::contract::{Runtime, World};
use crate::mcm::key::Key;
use crate::mcm::reference::object_key;
use crate::mcm::seen::{BY_MACHINE, BY_NAMESPACE, BY_NODE, DELETING, SecretEntry, Seen, YES, merge};
use crate::mcm::server_freeze::frozen_by_server;

/// If at least this many Machines are being deleted, one list is cheaper than a lookup per
/// instance: it has only a few pages.
const CROWD: usize = 10;

/// Collects all facts for one decision about a Machine.
pub(super) fn snapshot(runtime: &Runtime, world: &World, machine: Arc<MachineFacts>) -> Snapshot {
    let options = runtime.tools.machine();
    let seen = &world.seen;
    let made_from = ClassInputs::of(world, &machine);
    let class = made_from.as_ref().map(|made_from| &made_from.class);
    let node = node_of(runtime, seen, &machine);
    let node_name = node.map_or(machine.node_name(), |node| &node.facts.name);
    let is_deleting = machine.deleting_since.is_some();
    let may_be_drained = machine.may_be_drained();
    let pods = if may_be_drained { on_node(&seen.pods, node_name) } else { Vec::new() };
    let others = node.map_or_else(Vec::new, |node| other_nodes(runtime, seen, &machine, node));
    let names = [node_name].into_iter().chain(others.iter().map(|other| other.node.name.as_str()));
    let attached = names.filter(|_| may_be_drained).flat_map(|name| on_node(&seen.attachments, name));
    let attachments: Vec<_> = attached.collect();
    let mut namespaces: Vec<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
    namespaces.dedup();
    let budgets = namespaces
        .iter()
        .flat_map(|namespace| seen.budgets.by_index(BY_NAMESPACE, namespace))
        .map(|(_, budget)| budget.facts.clone())
        .collect();
    let mut answers = *seen.memory.answers.get(&machine.uid).cloned().unwrap_or_default();
    answers.in_flight = world.asks.of(&machine.uid);
    answers.queued = world.queued.of(&machine.uid);
    // Only a Machine without an instance needs a valid class.
    let to_be_made = class.filter(|_| machine.provider_id.is_none());
    let class_error = to_be_made.and_then(|class| class_error(runtime, class));
    let identity = identity(runtime, seen, &machine, node.map(|node| &*node.facts));
    let token = token(seen, &machine);
    let intent = token.last_intent(&machine);
    let place = place(runtime, &machine, class.map(|class| &**class), &intent, &answers);
    let provider = provider_of(runtime, class.map(|class| &**class), &machine);
    let key_scope = KeyScopeFacts {
        called: answers.called_within.clone(),
        intended: intent.key_scope.clone(),
        of_class: to_be_made
            .filter(|class| serves(runtime, &**provider, class))
            .map_or(KeyScope::WHOLE, |class| provider.key_scope(&class.provider_spec)),
    };
    let opened = made_from.as_ref().and_then(|made_from| made_from.open(runtime, provider, place.place()));
    let opened = opened.and_then(Result::ok);
    let paused = opened.as_ref().and_then(|opened| opened.account.paused_until());
    let waited = waited(runtime, world, &machine, &answers, opened.as_ref());
    let process = runtime.process_facts(opened.as_ref());
    let shared = Shared {
        listed: opened.as_ref().and_then(|opened| listed(&opened.account, identity.recorded.ours()?)),
        is_crowd: is_deleting && seen.machines.by_index(DELETING, YES).nth(CROWD - 1).is_some(),
    };
    let asked = account_proof::Asked { answers: &answers, intent: &intent, process: &process };
    let needs_initialization = class.is_some_and(|class| provider.needs_initialization(&class.provider_spec));
    let observes_boot = opened.as_ref().is_some_and(|opened| opened.driver.bootstrap().is_some());
    let volumes = if may_be_drained {
        let names = [node_name].into_iter().chain(others.iter().map(|other| other.node.name.as_str()));
        let on_nodes = OnNodes {
            names: names.collect(),
            pods: pods.iter().chain(others.iter().flat_map(|other| &other.pods)).collect(),
            attachments: &attachments,
        };
        let driver = opened.as_ref().and_then(|opened| opened.driver.volumes());
        volumes(seen, &machine, &on_nodes, driver)
    } else {
        NodeVolumes::default()
    };
    let account = opened.map(|opened| opened.account.id().clone());
    let where_made = account_proof::Origin { class: class.map(|class| &**class), place: place.place() };
    let providers = &options.providers;
    let ownership = account_proof::ownership(seen, providers, &machine, &where_made, account, &asked);
    Snapshot {
        now: runtime.now(),
        gaps: runtime.unseen(),
        nodes_freshness: runtime.freshness::<NodeFacts>(world),
        pods_freshness: runtime.freshness::<PodFacts>(world),
        frozen: frozen_by_server(runtime, world),
        defaults: options.defaults.clone(),
        target: options.target,
        node_marks: node_marks(seen, &machine),
        class: Known::from_store(class.cloned()),
        class_error,
        secrets: made_from.as_ref().map(|made_from| made_from.needs(runtime)).unwrap_or_default(),
        inputs: made_from.as_ref().map_or(0, |made_from| made_from.fingerprint(&machine)),
        token_use: TokenUse::Unasked,
        node: match node {
            None if options.nodes_may_be_elsewhere && has_no_node(runtime, seen) => Known::Unasked,
            node => Known::from_store(node.map(|node| node.facts.clone())),
        },
        other_nodes: others,
        identity,
        pods,
        budgets,
        evictions: seen.memory.evictions.get(&machine.uid).cloned().unwrap_or_default(),
        attachments,
        volumes,
        reads: reads(runtime, seen, &machine),
        node_seen: node.and_then(|node| seen.memory.nodes.get(&node.uid)).cloned().unwrap_or_default(),
        ownership,
        place,
        key_scope,
        shared,
        cluster: options.cluster.clone(),
        key_holder: account_proof::key_holder(seen, &answers),
        unkeyed: account_proof::unkeyed(seen, &**provider, &machine, class.map(|class| &**class), &answers),
        waited,
        observes_boot,
        needs_initialization,
        paused_until: paused.map(|until| runtime.wall(until)),
        process,
        token,
        answers,
        machine,
    }
}

/// Returns what names the place of the instance.
fn place(
    runtime: &Runtime,
    machine: &MachineFacts,
    class: Option<&ClassFacts>,
    intent: &CreationIntent,
    answers: &Answers,
) -> PlaceFacts {
    let provider = provider_of(runtime, class, machine);
    let of_class = match class.filter(|class| serves(runtime, &**provider, class)) {
        Some(class) => provider.place(&class.provider_spec).ok(),
        // The class is one of another cloud now. A cloud with a single place needs no class.
        None => provider.place(&Value::Null).ok().filter(|place| *place == Place::WHOLE),
    };
    if is_reverted(Fix::PlacesAreRecorded) {
        return PlaceFacts { of_class, ..PlaceFacts::default() };
    }
    let recorded = provider.parse_id(machine.spec.provider_id().unwrap_or_default());
    // The intended call may have had no effect, for example because its place does not exist.
    let knows_no_call = || answers.knows_no_creation(&runtime.process_facts(None), machine.created);
    let intended = intent.place.clone().filter(|_| !knows_no_call());
    PlaceFacts {
        of_id: recorded.ours().and_then(|id| provider.place_of(id)),
        recorded: machine.place(),
        called: answers.called_in.clone(),
        intended,
        of_class,
    }
}

/// Returns how long the creation of an instance has waited in the queue of its account, and how
/// long the account was paused since the process wanted the instance.
fn waited(
    runtime: &Runtime,
    world: &World,
    machine: &MachineFacts,
    answers: &Answers,
    opened: Option<&Opened>,
) -> Duration {
    let queued = answers.waited + world.queued.waits_for(&machine.uid, Call::ENSURE);
    let wanted = answers.wanted_since.unwrap_or(machine.created);
    let ago = Duration::try_from(runtime.now().duration_since(wanted)).unwrap_or_default();
    let paused = |opened: &Opened| {
        let wanted = Instant::now().checked_sub(ago);
        wanted.map_or(Duration::ZERO, |wanted| opened.account.paused_since(wanted))
    };
    queued + opened.map_or(Duration::ZERO, paused)
}

/// Returns the reads from the API server. A Machine that waits for its Node makes none, so the
/// silence of its API server is the silence of the watches. If the stores of the target cluster
/// were never filled, its API server counts as silent since this process could read them.
fn reads(runtime: &Runtime, seen: &Seen, machine: &MachineFacts) -> Reads {
    let mut reads = seen.memory.reads.get(&machine.uid).cloned().unwrap_or_default();
    let now = runtime.now();
    reads.silence = reads.silence.filter(|silence| silence.is_known_at(now));
    if machine.status.phase == Phase::Pending && reads.silence.is_none() {
        let silent = runtime.told_silence(&Cluster::Target);
        reads.silence = silent.map(|server| TargetSilence {
            since: server.since,
            last: now,
            error: server.error().to_owned(),
            is_blind: false,
        });
    }
    let key = Key::Machine(ObjectKey::new(&machine.namespace, &machine.name));
    if !runtime.is_synced_for(seen, &key) {
        let since = runtime.control_listed_at().unwrap_or_else(|| runtime.now());
        let error = "this process has never listed its objects".to_owned();
        reads.silence = Some(TargetSilence { since, last: now, error, is_blind: true });
    }
    reads
}

/// Returns the entry about an instance from the last list of an account.
fn listed(account: &Account, id: &ProviderId) -> Option<Listed> {
    let sightings = account.sightings()?;
    let power = sightings.of(id).map(|instance| instance.power);
    Some(Listed { started: sightings.started, ended: sightings.ended, power })
}

/// Returns the Node of a Machine.
pub(crate) fn node_of<'w>(
    runtime: &Runtime,
    seen: &'w Seen,
    machine: &MachineFacts,
) -> Option<&'w Entry<NodeFacts>> {
    let named = seen.nodes.get(&ObjectKey::cluster_scoped(machine.node_name()));
    let Some(recorded) = machine.spec.provider_id() else { return named };
    let is_own = |node: &NodeFacts| is_same_instance(runtime, Some(recorded), node.provider_id());
    let own = nodes_of_instance(runtime, seen, machine).into_iter().next();
    let labelled = seen.nodes.by_index(BY_MACHINE, &machine.name).map(|(_, node)| node);
    node_choice::choose(machine, is_own, own, labelled, named)
}

/// Returns the Nodes of the recorded instance, the best one first.
fn nodes_of_instance<'w>(
    runtime: &Runtime,
    seen: &'w Seen,
    machine: &MachineFacts,
) -> Vec<&'w Entry<NodeFacts>> {
    let Some(recorded) = machine.spec.provider_id() else { return Vec::new() };
    let named = seen.nodes.get(&ObjectKey::cluster_scoped(machine.node_name()));
    let is_own =
        |node: &&Entry<NodeFacts>| is_same_instance(runtime, Some(recorded), node.facts.provider_id());
    let mut nodes: Vec<_> = seen.nodes_with_id_like(recorded).map(|(_, node)| node).filter(is_own).collect();
    let is_listed = |named: &&Entry<NodeFacts>| nodes.iter().any(|node| node.uid == named.uid);
    let other = named.filter(is_own).filter(|named| !is_listed(named));
    nodes.extend(other);
    let evictions = seen.memory.evictions.get(&machine.uid);
    let is_answered = |pod: &PodFacts| {
        evictions.and_then(|evictions| evictions.get(&pod.uid)).is_some_and(Eviction::is_answered_deletion)
    };
    node_choice::best_first(machine, &mut nodes, |node| {
        let mut pods = seen.pods.by_index(BY_NODE, &node.name).map(|(_, pod)| &pod.facts);
        pods.any(|pod| pod.leaves_in_a_drain() && !is_answered(pod))
    });
    nodes
}

/// Returns the Nodes of the recorded instance besides the Node of the Machine.
pub(crate) fn other_nodes(
    runtime: &Runtime,
    seen: &Seen,
    machine: &MachineFacts,
    own: &Entry<NodeFacts>,
) -> Vec<OtherNode> {
    let others = nodes_of_instance(runtime, seen, machine).into_iter().filter(|node| node.uid != own.uid);
    let is_deleting = machine.deleting_since.is_some();
    let other = |node: &Entry<NodeFacts>| OtherNode {
        node: node.facts.clone(),
        cordoned: seen.memory.nodes.get(&node.uid).and_then(|node| node.cordoned),
        pods: if is_deleting { on_node(&seen.pods, &node.facts.name) } else { Vec::new() },
    };
    others.map(other).collect()
}

/// Returns whether a Node is of the instance of a Machine, and another Node counts as its Node. A
/// Machine that is being deleted keeps all its Nodes until the end.
pub(crate) fn has_better_node(
    runtime: &Runtime,
    seen: &Seen,
    machine: &MachineFacts,
    node: &NodeFacts,
) -> bool {
    let nodes = nodes_of_instance(runtime, seen, machine);
    let place = nodes.iter().position(|entry| entry.uid == node.uid);
    machine.deleting_since.is_none() && place.is_some_and(|place| 0 < place)
}

/// Returns whether the cluster has the Node of no Machine, so that the Nodes may be in another one.
fn has_no_node(runtime: &Runtime, seen: &Seen) -> bool {
    !seen.machines.iter().any(|(_, machine)| node_of(runtime, seen, &machine.facts).is_some())
}

/// Returns all objects of a store that are on a Node.
fn on_node<F>(store: &Store<F>, name: &str) -> Vec<Arc<F>> {
    store.by_index(BY_NODE, name).map(|(_, entry)| entry.facts.clone()).collect()
}

/// Returns the provider's error about a class.
pub(crate) fn class_error(runtime: &Runtime, class: &ClassFacts) -> Option<String> {
    let providers = &runtime.tools.machine().providers;
    let named = class.provider.as_deref().unwrap_or_default();
    let Some(provider) = providers.serving(named) else {
        let several = if providers.only().is_none() { "one of " } else { "" };
        return Some(format!(
            "provider: this controller does not manage {named:?}; expected {several}{}",
            providers.names()
        ));
    };
    provider.validate(&class.provider_spec).err().map(|error| error.message)
}

/// The provider of the instance of a Machine.
pub(super) fn provider_of<'r>(
    runtime: &'r Runtime,
    class: Option<&ClassFacts>,
    machine: &MachineFacts,
) -> &'r Arc<dyn Provider> {
    let named = class.and_then(|class| class.provider.as_deref());
    runtime.tools.machine().providers.of(named, machine.spec.provider_id())
}

/// Whether the provider reads the provider spec of a class. The class of an instance may have been
/// edited to one of another cloud.
fn serves(runtime: &Runtime, provider: &dyn Provider, class: &ClassFacts) -> bool {
    runtime.tools.machine().providers.of_class(class.provider.as_deref()).name() == provider.name()
}

/// Returns what the set of a Machine asks for its Node. For a Machine without a set, what a rollout
/// left on its Node is removed.
fn node_marks(seen: &Seen, machine: &MachineFacts) -> Option<NodeMarks> {
    if machine.owner.is_none() {
        return Some(NodeMarks { is_protected: Some(false), ..NodeMarks::default() });
    }
    seen.set_of(machine).map(|set| set.facts.node_marks(seen.is_alone(&set.facts)))
}

/// Compares the provider ids of a Machine and its Node, and finds other Machines with the same id.
pub(crate) fn identity(
    runtime: &Runtime,
    seen: &Seen,
    machine: &MachineFacts,
    node: Option<&NodeFacts>,
) -> MachineIdentity {
    let providers = &runtime.tools.machine().providers;
    let class = seen.class_of(machine).map(|class| &*class.facts);
    let (recorded, text) = (machine.spec.provider_id(), node.and_then(NodeFacts::provider_id));
    let same_instance = is_same_instance(runtime, recorded, text);
    let named = node.and_then(NodeFacts::machine_name).filter(|name| *name != machine.name);
    let claimed_by = named.filter(|name| seen.machines.get(&object_key(&machine.namespace, name)).is_some());
    let (held_by, shared_with) = sharing(runtime, seen, machine);
    let joined_as = node.and_then(|node| node.annotation(JOINED_AS));
    let joined_as = joined_as.filter(|id| !is_same_instance(runtime, recorded, Some(id)));
    MachineIdentity {
        recorded: provider_of(runtime, class, machine).parse_id(recorded.unwrap_or_default()),
        same_instance,
        node_id_is_read: providers.is_read(text.unwrap_or_default()),
        recorded_by: others_recording(runtime, seen, machine, text).next().map(|other| other.name.clone()),
        claimed_by: claimed_by.map(str::to_owned),
        held_by,
        shared_with,
        joined_as: joined_as.map(str::to_owned),
    }
}

/// Returns the other Machine that owns the recorded instance, and another Machine that shares the
/// instance if a Machine counts as the owner by its age alone.
fn sharing(runtime: &Runtime, seen: &Seen, machine: &MachineFacts) -> (Option<String>, Option<String>) {
    let others: Vec<_> = others_recording(runtime, seen, machine, machine.spec.provider_id()).collect();
    let Some(other) = others.first() else { return (None, None) };
    let nodes: Vec<_> =
        nodes_of_instance(runtime, seen, machine).into_iter().map(|node| &*node.facts).collect();
    match owner(others.iter().copied().chain([machine]), &nodes) {
        Some(owner) if owner.machine.uid != machine.uid => (Some(owner.machine.name.clone()), None),
        Some(owner) if !owner.is_shown => (None, Some(other.name.clone())),
        Some(_) | None => (None, None),
    }
}

/// Returns the other Machines of the namespace that record the instance with this id.
fn others_recording<'w>(
    runtime: &Runtime,
    seen: &'w Seen,
    machine: &MachineFacts,
    id: Option<&str>,
) -> impl Iterator<Item = &'w MachineFacts> {
    let like_it = id.into_iter().flat_map(|id| seen.machines_with_id_like(id)).map(|(_, one)| &*one.facts);
    like_it.filter(move |one| {
        let is_other = one.namespace == machine.namespace && one.uid != machine.uid;
        is_other && is_same_instance(runtime, one.spec.provider_id(), id)
    })
}

/// Returns whether the provider id of a Node names the instance that a Machine records.
fn is_same_instance(runtime: &Runtime, recorded: Option<&str>, of_node: Option<&str>) -> bool {
    let (Some(recorded), Some(of_node)) = (recorded, of_node) else { return false };
    let same = runtime.tools.machine().providers.same_instance(recorded, of_node);
    // Equal texts identify one instance, even if no provider can parse them.
    same.unwrap_or(recorded == of_node)
}

/// A class and its existing Secrets.
pub(crate) struct ClassInputs<'w> {
    pub class: Arc<ClassFacts>,
    secrets: Vec<Option<&'w Entry<SecretEntry>>>,
}

impl<'w> ClassInputs<'w> {
    /// Returns the inputs of a Machine's instance; `None` if the class does not exist.
    pub(super) fn of(world: &'w World, machine: &MachineFacts) -> Option<Self> {
        Self::of_class(world, &object_key(&machine.namespace, machine.spec.class.name()))
    }

    /// Returns the inputs of the instances of a class; `None` if the class does not exist.
    pub(crate) fn of_class(world: &'w World, class: &ObjectKey) -> Option<Self> {
        let class = world.seen.classes.get(class)?.facts.clone();
        let entry =
            |(namespace, name): &(String, String)| world.seen.secrets.get(&object_key(namespace, name));
        let secrets = class.secrets.iter().map(entry).collect();
        Some(Self { class, secrets })
    }

    /// Whether the content of a Secret was forgotten and is being read again.
    pub(crate) fn lacks_content(&self) -> bool {
        self.secrets.iter().flatten().any(|secret| !secret.facts.has_content())
    }

    /// Returns the Secrets in the form that planners use.
    fn needs(&self, runtime: &Runtime) -> Vec<SecretNeed> {
        let named = self.class.secrets.iter().zip(&self.secrets);
        named
            .map(|((namespace, name), entry)| SecretNeed {
                name: format!("{namespace}/{name}"),
                facts: if *namespace == runtime.options.namespace {
                    Known::from_store(entry.map(|entry| entry.facts.facts.clone()))
                } else {
                    Known::Unasked
                },
            })
            .collect()
    }

    /// Returns a value that changes when a user changes the class, one of the Secrets, or the
    /// annotations of the Machine's node template.
    fn fingerprint(&self, machine: &MachineFacts) -> u64 {
        let annotations = &machine.spec.node_template.metadata.annotations;
        fingerprint(&(self.class.fingerprint, self.versions(), annotations))
    }

    fn versions(&self) -> Vec<Option<u64>> {
        self.secrets.iter().map(|entry| entry.map(|entry| entry.resource_version)).collect()
    }

    /// Returns the credential and the user data; `None` if a Secret does not exist.
    pub(super) fn merged(&self) -> Option<(Credential, Vec<u8>)> {
        let entries: Option<Vec<_>> =
            self.secrets.iter().map(|entry| entry.map(|entry| entry.facts.clone())).collect();
        Some(merge(&entries?))
    }

    /// Opens the account of a provider with the credential in a place; `None` if a Secret does not
    /// exist, or if the place is not known.
    ///
    /// The error of an account that cannot be opened names the Secret that the user has to correct.
    pub(crate) fn open(
        &self,
        runtime: &Runtime,
        provider: &Arc<dyn Provider>,
        place: Option<&Place>,
    ) -> Option<Result<Opened, Error>> {
        let place = place?;
        if self.secrets.iter().any(Option::is_none) {
            return None;
        }
        let names: Vec<_> =
            self.class.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        let opened_by = names.join("+");
        let version = fingerprint(&self.versions());
        if let Some(opened) = runtime.accounts.opened(&**provider, &opened_by, place, version) {
            return Some(Ok(opened));
        }
        let (credential, _) = self.merged()?;
        let options = runtime.tools.machine();
        let opened = runtime.accounts.open(
            provider,
            options.calls_per_account,
            &opened_by,
            version,
            (&credential, place),
        );
        Some(opened.map_err(|error| {
            let by = match names.as_slice() {
                [] => "without a Secret".to_owned(),
                [one] => format!("with Secret {one}"),
                many => format!("with Secrets {}", many.join(" and ")),
            };
            let message = format!(
                "cannot open the account of MachineClass {} {by}: {}",
                self.class.name, error.message
            );
            Error::new(error.kind, message)
        }))
    }
}
