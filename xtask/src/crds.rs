//! `cargo xtask crds`: writes the output of `machinist crds` to `deploy/crds`, one file per CRD,
//! and the components of the Cluster API providers for clusterctl, which contain some of them.
//! `cargo xtask tidy` compares the files with the output.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace::{self, output_of};

/// Path relative to the root of the workspace.
pub(crate) const FOLDER: &str = "deploy/crds";

/// What `clusterctl init` installs of a provider. The paths are relative to the root of the
/// workspace.
pub(crate) struct Components {
    pub(crate) file: &'static str,
    /// The components beside the CRDs.
    parts: &'static [&'static str],
    /// Start of the names of the files with the CRDs of the provider.
    crds: &'static str,
}

/// The components of the Docker provider.
pub(crate) const DOCKER: Components = Components {
    file: "deploy/capi/docker/infrastructure-components.yaml",
    parts: &["deploy/capi/machine-template-policy.yaml", "deploy/capi/docker/manager.yaml"],
    crds: "infrastructure.cluster.x-k8s.io_docker",
};

/// The components of the Mailgun provider.
const MAILGUN: Components = Components {
    file: "deploy/capi/mailgun/infrastructure-components.yaml",
    parts: &["deploy/capi/mailgun/manager.yaml"],
    crds: "infrastructure.cluster.x-k8s.io_mailgun",
};

/// The components of all providers.
pub(crate) const COMPONENTS: [Components; 2] = [DOCKER, MAILGUN];

pub(crate) fn run() -> Result<()> {
    let folder = workspace::root().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let crds = printed()?;
    for (name, text) in &crds {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{FOLDER}/{name}");
    }
    for components in COMPONENTS {
        let file = workspace::root().join(components.file);
        let text = components.text(&crds)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", components.file);
    }
    Ok(())
}

impl Components {
    /// Returns the text of the file.
    pub(crate) fn text(&self, crds: &BTreeMap<String, String>) -> Result<String> {
        let crds = crds.iter().filter(|(name, _)| name.starts_with(self.crds)).map(|(_, text)| text.clone());
        let mut text = format!(
            "# Written by `cargo xtask crds` from {FOLDER} and these files:\n# {}\n",
            self.parts.join(" ")
        );
        text.extend(crds);
        for part in self.parts {
            let file = workspace::root().join(part);
            let part =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            // Without the comment at the start, which is about the file.
            let objects: Vec<&str> = part.lines().skip_while(|line| *line != "---").collect();
            text.push_str(&format!("{}\n", objects.join("\n")));
        }
        Ok(text)
    }
}

/// Returns the output of `machinist crds` as texts by file name.
pub(crate) fn printed() -> Result<BTreeMap<String, String>> {
    files_of(&output_of(workspace::program()?.args(["crds", "--kinds", "all"]))?)
}

fn files_of(stream: &str) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for document in documents(stream) {
        let name = name_of(document)
            .with_context(|| format!("`machinist crds` printed an object without a name:\n{document}"))?;
        // Named like the CRDs of Go programs: group first, so that files sort by group.
        let (plural, group) = name.split_once('.').with_context(|| {
            format!("`machinist crds` printed the name {name:?}, expected <plural>.<group>")
        })?;
        let earlier = files.insert(format!("{group}_{plural}.yaml"), format!("---\n{document}\n"));
        ensure!(earlier.is_none(), "`machinist crds` printed {name} twice");
    }
    Ok(files)
}

/// Returns the documents of a YAML stream, without the blank lines around them.
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
        // A document with only comments is not an object.
        text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'))
    })
}

/// Returns the name in an object's metadata: in a CRD this is the first `name:` line that is
/// indented by one step.
fn name_of(document: &str) -> Option<&str> {
    document.lines().find_map(|line| line.strip_prefix("  name: ")).map(|name| name.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_split_into_one_file_per_object() {
        let stream = "---\nkind: A\nmetadata:\n  name: as.example.com\n---\n# nothing but a comment\n---\nkind: B\nmetadata:\n  name: bs.example.com\n";
        let files = files_of(stream).expect("two objects");
        let wanted = [
            ("example.com_as.yaml", "---\nkind: A\nmetadata:\n  name: as.example.com\n"),
            ("example.com_bs.yaml", "---\nkind: B\nmetadata:\n  name: bs.example.com\n"),
        ];
        assert_eq!(files, wanted.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    }

    #[test]
    fn a_duplicate_object_is_rejected() {
        let document = "---\nmetadata:\n  name: as.example.com\n";
        let message = files_of(&document.repeat(2)).expect_err("the same name twice").to_string();
        assert!(message.contains("as.example.com twice"), "{message}");
    }
}
