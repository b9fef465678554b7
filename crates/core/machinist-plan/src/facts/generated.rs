//! Generated names and ids: a hash and a suffix that never change between releases.

use std::hash::Hasher;

use fnv::FnvHasher;

/// Characters of a suffix: the API server's set for generated names, without vowels and
/// look-alikes.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Length of a suffix.
pub(crate) const SUFFIX_LENGTH: usize = 5;

/// Number of suffixes.
pub(crate) const SUFFIXES: u64 = 27u64.pow(5);

/// Returns a hash of the bytes (FNV-1a, 64 bits) that is the same in every process and release.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Returns the suffix of a number; numbers that are equal modulo [`SUFFIXES`] share a suffix.
pub(crate) fn suffix(number: u64) -> String {
    let letter = |place: u32| {
        let digit = number / 27u64.pow(place) % 27;
        char::from(LETTERS[usize::try_from(digit).unwrap_or_default()])
    };
    (0..5).map(letter).collect()
}

#[test]
fn a_hash_and_a_suffix_never_change() {
    assert_eq!(stable_hash(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(stable_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!([suffix(0), suffix(28), suffix(SUFFIXES)], ["bbbbb", "ccbbb", "bbbbb"]);
}
