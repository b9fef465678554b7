//! Who owns which fields: `metadata.managedFields`, and server-side apply on top of it.
//!
//! ```text
//! POST, PUT, PATCH   before, after  -> compare  -> track   -> managers
//! apply              live, wanted   -> merge    -> apply   -> object, managers
//! ```
//!
//! Everything here is a function of values. A schema is looked at through a [`view::View`], which says of each place whether it
//! is owned field by field, item by item, or as a whole; fields are told apart by [`element::Element`]s and collected in
//! [`set::FieldSet`]s. The store keeps the managers of an object as one text beside it (`object::Object`): it is read when a write
//! differs from what was there, shared by versions between which nothing changes hands, and copied into answers as it is.
//!
//! Deliberately absent: CBOR, and the schemas of `any` in `types/*.txt`, inside which maps are owned field by field and lists as a whole.

pub(crate) mod apply;
mod collect;
mod compare;
mod element;
pub(crate) mod managers;
pub(crate) mod merge;
pub(crate) mod set;
pub(crate) mod track;
pub(crate) mod versions;
mod view;
