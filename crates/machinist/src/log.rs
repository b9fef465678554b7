//! What the program logs, to stderr.
//!
//! Only our own modules are heard beyond warnings: libraries below would print requests, and with them credentials.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::LogArgs;
use crate::output::Output;

/// How talkative a command is when nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A controller: its log is how people follow it.
    Daemon,
    /// A command that talks through its output.
    Command,
}

/// The crates that may say more than warnings.
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

/// Starts logging, beside what else is written. A second call changes nothing.
pub(crate) fn start(args: &LogArgs, voice: Voice, output: &Output) {
    let output = output.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(args, voice)))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(move || output.stderr());
    // It fails when there is one already; that one is as good.
    let _ = subscriber.try_init();
}

fn directives(args: &LogArgs, voice: Voice) -> String {
    let base = level(args.v, voice);
    let ours = OURS.iter().map(|name| format!("{name}={base}"));
    let single = args.vmodule.iter().map(|it| format!("{}={}", it.module, level(it.level, Voice::Command)));
    // The client's own complaints come without a word on which request failed; whoever sent it says more.
    let mut directives = vec!["warn".to_owned(), "kube_client=off".to_owned()];
    directives.extend(ours);
    directives.extend(single);
    directives.join(",")
}

/// klog's numbers as words: 0 is for operators, 2 the usual, 4 for debugging, 5 and above for tracing.
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
    fn libraries_stay_at_warnings_whatever_is_asked() {
        let all = directives(&LogArgs { v: 9, vmodule: Vec::new() }, Voice::Daemon);
        assert!(all.starts_with("warn,kube_client=off,machinist=trace,"));
        assert!(!all.contains("hyper"));
    }

    #[test]
    fn a_single_module_can_say_more() {
        let module = "machinist_kube::lease=4".parse().expect("a module and its level");
        let all = directives(&LogArgs { v: 0, vmodule: vec![module] }, Voice::Command);
        assert!(all.ends_with(",machinist_kube::lease=debug"), "{all}");
    }
}
