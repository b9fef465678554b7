//! Fingerprints of snapshots, which show whether two decisions have the same facts.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Computes a hash of the value. Different values almost certainly have different hashes. Compare
/// the hashes only within one process, because another version of the program may compute other
/// hashes.
#[expect(clippy::disallowed_methods, reason = "the hash is compared within one process and never stored")]
pub fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
