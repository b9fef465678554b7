//! Label selectors: `key`, `!key`, `key=value`, `key==value`, `key!=value`, `key in (a,b)` and
//! `key notin (a,b)`, joined by commas.

use crate::model::Labels;

/// A parsed selector: all terms must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

impl Selector {
    /// Parses a selector. An empty text selects everything.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        split_terms(text).into_iter().map(Term::parse).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|term| term.holds(labels))
    }
}

/// Splits at commas outside of parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_end = move |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth == 0
    };
    text.split(is_end).map(str::trim).filter(|term| !term.is_empty()).collect()
}

impl Term {
    fn parse(text: &str) -> Option<Self> {
        if let Some((key, value)) = text.split_once("!=") {
            return Some(Self::NotIn(key_of(key)?, vec![value.trim().to_owned()]));
        }
        if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            return Some(Self::In(key_of(key)?, vec![value.trim().to_owned()]));
        }
        if let Some(rest) = text.strip_suffix(')') {
            let (left, values) = rest.split_once('(')?;
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            let (key, operator) = left.trim().rsplit_once(' ')?;
            return match operator {
                "in" => Some(Self::In(key_of(key)?, values)),
                "notin" => Some(Self::NotIn(key_of(key)?, values)),
                _ => None,
            };
        }
        match text.strip_prefix('!') {
            Some(key) => Some(Self::Absent(key_of(key)?)),
            None => Some(Self::Exists(key_of(text)?)),
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        }
    }
}

fn key_of(text: &str) -> Option<String> {
    let key = text.trim();
    is_label_key(key).then(|| key.to_owned())
}

/// Whether a label may have that key: an optional prefix that is a DNS name, and a name.
pub(crate) fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    };
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_prefix)
}

/// Whether a label may have that value: up to 63 letters, digits, `-`, `_` and `.`, with a letter
/// or digit at both ends.
pub(crate) fn is_label_value(value: &str) -> bool {
    let ends_well = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    value.len() <= 63
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && ends_well(value.bytes().next())
        && ends_well(value.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_term_selects_as_documented() {
        let labels: Labels = [("role", "worker"), ("example.org/zone", "a")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for (selector, selected) in [
            ("", true),
            ("role", true),
            ("!role", false),
            ("!other", true),
            ("role=worker", true),
            ("role==worker,example.org/zone=a", true),
            ("role=worker,example.org/zone=b", false),
            ("role!=worker", false),
            ("other!=worker", true),
            ("role in (master, worker)", true),
            ("role in (master),role", false),
            ("role notin (master)", true),
        ] {
            let parsed = Selector::parse(selector).expect("a selector");
            assert_eq!(parsed.matches(&labels), selected, "{selector}");
        }
        for wrong in ["a b", "=a", "role on (a)", "ro le=a", "!"] {
            assert_eq!(Selector::parse(wrong), None, "{wrong}");
        }
    }
}
