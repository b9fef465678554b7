//! The list `blockDevices` of a class.

use std::collections::BTreeSet;

use machinist_instance::Error;

use super::fields::Fields;

const FIELD: &str = "blockDevices";

/// Name of the root volume in a class. The image says how its root volume is called.
const ROOT: &str = "/root";

const VOLUME_TYPES: [&str; 6] = ["gp2", "gp3", "io1", "st1", "sc1", "standard"];

/// One volume of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    /// The name of the device; absent for the root volume.
    pub(crate) device: Option<String>,
    pub(crate) ebs: Ebs,
    /// Sent only if an option of the provider says so.
    pub(crate) no_device: Option<String>,
    /// Sent only if an option of the provider says so.
    pub(crate) virtual_name: Option<String>,
}

/// The settings of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ebs {
    pub(crate) volume_type: String,
    /// Size in GiB.
    pub(crate) size: i32,
    pub(crate) iops: Option<i32>,
    /// Throughput in MiB per second.
    pub(crate) throughput: Option<i32>,
    pub(crate) is_encrypted: bool,
    pub(crate) is_deleted_with_instance: bool,
    pub(crate) snapshot: Option<String>,
    /// Sent only if an option of the provider says so.
    pub(crate) kms_key: Option<String>,
}

/// Parses the list.
///
/// # Errors
/// `InvalidSpec`, with the field, the expected and the found value.
pub(super) fn parse(spec: &Fields<'_>) -> Result<Vec<BlockDevice>, Error> {
    let entries = spec.objects(FIELD)?;
    // Gardener's provider accepts an empty list, and its creation fails.
    if entries.is_empty() {
        return Err(spec.wrong(FIELD, "at least one volume"));
    }
    let is_only = entries.len() == 1;
    let devices: Vec<BlockDevice> =
        entries.iter().map(|entry| device(entry, is_only)).collect::<Result<_, _>>()?;
    if !is_only && devices.iter().filter(|device| device.device.is_none()).count() != 1 {
        return Err(spec.wrong(FIELD, &format!("exactly one volume with the deviceName {ROOT}")));
    }
    let mut names = BTreeSet::new();
    for (entry, device) in entries.iter().zip(&devices) {
        if device.device.as_ref().is_some_and(|name| !names.insert(name.clone())) {
            return Err(entry.wrong("deviceName", "a name that no other volume has"));
        }
    }
    Ok(devices)
}

fn device(fields: &Fields<'_>, is_only: bool) -> Result<BlockDevice, Error> {
    let name = fields.set_text("deviceName")?;
    let device = match name {
        // The only volume is the root volume under every name.
        _ if is_only => None,
        Some(name) if name == ROOT => None,
        Some(name) if is_device_name(&name) => Some(name),
        _ => {
            let expected = format!("{ROOT}, /dev/sd[a-z] or /dev/xvd[a-c][a-z]");
            return Err(fields.wrong("deviceName", &expected));
        }
    };
    Ok(BlockDevice {
        device,
        ebs: ebs(&fields.object("ebs")?)?,
        no_device: fields.set_text("noDevice")?,
        virtual_name: fields.set_text("virtualName")?,
    })
}

fn ebs(fields: &Fields<'_>) -> Result<Ebs, Error> {
    let volume_type = fields.word("volumeType", &VOLUME_TYPES)?;
    let volume_type =
        volume_type.ok_or_else(|| fields.wrong("volumeType", &super::fields::one_of(&VOLUME_TYPES)))?;
    let size = fields.number_in("volumeSize", 1..=i32::MAX)?;
    let iops = fields.number_in("iops", 0..=i32::MAX)?.filter(|iops| 0 < *iops);
    if volume_type == "io1" && iops.is_none() {
        return Err(fields.wrong("iops", "a number from 1, because volumeType is io1"));
    }
    Ok(Ebs {
        volume_type,
        size: size.ok_or_else(|| fields.wrong("volumeSize", "a size in GiB"))?,
        iops,
        throughput: fields.number_in("throughput", 1..=i32::MAX)?,
        is_encrypted: fields.boolean("encrypted")?.unwrap_or(false),
        is_deleted_with_instance: fields.boolean("deleteOnTermination")?.unwrap_or(true),
        snapshot: fields.set_text("snapshotID")?,
        kms_key: fields.set_text("kmsKeyID")?,
    })
}

/// The paths of the fields of all volumes that Gardener's provider never sends.
pub(super) fn never_sent(spec: &Fields<'_>) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in spec.objects(FIELD).unwrap_or_default() {
        let ebs = entry.object("ebs").ok();
        let of_ebs = ebs.iter().map(|ebs| (ebs, "kmsKeyID"));
        for (object, name) in of_ebs.chain([(&entry, "noDevice"), (&entry, "virtualName")]) {
            if object.names().any(|set| set.eq_ignore_ascii_case(name)) {
                paths.push(object.path_of(name));
            }
        }
    }
    paths
}

/// Whether a text is `/dev/sd[a-z]` or `/dev/xvd[a-c][a-z]?`.
fn is_device_name(name: &str) -> bool {
    let Some(name) = name.strip_prefix("/dev/") else { return false };
    match (name.strip_prefix("sd"), name.strip_prefix("xvd")) {
        (Some(rest), _) => matches!(rest.as_bytes(), [b'a'..=b'z']),
        (None, Some(rest)) => matches!(rest.as_bytes(), [b'a'..=b'c'] | [b'a'..=b'c', b'a'..=b'z']),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_those_of_the_other_provider() {
        for name in ["/dev/sda", "/dev/sdz", "/dev/xvda", "/dev/xvdc", "/dev/xvdbz"] {
            assert!(is_device_name(name), "{name}");
        }
        for name in ["/dev/sd", "/dev/sda1", "/dev/xvdd", "/dev/xvdaaa", "/dev/nvme0", "sda", "/root", ""] {
            assert!(!is_device_name(name), "{name}");
        }
    }
}
