use std::io::Write as _;

use machinist_apiserver::{Config, Identity};
use machinist_kube::{ClientOptions, layer_client};

use super::*;

#[test]
fn the_quick_start_is_a_deployment_with_class_and_secret() {
    let manifest = read(UpCloud::Sim, &[], &[]).expect("sound");
    let kinds: Vec<&str> = manifest.objects.iter().map(|document| document.object.kind.as_str()).collect();
    assert_eq!(kinds, ["Secret", "MachineClass", "MachineDeployment"]);
    assert_eq!(manifest.awaited(), [Awaited::Deployment("default".to_owned(), "workers".to_owned())]);
    let spec = &manifest.objects[2].object.body["spec"];
    assert_eq!(spec["replicas"], 3);
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 1);
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
}

#[test]
fn the_quick_start_of_hcloud_has_the_token_of_the_stand_in() {
    let manifest = read(UpCloud::Hcloud, &[], &[]).expect("sound");
    let kinds: Vec<&str> = manifest.objects.iter().map(|document| document.object.kind.as_str()).collect();
    assert_eq!(kinds, ["Secret", "MachineClass", "MachineDeployment"]);
    let body = |index: usize| &manifest.objects[index].object.body;
    assert_eq!(body(0)["stringData"]["token"], crate::cmd::up::cloud::TOKEN);
    assert_eq!((&body(1)["provider"], &body(2)["spec"]["replicas"]), (&"hcloud".into(), &3.into()));
}

/// Returns the error of checking manifests, as a user sees it.
async fn error_of(texts: &[&str]) -> String {
    let files: Vec<_> = texts
        .iter()
        .map(|text| {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(text.as_bytes()).expect("written");
            file
        })
        .collect();
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
    let error = match read(UpCloud::Sim, &paths, &[]) {
        Err(error) => error,
        Ok(manifest) => manifest.rehearse(None).await.expect_err(texts[0]),
    };
    let error = crate::output::one_line(&error);
    paths
        .iter()
        .zip(["FILE", "SECOND"])
        .fold(error, |error, (path, name)| error.replace(&path.display().to_string(), name))
}

const CLASS: &str = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: a}\nproviderSpec: {size: small}\n";

#[tokio::test]
async fn an_error_names_file_document_and_field() {
    let secret = |namespace: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: {namespace}}}\n")
    };
    let set = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineSet\nmetadata: {name: w}\nspec: {replicas: -1, selector: \
               {}, template: {spec: {class: {kind: MachineClass, name: a}}}}\n";
    let team = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
    for (text, expected) in [
        ("a: [".to_owned(), "manifest FILE: line 1: invalid YAML"),
        (String::new(), "manifest FILE: expected at least one object, found none"),
        (format!("{CLASS}provoder: sim\n"), "manifest FILE: document 1: MachineClass a: provoder: "),
        (format!("{CLASS}---\nkind: Secret\n"), "manifest FILE: document 2: apiVersion: is missing"),
        (
            format!("{CLASS}---\n{}", CLASS.replace("{name: a}", "{name: b, namespace: other}")),
            "manifest FILE: document 2: MachineClass b: metadata.namespace: all machine objects must be in one \
             namespace, because the controllers serve only one; found default before and other here",
        ),
        (
            set.to_owned(),
            "manifest FILE: document 1: MachineSet w: spec.replicas: expected 0 or more, got -1",
        ),
        (
            secret("team"),
            "manifest FILE: document 1: Secret s: metadata.namespace: expected an existing namespace (default, \
             kube-node-lease, kube-public, kube-system) or one that the manifest creates before this object, got team",
        ),
        (
            format!("{}---\n{team}", secret("team")),
            "manifest FILE: document 1: Secret s: metadata.namespace: Namespace team must come before this object. Move \
             manifest FILE, document 2 up",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: d}\n".to_owned(),
            "manifest FILE: document 1: CronJob d: kind: the API server has no kind CronJob in batch/v1. \
             Use a built-in kind, or add its CustomResourceDefinition to the manifest before this object",
        ),
        (
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: 'Not A Name'}}]}".to_owned(),
            "manifest FILE: document 1: items[0]: Secret Not A Name: the API server rejected the object: ",
        ),
        (
            format!("{CLASS}---\n{CLASS}"),
            "manifest FILE: document 2: MachineClass a: metadata.name: duplicate object: manifest \
             FILE, document 1 has the same kind, namespace and name. Remove one of them",
        ),
    ] {
        let error = error_of(&[&text]).await;
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[tokio::test]
async fn a_duplicate_object_is_an_error_with_both_positions() {
    let error = error_of(&[CLASS, &CLASS.replace("{name: a}", "{name: a, namespace: default}")]).await;
    let expected = "manifest SECOND: document 1: MachineClass a: metadata.name: duplicate object: \
                    manifest FILE, document 1 has the same kind, namespace and name. Remove one of them";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_manifest_may_create_its_namespace_and_definition() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ships.example.org}\n\
                      spec: {group: example.org, scope: Namespaced, names: {kind: Ship, plural: ships}, versions: [{name: v1, \
                      served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n";
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: team}}\n---\n{}---\n{definition}---\napiVersion: example.org/v1\n\
         kind: Ship\nmetadata: {{name: s, namespace: team}}\n",
        CLASS.replace("{name: a}", "{name: a, namespace: team}")
    );
    file.write_all(text.as_bytes()).expect("written");
    let manifest = read(UpCloud::Sim, &[file.path().to_owned()], &[]).expect("sound");
    assert_eq!(manifest.namespace, "team");
    manifest.rehearse(None).await.expect("all objects are accepted");
}

#[test]
fn a_missing_manifest_is_named() {
    let error = format!("{:#}", read(UpCloud::Sim, &["no/such/file.yaml".into()], &[]).expect_err("missing"));
    assert!(error.starts_with("manifest no/such/file.yaml: cannot be read: "), "{error}");
}

#[tokio::test]
async fn a_manifest_may_need_objects_of_an_earlier_run() {
    let written = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        let manifest = read(UpCloud::Sim, &[file.path().to_owned()], &[]).expect("sound");
        (file, manifest)
    };
    let kept = Server::new(Config::default());
    let client = layer_client(kept.service_as(Identity::admin()), &ClientOptions::new("up"));
    let first = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n---\n\
        apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.t.dev}\n\
        spec: {group: t.dev, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}, \
        versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n---\n\
        apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: team}\nimmutable: true\nstringData: {a: b}\n";
    let (_file, manifest) = written(first);
    let mut kinds = Kinds::new(client);
    for document in &manifest.objects {
        apply(&mut kinds, document).await.expect("applied");
    }
    let (_file, second) =
        written("apiVersion: t.dev/v1\nkind: Thing\nmetadata: {name: a, namespace: team}\n");
    second.rehearse(Some(&kept)).await.expect("the namespace and the kind exist");
    assert!(second.rehearse(None).await.is_err());
    // An existing object is updated and may reject the update. An object that is being deleted is
    // not updated.
    let (_file, third) =
        written("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: team}\nstringData: {a: c}\n");
    let refused = third.rehearse(Some(&kept)).await.expect_err("the Secret is immutable");
    assert!(refused.to_string().contains("Secret s: the API server rejected the object"), "{refused}");
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(kinds.client.clone(), "team");
    let held = Patch::Merge(serde_json::json!({"metadata": {"finalizers": ["example.org/held"]}}));
    secrets.patch("s", &PatchParams::default(), &held).await.expect("patched");
    secrets.delete("s", &DeleteParams::default()).await.expect("deletion begins");
    third.rehearse(Some(&kept)).await.expect("the Secret will be recreated");
}
