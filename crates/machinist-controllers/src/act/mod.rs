//! The calls themselves: guarded writes to API servers, and calls to drivers.

mod accounts;
mod asks;
mod freeze;
mod instance;
mod owners;
mod settle;
mod user_data;
mod witness;
mod write;

pub(crate) use accounts::{Accounts, Opened};
pub(crate) use asks::{Ends, InFlight};
pub(crate) use freeze::{without_freeze, without_frozen};
pub(crate) use instance::{Asking, delete, ensure, find, list, rekey, secrets_of};
pub(crate) use owners::{controlled_by, stays};
pub(crate) use user_data::render as render_user_data;
pub(crate) use write::{Created, Write};
