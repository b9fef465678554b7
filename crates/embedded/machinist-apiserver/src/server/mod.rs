//! The server: from a request to its answer.
//!
//! [`listen`] takes connections, [`service`] leads each request through its stages, [`verbs`] has a
//! module per verb. The other modules answer requests that are about no stored object.

pub(crate) mod audit;
pub(crate) mod config;
pub(crate) mod core;
pub(crate) mod discovery;
pub(crate) mod handle;
pub(crate) mod kept;
pub(crate) mod listen;
pub(crate) mod load;
pub(crate) mod openapi;
pub(crate) mod replica;
pub(crate) mod response;
pub(crate) mod resume;
pub(crate) mod reviews;
pub(crate) mod service;
pub(crate) mod verbs;
