//! The eighteen status codes of the machine API and the text form of an error that carries one.
//!
//! The cluster-autoscaler backs off when `lastOperation.errorCode` is `ResourceExhausted`, and
//! other readers search for the text form in descriptions. Both spellings are therefore part of the
//! API. Inside Machinist an error is a type. The text form is written last, and decoded only if
//! another program wrote it.

use std::fmt;

macro_rules! codes {
    ($( $(#[$meta:meta])* $name:ident = $number:literal, )+) => {
        /// A status code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Code {
            $( $(#[$meta])* $name = $number, )+
        }

        impl Code {
            /// All codes in order of their numbers.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// Returns the spelling on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$name => stringify!($name), )+
                }
            }

            /// Parses a spelling; `None` if no code has it.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $( stringify!($name) => Some(Self::$name), )+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// No error.
    OK = 0,
    /// The caller canceled the operation.
    Canceled = 1,
    /// The error has no more specific code.
    Unknown = 2,
    /// The request is invalid and a retry cannot succeed.
    InvalidArgument = 3,
    /// The operation timed out; it may have succeeded.
    DeadlineExceeded = 4,
    /// The object does not exist.
    NotFound = 5,
    /// The object exists already.
    AlreadyExists = 6,
    /// The credentials lack the permission.
    PermissionDenied = 7,
    /// Quota or capacity is exhausted.
    ResourceExhausted = 8,
    /// The system is not in the required state.
    FailedPrecondition = 9,
    /// The operation was aborted and may be retried.
    Aborted = 10,
    /// The value is outside of the valid range.
    OutOfRange = 11,
    /// The driver does not support the operation.
    Unimplemented = 12,
    /// Internal error.
    Internal = 13,
    /// The service is temporarily unavailable; retry later.
    Unavailable = 14,
    /// Data was lost.
    DataLoss = 15,
    /// The credentials are invalid.
    Unauthenticated = 16,
    /// The instance exists but was not initialised.
    Uninitialized = 17,
}

impl Code {
    /// Parses a spelling; an unknown one becomes [`Code::Unknown`].
    pub fn parse_lossy(text: &str) -> Self {
        Self::parse(text).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A status code with its message; `Display` is the text form that descriptions carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodedMessage {
    /// The code.
    pub code: Code,
    /// Text for people; programs do not parse it.
    pub message: String,
}

impl fmt::Display for CodedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine codes error: code = [{}] message = [{}]", self.code, self.message)
    }
}

impl CodedMessage {
    /// Decodes a text as Go does: exactly two bracket groups at the top level, first the code, then
    /// the message. Returns `None` where Go reports a text as undecodable.
    pub fn decode(text: &str) -> Option<Self> {
        let mut groups = top_level_groups(text);
        let (Some(code), Some(message), None) = (groups.next(), groups.next(), groups.next()) else {
            return None;
        };
        Some(Self { code: Code::parse_lossy(code), message: message.to_owned() })
    }
}

/// Returns the texts between balanced brackets at the top level. A `]` without a matching `[` is
/// skipped; a `[` that is never closed consumes the rest.
fn top_level_groups(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let mut start = 0;
    text.char_indices().filter_map(move |(at, c)| match (c, depth) {
        ('[', _) => {
            if depth == 0 {
                start = at + 1;
            }
            depth += 1;
            None
        }
        (']', 0) => None,
        (']', _) => {
            depth -= 1;
            (depth == 0).then(|| &text[start..at])
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbered_in_order_and_parse_back() {
        assert_eq!(Code::ALL.len(), 18);
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!(*code as u32, number);
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse_lossy("Exhausted"), Code::Unknown);
    }

    fn decoded(text: &str) -> Option<(Code, String)> {
        CodedMessage::decode(text).map(|decoded| (decoded.code, decoded.message))
    }

    #[test]
    fn the_text_form_parses_back() {
        let error = CodedMessage { code: Code::ResourceExhausted, message: "no m5 in [a, b]".to_owned() };
        let text = error.to_string();
        assert_eq!(text, "machine codes error: code = [ResourceExhausted] message = [no m5 in [a, b]]");
        assert_eq!(CodedMessage::decode(&text), Some(error));
    }

    #[test]
    fn decoding_counts_groups_at_the_top_level() {
        assert_eq!(decoded("[NotFound] [gone]"), Some((Code::NotFound, "gone".to_owned())));
        assert_eq!(decoded("] a [Internal] ] b [x[y]z]"), Some((Code::Internal, "x[y]z".to_owned())));
        assert_eq!(decoded("request [17] failed with [quota]"), Some((Code::Unknown, "quota".to_owned())));
        assert_eq!(decoded("[Internal] [] "), Some((Code::Internal, String::new())));
        assert_eq!(decoded("plain text"), None);
        assert_eq!(decoded("[Internal]"), None);
        assert_eq!(decoded("[Internal] [a] [b]"), None);
        assert_eq!(decoded("code = [Internal] message = [open [ bracket]"), None);
    }
}
