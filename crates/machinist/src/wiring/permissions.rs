//! Asks the API server at the start which permissions this process lacks.
//!
//! A missing permission can stay unnoticed for months: without `delete` of Nodes, only the cleanup
//! of a deleted server fails. The process works on, because it may not need the permission soon.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use machinist_serve::{Gauge, Metrics};

use super::secure::{CLIENT_CA_CONFIG_MAP, SecureOptions};

const MISSING: Gauge = Gauge::new(
    "machinist_permission_missing",
    "1 for each permission that the process lacked at its start, by group, resource and verb.",
);

/// Verbs on one resource that the process needs, and the consequence without them.
pub(crate) struct Needed {
    pub group: &'static str,
    /// The resource, with a subresource after a slash.
    pub resource: &'static str,
    pub verbs: &'static [&'static str],
    /// Absent for the whole cluster.
    pub namespace: Option<String>,
    /// Absent for every object.
    pub name: Option<String>,
    pub consequence: &'static str,
}

/// The consequence without the permission to review clients.
const NO_METRICS: &str = "/metrics of the HTTPS port rejects every token";

/// Returns what the checks of the clients of a port with TLS need. With kubeconfigs of their own,
/// reviews have the permissions of another user.
pub(crate) fn of_port(port: &SecureOptions) -> Vec<Needed> {
    let of_cluster = |group, resource, verbs, consequence| Needed {
        group,
        resource,
        verbs,
        namespace: None,
        name: None,
        consequence,
    };
    let mut all = Vec::new();
    if port.authentication.is_none() {
        all.push(of_cluster("authentication.k8s.io", "tokenreviews", &["create"], NO_METRICS));
    }
    if port.authorization.is_none() {
        all.push(of_cluster("authorization.k8s.io", "subjectaccessreviews", &["create"], NO_METRICS));
    }
    if port.client_ca.is_none() && port.authentication.is_none() {
        let (namespace, name) = CLIENT_CA_CONFIG_MAP;
        let consequence = "clients of the HTTPS port cannot use certificates";
        all.push(Needed {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..of_cluster("", "configmaps", &["get"], consequence)
        });
    }
    all
}

/// Reports each missing permission in the log and in a metric.
pub(super) async fn review(client: &kube::Client, needed: &[Needed], metrics: &Metrics) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let all = needed.iter().flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb)));
    for (rule, verb) in all {
        let review = SelfSubjectAccessReview { spec: spec(rule, verb), ..Default::default() };
        let is_allowed = match reviews.create(&PostParams::default(), &review).await {
            Ok(answer) => answer.status.is_some_and(|status| status.allowed),
            Err(error) => {
                tracing::warn!(%error, "Cannot ask the API server for the permissions of this process");
                return;
            }
        };
        if !is_allowed {
            let (resource, group) = (rule.resource, rule.group);
            let namespace = rule.namespace.as_deref().unwrap_or("all");
            let consequence = rule.consequence;
            tracing::warn!(verb, resource, group, namespace, consequence, "A permission is missing");
            let labels = [("group", group), ("resource", resource), ("verb", verb)];
            metrics.set(&MISSING, &labels, 1.0);
        }
    }
}

fn spec(rule: &Needed, verb: &str) -> SelfSubjectAccessReviewSpec {
    let (resource, subresource) = match rule.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (rule.resource, None),
    };
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(ResourceAttributes {
            group: Some(rule.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(verb.to_owned()),
            namespace: rule.namespace.clone(),
            name: rule.name.clone(),
            ..ResourceAttributes::default()
        }),
        ..SelfSubjectAccessReviewSpec::default()
    }
}
