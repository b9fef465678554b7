//! What lets a machine join with nothing but a bootstrap token. The roles are there from the start; binding them is left to whoever sets
//! up a cluster, here as elsewhere. What a joined node may do needs no binding.

use anyhow::Context;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Name of the binding, the role, and the group that gets it.
const BINDINGS: [(&str, &str, &str); 3] = [
    // A bootstrap token may file a certificate signing request,
    ("machinist:node-bootstrapper", "system:node-bootstrapper", "system:bootstrappers"),
    // which is approved without a person if it asks to be a node;
    (
        "machinist:approve-nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:bootstrappers",
    ),
    // and a node may renew its own certificate.
    (
        "machinist:approve-selfnodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ),
];

/// Binds the roles. What is bound already stays as it is.
pub(super) async fn install(client: &Client) -> anyhow::Result<()> {
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    for (name, role, group) in BINDINGS {
        match api.create(&PostParams::default(), &binding(name, role, group)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(|| format!("binding the role {role}")),
        }
    }
    Ok(())
}

fn binding(name: &str, role: &str, group: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        role_ref: RoleRef {
            api_group: GROUP.to_owned(),
            kind: "ClusterRole".to_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![Subject {
            api_group: Some(GROUP.to_owned()),
            kind: "Group".to_owned(),
            name: group.to_owned(),
            namespace: None,
        }]),
    }
}
