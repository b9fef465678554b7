//! Reads the messages in a `generated.proto`.
//!
//! Kubernetes generates these files, so they use a small part of the language: each message stands
//! on lines of its own and contains only fields and comments.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// The fields of a message by name.
pub(super) type Message = BTreeMap<String, Field>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) of: Type,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    /// A scalar, such as `int32`, or the full name of a message.
    One(String),
    Repeated(String),
    /// A map from strings to this type.
    Map(String),
}

/// Returns the messages of a file by their full names, such as `k8s.io.api.core.v1.Pod`.
pub(super) fn messages(text: &str) -> Result<BTreeMap<String, Message>> {
    let mut package = "";
    let mut messages = BTreeMap::new();
    let mut open: Option<(String, Message)> = None;
    let mut in_comment = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let at = || format!("line {}: {line:?}", index + 1);
        if in_comment || line.starts_with("/*") {
            in_comment = !line.ends_with("*/");
        } else if line.is_empty() || line.starts_with("//") {
            // Nothing to read.
        } else if let Some(rest) = line.strip_prefix("package ") {
            package = rest.trim_end_matches(';');
        } else if let Some(rest) = line.strip_prefix("message ") {
            let name = rest.strip_suffix(" {").with_context(|| format!("expected `{{` in {}", at()))?;
            ensure!(open.is_none(), "a message inside of another message in {}", at());
            open = Some((format!("{package}.{name}"), Message::new()));
        } else if line == "}" {
            let (name, message) = open.take().with_context(|| format!("no open message in {}", at()))?;
            messages.insert(name, message);
        } else if let Some((_, message)) = &mut open {
            let (name, field) = field(line, package).with_context(|| format!("no field in {}", at()))?;
            message.insert(name, field);
        } else if !["syntax ", "import ", "option "].iter().any(|word| line.starts_with(word)) {
            bail!("unexpected {}", at());
        }
    }
    ensure!(open.is_none(), "the last message is not closed");
    Ok(messages)
}

/// Reads `optional T name = 1;`, `repeated T name = 1;` or `map<string, T> name = 1;`.
fn field(line: &str, package: &str) -> Option<(String, Field)> {
    let (declared, number) = line.strip_suffix(';')?.rsplit_once(" = ")?;
    let (of, name) = declared.rsplit_once(' ')?;
    // A full name begins with a dot. A short name is of the same package.
    let full = |name: &str| match name.strip_prefix('.') {
        Some(full) => full.to_owned(),
        None if name.starts_with(|letter: char| letter.is_ascii_uppercase()) => format!("{package}.{name}"),
        None => name.to_owned(),
    };
    let of = if let Some(value) = of.strip_prefix("map<string, ").and_then(|rest| rest.strip_suffix('>')) {
        Type::Map(full(value))
    } else if let Some(item) = of.strip_prefix("repeated ") {
        Type::Repeated(full(item))
    } else {
        Type::One(full(of.strip_prefix("optional ")?))
    };
    Some((name.to_owned(), Field { number: number.parse().ok()?, of }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"/*
The licence: message X {
*/

syntax = "proto2";

package k8s.io.api.example.v1;

import "k8s.io/api/core/v1/generated.proto";

option go_package = "k8s.io/api/example/v1";

// A thing.
message Thing {
  // message = 1;
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta metadata = 1;

  repeated Part parts = 12;

  map<string, bytes> data = 3;

  optional int64 size = 4;
}
"#;

    #[test]
    fn fields_have_numbers_and_full_names() {
        let messages = messages(TEXT).expect("a file in the expected form");
        let field = |number, of| Field { number, of };
        let wanted = [
            ("metadata", 1, Type::One("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta".to_owned())),
            ("parts", 12, Type::Repeated("k8s.io.api.example.v1.Part".to_owned())),
            ("data", 3, Type::Map("bytes".to_owned())),
            ("size", 4, Type::One("int64".to_owned())),
        ];
        let wanted = wanted.map(|(name, number, of)| (name.to_owned(), field(number, of)));
        assert_eq!(messages, [("k8s.io.api.example.v1.Thing".to_owned(), wanted.into())].into());
    }

    #[test]
    fn an_unexpected_line_is_named() {
        let text = TEXT.replace("optional int64 size = 4;", "oneof size {");
        let message = messages(&text).expect_err("not in the expected form").to_string();
        assert!(message.contains(r#"line 22: "oneof size {""#), "{message}");
    }
}
