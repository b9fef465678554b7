//! The ledger's entry for one instance, and the commits that change it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_instance::{
    Address, AddressKind, Instance, InstanceKey, NodeName, Power, ProviderId, UserData,
};
use serde::{Deserialize, Serialize};

use crate::Operation;

/// One instance, kept also after its deletion. It holds no user data, because entries are printed
/// and served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Sequence number of the instance in this cloud, from 1; never reused.
    pub serial: u64,
    /// Provider id of the instance.
    pub id: ProviderId,
    /// Idempotency key that the instance was made for; absent if made by others without a key.
    pub key: Option<InstanceKey>,
    /// Name of the instance, which becomes its Node's name.
    pub name: NodeName,
    /// The cluster that the instance was made for.
    pub cluster: Option<String>,
    /// The project that owns the instance; empty for the unnamed project.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// Size of the instance, in the cloud's words.
    pub instance_type: String,
    /// Region of the instance.
    pub region: String,
    /// Zone of the instance.
    pub zone: String,
    /// Image that the instance runs.
    pub image: Option<String>,
    /// Tags that the cloud stores with the instance.
    pub tags: BTreeMap<String, String>,
    /// When the cloud accepted the request.
    pub created: Timestamp,
    /// When reads begin to show the instance.
    pub visible_at: Timestamp,
    /// When the instance is, or was, powered on.
    pub running_at: Timestamp,
    /// When the operating system has booted after that; absent if it never boots.
    pub boots_at: Option<Timestamp>,
    /// Whether the instance is powered off.
    pub stopped: bool,
    /// The deletion, once requested.
    pub deletion: Option<Deletion>,
    /// When the instance ceased to exist.
    pub deleted: Option<Timestamp>,
    /// Number of calls that named the instance, by operation, since the cloud was opened.
    #[serde(default)]
    pub calls: BTreeMap<Operation, u64>,
}

/// A deletion in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// When the deletion was requested.
    pub asked: Timestamp,
    /// When the deletion ends.
    pub gone_at: Timestamp,
}

impl LedgerEntry {
    /// The power state at `now`; absent once the instance is deleted.
    pub fn power_at(&self, now: Timestamp) -> Option<Power> {
        match (self.deleted, &self.deletion) {
            (Some(_), _) => None,
            (None, Some(deletion)) if deletion.gone_at <= now => None,
            (None, Some(_)) => Some(Power::Deleting),
            (None, None) if self.stopped => Some(Power::Stopped),
            (None, None) if now < self.running_at => Some(Power::Pending),
            (None, None) => Some(Power::Running),
        }
    }

    /// Whether the instance exists at `now`.
    pub fn is_alive_at(&self, now: Timestamp) -> bool {
        self.power_at(now).is_some()
    }

    /// The moment from which the operating system runs; absent if the instance is stopped, deleting
    /// or deleted, or never boots.
    pub fn boots(&self) -> Option<Timestamp> {
        let powered = !self.stopped && self.deletion.is_none() && self.deleted.is_none();
        self.boots_at.filter(|_| powered)
    }

    /// Network addresses of the instance, derived from its number, so that they are the same after
    /// a restart.
    pub fn addresses(&self) -> Vec<Address> {
        let [.., high, middle, low] = self.serial.to_be_bytes();
        vec![
            Address { kind: AddressKind::InternalIP, address: format!("10.{high}.{middle}.{low}") },
            Address { kind: AddressKind::Hostname, address: self.name.to_string() },
        ]
    }

    /// The description of the instance that the cloud's reads return.
    pub(crate) fn describe(&self, power: Power) -> Instance {
        Instance {
            id: self.id.clone(),
            native_id: None,
            key: self.key.clone(),
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            power,
            addresses: self.addresses(),
            instance_type: Some(self.instance_type.clone()),
            zone: Some(self.zone.clone()),
            region: Some(self.region.clone()),
            tags: self.tags.clone(),
            node_labels: BTreeMap::new(),
            created: self.created,
        }
    }
}

/// One line of the ledger. The state changes through commits only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "commit", rename_all = "camelCase")]
pub enum LedgerCommit {
    /// An instance was created, or loaded if others made it.
    Made {
        /// The instance.
        entry: Box<LedgerEntry>,
    },
    /// An instance without a key was given one.
    #[serde(rename_all = "camelCase")]
    Adopted {
        /// Id of the instance.
        id: ProviderId,
        /// The key from now on.
        key: InstanceKey,
        /// The cluster from now on.
        cluster: String,
        /// Time of the commit.
        at: Timestamp,
    },
    /// The instance was given another key, because its object was restored under another UID.
    Rekeyed {
        /// Id of the instance.
        id: ProviderId,
        /// The key from now on.
        key: InstanceKey,
        /// Time of the commit.
        at: Timestamp,
    },
    /// The instance was powered off.
    Stopped {
        /// Id of the instance.
        id: ProviderId,
        /// Time of the commit.
        at: Timestamp,
    },
    /// The instance was powered on.
    #[serde(rename_all = "camelCase")]
    Started {
        /// Id of the instance.
        id: ProviderId,
        /// Time of the commit.
        at: Timestamp,
        /// When the instance runs again.
        running_at: Timestamp,
    },
    /// The deletion of the instance was requested.
    DeletionBegun {
        /// Id of the instance.
        id: ProviderId,
        /// Start and end of the deletion.
        deletion: Deletion,
    },
    /// The instance ceased to exist: its deletion ended, or it died without a request.
    Gone {
        /// Id of the instance.
        id: ProviderId,
        /// Time of the commit.
        at: Timestamp,
    },
}

impl LedgerCommit {
    /// Id of the instance that the commit changes.
    pub fn id(&self) -> &ProviderId {
        match self {
            Self::Made { entry } => &entry.id,
            Self::Adopted { id, .. }
            | Self::Rekeyed { id, .. }
            | Self::Stopped { id, .. }
            | Self::Started { id, .. }
            | Self::DeletionBegun { id, .. }
            | Self::Gone { id, .. } => id,
        }
    }
}

/// An instance that others made: it has a name and often no key, as in fixtures.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Foreigner {
    /// Provider id of the instance; if absent, the cloud chooses one.
    #[serde(default)]
    pub id: Option<ProviderId>,
    /// Name of the instance.
    pub name: NodeName,
    /// The key that the instance was made for, if its maker used keys.
    #[serde(default)]
    pub key: Option<InstanceKey>,
    /// The project that owns the instance.
    #[serde(default)]
    pub project: String,
    /// When the instance was made.
    pub created: Timestamp,
    /// Size of the instance, in the cloud's words.
    pub instance_type: String,
    /// User data that the instance boots from; empty if it joined long ago.
    #[serde(default, with = "crate::request::user_data")]
    pub user_data: UserData,
}
