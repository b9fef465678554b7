//! Labels of pods, Services and Secrets: the marks of this driver, and the marks of Gardener's
//! provider. Pure functions.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind, Marks};

use crate::name;

/// The label that stores the key of an instance.
pub(crate) const KEY: &str = "machinist.dev/key";
/// The label that stores the installation of an instance.
pub(crate) const CLUSTER: &str = "machinist.dev/cluster";
/// The label by which Gardener's provider lists its pods.
pub(crate) const PROVIDER: (&str, &str) = ("machine-provider", "local");
/// A further label of Gardener's provider.
pub(crate) const APP: (&str, &str) = ("app", "machine");
/// The label with the name of the Machine, which older versions of Gardener's provider do not set.
pub(crate) const MACHINE: &str = "machine";

/// Longest value of a label.
const MAX_LEN: usize = 63;

/// Labels or annotations by name.
pub(crate) type Map = BTreeMap<String, String>;

/// The labels of every object of a Machine, as Gardener's provider writes them.
pub(crate) fn of_machine(machine: &str) -> Map {
    let labels = [PROVIDER, APP, (MACHINE, machine)];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Checks a text that becomes the value of a label.
///
/// # Errors
/// `InvalidSpec` if Kubernetes does not accept the value.
pub(crate) fn check_value(what: &str, value: &str) -> Result<(), Error> {
    let is_inner = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    let is_legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    if value.len() <= MAX_LEN
        && bytes.iter().all(is_legal)
        && is_inner(bytes.first())
        && is_inner(bytes.last())
    {
        return Ok(());
    }
    let text = format!(
        "{what}: expected 1 to {MAX_LEN} letters, digits or the signs -_., with a letter or a digit at both \
         ends, got {value:?}"
    );
    Err(Error::new(ErrorKind::InvalidSpec, text))
}

/// The marks of Gardener's provider on a pod with these labels. They name no cluster: the namespace
/// does, and a call shows only the pods of its namespace.
pub(crate) fn marks(labels: &Map, pod: &str) -> Marks {
    let has = |(name, value): (&str, &str)| labels.get(name).map(String::as_str) == Some(value);
    let machine = labels.get(MACHINE).map(String::as_str);
    let is_of_machine = machine.is_none() || machine == name::machine_of(pod);
    if has(PROVIDER) && has(APP) && is_of_machine { Marks::OfClass } else { Marks::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_both_versions_of_go_have_the_marks() {
        let today = of_machine("w-1");
        assert_eq!(marks(&today, "machine-w-1"), Marks::OfClass);
        let mut older = today.clone();
        older.remove(MACHINE);
        assert_eq!(marks(&older, "machine-w-1"), Marks::OfClass);
        assert_eq!(marks(&today, "machine-w-2"), Marks::Missing, "the label names another Machine");
        older.remove("app");
        assert_eq!(marks(&older, "machine-w-1"), Marks::Missing);
    }

    #[test]
    fn a_value_follows_the_syntax_of_labels() {
        assert_eq!(check_value("key", "7ece3c7f-0388-476c-b336-c09b9c9745d4"), Ok(()));
        for wrong in ["", "a/b", "-a", "a-", &"k".repeat(64)] {
            let error = check_value("key", wrong).expect_err(wrong);
            assert!(error.message.starts_with("key: expected 1 to 63 letters"), "{error}");
        }
    }
}
