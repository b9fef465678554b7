//! Label and field selectors.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::values::object::{self, Object};
use crate::values::status::{ApiError, ApiResult};

/// Label selector and field selector of a list or watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelRequirement {
    Exists(String),
    Absent(String),
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Above(String, i64),
    Below(String, i64),
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
        let mut labels = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            labels.push(LabelRequirement::In(key.clone(), BTreeSet::from([value.as_str()?.to_owned()])));
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = expression.get("key")?.as_str()?.to_owned();
            let values =
                expression.get("values").and_then(Value::as_array).map_or_else(BTreeSet::new, |values| {
                    values.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
                });
            labels.push(match expression.get("operator")?.as_str()? {
                "In" => LabelRequirement::In(key, values),
                "NotIn" => LabelRequirement::NotIn(key, values),
                "Exists" => LabelRequirement::Exists(key),
                "DoesNotExist" => LabelRequirement::Absent(key),
                _ => return None,
            });
        }
        Some(Selector { labels, fields: Vec::new() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|r| r.matches(object)) && self.fields.iter().all(|r| r.matches(object))
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

impl LabelRequirement {
    fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object::labels(object).and_then(|l| l.get(key)).and_then(Value::as_str);
        let number = |key: &str| label(key).and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
            Self::In(key, values) => label(key).is_some_and(|v| values.contains(v)),
            Self::NotIn(key, values) => label(key).is_none_or(|v| !values.contains(v)),
            Self::Above(key, bound) => number(key).is_some_and(|v| *bound < v),
            Self::Below(key, bound) => number(key).is_some_and(|v| v < *bound),
        }
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

fn parse_labels(text: &str) -> ApiResult<Vec<LabelRequirement>> {
    let mut requirements = Vec::new();
    for term in split_labels(text) {
        let term = term.trim();
        if term.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(unparsable("found ',', expected: identifier after ','"));
        }
        requirements.push(parse_label_term(term)?);
    }
    Ok(requirements)
}

fn unparsable(why: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {why}"))
}

/// Splits at commas outside parentheses.
fn split_labels(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_label_term(term: &str) -> ApiResult<LabelRequirement> {
    if let Some(key) = term.strip_prefix('!') {
        return Ok(LabelRequirement::Absent(label_key(key.trim())?));
    }
    if let Some((head, values)) = term.split_once('(') {
        let Some(values) = values.trim_end().strip_suffix(')') else {
            return Err(unparsable("found '', expected: ',' or ')'"));
        };
        let values: BTreeSet<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        for value in &values {
            label_value(value)?;
        }
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(LabelRequirement::In(label_key(key)?, values)),
            (Some(key), Some("notin"), None) => Ok(LabelRequirement::NotIn(label_key(key)?, values)),
            _ => Err(unparsable(&format!("found '{head}', expected: in, notin, =, ==, !=, gt, lt"))),
        };
    }
    for (operator, make) in OPERATORS {
        if let Some((key, value)) = term.split_once(operator) {
            let value = value.trim();
            label_value(value)?;
            return make(label_key(key.trim())?, value).ok_or_else(|| {
                unparsable(&format!("for 'Gt', 'Lt' operators, the value must be an integer: {value:?}"))
            });
        }
    }
    Ok(LabelRequirement::Exists(label_key(term)?))
}

type MakeRequirement = fn(String, &str) -> Option<LabelRequirement>;

/// Longest first, so that `!=` and `==` are not read as `=`.
const OPERATORS: [(&str, MakeRequirement); 5] = [
    ("!=", |key, value| Some(LabelRequirement::NotIn(key, BTreeSet::from([value.to_owned()])))),
    ("==", |key, value| Some(LabelRequirement::In(key, BTreeSet::from([value.to_owned()])))),
    ("=", |key, value| Some(LabelRequirement::In(key, BTreeSet::from([value.to_owned()])))),
    (">", |key, value| Some(LabelRequirement::Above(key, value.parse().ok()?))),
    ("<", |key, value| Some(LabelRequirement::Below(key, value.parse().ok()?))),
];

fn label_key(key: &str) -> ApiResult<String> {
    match crate::values::meta::qualified_name_problem(key) {
        None => Ok(key.to_owned()),
        Some(why) => Err(unparsable(&format!("key: Invalid value: {key:?}: {why}"))),
    }
}

fn label_value(value: &str) -> ApiResult<()> {
    match crate::values::meta::label_value_problem(value) {
        None => Ok(()),
        Some(why) => Err(unparsable(&format!("values[0]: Invalid value: {value:?}: {why}"))),
    }
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
