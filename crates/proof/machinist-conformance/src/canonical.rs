//! Canonicalises answers, so that answers of different servers can be compared.
//!
//! | field | becomes |
//! |---|---|
//! | uid | `U1`, `U2`… by first appearance, wherever it appears |
//! | resourceVersion | `R1`, `R2`… by rank over the whole run; `now` for a list that is at least as new as everything seen so far |
//! | time set by the server | `<time>` or `<micro-time>`; times sent by the case stay |
//! | generated name | `PREFIX<random>` |
//! | continue token | `C1`, `C2`… by first appearance |
//! | the case's namespace | `<ns>` |
//! | managedFields | sorted, without times |
//! | descriptions of a table's columns | dropped |
//! | a duration in a table's cell | `<age>` |
//! | rules of an access review | sorted: a server lists them in cache order |
//! | causes of a rejection | sorted, also in the message that lists them |
//! | type errors of an apply patch | sorted: a server lists them in the random order of a Go map |

use std::collections::BTreeMap;

use machinist_apiserver::is_generated_suffix;
use serde::Serialize;
use serde_json::{Map, Value};

/// One answer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Answer {
    pub(crate) step: String,
    pub(crate) code: u16,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Answer {
    /// Masks the parts of the answer that its step excludes from the comparison.
    pub(crate) fn without(mut self, except: &BTreeMap<String, String>) -> Self {
        for pointer in except.keys() {
            let masked = Value::String("<not compared>".into());
            if let Some(value) = self.body.pointer_mut(pointer) {
                *value = masked;
            } else if let Some((above, key)) = pointer.rsplit_once('/')
                && let Some(Value::Object(parent)) = self.body.pointer_mut(above)
            {
                // The mask must be the same whether a server sends the value or omits it.
                parent.insert(key.to_owned(), masked);
            }
        }
        self
    }
}

pub(crate) struct Canonical<'a> {
    namespace: &'a str,
    uids: Vec<String>,
    tokens: Vec<String>,
    names: BTreeMap<String, String>,
    ranks: BTreeMap<u64, usize>,
    newest: u64,
}

impl<'a> Canonical<'a> {
    pub(crate) fn new(namespace: &'a str) -> Self {
        Canonical {
            namespace,
            uids: Vec::new(),
            tokens: Vec::new(),
            names: BTreeMap::new(),
            ranks: BTreeMap::new(),
            newest: 0,
        }
    }

    pub(crate) fn answers(mut self, answers: &[Answer]) -> Vec<Answer> {
        let mut revisions = Vec::new();
        for answer in answers {
            self.learn(&answer.body, &mut revisions);
        }
        revisions.sort_unstable();
        revisions.dedup();
        self.ranks = revisions.into_iter().zip(1..).collect();
        answers
            .iter()
            .map(|answer| Answer { body: in_order(self.value(&answer.body, "")), ..answer.clone() })
            .collect()
    }

    /// Collects the uids, revisions and names before anything is replaced.
    fn learn(&mut self, value: &Value, revisions: &mut Vec<u64>) {
        match value {
            Value::Object(map) => {
                let text = |key: &str| map.get(key).and_then(Value::as_str);
                if let Some(uid) = text("uid").filter(|u| !u.is_empty() && !self.uids.iter().any(|k| k == u))
                {
                    self.uids.push(uid.to_owned());
                }
                if let Some(revision) = text("resourceVersion").and_then(|r| r.parse().ok())
                    && !is_list_metadata(map)
                {
                    revisions.push(revision);
                }
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name")) {
                    self.names.insert(name.to_owned(), generated_name(prefix, name));
                }
                map.values().for_each(|v| self.learn(v, revisions));
            }
            Value::Array(items) => items.iter().for_each(|v| self.learn(v, revisions)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn value(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(map) => {
                let list = is_list_metadata(map);
                let mut canonical = Map::new();
                for (key, child) in map {
                    let child = match (key.as_str(), child) {
                        ("managedFields", Value::Array(entries)) => self.managers(entries),
                        ("columnDefinitions", Value::Array(columns)) => without_descriptions(columns),
                        ("cells", Value::Array(cells)) => cells.iter().map(|c| self.cell(c)).collect(),
                        ("resourceVersion", Value::String(text)) => Value::String(self.revision(text, list)),
                        ("continue", Value::String(text)) => Value::String(self.token(text)),
                        _ => self.value(child, key),
                    };
                    canonical.insert(self.text(key, ""), child);
                }
                Value::Object(canonical)
            }
            Value::Array(items) => Value::Array(items.iter().map(|v| self.value(v, key)).collect()),
            Value::String(text) => Value::String(self.text(text, key)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Removes the times of managedFields entries and sorts the entries. Servers list them in the
    /// order of their times.
    fn managers(&mut self, entries: &[Value]) -> Value {
        let timeless = |entry: &Value| {
            let mut entry = self.value(entry, "managedFields");
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
            entry
        };
        let mut entries: Vec<Value> = entries.iter().map(timeless).collect();
        entries.sort_by_key(Value::to_string);
        Value::Array(entries)
    }

    fn cell(&mut self, cell: &Value) -> Value {
        match cell.as_str() {
            Some(text) if is_duration(text) => Value::String("<age>".into()),
            Some(text) => match restarts(text) {
                Some(count) => Value::String(format!("{count} (<age> ago)")),
                None => self.value(cell, "cells"),
            },
            None => self.value(cell, "cells"),
        }
    }

    fn revision(&mut self, text: &str, list: bool) -> String {
        let Ok(revision) = text.parse::<u64>() else { return text.to_owned() };
        if list {
            // Other clients of a real server move its newest revision. The distance does not matter
            // here.
            return if self.newest <= revision { "now".into() } else { "past".into() };
        }
        self.newest = self.newest.max(revision);
        self.ranks.get(&revision).map_or_else(|| text.to_owned(), |rank| format!("R{rank}"))
    }

    fn token(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let at = self.tokens.iter().position(|t| t == text).unwrap_or_else(|| {
            self.tokens.push(text.to_owned());
            self.tokens.len() - 1
        });
        format!("C{}", at + 1)
    }

    fn text(&self, text: &str, key: &str) -> String {
        if let Some(time) = time_format(text) {
            return time.to_owned();
        }
        let mut canonical = self.names.get(text).cloned().unwrap_or_else(|| text.to_owned());
        // Longest first: a uid from a case may be part of a uid from a server.
        let mut uids: Vec<(usize, &String)> = self.uids.iter().enumerate().collect();
        uids.sort_by_key(|(_, uid)| std::cmp::Reverse(uid.len()));
        for (index, uid) in uids {
            canonical = canonical.replace(uid, &format!("U{}", index + 1));
        }
        for (name, stands_for) in &self.names {
            canonical = canonical.replace(name, stands_for);
        }
        canonical = canonical.replace(self.namespace, "<ns>");
        if key == "message" { without_revisions(&canonical) } else { canonical }
    }
}

/// Separates what failed from the lines that list why, one type error a line.
const TYPE_ERRORS: &str = ": errors:\n";

/// Sorts the type errors that a rejected apply patch lists.
fn type_errors_in_order(message: &str) -> Option<String> {
    let (head, list) = message.split_once(TYPE_ERRORS)?;
    let mut lines: Vec<&str> = list.split('\n').collect();
    lines.sort_unstable();
    Some([head, TYPE_ERRORS, &lines.join("\n")].concat())
}

/// Sorts causes, type errors and access rules: schema errors arrive in the random order of a Go
/// map, and access rules in the order of a cache. Also sorts the message that lists the causes.
fn in_order(mut body: Value) -> Value {
    if let Some(sorted) = body["message"].as_str().and_then(type_errors_in_order) {
        body["message"] = Value::String(sorted);
    }
    for list in ["/status/resourceRules", "/status/nonResourceRules"] {
        if let Some(Value::Array(rules)) = body.pointer_mut(list) {
            rules.sort_by_key(Value::to_string);
        }
    }
    let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return body };
    let line = |cause: &Value| {
        format!(
            "{}: {}",
            cause["field"].as_str().unwrap_or_default(),
            cause["message"].as_str().unwrap_or_default()
        )
    };
    causes.sort_by_key(line);
    let mut lines: Vec<String> = causes.iter().map(line).collect();
    lines.dedup();
    let message = body["message"].as_str().unwrap_or_default();
    let Some((head, list)) = message.split_once(" is invalid: [") else { return body };
    let length = lines.iter().map(String::len).sum::<usize>() + ", ".len() * (lines.len() - 1) + "]".len();
    // Only a message that consists of exactly these lines is sorted. Any other message is compared
    // unchanged.
    if lines.len() < 2 || list.len() != length || !lines.iter().all(|line| list.contains(line.as_str())) {
        return body;
    }
    body["message"] = Value::String(format!("{head} is invalid: [{}]", lines.join(", ")));
    body
}

/// Drops column descriptions: each server words them differently.
fn without_descriptions(columns: &[Value]) -> Value {
    let column = |column: &Value| match column {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(k, _)| *k != "description").map(|(k, v)| (k.clone(), v.clone())).collect(),
        ),
        other => other.clone(),
    };
    Value::Array(columns.iter().map(column).collect())
}

/// Returns the restart count of a pod from a cell that also shows the time since the last restart:
/// `5 (3m20s ago)`.
fn restarts(text: &str) -> Option<&str> {
    let (count, ago) = text.split_once(" (")?;
    is_duration(ago.strip_suffix(" ago)")?).then_some(count)
}

/// Reports whether the text is an age as a table shows it: `5s`, `3m20s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| !c.is_ascii_digit()) {
        if at == 0 || !matches!(rest.as_bytes()[at], b's' | b'm' | b'h' | b'd' | b'y') {
            return false;
        }
        rest = &rest[at + 1..];
    }
    rest.is_empty() && !text.is_empty()
}

/// Reports whether the map is the metadata of a list: it has a revision and no name.
fn is_list_metadata(map: &Map<String, Value>) -> bool {
    map.contains_key("resourceVersion") && !map.contains_key("name") && !map.contains_key("uid")
}

/// Returns the placeholder for a time's format. Times that no clock shows now come from the case
/// and stay.
fn time_format(text: &str) -> Option<&'static str> {
    let of_now = text.starts_with("20") && !text.starts_with("200");
    if !of_now || text.parse::<jiff::Timestamp>().is_err() {
        return None;
    }
    match (text.len(), text.ends_with('Z')) {
        (20, true) => Some("<time>"),
        (27, true) => Some("<micro-time>"),
        _ => Some("<time in another format>"),
    }
}

fn generated_name(prefix: &str, name: &str) -> String {
    if name.strip_prefix(prefix).is_some_and(is_generated_suffix) {
        format!("{prefix}<random>")
    } else {
        name.to_owned()
    }
}

/// Replaces the revisions that messages quote. Their presence matters, their value does not.
fn without_revisions(message: &str) -> String {
    const BEFORE: [&str; 6] = [
        "too old resource version: ",
        "oo large resource version: ",
        "current: ",
        "ResourceVersion in the precondition (",
        "ResourceVersion in record (",
        " (",
    ];
    let mut text = message.to_owned();
    for before in BEFORE {
        let mut result = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(before) {
            let (head, tail) = rest.split_at(at + before.len());
            let digits = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            result.push_str(head);
            let closes = before != " (" || tail[digits..].starts_with(')');
            if 0 < digits && closes {
                result.push('#');
                rest = &tail[digits..];
            } else {
                rest = tail;
            }
        }
        result.push_str(rest);
        text = result;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(bodies: &[Value]) -> Vec<Value> {
        let answers: Vec<Answer> = bodies
            .iter()
            .map(|body| Answer {
                step: String::new(),
                code: 200,
                headers: BTreeMap::new(),
                body: body.clone(),
            })
            .collect();
        Canonical::new("case-x7").answers(&answers).into_iter().map(|a| a.body).collect()
    }

    #[test]
    fn only_server_specific_values_are_replaced() {
        let first = json!({"metadata": {"name": "a", "namespace": "case-x7", "uid": "u-9", "resourceVersion": "120",
        "creationTimestamp": "2026-03-04T05:06:07Z", "managedFields": [
            {"manager": "b", "time": "2026-03-04T05:06:07Z"}, {"manager": "a"}
        ]}});
        let second = json!({"metadata": {"name": "a", "uid": "u-9", "resourceVersion": "140"},
            "message": "UID u-9 in case-x7", "acquireTime": "2001-01-01T00:00:00Z"});
        let list = json!({"metadata": {"resourceVersion": "150"}});
        assert_eq!(
            check(&[first, second, list]),
            [
                json!({"metadata": {"name": "a", "namespace": "<ns>", "uid": "U1", "resourceVersion": "R1",
                    "creationTimestamp": "<time>", "managedFields": [{"manager": "a"}, {"manager": "b"}]}}),
                json!({"metadata": {"name": "a", "uid": "U1", "resourceVersion": "R2"},
                    "message": "UID U1 in <ns>", "acquireTime": "2001-01-01T00:00:00Z"}),
                json!({"metadata": {"resourceVersion": "now"}})
            ]
        );
    }

    #[test]
    fn a_short_uid_within_a_longer_uid_is_kept() {
        let short = json!({"metadata": {"uid": "1-2"}});
        let long = json!({"metadata": {"uid": "9e01-270f"}, "message": "not 1-2"});
        let replaced =
            [json!({"metadata": {"uid": "U1"}}), json!({"metadata": {"uid": "U2"}, "message": "not U1"})];
        assert_eq!(check(&[short, long]), replaced);
    }

    #[test]
    fn type_errors_are_compared_in_any_order() {
        let listed = |lines: &str| json!({"message": format!("failed to create typed patch object (/c): errors:\n{lines}")});
        let one = listed("  .stringData.l: expected string\n  .stringData.k: expected string");
        let other = listed("  .stringData.k: expected string\n  .stringData.l: expected string");
        let sorted = check(&[one]);
        assert_eq!(sorted, check(&[other]));
        assert_ne!(sorted, check(&[listed("  .stringData.k: expected string")]));
    }

    #[test]
    fn revisions_in_messages_are_masked() {
        assert_eq!(without_revisions("too old resource version: 1 (345)"), "too old resource version: # (#)");
        assert_eq!(without_revisions("needs 1 healthy pods"), "needs 1 healthy pods");
    }
}
