//! Field ownership: `metadata.managedFields`, and server-side apply on top of it.
//!
//! ```text
//! POST, PUT, PATCH   before, after  -> compare  -> track   -> managers
//! apply              live, wanted   -> merge    -> apply   -> object, managers
//! ```
//!
//! All functions here work on values. A [`place::Place`] is one place of an object with its schema,
//! and knows whether the place is owned field by field, item by item, or as a whole. An
//! [`element::Element`] identifies a field, and a [`set::FieldSet`] collects fields. The store
//! keeps the managers of an object as one text next to it (`object::Object`). That text is parsed
//! if a write changes something, shared by versions with the same ownership, and copied into
//! responses unchanged.
//!
//! Not included: CBOR, and the schemas of `any` in `types/*.txt`. Inside an `any`, maps are owned
//! field by field and lists as a whole.

pub(crate) mod apply;
mod collect;
mod compare;
mod element;
pub(crate) mod managers;
pub(crate) mod merge;
mod place;
pub(crate) mod set;
pub(crate) mod track;
pub(crate) mod versions;
