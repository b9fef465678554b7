//! Converts refusals of the cloud into errors. Pure functions.

use std::time::Duration;

use http::StatusCode;
use machinist_driver_http::{Nature, excerpt};
use machinist_instance::{Error, ErrorKind};

use crate::model::ErrorDocument;

/// A failed call: the error for the caller of the driver, and the code for the driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// The code in the answer; absent if the answer was not an XML error, or if no answer arrived.
    pub(crate) code: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { error: Error::new(kind, message), code: None }
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Whether the cloud proved that the instance does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        self.is(NO_INSTANCE)
    }

    /// Whether temporary keys have expired, so that new ones may be accepted.
    pub(crate) fn is_expiry(&self) -> bool {
        ["ExpiredToken", "ExpiredTokenException", "RequestExpired"].iter().any(|code| self.is(code))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, code: None }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Quota or stock. EC2 returns some of these codes with status 500. The last eight are not in
/// the list of Gardener's provider.
const EXHAUSTED: [&str; 18] = [
    "InsufficientCapacity",
    "InsufficientAddressCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientVolumeCapacity",
    "InstanceLimitExceeded",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
    "RouteLimitExceeded",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "InsufficientReservedInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientCapacityOnHost",
    "NetworkInterfaceLimitExceeded",
    "ReservationCapacityExceeded",
];

/// Credential or permission.
const DENIED: [&str; 21] = [
    "AuthFailure",
    "UnauthorizedOperation",
    "OperationNotPermitted",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "OptInRequired",
    "PendingVerification",
    "Blocked",
    "AccessDenied",
    "AccessDeniedException",
    "InvalidIdentityToken",
    "IDPRejectedClaim",
    "RegionDisabledException",
    "NotAuthorized",
];

const THROTTLED: [&str; 7] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "EC2ThrottledException",
    "BandwidthLimitExceeded",
];

/// The code that proves the absence of an instance.
const NO_INSTANCE: &str = "InvalidInstanceID.NotFound";

/// Objects that the driver names and no class does. Their absence is not a mistake of a user.
const ABSENT: [&str; 2] = [NO_INSTANCE, "InvalidNetworkInterfaceID.NotFound"];

/// Codes with a text that no message may repeat: it contains the signed request, of which a session
/// token is a part.
const QUOTING: [&str; 2] = ["SignatureDoesNotMatch", "IncompleteSignature"];

/// A code of one of these beginnings names a parameter that a user must correct.
const INVALID: [&str; 5] = ["Invalid", "Missing", "Unknown", "UnsupportedOperation", "VPCIdNotSpecified"];

fn kind(code: &str, nature: Nature, status: StatusCode, retry_after: Option<Duration>) -> ErrorKind {
    let is_in = |codes: &[&str]| codes.contains(&code);
    if is_in(&EXHAUSTED) {
        ErrorKind::Exhausted
    } else if is_in(&DENIED) {
        ErrorKind::Denied
    } else if is_in(&THROTTLED) {
        ErrorKind::Throttled { retry_after }
    } else if status.is_server_error() {
        // The cloud may have begun to act before it failed.
        nature.unknown_effect()
    } else if is_in(&ABSENT) {
        ErrorKind::Unavailable
    } else if INVALID.iter().any(|beginning| code.starts_with(beginning)) {
        ErrorKind::InvalidSpec
    } else {
        ErrorKind::Unavailable
    }
}

/// The answer has a success status, but not the expected content.
pub(crate) fn unreadable(nature: Nature, action: &str) -> Failure {
    let text = format!("cannot parse the answer of the cloud to {action}: expected XML of the Query API");
    Failure::new(nature.unknown_effect(), text)
}

/// An answer with an error status.
pub(crate) struct Refusal<'a> {
    pub(crate) action: &'a str,
    pub(crate) status: StatusCode,
    pub(crate) body: &'a [u8],
    /// The wait that the answer asks for. EC2 itself names none.
    pub(crate) retry_after: Option<Duration>,
}

/// Converts a refusal. Its message is for users, so it contains no id of the request: the log has
/// it.
pub(crate) fn refused(nature: Nature, refusal: &Refusal<'_>) -> Failure {
    let Refusal { action, status, body, retry_after } = refusal;
    let Some(error) = ErrorDocument::parse(body) else {
        let number = status.as_u16();
        let text =
            format!("{action}: status {number} without an XML error; check the endpoint and any proxy");
        return Failure::new(nature.with_status(*status, *retry_after), text);
    };
    let kind = kind(&error.code, nature, *status, *retry_after);
    let text = if QUOTING.contains(&error.code.as_str()) {
        "check the secret key and the clock"
    } else {
        excerpt(&error.message)
    };
    let message = format!("{action}: {}: {text}", error.code);
    Failure { code: Some(error.code), ..Failure::new(kind, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(7);

    fn refusal(nature: Nature, status: u16, body: &str) -> Failure {
        let status = StatusCode::from_u16(status).expect("a status");
        let refusal =
            Refusal { action: "RunInstances", status, body: body.as_bytes(), retry_after: Some(WAIT) };
        refused(nature, &refusal)
    }

    fn xml(code: &str, message: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Response><Errors><Error><Code>{code}</Code><Message>{message}</Message>\
             </Error></Errors><RequestID>r</RequestID></Response>"
        )
    }

    #[test]
    fn each_code_has_one_kind_for_callers() {
        let throttled = ErrorKind::Throttled { retry_after: Some(WAIT) };
        let cases = [
            (500, "InsufficientInstanceCapacity", ErrorKind::Exhausted),
            (400, "Unsupported", ErrorKind::Exhausted),
            (400, "VcpuLimitExceeded", ErrorKind::Exhausted),
            (400, "InsufficientFreeAddressesInSubnet", ErrorKind::Exhausted),
            (401, "AuthFailure", ErrorKind::Denied),
            (403, "UnauthorizedOperation", ErrorKind::Denied),
            (403, "InvalidClientTokenId", ErrorKind::Denied),
            (503, "RequestLimitExceeded", throttled),
            (400, "Throttling", throttled),
            (500, "InternalError", ErrorKind::Ambiguous),
            (503, "Unavailable", ErrorKind::Ambiguous),
            (400, "InvalidSubnetID.NotFound", ErrorKind::InvalidSpec),
            (400, "InvalidParameterValue", ErrorKind::InvalidSpec),
            (400, "MissingParameter", ErrorKind::InvalidSpec),
            (400, "UnsupportedOperation", ErrorKind::InvalidSpec),
            (400, "InvalidInstanceID.NotFound", ErrorKind::Unavailable),
            (400, "IncorrectInstanceState", ErrorKind::Unavailable),
            (400, "IdempotentInstanceTerminated", ErrorKind::Unavailable),
        ];
        for (status, code, kind) in cases {
            let failure = refusal(Nature::Changes, status, &xml(code, "m"));
            assert_eq!((failure.error.kind, failure.code.as_deref()), (kind, Some(code)));
            assert_eq!(failure.error.message, format!("RunInstances: {code}: m"));
        }
        assert_eq!(refusal(Nature::Reads, 500, &xml("InternalError", "")).error.kind, ErrorKind::Unavailable);
    }

    #[test]
    fn only_a_documented_code_proves_absence() {
        assert!(refusal(Nature::Reads, 400, &xml("InvalidInstanceID.NotFound", "m")).is_absence());
        for body in ["", "<html>Not Found</html>", &xml("InvalidInstanceID.Malformed", "m")] {
            assert!(!refusal(Nature::Reads, 404, body).is_absence(), "{body}");
        }
    }

    #[test]
    fn an_answer_without_an_xml_error_is_classified_by_status() {
        let throttled = ErrorKind::Throttled { retry_after: Some(WAIT) };
        let cases = [
            (403, ErrorKind::Denied),
            (404, ErrorKind::Unavailable),
            (429, throttled),
            (502, ErrorKind::Ambiguous),
        ];
        for (status, kind) in cases {
            let failure = refusal(Nature::Changes, status, "<html>");
            assert_eq!((failure.error.kind, failure.code), (kind, None), "{status}");
        }
    }

    #[test]
    fn no_message_repeats_a_signed_request() {
        let body = xml("SignatureDoesNotMatch", "The Canonical String is 'x-amz-security-token:canary'");
        let failure = refusal(Nature::Reads, 403, &body);
        assert_eq!(failure.error.kind, ErrorKind::Denied);
        assert!(!failure.error.message.contains("canary"), "{}", failure.error);
        let long = refusal(Nature::Reads, 403, &xml("UnauthorizedOperation", &"ä".repeat(999)));
        assert!(long.error.message.len() < 360, "{}", long.error);
    }
}
