//! A hash that is the same in every process and release (FNV-1a, 64 bits). Not for secrets.

use std::hash::Hasher;

use fnv::FnvHasher;

/// Hashes the parts; their borders count, so `["ab", "c"]` and `["a", "bc"]` differ.
pub(crate) fn hash_of_parts(parts: &[&str]) -> u64 {
    // No UTF-8 text contains this byte.
    const BORDER: u8 = 0xff;
    let mut hasher = FnvHasher::default();
    for part in parts {
        hasher.write(part.as_bytes());
        hasher.write_u8(BORDER);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_count_and_the_value_never_changes() {
        assert_ne!(hash_of_parts(&["ab", "c"]), hash_of_parts(&["a", "bc"]));
        assert_eq!(hash_of_parts(&[]), 0xcbf2_9ce4_8422_2325);
    }
}
