//! `cargo xtask tidy`: the rules of this workspace that the compiler cannot check.
//!
//! Each rule is a function that returns its findings. A *fault* fails the command; a *note* is
//! something to look at, because the rule has good exceptions. All rules run, so one run shows
//! everything.

mod cases;
mod edges;
mod findings;
mod imports;
mod manifests;
mod names;
mod prose;
mod rust;
mod sources;
mod workspace;

use anyhow::{Result, ensure};

use findings::Findings;
use workspace::Workspace;

type Rule = fn(&Workspace) -> Result<Findings>;

const RULES: &[(&str, Rule)] = &[
    ("crates depend on each other as ARCHITECTURE.md allows", edges::between_our_crates),
    ("the planners stay free of runtime, client, clock and randomness", edges::of_the_planners),
    ("each kind's planner and controller have the same path", sources::planner_and_controller_paths),
    ("no import circle is larger than a folder", imports::circles),
    ("no import circle has more than five files", imports::circle_sizes),
    ("the embedded server's layers import downwards", imports::layers),
    ("the prose has none of the refused words", prose::words),
    ("comments and Markdown are at most 100 columns wide", prose::widths),
    ("a doc comment begins with the name of its object", prose::first_words),
    ("the name of a test is at most 60 letters long", prose::test_names),
    ("each acceptance case has a test with its id, or a reason", cases::tested),
    ("no file grows beyond what can be read", sources::file_lengths),
    ("modules are named after what is inside", sources::module_names),
    ("no two public types of one name mean different things", names::public_types),
    ("no file names a path of one computer", sources::machine_paths),
    ("dependencies are declared once, in the workspace", manifests::declared_in_the_workspace),
    ("no shipped program can take a fix back", manifests::shipped_reverts),
    ("no crate is compiled in two major versions", manifests::duplicate_versions),
];

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::read()?;
    let mut faults = 0;
    for (rule, check) in RULES {
        let findings = check(&workspace).unwrap_or_else(|error| Findings {
            faults: vec![format!("cannot be checked: {error:#}")],
            notes: Vec::new(),
        });
        println!("{} {rule}", if findings.faults.is_empty() { "ok   " } else { "FAULT" });
        for fault in &findings.faults {
            println!("      {fault}");
        }
        for note in &findings.notes {
            println!("      note: {note}");
        }
        faults += findings.faults.len();
    }
    ensure!(faults == 0, "{faults} faults");
    Ok(())
}
