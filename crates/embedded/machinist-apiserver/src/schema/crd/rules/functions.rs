//! Functions that every rule may call: library functions, and standard CEL functions that the
//! libraries lack.

use std::sync::{Arc, OnceLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value};

/// CEL's names of the types with which a rule can compare.
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

/// A type, the result of `type(x)`.
#[derive(Debug, PartialEq, Eq)]
struct TypeName(&'static str);

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

/// Returns a context with all functions and type names, created once.
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
