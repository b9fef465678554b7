//! Label and field selectors. The crate `machinist-labels` decides what a label selector means;
//! this module applies it to stored objects and words its errors as kube-apiserver does.

use std::collections::BTreeSet;

use machinist_labels::SelectorProblem;
use serde_json::Value;

use crate::values::meta::{label_value_problem, qualified_name_problem};
use crate::values::object::{self, Object};
use crate::values::status::{ApiError, ApiResult};

/// Label selector and field selector of a list or watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: machinist_labels::Selector,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone)]
struct FieldRequirement {
    field: String,
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both query parameters. `supported` are the field labels of the resource, each with
    /// its path in the stored object.
    pub(crate) fn parse(labels: &str, fields: &str, supported: &FieldLabels<'_>) -> ApiResult<Self> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(fields, supported)? })
    }

    /// Creates a selector from `matchLabels` and `matchExpressions`. An absent selector matches
    /// nothing, an empty one everything.
    pub(crate) fn from_label_selector(selector: Option<&Value>) -> Option<Self> {
        let selector = selector?;
        let mut equal = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            equal.push((key.clone(), value.as_str()?.to_owned()));
        }
        let mut labels = machinist_labels::Selector::of_labels(equal);
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values: BTreeSet<String> =
                values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
            let key = expression.get("key")?.as_str()?.to_owned();
            labels.add_expression(key, expression.get("operator")?.as_str()?, values);
        }
        Some(Selector { labels, fields: Vec::new() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object::labels(object);
        self.labels.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
            && self.fields.iter().all(|r| r.matches(object))
    }

    /// Reports whether a stored object matches. An empty selector does not parse the object.
    pub(crate) fn selects(&self, stored: &Object) -> bool {
        self.is_empty() || self.matches(&stored.glance())
    }

    /// Returns the value to which the field selector restricts `field`, if any.
    pub(crate) fn fixed(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let mut at = Some(object);
        for step in &self.path {
            at = at.and_then(|v| v.get(step));
        }
        let equal = match at {
            None | Some(Value::Null) => self.value.is_empty() || (self.value == "false" && self.is_flag()),
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(flag)) => (if *flag { "true" } else { "false" }) == self.value,
            // Numbers are compared as text. Lists and maps never match.
            Some(Value::Number(number)) => number.to_string() == self.value,
            Some(Value::Array(_) | Value::Object(_)) => false,
        };
        equal == self.equal
    }

    /// Reports whether the field is a boolean. An absent boolean field reads as "false", every
    /// other absent field as an empty string.
    fn is_flag(&self) -> bool {
        self.field == "spec.unschedulable" || self.field == "spec.hostNetwork"
    }
}

/// The supported field selectors of a resource's lists.
#[derive(Debug)]
pub(crate) struct FieldLabels<'a> {
    /// Pairs of label and dotted path in the stored object.
    pub(crate) labels: Vec<(&'a str, &'a str)>,
    pub(crate) refused_as: RefusedAs,
}

/// Form of the error for an unknown field label. For kinds without their own labels, the error
/// lists the supported ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedAs {
    NotSupported,
    NotKnown,
}

impl FieldLabels<'_> {
    fn refusal(&self, field: &str) -> String {
        match self.refused_as {
            RefusedAs::NotSupported => format!("field label not supported: {field}"),
            RefusedAs::NotKnown => format!(
                "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
        }
    }
}

fn parse_fields(text: &str, supported: &FieldLabels<'_>) -> ApiResult<Vec<FieldRequirement>> {
    let mut requirements = Vec::new();
    for term in split_fields(text) {
        let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (field, value, true)
        } else {
            return Err(ApiError::bad_request(format!(
                "invalid field selector: {term}: can't understand '{term}'"
            )));
        };
        let field = field.trim();
        let place = supported
            .labels
            .iter()
            .find(|(label, _)| *label == field)
            .ok_or_else(|| ApiError::bad_request(supported.refusal(field)))?;
        requirements.push(FieldRequirement {
            field: field.to_owned(),
            path: place.1.split('.').map(str::to_owned).collect(),
            value: unescape(value),
            equal,
        });
    }
    Ok(requirements)
}

/// Splits at unescaped commas.
fn split_fields(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = terms.last_mut().expect("there is always a term");
        match c {
            '\\' => {
                last.push('\\');
                last.extend(chars.next());
            }
            ',' => terms.push(String::new()),
            other => last.push(other),
        }
    }
    terms.retain(|t| !t.is_empty());
    terms
}

fn unescape(value: &str) -> String {
    let mut chars = value.chars();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

fn parse_labels(text: &str) -> ApiResult<machinist_labels::Selector> {
    text.parse().map_err(|error: machinist_labels::SelectorError| {
        let why = match error.problem {
            SelectorProblem::Empty => "found ',', expected: identifier after ','".to_owned(),
            SelectorProblem::Unclosed => "found '', expected: ',' or ')'".to_owned(),
            SelectorProblem::Operator(head) => {
                format!("found '{head}', expected: in, notin, =, ==, !=, gt, lt")
            }
            SelectorProblem::Number(value) => {
                format!("for 'Gt', 'Lt' operators, the value must be an integer: {value:?}")
            }
            SelectorProblem::Key(key) => {
                let why = qualified_name_problem(&key).unwrap_or_default();
                format!("key: Invalid value: {key:?}: {why}")
            }
            SelectorProblem::Value(value) => {
                let why = label_value_problem(&value).unwrap_or_default();
                format!("values[0]: Invalid value: {value:?}: {why}")
            }
        };
        ApiError::bad_request(format!("unable to parse requirement: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(labels: &str, fields: &str) -> Result<bool, u16> {
        let supported = FieldLabels {
            labels: vec![("spec.nodeName", "spec.nodeName"), ("spec.unschedulable", "spec.unschedulable")],
            refused_as: RefusedAs::NotSupported,
        };
        let object = json!({"metadata": {"labels": {"app": "web", "size": "3"}}, "spec": {"nodeName": "n1"}});
        Selector::parse(labels, fields, &supported).map(|s| s.matches(&object)).map_err(|e| e.code())
    }

    #[test]
    fn every_label_operator_selects() {
        for (selector, want) in [
            ("app=web", true),
            ("app==web,size!=4", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("app", true),
            ("!app", false),
            ("!other,other!=x", true),
            ("size>2,size<4", true),
            ("size>3", false),
            ("", true),
        ] {
            assert_eq!(check(selector, ""), Ok(want), "{selector}");
        }
    }

    #[test]
    fn field_operators_select_and_unknown_fields_are_rejected() {
        assert_eq!(check("", "spec.nodeName=n1"), Ok(true));
        assert_eq!(check("", "spec.nodeName!=n1"), Ok(false));
        assert_eq!(check("", "spec.unschedulable=false"), Ok(true));
        assert_eq!(check("", "spec.color=red"), Err(400));
        assert_eq!(check("", "spec.nodeName"), Err(400));
    }

    #[test]
    fn malformed_label_selectors_are_rejected() {
        for selector in ["a b", "a in (b", "=x", "a,,b", "a>x", "-a=b", "a=b c"] {
            assert_eq!(check(selector, ""), Err(400), "{selector}");
        }
    }
}
