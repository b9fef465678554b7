//! The deletion priority of a Machine, read from its annotation.

/// Deletion priority of a Machine. Machines with a lower priority are deleted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachinePriority(pub i64);

impl MachinePriority {
    /// Priority of a Machine without the annotation, or with an invalid one.
    pub const DEFAULT: Self = Self(3);
    /// Priority of a Machine to delete first.
    pub const DELETE_FIRST: Self = Self(1);

    /// Parses the annotation's value. An invalid value becomes the default, so that a typing error
    /// never deletes a Machine early.
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
