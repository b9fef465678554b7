//! The default roles and bindings, read from `roles.txt`.
//!
//! A saved folder has the default roles of the program version that wrote it. Each start updates
//! them: it adds missing parts and keeps additions by users. A role or binding with the annotation
//! `autoupdate: "false"` is not updated.
//!
//! The text is part of the program. A mistake in it is our own bug, so the first test that reads it
//! panics with the line.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::access::authz::coverage::grant_all;
use crate::access::authz::rbac::{GROUP, PolicyRule};
use crate::values::object::child_map;

/// Annotation that excludes a role or binding from updates if its value is `"false"`.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// A default object with its collection in the store and its namespace.
pub(crate) struct Initial {
    pub(crate) collection: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) object: Value,
}

static INITIAL: LazyLock<Vec<Initial>> = LazyLock::new(|| read(include_str!("roles.txt")));

/// Rules for every joined node, limited to objects of that node.
static NODE: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    let role = INITIAL.iter().find(|initial| initial.object["metadata"]["name"] == "system:node");
    PolicyRule::of_role(&role.expect("roles.txt defines system:node").object)
});

/// Returns all default roles and bindings.
pub(crate) fn initial() -> &'static [Initial] {
    &INITIAL
}

/// Returns the rules of the role `system:node`.
pub(crate) fn of_nodes() -> &'static [PolicyRule] {
    &NODE
}

/// Returns the update for a saved role or binding, or `None` if nothing is missing.
pub(crate) fn renewed(kept: &Value, initial: &Value) -> Option<Value> {
    if kept["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return None;
    }
    let mut new = kept.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in initial["metadata"][map].as_object().into_iter().flatten() {
            let held = child_map(&mut new, "metadata").entry(map).or_insert_with(|| json!({}));
            if held.get(key).is_none() {
                held[key] = value.clone();
            }
        }
    }
    let held = PolicyRule::of_role(kept);
    let rules = initial["rules"].as_array().into_iter().flatten();
    add(&mut new, "rules", rules.filter(|rule| !grant_all(&held, &PolicyRule::parse(rule))));
    let subjects = initial["subjects"].as_array().into_iter().flatten();
    let is_held = |wanted: &Value| {
        let mut list = kept["subjects"].as_array().into_iter().flatten();
        list.any(|held| ["kind", "namespace", "name"].iter().all(|key| held.get(key) == wanted.get(key)))
    };
    add(&mut new, "subjects", subjects.filter(|subject| !is_held(subject)));
    if let Some(rule) = initial.get("aggregationRule").filter(|_| kept.get("aggregationRule").is_none()) {
        new["aggregationRule"] = rule.clone();
    }
    (new != *kept).then_some(new)
}

fn add<'a>(object: &mut Value, field: &str, items: impl Iterator<Item = &'a Value>) {
    let mut items = items.cloned().peekable();
    if items.peek().is_none() {
        return;
    }
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.extend(items),
        None => object[field] = items.collect(),
    }
}

fn read(text: &'static str) -> Vec<Initial> {
    let mut all: Vec<Initial> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        let broken = || -> ! { panic!("roles.txt: invalid line {line:?}") };
        if line.starts_with(' ') {
            let Some(last) = all.last_mut() else { broken() };
            match words.as_slice() {
                ["takes", "in", label] => {
                    let labels = json!({format!("{GROUP}/{label}"): "true"});
                    last.object["aggregationRule"] =
                        json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
                }
                _ => match last.object["rules"].as_array_mut() {
                    Some(rules) => rules.push(rule(&words)),
                    None => last.object["rules"] = json!([rule(&words)]),
                },
            }
            continue;
        }
        all.push(match words.as_slice() {
            ["clusterrole", name, label @ ..] => {
                let mut object = object("ClusterRole", "", name);
                for label in label {
                    object["metadata"]["labels"][format!("{GROUP}/{label}")] = json!("true");
                }
                Initial { collection: "clusterroles", namespace: "", object }
            }
            ["role", namespace, name] => {
                Initial { collection: "roles", namespace, object: object("Role", namespace, name) }
            }
            ["clusterbinding", name, role, subjects @ ..] => Initial {
                collection: "clusterrolebindings",
                namespace: "",
                object: binding(object("ClusterRoleBinding", "", name), "ClusterRole", role, subjects),
            },
            ["binding", namespace, name, role, subjects @ ..] => Initial {
                collection: "rolebindings",
                namespace,
                object: binding(object("RoleBinding", namespace, name), "Role", role, subjects),
            },
            _ => broken(),
        });
    }
    take_in(&mut all);
    all
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {AUTOUPDATE: "true"},
        },
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').map(|item| if item == "core" { "" } else { item }).collect()
}

fn rule(words: &[&str]) -> Value {
    match words {
        [verbs, "-", paths] => json!({"verbs": list(verbs), "nonResourceURLs": list(paths)}),
        [verbs, groups, resources, names @ ..] => {
            let mut rule =
                json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)});
            if let [names] = names {
                rule["resourceNames"] = json!(list(names));
            }
            rule
        }
        _ => panic!("roles.txt: expected a rule, got {words:?}"),
    }
}

fn binding(mut object: Value, role_kind: &str, role: &str, subjects: &[&str]) -> Value {
    object["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
    let parsed: Vec<Value> = subjects
        .iter()
        .flat_map(|subjects| subjects.split(','))
        .map(|subject| match subject.split_once('=') {
            Some(("ServiceAccount", account)) => {
                let (namespace, name) = account.split_once('/').unwrap_or_default();
                json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
            }
            Some((kind, name)) => json!({"apiGroup": GROUP, "kind": kind, "name": name}),
            None => panic!("roles.txt: expected a subject, got {subject:?}"),
        })
        .collect();
    if !parsed.is_empty() {
        object["subjects"] = Value::Array(parsed);
    }
    object
}

/// Copies the rules of matching roles into each aggregated role. Three passes are enough: view is
/// part of edit, and edit is part of admin.
fn take_in(all: &mut [Initial]) {
    for _ in 0..3 {
        let taken: Vec<Option<Vec<Value>>> =
            all.iter().map(|initial| taken_in(&initial.object, all)).collect();
        for (initial, rules) in all.iter_mut().zip(taken) {
            if let Some(rules) = rules {
                initial.object["rules"] = Value::Array(rules);
            }
        }
    }
}

fn taken_in(role: &Value, all: &[Initial]) -> Option<Vec<Value>> {
    let wanted = role.pointer("/aggregationRule/clusterRoleSelectors/0/matchLabels")?.as_object()?;
    let mut rules: Vec<Value> = Vec::new();
    for other in all.iter().filter(|initial| initial.collection == "clusterroles") {
        let labels = &other.object["metadata"]["labels"];
        if wanted.iter().all(|(label, value)| labels.get(label) == Some(value)) {
            let own = other.object["rules"].as_array().into_iter().flatten();
            let fresh: Vec<Value> = own.filter(|rule| !rules.contains(rule)).cloned().collect();
            rules.extend(fresh);
        }
    }
    Some(rules)
}

#[test]
fn aggregated_roles_contain_the_rules_of_their_parts() {
    let rules = |name: &str| {
        let role = initial().iter().find(|initial| {
            initial.object["metadata"]["name"] == name && initial.collection == "clusterroles"
        });
        PolicyRule::of_role(&role.expect("the role exists").object)
    };
    let (view, edit, admin) = (rules("view"), rules("edit"), rules("admin"));
    assert!(!view.is_empty() && view.iter().all(|rule| edit.contains(rule)));
    assert!(edit.iter().all(|rule| admin.contains(rule)) && edit.len() < admin.len());
    assert!(!of_nodes().is_empty());
}

#[test]
fn a_saved_role_gets_missing_rules_and_keeps_additions() {
    let rule = |verbs: &[&str]| json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]});
    let initial = json!({"metadata": {"name": "r", "labels": {"a": "b"}}, "rules": [rule(&["get", "list"])]});
    let kept = json!({"metadata": {"name": "r", "uid": "u"}, "rules": [rule(&["get"]), rule(&["delete"])]});
    let new = renewed(&kept, &initial).expect("a rule is missing");
    assert_eq!(new["rules"], json!([rule(&["get"]), rule(&["delete"]), rule(&["get", "list"])]));
    assert_eq!(new["metadata"], json!({"name": "r", "uid": "u", "labels": {"a": "b"}}));
    assert_eq!(renewed(&new, &initial), None);
    let mut alone = kept;
    alone["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
    assert_eq!(renewed(&alone, &initial), None);
}

#[test]
fn a_saved_binding_gets_missing_subjects() {
    let subject = |name: &str| json!({"apiGroup": GROUP, "kind": "Group", "name": name});
    let binding = |subjects: &[&str]| -> Value {
        let subjects: Vec<Value> = subjects.iter().map(|name| subject(name)).collect();
        json!({"metadata": {"name": "b"}, "subjects": subjects})
    };
    let new = renewed(&binding(&["mine"]), &binding(&["theirs"])).expect("a subject is missing");
    assert_eq!(new, binding(&["mine", "theirs"]));
    assert_eq!(renewed(&new, &binding(&["theirs"])), None);
}
