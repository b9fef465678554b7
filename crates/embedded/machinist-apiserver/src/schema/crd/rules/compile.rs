//! Compiles the rules of a schema node and reports rules that kube-apiserver would reject.

use kube_cel::cel::Program;
use kube_cel::cel::parser::ParseError;
use serde_json::Value;

use crate::schema::crd::rules::types::{self, Wanted};
use crate::schema::crd::rules::{Compiled, Rule, cost, stack};
use crate::schema::crd::schema::Schema;
use crate::values::status::{FieldErrorKind, FieldErrors};

/// Maximum length of a rule or a message expression, in bytes.
const LONGEST: usize = 20_000;
/// Maximum nesting of brackets in the text.
const MAX_BRACKETS: usize = 50;

/// Position of a schema node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodePosition<'a> {
    /// Path of the node in the definition, for errors.
    pub(crate) field: &'a str,
    /// Whether the node is a whole object.
    pub(crate) resource: bool,
    /// Path of the enclosing list whose items have no identity, if any. No old value can be found
    /// inside this list.
    pub(crate) uncorrelatable: Option<&'a str>,
    /// Maximum number of values of the node in one object, if there is a limit.
    pub(crate) count: Option<f64>,
}

/// Compiles the `x-kubernetes-validations` of one node. Invalid rules are reported and skipped.
pub(crate) fn rules(
    source: &Value,
    schema: &Schema,
    place: NodePosition<'_>,
    errors: &mut FieldErrors,
) -> Vec<Rule> {
    let Some(list) = source.as_array() else { return Vec::new() };
    let mut rules = Vec::with_capacity(list.len());
    for (index, declared) in list.iter().enumerate() {
        let at = format!("{}.x-kubernetes-validations[{index}]", place.field);
        rules.extend(rule(declared, schema, &at, place, errors));
    }
    rules
}

fn rule(
    declared: &Value,
    schema: &Schema,
    at: &str,
    place: NodePosition<'_>,
    errors: &mut FieldErrors,
) -> Option<Rule> {
    let known = errors.0.len();
    let text = |key: &str| declared.get(key).and_then(Value::as_str).map(str::to_owned);
    let source = text("rule").unwrap_or_default();
    let message = text("message").filter(|message| !message.is_empty());
    let message_expression = text("messageExpression").filter(|message| !message.is_empty());
    if source.trim().is_empty() {
        errors.required(format!("{at}.rule"), "rule is not specified");
        return None;
    }
    if let Some(message) = &message {
        if message.trim().is_empty() {
            errors.invalid(
                format!("{at}.message"),
                message.as_str().into(),
                "message must be non-empty if specified",
            );
        } else if message.contains('\n') {
            errors.invalid(format!("{at}.message"), message.as_str().into(), "must not contain line breaks");
        }
    } else if message_expression.is_none() && source.trim().contains('\n') {
        errors.required(format!("{at}.message"), "message must be specified if rule contains line breaks");
    }
    let reason = reason(text("reason").as_deref(), at, errors);
    let field_path = field_path(text("fieldPath").as_deref(), schema, at, errors);

    let compiled = program(&source, Wanted::Bool, schema, place);
    let program_of_message =
        message_expression.as_deref().map(|expression| program(expression, Wanted::Text, schema, place));
    let takes_no_past = declared.get("optionalOldSelf") == Some(&Value::Bool(true));
    let program = match compiled {
        Ok(compiled) => compiled,
        Err(refusal) => {
            refusal.complain(&format!("{at}.rule"), declared, errors);
            return None;
        }
    };
    let message_program = match program_of_message.transpose() {
        Ok(compiled) => compiled,
        Err(refusal) => {
            refusal.complain(&format!("{at}.messageExpression"), declared, errors);
            return None;
        }
    };
    let is_transition = program.program.references().has_variable("oldSelf");
    if let (true, Some(list)) = (is_transition, place.uncorrelatable) {
        errors.invalid(
            format!("{at}.rule"),
            source.as_str().into(),
            format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"),
        );
    }
    if takes_no_past && !is_transition {
        errors.invalid(
            format!("{at}.optionalOldSelf"),
            true.into(),
            "may not be set if oldSelf is not used in rule",
        );
    }
    if known != errors.0.len() {
        return None;
    }
    Some(Rule {
        text: source,
        program,
        message,
        message_program,
        reason,
        field_path,
        is_transition,
        takes_no_past,
    })
}

fn reason(text: Option<&str>, at: &str, errors: &mut FieldErrors) -> FieldErrorKind {
    match text {
        None | Some("FieldValueInvalid") => FieldErrorKind::Invalid,
        Some("FieldValueRequired") => FieldErrorKind::Required,
        Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
        Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
        Some(other) => {
            let known =
                ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
            errors.not_supported(format!("{at}.reason"), other.into(), &known.map(str::to_owned));
            FieldErrorKind::Invalid
        }
    }
}

/// Parses `.a.b` or `['a'].b`. The path must lead to a field of the node.
fn field_path(text: Option<&str>, schema: &Schema, at: &str, errors: &mut FieldErrors) -> Vec<String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Vec::new() };
    let leads_somewhere = |steps: &Vec<String>| {
        steps.iter().try_fold(schema, |node, step| node.property(step).map(|below| &**below)).is_some()
    };
    steps(text).filter(leads_somewhere).unwrap_or_else(|| {
        errors.invalid(format!("{at}.fieldPath"), text.into(), "must be a valid path");
        Vec::new()
    })
}

fn steps(path: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let (step, after) = quoted.split_once("']")?;
            steps.push(step.to_owned());
            rest = after;
        } else {
            let named = rest.strip_prefix('.')?;
            let end = named.find(['.', '[']).unwrap_or(named.len());
            if end == 0 {
                return None;
            }
            steps.push(named[..end].to_owned());
            rest = &named[end..];
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// Reason why an expression is rejected.
enum Rejection {
    /// The expression cannot run.
    Wrong(String),
    /// The estimated cost exceeds the budget by this factor.
    Costly(f64, Wanted),
}

impl Rejection {
    fn complain(self, field: &str, declared: &Value, errors: &mut FieldErrors) {
        match self {
            Rejection::Wrong(why) => {
                errors.push_shown(FieldErrorKind::Invalid, field, Some(as_go_shows(declared)), why);
            }
            Rejection::Costly(times, wanted) => {
                let factor = if 100.0 < times { "more than 100x".to_owned() } else { format!("{times:.1}x") };
                let what = if wanted == Wanted::Bool { "rule" } else { "messageExpression" };
                let why = format!(
                    "estimated {what} cost exceeds budget by factor of {factor} (try simplifying the rule, or adding \
                     maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
                );
                errors.forbidden(field, why);
            }
        }
    }
}

/// Formats a rule with its fields, as kube-apiserver quotes it in an error.
fn as_go_shows(declared: &Value) -> String {
    let text = |key: &str| declared.get(key).filter(|v| v.is_string()).cloned().unwrap_or_else(|| "".into());
    let or_null = |key: &str| declared.get(key).cloned().unwrap_or(Value::Null);
    let shown = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        or_null("reason"),
        text("fieldPath"),
        or_null("optionalOldSelf"),
    );
    shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn program(
    text: &str,
    wanted: Wanted,
    schema: &Schema,
    place: NodePosition<'_>,
) -> Result<Compiled, Rejection> {
    let compiled =
        parse(text).map_err(|why| Rejection::Wrong(format!("compilation failed: ERROR: {why}")))?;
    let steps =
        types::steps(compiled.program.expression(), schema, place.resource, wanted).map_err(|why| {
            Rejection::Wrong(match wanted {
                _ if why.contains("must evaluate to") => why,
                Wanted::Bool => format!("compilation failed: ERROR: {why}"),
                Wanted::Text => format!("messageExpression compilation failed: ERROR: {why}"),
            })
        })?;
    let times = steps * place.count.unwrap_or_else(|| types::largest_count(schema)) / cost::MAX_ESTIMATED;
    if 1.0 < times {
        return Err(Rejection::Costly(times, wanted));
    }
    Ok(compiled)
}

/// Formats the first errors with their positions, as cel-go shows them. A very long line is not
/// repeated for each error.
fn first_of(errors: &[ParseError], text: &str) -> String {
    const FIRST: usize = 3;
    const LONGEST: usize = 1000;
    let one = |error: &ParseError| {
        let (line, column) = error.pos;
        let told = format!("<input>:{line}:{column}: {}", error.msg);
        let place = usize::try_from(line - 1)
            .ok()
            .and_then(|at| text.lines().nth(at))
            .zip(usize::try_from(column).ok());
        match place.filter(|(shown, column)| shown.len() < LONGEST && *column < LONGEST) {
            Some((shown, width)) => format!("{told}\n | {shown}\n | {:.>width$}", "^"),
            None => told,
        }
    };
    errors.iter().take(FIRST).map(one).collect::<Vec<_>>().join("\nERROR: ")
}

/// Parses on a separate stack. The parser panics on some texts. These texts are invalid like other
/// wrong texts.
fn parse(text: &str) -> Result<Compiled, String> {
    if LONGEST < text.len() {
        return Err(format!("the expression has {} bytes, the limit is {LONGEST}", text.len()));
    }
    if MAX_BRACKETS < brackets(text) {
        return Err(format!("the expression has more than {MAX_BRACKETS} brackets inside of each other"));
    }
    if let Some(sign) = doubled_sign(text) {
        // The parser would read an even number of signs as one.
        return Err(format!("`{sign}{sign}` cannot be read here, write the expression without"));
    }
    let compile = || {
        let program = Program::compile(text).map_err(|errors| first_of(&errors.errors, text))?;
        let nesting = cost::nesting(program.expression());
        if cost::MAX_NESTING < nesting {
            return Err(format!("the expression is nested more than {} times", cost::MAX_NESTING));
        }
        Ok(Compiled { program, nesting })
    };
    stack::deep(compile)
        .map_err(|error| format!("no thread to parse it on: {error}"))?
        .unwrap_or_else(|_| Err("the parser cannot read the expression".to_owned()))
}

/// Returns a `!` or `-` that is repeated before its operand, outside of string literals.
fn doubled_sign(text: &str) -> Option<char> {
    let (mut quote, mut escaped) = (None, false);
    // Signs since the last operand, and whether an operand precedes them. In that case the first
    // `-` is a subtraction.
    let (mut signs, mut after_operand) = (Vec::new(), false);
    for c in text.chars() {
        if let Some(open) = quote {
            if !escaped && c == open {
                quote = None;
            }
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '!' | '-' => signs.push(c),
            _ if c.is_whitespace() => {}
            _ => {
                // `!=` is a comparison, `a - -b` a subtraction.
                let own = if c == '=' { signs.len().saturating_sub(1) } else { signs.len() };
                let first = usize::from(after_operand && signs.first() == Some(&'-'));
                if first + 1 < own {
                    return signs.pop();
                }
                signs.clear();
                quote = matches!(c, '\'' | '"').then_some(c);
                after_operand = c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '}' | '\'' | '"');
            }
        }
    }
    None
}

/// Returns the nesting depth of brackets, including those in strings and comments. This only
/// protects the parser and need not be exact.
fn brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}
