//! Texts that a process stores once.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use string_cache::DefaultAtom;

/// A text that a process stores once, however many objects contain it. It takes eight bytes in each
/// of them, and its memory is freed with its last user.
///
/// It is for texts that thousands of stored objects repeat, such as keys of labels and reasons of
/// conditions. Creating one searches a table, so it is not for texts that are read once.
///
/// ```
/// use machinist_labels::SharedText;
///
/// let reason = SharedText::from("KubeletReady");
/// assert!(reason == "KubeletReady" && reason == SharedText::from("KubeletReady"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SharedText(DefaultAtom);

impl SharedText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl PartialEq<str> for SharedText {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

/// As a `str`, so that maps find it by one.
impl Hash for SharedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for SharedText {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn equal_texts_have_one_place_in_memory() {
        let (one, same) = (
            SharedText::from("node.kubernetes.io/instance-type"),
            SharedText::from("node.kubernetes.io/instance-type".to_owned()),
        );
        assert_eq!(one.as_str().as_ptr(), same.as_str().as_ptr());
        assert_eq!(size_of::<Option<SharedText>>(), 8);
    }

    #[test]
    fn maps_find_a_shared_text_by_a_text() {
        let sorted = BTreeMap::from(["b", "a", "a longer key"].map(|key| (SharedText::from(key), key)));
        assert_eq!(sorted.keys().map(SharedText::as_str).collect::<Vec<_>>(), ["a", "a longer key", "b"]);
        assert_eq!(sorted.get("a longer key"), Some(&"a longer key"));
        let hashed: HashMap<_, _> = sorted.into_iter().collect();
        assert_eq!(hashed.get("a longer key"), Some(&"a longer key"));
    }
}
