//! Chooses the Node of a Machine, if several may be.
//!
//! The label `node` may be missing or wrong: users set and remove labels, and a kubelet may
//! register under another name. So the named Node counts only if nothing shows that another Node
//! belongs to the recorded instance. Otherwise the Machine would be deleted without a drain, and
//! its Node would be left behind.

use std::cmp::Reverse;

use super::facts::{MachineFacts, NodeFacts};

/// Chooses the Node of a Machine that records an instance.
///
/// `of_instance` is the best Node of the recorded instance, see [`best_first`], `labelled` are the
/// Nodes whose label names the Machine, and `named` is the Node that the Machine names.
pub fn choose<N: AsRef<NodeFacts>>(
    machine: &MachineFacts,
    is_of_instance: impl Fn(&NodeFacts) -> bool,
    of_instance: Option<N>,
    mut labelled: impl Iterator<Item = N>,
    named: Option<N>,
) -> Option<N> {
    if of_instance.is_some() {
        return of_instance;
    }
    if machine.node.is_none() {
        return labelled.next().or(named);
    }
    let has_no_id = |node: &N| node.as_ref().provider_id().is_none();
    let is_labelled = |node: &N| node.as_ref().machine_name() == Some(&machine.name);
    if named.as_ref().is_some_and(|node| has_no_id(node) && is_labelled(node)) {
        return named;
    }
    // A label on a Node of another instance is a leftover.
    labelled.find(|node| is_of_instance(node.as_ref()) || has_no_id(node)).or(named)
}

/// Sorts the Nodes of one instance, the best one first.
///
/// A kubelet that registers under another name leaves a Node that is no longer Ready. A Node that
/// is Ready counts more, and of two such Nodes the newer one. While the Machine lives, a Node that
/// a user deletes counts least unless it is Ready and the newest: a leftover may be Ready for a
/// while longer. While the Machine is being deleted, a Node with pods to remove counts most, so
/// that all Nodes are drained one after the other.
pub fn best_first<N: AsRef<NodeFacts>>(
    machine: &MachineFacts,
    nodes: &mut [N],
    has_pods: impl Fn(&NodeFacts) -> bool,
) {
    let is_deleting = machine.deleting_since.is_some();
    let newest = nodes.iter().map(|node| node.as_ref().created).max();
    nodes.sort_by_cached_key(|node| {
        let node = node.as_ref();
        let has_pods = is_deleting && has_pods(node);
        let is_live = node.is_ready() && Some(node.created) == newest;
        let stays = is_deleting || is_live || node.deleting_since.is_none();
        Reverse((stays, has_pods, node.is_ready(), node.created, node.name.clone()))
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::at;

    fn machine(change: impl Fn(&mut Value)) -> MachineFacts {
        let mut object = json!({
            "metadata": {"name": "m-1", "uid": "u-1"},
            "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": "sim:///i-1"},
        });
        change(&mut object);
        MachineFacts::parse(&serde_json::from_value(object).expect("a Machine"))
    }

    /// A Node, created in that second.
    fn node(name: &str, second: i64, is_ready: bool, change: impl Fn(&mut Value)) -> Arc<NodeFacts> {
        let status = if is_ready { "True" } else { "Unknown" };
        let mut object = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": at(second).to_string()},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        });
        change(&mut object);
        Arc::new(NodeFacts::parse(&serde_json::from_value(object).expect("a Node")))
    }

    fn unchanged(_: &mut Value) {}

    fn with_label(object: &mut Value) {
        object["metadata"]["labels"] = json!({"node.gardener.cloud/machine-name": "m-1"});
    }

    fn with_node_label(object: &mut Value) {
        object["metadata"]["labels"] = json!({"node": "m-1"});
    }

    fn with_deletion(object: &mut Value) {
        object["metadata"]["deletionTimestamp"] = at(9).to_string().into();
    }

    fn names(nodes: &[Arc<NodeFacts>]) -> Vec<&str> {
        nodes.iter().map(|node| &*node.name).collect()
    }

    fn chosen(
        machine: &MachineFacts,
        of_instance: &[Arc<NodeFacts>],
        labelled: &[Arc<NodeFacts>],
        named: &Arc<NodeFacts>,
    ) -> String {
        let is_of_instance = |node: &NodeFacts| node.provider_id() == Some("sim:///i-1");
        let (first, labelled) = (of_instance.first().cloned(), labelled.iter().cloned());
        let node = choose(machine, is_of_instance, first, labelled, Some(named.clone()));
        node.expect("a Node").name.clone()
    }

    #[test]
    fn the_node_of_the_instance_counts_before_labels_and_names() {
        let label = node("label", 0, true, with_label);
        let named = node("m-1", 0, true, unchanged);
        let with_id = |object: &mut Value| object["spec"] = json!({"providerID": "sim:///i-1"});
        let of_instance = [node("own", 0, false, with_id)];
        for machine in [machine(unchanged), machine(with_node_label)] {
            assert_eq!(chosen(&machine, &of_instance, std::slice::from_ref(&label), &named), "own");
        }
    }

    #[test]
    fn a_label_on_a_node_of_another_instance_is_a_leftover() {
        let of_another = |object: &mut Value| {
            with_label(object);
            object["spec"] = json!({"providerID": "sim:///i-2"});
        };
        let leftover = [node("leftover", 0, true, of_another)];
        let named = node("m-1", 0, true, unchanged);
        assert_eq!(chosen(&machine(with_node_label), &[], &leftover, &named), "m-1");
        assert_eq!(chosen(&machine(unchanged), &[], &leftover, &named), "leftover", "nothing names a Node");
    }

    #[test]
    fn a_node_without_an_id_needs_the_label() {
        let labelled = node("m-1", 0, true, with_label);
        let other = [node("other", 0, true, with_label)];
        let machine = machine(with_node_label);
        assert_eq!(chosen(&machine, &[], &other, &labelled), "m-1", "named and labelled");
        let named = node("m-1", 0, true, unchanged);
        assert_eq!(chosen(&machine, &[], &other, &named), "other", "only named");
    }

    #[test]
    fn a_living_machine_prefers_ready_and_new_nodes() {
        let mut nodes = [
            node("deleted", 5, true, with_deletion),
            node("silent", 8, false, unchanged),
            node("old", 1, true, unchanged),
            node("new", 7, true, unchanged),
        ];
        best_first(&machine(unchanged), &mut nodes, |_| false);
        assert_eq!(names(&nodes), ["new", "old", "silent", "deleted"]);
        let mut nodes = [node("old", 1, true, unchanged), node("deleted", 5, true, with_deletion)];
        best_first(&machine(unchanged), &mut nodes, |_| false);
        assert_eq!(names(&nodes), ["deleted", "old"], "the newest is the one that lives");
    }

    #[test]
    fn a_deletion_drains_the_nodes_with_pods_first() {
        let leaving = machine(with_deletion);
        let mut nodes = [node("new", 7, true, unchanged), node("with-pods", 1, false, unchanged)];
        best_first(&leaving, &mut nodes, |node| node.name == "with-pods");
        assert_eq!(names(&nodes), ["with-pods", "new"]);
    }
}
