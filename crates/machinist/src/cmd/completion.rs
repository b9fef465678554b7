//! `machinist completion`: prints a shell completion script.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::{Cli, CompletionArgs, ShellName};
use crate::output::Output;

pub(crate) fn run(args: &CompletionArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    // The generator panics if its output is closed, so it writes to memory first.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "machinist", &mut script);
    output.text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
