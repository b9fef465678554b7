//! Errors of the API: a code, a message, and details.

use http::StatusCode;
use serde_json::{Value, json};

/// An error reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) details: Value,
}

impl ApiError {
    /// An error with the HTTP status that the API uses for the code.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { status: status_of(code), code: code.to_owned(), message: message.into(), details: json!({}) }
    }

    pub(crate) fn not_found(sort: &str) -> Self {
        Self::new("not_found", format!("{sort} not found"))
    }

    /// `invalid_input` for one field.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::invalid_fields(&[(field.to_owned(), message.into())])
    }

    pub(crate) fn invalid_fields(problems: &[(String, String)]) -> Self {
        let names: Vec<&str> = problems.iter().map(|(field, _)| field.as_str()).collect();
        let fields: Vec<Value> =
            problems.iter().map(|(field, message)| json!({"name": field, "messages": [message]})).collect();
        Self {
            details: json!({"fields": fields}),
            ..Self::new("invalid_input", format!("invalid input in field '{}'", names.join("', '")))
        }
    }

    pub(crate) fn not_unique(sort: &str, field: &str) -> Self {
        Self {
            details: json!({"fields": [{"name": field}]}),
            ..Self::new("uniqueness_error", format!("{sort} {field} is already used"))
        }
    }

    pub(crate) fn limit(name: &str, message: impl Into<String>) -> Self {
        Self { details: json!({"limits": [{"name": name}]}), ..Self::new("resource_limit_exceeded", message) }
    }

    pub(crate) fn body(&self) -> Value {
        json!({"error": {"code": self.code, "message": self.message, "details": self.details}})
    }
}

/// The HTTP status of an error code. A code without its own status is an unprocessable request.
pub(crate) fn status_of(code: &str) -> StatusCode {
    match code {
        "json_error" => StatusCode::BAD_REQUEST,
        "unauthorized" => StatusCode::UNAUTHORIZED,
        "forbidden" | "token_readonly" | "resource_limit_exceeded" => StatusCode::FORBIDDEN,
        "not_found" => StatusCode::NOT_FOUND,
        "method_not_allowed" => StatusCode::METHOD_NOT_ALLOWED,
        "uniqueness_error" | "conflict" => StatusCode::CONFLICT,
        "deprecated_api_endpoint" => StatusCode::GONE,
        "resource_unavailable" => StatusCode::PRECONDITION_FAILED,
        "locked" | "resource_locked" | "protected" => StatusCode::LOCKED,
        "rate_limit_exceeded" => StatusCode::TOO_MANY_REQUESTS,
        "server_error" => StatusCode::INTERNAL_SERVER_ERROR,
        "bad_gateway" => StatusCode::BAD_GATEWAY,
        "maintenance" | "service_error" | "unavailable" => StatusCode::SERVICE_UNAVAILABLE,
        "timeout" => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}
