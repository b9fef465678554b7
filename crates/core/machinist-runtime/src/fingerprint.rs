//! Fingerprints: whether two decisions were made from the same facts.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number that differs, as good as surely, where what it is of differs. Good within one process: another version of the program may
/// compute another one.
#[expect(clippy::disallowed_methods, reason = "it is compared within one process, and written nowhere")]
pub fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
