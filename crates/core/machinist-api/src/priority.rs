//! Which Machine to delete first, as its annotation says.

/// Rank of a Machine among those that could be deleted: the lower goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachinePriority(pub i64);

impl MachinePriority {
    /// What a Machine has when nothing, or nothing readable, is said.
    pub const DEFAULT: Self = Self(3);
    /// Delete this one first.
    pub const DELETE_FIRST: Self = Self(1);

    /// Reads the annotation's value. An unreadable one is the default, so that a typing error never deletes a Machine early.
    pub fn parse_or_default(text: &str) -> Self {
        text.parse().map_or(Self::DEFAULT, Self)
    }
}

impl Default for MachinePriority {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_priority_is_the_default() {
        for (text, expected) in
            [("1", 1), ("3", 3), ("-4", -4), ("+2", 2), ("", 3), ("first", 3), (" 1", 3), ("1.0", 3)]
        {
            assert_eq!(MachinePriority::parse_or_default(text), MachinePriority(expected), "for {text:?}");
        }
    }
}
