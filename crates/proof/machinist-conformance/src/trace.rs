//! Records the requests of a program as a case that can be played again.
//!
//! The recorder notes requests as they pass through. Where a request contains a revision, a uid or
//! a continue token of an earlier answer, the case refers to that answer. The case can therefore be
//! played in another namespace and against another server. Requests that every program sends at its
//! start (discovery, OpenAPI, the version) are left out, because each server answers them in its
//! own way. Other cases cover them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use serde_json::Value;

use percent_encoding::percent_decode_str;

use crate::case::{Level, RecordedCase, Step};
use crate::run::TRACED;

/// Requests of a program in the order of arrival.
#[derive(Debug)]
pub struct RequestTrace {
    /// Namespace of the program.
    namespace: String,
    steps: Vec<Step>,
    /// Revisions, uids and tokens from answers, each with the place of its first appearance.
    known: BTreeMap<String, String>,
    /// Open watches, each with its last event as `TYPE name`.
    watches: BTreeMap<String, Option<String>>,
}

impl RequestTrace {
    /// Creates an empty trace of the requests in `namespace`. Its name has the length of every
    /// case's namespace.
    pub fn new(namespace: &str) -> Self {
        RequestTrace {
            namespace: namespace.to_owned(),
            steps: Vec::new(),
            known: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Notes a request. Returns the step's id, or `None` for a request that is left out.
    pub fn request(&mut self, parts: &Parts, body: &[u8]) -> Option<String> {
        let path = parts.uri.path();
        if is_common(path) {
            return None;
        }
        let id = format!("k{}", self.steps.len() + 1);
        let header = |name: http::HeaderName| {
            let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let mut query: BTreeMap<String, String> = BTreeMap::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(&value.replace('+', " "));
            let value = if key == "resourceVersion" || key == "continue" {
                self.reference(&value).unwrap_or(value)
            } else {
                self.text(&value)
            };
            query.insert(key.to_owned(), value);
        }
        let mut step = Step { id: id.clone(), ..Step::default() };
        let path = self.text(&decoded(path));
        if query.remove("watch").is_some_and(|value| value == "true" || value == "1") {
            // Programs choose it at random.
            query.remove("timeoutSeconds");
            self.watches.insert(id.clone(), None);
            step.watch = Some(path);
        } else {
            step.verb = Some(parts.method.to_string());
            step.path = path;
        }
        step.query = query;
        step.accept = header(http::header::ACCEPT).filter(|value| value != "application/json");
        for (name, value) in
            parts.headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"))
        {
            step.headers.insert(name.to_string(), self.text(value.to_str().unwrap_or_default()));
        }
        let media_type = header(http::header::CONTENT_TYPE).unwrap_or_default();
        if !body.is_empty() {
            if !matches!(media_type.as_str(), "" | "application/json") {
                step.headers.insert("Content-Type".into(), media_type);
            }
            match serde_json::from_slice::<Value>(body) {
                Ok(value) => step.body = Some(self.value(&value, "")),
                Err(_binary) => step.base64 = Some(STANDARD.encode(replaced(body, &self.namespace, TRACED))),
            }
        }
        self.steps.push(step);
        Some(id)
    }

    /// Notes the values that later requests may refer to.
    pub fn answer(&mut self, id: &str, body: &Value) {
        self.learn(id, body);
    }

    /// Notes an event that a watch sent to the program.
    pub fn event(&mut self, id: &str, event: &Value) {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let name = text("/object/metadata/name").or_else(|| text("/object/rows/0/cells/0"));
        let (Some(kind), Some(name)) = (text("/type"), name) else { return };
        if let Some(last) = self.watches.get_mut(id) {
            *last = Some(format!("{kind} {}", name.replace(&self.namespace, "${ns}")));
        }
    }

    /// Ends the watches of a program that has exited. Watches without events are left out.
    pub fn end_watches(&mut self) {
        for (id, last) in std::mem::take(&mut self.watches) {
            match last {
                Some(until) => self.steps.push(Step {
                    id: format!("{id}-saw"),
                    close: Some(id),
                    until: Some(until),
                    ..Step::default()
                }),
                None => self.steps.retain(|step| step.id != id),
            }
        }
    }

    /// Converts the trace into a case.
    pub fn case(self, name: &str, shows: &str) -> RecordedCase {
        RecordedCase {
            name: name.to_owned(),
            shows: shows.to_owned(),
            facts: Vec::new(),
            level: Level::Cl5,
            steps: self.steps,
        }
    }

    fn learn(&mut self, place: &str, value: &Value) {
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    let place = format!("{place}.{key}");
                    match (key.as_str(), child) {
                        // References cannot contain a key with a dot or a slash.
                        _ if key.contains('.') || key.contains('/') => {}
                        ("resourceVersion" | "uid" | "continue", Value::String(text)) if !text.is_empty() => {
                            self.known.entry(text.clone()).or_insert(place);
                        }
                        _ => self.learn(&place, child),
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.learn(&format!("{place}.{index}"), item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn reference(&self, text: &str) -> Option<String> {
        self.known.get(text).map(|place| format!("${{{place}}}"))
    }

    fn value(&self, value: &Value, key: &str) -> Value {
        match value {
            Value::String(text) if key == "resourceVersion" => {
                Value::String(self.reference(text).unwrap_or_else(|| text.clone()))
            }
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item, key)).collect(),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(key, item)| (self.text(key), self.value(item, key))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Replaces the namespace and known values with references.
    fn text(&self, text: &str) -> String {
        const UID: usize = 36;
        let mut text = text.replace(&self.namespace, "${ns}");
        for (known, place) in self.known.iter().filter(|(known, _)| known.len() == UID) {
            text = text.replace(known.as_str(), &format!("${{{place}}}"));
        }
        text
    }
}

/// Reports whether every program sends this request.
fn is_common(path: &str) -> bool {
    const PARTS_OF_DISCOVERY: usize = 4;
    let parts = path.trim_matches('/').split('/').count();
    matches!(path, "/api" | "/api/v1" | "/version")
        || path.starts_with("/openapi")
        || (path.starts_with("/apis") && parts < PARTS_OF_DISCOVERY)
}

/// Replaces a text in bytes with another text of the same length.
pub(crate) fn replaced(bytes: &[u8], text: &str, by: &str) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if text.len() != by.len() {
        return bytes;
    }
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(text.len()).position(|window| window == text.as_bytes()) {
        bytes[at + found..at + found + text.len()].copy_from_slice(by.as_bytes());
        at += found + text.len();
    }
    bytes
}

/// Decodes `%20` and the like. A text with invalid escapes stays unchanged.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use serde_json::json;

    fn check(trace: &mut RequestTrace, method: &str, uri: &str, body: &Value) -> Option<String> {
        let (parts, ()) =
            Request::builder().method(method).uri(uri).body(()).expect("a request").into_parts();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        trace.request(&parts, body.as_bytes())
    }

    #[test]
    fn values_from_answers_become_references() {
        let mut trace = RequestTrace::new("case-abcde");
        assert_eq!(check(&mut trace, "GET", "/apis/apps/v1", &Value::Null), None);
        let id = check(&mut trace, "GET", "/api/v1/namespaces/case-abcde/pods/p", &Value::Null)
            .expect("the text is a step");
        trace.answer(
            &id,
            &json!({"metadata": {"resourceVersion": "7", "uid": "0b1c2d3e-1111-2222-3333-0123456789ab"}}),
        );
        let watch = "/api/v1/namespaces/case-abcde/pods?watch=true&resourceVersion=7&timeoutSeconds=411&labelSelector=a%3Db";
        let watch = check(&mut trace, "GET", watch, &Value::Null).expect("the text is a step");
        let options =
            json!({"preconditions": {"uid": "0b1c2d3e-1111-2222-3333-0123456789ab", "resourceVersion": "7"}});
        check(&mut trace, "DELETE", "/api/v1/namespaces/case-abcde/pods/p", &options);
        trace.event(&watch, &json!({"type": "DELETED", "object": {"metadata": {"name": "p"}}}));
        trace.end_watches();
        let steps = trace.case("x", "").steps;
        assert_eq!(steps[0].path, "/api/v1/namespaces/${ns}/pods/p");
        assert_eq!(steps[1].watch.as_deref(), Some("/api/v1/namespaces/${ns}/pods"));
        assert_eq!(steps[1].query["resourceVersion"], "${k1.metadata.resourceVersion}");
        assert_eq!(steps[1].query["labelSelector"], "a=b");
        assert!(!steps[1].query.contains_key("timeoutSeconds"));
        let expected = json!({"preconditions": {"uid": "${k1.metadata.uid}", "resourceVersion": "${k1.metadata.resourceVersion}"}});
        assert_eq!(steps[2].body.as_ref(), Some(&expected));
        assert_eq!((steps[3].close.as_deref(), steps[3].until.as_deref()), (Some("k2"), Some("DELETED p")));
    }

    #[test]
    fn names_in_binary_bodies_keep_their_length() {
        assert_eq!(
            replaced(b"\x0acase-abcde\x0acase-abcde", "case-abcde", "case-trace"),
            b"\x0acase-trace\x0acase-trace"
        );
        assert_eq!(replaced(b"ab", "a", "long"), b"ab");
    }
}
