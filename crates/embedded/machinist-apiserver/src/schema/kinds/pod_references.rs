//! References of a Pod: its account, Secrets, ConfigMaps and claims.
//!
//! A node may read the objects that its Pods reference, so these lists must be exact. If a field is
//! missing, a node cannot read an object that it needs. If there is a field too many, a node can
//! read an object that does not concern it. The Secrets of old volume types are included. Their
//! other content does not matter here.

use serde_json::Value;

/// Annotation of a Pod that mirrors a Pod from a file on the node.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Paths at which a volume names a Secret in its own namespace.
const VOLUME_SECRETS: [&str; 10] = [
    "/secret/secretName",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

/// Volume sources that come from the API, and the description of the object in errors.
const VOLUMES_OF_THE_API: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// The same for the sources of a projected volume.
const PROJECTIONS_OF_THE_API: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Whether the Pod mirrors a Pod from a file on the node.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    mirrored(pod).is_some()
}

/// Returns the value of the mirror annotation.
pub(crate) fn mirrored(pod: &Value) -> Option<&Value> {
    pod.get("metadata")?.get("annotations")?.get(MIRROR)
}

/// Returns the account under either of its names; empty if there is none.
pub(crate) fn account(pod: &Value) -> &str {
    let named = |field: &str| text(pod, field).filter(|name| !name.is_empty());
    named("/spec/serviceAccountName").or_else(|| named("/spec/serviceAccount")).unwrap_or_default()
}

/// Returns the Secrets that the Pod references.
pub(crate) fn secrets(pod: &Value) -> Vec<&str> {
    let pulled = items(pod, "/spec/imagePullSecrets").filter_map(|secret| text(secret, "/name"));
    let in_volumes = items(pod, "/spec/volumes")
        .flat_map(|volume| VOLUME_SECRETS.iter().filter_map(|place| text(volume, place)));
    let projected = projections(pod).filter_map(|projection| text(projection, "/secret/name"));
    let in_variables = variables(pod, "/secretRef/name", "/valueFrom/secretKeyRef/name");
    pulled.chain(in_volumes).chain(projected).chain(in_variables).filter(|name| !name.is_empty()).collect()
}

/// Returns the ConfigMaps that the Pod references.
pub(crate) fn config_maps(pod: &Value) -> Vec<&str> {
    let in_volumes = items(pod, "/spec/volumes").filter_map(|volume| text(volume, "/configMap/name"));
    let projected = projections(pod).filter_map(|projection| text(projection, "/configMap/name"));
    let in_variables = variables(pod, "/configMapRef/name", "/valueFrom/configMapKeyRef/name");
    in_volumes.chain(projected).chain(in_variables).filter(|name| !name.is_empty()).collect()
}

/// Returns the volume claims that the Pod references, including those that are created for it.
pub(crate) fn claims(pod: &Value) -> Vec<String> {
    let own = text(pod, "/metadata/name").unwrap_or_default();
    items(pod, "/spec/volumes")
        .filter_map(|volume| {
            let made_for_it = || volume.get("ephemeral").filter(|claim| !claim.is_null());
            match text(volume, "/persistentVolumeClaim/claimName") {
                Some(name) => Some(name.to_owned()),
                None => made_for_it().map(|_| format!("{own}-{}", text(volume, "/name").unwrap_or_default())),
            }
        })
        .collect()
}

/// Returns the audiences of the tokens that are projected into the Pod's volumes. An empty audience
/// is the server itself.
pub(crate) fn audiences(pod: &Value) -> Vec<&str> {
    projections(pod)
        .filter_map(|projection| projection.get("serviceAccountToken").filter(|token| token.is_object()))
        .map(|token| text(token, "/audience").unwrap_or_default())
        .collect()
}

/// Whether a token is projected into one of the Pod's volumes.
pub(crate) fn projects_tokens(pod: &Value) -> bool {
    !audiences(pod).is_empty()
}

/// Returns the first kind of API object that the Pod references, in the words of errors.
pub(crate) fn of_the_api(pod: &Value) -> Option<&'static str> {
    if !account(pod).is_empty() {
        return Some("serviceaccounts");
    }
    if !secrets(pod).is_empty() {
        return Some("secrets");
    }
    if !config_maps(pod).is_empty() {
        return Some("configmaps");
    }
    if items(pod, "/spec/resourceClaims").next().is_some() {
        return Some("resourceclaims");
    }
    let named = |of: &Value, known: &[(&str, &'static str)]| {
        let is_there = |field: &str| of.get(field).is_some_and(|value| !value.is_null());
        known.iter().find(|(field, _)| is_there(field)).map(|(_, what)| *what)
    };
    items(pod, "/spec/volumes").find_map(|volume| {
        let mut projected = items(volume, "/projected/sources");
        named(volume, &VOLUMES_OF_THE_API)
            .or_else(|| projected.find_map(|source| named(source, &PROJECTIONS_OF_THE_API)))
    })
}

/// Returns all sources of projected volumes.
fn projections(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "/spec/volumes").flat_map(|volume| items(volume, "/projected/sources"))
}

/// Returns the names of the objects that container variables come from: whole objects, and single
/// values.
fn variables<'a>(
    pod: &'a Value,
    whole: &'static str,
    single: &'static str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let containers = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(pod, list));
    containers.flat_map(move |container| {
        let wholes = items(container, "/envFrom").filter_map(move |source| text(source, whole));
        wholes.chain(items(container, "/env").filter_map(move |variable| text(variable, single)))
    })
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_reference_to_a_secret_is_found() {
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "a"}],
            "volumes": [
                {"name": "1", "secret": {"secretName": "b"}},
                {"name": "2", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "c"}}},
                {"name": "3", "projected": {"sources": [{"secret": {"name": "d"}}]}},
                {"name": "4", "rbd": {"secretRef": {"name": "e"}}},
            ],
            "containers": [{"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "f", "key": "k"}}}]}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "g"}}]}],
        }});
        let mut found = secrets(&pod);
        found.sort_unstable();
        assert_eq!(found, ["a", "b", "c", "d", "e", "f", "g"]);
        assert!(config_maps(&pod).is_empty());
    }

    #[test]
    fn similar_fields_are_not_references() {
        let pod = json!({"spec": {
            "nodeSelector": {"secretName": "a"},
            "volumes": [{"name": "v", "flexVolume": {"options": {"secret": "a", "secretName": "a"}}}],
            "containers": [{"env": [{"name": "secretName", "value": "a"}]}],
        }});
        assert!(secrets(&pod).is_empty());
        assert_eq!(of_the_api(&pod), None);
    }

    #[test]
    fn a_claim_made_for_a_pod_is_named_after_it() {
        let volumes = json!([
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "x", "emptyDir": {}},
        ]);
        assert_eq!(claims(&json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}})), ["p-v", "c"]);
    }
}
