//! Role bindings that let a machine join with a bootstrap token; `cloud_controller_manager` has the
//! roles of that program. The API server creates the roles
//! but no bindings; as in every cluster, the installer binds them. A Node that has joined needs no
//! binding.

pub(super) mod cloud_controller_manager;

use anyhow::Context;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Name of the binding, its role and its group.
const BINDINGS: [(&str, &str, &str); 3] = [
    // A bootstrap token may create a certificate signing request.
    ("machinist:node-bootstrapper", "system:node-bootstrapper", "system:bootstrappers"),
    // A request for a node certificate is approved automatically.
    (
        "machinist:approve-nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:bootstrappers",
    ),
    // A Node may renew its own certificate.
    (
        "machinist:approve-selfnodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ),
];

/// Binds the roles. Existing bindings stay unchanged.
pub(super) async fn install(client: &Client) -> anyhow::Result<()> {
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    for (name, role, group) in BINDINGS {
        match api.create(&PostParams::default(), &binding(name, role, group)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(|| format!("cannot bind the role {role}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_lists_the_bindings() {
        let page = include_str!("../../../../docs/src/reference/permissions.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `machinist:")).collect();
        let expected = BINDINGS.map(|(name, role, group)| format!("| `{name}` | `{role}` | `{group}` |"));
        assert_eq!(rows, expected);
    }
}
