//! No public type has the name of another one with a different meaning.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::findings::Findings;
use super::workspace::Workspace;

const FOLDERS: &[&str] =
    &["crates/core/", "crates/drivers/", "crates/embedded/", "crates/machinist/", "crates/proof/"];

/// Names with one meaning and several types: the role of the type in its module.
const ROLES: &[(&str, &str)] = &[
    ("Action", "one call that a planner decides"),
    ("Args", "the flags of a benchmark"),
    ("Bootstrap", "what a machine starts with: of a Machine, and of a container"),
    ("Case", "one run of a scenario of a contract"),
    ("Clock", "the time of a process, a server or a cloud"),
    ("Cluster", "the kind of Cluster API, and one of the two clusters of a process"),
    ("DockerOptions", "the settings of the Docker kinds, and of the Docker driver"),
    ("Endpoint", "the URL of a cloud, or of an API server"),
    ("EndpointError", "why a URL of a cloud cannot be used"),
    ("ExplainError", "why an object of a contract cannot be explained"),
    ("Explanation", "the explanation of an object of a contract"),
    ("Fault", "what goes wrong with a call"),
    ("FaultRule", "which calls a fault concerns"),
    ("Inspector", "reads the state of a running process"),
    ("Kept", "the content of a data folder"),
    ("Machine", "the kind of the machine API, and the kind of Cluster API"),
    ("MachineSpec", "the spec of a kind `Machine`"),
    ("MachineStatus", "the status of a kind `Machine`"),
    ("Mount", "a mount of a container"),
    ("Mutant", "a way in which the programs of a contract are broken on purpose"),
    ("NoAnswer", "why a cloud gave no answer"),
    ("Observing", "the watches of a process that does not lead"),
    ("OpenError", "why a data folder cannot be used"),
    ("Options", "the settings of a planner or of a process"),
    ("OptionsError", "a wrong setting of a driver"),
    ("Plan", "the result of a decision"),
    ("Planners", "the functions that decide, of a contract"),
    ("ProviderSpec", "the providerSpec of a cloud"),
    ("Reason", "why an object waits"),
    ("Running", "a process that runs until it is dropped"),
    ("Scenario", "a story that the world of a contract plays"),
    ("Seen", "the stores and the memory of a contract"),
    ("Settings", "the behaviour of a simulated cloud"),
    ("Snapshot", "all facts of one decision"),
    ("Standin", "a stand-in for a service"),
    ("SystemClock", "the time of the operating system"),
    ("TemplateMetadata", "the metadata in a template"),
    ("TokioClock", "the time of the runtime, which tests can pause"),
    ("Tools", "the options of a contract's kinds"),
    ("Transport", "sends a request to a cloud"),
    ("Why", "the reason of a decision, with the next step"),
];

/// Reports public types of one name.
pub(super) fn public_types(workspace: &Workspace) -> Result<Findings> {
    let mut places: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let files = workspace.files_ending(".rs").filter(|file| {
        FOLDERS.iter().any(|folder| file.starts_with(folder))
            && file.contains("/src/")
            && !file.ends_with("tests.rs")
            && !file.contains("/tests/")
    });
    for file in files {
        for line in workspace.text_of(file)?.lines() {
            if let Some(name) = public_type(line) {
                places.entry(name.to_owned()).or_default().insert(file);
            }
        }
    }
    let mut findings = Findings::default();
    let is_role = |name: &str| ROLES.iter().any(|(role, _)| *role == name);
    for (name, files) in places.iter().filter(|(name, files)| 1 < files.len() && !is_role(name)) {
        let files: Vec<&str> = files.iter().copied().collect();
        findings.fault(format!(
            "{} public types are called {name}. Rename all but one, or say in {} what their one meaning is: {}",
            files.len(),
            file!(),
            files.join(", ")
        ));
    }
    for (role, _) in ROLES.iter().filter(|(role, _)| places.get(*role).is_none_or(|files| files.len() < 2)) {
        findings.fault(format!("{}: {role} is the name of one type, and needs no row", file!()));
    }
    Ok(findings)
}

/// The name of the public type that a line defines.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let name =
        ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|word| rest.strip_prefix(word))?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

#[test]
fn only_public_types_have_a_name() {
    assert_eq!(public_type("pub struct World<C> {"), Some("World"));
    assert_eq!(public_type("pub type Why = machinist_core::Why;"), Some("Why"));
    for line in ["pub(crate) struct World {", "    pub struct World;", "pub fn world() {", "struct World;"] {
        assert_eq!(public_type(line), None, "{line}");
    }
}
