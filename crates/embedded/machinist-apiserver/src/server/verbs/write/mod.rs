//! The steps that all writes share, in the order in which a write uses them.
//!
//! ```text
//! decode -> prepare -> commit -> definitions
//! ```
//!
//! [`decode`] turns a body into an object, and [`prepare`] turns that object into the object to
//! store. [`commit`] stores it, and does the server's follow-up work. [`definitions`] does the
//! follow-up work for CustomResourceDefinitions. [`deletion`] is the write path of deletions.

pub(crate) mod commit;
pub(crate) mod decode;
pub(crate) mod definitions;
pub(crate) mod deletion;
pub(crate) mod prepare;
