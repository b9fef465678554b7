//! Facts of a VolumeAttachment.

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::Version;

/// What planners know of a VolumeAttachment: one volume at one Node.
#[derive(Debug, Clone)]
pub struct AttachmentFacts {
    /// Which version of the object this is.
    pub version: Version,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The Node that the volume is attached to, or being attached to or detached from.
    pub node: String,
    /// The PersistentVolume; absent for a volume that is written out inside the attachment.
    pub volume: Option<String>,
    /// When deletion was asked for.
    pub deleting_since: Option<Timestamp>,
}

impl AttachmentFacts {
    /// Reads a VolumeAttachment.
    pub fn parse(attachment: &VolumeAttachment) -> Self {
        let metadata = &attachment.metadata;
        Self {
            version: Version::of(metadata),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            node: attachment.spec.node_name.clone(),
            volume: attachment.spec.source.persistent_volume_name.clone(),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        }
    }
}
