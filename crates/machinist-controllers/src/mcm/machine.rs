//! Machine: what is observed of it, and how its actions are performed. The rules are in `machinist_plan::mcm::machine`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use machinist_api::MachinePriority;
use machinist_api::constants::{annotations, conditions, finalizers, labels};
use machinist_core::ownership::List;
use machinist_instance::{CreateGuarantee, Error, InstanceSpec, KeyTag, Promises};
use machinist_kube::recorder::EventType;
use machinist_kube::store::RelistPart;
use machinist_kube::{Delta, GuardedPatch, ObjectKey, list_once, outcome};
use machinist_plan::drain::{self, Eviction, EvictionOutcome};
use machinist_plan::facts::{
    ACCOUNT, AttachmentFacts, MachineFacts, NodeFacts, PodFacts, ReadPhase, StatusFacts, TOKEN_NAMESPACE,
    TOKEN_OWNER, TOKEN_TYPE, Token, TokenFacts, token_description,
};
use machinist_plan::mcm::machine::{Action, Identity, NodeSync, SecretNeed, Severity, Snapshot, StatusWrite};
use serde_json::{Value, json};

use super::contract::{Mcm, Runtime, World, Write};
use super::evidence;
use super::key::Key;
use super::object_key;
use super::seen::{BY_NAMESPACE, BY_NODE, SecretEntry, Seen, TokenEntry, merge};
use machinist_core::{Attempts, Known, Process};
use machinist_plan::{LeaseLook, Looks, NodeLook, Plan, PodList, Renewal, TokenUse};
use machinist_runtime::{Kind, Observed, Opened, Stop, Versions, refresh, take_in};

/// Where kubelets renew their Leases.
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Characters of the secret part of a bootstrap token.
const TOKEN_SECRET_LENGTH: usize = 16;
/// What is promised by an account that cannot be opened: enough for every cloud we know.
const CAUTIOUS: Promises = Promises {
    visible_within: Duration::from_secs(60),
    call_bound: Duration::from_secs(60),
    create: CreateGuarantee::FindThenCreate,
    rate: None,
    keys: KeyTag::Fixed,
};

mod instance;
mod user_data;
mod witness;

/// Machines, as the loop knows them.
pub(crate) struct Machines;

impl Kind<Mcm> for Machines {
    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let Some(machine) = world.seen.machines.get(id) else { return Observed::Gone };
        let mut versions = Versions::new();
        versions.add(machine.resource_version);
        let snapshot = snapshot(runtime, world, machine.facts.clone(), &mut versions);
        Observed::Ready(snapshot, versions.done())
    }

    fn plan(runtime: &Runtime, snapshot: &Snapshot) -> Plan<Action> {
        (runtime.tools.planners.machine)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        perform(runtime, s, action).await
    }

    fn is_independent(action: &Action) -> bool {
        matches!(action, Action::Drain(_) | Action::DeleteAttachment(_))
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference(&s.machine))
    }
}

fn snapshot(
    runtime: &Runtime,
    world: &World,
    machine: Arc<MachineFacts>,
    versions: &mut Versions,
) -> Snapshot {
    let options = runtime.tools.machine();
    let class_key = object_key(&machine.namespace, machine.spec.class.name());
    let class = world.seen.classes.get(&class_key);
    let mut inputs = Versions::new();
    let mut secrets = Vec::new();
    if let Some(class) = class {
        versions.add(class.resource_version);
        inputs.add(class.facts.fingerprint);
        for (namespace, name) in &class.facts.secrets {
            let entry = world.seen.secrets.get(&object_key(namespace, name));
            let version = entry.map_or(0, |entry| entry.resource_version);
            inputs.add(version);
            let facts = match *namespace == runtime.options.namespace {
                true => Known::from_store(entry.map(|entry| entry.facts.facts.clone())),
                false => Known::Unasked,
            };
            secrets.push(SecretNeed { name: format!("{namespace}/{name}"), facts });
        }
    }
    let inputs = inputs.done();
    versions.add(inputs);
    let node = world.seen.nodes.get(&ObjectKey::cluster_scoped(machine.node_name()));
    versions.add(node.map_or(0, |node| node.resource_version));
    let token = token(&world.seen, &machine);
    versions.add_text(if let Token::Ours(token) = &token { &token.uid } else { "" });
    let mut answers = world.seen.memory.answers.get(&machine.uid).cloned().unwrap_or_default();
    answers.in_flight = world.asks.of(&machine.uid);
    let answered =
        |ended: Option<Timestamp>| ended.map_or(0, |at| u64::try_from(at.as_millisecond()).unwrap_or(0));
    versions.add(answered(answers.ensure.as_ref().map(|a| a.ended)));
    versions.add(answered(answers.find.as_ref().map(|a| a.answered.ended)));
    versions.add(answered(answers.delete.as_ref().map(|a| a.ended)));
    versions.add(answered(answers.rekey.as_ref().map(|a| a.ended)));
    versions.add(answered(answers.in_flight.map(|(_, since)| since)));
    let deleting = machine.deleting_since.is_some();
    let pods: Vec<_> = if deleting {
        let on_node = world.seen.pods.by_index(BY_NODE, machine.node_name());
        on_node
            .inspect(|(_, pod)| versions.add(pod.resource_version))
            .map(|(_, pod)| pod.facts.clone())
            .collect()
    } else {
        Vec::new()
    };
    let attachments: Vec<_> = if deleting {
        let of_node = world.seen.attachments.by_index(BY_NODE, machine.node_name());
        of_node
            .inspect(|(_, attachment)| versions.add(attachment.resource_version))
            .map(|(_, attachment)| attachment.facts.clone())
            .collect()
    } else {
        Vec::new()
    };
    let looks = world.seen.memory.looks.get(&machine.uid).cloned().unwrap_or_default();
    versions.add(answered(looks.node.as_ref().map(|look| look.started)));
    versions.add(answered(looks.pods.as_ref().map(|list| list.started)));
    versions.add(answered(looks.lease.as_ref().map(|look| look.started)));
    let node_seen = node.and_then(|node| world.seen.memory.nodes.get(&node.uid)).cloned().unwrap_or_default();
    versions.add(answered(node_seen.cordoned));
    let mut namespaces: Vec<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
    namespaces.dedup();
    let budgets = namespaces
        .iter()
        .flat_map(|namespace| world.seen.budgets.by_index(BY_NAMESPACE, namespace))
        .map(|(_, budget)| budget.facts.clone())
        .collect();
    let evictions = world.seen.memory.evictions.get(&machine.uid).cloned().unwrap_or_default();
    for eviction in evictions.values() {
        versions.add(answered(Some(eviction.attempts.last)));
    }
    // Only a Machine without an instance has a use for its class being right.
    let to_be_made = class.filter(|_| machine.provider_id.is_none());
    let class_error = to_be_made.and_then(|class| {
        let provider = class.facts.provider.as_deref().unwrap_or_default();
        if !provider.is_empty() && !options.provider.serves(provider) {
            return Some(format!(
                "provider: {provider:?} is not served here; expected {:?}",
                options.provider.name()
            ));
        }
        options.provider.validate(&class.facts.provider_spec).err().map(|error| error.message)
    });
    let identity = identity(runtime, world, &machine, node.map(|node| &*node.facts));
    versions.add_text(identity.claimed_by.as_deref().unwrap_or_default());
    let opened = open(runtime, world, &machine).and_then(Result::ok);
    let promises = opened.as_ref().map_or(CAUTIOUS, Opened::promises);
    let paused = opened.as_ref().and_then(|opened| opened.account.paused_until());
    let process = Process {
        started: runtime.started().unwrap_or_else(|| runtime.now()),
        leading_since: runtime.leading_since(),
        skew: runtime.skew(),
        cloud_skew: opened.as_ref().and_then(|opened| opened.driver.clock_skew()),
        promises,
    };
    let account = opened.map(|opened| opened.account.id().clone());
    let class_facts = class.map(|class| class.facts.as_ref());
    let ownership = evidence::ownership(&world.seen, &machine, class_facts, account, &answers, &process);
    if let List::Asked(again_at) | List::Ended(again_at) = ownership.list {
        versions.add(answered(Some(again_at)));
    }
    Snapshot {
        now: runtime.now(),
        process,
        defaults: options.defaults.clone(),
        class: Known::from_store(class.map(|class| class.facts.clone())),
        class_error,
        secrets,
        inputs,
        token,
        token_use: TokenUse::Unasked,
        node: Known::from_store(node.map(|node| node.facts.clone())),
        identity,
        pods,
        budgets,
        evictions,
        attachments,
        looks,
        node_seen,
        ownership,
        cluster: options.cluster.clone(),
        key_holder: evidence::key_holder(&world.seen, &answers),
        answers,
        paused_until: paused.map(|until| runtime.wall(until)),
        machine,
    }
}

/// What the provider says about the ids of a Machine and its Node.
fn identity(runtime: &Runtime, world: &World, machine: &MachineFacts, node: Option<&NodeFacts>) -> Identity {
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
    let claimed_by =
        named.filter(|name| world.seen.machines.get(&object_key(&machine.namespace, name)).is_some());
    Identity { recorded: ours, same_instance, claimed_by: claimed_by.map(str::to_owned) }
}

/// The bootstrap token of a Machine: the one it has, or the id it may take.
pub(crate) fn token(seen: &Seen, machine: &MachineFacts) -> Token {
    Token::choose(machine, |id| {
        let key = object_key(TOKEN_NAMESPACE, &format!("bootstrap-token-{id}"));
        seen.tokens.get(&key).map(|entry| &entry.facts.facts)
    })
}

/// The secrets of a Machine's class, if all of them are there.
fn secrets_of(
    world: &World,
    machine: &MachineFacts,
) -> Option<(Arc<machinist_plan::facts::ClassFacts>, Vec<Arc<SecretEntry>>, u64)> {
    let class = world.seen.classes.get(&object_key(&machine.namespace, machine.spec.class.name()))?;
    let mut fingerprint = Versions::new();
    let mut secrets = Vec::new();
    for (namespace, name) in &class.facts.secrets {
        let entry = world.seen.secrets.get(&object_key(namespace, name))?;
        fingerprint.add(entry.resource_version);
        secrets.push(entry.facts.clone());
    }
    Some((class.facts.clone(), secrets, fingerprint.done()))
}

/// The account of a Machine, opened with the credential of its class; absent while class or Secret are.
///
/// An account that cannot be opened is an error that names what a person has to mend.
fn open(runtime: &Runtime, world: &World, machine: &MachineFacts) -> Option<Result<Opened, Error>> {
    let (class, secrets, version) = secrets_of(world, machine)?;
    let names = instance::secrets_of(&class);
    if let Some(opened) = runtime.accounts.opened(&names, version) {
        return Some(Ok(opened));
    }
    let (credential, _) = merge(&secrets);
    let options = runtime.tools.machine();
    let calls_at_once = options.calls_per_account;
    let opened = runtime.accounts.open(&*options.provider, calls_at_once, &names, version, &credential);
    Some(opened.map_err(|error| {
        let opened_by = match class.secrets.as_slice() {
            [] => "which refers to no Secret".to_owned(),
            [(namespace, name)] => format!("by Secret {namespace}/{name}"),
            many => {
                let names: Vec<_> =
                    many.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
                format!("by Secrets {}", names.join(" and "))
            }
        };
        let message = format!(
            "the account of MachineClass {}, {opened_by}, cannot be opened: {}",
            class.name, error.message
        );
        Error::new(error.kind, message)
    }))
}

async fn perform(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
    let machine = &s.machine;
    let own_key = [Key::Machine(object_key(&machine.namespace, &machine.name))];
    let write = Write { runtime, charged: &own_key, key: object_key(&machine.namespace, &machine.name) };
    match action {
        Action::AddFinalizer => {
            let patch = GuardedPatch::new(&machine.uid)
                .add_finalizer(machine.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineFacts>(with_priority(patch, machine)).await
        }
        Action::RemoveFinalizer => {
            let patch = GuardedPatch::new(&machine.uid)
                .remove_finalizer(machine.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineFacts>(patch).await
        }
        Action::Record { node, provider_id, account } => {
            let patch = GuardedPatch::new(&machine.uid);
            let patch = match labels::is_value(node.as_str()) {
                true => patch.set_label(machine.labels.as_ref(), labels::NODE, node.as_str()),
                false => patch,
            };
            let patch = patch
                .test(&["spec", "providerID"], machine.spec.provider_id.clone().map(Value::from).as_ref())
                .add(&["spec", "providerID"], Value::from(provider_id.as_str()));
            let patch = match account {
                Some(account) => {
                    patch.set_annotation(machine.annotations.as_ref(), ACCOUNT, account.as_str())
                }
                None => patch,
            };
            write.patch::<MachineFacts>(with_priority(patch, machine)).await
        }
        Action::LabelNode(node) => {
            let patch = GuardedPatch::new(&machine.uid).set_label(
                machine.labels.as_ref(),
                labels::NODE,
                node.as_str(),
            );
            write.patch::<MachineFacts>(patch).await
        }
        Action::CarryPreserve(value) => {
            // The Machine's own annotation goes, as it does with Go MCM: the Node's takes its place.
            let read = machine.annotations.as_ref();
            let patch = GuardedPatch::new(&machine.uid).remove_annotation(read, annotations::PRESERVE);
            let carried = annotations::LAST_APPLIED_NODE_PRESERVE_VALUE;
            let patch = match value.as_str() {
                "" => patch.remove_annotation(read, carried),
                value => patch.set_annotation(read, carried, value),
            };
            write.patch::<MachineFacts>(patch).await
        }
        Action::SetStatus(status) => {
            // A Machine that fails is counted by whoever replaces Machines of its deployment.
            let replacement = runtime.lock().seen.replacement_key(machine);
            let charged = [own_key[0].clone(), replacement];
            let write = Write { charged: &charged, ..write };
            write.patch_status::<MachineFacts>(status_patch(machine, &status)).await
        }
        Action::DeleteMachine => {
            let replacement = runtime.lock().seen.replacement_key(machine);
            let charged = [own_key[0].clone(), replacement];
            Write { charged: &charged, ..write }.delete::<MachineFacts>(&machine.uid).await
        }
        Action::CreateToken { id, expires } => create_token(runtime, &own_key, machine, &id, expires).await,
        Action::DeleteToken(token) => {
            let key = object_key(TOKEN_NAMESPACE, &format!("bootstrap-token-{}", token.id));
            Write { key, ..write }.delete::<TokenEntry>(&token.uid).await
        }
        Action::Ensure { adopt_made_since } => ensure(runtime, s, adopt_made_since),
        Action::List => instance::list(asking(runtime, s)?),
        Action::Rekey { id, from } => instance::rekey(asking(runtime, s)?, id, from),
        Action::Find(which) => instance::find(asking(runtime, s)?, which),
        Action::Delete(permit) => instance::delete(asking(runtime, s)?, permit),
        Action::SyncNode(sync) => {
            let key = ObjectKey::cluster_scoped(&sync.node.name);
            Write { key, ..write }.patch::<NodeFacts>(node_patch(&sync)).await
        }
        Action::SetTerminating { node, reason } => {
            let key = ObjectKey::cluster_scoped(&node.name);
            Write { key, ..write }.merge_status::<NodeFacts>(terminating(&node, reason, s.now)).await
        }
        Action::Cordon(node) => {
            let patch = GuardedPatch::new(&node.uid)
                .test(&["spec", "unschedulable"], node.unschedulable.map(Value::from).as_ref())
                .add(&["spec", "unschedulable"], Value::from(true));
            Write { key: ObjectKey::cluster_scoped(&node.name), ..write }.patch::<NodeFacts>(patch).await
        }
        Action::RemoveNodeFinalizer(node) => {
            let patch =
                GuardedPatch::new(&node.uid).remove_finalizer(node.finalizers.as_deref(), finalizers::NODE);
            Write { key: ObjectKey::cluster_scoped(&node.name), ..write }.patch::<NodeFacts>(patch).await
        }
        Action::DeleteNode(node) => {
            Write { key: ObjectKey::cluster_scoped(&node.name), ..write }.delete::<NodeFacts>(&node.uid).await
        }
        Action::LookForNode(name) => look_for_node(runtime, machine, &name).await,
        Action::ListPods(node) => list_pods(runtime, machine, &node).await,
        Action::LookAtLease(node) => look_at_lease(runtime, machine, &node).await,
        Action::DeleteAttachment(attachment) => {
            let key = ObjectKey::cluster_scoped(&attachment.name);
            Write { key, ..write }.delete::<AttachmentFacts>(&attachment.uid).await
        }
        Action::Drain(call) => drain_pod(runtime, machine, call).await,
        Action::Tell { severity, reason, message } => {
            let kind = match severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            };
            runtime.recorder.record(&reference(machine), kind, reason, &message);
            Ok(())
        }
    }
}

/// How an Event names a Machine.
pub(super) fn reference(machine: &MachineFacts) -> ObjectReference {
    super::reference("Machine", &machine.namespace, &machine.name, &machine.uid)
}

/// The priority that ranks a Machine among those to delete; everybody expects it to be there.
fn with_priority(patch: GuardedPatch, machine: &MachineFacts) -> GuardedPatch {
    match machine.annotation(annotations::MACHINE_PRIORITY) {
        Some(_) => patch,
        None => {
            let priority = MachinePriority::DEFAULT.0.to_string();
            patch.set_annotation(machine.annotations.as_ref(), annotations::MACHINE_PRIORITY, &priority)
        }
    }
}

fn time(at: Timestamp) -> Value {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at);
    serde_json::to_value(Time(seconds)).unwrap_or(Value::Null)
}

const CURRENT_STATUS: [&str; 2] = ["status", "currentStatus"];

/// A write of a Machine's status: only while its phase is the one that the decision was made from, and nothing but the fields
/// that it is about. Two planners of this process write it, and so may a process that is dead by now, or Go MCM.
pub(super) fn status_patch(machine: &MachineFacts, write: &StatusWrite) -> GuardedPatch {
    let status = &machine.status;
    let mut patch = GuardedPatch::new(&machine.uid);
    let nothing: Option<&Value> = None;
    patch = match &status.read {
        ReadPhase::NoStatus => patch.ensure_map(&["status"], nothing),
        ReadPhase::NoCurrentStatus => patch.test(&CURRENT_STATUS, nothing),
        ReadPhase::Read { phase, .. } => patch.test(&below(PHASE), phase.clone().map(Value::from).as_ref()),
    };
    if let Some((phase, timeout_active)) = &write.phase {
        if !matches!(status.read, ReadPhase::Read { .. }) {
            patch = patch.add(&CURRENT_STATUS, json!({}));
        }
        patch = patch.add(&below(PHASE), phase.as_str().into()).add(&below(SINCE), time(write.at));
        patch = match (status.timeout_active, *timeout_active) {
            (_, true) => patch.add(&below("timeoutActive"), Value::from(true)),
            (true, false) => patch.remove(&below("timeoutActive")),
            (false, false) => patch,
        };
        if status.preserve_until.is_some() && !StatusFacts::keeps_promise_in(phase) {
            patch = patch.remove(&below("preserveExpiryTime"));
        }
    }
    if let Some(operation) = &write.operation {
        let mut last = json!({
            "description": operation.description,
            "lastUpdateTime": time(write.at),
            "state": operation.state.as_str(),
            "type": operation.kind.as_str(),
        });
        if let Some(code) = operation.code {
            last["errorCode"] = Value::from(code.as_str());
        }
        // One field: half of one operation and half of another would be none that ever was.
        patch = patch.add(&["status", "lastOperation"], last);
    }
    match &write.conditions {
        None => patch,
        Some(conditions) => patch.add(&["status", "conditions"], Value::from(conditions.clone())),
    }
}

/// The same for a phase that lasts too long: only while it has lasted since then. A Machine that recovered and is unhealthy
/// again has the same phase, and its time begins once more.
pub(super) fn deadline_patch(machine: &MachineFacts, write: &StatusWrite) -> GuardedPatch {
    let patch = status_patch(machine, write);
    match &machine.status.read {
        ReadPhase::NoStatus | ReadPhase::NoCurrentStatus => patch,
        ReadPhase::Read { since, .. } => patch.test(&below(SINCE), since.clone().map(Value::from).as_ref()),
    }
}

const PHASE: &str = "phase";
const SINCE: &str = "lastUpdateTime";

/// A field of `status.currentStatus`.
fn below(field: &str) -> [&str; 3] {
    ["status", "currentStatus", field]
}

fn node_patch(sync: &NodeSync) -> GuardedPatch {
    let node = &sync.node;
    let mut patch = GuardedPatch::new(&node.uid);
    if sync.finalizers.is_some() {
        patch = patch.add_finalizer(node.finalizers.as_deref(), finalizers::NODE);
    }
    for (key, value) in &sync.labels {
        patch = match value {
            Some(value) => patch.set_label(node.labels.as_ref(), key, value),
            None => patch.remove_label(node.labels.as_ref(), key),
        };
    }
    for (key, value) in &sync.annotations {
        patch = match value {
            Some(value) => patch.set_annotation(node.annotations.as_ref(), key, value),
            None => patch.remove_annotation(node.annotations.as_ref(), key),
        };
    }
    if let Some(taints) = &sync.taints {
        let read = node.taints.as_ref().and_then(|taints| serde_json::to_value(taints).ok());
        let taints = serde_json::to_value(taints).unwrap_or(Value::Null);
        patch = patch.test(&["spec", "taints"], read.as_ref()).add(&["spec", "taints"], taints);
    }
    patch
}

fn terminating(node: &NodeFacts, reason: &str, now: Timestamp) -> Value {
    json!({
        "metadata": { "uid": node.uid },
        "status": { "conditions": [{
            "type": conditions::NODE_TERMINATING,
            "status": "True",
            "reason": reason,
            "message": "Machine Controller is scaling down machine",
            "lastHeartbeatTime": time(now),
            "lastTransitionTime": time(now),
        }] },
    })
}

async fn create_token(
    runtime: &Arc<Runtime>,
    charged: &[Key],
    machine: &MachineFacts,
    id: &str,
    expires: Timestamp,
) -> Result<(), Stop> {
    let options = runtime.tools.machine();
    let expiration = Timestamp::from_second(expires.as_second()).unwrap_or(expires).to_string();
    let entries = [
        ("description", token_description(&machine.name)),
        ("token-id", id.to_owned()),
        ("token-secret", token_secret(runtime)),
        ("expiration", expiration),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", options.token_groups.clone()),
    ];
    // The real API server refuses an empty list of groups less kindly than an absent one.
    let data = entries.into_iter().filter(|(key, value)| *key != "auth-extra-groups" || !value.is_empty());
    let name = format!("bootstrap-token-{id}");
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(TOKEN_NAMESPACE.to_owned()),
            annotations: Some(BTreeMap::from([(TOKEN_OWNER.to_owned(), machine.uid.clone())])),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        data: Some(data.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()),
        ..Secret::default()
    };
    let write = Write { runtime, charged, key: object_key(TOKEN_NAMESPACE, &name) };
    // If it was there already, the store will show whose it is.
    write.create::<TokenEntry>(&secret).await.map(|_| ())
}

fn token_secret(runtime: &Runtime) -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    // Bytes from 252 up would make the first characters likelier than the others.
    const FAIR: u8 = 252;
    let mut secret = String::with_capacity(TOKEN_SECRET_LENGTH);
    while secret.len() < TOKEN_SECRET_LENGTH {
        let mut bytes = [0; TOKEN_SECRET_LENGTH];
        (runtime.tools.machine().entropy)(&mut bytes);
        let fair = bytes.into_iter().filter(|byte| *byte < FAIR);
        secret.extend(fair.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])));
    }
    secret.truncate(TOKEN_SECRET_LENGTH);
    secret
}

fn asking<'a>(runtime: &'a Arc<Runtime>, s: &'a Snapshot) -> Result<instance::Asking<'a>, Stop> {
    let opened = open(runtime, &runtime.lock(), &s.machine);
    let opened = opened.ok_or(Stop::NotNow("class or Secret went missing"))?;
    Ok(instance::Asking { runtime, machine: &s.machine, inputs: s.inputs, opened })
}

fn ensure(runtime: &Arc<Runtime>, s: &Snapshot, adopt_made_since: Timestamp) -> Result<(), Stop> {
    let machine = &s.machine;
    let options = runtime.tools.machine();
    let asking = asking(runtime, s)?;
    let (class, secrets, token) = {
        let world = runtime.lock();
        let Some((class, secrets, _)) = secrets_of(&world, machine) else {
            return Err(Stop::NotNow("class or Secret went missing"));
        };
        let token = match token(&world.seen, machine) {
            Token::Ours(TokenFacts { id, .. }) => {
                let key = object_key(TOKEN_NAMESPACE, &format!("bootstrap-token-{id}"));
                world.seen.tokens.get(&key).map(|entry| entry.facts.expose())
            }
            Token::Free(_) | Token::Exhausted => None,
        };
        (class, secrets, token)
    };
    let (_, template) = merge(&secrets);
    let Some(name) = s.machine.node.clone().or_else(|| machinist_instance::NodeName::new(&machine.name))
    else {
        return Err(Stop::refused("a Machine without a name"));
    };
    let spec = InstanceSpec {
        key: machine.key(),
        name,
        cluster: options.cluster.clone(),
        provider_spec: (*class.provider_spec).clone(),
        user_data: user_data::render(&template, &machine.name, token.as_deref()),
        tags: BTreeMap::new(),
        adopt_made_since: Some(adopt_made_since),
    };
    instance::ensure(asking, spec)
}

/// Looks for a Node with quorum. The store learns what the look shows.
async fn look_for_node(runtime: &Arc<Runtime>, machine: &MachineFacts, name: &str) -> Result<(), Stop> {
    let started = runtime.now();
    let found = refresh::<Mcm, NodeFacts>(runtime, &ObjectKey::cluster_scoped(name)).await;
    let found = found.map_err(|error| Stop::Unanswered(error.to_string()))?;
    let look = NodeLook { name: name.to_owned(), started, uid: found.map(|node| node.uid) };
    remember(runtime, machine, |looks| looks.node = Some(look));
    Ok(())
}

/// Lists the pods of a Node with quorum: no `resourceVersion` is asked for. The store learns what the list shows, so that a pod
/// which the watch has not shown yet is evicted like the others.
async fn list_pods(runtime: &Arc<Runtime>, machine: &MachineFacts, node: &NodeFacts) -> Result<(), Stop> {
    let started = runtime.now();
    let params = ListParams::default().fields(&format!("spec.nodeName={}", node.name));
    let list =
        list_once(Api::all(runtime.clients.target.clone()), &params, |pod: Pod| PodFacts::parse(&pod)).await;
    let list = list.map_err(|error| Stop::Unanswered(error.to_string()))?;
    let leaving = list.items.iter().filter(|(_, pod)| pod.facts.leaves_in_a_drain()).count();
    // A pod that cannot be read may be one that has to leave.
    let leaving = leaving + list.unreadable.len();
    let part = RelistPart {
        index: BY_NODE,
        value: node.name.clone(),
        items: list.items,
        resource_version: list.resource_version,
    };
    take_in::<Mcm, PodFacts>(runtime, Delta::RelistPart(part));
    let list = PodList { node_uid: node.uid.clone(), started, leaving };
    remember(runtime, machine, |looks| looks.pods = Some(list));
    Ok(())
}

/// Looks when a kubelet last renewed its Lease. Leases are renewed every few seconds, so they are not watched.
async fn look_at_lease(runtime: &Arc<Runtime>, machine: &MachineFacts, node: &NodeFacts) -> Result<(), Stop> {
    let started = runtime.now();
    let leases: Api<Lease> = Api::namespaced(runtime.clients.target.clone(), NODE_LEASE_NAMESPACE);
    let renewed = |lease: Lease| lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
    let found = match leases.get_opt(&node.name).await {
        Ok(lease) => lease.and_then(renewed).map_or(Renewal::Never, Renewal::At),
        // Who may not read Leases decides without them.
        Err(kube::Error::Api(status)) if status.code == 403 => Renewal::Unknown,
        Err(error) => return Err(Stop::Unanswered(error.to_string())),
    };
    let look = LeaseLook { node_uid: node.uid.clone(), started, found };
    remember(runtime, machine, |looks| looks.lease = Some(look));
    Ok(())
}

/// Remembers what was read for a Machine, for as long as there is one, and decides about it again.
fn remember(runtime: &Runtime, machine: &MachineFacts, change: impl FnOnce(&mut Looks)) {
    let mut world = runtime.lock();
    if world.seen.has_machine(&machine.uid) {
        change(world.seen.memory.looks.entry(machine.uid.clone()).or_default());
    }
    drop(world);
    runtime.queue.wake(Key::Machine(object_key(&machine.namespace, &machine.name)));
}

/// Moves one pod. What comes of it is remembered per pod, so that one pod that is held does not keep the others waiting.
async fn drain_pod(runtime: &Arc<Runtime>, machine: &MachineFacts, call: drain::Call) -> Result<(), Stop> {
    let (outcome, pod) = match call {
        drain::Call::Evict(pod) => (evict(runtime, &pod).await, pod),
        drain::Call::Delete(pod) => (delete_pod(runtime, &pod).await, pod),
    };
    let mut world = runtime.lock();
    if !world.seen.has_machine(&machine.uid) {
        return Ok(());
    }
    let evictions = world.seen.memory.evictions.entry(machine.uid.clone()).or_default();
    let evictions = Arc::make_mut(evictions);
    let before = evictions.get(&pod.uid).map_or(0, |eviction| eviction.attempts.count);
    // Being asked for patience is not the pod's fault.
    let counts = !matches!(outcome, EvictionOutcome::Throttled { .. });
    let attempts = Attempts { count: before.saturating_add(u32::from(counts)), last: runtime.now() };
    evictions.insert(pod.uid, Eviction { attempts, outcome });
    drop(world);
    runtime.queue.wake(Key::Machine(object_key(&machine.namespace, &machine.name)));
    Ok(())
}

fn with_uid(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

async fn evict(runtime: &Runtime, pod: &drain::PodRef) -> EvictionOutcome {
    let pods: Api<Pod> = Api::namespaced(runtime.clients.target.clone(), &pod.namespace);
    let result = machinist_kube::eviction::evict(&pods, &pod.name, &pod.uid).await;
    match outcome::EvictionOutcome::of(&result) {
        outcome::EvictionOutcome::Evicted | outcome::EvictionOutcome::Gone => EvictionOutcome::Accepted,
        outcome::EvictionOutcome::Blocked { message, .. } => EvictionOutcome::Held(message),
        outcome::EvictionOutcome::Misconfigured { message } => EvictionOutcome::Held(message),
        outcome::EvictionOutcome::Failed(machinist_kube::WriteOutcome::Throttled { retry_after }) => {
            EvictionOutcome::Throttled { retry_after: retry_after.unwrap_or(Duration::from_secs(5)) }
        }
        outcome::EvictionOutcome::Failed(failed) => EvictionOutcome::Refused(format!("{failed:?}")),
    }
}

async fn delete_pod(runtime: &Runtime, pod: &drain::PodRef) -> EvictionOutcome {
    let pods: Api<Pod> = Api::namespaced(runtime.clients.target.clone(), &pod.namespace);
    let result = pods.delete(&pod.name, &with_uid(&pod.uid).grace_period(0)).await;
    match machinist_kube::WriteOutcome::of(&result) {
        machinist_kube::WriteOutcome::Done
        | machinist_kube::WriteOutcome::NotFound
        | machinist_kube::WriteOutcome::Stale => EvictionOutcome::Deleted,
        machinist_kube::WriteOutcome::Throttled { retry_after } => {
            EvictionOutcome::Throttled { retry_after: retry_after.unwrap_or(Duration::from_secs(5)) }
        }
        failed => EvictionOutcome::Refused(format!("{failed:?}")),
    }
}

#[cfg(test)]
mod tests {
    use machinist_api::{Machine, OperationType, Phase};
    use machinist_plan::mcm::machine::OperationWrite;

    use super::*;

    fn machine(status: Value) -> MachineFacts {
        let mut machine = json!({"metadata": {"uid": "u"}, "spec": {}, "status": status});
        if status.is_null() {
            machine.as_object_mut().expect("an object").remove("status");
        }
        MachineFacts::parse(&serde_json::from_value::<Machine>(machine).expect("a Machine"))
    }

    fn write(phase: Phase) -> StatusWrite {
        let operation = OperationWrite::processing(OperationType::Create, "x");
        StatusWrite {
            phase: Some((phase, false)),
            operation: Some(operation),
            conditions: None,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn wire(patch: GuardedPatch) -> Vec<Value> {
        let patch = serde_json::to_value(patch.build()).expect("a patch is JSON");
        patch.as_array().expect("a list").clone()
    }

    /// The tests of a patch, without the one of the UID.
    fn tests(patch: GuardedPatch) -> Vec<(String, Value)> {
        let tests = wire(patch).into_iter().filter(|operation| operation["op"] == "test").skip(1);
        tests
            .map(|test| (test["path"].as_str().unwrap_or_default().to_owned(), test["value"].clone()))
            .collect()
    }

    #[test]
    fn every_status_write_tests_the_phase_as_it_was_read() {
        for (status, path, read) in [
            (json!(null), "/status", json!(null)),
            (json!({}), "/status/currentStatus", json!(null)),
            (json!({"currentStatus": {}}), "/status/currentStatus/phase", json!(null)),
            (json!({"currentStatus": {"phase": ""}}), "/status/currentStatus/phase", json!("")),
            (json!({"currentStatus": {"phase": "Unknown"}}), "/status/currentStatus/phase", json!("Unknown")),
            (json!({"currentStatus": {"phase": "New"}}), "/status/currentStatus/phase", json!("New")),
        ] {
            let expected = [(path.to_owned(), read)];
            assert_eq!(tests(status_patch(&machine(status.clone()), &write(Phase::Running))), expected);
            let conditions = StatusWrite {
                phase: None,
                operation: None,
                conditions: Some(Vec::new()),
                ..write(Phase::Running)
            };
            assert_eq!(tests(status_patch(&machine(status), &conditions)), expected);
        }
    }

    #[test]
    fn a_deadline_also_tests_since_when_as_its_text_was_read() {
        let since = "2026-11-21T05:55:17+00:00";
        let late = machine(json!({"currentStatus": {"phase": "Unknown", "lastUpdateTime": since}}));
        assert_eq!(
            tests(deadline_patch(&late, &write(Phase::Failed))),
            [
                ("/status/currentStatus/phase".to_owned(), json!("Unknown")),
                ("/status/currentStatus/lastUpdateTime".to_owned(), json!(since)),
            ]
        );
    }

    #[test]
    fn fields_that_a_write_is_not_about_stay() {
        let preserved = machine(json!({"currentStatus": {
            "phase": "Unknown", "timeoutActive": true, "preserveExpiryTime": "2026-11-21T05:55:17Z",
        }}));
        let changes = |phase| {
            let changes = wire(status_patch(&preserved, &write(phase))).into_iter();
            let changes = changes.filter(|operation| operation["op"] != "test");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            changes
                .map(|change| format!("{} {}", text(&change["op"]), text(&change["path"])))
                .collect::<Vec<_>>()
        };
        let mut expected = vec![
            "add /status/currentStatus/phase",
            "add /status/currentStatus/lastUpdateTime",
            "remove /status/currentStatus/timeoutActive",
            "add /status/lastOperation",
        ];
        assert_eq!(changes(Phase::Failed), expected);
        expected.insert(3, "remove /status/currentStatus/preserveExpiryTime");
        assert_eq!(changes(Phase::Terminating), expected, "a promise ends with the Machine");
    }
}
