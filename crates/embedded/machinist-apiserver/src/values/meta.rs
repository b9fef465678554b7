//! Rules for `metadata`, the same for every kind: names, labels, owners, finalizers, and the fields
//! that an update may not change.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use crate::values::object::{self, metadata};
use crate::values::status::{FieldErrorKind, FieldErrors};

/// Maximum length of a DNS subdomain, and so of most object names.
const SUBDOMAIN_LENGTH: usize = 253;
/// Maximum length of a DNS label, of a label value, and of the name part of a qualified name.
const LABEL_LENGTH: usize = 63;
/// Maximum total size of an object's annotations, in bytes.
const ANNOTATIONS_SIZE: usize = 256 * 1024;

const SUBDOMAIN_PROBLEM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_PROBLEM: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_PROBLEM: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE_PROBLEM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART_PROBLEM: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED_NAME_PROBLEM: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
pub(crate) const IMMUTABLE: &str = "field is immutable";
/// Finalizers of the garbage collector.
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Rule for the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
    /// A label. A dot gets the same error as any other invalid character.
    ShortName,
    /// Any text that can be one segment of a path.
    PathSegment,
}

/// Checks the metadata of an object that is about to be stored.
pub(crate) fn validate(object: &Value, namespaced: bool, rule: NameRule, errors: &mut FieldErrors) {
    let prefix = object::meta_str(object, "generateName");
    if !prefix.is_empty() {
        for problem in prefix_problems(prefix, rule) {
            errors.invalid("metadata.generateName", json!(prefix), problem);
        }
    }
    let name = object::meta_str(object, "name");
    if name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else {
        for problem in name_problems(name, rule) {
            errors.invalid("metadata.name", json!(name), problem);
        }
    }
    let namespace = object::meta_str(object, "namespace");
    if namespaced {
        if namespace.is_empty() {
            errors.required("metadata.namespace", "");
        } else {
            for problem in name_problems(namespace, NameRule::Label) {
                errors.invalid("metadata.namespace", json!(namespace), problem);
            }
        }
    } else if !namespace.is_empty() {
        errors.forbidden("metadata.namespace", "not allowed on this type");
    }
    validate_labels(object, "metadata.labels", errors);
    validate_annotations(object, errors);
    validate_owners(object, errors);
    let finalizers = object::finalizers(object);
    for finalizer in &finalizers {
        for problem in qualified_name_problems(finalizer) {
            errors.invalid("metadata.finalizers", json!(finalizer), problem);
        }
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid("metadata.finalizers", json!(finalizers), why);
    }
}

/// Rejects changes of fields that no update may change.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if object::is_deleting(old) {
        let before: HashSet<&str> = object::finalizers(old).into_iter().collect();
        let added: Vec<&str> = object::finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("\"{f}\"")).collect();
            errors.forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    list.join(", ")
                ),
            );
        }
    }
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let of = |object: &Value| metadata(object).and_then(|m| m.get(key)).cloned().unwrap_or(Value::Null);
        let (now, before) = (of(new), of(old));
        if now != before {
            errors.invalid(format!("metadata.{key}"), now, IMMUTABLE);
        }
    }
    validate_labels(new, "metadata.labels", errors);
    validate_annotations(new, errors);
    validate_owners(new, errors);
}

/// Returns the problems of `name` under `rule`.
pub(crate) fn name_problems(name: &str, rule: NameRule) -> Vec<String> {
    let mut problems = Vec::new();
    match rule {
        NameRule::Subdomain => {
            if SUBDOMAIN_LENGTH < name.len() {
                problems.push(format!("must be no more than {SUBDOMAIN_LENGTH} characters"));
            }
            if !is_subdomain(name) {
                problems.push(SUBDOMAIN_PROBLEM.to_owned());
            }
        }
        NameRule::PathSegment if matches!(name, "." | "..") => problems.push(format!("may not be '{name}'")),
        NameRule::PathSegment => {
            for part in ["/", "%"].iter().filter(|part| name.contains(**part)) {
                problems.push(format!("may not contain '{part}'"));
            }
        }
        NameRule::Label if name.contains('.') => problems.push("must not contain dots".to_owned()),
        NameRule::Label | NameRule::ShortName => {
            if LABEL_LENGTH < name.len() {
                problems.push(format!("must be no more than {LABEL_LENGTH} characters"));
            }
            if !is_dns_label(name) {
                problems.push(LABEL_PROBLEM.to_owned());
            }
        }
    }
    problems
}

/// Returns the problems of an RFC 1035 label, which begins with a letter, as one text.
pub(crate) fn label_1035_problem(text: &str) -> Option<String> {
    let mut problems = Vec::new();
    if LABEL_LENGTH < text.len() {
        problems.push(format!("must be no more than {LABEL_LENGTH} bytes"));
    }
    if !is_dns_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(LABEL_1035_PROBLEM.to_owned());
    }
    (!problems.is_empty()).then(|| problems.join(","))
}

/// Returns the problems of a name prefix. The suffix that follows it is always valid.
fn prefix_problems(prefix: &str, rule: NameRule) -> Vec<String> {
    match rule {
        NameRule::PathSegment if matches!(prefix, "." | "..") => Vec::new(),
        NameRule::Subdomain | NameRule::Label | NameRule::ShortName
            if 1 < prefix.len() && prefix.ends_with('-') =>
        {
            // A prefix may end with a hyphen. As in kube-apiserver, the character before that
            // hyphen is not checked.
            let before = prefix.get(..prefix.len() - 2).unwrap_or_default();
            name_problems(&format!("{before}a"), rule)
        }
        NameRule::PathSegment | NameRule::Subdomain | NameRule::Label | NameRule::ShortName => {
            name_problems(prefix, rule)
        }
    }
}

fn is_dns_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_name_part(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Returns the problems of a label key, annotation key or finalizer (`prefix/name` or `name`).
pub(crate) fn qualified_name_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => return vec![QUALIFIED_NAME_PROBLEM.to_owned()],
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let of_prefix = name_problems(prefix, NameRule::Subdomain);
                problems.extend(of_prefix.into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        None => text,
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if LABEL_LENGTH < name.len() {
        problems.push(format!("name part must be no more than {LABEL_LENGTH} bytes"));
    }
    if !is_name_part(name) {
        problems.push(NAME_PART_PROBLEM.to_owned());
    }
    problems
}

/// Returns the same problems as one text.
pub(crate) fn qualified_name_problem(text: &str) -> Option<String> {
    in_one(&qualified_name_problems(text))
}

pub(crate) fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if LABEL_LENGTH < text.len() {
        problems.push(format!("must be no more than {LABEL_LENGTH} bytes"));
    }
    if !text.is_empty() && !is_name_part(text) {
        problems.push(LABEL_VALUE_PROBLEM.to_owned());
    }
    problems
}

/// Returns the same problems as one text.
pub(crate) fn label_value_problem(text: &str) -> Option<String> {
    in_one(&label_value_problems(text))
}

fn in_one(problems: &[String]) -> Option<String> {
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// Whether a finalizer has no domain and is none of Kubernetes' own. Two programs could use a name
/// without a domain for different purposes.
fn is_plain(finalizer: &str) -> bool {
    !finalizer.contains('/') && !matches!(finalizer, ORPHAN | FOREGROUND | "kubernetes")
}

/// Rejects finalizers without a domain.
pub(crate) fn validate_plain_finalizers(object: &Value, errors: &mut FieldErrors) {
    for (index, finalizer) in object::finalizers(object).into_iter().enumerate() {
        if is_plain(finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(format!("metadata.finalizers[{index}]"), json!(finalizer), why);
        }
    }
}

/// Returns warnings about new finalizers without a domain on a custom resource.
pub(crate) fn plain_finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let held = old.map(object::finalizers).unwrap_or_default();
    let added: BTreeSet<&str> =
        object::finalizers(new).into_iter().filter(|finalizer| !held.contains(finalizer)).collect();
    let warning = |finalizer: &str| {
        let with_path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name{with_path} to avoid accidental \
             conflicts with other finalizer writers"
        )
    };
    added.into_iter().filter(|finalizer| is_plain(finalizer)).map(warning).collect()
}

/// Removes duplicate owner references and returns their uids.
pub(crate) fn drop_repeated_owners(object: &mut Value) -> Vec<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    let Some(owners) = owners.filter(|owners| 1 < owners.len()) else { return Vec::new() };
    let fields = |owner: &Value| OWNER_FIELDS.map(|key| owner.get(key).cloned().unwrap_or_default());
    let (mut seen, mut repeated) = (HashSet::new(), Vec::new());
    owners.retain(|owner| {
        let is_new = seen.insert(fields(owner));
        if !is_new {
            repeated.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_new
    });
    repeated
}

const OWNER_FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

fn validate_labels(object: &Value, field: &str, errors: &mut FieldErrors) {
    for (key, value) in object::labels(object).into_iter().flatten() {
        for problem in qualified_name_problems(key) {
            let problem = problem.replace("a qualified name must", "a valid label key must");
            errors.invalid(field, json!(key), problem);
        }
        let value = value.as_str().unwrap_or_default();
        for problem in label_value_problems(value) {
            errors.invalid(field, json!(value), problem);
        }
    }
}

fn validate_annotations(object: &Value, errors: &mut FieldErrors) {
    let Some(annotations) = metadata(object).and_then(|m| m.get("annotations")).and_then(Value::as_object)
    else {
        return;
    };
    let mut size = 0;
    for (key, value) in annotations {
        for problem in qualified_name_problems(&key.to_ascii_lowercase()) {
            errors.invalid("metadata.annotations", json!(key), problem);
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if ANNOTATIONS_SIZE < size {
        errors.push(
            FieldErrorKind::TooLong,
            "metadata.annotations",
            None,
            format!("may not be more than {ANNOTATIONS_SIZE} bytes"),
        );
    }
}

fn validate_owners(object: &Value, errors: &mut FieldErrors) {
    let Some(owners) = metadata(object).and_then(|m| m.get("ownerReferences")).and_then(Value::as_array)
    else {
        return;
    };
    let mut controller: Option<String> = None;
    for owner in owners {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let place = "metadata.ownerReferences";
        if text("apiVersion").is_empty() {
            errors.invalid(format!("{place}.apiVersion"), json!(""), "version must not be empty");
        }
        for (key, problem) in
            [("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty")]
        {
            if text(key).is_empty() {
                errors.invalid(format!("{place}.{key}"), json!(""), problem);
            }
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push_shown(FieldErrorKind::Invalid, place, Some(shown_owner(owner)), why);
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = controller {
                errors.push_shown(
                    FieldErrorKind::Invalid,
                    place,
                    Some(shown_owners(owners)),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    ),
                );
                break;
            }
            controller = Some(this);
        }
    }
}

/// Formats owner references with the fields in the order of their type.
fn shown_owners(owners: &[Value]) -> String {
    format!("[{}]", owners.iter().map(shown_owner).collect::<Vec<_>>().join(","))
}

fn shown_owner(owner: &Value) -> String {
    let fields = OWNER_FIELDS.iter().filter_map(|key| Some(format!("\"{key}\":{}", owner.get(*key)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rule() {
        for (name, rule, ok) in [
            ("a.b-c", NameRule::Subdomain, true),
            ("A", NameRule::Subdomain, false),
            ("a..b", NameRule::Subdomain, false),
            ("a.b", NameRule::Label, false),
            ("-a", NameRule::Label, false),
        ] {
            assert_eq!(name_problems(name, rule).is_empty(), ok, "{name}");
        }
    }

    #[test]
    fn qualified_names_have_one_optional_prefix() {
        for (name, ok) in [
            ("a", true),
            ("example.com/a_b.C", true),
            ("/a", false),
            ("a/", false),
            ("a/b/c", false),
            ("a b", false),
        ] {
            assert_eq!(qualified_name_problem(name).is_none(), ok, "{name}");
        }
    }
}
