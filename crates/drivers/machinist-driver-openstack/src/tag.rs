//! Marks of servers, ports and volumes: the limits of OpenStack, the marks of this driver, and the
//! marks of Gardener's provider of machine-controller-manager. Pure functions.
//!
//! Servers and volumes have metadata, ports have tags. A name of metadata may not contain a slash,
//! so `machinist.dev/key` is written `machinist.dev-key`.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind, InstanceKey, Marks};
use sha2::{Digest as _, Sha256};

/// The metadata that stores the key of an instance.
pub(crate) const KEY: &str = "machinist.dev-key";
/// The metadata that stores the installation of an instance.
pub(crate) const CLUSTER: &str = "machinist.dev-cluster";
/// A part of the name by which Gardener's provider finds the servers of a cluster.
pub(crate) const CLUSTER_MARK: &str = "kubernetes.io-cluster-";
/// A part of the name by which Gardener's provider finds worker nodes.
pub(crate) const ROLE_MARK: &str = "kubernetes.io-role-";

/// Begins the names of this driver. No class may set a name that begins with it.
const RESERVED: &str = "machinist.dev-";
/// The same in the tags of the controller.
const RESERVED_TAG: &str = "machinist.dev/";

/// Longest name and longest value of metadata, by the schema of Nova.
const MAX_LEN: usize = 255;
/// The default quota of Nova for the metadata of one server.
const MAX_ITEMS: usize = 128;
/// Longest tag of a port, by the schema of Neutron.
pub(crate) const MAX_TAG_LEN: usize = 60;
/// Number of bytes of a hash in a tag.
const HASH_BYTES: usize = 20;

/// Metadata by name.
pub(crate) type Metadata = BTreeMap<String, String>;

/// Checks the tags of a class.
///
/// # Errors
/// `InvalidSpec` names the first tag that Nova does not accept, or that belongs to this driver.
pub(crate) fn check_class(field: &str, tags: &Metadata) -> Result<(), Error> {
    if let Some(name) = tags.keys().find(|name| name.starts_with(RESERVED)) {
        let expected = format!("a key that does not begin with {RESERVED}");
        return Err(invalid(&format!("{field}.{name}"), &expected));
    }
    check(field, tags)
}

/// Checks all metadata of a server.
///
/// # Errors
/// `InvalidSpec` names the first name or value that Nova does not accept.
pub(crate) fn check(field: &str, metadata: &Metadata) -> Result<(), Error> {
    if MAX_ITEMS < metadata.len() {
        return Err(invalid(field, &format!("at most {MAX_ITEMS} entries, got {}", metadata.len())));
    }
    for (name, value) in metadata {
        let field = format!("{field}.{name}");
        if name.is_empty() || MAX_LEN < name.len() || !name.chars().all(is_legal) {
            let expected = format!("a key of 1 to {MAX_LEN} letters, digits, spaces or the signs -_:.");
            return Err(invalid(&field, &expected));
        }
        if MAX_LEN < value.chars().count() {
            return Err(invalid(&field, &format!("a value of at most {MAX_LEN} characters")));
        }
    }
    Ok(())
}

fn is_legal(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | ':' | '.' | ' ')
}

/// The name of metadata for a tag of the controller. Illegal characters become hyphens, as in
/// Gardener's extension.
pub(crate) fn name_of(tag: &str) -> String {
    tag.chars().map(|letter| if is_legal(letter) { letter } else { '-' }).collect()
}

/// The tag of the controller that has this name of metadata. Only tags of this project are known.
pub(crate) fn tag_of(name: &str) -> String {
    match name.strip_prefix(RESERVED) {
        Some(rest) => format!("{RESERVED_TAG}{rest}"),
        None => name.to_owned(),
    }
}

/// The tag of a port that stores a key. A key that is too long for a tag, or contains a comma or a
/// slash, is hashed.
pub(crate) fn of_key(key: &InstanceKey) -> String {
    let plain = format!("{KEY}={key}");
    let is_tag = plain.len() <= MAX_TAG_LEN && plain.bytes().all(|byte| byte.is_ascii_graphic());
    if is_tag && !plain.contains([',', '/']) {
        return plain;
    }
    let hash = Sha256::digest(key.as_str());
    let hex: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{KEY}={hex}")
}

/// Whether a tag of a port stores a key.
pub(crate) fn is_key(tag: &str) -> bool {
    tag.strip_prefix(KEY).is_some_and(|rest| rest.starts_with('='))
}

/// The names by which Gardener's provider finds the objects of a class, sorted.
pub(crate) fn marks_of_class(of_class: &Metadata) -> Vec<&str> {
    of_class.keys().map(String::as_str).filter(|name| is_mark(name)).collect()
}

/// The marks of Gardener's provider among these names, for a class with these tags. All marks of
/// the class count.
pub(crate) fn marks<'a>(names: impl Iterator<Item = &'a str> + Clone, of_class: &Metadata) -> Marks {
    if !has_marks(names.clone()) {
        return Marks::Missing;
    }
    let wanted = marks_of_class(of_class);
    let has = |name: &str| names.clone().any(|one| one == name);
    if has_marks(wanted.iter().copied()) && wanted.iter().all(|name| has(name)) {
        return Marks::OfClass;
    }
    Marks::OfAnotherClass
}

/// Whether these names contain both marks of Gardener's provider, of any class.
pub(crate) fn has_marks<'a>(names: impl Iterator<Item = &'a str> + Clone) -> bool {
    [CLUSTER_MARK, ROLE_MARK].iter().all(|mark| names.clone().any(|name| name.contains(mark)))
}

fn is_mark(name: &str) -> bool {
    name.contains(CLUSTER_MARK) || name.contains(ROLE_MARK)
}

fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(names: &[&str]) -> Metadata {
        names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect()
    }

    #[test]
    fn metadata_follows_the_schema_of_nova() {
        let longest = "k".repeat(255);
        assert_eq!(check_class("tags", &metadata(&[&longest, "kubernetes.io-role-node", "a b:c_d"])), Ok(()));
        for name in ["", "a/b", "ü", &"k".repeat(256), "machinist.dev-key"] {
            let error = check_class("tags", &metadata(&[name])).expect_err(name);
            assert!(error.message.starts_with(&format!("tags.{name}: expected a key ")), "{error}");
        }
        let long = Metadata::from([("a".to_owned(), "v".repeat(256))]);
        assert!(check_class("tags", &long).is_err_and(|error| error.message.starts_with("tags.a: expected")));
    }

    #[test]
    fn tags_of_the_controller_get_legal_names() {
        assert_eq!(name_of("machinist.dev/namespace-uid"), "machinist.dev-namespace-uid");
        assert_eq!(name_of("a=b,c/ü"), "a-b-c--");
        assert_eq!(tag_of("machinist.dev-namespace-uid"), "machinist.dev/namespace-uid");
        assert_eq!(tag_of("worker.gardener.cloud-pool"), "worker.gardener.cloud-pool");
    }

    #[test]
    fn every_key_fits_into_the_tag_of_a_port() {
        let uid = InstanceKey::new("7ece3c7f-0388-476c-b336-c09b9c9745d4");
        assert_eq!(of_key(&uid), "machinist.dev-key=7ece3c7f-0388-476c-b336-c09b9c9745d4");
        let others = ["a,b".to_owned(), "a/b".to_owned(), "ü".to_owned(), "k".repeat(63)];
        let tags: Vec<String> = others.iter().map(|key| of_key(&InstanceKey::new(key.clone()))).collect();
        for tag in &tags {
            assert!(is_key(tag) && tag.len() <= MAX_TAG_LEN && !tag.contains([',', '/']), "{tag}");
            assert_eq!(tags.iter().filter(|other| *other == tag).count(), 1, "{tag}");
        }
    }

    #[test]
    fn marks_need_the_role_and_the_cluster() {
        let class = metadata(&["kubernetes.io-cluster-x", "kubernetes.io-role-node", "pool"]);
        let of = |names: &[&'static str], class: &Metadata| marks(names.iter().copied(), class);
        let both = ["kubernetes.io-role-node", "kubernetes.io-cluster-x"];
        assert_eq!(of(&both, &class), Marks::OfClass);
        let other = metadata(&["kubernetes.io-cluster-y", "kubernetes.io-role-node"]);
        assert_eq!(of(&both, &other), Marks::OfAnotherClass);
        assert_eq!(of(&both, &Metadata::new()), Marks::OfAnotherClass, "the class cannot be read");
        assert_eq!(of(&both[..1], &class), Marks::Missing);
        let two =
            metadata(&["kubernetes.io-cluster-x", "kubernetes.io-cluster-z", "kubernetes.io-role-node"]);
        assert_eq!(of(&both, &two), Marks::OfAnotherClass, "all marks count");
        assert_eq!(marks_of_class(&class), ["kubernetes.io-cluster-x", "kubernetes.io-role-node"]);
    }
}
