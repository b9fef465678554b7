//! What objects look like: kinds, definitions, fields and their owners, patches, wire formats,
//! tables.
//!
//! Above the store, below access control. A kind asks what its writer may do through
//! [`kinds::Admission`], which the access layer implements.

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
