//! Schemas, and the processing of CustomResourceDefinitions.
//!
//! A CRD's `openAPIV3Schema` and the built-in kinds' tables both become a [`schema::Schema`].
//! Pruning, defaulting and validation walk that schema. Afterwards [`rules`] evaluates its CEL
//! rules. Conversion webhooks are not supported: a CRD that requests one is rejected.

pub(crate) mod default;
pub(crate) mod embedded;
pub(crate) mod format;
mod parser;
pub(crate) mod prune;
pub(crate) mod registration;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod text_format;
pub(crate) mod validate;
