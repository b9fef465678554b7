//! Names and values of labels.

/// On a Machine: name of its Node.
pub const NODE: &str = "node";
/// On a Machine, from the MachineDeployment's template: name of the MachineDeployment. Replacements
/// are counted per value.
pub const NAME: &str = "name";
/// On a MachineSet, its selector, its template and its Machines: hash of the template, in decimal.
pub const MACHINE_TEMPLATE_HASH: &str = "machine-template-hash";
/// On a Machine: delete without waiting for pods. The value is a bool in any of Go's spellings, see
/// [`parse_bool`].
pub const FORCE_DELETION: &str = "force-deletion";
/// On a Machine: drain without waiting for pods, for updates in place and preservation. Only
/// [`TRUE`] counts.
pub const FORCE_DRAIN: &str = "force-drain";
/// On a MachineSet or MachineDeployment: create no more Machines. Only [`TRUE`] counts.
pub const FREEZE: &str = "freeze";
/// On an old MachineSet during an update in place: never scale it up. Any value counts.
pub const SCALE_UP_DISABLED: &str = "node.machine.sapcloud.io/scale-up-disabled";
/// On a Node: name of its Machine.
pub const MACHINE_NAME: &str = "node.gardener.cloud/machine-name";
/// On a Node: an update in place may select the Node.
pub const CANDIDATE_FOR_UPDATE: &str = "node.machine.sapcloud.io/candidate-for-update";
/// On a Node: an update in place has selected the Node.
pub const SELECTED_FOR_UPDATE: &str = "node.machine.sapcloud.io/selected-for-update";
/// On a Node, and on a Machine while its owner changes: result of the update in place.
pub const UPDATE_RESULT: &str = "node.machine.sapcloud.io/update-result";

/// Value of [`FREEZE`] and [`FORCE_DRAIN`]; other spellings do not count.
pub const TRUE: &str = "True";
/// Value of [`UPDATE_RESULT`].
pub const UPDATE_SUCCESSFUL: &str = "successful";
/// Value of [`UPDATE_RESULT`].
pub const UPDATE_FAILED: &str = "failed";

/// Parses a bool in any of the spellings that Go accepts; `None` for all others.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bools_are_parsed_as_in_go() {
        for (text, expected) in [
            ("1", Some(true)),
            ("T", Some(true)),
            ("True", Some(true)),
            ("tRUE", None),
            ("yes", None),
            ("", None),
            ("f", Some(false)),
            ("FALSE", Some(false)),
        ] {
            assert_eq!(parse_bool(text), expected, "for {text:?}");
        }
    }
}
