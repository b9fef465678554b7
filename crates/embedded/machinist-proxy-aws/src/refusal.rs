//! Answers that refuse a request, in the form of AWS.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::xml::escaped;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
    /// The wait that the answer asks for, in seconds.
    pub(crate) retry_after: Option<u64>,
}

impl Refusal {
    /// A refusal with the usual status of its code.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { status: status_of(code), code: code.to_owned(), message: message.into(), retry_after: None }
    }

    /// Renders the answer. EC2 has an XML form of its own.
    pub(crate) fn answer(&self, service: &str) -> Response<Bytes> {
        let (code, message) = (escaped(&self.code), escaped(&self.message));
        let body = if service == EC2 {
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Errors><Error><Code>{code}</Code>\
                 <Message>{message}</Message></Error></Errors><RequestID>{REQUEST}</RequestID></Response>"
            )
        } else {
            format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>\
                 </Error><RequestId>{REQUEST}</RequestId></ErrorResponse>"
            )
        };
        let mut answer = Response::new(Bytes::from(body));
        *answer.status_mut() = self.status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml;charset=UTF-8"));
        if let Some(seconds) = self.retry_after {
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        answer
    }
}

/// The service of instances.
pub(crate) const EC2: &str = "ec2";

/// Id of each request that the proxy answers.
const REQUEST: &str = "00000000-0000-4000-8000-000000000000";

/// The status with which AWS sends a code.
fn status_of(code: &str) -> StatusCode {
    match code {
        "AuthFailure" => StatusCode::UNAUTHORIZED,
        "UnauthorizedOperation"
        | "SignatureDoesNotMatch"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken" => StatusCode::FORBIDDEN,
        "InternalError" => StatusCode::INTERNAL_SERVER_ERROR,
        "RequestLimitExceeded" | "Unavailable" => StatusCode::SERVICE_UNAVAILABLE,
        // EC2 counts a lack of capacity as an error of its own.
        code if code.starts_with("Insufficient") && code.contains("Capacity") => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_its_form_of_errors() {
        let refusal = Refusal::new("InsufficientInstanceCapacity", "a<b");
        let answer = refusal.answer(EC2);
        assert_eq!(answer.status(), 500);
        let body = String::from_utf8_lossy(answer.body()).into_owned();
        assert!(body.contains("<Errors><Error><Code>InsufficientInstanceCapacity</Code><Message>a&lt;b<"));
        let body = String::from_utf8_lossy(refusal.answer("sts").body()).into_owned();
        assert!(body.starts_with("<ErrorResponse><Error><Type>Sender</Type><Code>Insufficient"), "{body}");
    }
}
