//! The client of a request and its permissions: authentication, authorisation, tokens.

pub(crate) mod authn;
pub(crate) mod authz;
pub(crate) mod keys;
pub(crate) mod tokens;
