//! A machine controller with a provider of another crate, for authors of drivers.
//!
//! A program of its own serves the classes of that provider, with the flags, metrics and
//! explanations of `machinist machine-controller`. No change of this repository is needed.
//!
//! Deliberately absent: the providers of this program. A cluster with both runs both programs, in
//! namespaces of their own.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::Provider;

use crate::args::{Command, Parsed};
use crate::log::{self, Voice};
use crate::output::Output;
use crate::{block_on, cmd, ended, parse};

/// Runs a machine controller that serves the classes of one provider. The command line has the
/// flags of `machinist machine-controller`, without the flags that choose a cloud. `call_bound` is
/// the longest time between the start of a call and its effect, as in the promises of the
/// provider's drivers.
///
/// Returns when the process was asked to end. The exit code is 2 for a wrong command line, and 1
/// for any other failure.
///
/// ```no_run
/// use std::process::ExitCode;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// fn run(provider: Arc<dyn machinist_driver::Provider>) -> ExitCode {
///     machinist::machine_controller::run(provider, Duration::from_secs(30))
/// }
/// ```
pub fn run(provider: Arc<dyn Provider>, call_bound: Duration) -> ExitCode {
    // The name of the program may be the name of a command. Then the command would be read twice.
    let command = ["machinist", "machine-controller"].map(OsString::from);
    let words = command.into_iter().chain(std::env::args_os().skip(1));
    let Parsed { command, warnings } = match parse(words) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let Command::MachineController(args) = command else {
        unreachable!("the command line names the command");
    };
    log::start(&args.log, Voice::Daemon, &Output::stdout());
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    ended(block_on(cmd::machine_controller::run_with(&args, provider, call_bound)))
}
