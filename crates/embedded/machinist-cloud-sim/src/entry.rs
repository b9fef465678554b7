//! What the ledger says about one instance, and the commits that make it say so.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_instance::{
    Address, AddressKind, Instance, InstanceKey, NodeName, Power, ProviderId, UserData,
};
use serde::{Deserialize, Serialize};

use crate::Operation;

/// One instance, from its making to after its end. Holds no user data: entries are printed and served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The how-many-th instance of this cloud it is; never reused.
    pub serial: u64,
    /// Its identity.
    pub id: ProviderId,
    /// What it was made for; absent when others made it.
    pub key: Option<InstanceKey>,
    /// Its name.
    pub name: NodeName,
    /// The cluster it was made for.
    pub cluster: Option<String>,
    /// The project it is in; empty for the one without a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// Its size.
    pub instance_type: String,
    /// Where it is.
    pub region: String,
    /// Where it is.
    pub zone: String,
    /// What it runs.
    pub image: Option<String>,
    /// Kept beside it.
    pub tags: BTreeMap<String, String>,
    /// When it was accepted.
    pub created: Timestamp,
    /// When reads begin to show it.
    pub visible_at: Timestamp,
    /// When it is, or was, powered up.
    pub running_at: Timestamp,
    /// When its operating system comes up after that; absent when it never does (fault D13).
    pub boots_at: Option<Timestamp>,
    /// Powered off by somebody.
    pub stopped: bool,
    /// Its deletion, once asked for.
    pub deletion: Option<Deletion>,
    /// When it ceased to exist.
    pub deleted: Option<Timestamp>,
    /// How often it was asked about or for, by operation, since the cloud was opened.
    #[serde(default)]
    pub calls: BTreeMap<Operation, u64>,
}

/// A deletion under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// When it was asked for.
    pub asked: Timestamp,
    /// When it ends.
    pub gone_at: Timestamp,
}

impl Entry {
    /// What it is doing at `now`; absent once it is gone.
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

    /// Whether it exists at `now`.
    pub fn is_alive_at(&self, now: Timestamp) -> bool {
        self.power_at(now).is_some()
    }

    /// The moment from which its operating system runs, unless it is stopped, on its way out, or never boots.
    pub fn boots(&self) -> Option<Timestamp> {
        let powered = !self.stopped && self.deletion.is_none() && self.deleted.is_none();
        self.boots_at.filter(|_| powered)
    }

    /// Where it can be reached: derived from its number, so that it is the same after a restart.
    pub fn addresses(&self) -> Vec<Address> {
        let [.., high, middle, low] = self.serial.to_be_bytes();
        vec![
            Address { kind: AddressKind::InternalIP, address: format!("10.{high}.{middle}.{low}") },
            Address { kind: AddressKind::Hostname, address: self.name.to_string() },
        ]
    }

    /// What the cloud's reads say about it.
    pub(crate) fn describe(&self, power: Power) -> Instance {
        Instance {
            id: self.id.clone(),
            key: self.key.clone(),
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            power,
            addresses: self.addresses(),
            instance_type: Some(self.instance_type.clone()),
            zone: Some(self.zone.clone()),
            region: Some(self.region.clone()),
            tags: self.tags.clone(),
            created: self.created,
        }
    }
}

/// One line of the ledger: the only way in which the state changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "commit", rename_all = "camelCase")]
pub enum Commit {
    /// An instance was accepted (or loaded, when others made it).
    Made {
        /// The instance.
        entry: Box<Entry>,
    },
    /// An instance without a key was given one.
    #[serde(rename_all = "camelCase")]
    Adopted {
        /// Which instance.
        id: ProviderId,
        /// Its key from now on.
        key: InstanceKey,
        /// Its cluster from now on.
        cluster: String,
        /// When.
        at: Timestamp,
    },
    /// It was given another key: its object was restored under another UID.
    Rekeyed {
        /// Which instance.
        id: ProviderId,
        /// Its key from now on.
        key: InstanceKey,
        /// When.
        at: Timestamp,
    },
    /// Its tags changed.
    Tagged {
        /// Which instance.
        id: ProviderId,
        /// Added or replaced.
        tags: BTreeMap<String, String>,
        /// When.
        at: Timestamp,
    },
    /// It was powered off.
    Stopped {
        /// Which instance.
        id: ProviderId,
        /// When.
        at: Timestamp,
    },
    /// It was powered on.
    #[serde(rename_all = "camelCase")]
    Started {
        /// Which instance.
        id: ProviderId,
        /// When.
        at: Timestamp,
        /// When it runs again.
        running_at: Timestamp,
    },
    /// Its deletion was asked for.
    DeletionBegun {
        /// Which instance.
        id: ProviderId,
        /// From when to when.
        deletion: Deletion,
    },
    /// It ceased to exist: its deletion ended, or it died by itself (fault D12).
    Gone {
        /// Which instance.
        id: ProviderId,
        /// When.
        at: Timestamp,
    },
}

impl Commit {
    /// The instance it is about.
    pub fn id(&self) -> &ProviderId {
        match self {
            Self::Made { entry } => &entry.id,
            Self::Adopted { id, .. }
            | Self::Rekeyed { id, .. }
            | Self::Tagged { id, .. }
            | Self::Stopped { id, .. }
            | Self::Started { id, .. }
            | Self::DeletionBegun { id, .. }
            | Self::Gone { id, .. } => id,
        }
    }
}

/// An instance that others made: a name and often no key, as fixtures leave them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Foreigner {
    /// Its identity; the cloud gives one out when absent.
    #[serde(default)]
    pub id: Option<ProviderId>,
    /// Its name.
    pub name: NodeName,
    /// The key it was made for, if it was made by a program that keeps keys.
    #[serde(default)]
    pub key: Option<InstanceKey>,
    /// The project it is in.
    #[serde(default)]
    pub project: String,
    /// When it was made.
    pub created: Timestamp,
    /// Its size.
    pub instance_type: String,
    /// What it boots from; nothing when it has joined long ago.
    #[serde(default, with = "crate::request::user_data")]
    pub user_data: UserData,
}
