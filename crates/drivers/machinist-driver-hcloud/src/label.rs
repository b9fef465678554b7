//! Labels of the cloud's objects: their syntax, and the labels that this driver sets. Pure
//! functions.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind};

/// The label that stores the key of an instance.
pub(crate) const KEY: &str = "machinist.dev/key";
/// The label that stores the installation of an instance.
pub(crate) const CLUSTER: &str = "machinist.dev/cluster";
/// The label with which 23technologies' provider marks the servers of a cluster.
pub(crate) const MCM_CLUSTER: &str = "mcm.gardener.cloud/cluster";
/// The label with which that provider marks worker nodes, and its value.
pub(crate) const MCM_ROLE: (&str, &str) = ("mcm.gardener.cloud/role", "node");
/// The labels in which that provider stores the location and the zone.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// Begins the labels of this driver. No user may set a label of this prefix.
const RESERVED: &str = "machinist.dev/";

/// Longest name and longest value of a label.
pub(crate) const LONGEST: usize = 63;
/// Longest prefix of a label's name.
const MAX_PREFIX: usize = 253;

/// Labels by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// The selector of objects that have the label with that value.
pub(crate) fn selector(name: &str, value: &str) -> String {
    format!("{name}=={value}")
}

/// Checks labels that a user chose.
///
/// # Errors
/// `InvalidSpec` names the first label that the cloud does not accept, or that belongs to this
/// driver.
pub(crate) fn check_all(field: &str, labels: &Labels) -> Result<(), Error> {
    for name in labels.keys() {
        let field = format!("{field}.{name}");
        if name.starts_with(RESERVED) {
            return Err(invalid(&field, &format!("a name that does not begin with {RESERVED}")));
        }
    }
    check_syntax(field, labels)
}

/// Checks the labels that a controller gives.
///
/// # Errors
/// `InvalidSpec` names the first label that the cloud does not accept.
pub(crate) fn check_syntax(field: &str, labels: &Labels) -> Result<(), Error> {
    for (name, value) in labels {
        let field = format!("{field}.{name}");
        if !is_name(name) {
            return Err(invalid(&field, "a label name: [PREFIX/]NAME with letters, digits, -, _ and ."));
        }
        check_value(&field, value)?;
    }
    Ok(())
}

/// Checks the value of one label.
///
/// # Errors
/// `InvalidSpec` names the field.
pub(crate) fn check_value(field: &str, value: &str) -> Result<(), Error> {
    if value.is_empty() || is_segment(value) {
        return Ok(());
    }
    let expected =
        format!("at most {LONGEST} letters, digits, -, _ and ., with a letter or digit at both ends");
    Err(invalid(field, &expected))
}

/// Whether a text can be the value of a label that must not be empty.
pub(crate) fn is_segment(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_name(name: &str) -> bool {
    match name.split_once('/') {
        None => is_segment(name),
        Some((prefix, name)) => {
            let is_dns = |part: &str| is_segment(part) && !part.contains('_');
            prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_dns) && is_segment(name)
        }
    }
}

fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_syntax_of_the_cloud() {
        let labels = |name: &str, value: &str| Labels::from([(name.to_owned(), value.to_owned())]);
        let (longest, too_long) = ("n".repeat(63), "n".repeat(64));
        let valid = [("env", "prod"), ("a.b-c/d_e.f", "x.y-z_1"), ("k8s.io/a", ""), (&longest, &longest)];
        for (name, value) in valid {
            assert_eq!(check_all("labels", &labels(name, value)), Ok(()), "{name}={value}");
        }
        let invalid = [
            ("", "v"),
            ("-a", "v"),
            ("a/b/c", "v"),
            ("a_b/c", "v"),
            ("a b", "v"),
            (&too_long, "v"),
            ("a", "-v"),
            ("a", "v w"),
            ("a", &too_long),
            ("machinist.dev/key", "v"),
        ];
        for (name, value) in invalid {
            let error = check_all("labels", &labels(name, value)).expect_err(name);
            assert_eq!(error.kind, ErrorKind::InvalidSpec);
            assert!(error.message.starts_with(&format!("labels.{name}: expected ")), "{error}");
        }
    }

    #[test]
    fn the_labels_of_this_driver_have_valid_names() {
        assert!(is_name(KEY) && is_name(CLUSTER));
        assert_eq!(selector(KEY, "uid-1"), "machinist.dev/key==uid-1");
    }
}
