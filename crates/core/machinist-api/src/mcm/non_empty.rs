//! Texts that may be empty.

/// Treats an empty text as absent, as most texts of this API do.
pub(super) fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}
