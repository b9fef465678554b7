//! The field managers of one object: `metadata.managedFields`.
//!
//! A manager is identified by its name, its operation (`Apply` or `Update`), the version and the
//! subresource. An applier is one manager, regardless of the version.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::fields::set::FieldSet;

/// Maximum number of update entries per object. The oldest entries beyond it are merged.
const MAX_UPDATERS: usize = 10;

/// Manager of the merged entries.
const ANCIENT: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One manager with its fields, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    /// Time of the last change of the owned fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    fields_type: FieldsType,
    #[serde(rename = "fieldsV1", default)]
    pub(crate) fields: FieldSet,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
}

/// The only supported notation of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum FieldsType {
    FieldsV1,
}

/// Identity of a manager, without its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

impl Manager {
    /// Returns an entry of this manager that owns `fields`.
    pub(crate) fn owning(&self, fields: FieldSet, time: Option<String>) -> Entry {
        Entry {
            manager: self.name.clone(),
            operation: self.operation,
            api_version: self.api_version.clone(),
            time,
            fields_type: FieldsType::FieldsV1,
            fields,
            subresource: self.subresource.clone(),
        }
    }
}

impl Entry {
    pub(crate) fn is_of(&self, manager: &Manager) -> bool {
        self.operation == manager.operation
            && self.manager == manager.name
            && self.subresource == manager.subresource
            && (self.operation == Operation::Apply || self.api_version == manager.api_version)
    }

    fn is_same_manager(&self, other: &Entry) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns the manager as conflict errors name it.
    pub(crate) fn shown(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    /// Compares managers in the order of conflict errors.
    pub(crate) fn compare_shown(&self, other: &Entry) -> Ordering {
        let identity = |e: &Entry| {
            let version = if e.operation == Operation::Apply { String::new() } else { e.api_version.clone() };
            (e.manager.clone(), e.operation, version, e.subresource.clone())
        };
        identity(self).cmp(&identity(other))
    }
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Managers(pub(crate) Vec<Entry>);

impl Managers {
    /// Parses the stored text, which this server wrote or loaded. An unreadable text counts as no
    /// managers.
    pub(crate) fn stored(text: Option<&str>) -> Self {
        let entries = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Managers::distinct(entries)
    }

    /// Parses the list of a client. Returns `None` if the list is invalid.
    pub(crate) fn given(list: &Value) -> Option<Self> {
        let entries: Vec<Entry> = serde_json::from_value(list.clone()).ok()?;
        let valid = entries.iter().all(|entry| !entry.api_version.is_empty());
        valid.then(|| Managers::distinct(entries))
    }

    /// Keeps only the last entry of each manager.
    fn distinct(entries: Vec<Entry>) -> Self {
        let mut distinct: Vec<Entry> = Vec::with_capacity(entries.len());
        for entry in entries {
            match distinct.iter_mut().find(|held| held.is_same_manager(&entry)) {
                Some(held) => *held = entry,
                None => distinct.push(entry),
            }
        }
        Managers(distinct)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn find(&self, manager: &Manager) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.is_of(manager))
    }

    /// Adds an entry, or replaces the existing entry of its manager.
    pub(crate) fn put(&mut self, entry: Entry) {
        match self.0.iter_mut().find(|held| held.is_same_manager(&entry)) {
            Some(held) => *held = entry,
            None => self.0.push(entry),
        }
    }

    pub(crate) fn remove(&mut self, manager: &Manager) {
        self.0.retain(|entry| !entry.is_of(manager));
    }

    /// Removes fields from all managers.
    pub(crate) fn disown(&mut self, fields: &FieldSet) {
        self.0.retain_mut(|entry| {
            entry.fields.subtract(fields);
            !entry.fields.is_empty()
        });
    }

    /// Merges the oldest update entries, version by version, until the limit is met.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Entry> =
            self.0.iter().filter(|e| e.operation == Operation::Update).cloned().collect();
        if updaters.len() <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.compare_shown(b)));
        let mut surplus = updaters.len() - MAX_UPDATERS;
        let mut firsts: Vec<Entry> = Vec::new();
        for updater in updaters {
            if surplus == 0 {
                break;
            }
            let Some(first) = firsts.iter().find(|f| f.api_version == updater.api_version).cloned() else {
                firsts.push(updater);
                continue;
            };
            let bucket = Manager {
                name: ANCIENT.to_owned(),
                operation: Operation::Update,
                api_version: updater.api_version.clone(),
                subresource: String::new(),
            };
            let mut fields = match self.find(&bucket) {
                Some(held) => held.fields.clone(),
                None => {
                    self.0.retain(|entry| !entry.is_same_manager(&first));
                    first.fields
                }
            };
            fields.unite(&updater.fields);
            self.0.retain(|entry| !entry.is_same_manager(&updater));
            self.put(bucket.owning(fields, updater.time));
            surplus -= 1;
        }
    }

    /// Returns the stored form: appliers first, then by time, name, version and subresource. Empty
    /// if there are no managers.
    pub(crate) fn text(mut self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        self.0.sort_by(|a, b| {
            let rank = |e: &Entry| (e.operation, e.time.clone(), e.manager.clone());
            rank(a)
                .cmp(&rank(b))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        serde_json::to_string(&self.0).expect("entries are JSON")
    }
}

/// Whether two stored texts are the same except for their times.
pub(crate) fn differ_in_time_only(a: Option<&str>, b: Option<&str>) -> bool {
    let timeless = |text: Option<&str>| {
        let mut managers = Managers::stored(text);
        managers.0.iter_mut().for_each(|entry| entry.time = None);
        Managers::stored(Some(&managers.text()))
    };
    a == b || timeless(a) == timeless(b)
}
