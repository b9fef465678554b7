//! Facts of a PersistentVolumeClaim and of a PersistentVolume.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use machinist_instance::VolumeSource;

use super::machine::OwnerFacts;
use crate::facts::Version;

/// Planner facts of a PersistentVolumeClaim. They hold only what a drain needs, to keep the cache
/// of all claims small.
#[derive(Debug, Clone)]
pub struct ClaimFacts {
    /// Version of the object.
    pub version: Version,
    /// `namespace/name`.
    pub full_name: Box<str>,
    /// Name of the PersistentVolume; absent while the claim is not bound.
    pub volume: Option<Box<str>>,
    /// Whether the claim is being deleted.
    pub is_deleting: bool,
    /// Whether the claim was created for a pod, and is deleted with the pod.
    pub is_of_a_pod: bool,
}

impl ClaimFacts {
    /// Reads a PersistentVolumeClaim.
    pub fn parse(claim: &PersistentVolumeClaim) -> Self {
        let metadata = &claim.metadata;
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            version: Version::of(metadata),
            full_name: format!("{}/{}", text(&metadata.namespace), text(&metadata.name)).into(),
            volume: volume.filter(|name| !name.is_empty()).map(Into::into),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_of_a_pod: OwnerFacts::controller_of(metadata).is_some_and(|owner| owner.kind == "Pod"),
        }
    }
}

/// Planner facts of a PersistentVolume. They hold only what a drain needs.
#[derive(Debug, Clone)]
pub struct VolumeFacts {
    /// Version of the object.
    pub version: Version,
    /// Name of the PersistentVolume.
    pub name: Box<str>,
    /// `namespace/name` of the claim that the volume is bound to, or reserved for.
    pub claim: Option<Box<str>>,
    /// Where the data is; absent for kinds of volumes that no cloud attaches.
    pub source: Option<Arc<VolumeSource>>,
    /// Whether the volume is being deleted.
    pub is_deleting: bool,
}

impl VolumeFacts {
    /// Reads a PersistentVolume.
    pub fn parse(volume: &PersistentVolume) -> Self {
        let metadata = &volume.metadata;
        let spec = volume.spec.as_ref();
        let claim = spec.and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| {
            Some(format!("{}/{}", claim.namespace.as_deref()?, claim.name.as_deref()?).into())
        });
        Self {
            version: Version::of(metadata),
            name: metadata.name.clone().unwrap_or_default().into(),
            claim,
            source: spec.and_then(source_of).map(Arc::new),
            is_deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Returns where the data of a volume is. The built-in kinds are those for which Go's providers of
/// the clouds return ids.
fn source_of(spec: &PersistentVolumeSpec) -> Option<VolumeSource> {
    let source = |plugin: &str, id: &str| VolumeSource { plugin: plugin.to_owned(), id: id.to_owned() };
    if let Some(csi) = &spec.csi {
        return Some(source(&csi.driver, &csi.volume_handle));
    }
    if let Some(disk) = &spec.aws_elastic_block_store {
        return Some(source("kubernetes.io/aws-ebs", &disk.volume_id));
    }
    if let Some(disk) = &spec.cinder {
        return Some(source("kubernetes.io/cinder", &disk.volume_id));
    }
    if let Some(disk) = &spec.azure_disk {
        return Some(source("kubernetes.io/azure-disk", &disk.disk_name));
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        return Some(source("kubernetes.io/gce-pd", &disk.pd_name));
    }
    let flex = spec.flex_volume.as_ref()?;
    let id = flex.options.as_ref()?.get("volumeId")?;
    Some(source(&flex.driver, id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(spec: serde_json::Value) -> VolumeFacts {
        let volume = json!({"metadata": {"name": "pv"}, "spec": spec});
        VolumeFacts::parse(&serde_json::from_value(volume).expect("a PersistentVolume"))
    }

    #[test]
    fn the_source_of_a_volume_is_read_once() {
        for (spec, expected) in [
            (json!({"csi": {"driver": "csi.example", "volumeHandle": "h-1"}}), Some(("csi.example", "h-1"))),
            (
                json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}),
                Some(("kubernetes.io/aws-ebs", "vol-1")),
            ),
            (json!({"cinder": {"volumeID": "c-1"}}), Some(("kubernetes.io/cinder", "c-1"))),
            (
                json!({"azureDisk": {"diskName": "d", "diskURI": "u"}}),
                Some(("kubernetes.io/azure-disk", "d")),
            ),
            (json!({"gcePersistentDisk": {"pdName": "p"}}), Some(("kubernetes.io/gce-pd", "p"))),
            (
                json!({"flexVolume": {"driver": "alicloud/disk", "options": {"volumeId": "d-1"}}}),
                Some(("alicloud/disk", "d-1")),
            ),
            (json!({"nfs": {"server": "s", "path": "/"}}), None),
            (json!({"hostPath": {"path": "/"}}), None),
        ] {
            let facts = volume(spec.clone());
            let source = facts.source.as_ref().map(|source| (source.plugin.as_str(), source.id.as_str()));
            assert_eq!(source, expected, "{spec}");
        }
        let claimed = volume(json!({"claimRef": {"namespace": "ns", "name": "data"}}));
        assert_eq!(claimed.claim.as_deref(), Some("ns/data"));
    }

    #[test]
    fn a_claim_of_a_pod_is_deleted_with_the_pod() {
        let claim = |owners: serde_json::Value| {
            let claim = json!({
                "metadata": {"namespace": "ns", "name": "data", "ownerReferences": owners},
                "spec": {"volumeName": "pv"},
            });
            ClaimFacts::parse(&serde_json::from_value(claim).expect("a claim"))
        };
        let of = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "p", "uid": "u", "controller": true}]);
        assert!(claim(of("Pod")).is_of_a_pod);
        let of_a_set = claim(of("StatefulSet"));
        assert_eq!((of_a_set.is_of_a_pod, of_a_set.volume.as_deref()), (false, Some("pv")));
    }
}
