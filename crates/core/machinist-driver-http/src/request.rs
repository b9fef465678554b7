//! Parts of requests that all clouds share.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// The value of the header `User-Agent`.
pub const AGENT: &str = concat!("machinist/", env!("CARGO_PKG_VERSION"));

/// The characters that are escaped in a query and in a form: all but those that RFC 3986 calls
/// unreserved.
pub const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
