//! End-to-end tests of the built binary: output, exit codes and processes.

mod api_server;
mod book;
mod capi;
mod cloud;
mod commands;
mod completion;
mod data_folder;
mod metrics;
mod no_target;
mod process;
mod processes;
mod restart;
mod up;
mod up_docker;
mod up_hcloud;
#[cfg(feature = "local")]
mod up_local;
mod why;
