//! Tests that the reference pages of the book describe this program. `UPDATE_EXPECT=1` rewrites the
//! page of the flags.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use machinist_api::{Machine, MachineDeployment};
use serde_json::{Value, json};

use crate::process::{Ended, Process, Up, call, free_port, machinist};
use crate::processes::{Fleet, NAMESPACE, apply, are_ready, quick_start, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn page(name: &str) -> PathBuf {
    Path::new(ROOT).join("docs/src/reference").join(name)
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn the_flags_are_those_of_help() {
    const MARK: &str = "<!-- The rest of this page is written by a test. -->\n";
    let help = |line: &str| {
        // Without a terminal, the variable would set the width of the text.
        let ended = Ended::of(machinist(line).env_remove("COLUMNS"));
        assert_eq!(ended.code, Some(0), "{line}: {}", ended.stderr);
        ended.stdout
    };
    let root = help("--help");
    let list = root.split("Commands:\n").nth(1).expect("the help lists the commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let first_words = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> = first_words.filter(|word| !word.is_empty() && *word != "help").collect();
    assert!(commands.contains(&"up") && commands.contains(&"machine-controller"), "{commands:?}");
    let mut expected = format!("\n## machinist\n\n```text\n{}```\n", root);
    for command in commands {
        let text = help(&format!("{command} --help"));
        expected += &format!("\n## machinist {command}\n\n```text\n{text}```\n");
    }
    let file = page("flags.md");
    let text = read(&file);
    let (by_hand, written) = text.split_once(MARK).expect("the page has the mark");
    if written != expected && std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, format!("{by_hand}{MARK}{expected}")).expect("the page is writable");
    } else {
        assert!(
            written == expected,
            "docs/src/reference/flags.md differs from --help; UPDATE_EXPECT=1 writes it"
        );
    }
}

/// First words of the names of metrics: our metrics, and metrics of other programs.
const PREFIXES: [&str; 11] = [
    "machinist_",
    "mcm_",
    "process_",
    "node_controller_",
    "service_controller_",
    "route_controller_",
    "running_managed_",
    "hcloud_api_",
    "rest_client_",
    "workqueue_",
    "leader_election_",
];

/// Returns the metrics that the page lists, without labels.
fn listed_metrics() -> BTreeSet<String> {
    let text = read(&page("metrics.md"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.map(|row| row.split('`').next().unwrap_or_default().to_owned());
    names.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix))).collect()
}

/// Returns all Rust sources below a folder.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() { text += &sources(&path) } else { text += &read(&path) }
    }
    text
}

#[test]
fn the_metrics_are_those_of_the_code() {
    let crates = Path::new(ROOT).join("crates/core");
    let program = Path::new(ROOT).join("crates/machinist/src");
    let text = sources(&crates.join("machinist-runtime/src"))
        + &sources(&crates.join("machinist-controllers/src"))
        + &sources(&program.join("wiring"))
        + &sources(&program.join("clouds"))
        + &sources(&program.join("cmd/cloud_controller_manager"));
    let after = |part: &str| {
        let parts: Vec<&str> = text.split(part).skip(1).collect();
        let is_in_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let name = |rest: &&str| rest.chars().take_while(|letter| is_in_name(*letter)).collect::<String>();
        parts.iter().map(name).collect::<BTreeSet<String>>()
    };
    let mut names = BTreeSet::new();
    for prefix in PREFIXES {
        let rests = after(&format!("\"{prefix}"));
        names.extend(rests.iter().map(|rest| format!("{prefix}{rest}")));
    }
    // A store is named after the resource that it contains.
    assert!(names.remove("machinist_store_"), "the stores are counted under another name: {names:?}");
    let stored = text.lines().filter(|line| line.contains("stored! {"));
    let resources = stored.filter_map(|line| line.split_once(" as \"")?.1.split('"').next());
    names.extend(resources.map(|resource| format!("machinist_store_{resource}")));
    names.extend(
        after("const RESOURCE: &'static str = \"")
            .iter()
            .map(|resource| format!("machinist_store_{resource}")),
    );
    assert_eq!(listed_metrics(), names, "left: docs/src/reference/metrics.md, right: the code");
}

/// Compares the metrics of a running controller with the page.
fn check_metrics(port: u16) {
    let answer = call(&format!("http://127.0.0.1:{port}"), "GET", "/metrics", "");
    let text = answer.as_str().expect("text").to_owned();
    let lines_of = |start: &str| -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix(start)?.split(' ').next()).collect()
    };
    assert_eq!(lines_of("# HELP "), lines_of("# TYPE "), "each metric has a help line");
    let listed = listed_metrics();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series = series.filter_map(|line| line.split([' ', '{']).next());
    let names: BTreeSet<String> = series
        .map(|series| {
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end));
            of_histogram.unwrap_or(series).to_owned()
        })
        .collect();
    let unlisted: Vec<_> = names.difference(&listed).collect();
    assert!(!names.is_empty() && unlisted.is_empty(), "not in docs/src/reference/metrics.md: {unlisted:?}");
}

/// Creates the objects of the manifests in the page.
async fn install_roles(client: &Client) {
    let text = read(&page("permissions.md")).replace("NAMESPACE", NAMESPACE);
    for block in text.split("```yaml\n").skip(1) {
        let manifest = block.split("```").next().unwrap_or_default();
        for object in machinist_api::manifest::parse_manifest(manifest).expect("a manifest") {
            let resource = format!("{}s", object.kind.to_lowercase());
            let group = match object.kind.as_str() {
                "ServiceAccount" => "/api/v1".to_owned(),
                _ => format!("/apis/{}", object.api_version),
            };
            let path = match &object.namespace {
                Some(namespace) => format!("{group}/namespaces/{namespace}/{resource}"),
                None => format!("{group}/{resource}"),
            };
            apply(client, &path, object.body).await;
        }
    }
}

/// Writes a kubeconfig with a token of a ServiceAccount.
async fn kubeconfig_of(up: &Up, client: &Client, account: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    let answer: Value = client.request(request).await.expect("a token");
    let token = answer["status"]["token"].as_str().expect("a token");
    let file = up.folder.path().join(account);
    let ca = up.folder.path().join("ca.crt");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": up.api_server, "certificate-authority": ca}}],
        "users": [{"name": "a", "user": {"token": token}}],
    });
    fs::write(&file, text.to_string()).expect("written");
    file.display().to_string()
}

/// A pod that a budget keeps on the Node, with a volume.
async fn occupy(client: &Client, node: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web"}]}
    });
    apply(client, "/api/v1/namespaces/default/pods", pod).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    });
    apply(client, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget).await;
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "csi-1"},
        "spec": {"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": "data"}}
    });
    apply(client, "/apis/storage.k8s.io/v1/volumeattachments", attachment).await;
}

fn is_draining(machine: Option<&Machine>) -> bool {
    let operation = machine.and_then(Machine::last_operation);
    operation
        .and_then(|operation| operation.description.as_deref())
        .is_some_and(|text| text.contains("Drain is blocked"))
}

async fn names_of(machines: &Api<Machine>) -> Vec<String> {
    let list = machines.list(&ListParams::default()).await.expect("listed");
    list.items.into_iter().filter_map(|machine| machine.metadata.name).collect()
}

/// Plays all writes of the controllers with the roles of the page: creation, a deleted Node, a
/// forced drain, and the deletion of everything.
#[tokio::test]
async fn the_roles_of_the_book_are_enough() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    quick_start(&client).await;
    install_roles(&client).await;
    let mut fleet = Fleet::start(&up);
    let (controller_port, manager_port) = (free_port(), free_port());
    fleet.kubeconfig = kubeconfig_of(&up, &client, "machine-controller").await;
    let controller = fleet.machine_controller(controller_port);
    fleet.kubeconfig = kubeconfig_of(&up, &client, "machine-controller-manager").await;
    let manager = fleet.manager(manager_port);

    let deployments: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    until(deployments.clone(), "workers", are_ready(3)).await;
    let names = names_of(&machines).await;

    let reader = kubeconfig_of(&up, &client, "machinist-reader").await;
    let line = format!(
        "why machine/{} -n {NAMESPACE} --kubeconfig {reader} --controller http://127.0.0.1:1",
        names[0]
    );
    let why = Ended::of(&mut machinist(&line));
    assert_eq!(why.code, Some(0), "{}", why.stderr);
    assert!(why.stdout.contains("up to date"), "{}", why.stdout);

    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete(&names[0], &DeleteParams::default()).await.expect("the Node is being deleted");
    until(machines.clone(), &names[0], |machine: Option<&Machine>| machine.is_none()).await;
    until(deployments.clone(), "workers", are_ready(3)).await;

    occupy(&client, &names[1]).await;
    machines.delete(&names[1], &DeleteParams::default()).await.expect("the Machine is being deleted");
    until(machines.clone(), &names[1], is_draining).await;
    let force = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
    machines.patch(&names[1], &PatchParams::default(), &force).await.expect("labelled");
    until(machines.clone(), &names[1], |machine: Option<&Machine>| machine.is_none()).await;
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    assert!(attachments.get_opt("csi-1").await.expect("an answer").is_none(), "the attachment was deleted");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    assert!(pods.get_opt("web").await.expect("an answer").is_none(), "the pod was deleted");

    check_metrics(controller_port);
    check_metrics(manager_port);
    deployments.delete("workers", &DeleteParams::default()).await.expect("the deployment is being deleted");
    until(deployments, "workers", |deployment: Option<&MachineDeployment>| deployment.is_none()).await;
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.expect("listed").items;
    let reasons: BTreeSet<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert!(reasons.contains("SuccessfulCreate") && reasons.contains("MachineJoined"), "{reasons:?}");
    assert!(!reasons.contains("ChangeRefused"), "{events:#?}");
    for process in [controller, manager] {
        let log = Process::terminate(process).cleanly();
        assert!(!log.contains("forbidden"), "{log}");
    }
}
