//! What is observed of a Machine: the facts of one decision, and the account that its class opens.

use std::sync::Arc;
use std::time::Duration;

use machinist_core::instance::{Listed, Shared};
use machinist_core::{Known, Process};
use machinist_instance::{CreateGuarantee, Credential, Error, KeyTag, Promises, ProviderId};
use machinist_kube::{Entry, ObjectKey, Store};
use machinist_plan::TokenUse;
use machinist_plan::facts::{ClassFacts, MachineFacts, NodeFacts};
use machinist_plan::mcm::machine::{Identity, SecretNeed, Snapshot};
use machinist_runtime::{Account, Opened, fingerprint};

use super::super::contract::{Runtime, World};
use super::super::evidence;
use super::super::object_key;
use super::super::seen::{BY_ID, BY_MACHINE, BY_NAMESPACE, BY_NODE, DELETING, SecretEntry, Seen, YES, merge};
use super::token::token;

/// What is promised by an account that cannot be opened: enough for every cloud we know.
const CAUTIOUS: Promises = Promises {
    visible_within: Duration::from_secs(60),
    call_bound: Duration::from_secs(60),
    create: CreateGuarantee::FindThenCreate,
    rate: None,
    keys: KeyTag::Fixed,
};

/// From so many Machines on that are being deleted, one list is cheaper than a look at each instance: it has a few pages.
const CROWD: usize = 10;

/// All facts for one decision about a Machine.
pub(super) fn snapshot(runtime: &Runtime, world: &World, machine: Arc<MachineFacts>) -> Snapshot {
    let options = runtime.tools.machine();
    let seen = &world.seen;
    let made_from = ClassInputs::of(world, &machine);
    let class = made_from.as_ref().map(|made_from| &made_from.class);
    let node = node_of(seen, &machine);
    let node_name = node.map_or(machine.node_name(), |node| &node.facts.name);
    let is_deleting = machine.deleting_since.is_some();
    let pods = if is_deleting { on_node(&seen.pods, node_name) } else { Vec::new() };
    let attachments = if is_deleting { on_node(&seen.attachments, node_name) } else { Vec::new() };
    let mut namespaces: Vec<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
    namespaces.dedup();
    let budgets = namespaces
        .iter()
        .flat_map(|namespace| seen.budgets.by_index(BY_NAMESPACE, namespace))
        .map(|(_, budget)| budget.facts.clone())
        .collect();
    let mut answers = seen.memory.answers.get(&machine.uid).cloned().unwrap_or_default();
    answers.in_flight = world.asks.of(&machine.uid);
    // Only a Machine without an instance has a use for its class being right.
    let to_be_made = class.filter(|_| machine.provider_id.is_none());
    let class_error = to_be_made.and_then(|class| class_error(runtime, class));
    let identity = identity(runtime, seen, &machine, node.map(|node| &*node.facts));
    let opened = made_from.as_ref().and_then(|made_from| made_from.open(runtime)).and_then(Result::ok);
    let paused = opened.as_ref().and_then(|opened| opened.account.paused_until());
    let process = Process {
        started: runtime.started().unwrap_or_else(|| runtime.now()),
        leading_since: runtime.leading_since(),
        skew: runtime.skew(),
        cloud_skew: opened.as_ref().and_then(|opened| opened.driver.clock_skew()),
        promises: opened.as_ref().map_or(CAUTIOUS, Opened::promises),
    };
    let token = token(seen, &machine);
    let shared = Shared {
        listed: opened.as_ref().and_then(|opened| listed(&opened.account, identity.recorded.ours()?)),
        is_crowd: is_deleting && seen.machines.by_index(DELETING, YES).nth(CROWD - 1).is_some(),
    };
    let asked = evidence::Asked { answers: &answers, token: &token, process: &process };
    let account = opened.map(|opened| opened.account.id().clone());
    let ownership = evidence::ownership(seen, &machine, class.map(|class| &**class), account, &asked);
    Snapshot {
        now: runtime.now(),
        defaults: options.defaults.clone(),
        class: Known::from_store(class.cloned()),
        class_error,
        secrets: made_from.as_ref().map(|made_from| made_from.needs(runtime)).unwrap_or_default(),
        inputs: made_from.as_ref().map_or(0, ClassInputs::fingerprint),
        token_use: TokenUse::Unasked,
        node: Known::from_store(node.map(|node| node.facts.clone())),
        identity,
        pods,
        budgets,
        evictions: seen.memory.evictions.get(&machine.uid).cloned().unwrap_or_default(),
        attachments,
        looks: seen.memory.looks.get(&machine.uid).cloned().unwrap_or_default(),
        node_seen: node.and_then(|node| seen.memory.nodes.get(&node.uid)).cloned().unwrap_or_default(),
        ownership,
        shared,
        cluster: options.cluster.clone(),
        key_holder: evidence::key_holder(seen, &answers),
        paused_until: paused.map(|until| runtime.wall(until)),
        process,
        token,
        answers,
        machine,
    }
}

/// What the last list of an account tells of an instance.
fn listed(account: &Account, id: &ProviderId) -> Option<Listed> {
    let sightings = account.sightings()?;
    let power = sightings.of(id).map(|instance| instance.power);
    Some(Listed { started: sightings.started, ended: sightings.ended, power })
}

/// The Node of a Machine. One whose label names no Node is looked for by what only its own Node has: otherwise a Machine whose label
/// was taken off would go without a drain, and leave its Node behind.
fn node_of<'w>(seen: &'w Seen, machine: &MachineFacts) -> Option<&'w Entry<NodeFacts>> {
    let by_name = || seen.nodes.get(&ObjectKey::cluster_scoped(machine.node_name()));
    if machine.node.is_some() {
        return by_name();
    }
    let recorded = machine.spec.provider_id();
    let by_id = recorded.and_then(|id| seen.nodes.by_index(BY_ID, id).next());
    let by_label = || seen.nodes.by_index(BY_MACHINE, &machine.name).next().filter(|_| recorded.is_some());
    by_id.or_else(by_label).map(|(_, node)| node).or_else(by_name)
}

/// What a store knows of a Node.
fn on_node<F>(store: &Store<F>, name: &str) -> Vec<Arc<F>> {
    store.by_index(BY_NODE, name).map(|(_, entry)| entry.facts.clone()).collect()
}

/// What the provider says is wrong with a class.
fn class_error(runtime: &Runtime, class: &ClassFacts) -> Option<String> {
    let ours = &runtime.tools.machine().provider;
    let named = class.provider.as_deref().unwrap_or_default();
    if !named.is_empty() && !ours.serves(named) {
        return Some(format!("provider: {named:?} is not served here; expected {:?}", ours.name()));
    }
    ours.validate(&class.provider_spec).err().map(|error| error.message)
}

/// What the provider says about the ids of a Machine and its Node, and who else names them.
pub(crate) fn identity(
    runtime: &Runtime,
    seen: &Seen,
    machine: &MachineFacts,
    node: Option<&NodeFacts>,
) -> Identity {
    let provider = &runtime.tools.machine().provider;
    let read = |text: Option<&str>| provider.parse_id(text.unwrap_or_default());
    let (recorded, text) = (machine.spec.provider_id(), node.and_then(NodeFacts::provider_id));
    let (ours, theirs) = (read(recorded), read(text));
    let same_instance = match (ours.ours(), theirs.ours()) {
        (Some(ours), Some(theirs)) => provider.same_instance(ours, theirs),
        // One text is one instance, even where the provider cannot read it.
        _ => recorded.is_some() && recorded == text,
    };
    let named = node.and_then(NodeFacts::machine_name).filter(|name| *name != machine.name);
    let claimed_by = named.filter(|name| seen.machines.get(&object_key(&machine.namespace, name)).is_some());
    let is_older = |other: &MachineFacts| (other.created, &other.uid) < (machine.created, &machine.uid);
    let with_it = recorded.into_iter().flat_map(|id| seen.machines.by_index(BY_ID, id));
    let mut older =
        with_it.filter(|(key, other)| key.namespace == machine.namespace && is_older(&other.facts));
    Identity {
        recorded: ours,
        same_instance,
        claimed_by: claimed_by.map(str::to_owned),
        held_by: older.next().map(|(key, _)| key.name.clone()),
    }
}

/// A class, and the Secrets that it refers to, as far as they are there.
pub(super) struct ClassInputs<'w> {
    /// The class.
    pub class: Arc<ClassFacts>,
    secrets: Vec<Option<&'w Entry<SecretEntry>>>,
}

impl<'w> ClassInputs<'w> {
    /// What a Machine's instance is made from; absent while its class is.
    pub(super) fn of(world: &'w World, machine: &MachineFacts) -> Option<Self> {
        let class = world.seen.class_of(machine)?.facts.clone();
        let entry =
            |(namespace, name): &(String, String)| world.seen.secrets.get(&object_key(namespace, name));
        let secrets = class.secrets.iter().map(entry).collect();
        Some(Self { class, secrets })
    }

    /// The Secrets, as planners see them.
    fn needs(&self, runtime: &Runtime) -> Vec<SecretNeed> {
        let named = self.class.secrets.iter().zip(&self.secrets);
        named
            .map(|((namespace, name), entry)| SecretNeed {
                name: format!("{namespace}/{name}"),
                facts: match *namespace == runtime.options.namespace {
                    true => Known::from_store(entry.map(|entry| entry.facts.facts.clone())),
                    false => Known::Unasked,
                },
            })
            .collect()
    }

    /// Changes when a person mends the class or one of the Secrets.
    fn fingerprint(&self) -> u64 {
        fingerprint(&(self.class.fingerprint, self.versions()))
    }

    fn versions(&self) -> Vec<Option<u64>> {
        self.secrets.iter().map(|entry| entry.map(|entry| entry.resource_version)).collect()
    }

    /// The credential, and what instances boot from; absent while a Secret is.
    pub(super) fn merged(&self) -> Option<(Credential, Vec<u8>)> {
        let entries: Option<Vec<_>> = self.secrets.iter().map(|it| it.map(|it| it.facts.clone())).collect();
        Some(merge(&entries?))
    }

    /// The account, opened with the credential; absent while a Secret is.
    ///
    /// An account that cannot be opened is an error that names what a person has to mend.
    pub(super) fn open(&self, runtime: &Runtime) -> Option<Result<Opened, Error>> {
        if self.secrets.iter().any(Option::is_none) {
            return None;
        }
        let names: Vec<_> =
            self.class.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        let opened_by = names.join("+");
        let version = fingerprint(&self.versions());
        if let Some(opened) = runtime.accounts.opened(&opened_by, version) {
            return Some(Ok(opened));
        }
        let (credential, _) = self.merged()?;
        let options = runtime.tools.machine();
        let opened = runtime.accounts.open(
            &*options.provider,
            options.calls_per_account,
            &opened_by,
            version,
            &credential,
        );
        Some(opened.map_err(|error| {
            let by = match names.as_slice() {
                [] => "which refers to no Secret".to_owned(),
                [one] => format!("by Secret {one}"),
                many => format!("by Secrets {}", many.join(" and ")),
            };
            let message = format!(
                "the account of MachineClass {}, {by}, cannot be opened: {}",
                self.class.name, error.message
            );
            Error::new(error.kind, message)
        }))
    }
}
