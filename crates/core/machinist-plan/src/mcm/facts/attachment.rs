//! Facts of a VolumeAttachment.

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::facts::Version;

/// Planner facts of a VolumeAttachment, which connects one volume to one Node.
#[derive(Debug, Clone)]
pub struct AttachmentFacts {
    /// Version of the object.
    pub version: Version,
    /// Name of the VolumeAttachment.
    pub name: String,
    /// UID of the VolumeAttachment.
    pub uid: String,
    /// The Node that the volume is attached to, or being attached to or detached from.
    pub node: String,
    /// The PersistentVolume; absent if the attachment contains an inline volume.
    pub volume: Option<String>,
    /// Whether the attacher has attached the volume.
    pub is_attached: bool,
    /// Deletion timestamp; absent unless the object is being deleted.
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
            is_attached: attachment.status.as_ref().is_some_and(|status| status.attached),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        }
    }
}
