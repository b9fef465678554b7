//! Shell commands for error messages, quoted so that users can paste them.

use std::path::{Path, PathBuf};

/// Limit of the search for a free name. After it, `.old` is used.
const MAX_NAMES: u32 = 1000;

/// Returns the command that moves a directory to an unused name.
pub(crate) fn set_aside(folder: &Path) -> String {
    // `mv` cannot rename `.`.
    let named = match folder.file_name() {
        Some(_) => folder.to_owned(),
        None => folder.canonicalize().unwrap_or_else(|_| folder.to_owned()),
    };
    format!("mv {} {}", in_shell(&named), in_shell(&free_name(&named)))
}

/// Returns an unused path next to this one.
fn free_name(path: &Path) -> PathBuf {
    let name = |suffix: &str| {
        let mut name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
        name.push(suffix);
        path.with_file_name(name)
    };
    let numbered = (2..MAX_NAMES).map(|number| name(&format!(".old{number}")));
    std::iter::once(name(".old")).chain(numbered).find(|path| !path.exists()).unwrap_or_else(|| name(".old"))
}

/// Quotes a path as one shell word.
pub(crate) fn in_shell(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) && !text.starts_with('-') {
        return text;
    }
    let dashed = if text.starts_with('-') { "./" } else { "" };
    format!("'{dashed}{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_commands_can_be_pasted_into_a_shell() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        for name in ["plain", "with space", "it's", "$HOME"] {
            let folder = parent.path().join(name);
            let expected = [format!("{name}.old"), format!("{name}.old2")];
            for moved in expected.map(|name| parent.path().join(name)) {
                std::fs::create_dir(&folder).expect("created");
                let command = set_aside(&folder);
                let done = std::process::Command::new("sh").args(["-c", &command]).status();
                assert!(done.expect("a shell").success(), "{command}");
                assert!(moved.is_dir() && !folder.exists(), "{command}");
            }
        }
        assert!(set_aside(Path::new(".")).starts_with("mv /"), "{}", set_aside(Path::new(".")));
        assert_eq!(in_shell(Path::new("-x")), "'./-x'");
    }
}
