//! A Node that is being deleted although its Machine is gone: its finalizer was removed by hand,
//! the cluster was restored, or Machinist was uninstalled. Without a Machine nothing else would
//! remove our finalizer from the Node, and its deletion would hang forever.
//!
//! The mark on the Node says which Machine of which installation added the finalizer, and an
//! annotation has the UID of its namespace. Nodes of other installations are left alone, also if
//! the other installation has the same names. A Node without a mark, which another program left,
//! must be older than the creation timeout and is annotated as not managed, as in Go MCM.
//!
//! A Node that no Machine has and that stays gets the same annotation (module `unmanaged`).
//!
//! The store alone does not prove that no Machine has the Node, so the API server is asked.

mod unmanaged;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{is_past, just_past, plus};

pub use self::unmanaged::{is_young, may_be_unmanaged};
use crate::mcm::facts::{MachineFacts, NodeFacts};
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Longest age of a list of Machines that a decision may rest on.
const LOOK_LASTS: Duration = Duration::from_secs(10);
/// Wait after a list that showed a Machine of the Node, which the watch has not shown yet.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// All facts for one decision about a Node without a Machine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The Node. If it is being deleted, it has our finalizer.
    pub node: Arc<NodeFacts>,
    /// Whether the store shows a Machine that may have the Node. Only a Node that stays needs it.
    pub has_machine: bool,
    /// The name of this installation's cluster, and the namespace of its Machines.
    pub installation: (String, String),
    /// The UID of that namespace; absent while it is not known.
    pub namespace_uid: Option<String>,
    /// The last list of Machines for this Node.
    pub look: Option<MachineRead>,
    /// When the list of Machines that is in flight ends, at the latest.
    pub listing_until: Option<Timestamp>,
    /// `--machine-creation-timeout`. For a Node that stays, the longest one of all Machines.
    pub creation_timeout: Duration,
}

impl Snapshot {
    /// Whether the mark of the Node names another installation, or may do so: another namespace of
    /// the same name has another UID.
    fn is_of_another_installation(&self) -> bool {
        let (cluster, namespace) = &self.installation;
        let Some(mark) = self.node.mark() else { return false };
        let is_other_namespace =
            self.node.namespace_uid().is_some_and(|uid| self.namespace_uid.as_deref() != Some(uid));
        is_other_namespace || (&mark.cluster, &mark.namespace) != (cluster, namespace)
    }
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision, except the moment and the settings.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            node,
            has_machine,
            installation: _,
            namespace_uid,
            look,
            listing_until,
            creation_timeout: _,
        } = self;
        (node, has_machine, namespace_uid, look, listing_until.is_some()).hash(state);
    }
}

/// A list of all Machines from the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineRead {
    /// When the list was requested.
    pub started: Timestamp,
    /// The name of a Machine that may have the Node, if there is one.
    pub claimed_by: Option<String>,
}

/// One call for a Node without a Machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Lists the Machines, without a cache.
    LookForMachine,
    /// Removes our finalizer.
    Release,
    /// Removes our finalizer, and annotates the Node as not managed.
    ReleaseUnmarked,
    /// Lists the Machines, without a cache, for all Nodes that stay and that no Machine seems to
    /// have.
    ListMachines,
    /// Annotates a Node that stays as not managed, and removes our finalizer if it has one.
    Disown,
}

/// Decides the next action for a Node without a Machine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if s.node.deleting_since.is_none() {
        return unmanaged::plan(s);
    }
    let then = || Step::Expect("the finalizer is removed if no Machine has the Node");
    let since = s.node.deleting_since;
    match s.node.mark() {
        Some(_) if s.is_of_another_installation() => {
            let reason = Reason::Awaiting("the Node belongs to another installation, which its mark names");
            let next = Step::Expect("that installation removes its finalizer");
            return Plan::idle(Why::new(reason, next).since(since));
        }
        Some(_) => {}
        None => {
            let from = plus(s.node.created, s.creation_timeout);
            if !is_past(s.now, from) {
                let reason = Reason::Awaiting("the Node is new, so its Machine may still record it");
                return Plan::until(just_past(from), Why::new(reason, then()).since(since));
            }
        }
    }
    let fresh = s.look.as_ref().filter(|look| s.now <= plus(look.started, LOOK_LASTS));
    match (fresh, &s.look) {
        (Some(MachineRead { claimed_by: None, .. }), _) => {
            let release = match s.node.mark() {
                Some(_) => Action::Release,
                None => Action::ReleaseUnmarked,
            };
            let why = Why::new(Reason::Writing("releasing a Node that no Machine has"), Step::Nothing);
            Plan::act(release, why)
        }
        (_, Some(look)) if look.claimed_by.is_some() && s.now < plus(look.started, LOOK_AGAIN) => {
            let reason = Reason::Awaiting("a Machine that the watch has not shown yet has the Node");
            Plan::until(plus(look.started, LOOK_AGAIN), Why::new(reason, then()).since(since))
        }
        _ => Plan::act(
            Action::LookForMachine,
            Why::new(Reason::Looking("the Machines, of which none seems to have the Node,"), then()),
        ),
    }
}

/// Whether a Machine may have a Node, by UID, name, label or provider id. `same_instance` compares
/// two ids as the provider does.
pub fn may_have(
    machine: &MachineFacts,
    node: &NodeFacts,
    same_instance: impl FnOnce(&str, &str) -> bool,
) -> bool {
    let names = [Some(node.name.as_str()), node.machine_name()];
    node.mark().is_some_and(|mark| mark.machine_uid == machine.uid)
        || names.contains(&Some(machine.name.as_str()))
        || machine.node_name() == node.name
        || machine
            .spec
            .provider_id()
            .zip(node.provider_id())
            .is_some_and(|(a, b)| a == b || same_instance(a, b))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LookForMachine => "machines: look for the machine of the node",
            Self::Release => "node: remove finalizer",
            Self::ReleaseUnmarked => "node: remove finalizer, annotate as not managed",
            Self::ListMachines => "machines: list them for the nodes without a machine",
            Self::Disown => "node: annotate as not managed",
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use machinist_api::Machine;
    use machinist_api::constants::annotations;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::at;

    fn snapshot(mark: Option<&str>, age: i64) -> Snapshot {
        let annotations = mark.map(|mark| json!({"machinist.dev/machine": mark}));
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": "n", "uid": "uid-n", "creationTimestamp": at(-age).to_string(), "annotations": annotations,
                "deletionTimestamp": at(-5).to_string(), "labels": {"node.gardener.cloud/machine-name": "m"},
                "finalizers": ["node.machine.sapcloud.io/machine-controller"],
            },
            "spec": {"providerID": "sim:///n"},
        }))
        .expect("a Node");
        Snapshot {
            now: at(0),
            node: Arc::new(NodeFacts::parse(&node)),
            installation: ("prod".to_owned(), "team".to_owned()),
            namespace_uid: Some("uid-ns".to_owned()),
            has_machine: false,
            look: None,
            listing_until: None,
            creation_timeout: Duration::from_secs(1200),
        }
    }

    fn actions(s: &Snapshot) -> Vec<String> {
        plan(s).actions.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_marked_node_without_a_machine_is_released() {
        let mut s = snapshot(Some("prod/team/uid-m"), 60);
        assert_eq!(actions(&s), ["machines: look for the machine of the node"]);
        s.look = Some(MachineRead { started: at(-1), claimed_by: None });
        assert_eq!(actions(&s), ["node: remove finalizer"]);
        s.look = Some(MachineRead { started: at(-11), claimed_by: None });
        assert_eq!(actions(&s), ["machines: look for the machine of the node"], "the list is too old");
        s.look = Some(MachineRead { started: at(-1), claimed_by: Some("m".to_owned()) });
        assert_eq!(actions(&s), [""; 0], "a Machine has the Node");
    }

    #[test]
    fn a_node_of_another_installation_is_left_alone() {
        for mark in ["prod/other/uid-m", "stage/team/uid-m"] {
            let mut s = snapshot(Some(mark), 10_000);
            s.look = Some(MachineRead { started: at(-1), claimed_by: None });
            assert_eq!(actions(&s), [""; 0], "{mark}");
        }
    }

    #[test]
    fn a_node_without_a_mark_is_released_after_20_minutes() {
        let released = |age: i64| {
            let mut s = snapshot(None, age);
            s.look = Some(MachineRead { started: at(-1), claimed_by: None });
            actions(&s)
        };
        assert_eq!(released(19 * 60), [""; 0]);
        assert_eq!(released(21 * 60), ["node: remove finalizer, annotate as not managed"]);
    }

    /// A Node that stays, with our finalizer, of that age in minutes.
    fn staying(mark: Option<&str>, minutes: i64) -> Snapshot {
        let s = snapshot(mark, minutes * 60);
        let node = NodeFacts { deleting_since: None, ..(*s.node).clone() };
        Snapshot { node: Arc::new(node), ..s }
    }

    fn listed(s: Snapshot, claimed_by: Option<&str>, seconds_ago: i64) -> Vec<String> {
        let look = MachineRead { started: at(-seconds_ago), claimed_by: claimed_by.map(str::to_owned) };
        actions(&Snapshot { look: Some(look), ..s })
    }

    /// Added condition: a list shows no Machine of the Node.
    #[test]
    fn t_58_a_node_without_a_machine_is_annotated_when_old_enough() {
        for mark in [None, Some("prod/team/uid-m")] {
            assert_eq!(listed(staying(mark, 21), None, 1), ["node: annotate as not managed"], "{mark:?}");
            assert_eq!(listed(staying(mark, 19), None, 1), [""; 0], "{mark:?}");
        }
        let lists = ["machines: list them for the nodes without a machine"];
        assert_eq!(actions(&staying(None, 21)), lists, "the store alone is not evidence");
        assert_eq!(listed(staying(None, 21), None, 11), lists, "the list is too old");
        assert_eq!(listed(staying(None, 21), Some("m"), 1), [""; 0], "a Machine has the Node");
        let shared = Snapshot { listing_until: Some(at(5)), ..staying(None, 21) };
        assert_eq!(actions(&shared), [""; 0], "one list answers for all Nodes");
        assert_eq!(plan(&shared).wait, machinist_core::Wait::Until(at(5)));
    }

    #[test]
    fn a_node_with_a_machine_or_of_others_is_not_annotated() {
        assert_eq!(listed(Snapshot { has_machine: true, ..staying(None, 9999) }, None, 1), [""; 0]);
        for mark in ["prod/other/uid-m", "stage/team/uid-m"] {
            assert_eq!(listed(staying(Some(mark), 9999), None, 1), [""; 0], "{mark}");
        }
    }

    #[test]
    fn an_annotated_node_needs_nothing_but_the_end_of_our_finalizer() {
        let annotated = |mark, has_finalizer| {
            let mut node = (*staying(mark, 21).node).clone();
            let all = node.annotations.get_or_insert_default();
            all.insert(annotations::NOT_MANAGED_BY_MCM.to_owned(), "1".to_owned());
            NodeFacts { has_finalizer, ..node }
        };
        let ours = Some("prod/team/uid-m");
        assert!(may_be_unmanaged(&annotated(ours, true)) && !may_be_unmanaged(&annotated(ours, false)));
        assert!(!may_be_unmanaged(&annotated(None, true)), "the finalizer may belong to others");
        assert!(may_be_unmanaged(&staying(None, 1).node));
        assert!(!may_be_unmanaged(&snapshot(None, 60).node), "a Node that is being deleted has its own rule");
    }

    #[test]
    fn a_machine_has_a_node_by_uid_name_label_or_id() {
        let machine = |change: &dyn Fn(&mut Value)| {
            let mut machine = json!({
                "metadata": {"name": "other", "uid": "uid-o"},
                "spec": {"class": {"kind": "MachineClass", "name": "c"}},
            });
            change(&mut machine);
            let machine: Machine = serde_json::from_value(machine).expect("a Machine");
            let node = snapshot(Some("prod/team/uid-m"), 60).node;
            may_have(&MachineFacts::parse(&machine), &node, |a, b| a.ends_with("zone/n") && b == "sim:///n")
        };
        assert!(!machine(&|_| {}));
        assert!(machine(&|m| m["metadata"]["uid"] = "uid-m".into()));
        assert!(machine(&|m| m["metadata"]["name"] = "n".into()));
        assert!(machine(&|m| m["metadata"]["name"] = "m".into()), "the label of the Node names it");
        assert!(machine(&|m| m["metadata"]["labels"] = json!({"node": "n"})));
        assert!(machine(&|m| m["spec"]["providerID"] = "sim:///n".into()));
        assert!(machine(&|m| m["spec"]["providerID"] = "sim:///zone/n".into()));
    }

    /// Two control planes of one name, for example during a migration, have Nodes in one cluster.
    #[test]
    fn a_node_of_a_namespace_of_the_same_name_is_left_alone() {
        let of = |uid: &str| {
            let mut s = snapshot(Some("prod/team/uid-m"), 9000);
            s.look = Some(MachineRead { started: at(-1), claimed_by: None });
            let mut node = (*s.node).clone();
            let annotations = node.annotations.get_or_insert_default();
            annotations.insert("machinist.dev/namespace-uid".to_owned(), uid.to_owned());
            s.node = Arc::new(node);
            s
        };
        assert_eq!(actions(&of("uid-ns")), ["node: remove finalizer"]);
        assert!(actions(&of("uid-of-another")).is_empty());
        let unknown = Snapshot { namespace_uid: None, ..of("uid-ns") };
        assert!(actions(&unknown).is_empty(), "its own UID is not known yet");
    }
}
