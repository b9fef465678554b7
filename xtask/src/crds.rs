//! `cargo xtask crds`: writes `deploy/crds` as `machinist crds` prints it, one file a CRD. `cargo xtask tidy` compares.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace::{self, output_of};

/// Relative to the root of the workspace.
pub(crate) const FOLDER: &str = "deploy/crds";

pub(crate) fn run() -> Result<()> {
    let folder = workspace::root().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in printed()? {
        let file = folder.join(&name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{FOLDER}/{name}");
    }
    Ok(())
}

/// What the program prints: the text of each file by its name.
pub(crate) fn printed() -> Result<BTreeMap<String, String>> {
    files_of(&output_of(workspace::program()?.arg("crds"))?)
}

fn files_of(stream: &str) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for document in documents(stream) {
        let name = name_of(document)
            .with_context(|| format!("`machinist crds` prints an object without a name:\n{document}"))?;
        // As the CRDs of Go programs are named: group first, so that a folder sorts by group.
        let (plural, group) = name
            .split_once('.')
            .with_context(|| format!("`machinist crds` prints {name:?}, which is not <plural>.<group>"))?;
        let earlier = files.insert(format!("{group}_{plural}.yaml"), format!("---\n{document}\n"));
        ensure!(earlier.is_none(), "`machinist crds` prints {name} twice");
    }
    Ok(files)
}

/// The documents of a YAML stream, without the blank lines around them.
fn documents(stream: &str) -> impl Iterator<Item = &str> {
    let is_marker = |line: &str| line.trim_end() == "---";
    let mut start = 0;
    let mut starts = vec![0];
    let mut ends = Vec::new();
    for line in stream.split_inclusive('\n') {
        if is_marker(line) {
            ends.push(start);
            starts.push(start + line.len());
        }
        start += line.len();
    }
    ends.push(stream.len());
    starts.into_iter().zip(ends).map(|(start, end)| stream[start..end].trim()).filter(|text| {
        // Comments alone are no object.
        text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'))
    })
}

/// The name in an object's metadata: in a CRD the first line that is indented by one step and says `name:`.
fn name_of(document: &str) -> Option<&str> {
    document.lines().find_map(|line| line.strip_prefix("  name: ")).map(|name| name.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_into_one_file_for_each_object() {
        let stream = "---\nkind: A\nmetadata:\n  name: as.example.com\n---\n# nothing but a comment\n---\nkind: B\nmetadata:\n  name: bs.example.com\n";
        let files = files_of(stream).expect("two objects");
        let wanted = [
            ("example.com_as.yaml", "---\nkind: A\nmetadata:\n  name: as.example.com\n"),
            ("example.com_bs.yaml", "---\nkind: B\nmetadata:\n  name: bs.example.com\n"),
        ];
        assert_eq!(files, wanted.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    }

    #[test]
    fn an_object_twice_is_refused() {
        let document = "---\nmetadata:\n  name: as.example.com\n";
        let message = files_of(&document.repeat(2)).expect_err("the same name twice").to_string();
        assert!(message.contains("as.example.com twice"), "{message}");
    }
}
