//! What "not there" means on the wire: Go writes zero values as `null`, as `""`, as `0`, or not at all, and reads them all
//! as the same. These functions are the two halves of that for the fields that are not an `Option` here.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default, for fields whose absence means the same.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether a field holds its default and so need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
