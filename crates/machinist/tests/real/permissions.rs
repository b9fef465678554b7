//! Compares the requests of the program with the rules of its roles: a refused request is a missing
//! rule, and a verb that no request used is a rule too many.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::ListParams;
use serde::Deserialize;

use crate::world::{USER, World};

/// One permission: namespace or empty, resource with group and subresource, verb.
type Permission = (String, String, String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    verb: String,
    user: User,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
}

/// `/metrics` needs a permission, which the API server grants to a user or not.
pub(crate) async fn metrics_need_a_permission(world: &mut World) -> Result<()> {
    let (status, metrics) = world.program.get("/metrics", Some(&world.reader)).await?;
    ensure!(status == 200 && metrics.contains("machinist_"), "{status}: {metrics}");
    let (status, _) = world.program.get("/metrics", None).await?;
    ensure!(status == 401, "without a token: {status}");
    let own = std::fs::read_to_string(world.kubeconfig())?;
    let own: serde_json::Value = serde_json::from_str(&own)?;
    let token = own["users"][0]["user"]["token"].as_str().context("the kubeconfig has a token")?;
    let (status, _) = world.program.get("/metrics", Some(token)).await?;
    ensure!(status == 403, "with a token without the permission: {status}");
    Ok(())
}

/// Runs last: it reads what all scenarios did.
pub(crate) async fn each_rule_is_used_and_none_is_missing(world: &mut World) -> Result<()> {
    let requests = requests(world)?;
    ensure!(!requests.is_empty(), "the audit log has no request of {USER}");
    let refused: BTreeSet<String> = requests
        .iter()
        .filter(|request| request.response_status.as_ref().and_then(|status| status.code) == Some(403))
        .map(|request| format!("{} {}", request.verb, request.uri))
        .collect();
    ensure!(refused.is_empty(), "rules are missing for: {refused:#?}");
    let used: BTreeSet<Permission> = requests.iter().filter_map(used).collect();
    let granted = granted(world).await?;
    let is_used = |(namespace, resource, verb): &Permission| {
        used.iter().any(|(of, what, how)| {
            what == resource && how == verb && (namespace.is_empty() || of == namespace)
        })
    };
    let unused: Vec<&Permission> = granted.iter().filter(|permission| !is_used(permission)).collect();
    ensure!(unused.is_empty(), "no request needed these verbs: {unused:#?}");
    println!("  {} permissions, each used by one of {} requests", granted.len(), requests.len());
    Ok(())
}

/// Number of times the program read one object of this resource.
pub(crate) fn reads(world: &World, resource: &str) -> Result<usize> {
    let used = requests(world)?.iter().filter_map(used).collect::<Vec<_>>();
    Ok(used.into_iter().filter(|(_, name, verb)| name == resource && verb == "get").count())
}

fn requests(world: &World) -> Result<Vec<Request>> {
    let text = std::fs::read_to_string(&world.audit_log)?;
    let parse = |line: &str| serde_json::from_str::<Request>(line).context("a line of the audit log");
    // The API server may be writing the last line.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let all: Vec<Request> = whole.lines().map(parse).collect::<Result<_>>()?;
    Ok(all.into_iter().filter(|request| request.user.username == USER).collect())
}

fn used(request: &Request) -> Option<Permission> {
    let object = request.object_ref.as_ref()?;
    Some((
        object.namespace.clone(),
        resource_name(&object.api_group, &object.resource, &object.subresource),
        request.verb.clone(),
    ))
}

fn resource_name(group: &str, resource: &str, subresource: &str) -> String {
    let resource =
        if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
    if group.is_empty() { resource } else { format!("{resource}.{group}") }
}

/// All permissions of the roles in `deploy/ccm`, which carry its label or its name.
async fn granted(world: &World) -> Result<BTreeSet<Permission>> {
    let ours = ListParams::default().labels("app.kubernetes.io/name=machinist-cloud-controller-manager");
    let clusters: Api<ClusterRole> = Api::all(world.user.clone());
    let namespaces: Api<Role> = Api::all(world.user.clone());
    let mut granted = BTreeSet::new();
    for role in clusters.list(&ours).await? {
        granted.extend(role.rules.iter().flatten().flat_map(|rule| permissions("", rule)));
    }
    for role in namespaces.list(&ours).await? {
        let namespace = role.metadata.namespace.clone().unwrap_or_default();
        granted.extend(role.rules.iter().flatten().flat_map(|rule| permissions(&namespace, rule)));
    }
    ensure!(!granted.is_empty(), "the cluster has no roles of the program");
    Ok(granted)
}

fn permissions(namespace: &str, rule: &PolicyRule) -> Vec<Permission> {
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let name = resource_name(group, resource, subresource);
            let verbs = rule.verbs.iter().map(|verb| (namespace.to_owned(), name.clone(), verb.clone()));
            all.extend(verbs);
        }
    }
    all
}
