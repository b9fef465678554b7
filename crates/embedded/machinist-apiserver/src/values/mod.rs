//! Values that every layer speaks: objects, statuses, metadata, identities, quantities, time, keys.
//!
//! The lowest layer. Nothing here knows a kind, a store or a request.

pub(crate) mod amount;
pub(crate) mod clock;
pub(crate) mod go;
pub(crate) mod identity;
pub(crate) mod key;
pub(crate) mod meta;
pub(crate) mod object;
pub(crate) mod path;
pub(crate) mod quantity;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod status;
pub(crate) mod tls;
pub(crate) mod token_key;
