//! Tests of the virtual capacity of a Node.

use super::*;

const APPLIED: &str = "node.machine.sapcloud.io/last-applied-virtual-capacity";
const RESOURCE: &str = "example.com/slots";

/// The changes of the capacity, and of the annotation.
type Changes = (Vec<(String, Option<String>)>, Option<Option<String>>);

impl World {
    /// The virtual capacity in the class.
    fn class_with(self, capacity: Value) -> Self {
        let class = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c",
                         "finalizers": ["machine.sapcloud.io/machine-controller-manager"]},
            "providerSpec": {},
            "nodeTemplate": {
                "capacity": {"cpu": "1", "gpu": "0", "memory": "1Gi"}, "instanceType": "small",
                "region": "r", "zone": "z", "virtualCapacity": capacity,
            },
        });
        self.with(|s| s.class = Known::Present(Arc::new(ClassFacts::parse(&parse::<MachineClass>(&class)))))
    }

    /// The capacity of the Node, and the annotation about what was added last.
    fn capacity(mut self, capacity: Value, applied: Option<Value>) -> Self {
        self = self.node_field("/status/capacity", capacity);
        if let Some(applied) = applied {
            let node = self.node.as_mut().expect("the test has a Node");
            node["metadata"]["annotations"][APPLIED] = applied.to_string().into();
        }
        self
    }

    /// Returns the changes of the capacity, and of the annotation.
    fn changes(self) -> Changes {
        let plan = self.plan();
        let capacity = plan.actions.iter().find_map(|action| match action {
            Action::SetCapacity { changes, .. } => Some(changes.clone().into_iter().collect()),
            _ => None,
        });
        let annotation = plan.actions.iter().find_map(|action| match action {
            Action::SyncNode(sync) => sync.annotations.get(APPLIED).cloned(),
            _ => None,
        });
        (capacity.unwrap_or_default(), annotation)
    }
}

#[test]
fn t_53_node_capacity_follows_the_class() {
    let node = || world().running();
    let wanted = |value: &str| json!({RESOURCE: value});
    let set = |value: Option<&str>| vec![(RESOURCE.to_owned(), value.map(str::to_owned))];
    let cpu = || json!({"cpu": "4"});
    let with = |value: &str| json!({"cpu": "4", RESOURCE: value});

    let added = node().class_with(wanted("5")).capacity(cpu(), None);
    assert_eq!(added.changes(), (set(Some("5")), None), "the status comes first");
    let shown = node().class_with(wanted("5")).capacity(with("5"), None);
    assert_eq!(shown.changes(), (vec![], Some(Some(wanted("5").to_string()))));
    let same = node().class_with(wanted("5000m")).capacity(with("5"), Some(wanted("5000m")));
    assert_eq!(same.changes(), (vec![], None), "an API server changes the spelling");

    let changed = node().class_with(wanted("6")).capacity(with("5"), Some(wanted("5")));
    assert_eq!(changed.changes(), (set(Some("6")), None));
    let by_hand = node().class_with(wanted("5")).capacity(cpu(), Some(wanted("5")));
    assert_eq!(by_hand.changes(), (set(Some("5")), None));

    let removed = node().class_with(json!({})).capacity(with("5"), Some(wanted("5")));
    assert_eq!(removed.changes(), (set(None), None));
    let gone = node().class_with(json!({})).capacity(cpu(), Some(wanted("5")));
    assert_eq!(gone.changes(), (vec![], Some(None)));
}

#[test]
fn capacity_of_others_stays() {
    let foreign = world().running().class_with(json!({})).capacity(json!({RESOURCE: "5"}), None);
    assert_eq!(foreign.changes(), (vec![], None));
    let without_template = world().running().capacity(json!({}), Some(json!({RESOURCE: "5"})));
    assert_eq!(without_template.changes(), (vec![], None), "the class has no nodeTemplate");
}
