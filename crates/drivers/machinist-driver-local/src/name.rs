//! Names of the objects of an instance. Pure functions.
//!
//! The pod is called `machine-NAME` for the Machine `NAME`, and its Node like the pod. A caller may
//! know the name of the Machine or the name of the Node, so a name that begins with `machine-` has
//! two meanings.

/// Begins the name of each pod.
pub(crate) const PREFIX: &str = "machine-";
/// Ends the name of the Secret with the user data.
const USER_DATA_SUFFIX: &str = "-userdata";

/// Longest name of a Service, which is called like the pod.
const MAX_POD_LEN: usize = 63;
/// Longest name of a Machine.
pub(crate) const MAX_MACHINE_LEN: usize = MAX_POD_LEN - PREFIX.len();

/// The name of the pod, the Service and the Node of a Machine.
pub(crate) fn of_machine(machine: &str) -> String {
    format!("{PREFIX}{machine}")
}

/// The name of the Machine of a pod; `None` for a pod with another form of name.
pub(crate) fn machine_of(pod: &str) -> Option<&str> {
    pod.strip_prefix(PREFIX).filter(|machine| is_label(machine))
}

/// The name of the Secret with the user data of a pod.
pub(crate) fn secret_of(pod: &str) -> String {
    format!("{pod}{USER_DATA_SUFFIX}")
}

/// Whether a text is a DNS label, as the names of Services and namespaces are.
pub(crate) fn is_label(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_inner = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    text.len() <= MAX_POD_LEN
        && bytes.iter().all(|byte| is_legal(*byte))
        && is_inner(bytes.first())
        && is_inner(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_machine() {
        assert_eq!(of_machine("w-1"), "machine-w-1");
        assert_eq!(secret_of("machine-w-1"), "machine-w-1-userdata");
        assert_eq!(machine_of("machine-w-1"), Some("w-1"));
        for other in ["w-1", "machine-", "machine--", "machine-W", "machine-a.b"] {
            assert_eq!(machine_of(other), None, "{other}");
        }
    }
}
