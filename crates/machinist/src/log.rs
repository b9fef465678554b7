//! Logging to stderr.
//!
//! Only crates of this workspace log below the level `warn`. Libraries would log requests, and with
//! them credentials.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::LogArgs;
use crate::output::Output;

/// Default log level of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A controller, which reports its work in the log.
    Daemon,
    /// A command that reports its work on stdout.
    Command,
}

/// Crates that may log below the level `warn`.
const OURS: [&str; 10] = [
    "machinist",
    "machinist_apiserver",
    "machinist_cloud_sim",
    "machinist_controllers",
    "machinist_driver",
    "machinist_driver_sim",
    "machinist_kcm",
    "machinist_kube",
    "machinist_node_sim",
    "machinist_plan",
];

/// Modules whose warnings a command reports in its own words.
const TOLD_BY_COMMANDS: [&str; 2] = ["watch_log", "silent_servers"];

/// Starts logging to stderr, above the live table. A second call has no effect.
pub(crate) fn start(args: &LogArgs, voice: Voice, output: &Output) {
    let output = output.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(args, voice)))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(move || output.stderr());
    // An earlier call has already installed a subscriber.
    let _ = subscriber.try_init();
}

fn directives(args: &LogArgs, voice: Voice) -> String {
    let base = level(args.v, voice);
    let ours = OURS.iter().map(|name| format!("{name}={base}"));
    let single =
        args.vmodule.iter().map(|entry| format!("{}={}", entry.module, level(entry.level, Voice::Command)));
    // Errors of kube's client do not name the request. Its caller logs a better message.
    let mut directives = vec!["warn".to_owned(), "kube_client=off".to_owned()];
    directives.extend(ours);
    if voice == Voice::Command {
        // `up` reports an API server that does not answer itself, in one sentence with advice.
        directives.extend(TOLD_BY_COMMANDS.map(|module| format!("machinist_runtime::{module}=off")));
    }
    directives.extend(single);
    directives.join(",")
}

/// Converts a klog level: 0 is for operators, 2 is the usual level, 4 is for debugging, 5 and above
/// for tracing.
fn level(v: u8, voice: Voice) -> &'static str {
    match (v, voice) {
        (0, Voice::Command) => "warn",
        (0..=2, _) => "info",
        (3..=4, _) => "debug",
        (5.., _) => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_log_only_warnings_at_every_level() {
        let all = directives(&LogArgs { v: 9, vmodule: Vec::new() }, Voice::Daemon);
        assert!(all.starts_with("warn,kube_client=off,machinist=trace,"));
        assert!(!all.contains("hyper"));
    }

    #[test]
    fn a_command_reports_a_silent_api_server_itself() {
        let all = |voice| directives(&LogArgs { v: 0, vmodule: Vec::new() }, voice);
        assert!(all(Voice::Command).contains("machinist_runtime::watch_log=off"));
        assert!(!all(Voice::Daemon).contains("watch_log"), "a controller has only its log");
    }

    #[test]
    fn a_single_module_can_have_another_level() {
        let module = "machinist_kube::lease=4".parse().expect("a module and its level");
        let all = directives(&LogArgs { v: 0, vmodule: vec![module] }, Voice::Command);
        assert!(all.ends_with(",machinist_kube::lease=debug"), "{all}");
    }
}
