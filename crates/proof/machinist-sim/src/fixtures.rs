//! Takeover tests: Go MCM was killed, and both processes continue and finish its work.
//!
//! A fixture is a List of real objects that Go MCM left. The simulated world stores them unchanged.
//! A real server gets them as POSTs, owners first, with rewritten uids, status through `/status`
//! and deletion through DELETE. The cloud gets an instance for each Machine with a provider id. The
//! instance has the Machine's name and no key, as in a cloud that Go MCM used. Then both processes
//! start, and the test checks their calls: no instance may be created twice, and none may be
//! deleted too early.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use machinist_cloud_sim::{CallOutcome, CallRecord, Foreigner, IdStyle, Operation, Settings};
use machinist_instance::{NodeName, ProviderId, UserData};
use serde_json::{Value, json};

use crate::actor::{Side, TestedProcess};
use crate::sight::{MACHINES, NODES, SeenObject};
use crate::world::user::WORKERS;
use crate::world::{Ability, MachineView, MachineWorld, Outcome, ScenarioError, User, ensure};

/// A fixture and its expected continuation.
#[derive(Debug, Clone, Copy)]
pub struct Continuation {
    /// Name of the continuation in reports.
    pub name: &'static str,
    /// File name of the fixture, without `.json`.
    pub file: &'static str,
    /// The instances that exist in the cloud.
    pub instances: FixtureInstances,
    /// Number of workers at the end.
    pub replicas: u32,
    /// The calls of the cloud that are allowed.
    pub calls: Calls,
}

/// The instances of a fixture that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixtureInstances {
    /// The instances with an id that is recorded on a Machine.
    Recorded,
    /// One for every Machine: Go MCM created the instance, and died before it could record it.
    All,
    /// The instances with an id that is recorded on a Machine that is not being deleted; the others
    /// have been deleted.
    OfLivingMachines,
}

/// The calls of the cloud that the processes may make about the Machines of a fixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// At most one find and one ensure for each Machine.
    FindAndEnsureOnce,
    /// No calls.
    None,
    /// For Machines that the rollout deletes: none before their deletion, then one delete, then
    /// finds. For the Machine that stays: none.
    NoneUntilDeleted,
    /// For the Machine that is being deleted: none before its drain has ended, then one delete,
    /// then finds. For the others: none.
    DeleteOnceAfterTheDrain,
}

/// All continuations.
pub const ALL: &[Continuation] = &[
    Continuation {
        name: "creating-without-instances",
        file: "creating",
        instances: FixtureInstances::Recorded,
        replicas: 3,
        calls: Calls::FindAndEnsureOnce,
    },
    Continuation {
        name: "creating-with-instances",
        file: "creating",
        instances: FixtureInstances::All,
        replicas: 3,
        calls: Calls::FindAndEnsureOnce,
    },
    Continuation {
        name: "joining",
        file: "joining",
        instances: FixtureInstances::Recorded,
        replicas: 3,
        calls: Calls::None,
    },
    Continuation {
        name: "preserved",
        file: "preserved",
        instances: FixtureInstances::Recorded,
        replicas: 3,
        calls: Calls::None,
    },
    Continuation {
        name: "rolling",
        file: "rolling",
        instances: FixtureInstances::Recorded,
        replicas: 4,
        calls: Calls::NoneUntilDeleted,
    },
    Continuation {
        name: "draining",
        file: "draining",
        instances: FixtureInstances::Recorded,
        replicas: 3,
        calls: Calls::DeleteOnceAfterTheDrain,
    },
    Continuation {
        name: "deletion-node-drain",
        file: "deletion-node-drain",
        instances: FixtureInstances::Recorded,
        replicas: 3,
        calls: Calls::DeleteOnceAfterTheDrain,
    },
    Continuation {
        name: "deletion-vm-deletion",
        file: "deletion-vm-deletion",
        instances: FixtureInstances::Recorded,
        replicas: 3,
        calls: Calls::DeleteOnceAfterTheDrain,
    },
    Continuation {
        name: "deletion-machine-object-finalizer-removal",
        file: "deletion-machine-object-finalizer-removal",
        instances: FixtureInstances::OfLivingMachines,
        replicas: 3,
        calls: Calls::None,
    },
];

/// The objects of a fixture.
#[derive(Debug, Clone)]
pub struct Fixture {
    items: Vec<Value>,
}

/// The order in which objects are created: owners before their dependents.
const ORDER: [&str; 9] = [
    "Namespace",
    "Secret",
    "MachineClass",
    "MachineDeployment",
    "MachineSet",
    "Machine",
    "Node",
    "PodDisruptionBudget",
    "Pod",
];

/// A token with which the machines of loaded instances can join again, as if they had never
/// stopped.
const RETURN_TOKEN: (&str, &str) = ("return", "0123456789abcdef");

impl Fixture {
    /// Parses a fixture.
    ///
    /// # Errors
    /// When the text is not a List, or has an object of an unknown kind.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let list: Value =
            serde_json::from_str(text).map_err(|error| ScenarioError(format!("a fixture: {error}")))?;
        let mut items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        if let Some(unknown) = items.iter().find(|item| !ORDER.contains(&kind(item))) {
            return Err(ScenarioError(format!(
                "a fixture contains an object of unknown kind {:?}",
                kind(unknown)
            )));
        }
        items.sort_by_key(place);
        Ok(Self { items })
    }

    /// The objects, owners first, each with its cluster.
    pub fn items(&self) -> impl Iterator<Item = (Side, &Value)> {
        self.items.iter().map(|item| (side(item), item))
    }

    /// A moment after the last event in the fixture.
    pub fn moment(&self) -> Timestamp {
        const A_MOMENT: std::time::Duration = std::time::Duration::from_secs(5);
        let created = self.items.iter().filter_map(|item| SeenObject(item).created());
        let written = self
            .items
            .iter()
            .filter_map(|item| SeenObject(item).time("/status/lastOperation/lastUpdateTime"));
        created.chain(written).max().unwrap_or(Timestamp::UNIX_EPOCH) + A_MOMENT
    }

    /// The users as which machines request certificates with the tokens of the fixture.
    fn joiners(&self) -> BTreeSet<String> {
        let tokens = self.of_kind("Secret").filter(|secret| secret.namespace() == "kube-system");
        tokens.map(|secret| format!("system:bootstrap:{}", decoded(secret, "token-id"))).collect()
    }

    fn of_kind<'f>(&'f self, wanted: &'f str) -> impl Iterator<Item = SeenObject<'f>> {
        self.items.iter().filter(move |item| kind(item) == wanted).map(SeenObject)
    }

    /// The user data of the machine of that name. It contains the token in the machine's Secret, or
    /// else the return token.
    fn user_data(&self, machine: &str) -> UserData {
        let is_for =
            |secret: &SeenObject<'_>| decoded(*secret, "description").contains(&format!("{machine:?}"));
        let token = match self.of_kind("Secret").find(is_for) {
            Some(secret) => format!("{}.{}", decoded(secret, "token-id"), decoded(secret, "token-secret")),
            None => format!("{}.{}", RETURN_TOKEN.0, RETURN_TOKEN.1),
        };
        UserData::new(format!(
            "#cloud-config\nwrite_files:\n- path: /var/lib/bootstrap-token\n  content: {token}\n\
             - path: /etc/machine-name\n  content: {machine}\n"
        ))
    }
}

/// Settings of a cloud as in Go MCM's fixtures: the ids are names.
pub fn cloud(settings: Settings) -> Settings {
    Settings { scheme: "fast".to_owned(), ids: IdStyle::ByName, ..settings }
}

/// The value of a Secret under that key.
fn decoded(secret: SeenObject<'_>, key: &str) -> String {
    let bytes = STANDARD.decode(secret.text(&format!("/data/{key}"))).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn kind(item: &Value) -> &str {
    SeenObject(item).text("/kind")
}

/// Position of an object in the order. Go creates a token after its Machine, and `user_data`
/// matches the two by the machine's name.
fn place(item: &Value) -> (Option<usize>, bool) {
    let as_kind = if is_token(item) { "Machine" } else { kind(item) };
    (ORDER.iter().position(|known| *known == as_kind), is_token(item))
}

fn is_token(item: &Value) -> bool {
    kind(item) == "Secret" && SeenObject(item).namespace() == "kube-system"
}

/// The cluster of an object. Nodes, pods, budgets and bootstrap tokens are in the target cluster.
fn side(item: &Value) -> Side {
    match kind(item) {
        "Node" | "Pod" | "PodDisruptionBudget" => Side::Target,
        _ if is_token(item) => Side::Target,
        _ => Side::Control,
    }
}

/// Loads a fixture into a world without running processes, starts the processes, and waits for the
/// end.
///
/// # Errors
/// When the expected end state is not reached, or a process made a call that is not allowed.
pub async fn play(world: &dyn MachineWorld, continuation: Continuation, fixture: &Fixture) -> Outcome {
    load(world, fixture).await?;
    for machine in fixture.of_kind("Machine") {
        let recorded = machine.provider_id();
        let exists = match continuation.instances {
            FixtureInstances::Recorded => !recorded.is_empty(),
            FixtureInstances::All => true,
            FixtureInstances::OfLivingMachines => !recorded.is_empty() && !machine.is_deleting(),
        };
        if !exists {
            continue;
        }
        let id =
            if recorded.is_empty() { format!("fast:///{}", machine.name()) } else { recorded.to_owned() };
        load_instance(world, fixture, machine, &id)?;
    }
    nodes_are_back(world, fixture).await?;
    world.begin(&format!("both processes take over {}", continuation.name));
    world.start_processes().await?;
    if continuation.file == "draining" {
        let_the_pod_go(world, fixture).await?;
    }
    let settled = |view: &MachineView| {
        view.has_settled(WORKERS, continuation.replicas)?;
        match view.tokens.first() {
            None => Ok(()),
            Some(token) => Err(format!("token {} still exists", token.seen().name())),
        }
    };
    let view = world.until("the work of Go MCM to be finished", settled).await?;
    judge_machines(world, fixture, &view)?;
    judge_instances(world, fixture, &view)?;
    judge_tokens(world, fixture).await?;
    judge_calls(world, continuation, fixture, &view)
}

/// Creates the objects of a fixture: unchanged if the world [can](Ability::StoreVerbatim) store
/// them, otherwise by requests.
///
/// # Errors
/// When the server refuses an object.
pub async fn load(world: &dyn MachineWorld, fixture: &Fixture) -> Outcome {
    if world.can(Ability::StoreVerbatim) {
        for (side, item) in fixture.items() {
            world.store(side, item).await?;
        }
        return Ok(());
    }
    let mut uids = BTreeMap::new();
    for item in &fixture.items {
        post(world, item, &mut uids).await?;
    }
    Ok(())
}

/// Creates an equal object by requests: with a new uid, then its status, then its deletion.
async fn post(world: &dyn MachineWorld, item: &Value, uids: &mut BTreeMap<String, String>) -> Outcome {
    let client = if side(item) == Side::Control { world.control() } else { world.target() };
    let (group, version) = match SeenObject(item).text("/apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", SeenObject(item).text("/apiVersion")),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind(item)));
    let namespace = SeenObject(item).namespace();
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    };
    let mut object = item.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for given in ["uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp"] {
            metadata.remove(given);
        }
        metadata.remove("deletionGracePeriodSeconds");
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            let new = owner.get("uid").and_then(Value::as_str).and_then(|old| uids.get(old));
            if let Some(new) = new {
                owner["uid"] = json!(new);
            }
        }
    }
    if kind(item) == "Secret" && !SeenObject(item).text("/data/expiration").is_empty() {
        // The token of the fixture expired long ago, but machines must still be able to join with
        // it.
        let expires = world.now() + std::time::Duration::from_secs(20 * 60);
        object["data"]["expiration"] =
            json!(STANDARD.encode(expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    }
    let parsed: DynamicObject = serde_json::from_value(object)
        .map_err(|error| ScenarioError(format!("a fixture's {}: {error}", kind(item))))?;
    let name = SeenObject(item).name();
    let made = match api.create(&PostParams::default(), &parsed).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(name).await?,
        other => other?,
    };
    uids.insert(SeenObject(item).uid().to_owned(), made.metadata.uid.unwrap_or_default());
    if let Some(status) = item.get("status") {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
    }
    if SeenObject(item).is_deleting() {
        api.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

fn load_instance(world: &dyn MachineWorld, fixture: &Fixture, machine: SeenObject<'_>, id: &str) -> Outcome {
    let name = NodeName::new(machine.name()).ok_or(ScenarioError::new("a fixture's Machine has no name"))?;
    let foreigner = Foreigner {
        id: Some(ProviderId::parse(id).map_err(|error| ScenarioError(error.to_string()))?),
        name,
        key: None,
        project: String::new(),
        // If the world cannot store the Machine's old creation time, the instance gets the current
        // time too.
        created: machine
            .created()
            .filter(|_| world.can(Ability::StoreVerbatim))
            .unwrap_or_else(|| world.now()),
        instance_type: "m5.large".to_owned(),
        user_data: fixture.user_data(machine.name()),
    };
    world.cloud().load(&foreigner).map(drop).map_err(|refusal| ScenarioError(refusal.to_string()))
}

/// Lets the machines of existing Nodes join again, each with its own certificate, and then deletes
/// the token.
async fn nodes_are_back(world: &dyn MachineWorld, fixture: &Fixture) -> Outcome {
    let nodes: BTreeSet<&str> = fixture.of_kind("Node").map(SeenObject::name).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let (id, secret) = RETURN_TOKEN;
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"},
    });
    let api: Api<Secret> = Api::namespaced(world.target(), "kube-system");
    let token: Secret = serde_json::from_value(token).map_err(|error| ScenarioError(error.to_string()))?;
    api.create(&PostParams::default(), &token).await?;
    let said = |view: &MachineView| {
        let alive = view.ledger.alive().filter(|entry| nodes.contains(entry.name.as_str()));
        let mut silent = alive.filter(|entry| {
            !world.cloud().console(&entry.id, 20).iter().any(|line| line.contains("is Node"))
        });
        silent.next().map_or(Ok(()), |entry| Err(format!("{} has not joined again", entry.name)))
    };
    world.until("the machines of existing Nodes to join again", said).await?;
    api.delete(&format!("bootstrap-token-{id}"), &DeleteParams::default()).await?;
    Ok(())
}

/// The budget of the drained pod requires one available pod. After a second pod exists, the first
/// one can be evicted.
async fn let_the_pod_go(world: &dyn MachineWorld, fixture: &Fixture) -> Outcome {
    let refused = |_: &MachineView| {
        let evictions = world.answers().into_iter().filter(|answer| answer.about.subresource == "eviction");
        match evictions.filter(|answer| answer.code == 429).count() {
            0 => Err("no eviction was answered 429".to_owned()),
            _ => Ok(()),
        }
    };
    world.until("the budget to block the eviction of the pod", refused).await?;
    let calls: Vec<CallRecord> = world.cloud().calls().into_iter().filter(is_about_one).collect();
    ensure(calls.is_empty(), || format!("the cloud was called before the drain ended: {calls:?}"))?;
    let going = fixture.of_kind("Machine").find(|machine| machine.is_deleting());
    let other = fixture.of_kind("Node").find(|node| Some(node.name()) != going.map(SeenObject::node_label));
    let other = other.ok_or(ScenarioError::new("the fixture has no other Node"))?;
    User::of(world).create_pod("second", "x", other.name()).await.map(drop)
}

/// Machines that still exist have their old UID and preserve time, and all belong to one set.
fn judge_machines(world: &dyn MachineWorld, fixture: &Fixture, view: &MachineView) -> Outcome {
    let owners: BTreeSet<_> = view.machines().map(SeenObject::owner_uid).collect();
    ensure(owners.len() == 1, || format!("the Machines belong to several sets: {owners:?}"))?;
    for before in fixture.of_kind("Machine").filter(|_| world.can(Ability::StoreVerbatim)) {
        let Some(now) = view.machine(before.name()) else { continue };
        ensure(now.uid() == before.uid(), || format!("Machine {} was recreated", before.name()))?;
        let promised =
            |machine: SeenObject<'_>| machine.text("/status/currentStatus/preserveExpiryTime").to_owned();
        ensure(promised(now) == promised(before), || {
            format!("Machine {} has lost its preserveExpiryTime", before.name())
        })?;
    }
    Ok(())
}

/// No instance was created twice, and no rollout began.
fn judge_instances(world: &dyn MachineWorld, fixture: &Fixture, view: &MachineView) -> Outcome {
    let ever = view.ledger.ever();
    let names: BTreeSet<_> = ever.iter().map(|entry| &entry.name).collect();
    ensure(names.len() == ever.len(), || format!("a name has two instances: {ever:?}"))?;
    let sets: BTreeSet<&str> = fixture.of_kind("MachineSet").map(SeenObject::name).collect();
    let made = |answer: &crate::lab::AnswerRecord| {
        answer.verb == "post" && answer.about.table.starts_with("machinesets") && answer.code < 300
    };
    let rolled = world.answers().into_iter().find(made);
    ensure(rolled.is_none(), || format!("an unexpected rollout began: {rolled:?}; the sets were {sets:?}"))?;
    // Go MCM's tokens are used and deleted like our own; no second token is created for their
    // Machines.
    let fresh = |answer: &crate::lab::AnswerRecord| {
        let machine = answer.about.name.strip_prefix("bootstrap-token-").is_some();
        answer.process == TestedProcess::MachineController
            && answer.verb == "post"
            && machine
            && answer.code < 300
    };
    let new_machines = world.answers().into_iter().filter(|answer| {
        answer.verb == "post" && answer.about.table.starts_with("machines.") && answer.code < 300
    });
    let (tokens, machines) = (world.answers().into_iter().filter(fresh).count(), new_machines.count());
    ensure(tokens <= machines, || format!("{tokens} tokens were made for {machines} new Machines"))
}

/// Machines joined with Go MCM's tokens. A second token for the same machine would be a Secret that
/// no process deletes.
async fn judge_tokens(world: &dyn MachineWorld, fixture: &Fixture) -> Outcome {
    let requests: Api<CertificateSigningRequest> = Api::all(world.target());
    let requests = requests.list(&ListParams::default()).await?;
    let asked: BTreeSet<String> =
        requests.items.into_iter().filter_map(|request| request.spec.username).collect();
    let unused: Vec<String> = fixture.joiners().difference(&asked).cloned().collect();
    ensure(unused.is_empty(), || format!("no machine joined as {unused:?}; the machines joined as {asked:?}"))
}

fn judge_calls(
    world: &dyn MachineWorld,
    continuation: Continuation,
    fixture: &Fixture,
    view: &MachineView,
) -> Outcome {
    let (all, lists): (Vec<_>, Vec<_>) = world.cloud().calls().into_iter().partition(is_about_one);
    // One list is allowed. It shows whether this account owns the instances that Go MCM recorded
    // without an account.
    ensure(lists.len() <= 1, || format!("the account was listed {} times", lists.len()))?;
    let about = |call: &CallRecord, machine: SeenObject<'_>| {
        call.which.name.as_ref().is_some_and(|name| name.as_str() == machine.name())
    };
    let machines = || fixture.of_kind("Machine").chain(view.machines());
    let stray = all.iter().find(|call| !machines().any(|machine| about(call, machine)));
    ensure(stray.is_none(), || format!("a call of the cloud names no Machine: {stray:?}"))?;
    for machine in fixture.of_kind("Machine") {
        let calls: Vec<&CallRecord> = all.iter().filter(|call| about(call, machine)).collect();
        let stays = view.machine(machine.name()).is_some();
        match continuation.calls {
            Calls::FindAndEnsureOnce => {
                judge_ensure(continuation, machine, &calls)?;
                let uid = view.machine(machine.name()).map(SeenObject::uid);
                let entry = view.ledger.alive().find(|entry| entry.name.as_str() == machine.name());
                let key = entry.and_then(|entry| entry.key.as_ref()).map(|key| key.as_str());
                ensure(key.is_some() && key == uid, || {
                    format!("the instance of {} has key {key:?}, expected {uid:?}", machine.name())
                })?;
            }
            Calls::NoneUntilDeleted if !stays => {
                judge_deletion(machine, &calls)?;
                deleted_before(world, machine, calls[0])?;
            }
            Calls::DeleteOnceAfterTheDrain if machine.is_deleting() => {
                judge_deletion(machine, &calls)?;
                drained_before(world, fixture, machine, calls[0])?;
            }
            Calls::None | Calls::NoneUntilDeleted | Calls::DeleteOnceAfterTheDrain => {
                ensure(calls.is_empty(), || complaint(machine, &calls))?;
            }
        }
    }
    Ok(())
}

/// Whether a call is about one instance.
fn is_about_one(call: &CallRecord) -> bool {
    call.operation != Operation::List
}

/// Expects one ensure, at most one find before it, and nothing else.
fn judge_ensure(continuation: Continuation, machine: SeenObject<'_>, calls: &[&CallRecord]) -> Outcome {
    let wanted = match continuation.instances {
        FixtureInstances::Recorded | FixtureInstances::OfLivingMachines => CallOutcome::Made,
        FixtureInstances::All => CallOutcome::Adopted,
    };
    let is_fine = match calls {
        [ensure] => (ensure.operation, ensure.outcome) == (Operation::Ensure, wanted),
        [find, ensure] => {
            find.operation == Operation::Find
                && (ensure.operation, ensure.outcome) == (Operation::Ensure, wanted)
        }
        _ => false,
    };
    ensure(is_fine, || complaint(machine, calls))
}

/// Expects one delete, then finds, with nothing found by the last one. Go MCM recorded no account.
/// So one find is allowed before the delete, to show that the instance is in the current account.
fn judge_deletion(machine: SeenObject<'_>, calls: &[&CallRecord]) -> Outcome {
    let deletion = match calls {
        [find, rest @ ..] if (find.operation, find.outcome) == (Operation::Find, CallOutcome::Found) => rest,
        all => all,
    };
    let is_fine = match deletion {
        [delete, finds @ .., last] => {
            (delete.operation, delete.outcome) == (Operation::Delete, CallOutcome::DeletionBegun)
                && finds.iter().all(|call| call.operation == Operation::Find)
                && (last.operation, last.outcome) == (Operation::Find, CallOutcome::Absent)
        }
        _ => false,
    };
    ensure(is_fine, || complaint(machine, calls))
}

/// Expects that the manager had deleted the Machine before the first call.
fn deleted_before(world: &dyn MachineWorld, machine: SeenObject<'_>, first: &CallRecord) -> Outcome {
    let deleted = world.answers().into_iter().find(|answer| {
        answer.process == TestedProcess::Manager
            && answer.verb == "delete"
            && answer.about.table == MACHINES
            && answer.about.name == machine.name()
            && answer.code < 300
    });
    let is_fine = deleted.is_some_and(|deleted| deleted.at <= first.arrived);
    ensure(is_fine, || format!("the cloud was called about {} before the manager deleted it", machine.name()))
}

/// Expects that the Node was cordoned, and every pod on it evicted, before the first call.
fn drained_before(
    world: &dyn MachineWorld,
    fixture: &Fixture,
    machine: SeenObject<'_>,
    first: &CallRecord,
) -> Outcome {
    let node = machine.node_label();
    let answers = world.answers();
    let before = answers.iter().filter(|answer| answer.code < 300 && answer.at <= first.arrived);
    let is_open = fixture.of_kind("Node").any(|open| open.name() == node && !open.is_cordoned());
    let drain_has_ended = machine.text("/status/lastOperation/description").contains(VM_DELETION);
    if is_open && !drain_has_ended {
        let closed = before
            .clone()
            .any(|answer| answer.verb == "patch" && answer.about.table == NODES && answer.about.name == node);
        ensure(closed, || {
            format!("the cloud was called about {} before {node} was cordoned", machine.name())
        })?;
    }
    for pod in fixture.of_kind("Pod").filter(|pod| pod.text("/spec/nodeName") == node) {
        let left = before
            .clone()
            .any(|answer| answer.about.subresource == "eviction" && answer.about.name == pod.name());
        ensure(left, || format!("the cloud was called before pod {} was evicted", pod.name()))?;
    }
    Ok(())
}

/// The operation text of a Machine after its drain has ended.
const VM_DELETION: &str = "Initiate VM deletion";

fn complaint(machine: SeenObject<'_>, calls: &[&CallRecord]) -> String {
    let asked: Vec<String> =
        calls.iter().map(|call| format!("{} ({:?})", call.operation, call.outcome)).collect();
    format!("unexpected calls of the cloud for {}: {}", machine.name(), asked.join(", "))
}
