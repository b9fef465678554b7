//! Generated names and ids: a hash and a suffix that never change between releases.

use std::hash::Hasher;

use fnv::FnvHasher;

/// Characters of a suffix: the API server's set for generated names, without vowels and
/// look-alikes.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const BASE: u64 = LETTERS.len() as u64;

/// Length of a suffix.
pub(crate) const SUFFIX_LENGTH: usize = 5;

/// Number of suffixes.
pub(crate) const SUFFIXES: u64 = BASE.pow(SUFFIX_LENGTH as u32);

/// Returns a hash of the bytes (FNV-1a, 64 bits) that is the same in every process and release.
pub(crate) fn hash_of_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Returns the suffix of a number; numbers that are equal modulo [`SUFFIXES`] share a suffix.
pub(crate) fn suffix(number: u64) -> String {
    let mut rest = number;
    let next = || {
        let digit = usize::try_from(rest % BASE).unwrap_or_default();
        rest /= BASE;
        char::from(LETTERS[digit])
    };
    std::iter::repeat_with(next).take(SUFFIX_LENGTH).collect()
}

#[test]
fn a_hash_and_a_suffix_never_change() {
    assert_eq!(hash_of_bytes(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash_of_bytes(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(
        [suffix(0), suffix(28), suffix(SUFFIXES - 1), suffix(SUFFIXES)],
        ["bbbbb", "ccbbb", "99999", "bbbbb"]
    );
}
