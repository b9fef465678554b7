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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use machinist_driver_docker::PROMISES;
    use serde_json::Value;

    use super::*;

    /// The objects of the manager of a provider.
    fn manager(provider: &str) -> Vec<Value> {
        let file = format!("{}/../../deploy/capi/{provider}/manager.yaml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&file).expect("the manifest");
        let objects = machinist_api::manifest::parse_manifest(&text).expect("valid YAML");
        objects.into_iter().map(|object| object.body).collect()
    }

    fn texts(value: &Value) -> Vec<String> {
        let list = value.as_array().expect("a list").iter();
        list.map(|text| text.as_str().expect("a text").to_owned()).collect()
    }

    /// Group, resource and verb of each rule.
    fn granted(provider: &str) -> BTreeSet<[String; 3]> {
        let objects = manager(provider);
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole").expect("a ClusterRole");
        let mut all = BTreeSet::new();
        for rule in role["rules"].as_array().expect("rules") {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let rows = texts(&rule["verbs"]).into_iter();
                    all.extend(rows.map(|verb| [group.clone(), resource.clone(), verb]));
                }
            }
        }
        all
    }

    /// Whether only Cluster API's tutorial asks for the permission. It asks only for the kinds of
    /// the provider, without templates.
    fn is_of_the_tutorial([group, resource, verb]: &[String; 3]) -> bool {
        let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
        let verbs: &[&str] = match (group == CORE_GROUP, group == GROUP, part) {
            (true, _, "status") => &["get", "list", "watch"],
            (_, true, "") => &["create", "update", "delete"],
            (_, true, "status") => &["get", "update"],
            (_, true, "finalizers") => &["update"],
            _ => &[],
        };
        verbs.contains(&verb.as_str()) && !kind.ends_with("templates")
    }

    #[test]
    fn the_manifests_grant_what_is_needed_and_no_more() {
        for (provider, kinds) in [("docker", Kinds::Docker), ("mailgun", Kinds::Mailgun)] {
            let needed: BTreeSet<[String; 3]> = needed(kinds, "")
                .into_iter()
                .flat_map(|permission| {
                    permission
                        .verbs
                        .iter()
                        .map(move |verb| [permission.group, permission.resource, *verb].map(str::to_owned))
                })
                .collect();
            let granted = granted(provider);
            assert_eq!(needed.difference(&granted).collect::<Vec<_>>(), Vec::<&[String; 3]>::new());
            let wider: Vec<_> = granted.difference(&needed).filter(|row| !is_of_the_tutorial(row)).collect();
            assert_eq!(wider, Vec::<&[String; 3]>::new(), "{provider}");
        }
    }

    #[test]
    fn a_call_in_flight_ends_before_its_pod() {
        let objects = manager("docker");
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        let spec = &deployment["spec"]["template"]["spec"];
        let grace = spec["terminationGracePeriodSeconds"].as_u64().expect("a number");
        // Besides the call, the process reads outcomes and releases its Lease.
        assert!(PROMISES.call_bound.as_secs() + 15 <= grace, "{grace} s");
        let socket = &spec["volumes"][0]["hostPath"];
        assert_eq!(
            (socket["path"].as_str(), socket["type"].as_str()),
            (Some("/var/run/docker.sock"), Some("Socket"))
        );
    }
}
