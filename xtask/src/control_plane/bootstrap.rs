//! The objects that allow a machine to join with only a bootstrap token.
//!
//! kube-apiserver creates the roles itself, and the administrator of a cluster creates the
//! bindings. The Node authorizer and NodeRestriction decide about the permissions of a joined node,
//! so it needs no binding.

/// Manifest for `kubectl apply -f -`.
pub(super) const BINDINGS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: machinist:node-bootstrapper # a bootstrap token may create a certificate signing request
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-bootstrapper}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:bootstrappers}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: machinist:approve-nodeclient # a request for a node identity is approved automatically
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
  name: machinist:approve-selfnodeclient # a node may renew its own certificate
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:certificates.k8s.io:certificatesigningrequests:selfnodeclient
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}
"#;

/// Policy for `--audit-policy-file`: one line per request, without bodies.
pub(super) const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
"#;
