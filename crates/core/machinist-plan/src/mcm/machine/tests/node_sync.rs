//! Tests of the patch of a Node: its template, and what a rollout wants there.

use super::*;
use crate::mcm::facts::NodeMarks;

const OUTDATED: &str = "deployment.machine.sapcloud.io/prefer-no-schedule";
const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const BY_MCM: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm";
const APPLIED: &str = "node.machine.sapcloud.io/last-applied-anno-labels-taints";

impl World {
    /// The template of the Machine, and the template that was applied last.
    fn templates(mut self, last: Value, desired: Value) -> Self {
        self.machine["spec"]["nodeTemplate"] = desired;
        let node = self.node.as_mut().expect("the test has a Node");
        node["metadata"]["annotations"][APPLIED] = last.to_string().into();
        self
    }

    fn wants(self, is_outdated: bool, is_protected: Option<bool>) -> Self {
        let marks = NodeMarks { is_outdated, is_protected, ..NodeMarks::default() };
        self.with(|s| s.node_marks = Some(marks))
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        let node = self.node.as_mut().expect("the test has a Node");
        node["metadata"]["annotations"][key] = value.into();
        self
    }

    fn sync(&self) -> Option<super::super::NodeSync> {
        self.clone().plan().actions.into_iter().find_map(|action| match action {
            Action::SyncNode(sync) => Some(*sync),
            _ => None,
        })
    }

    fn taints(&self) -> Option<Vec<String>> {
        let taints = self.sync()?.taints?;
        Some(taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
    }
}

fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {}})
}

#[test]
fn t_51_a_node_follows_its_template_and_keeps_foreign_keys() {
    let node = |present: Value| {
        let mut all = present;
        all["node.gardener.cloud/machine-name"] = "m".into();
        world().running().node_field("/metadata/labels", all)
    };
    let changes = |present: Value, last: Value, desired: Value| {
        node(present).templates(labels(last), labels(desired)).sync().map(|sync| sync.labels)
    };
    let set = |value: &str| [("a".to_owned(), Some(value.to_owned()))].into();
    assert_eq!(changes(json!({}), json!({}), json!({"a": "1"})), Some(set("1")), "added");
    assert_eq!(changes(json!({"a": "1"}), json!({"a": "1"}), json!({"a": "2"})), Some(set("2")), "changed");
    assert_eq!(changes(json!({"a": "9"}), json!({"a": "1"}), json!({"a": "1"})), Some(set("1")), "by hand");
    assert_eq!(changes(json!({}), json!({"a": "1"}), json!({"a": "1"})), Some(set("1")), "removed by hand");
    let removed = Some([("a".to_owned(), None)].into());
    assert_eq!(changes(json!({"a": "1", "b": "x"}), json!({"a": "1"}), json!({})), removed, "b stays");
    assert_eq!(changes(json!({"a": "1", "b": "x"}), json!({"a": "1"}), json!({"a": "1"})), None);
}

#[test]
fn t_51_annotations_and_taints_follow_the_template() {
    let annotations = |value: Value| json!({"metadata": {"annotations": value}, "spec": {}});
    let changes = |present: Option<&str>, last: Value, desired: Value| {
        let node = world().running().annotated("foreign", "x");
        let node = present.into_iter().fold(node, |node, value| node.annotated("a", value));
        let sync = node.templates(annotations(last), annotations(desired)).sync()?;
        Some(sync.annotations.into_iter().filter(|(key, _)| key != APPLIED).collect::<Vec<_>>())
    };
    let set = |value: Option<&str>| Some(vec![("a".to_owned(), value.map(str::to_owned))]);
    assert_eq!(changes(None, json!({}), json!({"a": "1"})), set(Some("1")), "added");
    assert_eq!(changes(Some("1"), json!({"a": "1"}), json!({"a": "2"})), set(Some("2")), "changed");
    assert_eq!(changes(Some("9"), json!({"a": "1"}), json!({"a": "1"})), set(Some("1")), "by hand");
    assert_eq!(changes(Some("1"), json!({"a": "1"}), json!({})), set(None), "removed");

    let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let template = |taints: Value| json!({"metadata": {}, "spec": {"taints": taints}});
    let values = |present: Value, last: Value, desired: Value| {
        let world = world().running().node_field("/spec/taints", present);
        let taints = world.templates(template(last), template(desired)).sync()?.taints?;
        Some(taints.into_iter().map(|t| format!("{}={}", t.key, t.value.unwrap_or_default())).collect())
    };
    let all = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let (foreign, one) = (taint("foreign", "x"), json!([taint("k", "1")]));
    let with_foreign = |value: &str| json!([foreign, taint("k", value)]);
    assert_eq!(values(json!([foreign]), json!([]), one.clone()), all(&["foreign=x", "k=1"]), "added");
    let two = json!([taint("k", "2")]);
    assert_eq!(values(with_foreign("1"), one.clone(), two), all(&["foreign=x", "k=2"]), "changed");
    assert_eq!(values(with_foreign("9"), one.clone(), one.clone()), all(&["foreign=x", "k=1"]), "by hand");
    assert_eq!(values(with_foreign("1"), one.clone(), json!([])), all(&["foreign=x"]), "removed");
    let mut timed = with_foreign("1");
    timed[1]["timeAdded"] = at(-9).to_string().into();
    assert_eq!(values(timed, one.clone(), one), None, "another controller sets the time");
}

#[test]
fn an_unreadable_last_template_counts_as_empty() {
    let mut world = world().running().annotated(APPLIED, "{broken");
    world.machine["spec"]["nodeTemplate"] = labels(json!({"a": "1"}));
    let sync = world.node_field("/spec/taints", json!([{"key": "k", "effect": "NoSchedule"}])).sync();
    let sync = sync.expect("the label is written");
    assert!(sync.annotations[APPLIED].as_deref().is_some_and(|text| text.contains(r#"{"a":"1"}"#)));
    assert_eq!(sync.taints, None, "no taint is removed");
}

#[test]
fn t_52_key_and_effect_identify_a_taint() {
    let taint = |effect: &str| json!({"key": "k", "value": "v", "effect": effect});
    let template = |taints: Value| json!({"metadata": {}, "spec": {"taints": taints}});
    let both = json!([taint("NoSchedule"), taint("NoExecute")]);
    let world = world().running().node_field("/spec/taints", json!([taint("NoSchedule")]));
    let added = world.templates(template(json!([])), template(both));
    assert_eq!(added.taints(), Some(vec!["k:NoSchedule".to_owned(), "k:NoExecute".to_owned()]));
    let both = || json!([taint("NoSchedule"), taint("NoExecute")]);
    let world = self::world().running().node_field("/spec/taints", both());
    let removed = world.templates(template(both()), template(json!([taint("NoExecute")])));
    assert_eq!(removed.taints(), Some(vec!["k:NoExecute".to_owned()]));
}

#[test]
fn an_outdated_set_taints_its_nodes_until_it_is_the_newest() {
    let taint = json!([{"key": OUTDATED, "value": "True", "effect": "PreferNoSchedule"}]);
    let tainted = || world().running().node_field("/spec/taints", taint.clone());
    let name = format!("{OUTDATED}:PreferNoSchedule");
    assert_eq!(world().running().wants(true, Some(false)).taints(), Some(vec![name]));
    assert_eq!(tainted().wants(true, Some(false)).taints(), None);
    assert_eq!(tainted().wants(false, Some(false)).taints(), Some(vec![]));
    assert_eq!(tainted().taints(), None, "the set is unknown");
    let template = json!({"metadata": {}, "spec": {"taints": taint}});
    let of_template = tainted().templates(template.clone(), template);
    assert_eq!(of_template.wants(false, Some(false)).taints(), None, "the template asks for it");
}

#[test]
fn t_101_protection_ends_only_where_we_began_it() {
    let changes = |world: World| world.sync().map(|sync| sync.annotations).unwrap_or_default();
    let both = |value: Option<&str>| -> BTreeMap<String, Option<String>> {
        [PROTECTED, BY_MCM].map(|key| (key.to_owned(), value.map(str::to_owned))).into()
    };
    let node = || world().running();
    assert_eq!(changes(node().wants(false, Some(true))), both(Some("true")));
    let of_user = || node().annotated(PROTECTED, "true");
    assert_eq!(changes(of_user().wants(false, Some(true))), BTreeMap::new(), "a user protects it");
    assert_eq!(changes(of_user().wants(false, Some(false))), BTreeMap::new());
    let denied = changes(node().annotated(PROTECTED, "false").wants(false, Some(true)));
    assert_eq!(denied, both(Some("true")), "only true protects");
    let ours = || of_user().annotated(BY_MCM, "true");
    assert_eq!(changes(ours().wants(false, Some(true))), BTreeMap::new());
    assert_eq!(changes(ours().wants(false, Some(false))), both(None));
    assert_eq!(changes(ours().wants(false, None)), BTreeMap::new(), "Go's rollout may go on");
    assert_eq!(changes(ours()), BTreeMap::new(), "the set is unknown");
}
