//! Schemas, and what CustomResourceDefinitions turn into.
//!
//! A CRD's `openAPIV3Schema` and the built-in kinds' tables both become a [`schema::Schema`]; pruning, defaulting and
//! validation walk it, and [`rules`] judges what is then still valid. Conversion webhooks are absent: a CRD that asks for one
//! is refused.

pub(crate) mod default;
pub(crate) mod embedded;
pub(crate) mod prune;
pub(crate) mod registration;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod text_format;
pub(crate) mod validate;
