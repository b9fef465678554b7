//! Reads headers of answers.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The longest wait that an answer may ask for.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// The value of a header as text; `None` if the header is absent or not ASCII.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The wait that `Retry-After` asks for in seconds, at most an hour. `None` if the header is absent
/// or has a date.
///
/// ```
/// use std::time::Duration;
///
/// use http::HeaderMap;
/// use machinist_driver_http::header;
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(header::retry_after(&headers), None);
/// headers.insert("retry-after", "7".parse()?);
/// assert_eq!(header::retry_after(&headers), Some(Duration::from_secs(7)));
/// headers.insert("retry-after", "86400".parse()?);
/// assert_eq!(header::retry_after(&headers), Some(Duration::from_secs(3600)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = text(headers, RETRY_AFTER.as_str())?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_WAIT))
}
