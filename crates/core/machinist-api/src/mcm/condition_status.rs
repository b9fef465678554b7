//! The status of a condition.

use crate::text_enum::text_enum;

text_enum! {
    /// Status of a condition.
    pub enum ConditionStatus {
        /// The condition holds.
        True = "True",
        /// The condition does not hold.
        False = "False",
        /// The state is unknown.
        Unknown = "Unknown",
    }
}
