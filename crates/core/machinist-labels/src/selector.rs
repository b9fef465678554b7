//! Label selectors.
//!
//! All requirements of a selector have to hold. An absent label fulfils `notin`, `!=` and `!`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::key_values::TextMap;
use crate::syntax::{is_key, is_value};

/// A label selector. An empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Test {
    Exists,
    Missing,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Creates a selector from the entries of `matchLabels`.
    pub fn of_labels(labels: impl IntoIterator<Item = (String, String)>) -> Self {
        let equals = |(key, value)| Requirement { key, test: Test::In(BTreeSet::from([value])) };
        Self(labels.into_iter().map(equals).collect())
    }

    /// Adds an entry of `matchExpressions`. An entry with an unknown operator matches nothing, like
    /// `In` without values.
    pub fn add_expression(&mut self, key: String, operator: &str, values: BTreeSet<String>) {
        let test = match operator {
            "In" => Test::In(values),
            "NotIn" => Test::NotIn(values),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::Missing,
            _ => Test::In(BTreeSet::new()),
        };
        self.0.push(Requirement { key, test });
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels are selected.
    pub fn selects(&self, labels: &impl TextMap) -> bool {
        self.matches(|key| labels.value(key))
    }

    /// Whether the labels of an object are selected. `value_of` returns the value of a key.
    pub fn matches<'l>(&self, value_of: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|requirement| requirement.test.holds(value_of(&requirement.key)))
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Above(bound) => number().is_some_and(|number| *bound < number),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[cfg(feature = "k8s-openapi")]
impl From<&k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector> for Selector {
    fn from(selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector) -> Self {
        let mut requirements = Self::of_labels(selector.match_labels.clone().unwrap_or_default());
        for entry in selector.match_expressions.iter().flatten() {
            let values = entry.values.iter().flatten().cloned().collect();
            requirements.add_expression(entry.key.clone(), &entry.operator, values);
        }
        requirements
    }
}

/// A text that is not a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorError {
    /// The part between two commas that could not be read.
    pub term: String,
    /// The problem with the part.
    pub problem: SelectorProblem,
}

/// The problem with a part of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectorProblem {
    /// The part is empty.
    Empty,
    /// A list of values has no closing parenthesis.
    Unclosed,
    /// This text before a list of values is not a key with `in` or `notin`.
    Operator(String),
    /// This operand of `>` or `<` is not an integer.
    Number(String),
    /// This text is not a label key.
    Key(String),
    /// This text is not a label value.
    Value(String),
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: expected a label selector such as pool=web,!retired,zone in (a,b)", self.term)
    }
}

impl std::error::Error for SelectorError {}

/// Parses the text of a query, for example `pool=web,!retired,zone in (a, b)`.
impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let requirement = |term: &str| {
            requirement(term).map_err(|problem| SelectorError { term: term.to_owned(), problem })
        };
        terms(text).map(str::trim).map(requirement).collect::<Result<_, _>>().map(Self)
    }
}

/// Splits a selector at the commas outside of parentheses.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

/// Longest first, so that `!=` and `==` are not read as `=`.
const OPERATORS: [&str; 5] = ["!=", "==", "=", ">", "<"];

fn requirement(term: &str) -> Result<Requirement, SelectorProblem> {
    if term.is_empty() {
        return Err(SelectorProblem::Empty);
    }
    if let Some(key) = term.strip_prefix('!') {
        return with_key(key, Test::Missing);
    }
    if let Some((head, values)) = term.split_once('(') {
        return list(head, values);
    }
    for operator in OPERATORS {
        if let Some((key, value)) = term.split_once(operator) {
            return comparison(key, operator, value);
        }
    }
    with_key(term, Test::Exists)
}

/// Reads `key in (a, b)` or `key notin (a, b)`, split at the opening parenthesis.
fn list(head: &str, values: &str) -> Result<Requirement, SelectorProblem> {
    let values = values.strip_suffix(')').ok_or(SelectorProblem::Unclosed)?;
    let values = values.split(',').map(str::trim).collect::<BTreeSet<_>>();
    let values = values.into_iter().map(valid_value).collect::<Result<_, _>>()?;
    let mut words = head.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(key), Some("in"), None) => with_key(key, Test::In(values)),
        (Some(key), Some("notin"), None) => with_key(key, Test::NotIn(values)),
        _ => Err(SelectorProblem::Operator(head.to_owned())),
    }
}

fn comparison(key: &str, operator: &str, value: &str) -> Result<Requirement, SelectorProblem> {
    let value = valid_value(value.trim())?;
    let key = valid_key(key)?;
    let number = || value.parse().map_err(|_| SelectorProblem::Number(value.clone()));
    let test = match operator {
        ">" => Test::Above(number()?),
        "<" => Test::Below(number()?),
        "!=" => Test::NotIn(BTreeSet::from([value])),
        _ => Test::In(BTreeSet::from([value])),
    };
    Ok(Requirement { key, test })
}

fn with_key(key: &str, test: Test) -> Result<Requirement, SelectorProblem> {
    Ok(Requirement { key: valid_key(key)?, test })
}

fn valid_key(text: &str) -> Result<String, SelectorProblem> {
    let key = text.trim().to_owned();
    if is_key(&key) { Ok(key) } else { Err(SelectorProblem::Key(key)) }
}

fn valid_value(text: &str) -> Result<String, SelectorProblem> {
    if is_value(text) { Ok(text.to_owned()) } else { Err(SelectorProblem::Value(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_operator_selects_its_labels() {
        let labels = labels(&[
            ("pool", "web"),
            ("zone", "a"),
            ("empty", ""),
            ("size", "3"),
            ("example.org/zone", "a"),
        ]);
        for (text, expected) in [
            ("", true),
            ("pool=web", true),
            ("pool==web", true),
            ("pool = web", true),
            ("pool=db", false),
            ("pool!=db", true),
            ("missing!=db", true),
            ("pool!=web", false),
            ("pool", true),
            ("!pool", false),
            ("!missing", true),
            ("!missing,missing!=x", true),
            ("zone in (a, b)", true),
            ("zone in (b)", false),
            ("zone in (b),zone", false),
            ("zone notin (b,c)", true),
            ("zone notin (a,c)", false),
            ("missing notin (b)", true),
            ("zone in (a,b),pool=web", true),
            ("zone in (a,b),pool=db", false),
            ("pool==web,example.org/zone=a", true),
            ("pool=web,example.org/zone=b", false),
            ("empty=", true),
            ("pool==web,size!=4", true),
            ("size>2,size<4", true),
            ("size>3", false),
            ("pool>3", false),
        ] {
            let selector: Selector = text.parse().expect(text);
            assert_eq!(selector.selects(&labels), expected, "{text}");
        }
        assert!(!"pool".parse::<Selector>().expect("a key").selects(&BTreeMap::new()));
    }

    #[test]
    fn a_text_that_is_no_selector_is_an_error() {
        for text in [
            "=web",
            "pool=a b",
            "zone in (a",
            "zone within (a)",
            "role on (a)",
            "a,,b",
            "in (a)",
            "a b",
            "ro le=a",
            "!",
            "a>x",
            "-a=b",
            "a=b c",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_operator_matches_nothing() {
        for (operator, values, expected) in [
            ("In", vec!["web"], true),
            ("In", vec![], false),
            ("NotIn", vec![], true),
            ("Exists", vec!["web"], true),
            ("Like", vec!["web"], false),
        ] {
            let mut selector = Selector::of_labels([("zone".to_owned(), "a".to_owned())]);
            let values = values.into_iter().map(str::to_owned).collect();
            selector.add_expression("pool".to_owned(), operator, values);
            assert_eq!(selector.selects(&labels(&[("pool", "web"), ("zone", "a")])), expected, "{operator}");
            assert!(!selector.selects(&labels(&[("pool", "web")])), "{operator}");
        }
    }
}
