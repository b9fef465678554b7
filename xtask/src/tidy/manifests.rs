//! Rules about Cargo.toml files and the lock file.
//!
//! The files are read line by line, in the one form that this workspace writes; a line in another
//! form is a fault, not a gap.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::findings::Findings;
use super::workspace::Workspace;

pub(super) fn declared_in_the_workspace(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut used = BTreeSet::new();
    for package in &workspace.packages {
        let manifest = std::fs::read_to_string(&package.manifest_path)?;
        for line in dependency_lines(&manifest) {
            match inherited_dependency(line) {
                Some(name) => {
                    used.insert(name.to_owned());
                }
                None => findings.fault(format!(
                    "{}: `{line}` must be `<name>.workspace = true`, with its version in the root Cargo.toml",
                    package.name
                )),
            }
        }
    }
    let root = workspace.text_of("Cargo.toml")?;
    for name in section(&root, |header| header == "workspace.dependencies").filter_map(key_of) {
        if !used.contains(name) {
            findings.note(format!("the root Cargo.toml declares {name}, which no crate uses"));
        }
    }
    Ok(findings)
}

/// The feature `reverts` of machinist-core takes fixes back for the simulator. Cargo turns on the
/// features of a dev-dependency only when it builds tests, so no other section may name it.
pub(super) fn shipped_reverts(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut is_known = false;
    for package in &workspace.packages {
        let manifest = std::fs::read_to_string(&package.manifest_path)?;
        is_known |= package.name == "machinist-core" && declares_reverts(&manifest);
        for line in reverting_lines(&manifest) {
            findings.fault(format!(
                "{}: `{line}` gives a shipped program the feature {REVERTS}; expected it in dev-dependencies only",
                package.name
            ));
        }
    }
    if !is_known {
        findings.fault(format!("machinist-core has no feature {REVERTS}, so this rule proves nothing"));
    }
    Ok(findings)
}

const REVERTS: &str = "reverts";

fn declares_reverts(manifest: &str) -> bool {
    section(manifest, |header| header == "features").any(|line| key_of(line) == Some(REVERTS))
}

/// The lines outside of dev-dependencies that turn the feature on.
fn reverting_lines(manifest: &str) -> impl Iterator<Item = &str> {
    let is_shipped = |header: &str| !header.split('.').any(|part| part == "dev-dependencies");
    section(manifest, is_shipped).filter(|line| {
        let turned_on = line.split('#').next().and_then(|line| line.split_once('=')).map(|(_, value)| value);
        turned_on.is_some_and(|value| value.contains(REVERTS))
    })
}

pub(super) fn duplicate_versions(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for (name, versions) in versions_by_name(&workspace.text_of("Cargo.lock")?) {
        let majors: BTreeSet<&str> = versions.iter().map(|version| compatibility_of(version)).collect();
        if 1 < majors.len() {
            // A note: deny.toml is where a duplicate is refused or explained.
            findings.note(format!("{name} {}", versions.join(", ")));
        }
    }
    Ok(findings)
}

/// The lines that declare something in any of a manifest's dependency sections.
fn dependency_lines(manifest: &str) -> impl Iterator<Item = &str> {
    section(manifest, |header| header.split('.').any(|part| part.ends_with("dependencies")))
}

/// The declaring lines of the sections whose header is wanted.
fn section(manifest: &str, is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    let mut wanted = false;
    manifest.lines().map(str::trim).filter(move |line| {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            wanted = is_wanted(header);
            return false;
        }
        wanted && !line.is_empty() && !line.starts_with('#')
    })
}

/// The name in `name.workspace = true` or `name = { workspace = true, ... }`.
fn inherited_dependency(line: &str) -> Option<&str> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    match name.strip_suffix(".workspace") {
        Some(name) => value.starts_with("true").then_some(name),
        None => value.contains("workspace = true").then_some(name),
    }
}

fn key_of(line: &str) -> Option<&str> {
    line.split_once('=').map(|(name, _)| name.trim())
}

fn versions_by_name(lock_file: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in lock_file.lines() {
        let value = |key: &str| line.strip_prefix(key).map(|rest| rest.trim_matches('"'));
        if let Some(found) = value("name = ") {
            name = found;
        } else if let Some(version) = value("version = ").filter(|_| !name.is_empty()) {
            versions.entry(name).or_default().push(version);
        }
    }
    versions
}

/// The part of a version that tells whether Cargo would have used one for the other: `1`, `0.12`.
fn compatibility_of(version: &str) -> &str {
    let numbers = if version.starts_with("0.") { 2 } else { 1 };
    let end = version.match_indices('.').nth(numbers - 1).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_with_its_own_version_is_noticed() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\n# why\na.workspace = true\nb = { workspace = true, features = [\"c\"] }\n\
                        d = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\ne = { version = \"1\" }\n[features]\nf = []\n";
        let refused: Vec<&str> =
            dependency_lines(manifest).filter(|line| inherited_dependency(line).is_none()).collect();
        assert_eq!(refused, ["d = \"1\"", "e = { version = \"1\" }"]);
    }

    #[test]
    fn a_shipped_dependency_that_reverts_fixes_is_noticed() {
        let manifest = "[package]\nname = \"x\"\n[features]\nreverts = []\nall = [\"machinist-core/reverts\"]\n[dependencies]\n\
                        a = { workspace = true, features = [\"reverts\"] }\nb.workspace = true # not reverts\n\
                        [dev-dependencies]\na = { workspace = true, features = [\"reverts\"] }\n";
        let refused: Vec<&str> = reverting_lines(manifest).collect();
        let expected =
            ["all = [\"machinist-core/reverts\"]", "a = { workspace = true, features = [\"reverts\"] }"];
        assert_eq!(refused, expected);
        assert!(declares_reverts(manifest));
    }

    #[test]
    fn versions_agree_up_to_the_first_number_that_is_not_zero() {
        assert_eq!(compatibility_of("1.2.3"), "1");
        assert_eq!(compatibility_of("0.12.3"), "0.12");
    }
}
