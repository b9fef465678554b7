//! The permissions of a Cluster API provider, and the consequence of each that is missing.

use machinist_api::capi::{CORE_GROUP, GROUP};

use super::Kinds;
use crate::wiring::Needed;

const NO_START: &str = "the process does not start its work";
const NO_WORK: &str = "the process cannot record what it creates, so it creates nothing";
const NO_STATUS: &str = "Cluster API never learns that the infrastructure is ready";

/// Returns the permissions that a provider needs. `namespace` is empty for all namespaces.
pub(super) fn needed(provider: Kinds, namespace: &str) -> Vec<Needed> {
    let of = |group, resource, verbs, consequence| Needed {
        group,
        resource,
        verbs,
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        name: None,
        consequence,
    };
    let mut all = vec![
        of(CORE_GROUP, "clusters", &["get", "list", "watch"], NO_START),
        of(CORE_GROUP, "machines", &["get", "list", "watch"], NO_START),
        of("", "events", &["create", "patch"], "users see no Events"),
    ];
    let kinds: [(&str, &str); 2] = match provider {
        Kinds::Docker => {
            all.push(of("", "secrets", &["get"], "no machine gets its bootstrap data, and no Node its id"));
            all.push(of("", "configmaps", &["get"], "templates of load balancers are not used"));
            [("dockerclusters", "dockerclusters/status"), ("dockermachines", "dockermachines/status")]
        }
        Kinds::Mailgun => {
            [("mailgunclusters", "mailgunclusters/status"), ("mailgunmachines", "mailgunmachines/status")]
        }
    };
    for (kind, status) in kinds {
        all.push(of(GROUP, kind, &["get", "list", "watch"], NO_START));
        all.push(of(GROUP, kind, &["patch"], NO_WORK));
        all.push(of(GROUP, status, &["patch"], NO_STATUS));
    }
    all
}
