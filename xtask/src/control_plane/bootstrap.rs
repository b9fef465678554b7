//! The objects that let a machine join with nothing but a bootstrap token.
//!
//! kube-apiserver creates the roles itself and leaves the bindings to whoever sets up a cluster. What a joined node may do is
//! decided by the Node authorizer and NodeRestriction, so it needs no binding.

/// For `kubectl apply -f -`.
pub(super) const BINDINGS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: machinist:node-bootstrapper # a bootstrap token may file a certificate signing request
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-bootstrapper}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:bootstrappers}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: machinist:approve-nodeclient # which is approved without a person, if it asks to be a node
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:certificates.k8s.io:certificatesigningrequests:nodeclient
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:bootstrappers}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: machinist:approve-selfnodeclient # and a node may renew its own certificate
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}
"#;

/// For `--audit-policy-file`: one line per request, without bodies.
pub(super) const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
"#;
