//! Everything that a process of the machine API has seen: its stores, and its memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use machinist_instance::Credential;
use machinist_kube::{Entry, ObjectKey, Store, Unreadable};
use machinist_plan::mcm::facts::{
    AttachmentFacts, BudgetFacts, ClaimFacts, ClassFacts, MachineDeploymentFacts, MachineFacts,
    MachineSetFacts, NodeFacts, PodFacts, SecretFacts, TokenFacts, USER_DATA, VolumeFacts,
};
use machinist_plan::mcm::machine_deployment::Owned;
use machinist_plan::mcm::machine_set::would_adopt;

use super::key::Key;
use super::memory::Memory;

/// Index: objects by the UID of their controlling owner, or by [`NO_OWNER`] if they have none;
/// tokens by the UID of their Machine.
pub(crate) const BY_OWNER: &str = "owner";
/// Index: objects by their own UID.
pub(crate) const BY_UID: &str = "uid";
/// Index: Machines, pods and VolumeAttachments by the name of their Node.
pub(crate) const BY_NODE: &str = "node";
/// Index: VolumeAttachments by the name of their PersistentVolume.
pub(crate) const BY_VOLUME: &str = "volume";
/// Index: pods by the claims that they use, `namespace/name`.
pub(crate) const BY_CLAIM: &str = "claim";
/// Index: Machines and Nodes by the end of their `spec.providerID`, if it is set ([`end_of_id`]).
const BY_ID: &str = "id";
/// Index: Nodes by the Machine in their label.
pub(crate) const BY_MACHINE: &str = "machine";
/// Index: Machines by the name of their class.
pub(crate) const BY_CLASS: &str = "class";
/// Index: Machines that are being deleted, under [`YES`].
pub(crate) const DELETING: &str = "deleting";
/// Index: Machines with a Node whose pods may have to be evicted, under [`YES`].
pub(crate) const DRAINED: &str = "drained";
/// Index: Nodes that are being deleted and have our finalizer, under [`YES`].
pub(crate) const HELD: &str = "held";
/// Index: classes by the Secrets they refer to, `namespace/name`.
pub(crate) const BY_SECRET: &str = "secret";
/// Index: budgets by namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";
/// The value in [`BY_OWNER`] of objects without a controlling owner.
pub(crate) const NO_OWNER: &str = "";
/// The single value of indexes with a yes-or-no answer.
pub(crate) const YES: &str = "yes";

/// The stores and the memory of a process.
pub struct Seen {
    pub(crate) machines: Store<MachineFacts>,
    pub(crate) sets: Store<MachineSetFacts>,
    pub(crate) deployments: Store<MachineDeploymentFacts>,
    pub(crate) classes: Store<ClassFacts>,
    pub(crate) secrets: Store<SecretEntry>,
    pub(crate) tokens: Store<TokenEntry>,
    pub(crate) nodes: Store<NodeFacts>,
    pub(crate) pods: Store<PodFacts>,
    pub(crate) budgets: Store<BudgetFacts>,
    pub(crate) attachments: Store<AttachmentFacts>,
    pub(crate) claims: Store<ClaimFacts>,
    pub(crate) volumes: Store<VolumeFacts>,
    pub(crate) memory: Memory,
}

/// A Secret of the control cluster: facts for planners, data for drivers.
///
/// The namespace may have many Secrets. The process keeps the content of each Secret to which a
/// class refers, and forgets the content of the others at their first pass.
pub(crate) struct SecretEntry {
    pub facts: Arc<SecretFacts>,
    /// Absent if it was forgotten.
    data: Mutex<Option<BTreeMap<String, Vec<u8>>>>,
}

impl SecretEntry {
    pub(crate) fn parse(secret: &Secret) -> Self {
        let data = secret.data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
        Self { facts: Arc::new(SecretFacts::parse(secret)), data: Mutex::new(Some(data.collect())) }
    }

    /// Whether the content is known.
    pub(crate) fn has_content(&self) -> bool {
        self.data().is_some()
    }

    /// Forgets the content.
    pub(crate) fn forget_content(&self) {
        *self.data() = None;
    }

    /// Takes over the content of a later read of the same version.
    pub(crate) fn take_content(&self, read: &Self) {
        self.data().clone_from(&read.data());
    }

    fn data(&self) -> MutexGuard<'_, Option<BTreeMap<String, Vec<u8>>>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Merges the data of all Secrets of a class, later ones over earlier ones, and splits it into the
/// credential and the user data.
pub(crate) fn merge(secrets: &[Arc<SecretEntry>]) -> (Credential, Vec<u8>) {
    let mut data = BTreeMap::new();
    for secret in secrets {
        data.extend(secret.data().clone().unwrap_or_default());
    }
    let user_data = data.remove(USER_DATA).unwrap_or_default();
    (Credential::new(data), user_data)
}

/// A bootstrap token: facts for planners, the secret part for user data.
pub(crate) struct TokenEntry {
    pub facts: TokenFacts,
    secret: String,
}

impl TokenEntry {
    pub(crate) fn parse(secret: &Secret) -> Self {
        let part = secret.data.as_ref().and_then(|data| data.get("token-secret"));
        let part = part.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        Self { facts: TokenFacts::parse(secret), secret: part.unwrap_or_default() }
    }

    /// Returns the whole token. Only user data may contain it.
    pub(crate) fn expose(&self) -> String {
        format!("{}.{}", self.facts.id, self.secret)
    }
}

impl fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenEntry({})", self.facts.id)
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            machines: Store::new(&[
                (BY_OWNER, |m: &MachineFacts, keys| {
                    keys.push(m.owner.as_ref().map_or(NO_OWNER, |owner| owner.uid.as_str()).to_owned());
                }),
                (BY_UID, |m, keys| keys.push(m.uid.clone())),
                (BY_NODE, |m, keys| keys.push(m.node_name().to_owned())),
                (BY_CLASS, |m, keys| keys.push(m.spec.class.name().to_owned())),
                (BY_ID, |m, keys| keys.extend(m.spec.provider_id().map(|id| end_of_id(id).to_owned()))),
                (DELETING, |m, keys| keys.extend(m.deleting_since.map(|_| YES.to_owned()))),
                (DRAINED, |m, keys| keys.extend(m.may_be_drained().then(|| YES.to_owned()))),
            ]),
            sets: Store::new(&[
                (BY_OWNER, |s: &MachineSetFacts, keys| {
                    keys.push(s.owner.as_ref().map_or(NO_OWNER, |owner| owner.uid.as_str()).to_owned());
                }),
                (BY_UID, |s, keys| keys.push(s.uid.clone())),
            ]),
            deployments: Store::new(&[(BY_UID, |d: &MachineDeploymentFacts, keys| keys.push(d.uid.clone()))]),
            classes: Store::new(&[(BY_SECRET, |c: &ClassFacts, keys| {
                keys.extend(c.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")));
            })]),
            secrets: Store::new(&[]),
            tokens: Store::new(&[(BY_OWNER, |t: &TokenEntry, keys| {
                keys.extend(t.facts.machine_uid.clone());
            })]),
            nodes: Store::new(&[
                (BY_ID, |n: &NodeFacts, keys| {
                    keys.extend(n.provider_id().map(|id| end_of_id(id).to_owned()))
                }),
                (BY_MACHINE, |n, keys| keys.extend(n.machine_name().map(str::to_owned))),
                (HELD, |n, keys| keys.extend(n.is_held().then(|| YES.to_owned()))),
            ]),
            pods: Store::new(&[
                (BY_NODE, |p: &PodFacts, keys| keys.push(p.node.clone())),
                (BY_CLAIM, |p, keys| keys.extend(p.claims.iter().map(|claim| claim.to_string()))),
            ]),
            budgets: Store::new(&[(BY_NAMESPACE, |b: &BudgetFacts, keys| keys.push(b.namespace.clone()))]),
            attachments: Store::new(&[
                (BY_NODE, |a: &AttachmentFacts, keys| keys.push(a.node.clone())),
                (BY_VOLUME, |a, keys| keys.extend(a.volume.clone())),
            ]),
            claims: Store::new(&[]),
            volumes: Store::new(&[]),
            memory: Memory::default(),
        }
    }
}

impl Seen {
    /// Returns whether a Machine with that UID is known. Nothing is remembered about other
    /// Machines.
    pub(crate) fn has_machine(&self, uid: &str) -> bool {
        self.machines.by_index(BY_UID, uid).next().is_some()
    }

    /// Returns the class of a Machine.
    pub(crate) fn class_of(&self, machine: &MachineFacts) -> Option<&Entry<ClassFacts>> {
        self.classes.get(&ObjectKey::new(&machine.namespace, machine.spec.class.name()))
    }

    /// Returns the Machines that may record an instance. Only the provider can tell, by the ids.
    pub(crate) fn machines_with_id_like<'w>(
        &'w self,
        id: &str,
    ) -> impl Iterator<Item = (&'w ObjectKey, &'w Entry<MachineFacts>)> {
        self.machines.by_index(BY_ID, end_of_id(id))
    }

    /// Returns the Nodes that may be of an instance. Only the provider can tell, by the ids.
    pub(crate) fn nodes_with_id_like<'w>(
        &'w self,
        id: &str,
    ) -> impl Iterator<Item = (&'w ObjectKey, &'w Entry<NodeFacts>)> {
        self.nodes.by_index(BY_ID, end_of_id(id))
    }

    /// Returns the MachineSet that owns a Machine, if that set is known.
    pub(crate) fn set_of(&self, machine: &MachineFacts) -> Option<&Entry<MachineSetFacts>> {
        let owner = machine.owner.as_ref()?;
        self.sets.by_index(BY_UID, &owner.uid).next().map(|(_, set)| set)
    }

    /// Whether no other set of the deployment of a set has Machines.
    pub(crate) fn is_alone(&self, set: &MachineSetFacts) -> bool {
        let Some(deployment) = &set.owner else { return true };
        let sets = self.sets.by_index(BY_OWNER, &deployment.uid).map(|(_, entry)| &entry.facts);
        let has_machines = |other: &MachineSetFacts| {
            0 < other.replicas() || self.machines.by_index(BY_OWNER, &other.uid).next().is_some()
        };
        sets.filter(|other| other.uid != set.uid).all(|other| !has_machines(other))
    }

    /// Returns whether a MachineSet or MachineDeployment with that UID is known.
    pub(crate) fn has_owner(&self, uid: &str) -> bool {
        self.is_owner_deleting(uid).is_some()
    }

    /// Returns whether the MachineSet or MachineDeployment with that UID is being deleted, if it
    /// exists.
    pub(crate) fn is_owner_deleting(&self, uid: &str) -> Option<bool> {
        let sets = self.sets.by_index(BY_UID, uid).map(|(_, set)| set.facts.deleting_since);
        let deployments = self.deployments.by_index(BY_UID, uid).map(|(_, entry)| entry.facts.deleting_since);
        sets.chain(deployments).next().map(|since| since.is_some())
    }

    /// Returns the key under which the replacements of a Machine are counted: the UID of its
    /// MachineDeployment, otherwise of its MachineSet, otherwise its own. No other function
    /// computes this key.
    ///
    /// A Machine without an owner is counted with the set that is about to adopt it. A Machine with
    /// an unknown set has the key of that set for now, and no Machine is marked as Failed under
    /// this key.
    pub(crate) fn replacement_key(&self, machine: &MachineFacts) -> Key {
        Key::Replacement(self.replacement_id(machine).to_owned())
    }

    /// The UID in that key.
    pub(crate) fn replacement_id<'m>(&'m self, machine: &'m MachineFacts) -> &'m str {
        match (&machine.owner, self.replacing_set(machine)) {
            (_, Some(set)) => set.owner.as_ref().map_or(&set.uid, |deployment| &deployment.uid),
            (Some(owner), None) => &owner.uid,
            (None, None) => &machine.uid,
        }
    }

    /// Returns the set that replaces a Machine: its owner, otherwise the first set that selects it.
    fn replacing_set(&self, machine: &MachineFacts) -> Option<&MachineSetFacts> {
        if machine.owner.is_some() {
            return self.set_of(machine).map(|set| set.facts.as_ref());
        }
        let sets = self.sets.iter().filter(|(key, _)| key.namespace == machine.namespace);
        sets.map(|(_, set)| set.facts.as_ref()).find(|set| would_adopt(set, machine))
    }

    /// Returns the name of the MachineSet that owns the Machine, if that set is not known.
    pub(crate) fn unknown_owner<'m>(&self, machine: &'m MachineFacts) -> Option<&'m str> {
        let owner = machine.owner.as_ref().filter(|owner| owner.kind == "MachineSet")?;
        self.replacing_set(machine).is_none().then_some(owner.name.as_str())
    }

    /// Returns the Machines that wait in a drain for a volume, or for the pod of a volume.
    pub(crate) fn machines_awaiting<'w>(&'w self, volume: &'w str) -> impl Iterator<Item = &'w ObjectKey> {
        let waits = self.memory.volume_waits.iter();
        let awaits = waits.filter(|(_, waits)| waits.values().any(|wait| wait.awaits(volume)));
        awaits.flat_map(|(uid, _)| self.machines.by_index(BY_UID, uid)).map(|(key, _)| key)
    }

    /// Returns the Machines that belong to a Node, by name or label.
    pub(crate) fn machines_of_node<'w>(&'w self, name: &'w str) -> impl Iterator<Item = &'w ObjectKey> {
        self.machines.by_index(BY_NODE, name).map(|(key, _)| key)
    }
}

/// Returns the Machines of an owner, in order.
pub(crate) fn machines_owned_by(seen: &Seen, owner_uid: &str) -> Vec<Arc<MachineFacts>> {
    seen.machines.by_index(BY_OWNER, owner_uid).map(|(_, entry)| entry.facts.clone()).collect()
}

/// Whether a set has another number of Machines than replicas, without those that are being
/// deleted.
pub(crate) fn differs_from_its_size(seen: &Seen, set: &MachineSetFacts) -> bool {
    let machines = seen.machines.by_index(BY_OWNER, &set.uid);
    let staying = machines.filter(|(_, machine)| !machine.deleting).count();
    usize::try_from(set.replicas()) != Ok(staying)
}

/// The part of a provider id that all spellings of one instance share: the text after the last
/// slash. One spelling has the region before it, another the zone, and a third neither.
fn end_of_id(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// Returns the objects of a store that cannot be parsed, and of which no older version is known.
pub(crate) fn unknown<F>(store: &Store<F>) -> impl Iterator<Item = (&ObjectKey, &Unreadable)> {
    store.unreadable().filter(|(key, _)| store.get(key).is_none())
}

/// Returns the names of the [`unknown`] objects of an owner.
pub(crate) fn unknown_owned_by<F>(store: &Store<F>, owner_uid: &str) -> Vec<String> {
    let owned = unknown(store).filter(|(_, object)| object.controller.as_deref() == Some(owner_uid));
    owned.map(|(key, _)| key.name.clone()).collect()
}

/// Returns the Machines of a namespace without a controlling owner, in order.
pub(crate) fn machines_without_owner(seen: &Seen, namespace: &str) -> Vec<Arc<MachineFacts>> {
    let free = seen.machines.by_index(BY_OWNER, NO_OWNER).filter(|(key, _)| key.namespace == namespace);
    free.map(|(_, entry)| entry.facts.clone()).collect()
}

/// Returns the sets of a deployment, oldest first, each with its Machines.
pub(crate) fn sets_owned_by(seen: &Seen, deployment_uid: &str) -> Vec<Owned> {
    let owned = |set: &Arc<MachineSetFacts>| Owned {
        set: set.clone(),
        machines: machines_owned_by(seen, &set.uid),
        unreadable: u32::try_from(unknown_owned_by(&seen.machines, &set.uid).len()).unwrap_or(u32::MAX),
    };
    let mut sets: Vec<Owned> =
        seen.sets.by_index(BY_OWNER, deployment_uid).map(|(_, entry)| owned(&entry.facts)).collect();
    sets.sort_by(|a, b| (a.set.created, &a.set.name).cmp(&(b.set.created, &b.set.name)));
    sets
}

#[test]
fn a_forgotten_secret_has_no_content_until_it_is_read_again() {
    let secret =
        serde_json::json!({"metadata": {"name": "s"}, "data": {"userData": "aGVsbG8=", "token": "eA=="}});
    let parse = || SecretEntry::parse(&serde_json::from_value(secret.clone()).expect("a Secret"));
    let entry = Arc::new(parse());
    assert_eq!(merge(std::slice::from_ref(&entry)).1, b"hello");
    entry.forget_content();
    assert!(!entry.has_content());
    assert!(merge(std::slice::from_ref(&entry)).1.is_empty());
    entry.take_content(&parse());
    assert!(entry.has_content());
    assert_eq!(merge(&[entry]).1, b"hello");
}
