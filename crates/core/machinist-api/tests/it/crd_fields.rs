//! Tests that the CRDs still have every recorded field, and that no field is narrower: an object
//! that the recorded CRDs accept is accepted and keeps all its fields.
//!
//! `fixtures/crd-fields.txt` has the fields of the last release. A field that it does not list may
//! still change. `cargo xtask components --output DIR --record` rewrites the file for a release.
//! Each line has the kind, the version, the path, the type, whether an object must set the field,
//! and the keywords that restrict or extend the values.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;

use machinist_api::crd;
use serde_json::{Map, Value, json};

/// Keywords of a schema that restrict the values of a field.
const LIMITS: [&str; 21] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "uniqueItems",
    "x-kubernetes-list-type",
];

/// Keywords of a schema that permit more values.
const EXTENSIONS: [&str; 2] = ["nullable", "x-kubernetes-preserve-unknown-fields"];

/// Kind, version and path. The root of an object has the path `.`, the entries of a list `[]`, and
/// the entries of a map `*`.
pub(crate) type Name = (String, String, String);

/// The values that a field may have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    type_: String,
    /// Whether an object without the field is rejected.
    is_required: bool,
    keywords: Map<String, Value>,
}

pub(crate) type Fields = BTreeMap<Name, Field>;

impl Field {
    fn of(schema: &Value, is_required: bool) -> Self {
        let type_ = match schema["type"].as_str() {
            _ if schema["x-kubernetes-int-or-string"] == true => "int-or-string",
            Some(type_) => type_,
            None => "any",
        };
        let is_limit = |keyword: &str| LIMITS.contains(&keyword) || EXTENSIONS.contains(&keyword);
        let mut keywords: Map<String, Value> = Map::new();
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            // The schema of the entries of a map is a field of its own.
            if is_limit(keyword) && !(keyword == "additionalProperties" && value.is_object()) {
                keywords.insert(keyword.clone(), value.clone());
            }
        }
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        let rules: Vec<Value> = rules.map(|rule| rule["rule"].clone()).collect();
        if !rules.is_empty() {
            keywords.insert("rules".to_owned(), Value::Array(rules));
        }
        // The API server sets the default before it looks for required fields.
        let is_required = is_required && schema["default"].is_null();
        Self { type_: type_.to_owned(), is_required, keywords }
    }

    /// Returns the properties of this field that reject or drop a value that `earlier` accepts.
    fn narrower_than(&self, earlier: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let is_wider = matches!(
            (earlier.type_.as_str(), self.type_.as_str()),
            ("integer", "number") | ("integer" | "string", "int-or-string")
        );
        if earlier.type_ != self.type_ && !is_wider {
            found.push(format!("the type {} became {}", earlier.type_, self.type_));
        }
        if self.is_required && !earlier.is_required {
            found.push("became required".to_owned());
        }
        let mut keywords: Vec<&String> = earlier.keywords.keys().chain(self.keywords.keys()).collect();
        keywords.sort();
        keywords.dedup();
        for keyword in keywords {
            let of = |field: &Self| field.keywords.get(keyword).cloned().unwrap_or_default();
            let (before, now) = (of(earlier), of(self));
            if !permits_as_much(keyword, &before, &now) {
                found.push(format!("{keyword} was {before} and is {now}"));
            }
        }
        found
    }
}

/// Whether the present value of a keyword accepts all values that the earlier one accepts. `null`
/// stands for an absent keyword.
fn permits_as_much(keyword: &str, before: &Value, now: &Value) -> bool {
    let has_all = |all: &Value, some: &Value| {
        let all = all.as_array().into_iter().flatten().collect::<Vec<_>>();
        some.as_array().into_iter().flatten().all(|entry| all.contains(&entry))
    };
    match keyword {
        _ if before == now => true,
        keyword if EXTENSIONS.contains(&keyword) => *now == true,
        _ if now.is_null() => true,
        _ if before.is_null() => false,
        "enum" => has_all(now, before),
        "rules" => has_all(before, now),
        "maximum" | "maxItems" | "maxLength" | "maxProperties" => before.as_f64() <= now.as_f64(),
        "minimum" | "minItems" | "minLength" | "minProperties" => now.as_f64() <= before.as_f64(),
        _ => false,
    }
}

/// The fields of every served version of all our kinds.
pub(crate) fn present() -> Fields {
    let mut fields = Fields::new();
    for definition in [crd::all_crds(), crd::docker_crds(), crd::mailgun_crds()].concat() {
        fields.extend(fields_of(&serde_json::to_value(definition).expect("a CRD is JSON")));
    }
    fields
}

/// The fields of every served version of a definition.
pub(crate) fn fields_of(definition: &Value) -> Fields {
    let mut fields = Fields::new();
    let kind = definition["spec"]["names"]["kind"].as_str().expect("a definition has a kind");
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true) {
        let name = version["name"].as_str().expect("a version has a name");
        add(&mut fields, (kind, name), "", &version["schema"]["openAPIV3Schema"], false);
    }
    fields
}

fn add(fields: &mut Fields, (kind, version): (&str, &str), path: &str, schema: &Value, is_required: bool) {
    let name = if path.is_empty() { "." } else { path };
    let name = (kind.to_owned(), version.to_owned(), name.to_owned());
    fields.insert(name, Field::of(schema, is_required));
    let mut below = |step: &str, schema: &Value, is_required: bool| {
        let path = if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") };
        add(fields, (kind, version), &path, schema, is_required);
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        below(name, property, required.contains(&json!(name)));
    }
    for (keyword, step) in [("additionalProperties", "*"), ("items", "[]")] {
        if schema[keyword].is_object() {
            below(step, &schema[keyword], false);
        }
    }
}

/// Returns a line for each way in which the present fields accept less than the recorded ones.
pub(crate) fn narrowed(recorded: &Fields, present: &Fields) -> Vec<String> {
    let mut found = Vec::new();
    for (name, earlier) in recorded {
        let findings = match present.get(name) {
            Some(field) => field.narrower_than(earlier),
            None => vec!["was removed".to_owned()],
        };
        found.extend(findings.into_iter().map(|finding| format!("{}: {finding}", Words(name))));
    }
    let is_new = |name: &Name| !recorded.contains_key(name);
    for (name, _) in present.iter().filter(|(name, field)| field.is_required && is_new(name)) {
        let (kind, version, path) = name;
        let parent = path.rsplit_once('.').map_or(".", |(parent, _)| parent);
        // A new field of a new object rejects no earlier object.
        if !is_new(&(kind.clone(), version.clone(), parent.to_owned())) {
            found.push(format!("{}: is new and required", Words(name)));
        }
    }
    found
}

/// Writes the name of a field as in the file.
pub(crate) struct Words<'a>(pub(crate) &'a Name);

impl Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, version, path) = self.0;
        write!(f, "{kind} {version} {path}")
    }
}

fn render_fields(fields: &Fields) -> String {
    let mut text = String::from("# Written by `cargo xtask components --output DIR --record`.\n");
    for (name, Field { type_, is_required, keywords }) in fields {
        let required = if *is_required { "required" } else { "optional" };
        text.push_str(&format!("{} {type_} {required}", Words(name)));
        if !keywords.is_empty() {
            text.push_str(&format!(" {}", Value::Object(keywords.clone())));
        }
        text.push('\n');
    }
    text
}

fn parse_fields(text: &str) -> Fields {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.splitn(6, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} has too few words")).to_owned();
            let (name, type_, required) = ((word(), word(), word()), word(), word());
            let keywords =
                words.next().map(|json| serde_json::from_str(json).expect("the keywords are JSON"));
            let is_required = match required.as_str() {
                "required" => true,
                "optional" => false,
                other => panic!("expected required or optional in {line:?}, found {other:?}"),
            };
            (name, Field { type_, is_required, keywords: keywords.unwrap_or_default() })
        })
        .collect()
}

#[test]
fn no_recorded_field_is_removed_or_narrowed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/crd-fields.txt");
    let present = present();
    if std::env::var_os("MACHINIST_RECORD_CRD_FIELDS").is_some() {
        std::fs::write(&file, render_fields(&present)).expect("a writable file");
    }
    let recorded = parse_fields(&std::fs::read_to_string(&file).expect("the fields are checked in"));
    let findings = narrowed(&recorded, &present);
    assert!(
        findings.is_empty(),
        "clients and stored objects may use these fields: {findings:#?}\nKeep them, or add a version to the CRD."
    );
}

#[test]
fn the_record_has_all_that_is_compared() {
    let present = present();
    assert!(100 < present.len(), "{} fields", present.len());
    assert_eq!(parse_fields(&render_fields(&present)), present);
}

/// The fields of a kind with one field.
fn of(is_required: bool, schema: &Value) -> Fields {
    let required = if is_required { json!(["x"]) } else { json!([]) };
    let root = json!({"type": "object", "required": required, "properties": {"x": schema}});
    let mut fields = Fields::new();
    add(&mut fields, ("Kind", "v1"), "", &root, false);
    fields
}

#[test]
fn a_change_that_accepts_less_is_found() {
    for (before, now) in [
        (json!({"type": "integer"}), json!({"type": "string"})),
        (json!({"type": "integer"}), json!({"type": "integer", "maximum": 3})),
        (json!({"type": "integer", "maximum": 3}), json!({"type": "integer", "maximum": 2})),
        (json!({"type": "integer", "minimum": 3}), json!({"type": "integer", "minimum": 4})),
        (json!({"type": "string"}), json!({"type": "string", "enum": ["a"]})),
        (json!({"type": "string", "enum": ["a", "b"]}), json!({"type": "string", "enum": ["a", "c"]})),
        (json!({"type": "string"}), json!({"type": "string", "pattern": "a"})),
        (json!({"type": "string", "nullable": true}), json!({"type": "string"})),
        (json!({"type": "object"}), json!({"type": "object", "x-kubernetes-validations": [{"rule": "a"}]})),
        (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"type": "object"})),
        (json!({"type": "array", "items": {"type": "string"}}), json!({"type": "array", "items": {}})),
        (json!({"type": "object", "properties": {"y": {}}}), json!({"type": "object"})),
        (json!({"type": "object"}), json!({"type": "object", "properties": {"y": {}}, "required": ["y"]})),
    ] {
        let found = narrowed(&of(false, &before), &of(false, &now));
        assert_eq!(found.len(), 1, "{before} to {now}: {found:?}");
    }
    let text = json!({"type": "string"});
    assert_eq!(narrowed(&of(false, &text), &of(true, &text)), ["Kind v1 x: became required"]);
}

#[test]
fn a_change_that_accepts_more_is_permitted() {
    for (before, now) in [
        (json!({"type": "integer"}), json!({"type": "number"})),
        (json!({"type": "string"}), json!({"x-kubernetes-int-or-string": true})),
        (json!({"type": "integer", "maximum": 3}), json!({"type": "integer", "maximum": 4})),
        (json!({"type": "string", "enum": ["a"]}), json!({"type": "string", "enum": ["a", "b"]})),
        (json!({"type": "string", "pattern": "a"}), json!({"type": "string"})),
        (json!({"type": "string"}), json!({"type": "string", "nullable": true})),
        (json!({"type": "object", "x-kubernetes-validations": [{"rule": "a"}]}), json!({"type": "object"})),
        (json!({"type": "object"}), json!({"type": "object", "properties": {"y": {"type": "string"}}})),
    ] {
        let found = narrowed(&of(true, &before), &of(false, &now));
        assert!(found.is_empty(), "{before} to {now}: {found:?}");
    }
    let with_default = json!({"type": "string", "default": "a"});
    assert!(narrowed(&of(false, &with_default), &of(true, &with_default)).is_empty());
}
