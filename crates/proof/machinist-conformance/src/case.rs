//! The YAML format of conformance cases.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A sequence of requests that demonstrates one behaviour of the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCase {
    /// File name without its extension.
    #[serde(skip)]
    pub name: String,
    /// Description of the demonstrated behaviour, for people.
    pub shows: String,
    /// Numbers of the verified facts about the real server that the case covers.
    #[serde(default)]
    pub facts: Vec<u32>,
    /// Lowest level of conformance at which the case applies.
    pub level: Level,
    pub(crate) steps: Vec<Step>,
}

/// Conformance levels of a server. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Objects and write conflicts.
    Cl0,
    /// Lists and watches.
    Cl1,
    /// CustomResourceDefinitions with their schemas and rules.
    Cl2,
    /// Patches, apply and field ownership.
    Cl3,
    /// Evictions and owner references.
    Cl4,
    /// Requests of kubectl.
    Cl5,
    /// Authentication and authorization.
    Cl6,
}

impl Level {
    /// All levels in ascending order.
    pub const ALL: [Level; 7] =
        [Level::Cl0, Level::Cl1, Level::Cl2, Level::Cl3, Level::Cl4, Level::Cl5, Level::Cl6];

    /// Short description of the level, for reports.
    pub fn about(self) -> &'static str {
        match self {
            Level::Cl0 => "objects and concurrency",
            Level::Cl1 => "lists and watches",
            Level::Cl2 => "definitions, schemas, rules",
            Level::Cl3 => "patches, apply, ownership",
            Level::Cl4 => "evictions and budgets",
            Level::Cl5 => "requests of kubectl",
            Level::Cl6 => "identity and permissions",
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
        known.ok_or_else(|| format!("unknown level {text:?}. Use CL0 to CL6"))
    }
}

/// One step: a request (`verb`) or an operation on a watch.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) id: String,
    /// GET, POST, PUT, PATCH, DELETE.
    #[serde(default)]
    pub(crate) verb: Option<String>,
    /// Opens a watch that runs concurrently with the following steps.
    #[serde(default)]
    pub(crate) watch: Option<String>,
    /// Reads the watch that the named step opened until `until` holds, then ends it.
    #[serde(default)]
    pub(crate) close: Option<String>,
    /// Waits until an object exists at this path; with `gone`, until it does not exist.
    #[serde(default)]
    pub(crate) barrier: Option<String>,
    #[serde(default)]
    pub(crate) gone: bool,
    /// Compacts the store.
    #[serde(default)]
    pub(crate) compact: bool,
    /// Sender of the request, `admin` by default. Others: `nobody` (anonymous), `bearer TOKEN`, `as
    /// USER`, `as USER in GROUP,GROUP`.
    #[serde(default)]
    pub(crate) actor: Option<String>,
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) query: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Abbreviated media type of the patch: json, merge, strategic, apply.
    #[serde(default)]
    pub(crate) patch: Option<String>,
    /// Format of the answer: `table`, `discovery`, or a value of the `Accept` header.
    #[serde(default)]
    pub(crate) accept: Option<String>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    /// Request body as text, for bodies that are not JSON.
    #[serde(default)]
    pub(crate) raw: Option<String>,
    /// Request body as bytes, in base64.
    #[serde(default)]
    pub(crate) base64: Option<String>,
    /// Expected HTTP code of the answer. With any other code the step would not test its behaviour.
    #[serde(default)]
    pub(crate) expect: Option<u16>,
    /// For `close`: `TYPE name` of the last event, or `end`.
    #[serde(default)]
    pub(crate) until: Option<String>,
    /// Parts of the answer that are not compared: a JSON pointer and the reason for each.
    #[serde(default)]
    pub(crate) except: BTreeMap<String, String>,
    /// Names (`metadata.name`) of the list items that are compared. Other items depend on the
    /// server.
    #[serde(default)]
    pub(crate) among: Vec<String>,
    /// Marks a preparing step. Its answer is not compared.
    #[serde(default)]
    pub(crate) setup: bool,
}

impl RecordedCase {
    /// Whether a step makes the server forget its history, which ends the watches of other cases.
    pub fn compacts(&self) -> bool {
        self.steps.iter().any(|step| step.compact)
    }

    /// Renders the case as a YAML file, one line per step.
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

/// Reports whether a step's key has a default value, so that it can be omitted.
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

/// Renders YAML on one line. Strings are always quoted, which is always valid.
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

/// Renders a key without quotes if every YAML reader takes it for text.
fn plain(key: &str) -> String {
    let is_a_word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphabetic());
    let is_another_value =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&key.to_lowercase().as_str());
    if is_a_word && !is_another_value { key.to_owned() } else { Value::from(key).to_string() }
}

/// Error while loading conformance cases.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// A requested case does not exist.
    #[error("unknown case {name:?}. Known cases: {known}")]
    Unknown {
        /// Name of the requested case.
        name: String,
        /// Names of the existing cases.
        known: String,
    },
    /// A file has invalid content.
    #[error("{}: {message}", file.display())]
    Parse {
        /// Path of the file.
        file: PathBuf,
        /// Description of the problem.
        message: String,
    },
}

/// Selects the cases with these names, or all cases if `names` is empty.
///
/// # Errors
/// When a name is unknown, because a mistyped case must not count as played.
pub fn choose(cases: Vec<RecordedCase>, names: &[String]) -> Result<Vec<RecordedCase>, CaseError> {
    if let Some(unknown) = names.iter().find(|name| cases.iter().all(|case| case.name != **name)) {
        let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        return Err(CaseError::Unknown { name: unknown.clone(), known: known.join(", ") });
    }
    Ok(cases.into_iter().filter(|case| names.is_empty() || names.contains(&case.name)).collect())
}

/// Reads every case of a folder, sorted by name.
///
/// # Errors
/// When a file cannot be read or is not a valid case.
pub fn load(folder: &Path) -> Result<Vec<RecordedCase>, CaseError> {
    let mut cases = Vec::new();
    for file in files(folder)? {
        let mut case: RecordedCase = parse(&file)?;
        case.name = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        cases.push(case);
    }
    Ok(cases)
}

/// Lists the YAML files of a folder, sorted by name.
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

/// Reads a text file.
pub(crate) fn read(file: &Path) -> Result<String, CaseError> {
    std::fs::read_to_string(file).map_err(|source| CaseError::Read { file: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_writing_and_reading() {
        let text = r##"{shows: a story, level: CL0, steps: [
            {id: a, verb: POST, path: "/x/${ns}", body: {"y": {no: [1, null, "# no: comment"]}, "k/l": "\u00e9\n"}, expect: 201},
            {id: b, close: a, until: DELETED b, setup: true}]}"##;
        let case: RecordedCase = serde_saphyr::from_str(text).expect("a case");
        let again: RecordedCase = serde_saphyr::from_str(&case.yaml()).expect("the written case parses");
        assert_eq!(case.yaml(), again.yaml());
        assert_eq!(case.steps[0].body, again.steps[0].body);
        assert!(again.steps[1].setup && again.steps[1].until.as_deref() == Some("DELETED b"));
    }
}
