//! The calls themselves: guarded writes to API servers, and calls to drivers.

mod instance;
mod owners;
mod settle;
mod user_data;
mod write;

pub(crate) use instance::{Account, Asking, DriverPool, delete, ensure, find, place_of};
pub(crate) use owners::{controlled_by, stays};
pub(crate) use user_data::render as render_user_data;
pub(crate) use write::{Created, Write};
