//! Tags of instances: the limits of EC2, and the tags that this driver and Gardener's provider of
//! machine-controller-manager set. Pure functions.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind, Marks};

/// The tag that stores the key of an instance.
pub(crate) const KEY: &str = "machinist.dev/key";
/// The tag that stores the installation of an instance.
pub(crate) const CLUSTER: &str = "machinist.dev/cluster";
/// The tag with the name of the Machine.
pub(crate) const NAME: &str = "Name";
/// A part of the key of the tag by which Gardener's provider finds the instances of a cluster.
pub(crate) const CLUSTER_MARK: &str = "kubernetes.io/cluster/";
/// A part of the key of the tag by which Gardener's provider finds worker nodes.
pub(crate) const ROLE_MARK: &str = "kubernetes.io/role/";

/// Begins the tags of this driver. No class may set a tag of this prefix.
const RESERVED: &str = "machinist.dev/";
/// Begins the tags of AWS.
const OF_AWS: &str = "aws:";

const MAX_KEY_LEN: usize = 128;
const MAX_VALUE_LEN: usize = 256;
/// Largest number of tags of an instance.
const MAX_TAGS: usize = 50;
/// The most tags of a class. Each instance also gets its name, its key, the name of the
/// installation and the UID of the namespace.
pub(crate) const MAX_OF_CLASS: usize = MAX_TAGS - 4;
/// Longest client token.
const MAX_TOKEN_LEN: usize = 64;

/// Tags by key.
pub(crate) type Tags = BTreeMap<String, String>;

/// Checks tags that a user chose.
///
/// # Errors
/// `InvalidSpec` names the first tag that EC2 does not accept, or that belongs to this driver.
pub(crate) fn check_all(field: &str, tags: &Tags) -> Result<(), Error> {
    if let Some(key) = tags.keys().find(|key| key.starts_with(RESERVED)) {
        return Err(invalid(
            &format!("{field}.{key}"),
            &format!("a key that does not begin with {RESERVED}"),
        ));
    }
    check_limits(field, tags)
}

/// Checks all tags of an instance.
///
/// # Errors
/// `InvalidSpec` names the first tag that EC2 does not accept.
pub(crate) fn check_limits(field: &str, tags: &Tags) -> Result<(), Error> {
    if MAX_TAGS < tags.len() {
        return Err(invalid(field, &format!("at most {MAX_TAGS} tags, got {}", tags.len())));
    }
    for (key, value) in tags {
        let field = format!("{field}.{key}");
        if key.is_empty() || MAX_KEY_LEN < key.chars().count() || key.starts_with(OF_AWS) {
            let expected =
                format!("a key of 1 to {MAX_KEY_LEN} characters that does not begin with {OF_AWS}");
            return Err(invalid(&field, &expected));
        }
        if MAX_VALUE_LEN < value.chars().count() {
            return Err(invalid(&field, &format!("a value of at most {MAX_VALUE_LEN} characters")));
        }
    }
    Ok(())
}

/// Checks that a key can be a client token.
///
/// # Errors
/// `InvalidSpec` if the key is too long, or not ASCII.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if !key.is_empty() && key.len() <= MAX_TOKEN_LEN && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(invalid("key", &format!("1 to {MAX_TOKEN_LEN} printable ASCII characters without spaces")))
}

/// The keys of the tags by which Gardener's provider finds the instances of a class, sorted.
pub(crate) fn marks_of_class(of_class: &Tags) -> Vec<&str> {
    of_class.keys().map(String::as_str).filter(|key| is_mark(key)).collect()
}

/// The marks of an instance for a class with these tags. All marks of the class count.
pub(crate) fn marks(tags: &Tags, of_class: &Tags) -> Marks {
    if !has_marks(tags.keys().map(String::as_str)) {
        return Marks::Missing;
    }
    let wanted = marks_of_class(of_class);
    if has_marks(wanted.iter().copied()) && wanted.iter().all(|key| tags.contains_key(*key)) {
        return Marks::OfClass;
    }
    Marks::OfAnotherClass
}

/// Whether these keys contain both marks of Gardener's provider, of any class.
pub(crate) fn has_marks<'a>(keys: impl Iterator<Item = &'a str> + Clone) -> bool {
    [CLUSTER_MARK, ROLE_MARK].iter().all(|mark| keys.clone().any(|key| key.contains(mark)))
}

fn is_mark(key: &str) -> bool {
    key.contains(CLUSTER_MARK) || key.contains(ROLE_MARK)
}

fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(keys: &[&str]) -> Tags {
        keys.iter().map(|key| ((*key).to_owned(), "1".to_owned())).collect()
    }

    #[test]
    fn tags_follow_the_limits_of_the_cloud() {
        let (longest, too_long) = ("k".repeat(128), "k".repeat(129));
        assert_eq!(check_all("tags", &tags(&[&longest, "kubernetes.io/role/node", "a b"])), Ok(()));
        for key in ["", "aws:x", &too_long, "machinist.dev/key"] {
            let error = check_all("tags", &tags(&[key])).expect_err(key);
            assert!(error.message.starts_with(&format!("tags.{key}: expected a key ")), "{error}");
        }
        let long = Tags::from([("a".to_owned(), "v".repeat(257))]);
        assert!(check_all("tags", &long).is_err_and(|error| error.message.starts_with("tags.a: expected")));
        let many: Tags = (0..51).map(|number| (number.to_string(), String::new())).collect();
        let error = check_limits("tags", &many).expect_err("too many");
        assert_eq!(error.message, "tags: expected at most 50 tags, got 51");
    }

    #[test]
    fn a_key_must_fit_into_a_client_token() {
        assert_eq!(check_key("7ece3c7f-0388-476c-b336-c09b9c9745d4"), Ok(()));
        for key in ["", "a b", "ü", &"k".repeat(65)] {
            assert!(check_key(key).is_err(), "{key}");
        }
    }

    /// Go takes one of several marks at random.
    #[test]
    fn a_7_all_marks_of_a_class_count_in_one_order() {
        let class =
            tags(&["b/kubernetes.io/cluster/x", "kubernetes.io/cluster/x", "kubernetes.io/role/node", "z"]);
        let expected = ["b/kubernetes.io/cluster/x", "kubernetes.io/cluster/x", "kubernetes.io/role/node"];
        assert_eq!(marks_of_class(&class), expected);
        assert_eq!(marks(&class, &class), Marks::OfClass);
        let one_of_two = tags(&["kubernetes.io/cluster/x", "kubernetes.io/role/node"]);
        assert_eq!(marks(&one_of_two, &class), Marks::OfAnotherClass);
    }

    #[test]
    fn marks_need_the_role_and_the_cluster() {
        let class = tags(&["kubernetes.io/cluster/x", "kubernetes.io/role/node"]);
        let other = tags(&["kubernetes.io/cluster/y", "kubernetes.io/role/node"]);
        assert_eq!(marks(&class, &class), Marks::OfClass);
        assert_eq!(marks(&class, &other), Marks::OfAnotherClass);
        assert_eq!(marks(&class, &Tags::new()), Marks::OfAnotherClass, "the class cannot be read");
        assert_eq!(marks(&tags(&["kubernetes.io/cluster/x"]), &class), Marks::Missing);
        assert_eq!(marks(&Tags::new(), &class), Marks::Missing);
        // Values do not count, as for Go.
        let owned = class.keys().map(|key| (key.clone(), "owned".to_owned())).collect();
        assert_eq!(marks(&owned, &class), Marks::OfClass);
    }
}
