//! Validates a value against a schema, with kube-apiserver's messages and field paths.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::crd::format::Format;
use crate::schema::crd::schema::{ListType, MAX_DEPTH, Schema, Type};
use crate::values::status::{FieldErrorKind, FieldErrors};

/// Appends an error for every violation of `schema` in `value`. A value that is the same in `old`
/// at the same place (in a list, under the same keys) is not checked again.
pub(crate) fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    field: &str,
    errors: &mut FieldErrors,
) {
    Walk { errors, list_types: true, seen: 0 }.node(value, old, schema, field, 0);
}

struct Walk<'a> {
    errors: &'a mut FieldErrors,
    /// Off inside allOf, anyOf, oneOf and not, which only restrict values.
    list_types: bool,
    /// Number of visited values.
    seen: usize,
}

impl Walk<'_> {
    fn node(&mut self, value: &Value, old: Option<&Value>, schema: &Schema, field: &str, depth: usize) {
        if MAX_DEPTH < depth || (value.is_null() && schema.nullable) || old == Some(value) {
            return;
        }
        self.seen += 1;
        if !self.type_fits(value, schema, field) {
            if value.is_null() {
                self.allowed(value, schema, field);
            }
            return;
        }
        self.allowed(value, schema, field);
        match value {
            Value::Object(map) => self.object(map, old, schema, field, depth),
            Value::Array(items) => self.array(items, old, schema, field, depth),
            Value::String(text) => self.string(text, schema, field),
            Value::Number(number) => self.number(value, number.as_f64().unwrap_or_default(), schema, field),
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations(value, schema, field, depth);
    }

    fn type_fits(&mut self, value: &Value, schema: &Schema, field: &str) -> bool {
        let expected = if schema.int_or_string {
            if value.is_string() || Type::Integer.admits(value) {
                return true;
            }
            "integer,string"
        } else {
            match schema.of {
                None => return true,
                Some(of) if of.admits(value) => return true,
                Some(of) => of.as_str(),
            }
        };
        let found = Value::String(type_name(value).to_owned());
        let shown = found.to_string();
        let place = if field.is_empty() { "<nil>" } else { field };
        self.errors.push(
            FieldErrorKind::TypeInvalid,
            place,
            Some(found),
            format!("{place} in body must be of type {expected}: {shown}"),
        );
        false
    }

    fn allowed(&mut self, value: &Value, schema: &Schema, field: &str) {
        let Some(allowed) = &schema.bounds.allowed else { return };
        if !allowed.contains(value) {
            let supported: Vec<String> =
                allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
            self.errors.not_supported(field, value.clone(), &supported);
        }
    }

    fn object(
        &mut self,
        map: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        schema: &Schema,
        field: &str,
        depth: usize,
    ) {
        for required in &schema.required {
            if !map.contains_key(required) {
                self.errors.required(join(field, required), "");
            }
        }
        let count = map.len() as u64;
        if let Some(least) = schema.bounds.min_properties.filter(|least| count < *least) {
            let text = format!("{field} in body should have at least {least} properties");
            self.errors.invalid(field, count.into(), text);
        }
        if let Some(most) = schema.bounds.max_properties.filter(|most| *most < count) {
            let text = format!("must have at most {most} items");
            self.errors.push(FieldErrorKind::TooMany, field, Some(count.into()), text);
        }
        for (key, child) in map {
            if let Some(below) = schema.property(key) {
                let past = old.and_then(|old| old.get(key));
                self.node(child, past, below, &join(field, key), depth + 1);
            }
        }
    }

    fn array(&mut self, items: &[Value], old: Option<&Value>, schema: &Schema, field: &str, depth: usize) {
        let count = items.len() as u64;
        if let Some(least) = schema.bounds.min_items.filter(|least| count < *least) {
            let text = format!("{field} in body should have at least {least} items");
            self.errors.invalid(field, count.into(), text);
        }
        if let Some(most) = schema.bounds.max_items.filter(|most| *most < count) {
            let text = format!("must have at most {most} items");
            self.errors.push(FieldErrorKind::TooMany, field, Some(count.into()), text);
        }
        let mut seen = BTreeSet::new();
        if schema.bounds.unique_items && !items.iter().all(|item| seen.insert(item.to_string())) {
            self.errors.invalid(field, Value::Null, format!("{field} in body shouldn't contain duplicates"));
        }
        if let Some(below) = &schema.items {
            let past_items = schema.list.past_items(old);
            for (index, item) in items.iter().enumerate() {
                let past = past_items.of(item);
                self.node(item, past, below, &format!("{field}[{index}]"), depth + 1);
            }
        }
        if self.list_types {
            self.duplicates(items, schema, field);
        }
    }

    fn duplicates(&mut self, items: &[Value], schema: &Schema, field: &str) {
        match &schema.list {
            ListType::Atomic => {}
            ListType::Set => {
                // Equal values have equal texts.
                let mut seen = BTreeSet::new();
                for (index, item) in items.iter().enumerate() {
                    if !seen.insert(item.to_string()) {
                        self.errors.duplicate(format!("{field}[{index}]"), item.clone());
                    }
                }
            }
            ListType::Map(keys) => {
                let identity = |item: &Value| -> Value {
                    let pairs = keys.iter().filter_map(|k| Some((k.clone(), item.get(k)?.clone())));
                    Value::Object(pairs.collect())
                };
                let mut seen = BTreeSet::new();
                for (index, item) in items.iter().enumerate() {
                    let id = identity(item);
                    if !seen.insert(id.to_string()) {
                        self.errors.duplicate(format!("{field}[{index}]"), id);
                    }
                }
            }
        }
    }

    fn string(&mut self, text: &str, schema: &Schema, field: &str) {
        let bounds = &schema.bounds;
        let length = text.chars().count() as u64;
        if let Some(most) = bounds.max_length.filter(|most| *most < length) {
            let words = format!("may not be more than {most} bytes");
            self.errors.push(FieldErrorKind::TooLong, field, None, words);
        } else if let Some(least) = bounds.min_length.filter(|least| length < *least) {
            let words = format!("{field} in body should be at least {least} chars long");
            self.errors.invalid(field, text.into(), words);
        } else if let Some(pattern) = bounds.pattern.as_ref().filter(|p| !p.regex.is_match(text)) {
            let words = format!("{field} in body should match '{}'", pattern.text);
            self.errors.invalid(field, text.into(), words);
        }
        if let Some(format) = schema.format.filter(|f| !f.admits(text)) {
            let words = format!("{field} in body must be of type {}: {}", format.as_str(), Value::from(text));
            self.errors.push(FieldErrorKind::TypeInvalid, field, Some(text.into()), words);
        }
        if let Some(format) = schema.text_format.filter(|f| !f.admits(text)) {
            let words = format!("{field} in body must be of type {}: {}", format.as_str(), Value::from(text));
            self.errors.push(FieldErrorKind::TypeInvalid, field, Some(text.into()), words);
        }
    }

    fn number(&mut self, value: &Value, number: f64, schema: &Schema, field: &str) {
        let bounds = &schema.bounds;
        if let Some(least) = bounds.minimum
            && (number < least || (bounds.exclusive_minimum && number <= least))
        {
            let or_equal = if bounds.exclusive_minimum { "" } else { " or equal to" };
            let words = format!("{field} in body should be greater than{or_equal} {least}");
            self.errors.invalid(field, value.clone(), words);
        }
        if let Some(most) = bounds.maximum
            && (most < number || (bounds.exclusive_maximum && most <= number))
        {
            let or_equal = if bounds.exclusive_maximum { "" } else { " or equal to" };
            let words = format!("{field} in body should be less than{or_equal} {most}");
            self.errors.invalid(field, value.clone(), words);
        }
        if let Some(step) = bounds.multiple_of.filter(|step| 0.0 < *step && number % step != 0.0) {
            let words = format!("{field} in body should be a multiple of {step}");
            self.errors.invalid(field, value.clone(), words);
        }
        if schema.format == Some(Format::Int32)
            && (number < f64::from(i32::MIN) || f64::from(i32::MAX) < number)
        {
            let words = format!("Checked value must be of type integer with format int32 in {field}");
            self.errors.invalid("<nil>", "".into(), words);
        }
    }

    /// Checks allOf, anyOf, oneOf and not. If no alternative fits, the errors of the closest one
    /// are reported as well.
    fn combinations(&mut self, value: &Value, schema: &Schema, field: &str, depth: usize) {
        let judge = |parts: &[Arc<Schema>]| -> Vec<Judged> {
            parts.iter().map(|part| Judged::of(value, part, field, depth + 1)).collect()
        };
        let fitting = |judged: &[Judged]| judged.iter().filter(|branch| branch.errors.is_empty()).count();
        let all = judge(&schema.all_of);
        let fit = fitting(&all);
        if fit < all.len() {
            let none = if fit == 0 { ". None validated" } else { "" };
            self.complain(format!("{field:?} must validate all the schemas (allOf){none}"));
            all.into_iter().for_each(|judged| self.add(judged.errors));
        }
        let any = judge(&schema.any_of);
        if !any.is_empty() && fitting(&any) == 0 {
            self.complain(format!("{field:?} must validate at least one schema (anyOf)"));
            self.add(closest(any));
        }
        let one = judge(&schema.one_of);
        match fitting(&one) {
            _ if one.is_empty() => {}
            0 => {
                self.complain(format!(
                    "{field:?} must validate one and only one schema (oneOf). Found none valid"
                ));
                self.add(closest(one));
            }
            1 => {}
            many => self.complain(format!(
                "{field:?} must validate one and only one schema (oneOf). Found {many} valid alternatives"
            )),
        }
        let not = judge(schema.not.as_slice());
        if 0 < fitting(&not) {
            self.complain(format!("{field:?} must not validate the schema (not)"));
        }
    }

    /// Appends an error that names its place only in the text.
    fn complain(&mut self, words: String) {
        self.errors.invalid("<nil>", "".into(), words);
    }

    /// Appends the errors that are not reported yet.
    fn add(&mut self, errors: FieldErrors) {
        for error in errors.0 {
            let text = error.to_string();
            if !self.errors.0.iter().any(|said| said.to_string() == text) {
                self.errors.0.push(error);
            }
        }
    }
}

/// Result of validating a value against one of several schemas.
struct Judged {
    errors: FieldErrors,
    /// Number of visited values.
    seen: usize,
}

impl Judged {
    fn of(value: &Value, part: &Schema, field: &str, depth: usize) -> Self {
        let mut errors = FieldErrors::default();
        let mut walk = Walk { errors: &mut errors, list_types: false, seen: 0 };
        walk.node(value, None, part, field, depth);
        let seen = walk.seen;
        Judged { errors, seen }
    }
}

/// Returns the errors of the schema that visited the most values; in a tie, of the first.
fn closest(judged: Vec<Judged>) -> FieldErrors {
    let closest = judged.into_iter().reduce(|best, next| if best.seen < next.seen { next } else { best });
    closest.map(|branch| branch.errors).unwrap_or_default()
}

/// Joins a field's path and a key with a dot, as kube-apiserver also does for the keys of maps.
pub(crate) fn join(field: &str, key: &str) -> String {
    if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") }
}

pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, value: Value) -> Vec<String> {
        let schema = Schema::parse(&schema, "schema", &mut FieldErrors::default());
        let mut errors = FieldErrors::default();
        validate(&value, None, &schema, "spec", &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_list_is_validated_in_one_pass() {
        // At this length, comparing each item with every other item would take minutes.
        const LENGTH: usize = 200_000;
        let keyed = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "items": {
                "type": "object", "properties": { "id": { "type": "integer" }, "size": { "type": "integer", "maximum": 1 } }
            }
        });
        let set = json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } });
        let unique = json!({ "type": "array", "uniqueItems": true, "items": { "type": "string" } });
        let texts =
            |length: usize| -> Vec<Value> { (0..length).map(|index| json!(index.to_string())).collect() };
        let repeated: Vec<Value> = texts(LENGTH).into_iter().chain(texts(1)).collect();
        assert!(check(set.clone(), texts(LENGTH).into()).is_empty());
        assert_eq!(check(set, repeated.clone().into()), ["spec[200000]: Duplicate value: \"0\""]);
        assert!(check(unique.clone(), texts(LENGTH).into()).is_empty());
        assert_eq!(check(unique, repeated.into()).len(), 1);

        // Each item is compared with its old version, regardless of its position.
        let items = |size: usize| -> Vec<Value> {
            (0..LENGTH).map(|id| json!({ "id": id, "size": if id == 7 { size } else { 2 } })).collect()
        };
        let (old, mut new) = (items(3), items(4));
        new.reverse();
        let schema = Schema::parse(&keyed, "schema", &mut FieldErrors::default());
        let mut errors = FieldErrors::default();
        validate(&new.into(), Some(&old.into()), &schema, "spec", &mut errors);
        let complaints: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(complaints.len(), 1, "{:?}", complaints.first());
        assert!(complaints[0].starts_with("spec[199992].size: "), "{complaints:?}");
    }

    #[test]
    fn errors_have_the_words_of_kube_apiserver() {
        assert_eq!(
            check(json!({"type": "integer"}), json!("x")),
            ["spec: Invalid value: \"string\": spec in body must be of type integer: \"string\""]
        );
        assert_eq!(
            check(json!({"type": "integer", "minimum": 0}), json!(-1)),
            ["spec: Invalid value: -1: spec in body should be greater than or equal to 0"]
        );
        assert_eq!(
            check(
                json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
                json!({})
            ),
            ["spec.a: Required value"]
        );
        assert_eq!(
            check(json!({"type": "string", "enum": ["a", "b"]}), json!("c")),
            ["spec: Unsupported value: \"c\": supported values: \"a\", \"b\""]
        );
        assert_eq!(
            check(
                json!({"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
                json!([{"name": "a"}, {"name": "a", "x": 1}])
            ),
            ["spec[1]: Duplicate value: {\"name\":\"a\"}"]
        );
    }

    #[test]
    fn combinations_restrict_values() {
        let either =
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
        assert!(check(either.clone(), json!(1)).is_empty());
        assert!(check(either.clone(), json!("25%")).is_empty());
        assert_eq!(check(either, json!(true)).len(), 1);
        let no_b = json!({"type": "string", "not": {"enum": ["b"]}});
        assert_eq!(check(no_b, json!("b")).len(), 1);
    }
}
