//! A hash that is the same in every process and release (FNV-1a, 64 bits). Not for secrets.

/// Hashes the parts; their borders count, so `["ab", "c"]` and `["a", "bc"]` differ.
pub(crate) fn stable_hash(parts: &[&str]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // No UTF-8 text contains this byte.
    const BORDER: u8 = 0xff;
    parts
        .iter()
        .flat_map(|part| part.bytes().chain([BORDER]))
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_count_and_the_value_never_changes() {
        assert_ne!(stable_hash(&["ab", "c"]), stable_hash(&["a", "bc"]));
        assert_eq!(stable_hash(&[]), 0xcbf2_9ce4_8422_2325);
    }
}
