//! Test objects for the embedded server and for real servers.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

/// Builds a ConfigMap in the namespace `default` with these owners.
pub(crate) fn config_map(name: &str, owners: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "ownerReferences": owners },
    })
}

pub(crate) fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid })
}

/// Builds a Node with this status of Ready.
pub(crate) fn node(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "conditions": [
            { "type": "Ready", "status": ready, "reason": "KubeletReady", "lastHeartbeatTime": "2030-01-01T00:00:00Z" },
        ] },
    })
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "web:1" }] },
    })
}

/// Builds the status of a ready Pod.
pub(crate) fn ready() -> Value {
    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] })
}

/// A custom kind with a scale.
pub(crate) const SCALED: &str = "t.dev/v1/Set";

/// Builds the definition of that kind.
pub(crate) fn scaled_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "sets.t.dev" },
        "spec": {
            "group": "t.dev", "scope": "Namespaced", "names": { "plural": "sets", "kind": "Set" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "replicas": { "type": "integer" } } },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    })
}

/// Builds a request for a kubelet's client certificate.
pub(crate) fn request(name: &str, user: &str) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let mut request = CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            usages: Some(vec!["client auth".to_owned(), "digital signature".to_owned()]),
            expiration_seconds: Some(3600),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    request.metadata.name = Some(name.to_owned());
    request
}
