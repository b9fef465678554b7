//! The functions that every rule may call: those of the libraries, and what they lack of CEL's standard ones.

use std::sync::{Arc, OnceLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value};

/// What CEL calls its types, as far as a rule can compare with them.
pub(super) const TYPES: [&str; 12] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
];

/// A type, as `type(x)` gives it.
#[derive(Debug, PartialEq, Eq)]
struct TypeName(&'static str);

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

/// Every function and every name of a type, made once.
pub(super) fn all() -> &'static Context<'static> {
    static ALL: OnceLock<Context<'static>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Context::default().with_all();
        all.add_function("type", |value: Value| -> ResolveResult { Ok(named(type_of(&value))) });
        all.add_function("dyn", |value: Value| -> ResolveResult { Ok(value) });
        all.add_function("bool", to_bool);
        for name in TYPES {
            all.add_variable_from_value(name, named(name));
        }
        all
    })
}

fn named(name: &'static str) -> Value {
    Value::Opaque(Arc::new(TypeName(name)))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "bool",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Null => "null_type",
        Value::Opaque(_) | Value::Function(..) => "type",
    }
}

fn to_bool(value: Value) -> ResolveResult {
    match &value {
        Value::Bool(flag) => Ok(Value::Bool(*flag)),
        Value::String(text) => match text.as_str() {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Value::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Value::Bool(false)),
            _ => Err(ExecutionError::function_error("bool", "type conversion error from 'string' to 'bool'")),
        },
        _ => Err(ExecutionError::NoSuchOverload),
    }
}
