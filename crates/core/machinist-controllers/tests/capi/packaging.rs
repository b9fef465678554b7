//! The files of `deploy/capi`, with the rules that clusterctl applies to them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinist_api::crd;
use machinist_api::manifest::{ManifestObject, parse_manifest};
use serde_json::{Value, json};

use super::World;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/capi");

fn read(path: &str) -> String {
    let file = PathBuf::from(FOLDER).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Replaces the variables of clusterctl by their defaults or by fixed values, and returns the names
/// of those without a default.
fn substituted(text: &str) -> (String, BTreeSet<String>) {
    let (mut done, mut rest, mut required) = (String::new(), text, BTreeSet::new());
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after.split_once('}').expect("a variable ends with a brace");
        let (name, default) = match variable.split_once(":=").or_else(|| variable.split_once(":-")) {
            Some((name, default)) => (name, Some(default)),
            None => (variable, None),
        };
        let is_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
        assert!(!name.is_empty() && name.chars().all(is_name), "${{{variable}}} is not a variable");
        let value = match (name, default) {
            (_, Some(default)) => default.trim_matches('"').to_owned(),
            (name, None) => {
                required.insert(name.to_owned());
                let is_count = name.ends_with("_COUNT");
                if is_count { "1".to_owned() } else { "v1.36.3".to_owned() }
            }
        };
        done.push_str(before);
        done.push_str(&value);
        rest = after;
    }
    done.push_str(rest);
    (done, required)
}

fn objects(text: &str) -> Vec<ManifestObject> {
    parse_manifest(text).expect("a manifest")
}

/// One provider: its folder, its definitions and the text that clusterctl installs.
fn providers() -> [(&'static str, Vec<CustomResourceDefinition>, String); 2] {
    [
        ("docker", crd::docker_crds(), components("docker", &crd::docker_crds())),
        ("mailgun", crd::mailgun_crds(), components("mailgun", &crd::mailgun_crds())),
    ]
}

/// The objects that `cargo xtask components` writes: the definitions, and the files of the list.
fn components(provider: &str, crds: &[CustomResourceDefinition]) -> String {
    let definitions = crds.iter().map(|definition| crd::render_yaml(definition).expect("a CRD renders"));
    let list = read(&format!("{provider}/components.txt"));
    let files = list.lines().filter(|line| !line.starts_with('#'));
    definitions.chain(files.map(|file| read(&format!("{provider}/{file}")))).collect()
}

/// `clusterctl` reads the contract of each release series from this file.
#[test]
fn the_metadata_names_a_contract_of_the_definitions() {
    for (provider, crds, _) in providers() {
        let metadata: Value =
            serde_saphyr::from_str(&read(&format!("{provider}/metadata.yaml"))).expect("YAML");
        assert_eq!(metadata["apiVersion"], "clusterctl.cluster.x-k8s.io/v1alpha3");
        assert_eq!(metadata["kind"], "Metadata");
        let series = metadata["releaseSeries"].as_array().expect("release series");
        let mut version =
            env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<u64>().expect("a number"));
        let (major, minor) = (version.next(), version.next());
        let own = series
            .iter()
            .find(|release| (release["major"].as_u64(), release["minor"].as_u64()) == (major, minor));
        let contract = own.expect("the series of this version")["contract"].as_str().expect("a contract");
        for crd in crds {
            let labels = crd.metadata.labels.unwrap_or_default();
            assert!(labels.contains_key(&format!("cluster.x-k8s.io/{contract}")), "{provider}: {contract}");
        }
    }
}

/// `clusterctl` rejects components that do not follow these rules.
#[test]
fn the_components_follow_the_rules_of_clusterctl() {
    for (provider, crds, text) in providers() {
        let (text, required) = substituted(&text);
        assert!(required.is_empty(), "{provider}: variables without a default: {required:?}");
        let objects = objects(&text);
        let of_kind = |kind: &str| objects.iter().filter(|object| object.kind == kind).collect::<Vec<_>>();
        let namespaces = of_kind("Namespace");
        assert_eq!(namespaces.len(), 1, "{provider}: exactly one Namespace");
        let namespace = namespaces[0].name.as_str();
        let namespaced = ["ServiceAccount", "Role", "RoleBinding", "Deployment", "Service", "Secret"];
        for object in objects.iter().filter(|object| namespaced.contains(&object.kind.as_str())) {
            assert_eq!(object.namespace.as_deref(), Some(namespace), "{} {}", object.kind, object.name);
        }
        let installed: BTreeSet<&str> = of_kind("CustomResourceDefinition")
            .into_iter()
            .map(|definition| definition.name.as_str())
            .collect();
        let expected: BTreeSet<&str> =
            crds.iter().filter_map(|definition| definition.metadata.name.as_deref()).collect();
        assert_eq!(
            installed, expected,
            "{provider}: the manifests have exactly the definitions of the crate"
        );
        let deployments = of_kind("Deployment");
        assert_eq!(deployments.len(), 1);
        let pod = &deployments[0].body["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["name"], "manager");
        let account = pod["serviceAccountName"].as_str().unwrap_or_default();
        for binding in of_kind("ClusterRoleBinding").into_iter().chain(of_kind("RoleBinding")) {
            let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
            assert_eq!(binding.body["subjects"], subject, "{}", binding.name);
        }
    }
}

/// Whether a role permits these verbs.
fn permits(role: &Value, group: &str, resource: &str, verbs: &[&str]) -> bool {
    let has = |list: &Value, name: &str| list.as_array().into_iter().flatten().any(|entry| entry == name);
    let rules = role["rules"].as_array().into_iter().flatten();
    let rules: Vec<&Value> =
        rules.filter(|rule| has(&rule["apiGroups"], group) && has(&rule["resources"], resource)).collect();
    verbs.iter().all(|verb| rules.iter().any(|rule| has(&rule["verbs"], verb)))
}

/// Cluster API's tutorial names more permissions than the providers use.
#[test]
fn the_roles_permit_what_the_tutorial_asks_for() {
    const OWN: &str = "infrastructure.cluster.x-k8s.io";
    const CORE: &str = "cluster.x-k8s.io";
    let read_only = ["get", "list", "watch"];
    for (provider, _, text) in providers() {
        let objects = objects(&substituted(&text).0);
        let role = objects.iter().find(|object| object.kind == "ClusterRole").expect("a role");
        let permits = |group, resource: &str, verbs: &[&str]| {
            assert!(permits(&role.body, group, resource, verbs), "{provider}: {resource} {verbs:?}");
        };
        for resource in ["clusters", "clusters/status", "machines", "machines/status"] {
            permits(CORE, resource, &read_only);
        }
        let kinds = match provider {
            "docker" => ["dockerclusters", "dockermachines"],
            _ => ["mailgunclusters", "mailgunmachines"],
        };
        for kind in kinds {
            permits(OWN, kind, &["get", "list", "watch", "create", "update", "patch", "delete"]);
            permits(OWN, &format!("{kind}/status"), &["get", "update", "patch"]);
            permits(OWN, &format!("{kind}/finalizers"), &["update"]);
        }
        if provider == "docker" {
            permits("", "secrets", &["get"]);
            permits("", "configmaps", &["get"]);
        }
        let leases = objects.iter().find(|object| object.kind == "Role").expect("a role for the Lease");
        let verbs = ["get", "create", "update", "patch"];
        assert!(self::permits(&leases.body, "coordination.k8s.io", "leases", &verbs));
    }
}

/// `clusterctl` sets five variables. The API server accepts the objects of every template.
#[tokio::test]
async fn the_objects_of_every_template_are_accepted() {
    let world = World::new().await;
    let known = [
        "CLUSTER_NAME",
        "NAMESPACE",
        "KUBERNETES_VERSION",
        "CONTROL_PLANE_MACHINE_COUNT",
        "WORKER_MACHINE_COUNT",
    ];
    let mut accepted = 0;
    let folder = fs::read_dir(Path::new(FOLDER).join("docker")).expect("a folder");
    for entry in folder {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        if !name.starts_with("cluster-template") && !name.starts_with("clusterclass") {
            continue;
        }
        let (text, required) = substituted(&read(&format!("docker/{name}")));
        let unknown: Vec<&String> = required.iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        for object in objects(&text).into_iter().filter(|object| object.api_version.starts_with(super::GROUP))
        {
            accepted += 1;
            let metadata = json!({"name": format!("x{accepted}")});
            world.create_with(&object.kind, metadata, object.body["spec"].clone()).await;
        }
    }
    assert!(8 < accepted, "expected more than 8 objects, got {accepted}");
}
