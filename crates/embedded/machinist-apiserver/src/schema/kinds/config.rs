//! Secrets, ConfigMaps and ServiceAccounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::object::{child_map, drop_field};
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors};

/// Maximum size of all values in one Secret or ConfigMap, in bytes.
const MAX_SIZE: usize = 1024 * 1024;

/// Maximum length of a key in a Secret or ConfigMap, in bytes. Each key may become a file name.
const MAX_KEY_LEN: usize = 253;

pub(crate) struct Secrets;

impl Rules for Secrets {
    fn fill_defaults(&self, object: &mut Value) {
        fold_string_data(object);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        let mut size = 0;
        for (key, value) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
            validate_key(key, "data", errors);
            size += value.as_str().map_or(0, decoded_length);
        }
        if MAX_SIZE < size {
            errors.push(
                FieldErrorKind::TooLong,
                "data",
                None,
                format!("may not be more than {MAX_SIZE} bytes"),
            );
        }
        validate_type(object, errors);
        let Some(old) = old else { return };
        if old.get("type") != object.get("type") {
            errors.invalid("type", object["type"].clone(), "field is immutable");
        }
        validate_frozen(object, old, &["data"], errors);
    }
}

/// Checks that a Secret of a well-known type has the required keys.
fn validate_type(object: &Value, errors: &mut FieldErrors) {
    let has = |key: &str| object.pointer("/data").is_some_and(|data| data.get(key).is_some());
    let mut require = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            errors.required(format!("data[{key}]"), "");
        }
    };
    match object.get("type").and_then(Value::as_str).unwrap_or_default() {
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require(&["username", "password"])
        }
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => require(&["ssh-privatekey"]),
        "kubernetes.io/dockercfg" => require(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => require(&[".dockerconfigjson"]),
        _ => {}
    }
}

/// Moves the plain text of `stringData` into `data`. `stringData` itself is never stored.
fn fold_string_data(object: &mut Value) {
    let Some(plain) = object.get("stringData").and_then(Value::as_object).cloned() else {
        drop_field(object, "stringData");
        return;
    };
    drop_field(object, "stringData");
    if plain.is_empty() {
        return;
    }
    let data = child_map(object, "data");
    for (key, value) in plain {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, json!(encoded));
    }
}

fn decoded_length(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

pub(crate) struct ConfigMaps;

impl Rules for ConfigMaps {
    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        let mut size = 0;
        let fields = |name: &str| object.get(name).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in fields("data") {
            validate_key(key, "data", errors);
            if object.pointer("/binaryData").is_some_and(|binary| binary.get(key).is_some()) {
                errors.invalid(format!("data[{key}]"), json!(key), "duplicate of key present in binaryData");
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in fields("binaryData") {
            validate_key(key, "binaryData", errors);
            size += value.as_str().map_or(0, decoded_length);
        }
        if MAX_SIZE < size {
            errors.push(
                FieldErrorKind::TooLong,
                "[]",
                None,
                format!("may not be more than {MAX_SIZE} bytes"),
            );
        }
        if let Some(old) = old {
            validate_frozen(object, old, &["data", "binaryData"], errors);
        }
    }
}

fn validate_frozen(object: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.forbidden("immutable", "field is immutable when `immutable` is set");
    }
    for field in fields {
        if old.get(*field) != object.get(*field) {
            errors.forbidden(*field, "field is immutable when `immutable` is set");
        }
    }
}

fn validate_key(key: &str, field: &str, errors: &mut FieldErrors) {
    const PROBLEM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let plain =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let place = format!("{field}[{key}]");
    let mut problem = |why: &str| errors.invalid(place.clone(), json!(key), why);
    if MAX_KEY_LEN < key.len() {
        problem(&format!("must be no more than {MAX_KEY_LEN} characters"));
    }
    if !plain {
        problem(PROBLEM);
    }
    match key {
        "." => problem("must not be '.'"),
        ".." => problem("must not be '..'"),
        key if key.starts_with("..") => problem("must not start with '..'"),
        _ => {}
    }
}

/// ServiceAccounts. Of each referenced Secret, only the name is stored.
pub(crate) struct ServiceAccounts;

impl Rules for ServiceAccounts {
    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        keep_names_of_secrets(object);
        Ok(())
    }

    fn on_update(&self, new: &mut Value, _old: &Value, _part: Part, _context: &Context<'_>) -> ApiResult<()> {
        keep_names_of_secrets(new);
        Ok(())
    }
}

fn keep_names_of_secrets(object: &mut Value) {
    for secret in object.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(reference) = secret.as_object_mut() {
            reference.retain(|key, _| key == "name");
        }
    }
}
