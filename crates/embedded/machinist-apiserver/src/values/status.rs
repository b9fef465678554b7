//! The `Status` object with which Kubernetes answers rejected requests.
//!
//! Clients evaluate `code`, `reason` and `details.causes`; people read `message`. All follow
//! kube-apiserver's wording, and the golden answers in `conformance/` verify it. Validation
//! collects field errors in a [`FieldErrors`], which becomes one 422.

use std::fmt;

use serde_json::{Map, Value, json};

/// A rejection: an HTTP code and the `Status` that explains it.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Refusal>);

#[derive(Debug, Clone)]
struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    retry_after_header: Option<u32>,
    continue_token: Option<String>,
    shows_empty_details: bool,
}

/// Result of an operation that may reject a request.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// Creates a rejection with code, reason and message, without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError(Box::new(Refusal {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            retry_after_header: None,
            continue_token: None,
            shows_empty_details: false,
        }))
    }

    /// 400: the request or its body cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401, with a fixed text that reveals nothing.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for one object.
    pub(crate) fn forbidden(target: &Target<'_>, why: &str) -> Self {
        let whole = target.to_string();
        // A rejection without a single object contains no name.
        let what = if target.name.is_empty() { whole.trim_end_matches(" \"\"") } else { &whole };
        Self::new(403, "Forbidden", format!("{what} is forbidden: {why}")).about(target)
    }

    /// 404 for one object.
    pub(crate) fn not_found(target: &Target<'_>) -> Self {
        Self::new(404, "NotFound", format!("{target} not found")).about(target)
    }

    /// 405: the resource exists but does not support this verb.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_empty_details()
    }

    /// 404: this path has no resource.
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_empty_details()
    }

    /// 406: the server cannot produce any of the requested media types.
    pub fn not_acceptable() -> Self {
        Self::new(406, "NotAcceptable", "only the following media types are accepted: application/json")
    }

    /// 409 AlreadyExists.
    pub(crate) fn already_exists(target: &Target<'_>) -> Self {
        Self::new(409, "AlreadyExists", format!("{target} already exists")).about(target)
    }

    /// Puts a text before the message.
    pub(crate) fn with_preface(mut self, preface: &str) -> Self {
        self.0.message.insert_str(0, preface);
        self
    }

    /// 409 Conflict with a cause.
    pub(crate) fn conflict(target: &Target<'_>, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {target}: {why}");
        Self::new(409, "Conflict", message).about(target)
    }

    /// 409: the object changed after the caller read it.
    pub(crate) fn stale(target: &Target<'_>) -> Self {
        Self::conflict(
            target,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410: the requested revision is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is larger than any object may be.
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 415: the body's media type is not one of `accepted`.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// 422 without causes: the patch cannot be applied.
    pub fn unprocessable_patch() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
            .with_empty_details()
    }

    /// 500 without a reason, as kube-apiserver answers unexpected errors.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Adds empty `details`, which some rejections have.
    #[must_use]
    pub(crate) fn with_empty_details(mut self) -> Self {
        self.0.shows_empty_details = true;
        self
    }

    /// 422 with one cause per field.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &FieldErrors) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        // An error from two validations appears as two causes, but only once in the message.
        let mut lines: Vec<String> = Vec::new();
        for line in errors.0.iter().map(ToString::to_string) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let what = match lines.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .0
            .iter()
            .map(|e| json!({"reason": e.kind.reason(), "message": e.body(), "field": e.field}))
            .collect();
        let mut refused = Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {what}"))
            .about(&Target { group, resource: kind, name });
        refused.0.details.insert("causes".into(), Value::Array(causes));
        refused
    }

    /// 500: an internal error.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.0.details.insert("causes".into(), json!([{"message": message}]));
        error
    }

    /// 504: the requested revision does not exist yet.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        Self::new(504, "Timeout", format!("Timeout: Too large resource version: {asked}, current: {current}"))
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .with_retry_after(1)
    }

    /// Names the affected object in `details`.
    #[must_use]
    pub(crate) fn about(mut self, target: &Target<'_>) -> Self {
        for (key, value) in [("name", target.name), ("group", target.group), ("kind", target.resource)] {
            if !value.is_empty() {
                self.0.details.insert(key.into(), json!(value));
            }
        }
        self
    }

    /// Adds one cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = Map::new();
        cause.insert("reason".into(), json!(reason));
        cause.insert("message".into(), json!(message));
        if !field.is_empty() {
            cause.insert("field".into(), json!(field));
        }
        let causes = self.0.details.entry("causes").or_insert_with(|| json!([]));
        if let Some(causes) = causes.as_array_mut() {
            causes.push(Value::Object(cause));
        }
        self
    }

    /// Asks the caller to retry later, in the body and in a header.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.0.details.insert("retryAfterSeconds".into(), json!(seconds));
        self.0.retry_after_header = Some(seconds);
        self
    }

    /// Sets `metadata.continue`: a token with which the client can continue an expired list,
    /// inconsistently.
    #[must_use]
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    /// Returns the HTTP code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Returns the machine-readable reason.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn retry_after_header(&self) -> Option<u32> {
        self.0.retry_after_header
    }

    /// Renders the `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code,
        });
        if !self.0.reason.is_empty() {
            status["reason"] = json!(self.0.reason);
        }
        if let Some(token) = &self.0.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if !self.0.details.is_empty() || self.0.shows_empty_details {
            status["details"] = Value::Object(self.0.details.clone());
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.code, self.0.reason, self.0.message)
    }
}

impl std::error::Error for ApiError {}

/// The object that a rejection is about; printed as `machines.machine.sapcloud.io "a"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// API group, empty for the core group.
    pub(crate) group: &'a str,
    /// Plural resource name (or the kind, in a 422).
    pub(crate) resource: &'a str,
    /// Object name.
    pub(crate) name: &'a str,
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        write!(f, " \"{}\"", self.name)
    }
}

/// Kinds of field errors, with the reason of each for `details.causes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
}

impl FieldErrorKind {
    fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One error in one field.
#[derive(Debug, Clone)]
pub(crate) struct FieldError {
    kind: FieldErrorKind,
    field: String,
    /// The invalid value, as the message shows it.
    value: Option<String>,
    detail: String,
}

impl FieldError {
    /// Renders the text without the field's path, as in `causes[].message`.
    fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        let shows_value = !matches!(
            self.kind,
            FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong
        );
        if let (true, Some(value)) = (shows_value, &self.value) {
            text.push_str(": ");
            text.push_str(value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// The field errors of one object, in the order of their detection.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors(pub(crate) Vec<FieldError>);

impl FieldErrors {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Renders each error as a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// CEL rules are not checked on an object that lacks fields, or has values of a wrong kind or
    /// size. In that case, this adds an error that says so.
    pub(crate) fn say_that_rules_wait(&mut self) -> bool {
        let stops = |error: &FieldError| {
            matches!(
                error.kind,
                FieldErrorKind::Required
                    | FieldErrorKind::TypeInvalid
                    | FieldErrorKind::NotSupported
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
            )
        };
        let wait = self.0.iter().any(stops);
        if wait {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors \
                       to complete validation";
            self.invalid("<nil>", Value::Null, why);
        }
        wait
    }

    pub(crate) fn push(
        &mut self,
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) {
        self.push_shown(kind, field, value.map(|v| v.to_string()), detail);
    }

    /// Like `push`, for values with their fields in the order of a type.
    pub(crate) fn push_shown(
        &mut self,
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<String>,
        detail: impl Into<String>,
    ) {
        self.0.push(FieldError { kind, field: field.into(), value, detail: detail.into() });
    }

    /// Appends the errors of a nested value at `place`.
    pub(crate) fn append_below(&mut self, place: &str, inside: FieldErrors) {
        let below = |error: FieldError| FieldError { field: format!("{place}.{}", error.field), ..error };
        self.0.extend(inside.0.into_iter().map(below));
    }

    pub(crate) fn required(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        self.push(FieldErrorKind::Required, field, None, detail);
    }

    pub(crate) fn invalid(&mut self, field: impl Into<String>, value: Value, detail: impl Into<String>) {
        self.push(FieldErrorKind::Invalid, field, Some(value), detail);
    }

    pub(crate) fn forbidden(&mut self, field: impl Into<String>, detail: impl Into<String>) {
        self.push(FieldErrorKind::Forbidden, field, None, detail);
    }

    pub(crate) fn duplicate(&mut self, field: impl Into<String>, value: Value) {
        self.push(FieldErrorKind::Duplicate, field, Some(value), "");
    }

    /// Checks that a given field has one of the known values.
    pub(crate) fn check_one_of(&mut self, field: &str, value: Option<&Value>, known: &[&str]) {
        if let Some(value) = value.filter(|value| !value.as_str().is_some_and(|text| known.contains(&text))) {
            let known: Vec<String> = known.iter().map(|text| (*text).to_owned()).collect();
            self.not_supported(field, value.clone(), &known);
        }
    }

    pub(crate) fn not_supported(&mut self, field: impl Into<String>, value: Value, supported: &[String]) {
        let list: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        self.push(FieldErrorKind::NotSupported, field, Some(value), detail);
    }
}
