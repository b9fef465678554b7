//! Who is asking, and what they may do: authentication, authorisation, tokens.

pub(crate) mod authn;
pub(crate) mod authz;
pub(crate) mod keys;
pub(crate) mod tokens;
