//! Tests of `machinist api-server`, with clients like other controllers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::process::{Ended, Process, client, machinist};

const WIDGETS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
";

/// `machinist api-server` after its "started" event.
struct ApiServer {
    process: Process,
    kubeconfig: PathBuf,
    url: String,
    definitions: Vec<String>,
}

impl ApiServer {
    fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command);
        let started: Value =
            serde_json::from_str(&process.line_with("\"started\"")).expect("one JSON object");
        let text = |field: &str| started[field].as_str().expect(field).to_owned();
        let definitions = started["definitions"].as_array().expect("definitions").iter();
        let definitions =
            definitions.map(|definition| definition.as_str().expect("a name").to_owned()).collect();
        Self { process, kubeconfig: text("kubeconfig").into(), url: text("apiServer"), definitions }
    }

    async fn client(&self) -> Client {
        client(&self.kubeconfig).await
    }

    /// Stops the process and returns its "stopped" event.
    fn stop(mut self) -> Value {
        self.process.ask_to_stop();
        let stopped = serde_json::from_str(&self.process.line_with("\"stopped\"")).expect("one JSON object");
        assert_eq!(self.process.wait().cleanly(), "");
        stopped
    }
}

fn api_server(more: &str) -> Command {
    machinist(&format!("api-server -o json {more}"))
}

fn in_folder(folder: &Path, more: &str) -> Command {
    let mut command = api_server(more);
    command.arg("--data-dir").arg(folder);
    command
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    file
}

fn custom(client: Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", "v1", kind);
    Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind))
}

fn widget(name: &str, size: i64) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size},
    }))
    .expect("an object")
}

fn child_of(owner: &DynamicObject, name: &str) -> ConfigMap {
    let types = owner.types.as_ref().expect("a type");
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": types.api_version, "kind": types.kind, "name": owner.name_any(), "uid": owner.uid(),
    }]}}))
    .expect("a ConfigMap")
}

#[tokio::test]
async fn a_custom_resource_survives_a_restart_and_is_collected() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let (folder, crds) = (parent.path().join("data"), file(parent.path(), "crds.yaml", WIDGETS));
    let with_crds = format!("--crds {}", crds.display());
    let first = ApiServer::start(&mut in_folder(&folder, &with_crds));
    assert_eq!(first.definitions, ["widgets.example.com"]);
    let widgets = custom(first.client().await, "Widget");
    let watched = tokio::spawn(await_condition(widgets.clone(), "one", |widget: Option<&DynamicObject>| {
        widget.is_some()
    }));
    let created = widgets.create(&PostParams::default(), &widget("one", 1)).await.expect("created");
    let seen = watched.await.expect("no panic").expect("watched");
    assert_eq!(seen.and_then(|widget| widget.uid()), created.uid());
    let url = first.url.clone();
    let copy = file(parent.path(), "copy", &std::fs::read_to_string(&first.kubeconfig).expect("readable"));
    for private in ["ca.key", "tokens.key", "kubeconfig", "state.redb", "api-server.json", "lock"] {
        let mode = std::fs::metadata(folder.join(private)).expect(private).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{private}");
    }
    let stopped = first.stop();
    assert_eq!(stopped["keptIn"], folder.to_str().expect("text"));
    assert_eq!(stopped["kubeconfigKept"], folder.join("kubeconfig").to_str().expect("text"));

    // The definition is kept too.
    let second = ApiServer::start(&mut in_folder(&folder, ""));
    assert_eq!((&second.url, second.definitions.len()), (&url, 1));
    let client = client(&copy).await;
    let widgets = custom(client.clone(), "Widget");
    let kept = widgets.get("one").await.expect("it exists");
    assert_eq!((kept.uid(), kept.resource_version()), (created.uid(), created.resource_version()));
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &child_of(&kept, "child")).await.expect("created");
    widgets.delete("one", &DeleteParams::default()).await.expect("deleted");
    await_condition(maps, "child", |map: Option<&ConfigMap>| map.is_none()).await.expect("watched");
    second.stop();
}

#[tokio::test]
async fn custom_kinds_added_by_a_client_are_collected() {
    let server = ApiServer::start(&mut api_server(""));
    assert_eq!(server.definitions, Vec::<String>::new());
    let client = server.client().await;
    let definition: DynamicObject = only_object(WIDGETS);
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    definitions.create(&PostParams::default(), &definition).await.expect("created");
    let is_established = |definition: Option<&DynamicObject>| {
        let conditions = definition.and_then(|definition| definition.data["status"]["conditions"].as_array());
        conditions.is_some_and(|all| {
            all.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        })
    };
    await_condition(definitions, "widgets.example.com", is_established).await.expect("watched");
    let widgets = custom(client.clone(), "Widget");
    let owner = widgets.create(&PostParams::default(), &widget("one", 1)).await.expect("created");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &child_of(&owner, "child")).await.expect("created");
    widgets.delete("one", &DeleteParams::default()).await.expect("deleted");
    await_condition(maps, "child", |map: Option<&ConfigMap>| map.is_none()).await.expect("watched");
    let stopped = server.stop();
    assert_eq!((&stopped["keptIn"], &stopped["kubeconfigKept"]), (&Value::Null, &Value::Null));
}

/// Parses a text with one object.
fn only_object(text: &str) -> DynamicObject {
    let objects = machinist_api::manifest::parse_manifest(text).expect("a manifest");
    serde_json::from_value(objects[0].body.clone()).expect("an object")
}

#[tokio::test]
async fn a_client_without_a_certificate_or_token_gets_401() {
    let server = ApiServer::start(&mut api_server(""));
    let mut kubeconfig = Kubeconfig::read_from(&server.kubeconfig).expect("a kubeconfig");
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(Default::default());
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("usable");
    let anonymous = Client::try_from(config.clone()).expect("a client");
    let refused =
        Api::<Namespace>::all(anonymous).list(&ListParams::default()).await.expect_err("no certificate");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 401), "{refused:?}");
    // A ServiceAccount token authenticates, but without a role it is not authorized.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(server.client().await, "default");
    await_condition(accounts.clone(), "default", |account: Option<&_>| account.is_some())
        .await
        .expect("watched");
    let request = serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
    let token =
        accounts.create_token_request("default", &PostParams::default(), &request).await.expect("a token");
    let mut with_token = config;
    with_token.auth_info.token = Some(token.status.expect("a status").token.into());
    let account = Client::try_from(with_token).expect("a client");
    let refused = Api::<Namespace>::all(account).list(&ListParams::default()).await.expect_err("no role");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused:?}");
    server.stop();
}

#[test]
fn a_definition_may_change_between_starts_except_its_scope() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("data");
    let start = |text: &str| {
        let crds = file(parent.path(), "crds.yaml", text);
        Ended::of_at_start(&mut in_folder(&folder, &format!("--crds {}", crds.display())))
    };
    assert!(start(WIDGETS).contains("\"how\":\"created\""));
    assert!(start(WIDGETS).contains("\"how\":\"unchanged\""));
    assert!(start(&WIDGETS.replace("integer", "string")).contains("\"how\":\"updated\""));
    // The scope cannot change, because objects may depend on it. The valid definition in the same
    // file is not applied either.
    let other = WIDGETS.replace("widgets", "gadgets").replace("Widget", "Gadget");
    let crds = file(
        parent.path(),
        "crds.yaml",
        &format!("{other}---\n{}", WIDGETS.replace("Namespaced", "Cluster")),
    );
    let ended = Ended::of(&mut in_folder(&folder, &format!("--crds {}", crds.display())));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
    let expected = format!(
        "error: --crds {}: document 2: CustomResourceDefinition widgets.example.com: the API server rejected the object: ",
        crds.display()
    );
    assert!(ended.stderr.starts_with(&expected) && ended.stderr.contains("spec.scope"), "{}", ended.stderr);
    let server = ApiServer::start(&mut in_folder(&folder, ""));
    assert_eq!(server.definitions, ["widgets.example.com"]);
    server.stop();
}

#[test]
fn the_output_names_addresses_examples_and_kept_state() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let out = parent.path().join("dev.kubeconfig");
    let mut process = Process::start(machinist("api-server --kubeconfig-out").arg(&out));
    for part in [
        "API server   https://127.0.0.1:",
        "Kubeconfig   ",
        "Kinds        built-in kinds; no CustomResourceDefinition",
        "Objects      in memory (use --data-dir to keep them)",
        "export KUBECONFIG=",
        "kubectl api-resources",
        "machinist crds | kubectl apply -f -",
        "Ready: the API server and its built-in controllers are running, without machine controllers",
    ] {
        process.line_with(part);
    }
    process.ask_to_stop();
    let line = process.line_with("Stopped the API server");
    assert!(line.contains("its objects are not kept (use --data-dir to keep them)"), "{line}");
    assert!(line.contains(&format!("no server answers at the address in {}", out.display())), "{line}");
    process.wait().cleanly();
}

#[test]
fn up_and_api_server_reject_directories_of_each_other() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let (alone, of_up) = (parent.path().join("alone"), parent.path().join("up"));
    Ended::of_at_start(&mut in_folder(&alone, ""));
    let ended = Ended::of(machinist("up --until ready --data-dir").arg(&alone));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
    let expected = format!(
        "error: --data-dir {0}: expected a directory of `machinist up`, but this one belongs to `machinist api-server`. ",
        alone.display()
    );
    assert!(ended.stderr.starts_with(&expected), "{}", ended.stderr);
    assert!(ended.stderr.contains("Nothing was changed. ") && !alone.join("ledger.jsonl").exists());
    Ended::of_at_start(&mut in_folder(&alone, ""));

    let ended = Ended::of(machinist("up --until ready --data-dir").arg(&of_up));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let refused = |part: &str| {
        let ended = Ended::of(&mut in_folder(&of_up, ""));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
        for part in [part, "othing was changed. "] {
            assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
        }
        assert!(!of_up.join("api-server.json").exists());
    };
    refused(
        "expected a directory of `machinist api-server`, but this one has up.json and belongs to another command",
    );
    for (name, expected) in
        [("up.json", "this one has ledger.jsonl and"), ("ledger.jsonl", "api-server.json is missing, but")]
    {
        std::fs::remove_file(of_up.join(name)).expect("removed");
        refused(expected);
    }
}

#[test]
fn an_inconsistent_directory_is_an_error_and_stays_unchanged() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("data");
    let running = ApiServer::start(&mut in_folder(&folder, ""));
    let refused = |parts: &[&str]| {
        let ended = Ended::of(&mut in_folder(&folder, ""));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
        }
    };
    refused(&["is in use by another process"]);
    running.stop();
    for (name, expected) in [
        (
            "state.redb",
            "state.redb (the API server's objects) is missing, but ca.crt, ca.key and tokens.key exist",
        ),
        ("ca.key", "ca.key is missing: expected the private key of ca.crt"),
        ("tokens.key", "tokens.key is missing: expected the key that signed"),
        ("api-server.json", "If this command created the directory, write the file again: echo"),
    ] {
        let whole = std::fs::read(folder.join(name)).expect(name);
        std::fs::remove_file(folder.join(name)).expect("removed");
        refused(&[expected, "othing was changed. "]);
        assert!(!folder.join(name).exists(), "{name} was recreated");
        std::fs::write(folder.join(name), whole).expect("written");
    }
    std::fs::remove_file(folder.join("kubeconfig")).expect("removed");
    let said = Ended::of_at_start(&mut in_folder(&folder, ""));
    assert!(said.contains("kubeconfig is missing or damaged and is written again"), "{said}");

    let home = parent.path().join("home");
    std::fs::create_dir(&home).expect("made");
    file(&home, "letter.txt", "Dear");
    let ended = Ended::of(&mut in_folder(&home, ""));
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("this one contains other files, such as letter.txt. Nothing was changed."),
        "{}",
        ended.stderr
    );
    assert_eq!(std::fs::read_dir(&home).expect("a folder").count(), 1);
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let (folder, crds) = (parent.path().join("data"), file(parent.path(), "crds.yaml", WIDGETS));
    let with_crds = format!("--crds {}", crds.display());
    let server = ApiServer::start(&mut in_folder(&folder, &with_crds));
    let widgets = custom(server.client().await, "Widget");
    for size in 0..20 {
        widgets.create(&PostParams::default(), &widget(&format!("w{size}"), size)).await.expect("created");
    }
    let patch = Patch::Merge(json!({"spec": {"size": 100}}));
    widgets.patch("w0", &PatchParams::default(), &patch).await.expect("patched");
    // Dropping a process kills it with SIGKILL.
    drop(server);
    let server = ApiServer::start(&mut in_folder(&folder, &with_crds));
    let widgets = custom(server.client().await, "Widget");
    let all = widgets.list(&ListParams::default()).await.expect("listed");
    assert_eq!(all.items.len(), 20);
    assert_eq!(widgets.get("w0").await.expect("it exists").data["spec"]["size"], 100);
    server.stop();
}
