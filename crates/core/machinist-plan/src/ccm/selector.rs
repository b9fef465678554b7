//! Label selectors as text, for example `pool=web,!retired,zone in (a, b)`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A label selector. An empty selector matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
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
    In(Vec<String>),
    NotIn(Vec<String>),
}

/// A text that is not a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorError {
    /// The part that could not be read.
    part: String,
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: expected a label selector such as pool=web,!retired,zone in (a,b)", self.part)
    }
}

impl std::error::Error for SelectorError {}

impl Selector {
    /// Whether the labels fulfil every requirement.
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key));
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            }
        })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        parts(text).into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }
}

/// Splits a selector at the commas outside of parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let part = part.trim();
    let error = || SelectorError { part: part.to_owned() };
    let (key, test) = if let Some(key) = part.strip_prefix('!') {
        (key, Test::Missing)
    } else if let Some((key, value)) = part.split_once("!=") {
        (key, Test::NotIn(vec![single(value).ok_or_else(error)?]))
    } else if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        (key, Test::In(vec![single(value).ok_or_else(error)?]))
    } else if let Some((left, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(error)?;
        let values: Option<Vec<String>> = values.split(',').map(single).collect();
        let values = values.ok_or_else(error)?;
        let (key, operator) = left.trim().rsplit_once(char::is_whitespace).ok_or_else(error)?;
        match operator {
            "in" => (key, Test::In(values)),
            "notin" => (key, Test::NotIn(values)),
            _ => return Err(error()),
        }
    } else {
        (part, Test::Exists)
    };
    let key = key.trim();
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_key) {
        return Err(error());
    }
    Ok(Requirement { key: key.to_owned(), test })
}

/// Reads one value, which may be empty.
fn single(value: &str) -> Option<String> {
    let value = value.trim();
    machinist_api::constants::labels::is_value(value).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operator_selects_its_labels() {
        let labels: BTreeMap<String, String> =
            [("pool", "web"), ("zone", "a"), ("empty", "")].map(|(k, v)| (k.into(), v.into())).into();
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
            ("zone in (a, b)", true),
            ("zone in (b)", false),
            ("zone notin (b,c)", true),
            ("missing notin (b)", true),
            ("zone in (a,b),pool=web", true),
            ("zone in (a,b),pool=db", false),
            ("empty=", true),
        ] {
            let selector: Selector = text.parse().expect(text);
            assert_eq!(selector.matches(Some(&labels)), expected, "{text}");
        }
        assert!(!"pool".parse::<Selector>().expect("a key").matches(None));
    }

    #[test]
    fn a_text_that_is_no_selector_is_an_error() {
        for text in ["=web", "pool=a b", "zone in (a", "zone within (a)", "a,,b", "in (a)", "a b", "!"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
