//! The form of objects: kinds, definitions, fields and their owners, patches, wire formats, tables.
//!
//! This layer is above the store and below access control. To check the permissions of a client, a
//! kind calls [`kinds::Admission`], which the access layer implements.

pub(crate) mod body;
pub(crate) mod conversion;
pub(crate) mod crd;
pub(crate) mod fields;
pub(crate) mod kinds;
pub(crate) mod patch;
pub(crate) mod protobuf;
pub(crate) mod resource;
pub(crate) mod shape;
pub(crate) mod table;
