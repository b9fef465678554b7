//! Rules about orphans: instances of this installation that no object has.
//!
//! An orphan is left if a user removes a finalizer by hand, or an older backup of the cluster is
//! restored. Collecting orphans is the most dangerous thing that a controller does, because the
//! evidence is that something is *missing*. An instance is collected only if all of this is true:
//!
//! - It carries the tags of this installation: the cluster's name, and the UID of the namespace for
//!   which it was made. Another installation may have the same name, but never the same UID.
//! - It carries a key. The driver compares the key before it deletes.
//! - It is older than the creation timeout. An object that is being created may not be visible yet.
//! - Two lists of the account, ten minutes apart, showed it without an object.
//! - A list of the objects with quorum, which began after the second of these lists, shows no
//!   object that may have it: by key or by recorded id. An object that cannot be parsed may have
//!   every instance.
//! - A list of the Nodes with quorum, of the same age, shows no Node of it. If there is no target
//!   cluster, this process must have seen that the object with the key was deleted.
//! - The clocks agree.
//!
//! Every other instance is kept, and its reason is reported.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{Instance, InstanceRef, Power};

use crate::ownership::SECOND_LOOK_AFTER;
use crate::permit::{Evidence, NodeProof, Permit};
use crate::snapshot::{Process, plus, since};

/// The tag with the UID of the namespace for which an instance was made.
pub const NAMESPACE_TAG: &str = "machinist.dev/namespace-uid";
/// A deletion begins at most this long after the answers to the lists of objects and Nodes.
pub const OWNERS_LAST: Duration = Duration::from_secs(10);

/// An installation, by what its instances carry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Installation {
    /// Name of the cluster.
    pub cluster: String,
    /// UID of the namespace of the objects; absent if this process may not read it.
    pub namespace_uid: Option<String>,
}

/// The facts about one instance that seems to have no object.
#[derive(Debug)]
pub struct Orphan<'s> {
    /// The instance, as the last list showed it.
    pub instance: &'s Instance,
    /// When the first list began that showed it without an object.
    pub first_seen: Timestamp,
    /// When the last list began that showed it without an object.
    pub last_seen: Timestamp,
    /// The last lists of objects and Nodes.
    pub owners: Option<&'s Owners>,
    /// Whether this process saw that the object with the instance's key was deleted.
    pub saw_deletion: bool,
    /// This installation.
    pub installation: &'s Installation,
    /// Younger instances are kept.
    pub minimum_age: Duration,
    /// The deciding process.
    pub process: &'s Process,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// The object and the Node that the API servers show for one instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owners {
    /// When the first of the lists was requested.
    pub started: Timestamp,
    /// When the last of the lists was answered.
    pub ended: Timestamp,
    /// The name of an object that may have the instance.
    pub object: Option<String>,
    /// The Node of the instance.
    pub node: OwnerNode,
}

/// The Node of an instance, according to a list of all Nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnerNode {
    /// The list has no Node of the instance.
    None,
    /// The list has this Node of the instance.
    Exists(String),
    /// There is no list, because the process has no target cluster.
    NotListed,
}

/// The next step for an instance that seems to have no object.
#[derive(Debug)]
pub enum OrphanStep {
    /// The instance is kept, for this reason. Look again after the next list of the account.
    Keep(KeepReason),
    /// The instance is too young. Look again at this moment.
    Wait(Timestamp),
    /// List the account again at this moment: one more list must show the instance.
    ListAgain(Timestamp),
    /// List objects and Nodes with quorum.
    ReadOwners,
    /// Delete the instance.
    Collect(Box<Permit>),
}

/// Why an instance without an object is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeepReason {
    /// The instance has no key, so another program created it.
    NoKey,
    /// The tags of the instance do not name the namespace for which it was made.
    NoNamespace,
    /// The instance was made for another namespace of the same name, or for an earlier one.
    OtherNamespace,
    /// This process does not know the UID of its namespace.
    NamespaceUnknown,
    /// An object may have it.
    Object(String),
    /// The Node of the instance exists.
    Node(String),
    /// The Nodes were not listed, and this process did not see that its object was deleted.
    NotProven,
    /// The clocks may differ too much.
    Clocks,
    /// The cloud is deleting it.
    Deleting,
    /// The controller only reports orphans.
    ReportOnly,
}

impl Orphan<'_> {
    /// Decides about the instance. Creates the permit for its deletion.
    pub fn next(&self) -> OrphanStep {
        let key = self.instance.key.as_ref();
        if let Some(kept) = key.and_then(|_| self.is_not_ours()) {
            return OrphanStep::Keep(kept);
        }
        if self.instance.power == Power::Deleting {
            return OrphanStep::Keep(KeepReason::Deleting);
        }
        if !self.process.may_enforce_deadlines() {
            return OrphanStep::Keep(KeepReason::Clocks);
        }
        let old_from = plus(self.instance.created, self.minimum_age + self.process.cloud_tolerance());
        if self.now < old_from {
            return OrphanStep::Wait(old_from);
        }
        if since(self.last_seen, self.first_seen) < SECOND_LOOK_AFTER {
            return OrphanStep::ListAgain(plus(self.first_seen, SECOND_LOOK_AFTER));
        }
        // Its creator may be at work until the age and the second list say otherwise.
        let Some(key) = key else { return OrphanStep::Keep(KeepReason::NoKey) };
        let Some(owners) = self.owners.filter(|owners| self.last_seen <= owners.started) else {
            return OrphanStep::ReadOwners;
        };
        let node = match self.node_proof(owners) {
            Ok(node) => node,
            // The next list of the account is evaluated from the start.
            Err(kept) => return OrphanStep::Keep(kept),
        };
        let valid_until = plus(owners.ended, OWNERS_LAST);
        if valid_until < self.now {
            return OrphanStep::ReadOwners;
        }
        let which = InstanceRef {
            id: Some(self.instance.id.clone()),
            key: Some(key.clone()),
            native_id: self.instance.native_id.clone(),
            ..InstanceRef::default()
        };
        let evidence = Evidence::Orphan {
            first_seen: self.first_seen,
            last_seen: self.last_seen,
            listed: owners.started,
            node,
        };
        OrphanStep::Collect(Box::new(Permit::mint(which, key.clone(), evidence, valid_until)))
    }

    fn is_not_ours(&self) -> Option<KeepReason> {
        let ours = self.installation.namespace_uid.as_deref();
        let made_for = self.instance.tags.get(NAMESPACE_TAG).map(String::as_str);
        match (made_for, ours) {
            (None | Some(""), _) => Some(KeepReason::NoNamespace),
            (Some(_), None | Some("")) => Some(KeepReason::NamespaceUnknown),
            (Some(made_for), Some(ours)) if made_for != ours => Some(KeepReason::OtherNamespace),
            (Some(_), Some(_)) => {
                let is_of_cluster = self.instance.cluster.as_deref() == Some(&self.installation.cluster);
                (!is_of_cluster).then_some(KeepReason::OtherNamespace)
            }
        }
    }

    fn node_proof(&self, owners: &Owners) -> Result<NodeProof, KeepReason> {
        if let Some(object) = &owners.object {
            return Err(KeepReason::Object(object.clone()));
        }
        match &owners.node {
            OwnerNode::None => Ok(NodeProof::Absent),
            OwnerNode::Exists(node) => Err(KeepReason::Node(node.clone())),
            OwnerNode::NotListed if self.saw_deletion => Ok(NodeProof::SawDeletion),
            OwnerNode::NotListed => Err(KeepReason::NotProven),
        }
    }
}

#[cfg(test)]
mod tests {
    use machinist_instance::{InstanceKey, NodeName, ProviderId};

    use super::*;
    use crate::snapshot::SKEW_LIMIT;
    use crate::testing::{at, process};

    const HOUR: i64 = 3600;

    /// An instance that may be collected.
    struct Facts {
        instance: Instance,
        seen: [i64; 2],
        owners: Option<Owners>,
        saw_deletion: bool,
        installation: Installation,
        process: Process,
    }

    impl Facts {
        fn new() -> Self {
            let instance = Instance {
                id: ProviderId::parse("sim:///w-1").expect("an id"),
                native_id: None,
                key: Some(InstanceKey::new("uid-1")),
                cluster: Some("prod".to_owned()),
                name: NodeName::new("w-1").expect("a name"),
                power: Power::Running,
                addresses: Vec::new(),
                instance_type: None,
                zone: None,
                region: None,
                tags: [(NAMESPACE_TAG.to_owned(), "uid-ns".to_owned())].into(),
                node_labels: [].into(),
                created: at(-HOUR),
            };
            Self {
                instance,
                seen: [-660, -30],
                owners: Some(Owners { started: at(-5), ended: at(-4), object: None, node: OwnerNode::None }),
                saw_deletion: false,
                installation: Installation {
                    cluster: "prod".to_owned(),
                    namespace_uid: Some("uid-ns".to_owned()),
                },
                process: process(),
            }
        }

        #[expect(clippy::disallowed_methods, reason = "these tests check the evidence")]
        fn next(&self) -> OrphanStep {
            Orphan {
                instance: &self.instance,
                first_seen: at(self.seen[0]),
                last_seen: at(self.seen[1]),
                owners: self.owners.as_ref(),
                saw_deletion: self.saw_deletion,
                installation: &self.installation,
                minimum_age: Duration::from_secs(1200),
                process: &self.process,
                now: at(0),
            }
            .next()
        }

        fn kept(change: impl FnOnce(&mut Self)) -> Option<KeepReason> {
            let mut facts = Self::new();
            change(&mut facts);
            match facts.next() {
                OrphanStep::Keep(kept) => Some(kept),
                _ => None,
            }
        }

        fn read(&mut self, object: Option<&str>, node: OwnerNode) {
            self.owners =
                Some(Owners { started: at(-5), ended: at(-4), object: object.map(str::to_owned), node });
        }
    }

    #[test]
    fn an_instance_with_all_evidence_is_collected() {
        let OrphanStep::Collect(permit) = Facts::new().next() else { panic!("a permit") };
        assert_eq!(permit.which().id, ProviderId::parse("sim:///w-1").ok());
        assert_eq!(permit.owner(), &InstanceKey::new("uid-1"));
        assert_eq!(permit.valid_until(), at(6), "ten seconds after the lists");
    }

    #[test]
    fn each_missing_mark_keeps_the_instance() {
        let kept = |change: fn(&mut Facts)| Facts::kept(change);
        assert_eq!(kept(|f| f.instance.key = None), Some(KeepReason::NoKey));
        assert_eq!(kept(|f| f.instance.tags.clear()), Some(KeepReason::NoNamespace));
        let other = |f: &mut Facts| f.installation.namespace_uid = Some("uid-other".to_owned());
        assert_eq!(kept(other), Some(KeepReason::OtherNamespace));
        assert_eq!(kept(|f| f.installation.namespace_uid = None), Some(KeepReason::NamespaceUnknown));
        assert_eq!(kept(|f| f.instance.cluster = None), Some(KeepReason::OtherNamespace));
        assert_eq!(kept(|f| f.instance.cluster = Some("stage".to_owned())), Some(KeepReason::OtherNamespace));
        assert_eq!(kept(|f| f.instance.power = Power::Deleting), Some(KeepReason::Deleting));
    }

    #[test]
    fn a_machine_or_a_node_keeps_the_instance() {
        let kept = |object, node| Facts::kept(|f: &mut Facts| f.read(object, node));
        assert_eq!(kept(Some("m-1"), OwnerNode::None), Some(KeepReason::Object("m-1".to_owned())));
        let node = || OwnerNode::Exists("w-1".to_owned());
        assert_eq!(kept(None, node()), Some(KeepReason::Node("w-1".to_owned())));
        assert_eq!(kept(None, OwnerNode::NotListed), Some(KeepReason::NotProven));
        let seen = Facts::kept(|f| {
            f.read(None, OwnerNode::NotListed);
            f.saw_deletion = true;
        });
        assert_eq!(seen, None, "this process saw the deletion");
        let with_node = Facts::kept(|f| {
            f.read(None, node());
            f.saw_deletion = true;
        });
        assert_eq!(with_node, Some(KeepReason::Node("w-1".to_owned())), "a Node always counts");
    }

    #[test]
    fn a_young_instance_and_a_single_sighting_wait() {
        let mut young = Facts::new();
        young.instance.created = at(-1200);
        assert!(matches!(young.next(), OrphanStep::Wait(until) if until == at(60)), "the clocks may differ");
        let mut once = Facts::new();
        once.seen = [-300, -30];
        assert!(matches!(once.next(), OrphanStep::ListAgain(again) if again == at(300)));
        assert_eq!(
            Facts::kept(|f| f.process.skew = SKEW_LIMIT + Duration::from_secs(1)),
            Some(KeepReason::Clocks)
        );
    }

    #[test]
    fn lists_of_owners_are_fresh_and_later_than_the_sighting() {
        let reads = |change: fn(&mut Facts)| {
            let mut facts = Facts::new();
            change(&mut facts);
            matches!(facts.next(), OrphanStep::ReadOwners)
        };
        assert!(reads(|f| f.owners = None));
        assert!(reads(|f| f.owners.as_mut().expect("lists").ended = at(-11)), "too old");
        assert!(reads(|f| f.seen = [-660, -4]), "older than the last sighting");
    }
}
