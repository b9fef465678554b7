use std::io::Write as _;

use super::*;

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

fn read_texts(texts: &[&str]) -> (Vec<PathBuf>, anyhow::Result<Definitions>) {
    let files: Vec<_> = texts
        .iter()
        .map(|text| {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(text.as_bytes()).expect("written");
            file
        })
        .collect();
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
    let read = read(&paths);
    (paths, read)
}

/// Returns the error as a user sees it.
async fn error_of(texts: &[&str]) -> String {
    let (paths, read) = read_texts(texts);
    let error = match read {
        Err(error) => error,
        Ok(definitions) => definitions.rehearse().await.expect_err(texts[0]),
    };
    let names = paths.iter().zip(["FILE", "SECOND"]);
    names.fold(crate::output::one_line(&error), |error, (path, name)| {
        error.replace(&path.display().to_string(), name)
    })
}

#[tokio::test]
async fn an_error_names_file_document_and_field() {
    let second = |change: fn(String) -> String| {
        let other = WIDGETS.replace("widgets", "gadgets").replace("Widget", "Gadget");
        format!("{WIDGETS}---\n{}", change(other))
    };
    let gadgets = "--crds FILE: document 2: CustomResourceDefinition gadgets.example.com: ";
    for (text, expected) in [
        ("a: [".to_owned(), vec!["--crds FILE: line 1: invalid YAML".to_owned()]),
        (String::new(), vec!["--crds FILE: expected at least one object, found none".to_owned()]),
        (
            format!("{WIDGETS}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n"),
            vec![
                "--crds FILE: document 2: kind: expected CustomResourceDefinition, got ConfigMap".to_owned(),
            ],
        ),
        (
            second(|text| text.replace("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")),
            vec![format!(
                "{gadgets}apiVersion: expected apiextensions.k8s.io/v1, got apiextensions.k8s.io/v1beta1"
            )],
        ),
        (
            second(|text| text.replace("name: gadgets.example.com", "labels: {a: b}")),
            vec!["--crds FILE: document 2: CustomResourceDefinition: metadata.name: is missing".to_owned()],
        ),
        (
            second(|text| text.replace("scope: Namespaced", "scope: Everywhere")),
            vec![gadgets.to_owned(), "spec.scope".to_owned()],
        ),
        (
            second(|text| text.replace("storage: true", "storage: false")),
            vec![gadgets.to_owned(), "spec.versions".to_owned()],
        ),
        (
            second(|text| text.replace("served: true", "serves: true")),
            vec![gadgets.to_owned(), "spec.versions[0].serves".to_owned()],
        ),
        (
            second(|text| text.replace("served: true", "served: maybe")),
            vec![gadgets.to_owned(), "served".to_owned()],
        ),
        (
            second(|text| text.replace("type: integer", "type: number, minimum: many")),
            vec![gadgets.to_owned(), "minimum".to_owned()],
        ),
        (
            // The first definition has the same kind.
            second(|text| text.replace("kind: Gadget", "kind: Widget")),
            vec![
                gadgets.to_owned(),
                "spec.names: another definition of the group has the same names".to_owned(),
            ],
        ),
    ] {
        let error = error_of(&[&text]).await;
        for part in &expected {
            assert!(error.contains(part.as_str()), "expected {part:?} in {error}");
        }
    }
    let error = error_of(&[WIDGETS, WIDGETS]).await;
    let twice = "--crds SECOND: document 1: CustomResourceDefinition widgets.example.com: metadata.name: duplicate object: --crds FILE, \
                 document 1 has the same kind, namespace and name. Remove one of them";
    assert_eq!(error, twice);
}

#[tokio::test]
async fn a_definition_read_from_a_cluster_can_be_applied() {
    let read_back = "metadata: {name: widgets.example.com, uid: 7, resourceVersion: '12', generation: 3, creationTimestamp: \
                     '2026-01-01T00:00:00Z', managedFields: [{manager: kubectl}]}\nstatus: {conditions: [], storedVersions: [v1]}";
    let text = WIDGETS.replace("metadata: {name: widgets.example.com}", read_back);
    let (_, definitions) = read_texts(&[&text]);
    let definitions = definitions.expect("sound");
    definitions.rehearse().await.expect("accepted");
    let server = Server::new(embedded::config());
    let client = embedded::client(&server, AGENT);
    let widgets = || "CustomResourceDefinition widgets.example.com".to_owned();
    assert_eq!(definitions.apply(&client).await.expect("applied"), [(widgets(), "created")]);
    assert_eq!(definitions.apply(&client).await.expect("applied"), [(widgets(), "unchanged")]);
    let (_, other) = read_texts(&[&text.replace("type: integer", "type: string")]);
    let other = other.expect("sound");
    other.try_out(&client).await.expect("would be accepted");
    assert_eq!(
        definitions.apply(&client).await.expect("applied"),
        [(widgets(), "unchanged")],
        "the definition was changed"
    );
    assert_eq!(other.apply(&client).await.expect("applied"), [(widgets(), "updated")]);
}
