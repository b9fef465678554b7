//! The `machinist` program.
//!
//! ```text
//! args       what was typed, parsed into types
//! cmd/<x>    one file or folder per command
//! wiring     clients, leadership, the HTTP port: what the two controllers have in common
//! embedded   the API server of `up` and `api-server`, and what belongs to it
//! documents  objects in YAML files, and errors that say where they were written
//! log, output, progress, stop   stderr, stdout, what a command tells while it works, and signals
//! ```
//!
//! Deliberately absent: decisions, and anything that a library of the workspace does. Errors are chains that end on one line
//! of stderr.

mod args;
mod cmd;
mod documents;
mod embedded;
mod log;
mod output;
mod progress;
mod stop;
mod wiring;

use std::process::ExitCode;

use anyhow::Context;

use crate::args::{Command, Parsed, WrongFlags};
use crate::log::Voice;
use crate::output::Output;

fn main() -> ExitCode {
    let Parsed { command, warnings } = match args::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    for warning in warnings {
        output::complain(&format!("warning: {warning}"));
    }
    match run(command) {
        Ok(code) => code,
        // Whoever read our output has gone: that is no failure of ours, but the job was not done either.
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

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let output = Output::stdout();
    match command {
        Command::Crds(args) => cmd::crds::run(&args, &output),
        Command::Completion(args) => cmd::completion::run(&args, &output),
        Command::Version(args) => cmd::version::run(&args, &output),
        Command::MachineControllerManager(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            block_on(cmd::machine_controller_manager::run(&args))
        }
        Command::MachineController(args) => {
            log::start(&args.log, Voice::Daemon, &output);
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
        Command::SimCloud(args) => {
            log::start(&args.log, Voice::Daemon, &output);
            block_on(cmd::sim_cloud::run(&args, &output))
        }
    }
}

/// Runs a command that waits. When it has ended, what still runs in the background is of no use to anybody.
fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
