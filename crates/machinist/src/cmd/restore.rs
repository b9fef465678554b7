//! `machinist restore`: creates the machine objects of a dump again, each with an owner that
//! exists.
//!
//! `kubectl apply -f DUMP` would create objects whose ownerReferences name UIDs of deleted objects.
//! The garbage collector deletes such objects within a second, and with the Machines their
//! instances. So owners are created first, and their children name the new UIDs. An object that
//! would be collected is rejected before anything is written.
//!
//! The controllers must not run meanwhile, because a MachineDeployment without its MachineSet gets
//! a new one.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, bail};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use machinist_kube::{ClientOptions, Clock as _, KubeconfigSource, SystemClock, connect};
use serde_json::{Map, Value, json};

use crate::args::RestoreArgs;
use crate::cmd;
use crate::documents::{self, Written};
use crate::output::Output;
use crate::version::VERSION;

/// The restored kinds, owners before their children.
const KINDS: [(&str, &str, &str); 5] = [
    ("v1", "Secret", "secrets"),
    (MACHINE_API, "MachineClass", "machineclasses"),
    (MACHINE_API, "MachineDeployment", "machinedeployments"),
    (MACHINE_API, "MachineSet", "machinesets"),
    (MACHINE_API, "Machine", "machines"),
];
const MACHINE_API: &str = "machine.sapcloud.io/v1alpha1";
/// Annotation of a set whose value depends on the UID of the set.
const RESERVED_NUMBERS: &str = "machinist.dev/reserved-numbers";
/// The Leases of the two controllers, in each namespace.
const LEASES: [&str; 2] = ["machine-controller-manager", "machine-controller"];

pub(crate) async fn run(args: &RestoreArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let mut written = Vec::new();
    for file in &args.filename {
        documents::append_file(&mut written, &file.display().to_string(), file, str::to_owned)?;
    }
    documents::each_once(&written)?;
    let dump = Dump::read(&written)?;
    let file = match &args.kubeconfig {
        Some(file) => file.clone(),
        None => cmd::why::default_kubeconfig()?,
    };
    let options = ClientOptions::new(format!("machinist-restore/{VERSION}"));
    let client = connect(&KubeconfigSource::File(file), &options).await?;
    restore(&client, &dump, args.dry_run, SystemClock.now(), output).await?;
    Ok(ExitCode::SUCCESS)
}

/// The objects of a dump, in the order in which they are created.
#[derive(Debug)]
struct Dump(Vec<Saved>);

/// One object of a dump, without the fields that only the API server writes.
#[derive(Debug)]
struct Saved {
    /// Index in [`KINDS`].
    kind: usize,
    namespace: String,
    name: String,
    /// The controlling owner: its index in [`KINDS`], and its name.
    owner: Option<(usize, String)>,
    body: Value,
}

impl Saved {
    fn label(&self) -> String {
        format!("{} {}/{}", KINDS[self.kind].1, self.namespace, self.name)
    }
}

impl Dump {
    /// Checks all objects, and removes their fields of the former cluster.
    fn read(written: &[Written]) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for document in written {
            all.push(saved(document).with_context(|| document.title())?);
        }
        all.sort_by(|a, b| (a.kind, &a.namespace, &a.name).cmp(&(b.kind, &b.namespace, &b.name)));
        Ok(Self(all))
    }
}

/// Prepares one object.
fn saved(document: &Written) -> anyhow::Result<Saved> {
    let object = &document.object;
    let is_it =
        |(version, kind, _): &(&str, &str, &str)| object.api_version == *version && object.kind == *kind;
    let Some(kind) = KINDS.iter().position(is_it) else {
        bail!(
            "expected one of {}. Remove the object from the dump",
            KINDS.map(|(_, kind, _)| kind).join(", ")
        );
    };
    let namespace = document.namespace().to_owned();
    let mut body = object.body.clone();
    let metadata = body.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    if metadata.contains_key("deletionTimestamp") {
        bail!(
            "metadata.deletionTimestamp: the object was being deleted. Remove it from the dump, or remove the field \
             to keep the object"
        );
    }
    let owner = owner_of(kind, &metadata)?;
    let mut kept = Map::new();
    for field in ["name", "labels", "annotations", "finalizers"] {
        kept.extend(metadata.get(field).cloned().map(|value| (field.to_owned(), value)));
    }
    kept.insert("namespace".to_owned(), json!(namespace));
    if let Some(finalizers) = kept.get_mut("finalizers").and_then(Value::as_array_mut) {
        // These two belong to a deletion.
        finalizers.retain(|finalizer| finalizer != "orphan" && finalizer != "foregroundDeletion");
    }
    if let Some(annotations) = kept.get_mut("annotations").and_then(Value::as_object_mut) {
        // The names behind these numbers depend on the UID of the set.
        annotations.remove(RESERVED_NUMBERS);
    }
    if let Some(fields) = body.as_object_mut() {
        fields.insert("metadata".to_owned(), Value::Object(kept));
        fields.remove("status");
    }
    Ok(Saved { kind, namespace, name: object.name.clone(), owner, body })
}

/// Returns the owner that the object needs: a MachineDeployment for a set, a set for a Machine.
fn owner_of(kind: usize, metadata: &Map<String, Value>) -> anyhow::Result<Option<(usize, String)>> {
    let mut owner = None;
    let references = metadata.get("ownerReferences").and_then(Value::as_array);
    for reference in references.into_iter().flatten() {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let expected = match KINDS[kind].1 {
            "MachineSet" => Some("MachineDeployment"),
            "Machine" => Some("MachineSet"),
            _ => None,
        };
        let is_known = expected == Some(text("kind")) && reference.get("controller") == Some(&json!(true));
        if !is_known || owner.is_some() {
            bail!(
                "metadata.ownerReferences: the garbage collector would delete the object, because owner {} {} is not \
                 restored. Remove this reference from the dump",
                text("kind"),
                text("name")
            );
        }
        owner = Some((kind - 1, text("name").to_owned()));
    }
    Ok(owner)
}

/// Creates the objects of a dump. Objects that exist already with the right owner stay, so that the
/// command can be repeated.
async fn restore(
    client: &kube::Client,
    dump: &Dump,
    is_rehearsal: bool,
    now: Timestamp,
    output: &Output,
) -> anyhow::Result<()> {
    stopped_controllers(client, dump, now).await?;
    let mut uids = BTreeMap::new();
    // All owners are looked up before the first write.
    for saved in &dump.0 {
        let Some((kind, name)) = &saved.owner else { continue };
        let is_owner =
            |other: &&Saved| other.kind == *kind && other.name == *name && other.namespace == saved.namespace;
        if dump.0.iter().any(|other| is_owner(&other)) {
            continue;
        }
        let found = api(client, *kind, &saved.namespace).get_opt(name).await?;
        let Some(uid) = found
            .filter(|owner| owner.metadata.deletion_timestamp.is_none())
            .and_then(|owner| owner.metadata.uid)
        else {
            bail!(
                "{}: the garbage collector would delete it, because its owner {} {name} is neither in the dump nor in the \
                 cluster. Add the owner to the dump, or remove metadata.ownerReferences",
                saved.label(),
                KINDS[*kind].1,
            );
        };
        uids.insert((*kind, saved.namespace.clone(), name.clone()), uid);
    }
    for saved in &dump.0 {
        let owner = saved.owner.as_ref().map(|(kind, name)| {
            let uid = uids.get(&(*kind, saved.namespace.clone(), name.clone())).cloned().unwrap_or_default();
            json!({
                "apiVersion": MACHINE_API, "kind": KINDS[*kind].1, "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            })
        });
        if is_rehearsal {
            output.line(&format!("{}: would be created", saved.label()))?;
            continue;
        }
        let (uid, what) = create(client, saved, owner).await.with_context(|| saved.label())?;
        uids.insert((saved.kind, saved.namespace.clone(), saved.name.clone()), uid);
        output.line(&format!("{}: {what}", saved.label()))?;
    }
    Ok(())
}

/// Creates an object, and returns its UID.
async fn create(
    client: &kube::Client,
    saved: &Saved,
    owner: Option<Value>,
) -> anyhow::Result<(String, &'static str)> {
    let mut body = saved.body.clone();
    if let Some(owner) = &owner {
        body["metadata"]["ownerReferences"] = json!([owner]);
    }
    let api = api(client, saved.kind, &saved.namespace);
    let object: DynamicObject = serde_json::from_value(body).context("not an object")?;
    let error = match api.create(&PostParams::default(), &object).await {
        Ok(created) => return Ok((created.metadata.uid.unwrap_or_default(), "created")),
        Err(kube::Error::Api(status)) if status.is_already_exists() => kube::Error::Api(status),
        Err(error) => return Err(error).context("cannot be created"),
    };
    let existing = api.get_opt(&saved.name).await?.ok_or(error)?;
    let wanted = owner.as_ref().and_then(|owner| owner["uid"].as_str());
    let mut owners = existing.metadata.owner_references.iter().flatten();
    let has = owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str());
    if has != wanted {
        bail!(
            "exists already, with another owner. Delete it without its children (--cascade=orphan), or remove it from the dump"
        );
    }
    Ok((existing.metadata.uid.unwrap_or_default(), "exists already"))
}

/// Checks that no controller serves a namespace of the dump.
async fn stopped_controllers(client: &kube::Client, dump: &Dump, now: Timestamp) -> anyhow::Result<()> {
    let mut namespaces: Vec<&str> = dump.0.iter().map(|saved| saved.namespace.as_str()).collect();
    namespaces.dedup();
    namespaces.sort_unstable();
    namespaces.dedup();
    for namespace in namespaces {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        for name in LEASES {
            let lease = leases.get_opt(name).await.with_context(|| format!("Lease {namespace}/{name}"))?;
            let Some(spec) = lease.and_then(|lease| lease.spec) else { continue };
            let holder = spec.holder_identity.unwrap_or_default();
            let lasts = i64::from(spec.lease_duration_seconds.unwrap_or_default());
            let is_fresh =
                spec.renew_time.is_some_and(|renewed| now.as_second() <= renewed.0.as_second() + lasts);
            if !holder.is_empty() && is_fresh {
                bail!(
                    "Lease {namespace}/{name} is held by {holder}. Stop both controllers before a restore, and start them \
                     afterwards"
                );
            }
        }
    }
    Ok(())
}

fn api(client: &kube::Client, kind: usize, namespace: &str) -> Api<DynamicObject> {
    let (version, kind, plural) = KINDS[kind];
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::{DeleteParams, ListParams};
    use machinist_api::{Machine, MachineSet, crd};
    use machinist_apiserver::{Config, Identity, Server, TokioClock};
    use tokio::time::sleep;

    use super::*;

    const DUMP: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: machine.sapcloud.io/v1alpha1
  kind: Machine
  metadata:
    name: w-1-a
    namespace: team
    labels: {name: w}
    uid: old-machine
    resourceVersion: "17"
    finalizers: [machine.sapcloud.io/machine-controller-manager]
    ownerReferences: [{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineSet, name: w-1, uid: old-set, controller: true}]
  spec: {class: {kind: MachineClass, name: c}, providerID: "sim:///w-1-a"}
  status: {currentStatus: {phase: Running}}
- apiVersion: machine.sapcloud.io/v1alpha1
  kind: MachineSet
  metadata:
    name: w-1
    namespace: team
    labels: {name: w}
    uid: old-set
    annotations: {machinist.dev/reserved-numbers: "3:0-2", team: a}
    ownerReferences: [{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, name: w, uid: old-deployment, controller: true}]
  spec:
    replicas: 1
    selector: {matchLabels: {name: w}}
    template: {metadata: {labels: {name: w}}, spec: {class: {kind: MachineClass, name: c}}}
- apiVersion: machine.sapcloud.io/v1alpha1
  kind: MachineDeployment
  metadata: {name: w, namespace: team, uid: old-deployment}
  spec:
    replicas: 1
    selector: {matchLabels: {name: w}}
    template: {metadata: {labels: {name: w}}, spec: {class: {kind: MachineClass, name: c}}}
"#;

    fn dump(text: &str) -> anyhow::Result<Dump> {
        let mut written = Vec::new();
        documents::append(&mut written, "dump.yaml", text)?;
        Dump::read(&written)
    }

    async fn server() -> kube::Client {
        prepared(&Server::new(Config::default())).await
    }

    /// Installs the CRDs and creates the namespace of the dump.
    async fn prepared(server: &Server) -> kube::Client {
        let client = kube::Client::new(server.service_as(Identity::admin()), "default");
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in crd::all_crds() {
            crds.create(&PostParams::default(), &crd).await.expect("the CRD is accepted");
        }
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let team = serde_json::from_value(json!({"metadata": {"name": "team"}})).expect("a Namespace");
        namespaces.create(&PostParams::default(), &team).await.expect("created");
        client
    }

    fn error(result: anyhow::Result<impl std::fmt::Debug>) -> String {
        format!("{:#}", result.expect_err("it is rejected"))
    }

    #[tokio::test]
    async fn restored_children_name_the_new_owners() {
        let client = server().await;
        let (output, printed) = Output::memory();
        let dump = dump(DUMP).expect("a dump");
        for _ in 0..2 {
            restore(&client, &dump, false, SystemClock.now(), &output).await.expect("restored");
        }
        assert_eq!(
            printed.text(),
            "MachineDeployment team/w: created\nMachineSet team/w-1: created\nMachine team/w-1-a: created\n\
             MachineDeployment team/w: exists already\nMachineSet team/w-1: exists already\n\
             Machine team/w-1-a: exists already\n"
        );
        let sets: Api<MachineSet> = Api::namespaced(client.clone(), "team");
        let set = sets.get("w-1").await.expect("the set").metadata;
        let machines: Api<Machine> = Api::namespaced(client.clone(), "team");
        let machine = machines.get("w-1-a").await.expect("the Machine");
        let owner = machine.metadata.owner_references.expect("an owner").remove(0);
        assert_eq!(Some(owner.uid), set.uid);
        assert_eq!(machine.spec.provider_id.as_deref(), Some("sim:///w-1-a"));
        assert_eq!(machine.metadata.finalizers.map(|all| all.len()), Some(1));
        let annotations = set.annotations.expect("annotations");
        assert!(!annotations.contains_key(RESERVED_NUMBERS) && annotations.contains_key("team"));
    }

    /// Runs the garbage collector of a cluster.
    async fn collector(client: kube::Client, clock: machinist_kube::SharedClock) {
        let mut config = machinist_kcm::KcmConfig::new(clock);
        config.collect_defined_kinds = true;
        tokio::spawn(machinist_kcm::run(client, config));
        sleep(Duration::from_secs(10)).await;
    }

    /// The names of the stored Machines and sets.
    async fn stored(client: &kube::Client) -> Vec<String> {
        let mut names = Vec::new();
        for kind in 2..KINDS.len() {
            let listed = api(client, kind, "team").list(&ListParams::default()).await.expect("a list");
            names.extend(listed.items.into_iter().filter_map(|object| object.metadata.name));
        }
        names
    }

    /// `kubectl apply` of the same dump loses the set and the Machine within seconds.
    #[tokio::test(start_paused = true)]
    async fn no_garbage_collector_deletes_what_was_restored() {
        let clock = TokioClock::starting_at(SystemClock.now());
        let server = Server::new(Config { clock: Arc::new(clock), ..Config::default() });
        let client = prepared(&server).await;
        let clock = Arc::new(machinist_kube::TokioClock::starting_at(SystemClock.now()));
        collector(client.clone(), clock).await;
        let dump = dump(DUMP).expect("a dump");

        for saved in &dump.0 {
            let owner = saved.owner.as_ref().map(|(kind, name)| {
                let kind = KINDS[*kind].1;
                json!({"apiVersion": MACHINE_API, "kind": kind, "name": name, "uid": "old", "controller": true})
            });
            let mut body = saved.body.clone();
            body["metadata"]["ownerReferences"] = owner.map_or(json!([]), |owner| json!([owner]));
            body["metadata"]["finalizers"] = json!([]);
            let object = serde_json::from_value(body).expect("an object");
            let created = api(&client, saved.kind, "team").create(&PostParams::default(), &object).await;
            created.expect("created");
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(stored(&client).await, ["w"], "the collector deletes what names an old UID");
        api(&client, 2, "team").delete("w", &DeleteParams::default()).await.expect("deleted");
        sleep(Duration::from_secs(60)).await;

        let (output, _) = Output::memory();
        restore(&client, &dump, false, SystemClock.now(), &output).await.expect("restored");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(stored(&client).await, ["w", "w-1", "w-1-a"]);
        let machine = api(&client, 4, "team").get("w-1-a").await.expect("the Machine");
        assert_eq!(machine.metadata.deletion_timestamp, None);
        // The new references work as such: without the set, the Machine is deleted.
        api(&client, 3, "team").delete("w-1", &DeleteParams::default()).await.expect("deleted");
        sleep(Duration::from_secs(60)).await;
        let machine = api(&client, 4, "team").get("w-1-a").await.expect("its finalizer keeps it");
        assert!(machine.metadata.deletion_timestamp.is_some());
    }

    #[tokio::test]
    async fn a_child_without_its_owner_is_rejected_before_any_write() {
        let client = server().await;
        let (output, printed) = Output::memory();
        let first =
            DUMP.find("- apiVersion: machine.sapcloud.io/v1alpha1\n  kind: MachineSet").expect("a set");
        let only_machine = dump(&DUMP[..first]).expect("a dump");
        let result = restore(&client, &only_machine, false, SystemClock.now(), &output).await;
        assert_eq!(
            error(result),
            "Machine team/w-1-a: the garbage collector would delete it, because its owner MachineSet w-1 is neither in the \
             dump nor in the cluster. Add the owner to the dump, or remove metadata.ownerReferences"
        );
        assert_eq!(printed.text(), "");
    }

    #[test]
    fn objects_that_cannot_be_restored_are_rejected() {
        let deleting =
            DUMP.replace("    uid: old-machine\n", "    deletionTimestamp: 2026-11-25T22:00:00Z\n");
        assert!(error(dump(&deleting)).contains("metadata.deletionTimestamp: the object was being deleted"));
        let worker = DUMP.replace("kind: MachineSet, name: w-1,", "kind: Worker, name: w-1,");
        assert!(
            error(dump(&worker)).contains("owner Worker w-1 is not restored"),
            "{}",
            error(dump(&worker))
        );
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";
        assert!(error(dump(pod)).contains("expected one of Secret, MachineClass, MachineDeployment"));
    }

    #[tokio::test]
    async fn a_restore_beside_a_running_controller_is_rejected() {
        let client = server().await;
        let leases: Api<Lease> = Api::namespaced(client.clone(), "team");
        let lease = json!({
            "metadata": {"name": "machine-controller"},
            "spec": {"holderIdentity": "mc-0", "leaseDurationSeconds": 15, "renewTime": "2026-11-25T22:00:00.000000Z"},
        });
        let lease = serde_json::from_value(lease).expect("a Lease");
        leases.create(&PostParams::default(), &lease).await.expect("created");
        let (output, _) = Output::memory();
        let dump = dump(DUMP).expect("a dump");
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let result = restore(&client, &dump, false, at("2026-11-25T22:00:10Z"), &output).await;
        assert!(error(result).starts_with("Lease team/machine-controller is held by mc-0."));
        restore(&client, &dump, true, at("2026-11-25T22:00:20Z"), &output)
            .await
            .expect("the Lease has expired");
    }
}
