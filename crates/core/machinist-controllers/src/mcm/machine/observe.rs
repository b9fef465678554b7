//! Collects the facts of one decision about a Machine, and opens the account of its class.

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

/// Assumed promises of an account that cannot be opened: cautious enough for every known cloud.
const CAUTIOUS: Promises = Promises {
    visible_within: Duration::from_secs(60),
    call_bound: Duration::from_secs(60),
    calls_outlive_process: true,
    create: CreateGuarantee::FindThenCreate,
    rate: None,
    keys: KeyTag::Fixed,
};

/// If at least this many Machines are being deleted, one list is cheaper than a lookup per
/// instance: it has only a few pages.
const CROWD: usize = 10;

/// Collects all facts for one decision about a Machine.
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
    // Only a Machine without an instance needs a valid class.
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

/// Returns the entry about an instance from the last list of an account.
fn listed(account: &Account, id: &ProviderId) -> Option<Listed> {
    let sightings = account.sightings()?;
    let power = sightings.of(id).map(|instance| instance.power);
    Some(Listed { started: sightings.started, ended: sightings.ended, power })
}

/// Returns the Node of a Machine. Without a label that names a Node, the Node is looked up by data
/// that only the Machine's own Node has. Otherwise a Machine with a removed label would be deleted
/// without a drain, and its Node would be left behind.
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

/// Returns all objects of a store that are on a Node.
fn on_node<F>(store: &Store<F>, name: &str) -> Vec<Arc<F>> {
    store.by_index(BY_NODE, name).map(|(_, entry)| entry.facts.clone()).collect()
}

/// Returns the provider's error about a class.
fn class_error(runtime: &Runtime, class: &ClassFacts) -> Option<String> {
    let ours = &runtime.tools.machine().provider;
    let named = class.provider.as_deref().unwrap_or_default();
    if !named.is_empty() && !ours.serves(named) {
        return Some(format!(
            "provider: this controller does not manage {named:?}; expected {:?}",
            ours.name()
        ));
    }
    ours.validate(&class.provider_spec).err().map(|error| error.message)
}

/// Compares the provider ids of a Machine and its Node, and finds other Machines with the same id.
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
        // Equal texts identify one instance, even if the provider cannot parse them.
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

/// A class and those of its Secrets that exist.
pub(super) struct ClassInputs<'w> {
    pub class: Arc<ClassFacts>,
    secrets: Vec<Option<&'w Entry<SecretEntry>>>,
}

impl<'w> ClassInputs<'w> {
    /// Returns the inputs of a Machine's instance; `None` if the class does not exist.
    pub(super) fn of(world: &'w World, machine: &MachineFacts) -> Option<Self> {
        let class = world.seen.class_of(machine)?.facts.clone();
        let entry =
            |(namespace, name): &(String, String)| world.seen.secrets.get(&object_key(namespace, name));
        let secrets = class.secrets.iter().map(entry).collect();
        Some(Self { class, secrets })
    }

    /// Returns the Secrets in the form that planners use.
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

    /// Returns a value that changes when a user changes the class or one of the Secrets.
    fn fingerprint(&self) -> u64 {
        fingerprint(&(self.class.fingerprint, self.versions()))
    }

    fn versions(&self) -> Vec<Option<u64>> {
        self.secrets.iter().map(|entry| entry.map(|entry| entry.resource_version)).collect()
    }

    /// Returns the credential and the user data; `None` if a Secret does not exist.
    pub(super) fn merged(&self) -> Option<(Credential, Vec<u8>)> {
        let entries: Option<Vec<_>> = self.secrets.iter().map(|it| it.map(|it| it.facts.clone())).collect();
        Some(merge(&entries?))
    }

    /// Opens the account with the credential; `None` if a Secret does not exist.
    ///
    /// The error of an account that cannot be opened names the Secret that the user has to correct.
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
