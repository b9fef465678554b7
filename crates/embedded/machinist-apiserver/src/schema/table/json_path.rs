//! JSONPath of printer columns, for paths that begin with a dot: fields, indices, slices, wildcards
//! and filters. Recursive descent (`..`) and unions are not supported; a path with them is invalid.

use serde_json::Value;

/// Maximum number of steps in a path.
const MAX_STEPS: usize = 64;

/// A parsed path.
#[derive(Debug, Clone)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Field(String),
    Index(i64),
    Slice { from: Option<i64>, to: Option<i64> },
    All,
    Filter { left: Operand, test: Option<(Comparator, Operand)> },
}

#[derive(Debug, Clone)]
enum Operand {
    /// Relative to the item (`@.x`).
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path. Returns `None` if the path is not supported.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('.') {
            return None;
        }
        Self::steps(text)
    }

    fn steps(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if MAX_STEPS <= steps.len() {
                return None;
            }
            if let Some(inside) = rest.strip_prefix('[') {
                let (inside, after) = inside.split_at(closing_bracket(inside)?);
                steps.push(bracket(inside.trim())?);
                rest = after.strip_prefix(']')?;
                continue;
            }
            rest = rest.strip_prefix('.')?;
            if rest.is_empty() && steps.is_empty() {
                return Some(JsonPath(steps));
            }
            if rest.starts_with('[') {
                continue;
            }
            let (name, after) = field_name(rest)?;
            steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            rest = after;
        }
        Some(JsonPath(steps))
    }

    /// Returns the first value at the path.
    pub(super) fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        let mut nodes = vec![root];
        for step in &self.0 {
            nodes = nodes.into_iter().flat_map(|node| step.from(node)).collect();
        }
        nodes.first().copied()
    }
}

impl Step {
    fn from<'a>(&self, node: &'a Value) -> Vec<&'a Value> {
        match (self, node) {
            (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Step::Index(index), Value::Array(items)) => {
                let at = position(*index, items.len());
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            (Step::Slice { from, to }, Value::Array(items)) => {
                let bound = |at: Option<i64>, absent: usize| match at {
                    None => Some(absent),
                    Some(at) => position(at, items.len()).map(|at| at.min(items.len())),
                };
                match (bound(*from, 0), bound(*to, items.len())) {
                    (Some(from), Some(to)) if from <= to => items[from..to].iter().collect(),
                    _ => Vec::new(),
                }
            }
            (Step::All, Value::Array(items)) => items.iter().collect(),
            (Step::All, Value::Object(map)) => map.values().collect(),
            (Step::Filter { left, test }, Value::Array(items)) => {
                items.iter().filter(|item| holds(item, left, test.as_ref())).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Converts an index, which counts from the end if negative.
fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { length + index } else { index }).ok()
}

fn holds(item: &Value, left: &Operand, test: Option<&(Comparator, Operand)>) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Path(path) => path.first(item).cloned(),
        Operand::Literal(value) => Some(value.clone()),
    };
    match (value(left), test) {
        (found, None) => found.is_some(),
        (None, Some(_)) => false,
        (Some(left), Some((comparison, right))) => {
            value(right).is_some_and(|right| compares(&left, *comparison, &right))
        }
    }
}

fn compares(left: &Value, comparator: Comparator, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
        }
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    };
    order.is_some_and(|order| match comparator {
        Comparator::Equal => order.is_eq(),
        Comparator::Unequal => order.is_ne(),
        Comparator::Less => order.is_lt(),
        Comparator::LessOrEqual => order.is_le(),
        Comparator::Greater => order.is_gt(),
        Comparator::GreaterOrEqual => order.is_ge(),
    })
}

/// Reads a field name and returns the remaining text. A backslash escapes the next character.
fn field_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            '.' | '[' => return (!name.is_empty()).then(|| (name, &text[at..])),
            ']' | '(' | ')' | '{' | '}' | '"' | '\'' | '|' | ',' => return None,
            other if other.is_whitespace() => return None,
            other => name.push(other),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// Finds the end of the bracket that was just opened.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut open = 1_u32;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (_, '\\') => {
                characters.next();
            }
            (Some(mark), _) if mark == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => open += 1,
            (None, ']') => {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
            }
            (None, _) => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Option<Step> {
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|c| c.strip_suffix(')')) {
        return filter(condition.trim());
    }
    if let Some(name) = quoted(inside) {
        return Some(Step::Field(name));
    }
    if let Some((from, to)) = inside.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        return Some(Step::Slice { from: bound(from)?, to: bound(to)? });
    }
    inside.parse().ok().map(Step::Index)
}

fn filter(condition: &str) -> Option<Step> {
    const COMPARATORS: [(&str, Comparator); 6] = [
        ("==", Comparator::Equal),
        ("!=", Comparator::Unequal),
        ("<=", Comparator::LessOrEqual),
        (">=", Comparator::GreaterOrEqual),
        ("<", Comparator::Less),
        (">", Comparator::Greater),
    ];
    let found = COMPARATORS
        .into_iter()
        .filter_map(|(sign, comparison)| condition.find(sign).map(|at| (at, sign, comparison)))
        // If two operators start at the same position, the longer one counts. It comes first in the
        // table.
        .min_by_key(|(at, ..)| *at);
    match found {
        None => Some(Step::Filter { left: operand(condition)?, test: None }),
        Some((at, sign, comparison)) => Some(Step::Filter {
            left: operand(condition[..at].trim())?,
            test: Some((comparison, operand(condition[at + sign.len()..].trim())?)),
        }),
    }
}

fn operand(text: &str) -> Option<Operand> {
    if let Some(path) = text.strip_prefix('@') {
        return JsonPath::steps(path).map(Operand::Path);
    }
    if let Some(literal) = quoted(text) {
        return Some(Operand::Literal(Value::String(literal)));
    }
    serde_json::from_str(text).ok().filter(|v: &Value| v.is_number() || v.is_boolean()).map(Operand::Literal)
}

fn quoted(text: &str) -> Option<String> {
    let mark = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = text.strip_prefix(mark)?.strip_suffix(mark)?;
    Some(inside.replace(&format!("\\{mark}"), &mark.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_their_first_value() {
        let object =
            json!({"a": {"b.c": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}, {"n": "z", "v": 3}]}});
        let check = |path: &str| JsonPath::parse(path).and_then(|p| p.first(&object).cloned());
        assert_eq!(check(".a.b\\.c"), Some(json!(1)));
        assert_eq!(check(".a['b.c']"), Some(json!(1)));
        assert_eq!(check(".a.list[1].n"), Some(json!("y")));
        assert_eq!(check(".a.list[-1].n"), Some(json!("z")));
        assert_eq!(check(".a.list[1:].n"), Some(json!("y")));
        assert_eq!(check(".a.list[*].n"), Some(json!("x")));
        assert_eq!(check(".a.list[?(@.n==\"y\")].v"), Some(json!(2)));
        assert_eq!(check(".a.list[?(@.v >= 3)].n"), Some(json!("z")));
        assert_eq!(check(".a.list[?(@.none)].n"), None);
        assert_eq!(check(".a.list[7].n"), None);
        assert_eq!(check(".a..n"), None);
        assert_eq!(check("a"), None);
    }

    proptest! {
        #[test]
        fn random_paths_never_panic(text in "[.a\\[\\]*?(@=!<>:0-9'\"\\\\ é-]{0,40}") {
            let object = json!({"a": [{"a": 1}, [2, 3]]});
            if let Some(path) = JsonPath::parse(&text) {
                let _found = path.first(&object);
            }
        }
    }
}
