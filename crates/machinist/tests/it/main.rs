//! The program as people run it: the built binary, its output, its exit codes, its processes.

mod api_server;
mod commands;
mod completion;
mod data_folder;
mod process;
mod processes;
mod restart;
mod up;
mod why;
