//! The permissions of the cloud controller manager, and the consequence of each that is missing.

use machinist_controllers::ccm::CcmOptions;

use crate::wiring::{LeaseName, Needed, SecureOptions, of_port};

const NO_START: &str = "the process does not start its work";
const MACHINES: &str = "machine.sapcloud.io";

/// Returns the permissions that these options need. `port` has the options of the HTTPS port, if
/// there is one.
pub(super) fn needed(
    options: &CcmOptions,
    lease: Option<LeaseName<'_>>,
    port: Option<&SecureOptions>,
) -> Vec<Needed> {
    let controllers = options.controllers;
    let any_node = controllers.node || controllers.node_lifecycle;
    let mut all = vec![
        of_cluster("", "nodes", &["list", "watch"], NO_START),
        of_cluster("", "nodes", &["get"], "a Node is not read again after a conflict"),
        of_cluster("", "events", &["create", "patch"], "users see no Events"),
    ];
    all.extend(port.map(of_port).unwrap_or_default());
    if any_node {
        let consequence = "Nodes are not initialised, labelled or tainted";
        all.push(of_cluster("", "nodes", &["patch"], consequence));
    }
    if controllers.node || controllers.route {
        let consequence = "addresses and conditions of Nodes are not written";
        all.push(of_cluster("", "nodes/status", &["patch"], consequence));
    }
    if controllers.node_lifecycle {
        all.push(of_cluster("", "nodes", &["delete"], "Nodes of deleted servers stay"));
        all.push(Needed {
            namespace: Some("kube-system".to_owned()),
            name: Some(options.settings_name.clone()),
            ..of_cluster("", "configmaps", &["list", "watch"], NO_START)
        });
    }
    if controllers.service {
        all.push(of_cluster("", "services", &["list", "watch"], NO_START));
        let consequence = "a Service is not read again after a conflict";
        all.push(of_cluster("", "services", &["get"], consequence));
        let consequence = "load balancers are not created, because the finalizer cannot be written";
        all.push(of_cluster("", "services/status", &["patch"], consequence));
    }
    if let Some(namespace) = &options.machines {
        all.push(Needed {
            namespace: Some(namespace.clone()),
            ..of_cluster(MACHINES, "machines", &["list", "watch"], NO_START)
        });
    }
    if let Some(LeaseName { namespace, name }) = lease {
        let leases = |name: Option<&str>, verbs| Needed {
            namespace: Some(namespace.to_owned()),
            name: name.map(str::to_owned),
            ..of_cluster("coordination.k8s.io", "leases", verbs, "the process never leads")
        };
        all.push(leases(Some(name), &["get", "update"]));
        // RBAC cannot limit this verb to a name.
        all.push(leases(None, &["create"]));
    }
    all
}

fn of_cluster(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    consequence: &'static str,
) -> Needed {
    Needed { group, resource, verbs, namespace: None, name: None, consequence }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use machinist_api::manifest::parse_manifest;
    use machinist_controllers::ccm::Controllers;
    use machinist_driver_hcloud::{HcloudOptions, HcloudProvider, Http};
    use machinist_plan::ccm::{route, service};
    use serde_json::Value;

    use super::*;
    use crate::wiring::credential::{TokenFrom, follow};

    const ROLES: [&str; 2] =
        [include_str!("../../../ccm-rbac.yaml"), include_str!("../../../ccm-machines-rbac.yaml")];

    /// Group, resource, verb, namespace and name.
    type Permission = (String, String, String, Option<String>, Option<String>);

    fn asked() -> BTreeSet<Permission> {
        let provider = Arc::new(HcloudProvider::over(Arc::new(Http::plain()), HcloudOptions::default()));
        let services = service::Options::new("", "");
        let period = std::time::Duration::MAX;
        let routes = route::Options { cluster: Vec::new(), period, follows_addresses: true };
        let credential = follow(TokenFrom::Value(String::new())).expect("no file is read");
        let mut options = CcmOptions::new(provider, credential, services, routes);
        options.controllers = Controllers { node: true, node_lifecycle: true, service: true, route: true };
        options.machines = Some("default".to_owned());
        let lease = LeaseName { namespace: "kube-system", name: "cloud-controller-manager" };
        let needed = needed(&options, Some(lease), Some(&SecureOptions::default()));
        let each = |rule: &Needed| {
            let (group, resource) = (rule.group.to_owned(), rule.resource.to_owned());
            let (namespace, name) = (rule.namespace.clone(), rule.name.clone());
            let of = move |verb: &&str| {
                (group.clone(), resource.clone(), (*verb).to_owned(), namespace.clone(), name.clone())
            };
            rule.verbs.iter().map(of).collect::<Vec<_>>()
        };
        needed.iter().flat_map(each).collect()
    }

    fn granted() -> BTreeSet<Permission> {
        let texts = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut granted = BTreeSet::new();
        for object in ROLES.iter().flat_map(|text| parse_manifest(text).expect("a manifest")) {
            for rule in object.body["rules"].as_array().into_iter().flatten() {
                let names: Vec<_> = texts(&rule["resourceNames"]).into_iter().map(Some).collect();
                let names = if names.is_empty() { vec![None] } else { names };
                let [groups, resources, verbs] =
                    ["apiGroups", "resources", "verbs"].map(|field| texts(&rule[field]));
                let each =
                    groups.iter().flat_map(|group| resources.iter().map(move |resource| (group, resource)));
                let each = each.flat_map(|about| verbs.iter().map(move |verb| (about, verb)));
                for ((group, resource), verb) in each {
                    let of = |name: &Option<String>| {
                        let namespace = object.namespace.clone();
                        (group.clone(), resource.clone(), verb.clone(), namespace, name.clone())
                    };
                    granted.extend(names.iter().map(of));
                }
            }
        }
        granted
    }

    #[test]
    fn the_process_asks_for_exactly_what_its_roles_grant() {
        let (asked, granted) = (asked(), granted());
        let missing: Vec<_> = asked.difference(&granted).collect();
        assert!(missing.is_empty(), "not granted: {missing:#?}");
        let unasked: Vec<_> = granted.difference(&asked).collect();
        assert!(unasked.is_empty(), "granted, not asked for: {unasked:#?}");
        assert!(20 < asked.len(), "{}", asked.len());
    }
}
