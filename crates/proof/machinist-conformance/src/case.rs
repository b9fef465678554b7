//! Cases as they are written down.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A list of requests that show something about the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// What it shows, for people.
    pub shows: String,
    /// Numbers of the verified facts of the real server that it covers.
    #[serde(default)]
    pub facts: Vec<u32>,
    /// What a server must do before this is of interest.
    pub level: Level,
    pub(crate) steps: Vec<Step>,
}

/// How far a server's faithfulness goes; each level stands on those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Objects, and who was first.
    Cl0,
    /// Lists and watches.
    Cl1,
    /// Definitions, their schemas and rules.
    Cl2,
    /// Patches, apply, and who owns which field.
    Cl3,
    /// Evictions, and what depends on what.
    Cl4,
    /// What kubectl asks.
    Cl5,
    /// Who somebody is and what he may.
    Cl6,
}

impl Level {
    /// All of them, from the first.
    pub const ALL: [Level; 7] =
        [Level::Cl0, Level::Cl1, Level::Cl2, Level::Cl3, Level::Cl4, Level::Cl5, Level::Cl6];

    /// What it is about.
    pub fn about(self) -> &'static str {
        match self {
            Level::Cl0 => "objects and concurrency",
            Level::Cl1 => "lists and watches",
            Level::Cl2 => "definitions, schemas, rules",
            Level::Cl3 => "patches, apply, ownership",
            Level::Cl4 => "evictions and budgets",
            Level::Cl5 => "what kubectl asks",
            Level::Cl6 => "identity and permission",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CL{}", *self as u8)
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Level::ALL.into_iter().find(|level| level.to_string().eq_ignore_ascii_case(text));
        known.ok_or_else(|| format!("there is no level {text:?}; there are CL0 to CL6"))
    }
}

/// One step: a request (`verb`), or one of the acts on a watch.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) id: String,
    /// GET, POST, PUT, PATCH, DELETE.
    #[serde(default)]
    pub(crate) verb: Option<String>,
    /// Opens a watch that runs beside the following steps.
    #[serde(default)]
    pub(crate) watch: Option<String>,
    /// Takes what a watch has seen until `until` holds, and ends it. Names the step that opened it.
    #[serde(default)]
    pub(crate) close: Option<String>,
    /// Waits until this path is there; with `gone`, until it is not.
    #[serde(default)]
    pub(crate) barrier: Option<String>,
    #[serde(default)]
    pub(crate) gone: bool,
    /// Forgets the past.
    #[serde(default)]
    pub(crate) compact: bool,
    /// `admin` unless said otherwise; `nobody`, `bearer TOKEN`, `as USER` or `as USER in GROUP,GROUP`.
    #[serde(default)]
    pub(crate) actor: Option<String>,
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) query: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Short for the patch's media type: json, merge, strategic, apply.
    #[serde(default)]
    pub(crate) patch: Option<String>,
    /// The shape of the answer: `table`, `discovery`, or a value of the `Accept` header.
    #[serde(default)]
    pub(crate) accept: Option<String>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    /// The body as text, for what is not JSON.
    #[serde(default)]
    pub(crate) raw: Option<String>,
    /// The body as bytes, in base64.
    #[serde(default)]
    pub(crate) base64: Option<String>,
    /// The code that makes the step show what it is for.
    #[serde(default)]
    pub(crate) expect: Option<u16>,
    /// For `close`: `TYPE name` of the last event, or `end`.
    #[serde(default)]
    pub(crate) until: Option<String>,
    /// Parts of the answer that are not compared, with the reason: a JSON pointer each.
    #[serde(default)]
    pub(crate) except: BTreeMap<String, String>,
    /// Of a list, the items that are compared, by `metadata.name`: what else a server has is not the case's concern.
    #[serde(default)]
    pub(crate) among: Vec<String>,
    /// Sent to set the scene; its answer is not compared.
    #[serde(default)]
    pub(crate) setup: bool,
}

impl Case {
    /// The case as a file has it, a line for each step.
    pub fn yaml(&self) -> String {
        let mut text =
            format!("shows: {}\nlevel: {}\nfacts: {:?}\nsteps:\n", self.shows, self.level, self.facts);
        for step in &self.steps {
            let mut step = serde_json::to_value(step).expect("a step serialises");
            if let Some(keys) = step.as_object_mut() {
                keys.retain(|_, value| !is_left_out(value));
            }
            text.push_str(&format!("- {}\n", flow(&step)));
        }
        text
    }
}

/// Whether a key of a step says no more than its absence.
fn is_left_out(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(given) => !given,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// YAML on one line. Strings keep their quotes, which is always right.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, v)| format!("{}: {}", plain(key), flow(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// A key without quotes, where no reader can take it for anything but text.
fn plain(key: &str) -> String {
    let is_a_word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphabetic());
    let is_another_value =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&key.to_lowercase().as_str());
    if is_a_word && !is_another_value { key.to_owned() } else { Value::from(key).to_string() }
}

/// A case that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file.
    #[error("cannot read {}", file.display())]
    Read {
        /// Which one.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Its name.
    #[error("there is no case {name:?}; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Its content.
    #[error("{}: {message}", file.display())]
    Parse {
        /// Which one.
        file: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// The cases with these names; all when none is named.
///
/// # Errors
/// When there is no case of a name: a mistyped one must not pass for one that was played.
pub fn choose(cases: Vec<Case>, names: &[String]) -> Result<Vec<Case>, CaseError> {
    if let Some(unknown) = names.iter().find(|name| cases.iter().all(|case| case.name != **name)) {
        let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        return Err(CaseError::Unknown { name: unknown.clone(), known: known.join(", ") });
    }
    Ok(cases.into_iter().filter(|case| names.is_empty() || names.contains(&case.name)).collect())
}

/// Reads every case of a folder, in order of their names.
///
/// # Errors
/// When a file cannot be read or is not a case.
pub fn load(folder: &Path) -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    for file in files(folder)? {
        let mut case: Case = parse(&file)?;
        case.name = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        cases.push(case);
    }
    Ok(cases)
}

/// The YAML files of a folder, in order of their names.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, CaseError> {
    let unreadable = |source| CaseError::Read { file: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Parses one YAML file.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, CaseError> {
    serde_saphyr::from_str(&read(file)?)
        .map_err(|e| CaseError::Parse { file: file.to_owned(), message: e.to_string() })
}

/// Reads a file.
pub(crate) fn read(file: &Path) -> Result<String, CaseError> {
    std::fs::read_to_string(file).map_err(|source| CaseError::Read { file: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_was_written_reads_as_the_same() {
        let text = r##"{shows: a story, level: CL0, steps: [
            {id: a, verb: POST, path: "/x/${ns}", body: {"y": {no: [1, null, "# no: comment"]}, "k/l": "\u00e9\n"}, expect: 201},
            {id: b, close: a, until: DELETED b, setup: true}]}"##;
        let case: Case = serde_saphyr::from_str(text).expect("a case");
        let again: Case = serde_saphyr::from_str(&case.yaml()).expect("what was written");
        assert_eq!(case.yaml(), again.yaml());
        assert_eq!(case.steps[0].body, again.steps[0].body);
        assert!(again.steps[1].setup && again.steps[1].until.as_deref() == Some("DELETED b"));
    }
}
