//! Absent fields on the wire. Go writes zero values as `null`, as `""`, as `0`, or not at all, and
//! reads all of these as the same value. These functions read and write such values for fields that
//! are not an `Option` here.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default, for fields that mean the same when they are absent.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns whether a field has its default value and can be omitted.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
