//! The CustomResourceDefinitions of `--crds`: reads and checks them before the server starts,
//! applies them, and waits until they are established.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use machinist_apiserver::Server;
use serde_json::Value;

use super::AGENT;
use crate::documents::{self, Written, refusal};
use crate::embedded;

/// Name of the resource in the commits of the server.
pub(super) const TABLE: &str = "customresourcedefinitions";

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";

/// Time for an API server to establish a definition. Usually it takes a moment.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// Metadata that a server sets. A definition read from one cluster has these fields, but they are
/// invalid in another cluster.
const OF_ITS_SERVER: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
];

/// All definitions of all files, in their order.
pub(super) struct Definitions(Vec<Written>);

/// Reads the files.
///
/// # Errors
/// If a definition is invalid. The error names the file, the document and the field.
pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Definitions> {
    let mut objects = Vec::new();
    for file in files {
        documents::append_file(&mut objects, &format!("--crds {}", file.display()), file, str::to_owned)?;
    }
    for document in &objects {
        let place = format!("{}: {}", document.source, document.object.place);
        let (kind, version) = (&document.object.kind, &document.object.api_version);
        if kind != KIND {
            bail!("{place}: kind: expected {KIND}, got {kind}");
        }
        if version != API_VERSION {
            bail!("{place}: {}: apiVersion: expected {API_VERSION}, got {version}", document.label());
        }
    }
    documents::each_once(&objects)?;
    for document in &mut objects {
        strip(&mut document.object.body);
        has_types_of_fields(document)?;
    }
    Ok(Definitions(objects))
}

fn strip(definition: &mut Value) {
    let Some(fields) = definition.as_object_mut() else { return };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !OF_ITS_SERVER.contains(&field.as_str()));
    }
}

/// Checks the type of every field. The embedded API server stores JSON and would accept a value of
/// the wrong type.
fn has_types_of_fields(document: &Written) -> anyhow::Result<()> {
    let read: Result<CustomResourceDefinition, _> = serde_path_to_error::deserialize(&document.object.body);
    read.map(drop).map_err(|error| anyhow!("{}: {}: {}", document.title(), error.path(), error.inner()))
}

/// Whether a request changes the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Apply,
    TryOut,
}

impl Definitions {
    /// Applies all definitions to a temporary API server without clients.
    ///
    /// # Errors
    /// If a definition is invalid. The error names the file, the document and the field.
    pub(super) async fn rehearse(&self) -> anyhow::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let server = Server::new(embedded::config());
        self.apply(&embedded::client(&server, AGENT)).await.map(drop)
    }

    /// Checks with a dry run that a server accepts each definition.
    ///
    /// # Errors
    /// If the server rejects a definition. The error names the file, the document and the field.
    pub(super) async fn try_out(&self, client: &Client) -> anyhow::Result<()> {
        for definition in &self.0 {
            send(client, definition, Mode::TryOut).await?;
        }
        Ok(())
    }

    /// Creates or updates each definition and waits until all are established. Returns each name
    /// with the change.
    ///
    /// # Errors
    /// If the server rejects a definition. The error names the file, the document and the field.
    pub(super) async fn apply(&self, client: &Client) -> anyhow::Result<Vec<(String, &'static str)>> {
        let mut applied = Vec::new();
        for definition in &self.0 {
            applied.push((definition.label(), send(client, definition, Mode::Apply).await?));
        }
        for definition in &self.0 {
            established(client, definition).await?;
        }
        Ok(applied)
    }
}

/// Applies a definition and returns the change. Fields that an earlier run set and the file no
/// longer has are removed. Fields of other clients stay.
async fn send(client: &Client, definition: &Written, mode: Mode) -> anyhow::Result<&'static str> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let refused = |error| refusal(definition, error);
    let before = api.get_opt(&definition.object.name).await.map_err(refused)?;
    let mut params = PatchParams::apply(AGENT).force();
    params.field_validation = Some(ValidationDirective::Strict);
    params.dry_run = mode == Mode::TryOut;
    let after = api
        .patch(&definition.object.name, &params, &Patch::Apply(&definition.object.body))
        .await
        .map_err(refused)?;
    Ok(match before {
        None => "created",
        Some(before) if before.resource_version() == after.resource_version() => "unchanged",
        Some(_) => "updated",
    })
}

/// Waits until clients can create objects of the kind.
async fn established(client: &Client, document: &Written) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let is_judged = |definition: Option<&CustomResourceDefinition>| {
        let condition = |type_, status| {
            definition.is_some_and(|definition| has_condition(definition, type_, status).is_some())
        };
        condition("Established", "True") || condition("NamesAccepted", "False")
    };
    let judged =
        tokio::time::timeout(ESTABLISHED_WITHIN, await_condition(api, &document.object.name, is_judged))
            .await;
    let title = document.title();
    let Ok(judged) = judged else {
        bail!("{title}: the API server did not establish it within {} s", ESTABLISHED_WITHIN.as_secs());
    };
    match judged.map_err(|error| anyhow::Error::new(error).context(title.clone()))? {
        Some(definition) => match has_condition(&definition, "NamesAccepted", "False") {
            Some(why) => {
                bail!("{title}: spec.names: another definition of the group has the same names: {why}")
            }
            None => Ok(()),
        },
        None => bail!("{title}: another client deleted it before it was established"),
    }
}

/// Returns the message of a condition if it has this status.
fn has_condition(definition: &CustomResourceDefinition, type_: &str, status: &str) -> Option<String> {
    let conditions = definition.status.as_ref()?.conditions.as_ref()?;
    let condition =
        conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)?;
    Some(condition.message.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests;
