//! `cargo xtask components`: writes what users install, and no folder of the repository has: the
//! CRDs, and a local repository of clusterctl with the providers for Cluster API.
//!
//! The CRDs are the output of `machinist crds`. The other components of a provider are the files
//! that `deploy/capi/<provider>/components.txt` lists. The lanes use the same functions.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{self, output_of};

/// Name of the file that `clusterctl init` installs.
pub(crate) const COMPONENTS: &str = "infrastructure-components.yaml";

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the files; the command creates it
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Also record the fields of the CRDs in fixtures/crd-fields.txt. Use this for a release: from
    /// then on, a test fails if a change removes or narrows one of the fields
    #[arg(long)]
    record: bool,
}

/// A provider for Cluster API: its name in `deploy/capi` and in `machinist crds --kinds`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Provider {
    Docker,
    Mailgun,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = workspace::program()?;
    let program = Path::new(program.get_program());
    let crds = args.output.join("crds");
    create(&crds)?;
    for kinds in ["machines", "docker", "mailgun"] {
        let file = crds.join(format!("{kinds}.yaml"));
        write(&file, &printed(program, kinds)?)?;
        println!("{}", file.display());
    }
    for provider in [Provider::Docker, Provider::Mailgun] {
        println!("{}", provider.release_into(&args.output, program)?.display());
    }
    if args.record { record() } else { Ok(()) }
}

/// Records the fields with the test that compares them, because this crate does not compile the
/// definitions.
fn record() -> Result<()> {
    let name = "crd_fields::no_recorded_field_is_removed_or_narrowed";
    workspace::run_test("machinist-api", name, ("MACHINIST_RECORD_CRD_FIELDS", OsStr::new("1")))?;
    println!("fixtures/crd-fields.txt");
    Ok(())
}

/// Returns the output of `machinist crds` of this program.
pub(crate) fn printed(program: &Path, kinds: &str) -> Result<String> {
    output_of(Command::new(program).args(["crds", "--kinds", kinds]))
}

impl Provider {
    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Mailgun => "mailgun",
        }
    }

    /// Returns the objects that `clusterctl init` installs, as YAML, with the CRDs of this program.
    pub(crate) fn components(self, program: &Path) -> Result<String> {
        let folder = self.folder();
        let mut text = printed(program, self.name())?;
        for part in parts(&read(&folder.join("components.txt"))?) {
            text.push_str(&without_header(&read(&folder.join(part))?));
        }
        Ok(text)
    }

    /// Writes the files of this version, as clusterctl looks for them in a local repository, and
    /// returns their folder.
    pub(crate) fn release_into(self, repository: &Path, program: &Path) -> Result<PathBuf> {
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        let release = repository.join(format!("infrastructure-machinist-{}", self.name())).join(version);
        create(&release)?;
        write(&release.join(COMPONENTS), &self.components(program)?)?;
        let folder = self.folder();
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let name = entry?.file_name();
            if name.to_str().is_some_and(is_of_a_release) {
                write(&release.join(&name), &read(&folder.join(&name))?)?;
            }
        }
        Ok(release)
    }

    fn folder(self) -> PathBuf {
        workspace::root().join("deploy/capi").join(self.name())
    }
}

/// Whether clusterctl reads the file as it is in `deploy/capi`.
fn is_of_a_release(name: &str) -> bool {
    name == "metadata.yaml" || name.starts_with("cluster-template") || name.starts_with("clusterclass-")
}

/// Returns the paths of a `components.txt`.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns the objects of a file without the comment at its start, which is about the file.
fn without_header(text: &str) -> String {
    text.lines().skip_while(|line| *line != "---").flat_map(|line| [line, "\n"]).collect()
}

fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_loses_only_the_comment_at_its_start() {
        let text = "# about the file\n---\n# about the object\nkind: A\n---\nkind: B\n";
        assert_eq!(without_header(text), "---\n# about the object\nkind: A\n---\nkind: B\n");
    }

    #[test]
    fn every_provider_lists_parts_that_exist() {
        for provider in [Provider::Docker, Provider::Mailgun] {
            let list = read(&provider.folder().join("components.txt")).expect("a list");
            let parts: Vec<&str> = parts(&list).collect();
            assert!(parts.contains(&"manager.yaml"), "{provider:?}: {parts:?}");
            for part in parts {
                let text = read(&provider.folder().join(part)).expect("a part");
                assert!(without_header(&text).contains("\nkind: "), "{part}");
            }
        }
    }
}
