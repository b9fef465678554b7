//! The warnings in the logs of the controllers.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// The message of a pass whose actions had no effect. One ordinary conflict does not cause it.
pub(super) const NO_EFFECT: &str = "Repeated action had no effect";

/// Number of warnings, by their messages without fields.
///
/// # Errors
/// When a log cannot be read.
pub(super) fn count(logs: &Path) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for entry in std::fs::read_dir(logs).with_context(|| format!("cannot read {}", logs.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            for message in String::from_utf8_lossy(&text).lines().filter_map(warning) {
                *counts.entry(message).or_default() += 1;
            }
        }
    }
    Ok(counts)
}

/// The message without its fields, if the line is a warning.
fn warning(line: &str) -> Option<String> {
    let (_, message) = line.split_once(" WARN ")?;
    // The module precedes the message, and the fields follow it.
    let message = message.split_once(": ").map_or(message, |(_module, message)| message);
    let words: Vec<&str> = message.split(' ').take_while(|word| !word.contains('=')).collect();
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_warnings_are_counted_by_their_message() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let text = "\
2026-01-01T00:00:00Z  WARN machinist_runtime::runtime: Repeated action had no effect; pausing key=machine/a\n\
2026-01-01T00:00:00Z  INFO machinist_runtime::pass: Performing actions key=machine/a\n\
2026-01-01T00:00:01Z  WARN machinist_runtime::runtime: Repeated action had no effect; pausing key=machine/b\n";
        std::fs::write(folder.path().join("a.log"), text).expect("written");
        let counts = count(folder.path()).expect("the log is readable");
        let [(message, number)] = counts.iter().collect::<Vec<_>>().try_into().expect("one message");
        assert!(message.starts_with(NO_EFFECT), "{message}");
        assert_eq!(*number, 2);
    }
}
