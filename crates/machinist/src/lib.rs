//! The `machinist` program, and the machine controller for authors of drivers.
//!
//! ```text
//! args       parses the command line
//! clouds     the clouds that are compiled in: one row each
//! cmd/<x>    one module per command
//! machine_controller  a machine controller with the provider of another crate
//! wiring     shared parts of the two controllers: clients, leader election, HTTP server
//! embedded   the API server of `up` and `api-server`
//! documents  reads objects from YAML files; errors name the file and the position
//! log        logging to stderr
//! output     stdout and the live table
//! progress   progress lines of a command
//! stop       signals
//! version    the version of the program
//! wrong_flags  the error for flags that clap accepts and that are wrong
//! ```
//!
//! Deliberately absent: decisions, and code that belongs into a library of the workspace. An error
//! and its causes are printed as one line on stderr.

mod args;
mod clouds;
mod cmd;
mod documents;
mod embedded;
mod log;
pub mod machine_controller;
mod output;
mod progress;
mod stop;
mod version;
mod wiring;
mod wrong_flags;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;

use crate::args::{Command, Parsed};
use crate::log::Voice;
use crate::output::Output;
use crate::wrong_flags::WrongFlags;

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    match parse(std::env::args_os()) {
        Ok(Parsed { command, warnings }) => ended(run(command, &warnings)),
        Err(code) => code,
    }
}

/// Parses a command line. Prints the error, the help or the version, and returns the exit code.
fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, ExitCode> {
    args::parse(words).map_err(|error| {
        // If stderr is closed, the error cannot be reported.
        let _ = error.print();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// Prints the error of a command, and returns the exit code.
fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // The reader closed our stdout. Print no error, but report that the job is not complete.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) if error.is::<WrongFlags>() => {
            output::complain(&format!("error: {error}\n\nFor more information, try '--help'."));
            ExitCode::from(2)
        }
        Err(error) => {
            output::complain(&format!("error: {}", output::one_line(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. Only the controllers of machines have warnings; they are the first lines of
/// their log.
fn run(command: Command, warnings: &[String]) -> anyhow::Result<ExitCode> {
    let warn = || warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let output = Output::stdout();
    match command {
        Command::Crds(args) => cmd::crds::run(&args, &output),
        Command::Completion(args) => cmd::completion::run(&args, &output),
        Command::Version(args) => cmd::version::run(&args, &output),
        Command::MachineControllerManager(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            warn();
            block_on(cmd::machine_controller_manager::run(&args))
        }
        Command::MachineController(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            warn();
            block_on(cmd::machine_controller::run(&args))
        }
        Command::Up(args) => {
            log::start(&args.log, Voice::Command, &output);
            block_on(cmd::up::run(&args, output))
        }
        Command::ApiServer(args) => {
            log::start(&args.log, Voice::Command, &output);
            block_on(cmd::api_server::run(&args, output))
        }
        Command::Why(args) => {
            log::start(&args.log, Voice::Command, &output);
            block_on(cmd::why::run(&args, &output))
        }
        Command::Validate(args) => {
            log::start(&args.log, Voice::Command, &output);
            cmd::validate::run(&args, &output)
        }
        Command::Restore(args) => {
            log::start(&args.log, Voice::Command, &output);
            block_on(cmd::restore::run(&args, &output))
        }
        Command::CloudControllerManager(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            block_on(cmd::cloud_controller_manager::run(&args))
        }
        Command::CapiDocker(args) => {
            log::start(&args.common.log, Voice::Daemon, &output);
            block_on(cmd::capi::run_docker(&args))
        }
        Command::CapiMailgun(args) => {
            log::start(&args.common.log, Voice::Daemon, &output);
            block_on(cmd::capi::run_mailgun(&args))
        }
        Command::StandIn(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            block_on(cmd::stand_in::run(&args, &output))
        }
        Command::SimCloud(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            block_on(cmd::sim_cloud::run(&args, &output))
        }
    }
}

/// Runs an asynchronous command and then drops its background tasks.
fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the Tokio runtime")?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
