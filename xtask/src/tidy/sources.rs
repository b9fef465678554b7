//! Rules about files: where they lie, how long they are, what they are called, what they must not
//! say.

use std::collections::BTreeSet;

use anyhow::Result;

use super::findings::Findings;
use super::workspace::Workspace;

const CONTRACTS: &[&str] = &["mcm", "ccm", "capi"];
const PLANNERS: &str = "crates/core/machinist-plan/src/";
const CONTROLLERS: &str = "crates/core/machinist-controllers/src/";

/// Beyond it a file has more than one thing to tell. A note, not a fault: a table may be long.
const LONG_FILE_LINES: usize = 800;

/// Names that say how a thing is used and not what it is, so everything fits in.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

/// The controllers of a contract's kinds are the modules that its `kinds.rs` names. The planner of
/// each has the same path.
pub(super) fn planner_and_controller_paths(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let planners: BTreeSet<&str> =
        workspace.files.iter().filter_map(|file| module_of(file.strip_prefix(PLANNERS)?)).collect();
    for contract in CONTRACTS {
        let table = format!("{CONTROLLERS}{contract}/kinds.rs");
        let text = workspace.text_of(&table)?;
        let kinds = kind_modules(&text);
        if kinds.is_empty() {
            findings.fault(format!("{table} names no module of a kind: expected `use super::KIND::...`"));
        }
        for kind in kinds {
            let module = format!("{contract}/{kind}");
            if !planners.contains(module.as_str()) {
                findings.fault(format!("{CONTROLLERS}{module} has no counterpart {PLANNERS}{module}"));
            }
        }
    }
    Ok(findings)
}

/// The `<contract>/<name>` that a file is the module of, as one file or as a folder.
fn module_of(file: &str) -> Option<&str> {
    file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs"))
}

/// The modules of the kinds that a table of kinds imports.
fn kind_modules(table: &str) -> Vec<&str> {
    let imported = table.lines().filter_map(|line| line.strip_prefix("use super::")?.split("::").next());
    imported.filter(|module| !["contract", "key"].contains(module)).collect()
}

pub(super) fn file_lengths(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for file in workspace.files_ending(".rs") {
        let lines = workspace.text_of(file)?.lines().count();
        if LONG_FILE_LINES < lines {
            findings.note(format!("{file} has {lines} lines; look for the second thing in it"));
        }
    }
    Ok(findings)
}

pub(super) fn module_names(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for file in workspace.files_ending(".rs") {
        let is_empty_name = |part: &str| EMPTY_NAMES.contains(&part.strip_suffix(".rs").unwrap_or(part));
        if file.split('/').any(is_empty_name) {
            findings.fault(format!("{file}: name the module after what is inside"));
        }
        for (number, line) in numbered_lines(&workspace.text_of(file)?) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let inline = words.iter().position(|word| *word == "mod").and_then(|at| words.get(at + 1));
            if inline.is_some_and(|name| line.ends_with('{') && is_empty_name(name)) {
                findings.fault(format!("{file}:{number}: name the module after what is inside"));
            }
        }
    }
    Ok(findings)
}

pub(super) fn machine_paths(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let is_written_by_us = |file: &str| {
        [".md", ".rs", ".toml", ".yaml", ".yml", "justfile"].iter().any(|ending| file.ends_with(ending))
            || file.starts_with(".ci/")
    };
    for file in workspace.files.iter().filter(|file| is_written_by_us(file)) {
        for (number, line) in numbered_lines(&workspace.text_of(file)?) {
            let is_prose = file.ends_with(".md") || line.trim_start().starts_with("//");
            if let Some(path) = machine_path_in(line, is_prose) {
                findings.fault(format!("{file}:{number} names {path}"));
            }
        }
    }
    Ok(findings)
}

/// Folders that exist on one machine only. Prose must not name a temporary one either: its reader
/// has another.
fn machine_path_in(line: &str, is_prose: bool) -> Option<&'static str> {
    // In two parts, or this file would break its own rule.
    const ANYWHERE: [&str; 4] =
        [concat!("/", "work"), concat!("/", "root"), concat!("/", "home"), concat!("/", "Users")];
    const IN_PROSE: [&str; 1] = [concat!("/", "tmp")];
    let names = |folder: &str| {
        line.match_indices(folder).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + folder.len()..].chars().next();
            // A whole path component at the start of a path, followed by another one.
            before.is_none_or(|letter| !(letter.is_alphanumeric() || "._-~}/*".contains(letter)))
                && after == Some('/')
        })
    };
    ANYWHERE
        .into_iter()
        .find(|folder| names(folder))
        .or_else(|| IN_PROSE.into_iter().filter(|_| is_prose).find(|folder| names(folder)))
}

fn numbered_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_path_is_found_at_the_start_of_a_path_only() {
        let found = |line: &str| machine_path_in(line, true).is_some();
        assert!(found(&format!("see {}work/notes", "/")));
        assert!(found(&format!("`{}tmp/x`", "/")));
        assert!(!found(&format!("a/{}work/notes", "")));
        assert!(!found("/workspace/x"));
        assert!(!found("networks/homes"));
        assert!(machine_path_in(&format!("let x = \"{}tmp/x\";", "/"), false).is_none());
    }

    #[test]
    fn the_kinds_of_a_contract_are_the_modules_of_its_table() {
        let table = "use super::contract::Mcm;\nuse super::key::Key;\nuse super::machine_set::Sets;\n";
        assert_eq!(kind_modules(table), ["machine_set"]);
        assert_eq!(module_of("mcm/machine_set.rs"), Some("mcm/machine_set"));
        assert_eq!(module_of("mcm/machine/mod.rs"), Some("mcm/machine"));
    }
}
