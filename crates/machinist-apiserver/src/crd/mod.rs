//! Schemas, and what CustomResourceDefinitions turn into.
//!
//! A CRD's `openAPIV3Schema` and the built-in kinds' tables both become a [`schema::Schema`]; pruning, defaulting and
//! validation walk it. CEL rules (`x-kubernetes-validations`) and conversion webhooks are absent: a CRD that carries the
//! former is accepted and its rules are not evaluated, one that asks for the latter is refused.

pub(crate) mod default;
pub(crate) mod prune;
pub(crate) mod registration;
pub(crate) mod schema;
pub(crate) mod validate;
