//! Evaluates the rules of a schema on an object and, if there is one, on its old version.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use crate::schema::crd::rules::extent::Extent;
use crate::schema::crd::rules::{Compiled, Rule, cost, functions, stack, value};
use crate::schema::crd::schema::{MAX_DEPTH, Schema};
use crate::schema::crd::validate::join;
use crate::values::status::{FieldErrorKind, FieldErrors};

/// Nesting of expressions that a worker's stack certainly fits, also in a program that was compiled
/// without optimisation.
const SHALLOW: usize = 20;

/// Appends an error for every rule that an object breaks.
///
/// A rule that uses `oldSelf` runs only if the value has an old version or the rule sets
/// `optionalOldSelf`. If an unchanged value breaks any other rule, the error is returned instead of
/// appended. It does not reject the write, but is worth reporting.
pub(crate) fn judge(
    object: &Value,
    old: Option<&Value>,
    schema: &Schema,
    errors: &mut FieldErrors,
) -> FieldErrors {
    let mut left_alone = FieldErrors::default();
    let mut judge = Judge { errors, left_alone: &mut left_alone, steps: 0.0, exhausted: false };
    judge.node(object, old, schema, "", true, 0);
    left_alone
}

struct Judge<'a> {
    errors: &'a mut FieldErrors,
    left_alone: &'a mut FieldErrors,
    /// Upper bound of the cost of all rules on this object so far.
    steps: f64,
    exhausted: bool,
}

impl Judge<'_> {
    fn node(
        &mut self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        field: &str,
        resource: bool,
        depth: usize,
    ) {
        if !schema.has_rules || MAX_DEPTH < depth || (value.is_null() && !schema.nullable) {
            return;
        }
        self.rules(value, old, schema, field, resource);
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                        continue;
                    }
                    let past = old.and_then(|old| old.get(key));
                    if let Some(below) = schema.properties.get(key) {
                        self.node(child, past, below, &join(field, key), below.embedded_resource, depth + 1);
                    } else if let Some(below) = &schema.additional {
                        let place = format!("{field}[{key}]");
                        self.node(child, past, below, &place, below.embedded_resource, depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                let Some(below) = &schema.items else { return };
                let past_items = schema.list.past_items(old);
                for (index, item) in items.iter().enumerate() {
                    let past = past_items.of(item);
                    let place = format!("{field}[{index}]");
                    self.node(item, past, below, &place, below.embedded_resource, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rules(&mut self, value: &Value, old: Option<&Value>, schema: &Schema, field: &str, resource: bool) {
        if schema.rules.is_empty() {
            return;
        }
        let is_as_it_was = old == Some(value);
        let mut scope = functions::all().new_inner_scope();
        let now = value::shown(value, schema, resource);
        let past = old.map(|old| value::shown(old, schema, resource));
        let extents = Extents {
            now: Rc::new(Extent::of(&now)),
            past: past.as_ref().map(|past| Rc::new(Extent::of(past))),
        };
        scope.add_variable_from_value("self", now);
        for rule in schema.rules.iter() {
            let mut scope = scope.new_inner_scope();
            match (&past, rule.is_transition, rule.takes_no_past) {
                (_, false, _) => {}
                (None, true, false) => continue,
                (Some(past), true, false) => scope.add_variable_from_value("oldSelf", past.clone()),
                (past, true, true) => {
                    let optional = past.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
                }
            }
            let known = self.errors.0.len();
            self.rule(rule, value, &extents, &scope, field);
            if is_as_it_was && !rule.is_transition {
                self.left_alone.0.extend(self.errors.0.drain(known..));
            }
        }
    }

    fn rule(&mut self, rule: &Rule, value: &Value, extents: &Extents, scope: &Context<'_>, field: &str) {
        if !self.affords(&rule.program, extents) {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.exhaust(value, field, why);
            return;
        }
        match run(&rule.program, scope) {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => {
                let program = rule.message_program.as_ref();
                if program.is_some_and(|program| !self.affords(program, extents)) {
                    let why = "messageExpression evaluation failed due to running out of cost budget, no further \
                               validation rules will be run";
                    self.exhaust(value, field, why);
                    return;
                }
                let message = program
                    .and_then(|program| match run(program, scope) {
                        Ok(Cel::String(text)) if is_message(&text) => Some(text.trim().to_owned()),
                        _ => None,
                    })
                    .or_else(|| rule.message.clone())
                    .unwrap_or_else(|| format!("failed rule: {}", rule.text.trim()));
                let mut place = field.to_owned();
                for step in &rule.field_path {
                    place = join(&place, step);
                }
                self.complain(rule.reason, &place, value, message);
            }
            Ok(_) => {
                let why = format!("rule did not come to true or false: {}", rule.name());
                self.errors.invalid(shown_field(field), value_of(value), why);
            }
            Err(error) => {
                let why = format!("{} evaluating rule: {}", words(&error), rule.name());
                self.errors.invalid(shown_field(field), value_of(value), why);
            }
        }
    }

    /// Charges the maximum cost of a program to the budget. Returns whether the budget suffices.
    fn affords(&mut self, compiled: &Compiled, extents: &Extents) -> bool {
        let cost = cost::most(compiled.program.expression(), &extents.now, extents.past.as_ref());
        self.steps += cost.steps;
        // In this form, NaN exceeds the budget.
        self.steps <= cost::MAX_STEPS && cost.bytes <= cost::MAX_BYTES
    }

    /// Reports once that the budget is spent. No other rule runs afterwards.
    fn exhaust(&mut self, value: &Value, field: &str, why: &str) {
        self.steps = f64::INFINITY;
        if !std::mem::replace(&mut self.exhausted, true) {
            self.errors.invalid(shown_field(field), value_of(value), why);
        }
    }

    /// Reports a violation. The error shows the value only if it is a scalar.
    fn complain(&mut self, reason: FieldErrorKind, field: &str, value: &Value, message: String) {
        let shown = (!value.is_object() && !value.is_array()).then(|| value.clone());
        self.errors.push(reason, shown_field(field), shown, message);
    }
}

/// Extents of a value and of its old version.
struct Extents {
    now: Rc<Extent>,
    past: Option<Rc<Extent>>,
}

/// Runs a program. The library panics on some arguments, such as a precision of a hundred thousand
/// digits, and recurses as deeply as an expression nests.
fn run(compiled: &Compiled, scope: &Context<'_>) -> Result<Cel, ExecutionError> {
    let execute = || compiled.program.execute(scope);
    let refuse = |why| Err(ExecutionError::function_error("rule", why));
    let ended = if compiled.nesting <= SHALLOW {
        Ok(std::panic::catch_unwind(AssertUnwindSafe(execute)))
    } else {
        stack::deep(execute)
    };
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => refuse("it cannot run on these values"),
        Err(_) => refuse("no thread can be started for it"),
    }
}

/// Returns the value for an error. Objects and lists are too large to show, so errors show a name
/// for them.
fn value_of(value: &Value) -> Value {
    match value {
        Value::Object(_) => "object".into(),
        Value::Array(_) => "array".into(),
        other => other.clone(),
    }
}

fn is_message(text: &str) -> bool {
    const LONGEST: usize = 5 << 10;
    !text.trim().is_empty() && !text.contains('\n') && text.len() <= LONGEST
}

fn shown_field(field: &str) -> String {
    if field.is_empty() { "<nil>".to_owned() } else { field.to_owned() }
}

/// Formats an error of a running rule, in the words of Go's implementation if it has any.
fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        // Other errors show whole values, which may be large.
        other => other.to_string().chars().take(200).collect(),
    }
}
