//! Judging an object by the rules of its schema, with its past where it has one.

use std::sync::Arc;

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use crate::crd::rules::{Rule, cost, functions, value};
use crate::crd::schema::{MAX_DEPTH, Schema};
use crate::status::{FieldErrorKind, FieldErrors};

/// Appends a complaint for every rule that a whole object breaks.
///
/// A rule that looks at `oldSelf` runs where the value had a past. Of other rules that are broken by a value which is as it
/// was, the complaints are returned: they are no reason to refuse a write, but worth telling.
pub(crate) fn judge(
    object: &Value,
    old: Option<&Value>,
    schema: &Schema,
    errors: &mut FieldErrors,
) -> FieldErrors {
    let mut left_alone = FieldErrors::default();
    let mut judge = Judge { errors, left_alone: &mut left_alone, steps: 0, exhausted: false };
    judge.node(object, old, schema, "", true, 0);
    left_alone
}

struct Judge<'a> {
    errors: &'a mut FieldErrors,
    left_alone: &'a mut FieldErrors,
    /// What all rules of this object may have come to so far.
    steps: u64,
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
                for (index, item) in items.iter().enumerate() {
                    let past = old.and_then(|old| schema.list.same_item(item, old));
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
        scope.add_variable_from_value("self", value::shown(value, schema, resource));
        let past = old.map(|old| value::shown(old, schema, resource));
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
            self.rule(rule, value, old, &scope, field);
            if is_as_it_was && !rule.is_transition {
                self.left_alone.0.extend(self.errors.0.drain(known..));
            }
        }
    }

    fn rule(&mut self, rule: &Rule, value: &Value, old: Option<&Value>, scope: &Context<'_>, field: &str) {
        let longest =
            old.into_iter().chain([value]).map(|v| cost::longest(v, rule.splits)).max().unwrap_or(0);
        self.steps = self.steps.saturating_add(cost::most_steps(rule.size, rule.loops, longest));
        if cost::MOST_STEPS < self.steps {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            if !std::mem::replace(&mut self.exhausted, true) {
                self.errors.invalid(shown_field(field), value_of(value), why);
            }
            return;
        }
        match rule.program.execute(scope) {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => {
                let message = rule
                    .message_program
                    .as_ref()
                    .and_then(|program| match program.execute(scope) {
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

    /// A broken rule shows the value where it is a single one.
    fn complain(&mut self, reason: FieldErrorKind, field: &str, value: &Value, message: String) {
        let shown = (!value.is_object() && !value.is_array()).then(|| value.clone());
        self.errors.push(reason, shown_field(field), shown, message);
    }
}

/// What an object or a list is called where it is too large to be shown.
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

fn join(field: &str, key: &str) -> String {
    if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") }
}

fn shown_field(field: &str) -> String {
    if field.is_empty() { "<nil>".to_owned() } else { field.to_owned() }
}

/// An error of a running rule, in the words of Go's implementation where it has some.
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
