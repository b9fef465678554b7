//! The syntax of keys and values.

/// The maximum length of a label value, and of the name in a key.
pub const MAX_VALUE_LEN: usize = 63;

/// The maximum length of the prefix of a key.
const MAX_PREFIX: usize = 253;

/// Returns whether the API server accepts the text as a label key: a name with the syntax of a
/// value that is not empty, after an optional DNS subdomain and `/`.
pub fn is_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_subdomain)
}

/// Returns whether the API server accepts the text as a label value: empty, or at most
/// [`MAX_VALUE_LEN`] letters, digits, `-`, `_` and `.`, with a letter or digit as the first and the
/// last character.
pub fn is_value(text: &str) -> bool {
    let may_be_inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends_well = |end: Option<&u8>| end.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_VALUE_LEN
        && bytes.iter().copied().all(may_be_inside)
        && ends_well(bytes.first())
        && ends_well(bytes.last())
}

fn is_subdomain(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().copied().is_some_and(is_letter)
            && bytes.last().copied().is_some_and(is_letter)
            && bytes.iter().all(|byte| is_letter(*byte) || *byte == b'-')
    };
    text.len() <= MAX_PREFIX && text.split('.').all(is_part)
}

#[test]
fn keys_have_a_name_and_at_most_one_prefix() {
    for text in ["a", "A_b.c-d", "example.org/zone", "1/1"] {
        assert!(is_key(text), "{text}");
    }
    for text in ["", "/a", "a/", "a/b/c", "-a", "a-", "a b", "Example.org/a", "a..b/c", &"a".repeat(64)] {
        assert!(!is_key(text), "{text}");
    }
}
