//! Volumes: where the data of a PersistentVolume is.

/// Prefix of the name of a CSI volume in `status.volumesAttached` of a Node.
const CSI_PREFIX: &str = "kubernetes.io/csi/";

/// Where the data of a PersistentVolume is, as its spec says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeSource {
    /// Name of the CSI driver. For a kind of volume that Kubernetes had built in, the name of its
    /// plugin, for example `kubernetes.io/aws-ebs`.
    pub plugin: String,
    /// The id that the CSI driver gave to the volume (`volumeHandle`), or the field of a built-in
    /// kind that names the disk.
    pub id: String,
}

impl VolumeSource {
    /// Whether the name of an attached volume in the status of a Node is this volume. The text is
    /// compared literally: an id is not a pattern, and not a part of another id.
    pub fn is_attached_as(&self, name: &str) -> bool {
        match name.strip_prefix(CSI_PREFIX) {
            Some(rest) => {
                rest.split_once('^').is_some_and(|(plugin, id)| plugin == self.plugin && id == self.id)
            }
            None => self.is_named_in(name),
        }
    }

    /// Whether the name of a volume of a built-in kind ends with the id. Some kinds have a longer
    /// text there, of which the spec contains only the last part.
    fn is_named_in(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.plugin.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let before = rest.and_then(|rest| rest.strip_suffix(self.id.as_str()));
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_volume_is_compared_literally() {
        let volume = |plugin: &str, id: &str| VolumeSource { plugin: plugin.into(), id: id.into() };
        let csi = volume("csi.hetzner.cloud", "12.3");
        assert!(csi.is_attached_as("kubernetes.io/csi/csi.hetzner.cloud^12.3"));
        assert!(!csi.is_attached_as("kubernetes.io/csi/csi.hetzner.cloud^12.34"), "a longer id");
        assert!(!csi.is_attached_as("kubernetes.io/csi/csi.hetzner.cloud^12x3"), "the id is not a pattern");
        assert!(!csi.is_attached_as("kubernetes.io/csi/other.csi^12.3"), "another driver");
        let built_in = volume("kubernetes.io/aws-ebs", "aws://eu-west-1a/vol-1");
        assert!(built_in.is_attached_as("kubernetes.io/aws-ebs/aws://eu-west-1a/vol-1"));
        assert!(!built_in.is_attached_as("kubernetes.io/aws-ebs/aws://eu-west-1a/vol-12"));
        let short = volume("kubernetes.io/aws-ebs", "vol-1");
        assert!(short.is_attached_as("kubernetes.io/aws-ebs/aws://eu-west-1a/vol-1"));
        assert!(!short.is_attached_as("kubernetes.io/aws-ebs/aws://eu-west-1a/a-vol-1"));
    }
}
