//! The commands, one module each.

pub(crate) mod api_server;
pub(crate) mod capi;
pub(crate) mod cloud_controller_manager;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod machine_controller;
pub(crate) mod machine_controller_manager;
pub(crate) mod restore;
pub(crate) mod sim_cloud;
pub(crate) mod stand_in;
pub(crate) mod up;
pub(crate) mod validate;
pub(crate) mod version;
pub(crate) mod why;
