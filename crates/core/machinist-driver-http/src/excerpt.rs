//! How much of the cloud's text an error repeats.

/// The longest part of a message that an error repeats: enough for every documented message. Some
/// clouds append an encoded explanation of more than a thousand letters.
const MAX_TEXT_BYTES: usize = 300;

/// The beginning of a text, at most 300 bytes.
///
/// ```
/// assert_eq!(machinist_driver_http::excerpt("quota exceeded"), "quota exceeded");
/// assert_eq!(machinist_driver_http::excerpt(&"ä".repeat(999)).len(), 300);
/// ```
pub fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}
