//! A controller of another project, and its test against the embedded server: `cargo run -p
//! machinist-apiserver --example foreign_controller`.
//!
//! The controller keeps a ConfigMap for each Note. It is plain kube-rs and does not mention the
//! server. `main` is the test: it starts a server, runs the controller as a ServiceAccount, and
//! changes objects as a user would. Each step waits for a watch event. The clock is paused, so the
//! time limit of a step that fails passes at once.

#![expect(clippy::print_stdout, reason = "it prints each step")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource as _, ResourceExt as _};
use machinist_apiserver::{Authorization, Config, Identity, Server};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

// The controller.

/// A text that a user keeps. With the feature `derive` of kube, `#[derive(CustomResource)]` writes
/// the two `impl` blocks and the definition.
#[derive(Clone, Debug, Deserialize)]
struct Note {
    metadata: ObjectMeta,
    spec: NoteSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct NoteSpec {
    text: String,
}

impl k8s_openapi::Resource for Note {
    const API_VERSION: &'static str = "example.dev/v1";
    const GROUP: &'static str = "example.dev";
    const KIND: &'static str = "Note";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "notes";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Note {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Keeps a ConfigMap for each Note of the client's namespace until `stop` is sent or dropped.
async fn run_controller(client: Client, stop: oneshot::Receiver<()>) {
    let notes: Api<Note> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    Controller::new(notes, watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .graceful_shutdown_on(async { stop.await.unwrap_or_default() })
        .run(reconcile, retry, Arc::new(maps))
        .for_each(|result| async {
            if let Err(error) = result {
                println!("The controller reports: {error}");
            }
        })
        .await;
}

async fn reconcile(note: Arc<Note>, maps: Arc<Api<ConfigMap>>) -> Result<Action, kube::Error> {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: note.metadata.name.clone(),
            owner_references: note.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("text".to_owned(), note.spec.text.clone())])),
        ..ConfigMap::default()
    };
    maps.patch(&note.name_any(), &PatchParams::apply("note-keeper").force(), &Patch::Apply(map)).await?;
    Ok(Action::await_change())
}

fn retry(_note: Arc<Note>, _error: &kube::Error, _maps: Arc<Api<ConfigMap>>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

/// Definition of the kind, with a rule in CEL.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "notes.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced", "names": {"plural": "notes", "kind": "Note"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": {"type": "object", "required": ["text"], "properties": {
                        "text": {
                            "type": "string", "maxLength": 1000,
                            "x-kubernetes-validations": [{"rule": "self.trim() != ''", "message": "must not be blank"}]
                        }
                    }}
                }}}
            }]
        }
    })
}

/// Permissions of the controller.
fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "note-keeper"},
        "rules": [
            {"apiGroups": ["example.dev"], "resources": ["notes"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch"]}
        ]
    })
}

// Its test.

/// User name of the controller's ServiceAccount.
const KEEPER: &str = "system:serviceaccount:default:note-keeper";

/// Groups of that ServiceAccount.
const KEEPER_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:default"];

/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the test.
///
/// # Errors
/// When the server rejects a request of the user, when the controller does not react, or when its
/// Role lacks a permission.
#[tokio::main(flavor = "current_thread", start_paused = true)]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::new(Config { authorization: Authorization::Rbac, ..Config::default() });
    let mut requests = server.audit();
    let user = Client::new(server.service_as(Identity::admin()), "default");

    let definitions: Api<CustomResourceDefinition> = Api::all(user.clone());
    apply(&definitions, "notes.example.dev", definition()).await?;
    until(&definitions, "notes.example.dev", conditions::is_crd_established()).await?;
    println!("The server serves Notes.");

    apply(&Api::<Role>::default_namespaced(user.clone()), "note-keeper", role()).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "note-keeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "note-keeper"},
        "subjects": [{"kind": "ServiceAccount", "name": "note-keeper", "namespace": "default"}]
    });
    apply(&Api::<RoleBinding>::default_namespaced(user.clone()), "note-keeper", binding).await?;
    let keeper = Client::new(server.service_as(Identity::new(KEEPER, KEEPER_GROUPS)), "default");
    let (stop, stopped) = oneshot::channel();
    let controller = tokio::spawn(run_controller(keeper, stopped));
    println!("The controller runs with the permissions of its Role.");

    let notes: Api<Note> = Api::default_namespaced(user.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(user);
    match apply(&notes, "shopping", note(" ")).await {
        Err(kube::Error::Api(status)) if status.code == 422 => println!("{}.", status.message),
        other => return Err(format!("expected the rejection of a blank Note, got {other:?}").into()),
    }

    apply(&notes, "shopping", note("milk")).await?;
    let first = until(&maps, "shopping", has_text("milk")).await?.ok_or("no ConfigMap")?;
    println!("A user creates a Note, and the controller creates its ConfigMap.");

    apply(&notes, "shopping", note("milk, eggs")).await?;
    until(&maps, "shopping", has_text("milk, eggs")).await?;
    println!("The user changes the Note, and the ConfigMap follows.");

    maps.delete("shopping", &DeleteParams::default()).await?;
    let is_another = |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != first.uid());
    until(&maps, "shopping", is_another.and(has_text("milk, eggs"))).await?;
    println!("The user deletes the ConfigMap, and the controller creates it again.");

    stop.send(()).map_err(|()| "the controller ended too early")?;
    tokio::time::timeout(LIMIT, controller).await.map_err(|_| "the controller does not stop")??;
    let denied = requests.drain().into_iter().filter(|request| request.user == KEEPER && request.code == 403);
    let denied: Vec<String> =
        denied.map(|request| format!("{} {}", request.verb, request.resource)).collect();
    if !denied.is_empty() {
        return Err(format!("the Role lacks: {}", denied.join(", ")).into());
    }
    println!("The controller stops. Its Role allowed each of its requests.");
    Ok(())
}

fn note(text: &str) -> Value {
    json!({
        "apiVersion": "example.dev/v1", "kind": "Note", "metadata": {"name": "shopping"}, "spec": {"text": text}
    })
}

fn has_text(wanted: &str) -> impl Condition<ConfigMap> {
    move |map: Option<&ConfigMap>| {
        let text = map.and_then(|map| map.data.as_ref()?.get("text"));
        text.is_some_and(|text| text == wanted)
    }
}

/// Applies an object as the user (server-side apply).
async fn apply<K>(api: &Api<K>, name: &str, object: Value) -> Result<K, kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::apply("user"), &Patch::Apply(object)).await
}

/// Watches an object until `condition` holds, and returns the object.
async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Result<Option<K>, Box<dyn Error>>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let seen = tokio::time::timeout(LIMIT, await_condition(api.clone(), name, condition)).await;
    Ok(seen.map_err(|_| format!("{name} did not change as expected within {LIMIT:?}"))??)
}
