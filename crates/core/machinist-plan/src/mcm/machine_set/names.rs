//! Names of a set's children: reserved before use, never random, never used twice.
//!
//! A set reserves numbers in an annotation, with one write per batch. A child's name is derived
//! from the set's UID and the child's number. So a POST with an unknown outcome, of this process or
//! of a killed one, is repeated with the same name and creates at most one Machine. Therefore a set
//! cannot overshoot.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use machinist_labels::MAX_VALUE_LEN;

use crate::generated::{SUFFIX_LENGTH, SUFFIXES, hash_of_bytes, suffix};
use crate::mcm::facts::MachineSetFacts;

/// Annotation on a set: the numbers that its children may have, as `next:pending`, for example
/// `50:30-32,40`.
///
/// Numbers from `next` on are free. Below `next`, pending numbers may be in use, and all other
/// numbers are used forever.
pub const RESERVED_NUMBERS: &str = "machinist.dev/reserved-numbers";

/// The longest name of a Machine, which becomes a host name and a label value.
const MAX_NAME_LEN: usize = MAX_VALUE_LEN;

/// Returns the name of the child with that number.
///
/// The UID of the set shuffles the numbers; they are not hashed one by one. With hashes, one in
/// thirty sets of a thousand Machines would have a duplicate name.
pub fn child_name(set_name: &str, set_uid: &str, number: u64) -> String {
    let hash = hash_of_bytes(set_uid.as_bytes());
    let (high, low) = ((hash >> 32) % SUFFIXES, hash % SUFFIXES);
    // A step that shares no factor with 27^5 visits every suffix once.
    let step = if high.is_multiple_of(3) { high + 1 } else { high };
    let shuffled = (number % SUFFIXES * step + low) % SUFFIXES;
    let start: String = set_name.chars().take(MAX_NAME_LEN - SUFFIX_LENGTH - 1).collect();
    // A name truncated after a dot would have a part that starts with a hyphen, which is invalid.
    let mut name = start.trim_end_matches('.').to_owned();
    name.push('-');
    name.push_str(&suffix(shuffled));
    name
}

/// The numbers that a set's children may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserved {
    /// The first number that was never reserved.
    pub next: u64,
    /// Numbers that were reserved and may or may not be in use.
    pub pending: BTreeSet<u64>,
}

impl Reserved {
    /// Reads the numbers of a set from its annotation. If the annotation cannot be parsed, no
    /// number is reserved, and each POST decides whether a name is free.
    pub fn of(set: &MachineSetFacts) -> Self {
        set.annotation(RESERVED_NUMBERS).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Reserves `count` more numbers, and removes the numbers that are known to be in use.
    pub fn with_more(&self, count: u64, used: &BTreeSet<u64>) -> Self {
        let next = self.next.saturating_add(count);
        let pending = self.pending.difference(used).copied().chain(self.next..next);
        Self { next, pending: pending.collect() }
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.next)?;
        let mut separator = ':';
        let mut numbers = self.pending.iter().copied().peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?
            } else {
                write!(f, "{separator}{first}-{last}")?
            }
            separator = ',';
        }
        Ok(())
    }
}

/// Error for an annotation that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableReservation;

impl FromStr for Reserved {
    type Err = UnreadableReservation;

    fn from_str(text: &str) -> Result<Self, UnreadableReservation> {
        /// More than a set ever has pending. A wrong annotation must not fill memory.
        const MAX_PENDING: u64 = 10_000;
        let number = |text: &str| text.parse::<u64>().map_err(|_| UnreadableReservation);
        let (next, ranges) = text.split_once(':').map_or((text, ""), |(next, ranges)| (next, ranges));
        let mut reserved = Self { next: number(next)?, pending: BTreeSet::new() };
        let mut left = MAX_PENDING;
        for range in ranges.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if last < first || last - first >= left || reserved.next <= last {
                return Err(UnreadableReservation);
            }
            left -= last - first + 1;
            reserved.pending.extend(first..=last);
        }
        Ok(reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_survive_the_annotation() {
        for text in ["0", "3:0-2", "50:30-32,40", "7:6"] {
            let reserved: Reserved = text.parse().expect(text);
            assert_eq!(reserved.to_string(), text);
        }
        assert!("99999:0-9999".parse::<Reserved>().is_ok());
        for bad in ["", "x", "3:5", "3:2-1", "99999:0-99998", "99999:0-5999,6000-11999", "99999:0-9999,20000"]
        {
            assert_eq!(bad.parse::<Reserved>(), Err(UnreadableReservation), "{bad}");
        }
    }

    const FIRST: [&str; 4] = ["w-84j5n", "w-wvhp9", "w-mpgbt", "w-cjfvf"];

    #[test]
    fn names_are_stable_and_differ_by_number_and_set() {
        let first: Vec<_> = (0..4).map(|number| child_name("w", "uid", number)).collect();
        assert_eq!(first, FIRST, "names of Machines that exist must not change with the program");
        for uid in ["uid", "7ece3c7f-0388-476c-b336-c09b9c9745d4", "afc3b9cd-c170-421b-b805-221992a6f233"] {
            let names: BTreeSet<_> = (0..20_000).map(|number| child_name("w", uid, number)).collect();
            assert_eq!(names.len(), 20_000, "for {uid}");
        }
        assert_eq!(child_name("w", "uid", u64::MAX), child_name("w", "uid", u64::MAX % SUFFIXES));
        assert_ne!(child_name("w", "uid", 0), child_name("w", "other", 0));
        assert!(child_name(&"w".repeat(100), "uid", 0).len() <= MAX_NAME_LEN);
        let cut_after_a_dot = format!("{}.workers", "w".repeat(56));
        assert_eq!(child_name(&cut_after_a_dot, "uid", 0), format!("{}-84j5n", "w".repeat(56)));
    }

    #[test]
    fn used_numbers_are_no_longer_pending() {
        let reserved: Reserved = "3:0-2".parse().expect("well-formed");
        assert_eq!(reserved.with_more(2, &BTreeSet::from([0, 2])).to_string(), "5:1,3-4");
    }
}
