//! Tests that the two controllers accept every flag of Go's machine-controller-manager, with every
//! form of a value that Go accepts.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::{Cli, parse};

/// The programs that have a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Both,
    Manager,
    Controller,
}

/// A flag of Go: its name, the programs that have it, values that Go accepts, and values that it
/// does not accept with a part of the error.
struct Flag {
    name: &'static str,
    by: By,
    values: &'static [&'static str],
    wrong: &'static [(&'static str, &'static str)],
}

const DURATIONS: &[&str] = &["0", "0s", "90s", "1h30m", "1.5h", "250ms", "1m0.5s", "+5m", "10us", "3µs"];
const NO_DURATION: &[(&str, &str)] =
    &[("5", "a unit is missing"), ("-1s", "not negative"), ("x", "not a duration")];
const SWITCHES: &[&str] = &["true", "false", "1", "0", "t", "F", "TRUE", "False"];
const NO_SWITCH: &[(&str, &str)] = &[("yes", "expected true or false")];
const COUNTS: &[&str] = &["0", "7", "0x10", "017", "1_000", "2147483647"];
const NO_COUNT: &[(&str, &str)] = &[("-1", "expected a number from 0"), ("x", "expected a number from 0")];

const fn flag(
    name: &'static str,
    by: By,
    values: &'static [&'static str],
    wrong: &'static [(&'static str, &'static str)],
) -> Flag {
    Flag { name, by, values, wrong }
}

/// Every flag, in the order of Go's sources, then the flags of its log library.
const FLAGS: &[Flag] = &[
    flag(
        "port",
        By::Both,
        &["1", "10258", "65535", "0x2812"],
        &[("0", "from 1 to 65535"), ("70000", "from 1 to 65535")],
    ),
    flag("address", By::Both, &["0.0.0.0", "127.0.0.1", "::", "::1"], &[("localhost", "invalid IP address")]),
    flag("cloud-provider", By::Both, &["", "aws"], &[]),
    flag("concurrent-syncs", By::Both, &["1", "50", "100000"], &[("0", "expected a number above 0")]),
    flag("min-resync-period", By::Both, DURATIONS, NO_DURATION),
    flag("profiling", By::Both, SWITCHES, NO_SWITCH),
    flag("contention-profiling", By::Both, SWITCHES, NO_SWITCH),
    flag("target-kubeconfig", By::Both, &["", "a/b.yaml", "none"], &[]),
    flag("control-kubeconfig", By::Both, &["", "inClusterConfig", "a.yaml"], &[]),
    flag("namespace", By::Both, &["default", "shoot--a--b"], &[("", "value is required")]),
    flag(
        "kube-api-content-type",
        By::Both,
        &["application/vnd.kubernetes.protobuf", "application/json; charset=utf-8"],
        &[("/json", "expected a content type")],
    ),
    flag("kube-api-qps", By::Both, &["20", "0.5", "1e3"], &[("0", "above 0"), ("-1", "above 0")]),
    flag("kube-api-burst", By::Both, COUNTS, NO_COUNT),
    flag("controller-start-interval", By::Both, DURATIONS, NO_DURATION),
    flag("leader-elect", By::Both, SWITCHES, NO_SWITCH),
    flag("leader-elect-lease-duration", By::Both, DURATIONS, NO_DURATION),
    flag("leader-elect-renew-deadline", By::Both, DURATIONS, NO_DURATION),
    flag("leader-elect-retry-period", By::Both, DURATIONS, NO_DURATION),
    flag("leader-elect-resource-lock", By::Both, &["leases"], &[("endpoints", "invalid value 'endpoints'")]),
    flag("safety-up", By::Manager, COUNTS, NO_COUNT),
    flag("safety-down", By::Manager, COUNTS, NO_COUNT),
    flag("machine-safety-overshooting-period", By::Manager, DURATIONS, NO_DURATION),
    flag("autoscaler-scaledown-annotation-during-rollout", By::Manager, SWITCHES, NO_SWITCH),
    flag("machine-creation-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-health-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-drain-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-inplace-update-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-max-evict-retries", By::Controller, COUNTS, NO_COUNT),
    flag("machine-pv-detach-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-pv-reattach-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-safety-apiserver-statuscheck-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-safety-apiserver-statuscheck-period", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-safety-orphan-vms-period", By::Controller, DURATIONS, NO_DURATION),
    flag("machine-preserve-timeout", By::Controller, DURATIONS, NO_DURATION),
    flag("node-conditions", By::Controller, &["", "KernelDeadlock", "A,B"], &[]),
    flag("bootstrap-token-auth-extra-groups", By::Controller, &["", "system:bootstrappers:a,b"], &[]),
    flag("resource-exhausted-retry", By::Controller, DURATIONS, NO_DURATION),
    flag("v", By::Both, &["0", "3", "10", "-1"], &[("x", "expected a log level")]),
    flag(
        "vmodule",
        By::Both,
        &["", "controller=4", "machine*=3,re?order=9", "pkg/*=2,", "app/controllermanager=1"],
        &[("a", "expected MODULE=LEVEL"), ("a=-1", "expected MODULE=LEVEL")],
    ),
    flag("logging-format", By::Both, &["text", "json"], &[("xml", "invalid value 'xml'")]),
    flag(
        "feature-gates",
        By::Both,
        &["", "A=true", "A=true,B=false"],
        &[("A", "expected NAME=true or NAME=false")],
    ),
    flag("log-flush-frequency", By::Both, DURATIONS, NO_DURATION),
    flag("add-dir-header", By::Both, SWITCHES, NO_SWITCH),
    flag("alsologtostderr", By::Both, SWITCHES, NO_SWITCH),
    flag("log-backtrace-at", By::Both, &["", "a.go:7"], &[]),
    flag("log-dir", By::Both, &["", "/var/log"], &[]),
    flag("log-file", By::Both, &["", "a.log"], &[]),
    flag("log-file-max-size", By::Both, COUNTS, NO_COUNT),
    flag("logtostderr", By::Both, SWITCHES, NO_SWITCH),
    flag("one-output", By::Both, SWITCHES, NO_SWITCH),
    flag("skip-headers", By::Both, SWITCHES, NO_SWITCH),
    flag("skip-log-headers", By::Both, SWITCHES, NO_SWITCH),
    flag("stderrthreshold", By::Both, &["2", "WARNING", "info"], &[("loud", "expected INFO, WARNING")]),
    flag("legacy-stderr-threshold-behavior", By::Both, SWITCHES, NO_SWITCH),
    flag("log-json-info-buffer-size", By::Both, &["0", "4096", "1Mi", "500k"], &[("big", "expected a size")]),
    flag("log-json-split-stream", By::Both, SWITCHES, NO_SWITCH),
    flag("log-text-info-buffer-size", By::Both, &["0", "4096", "1Mi", "500k"], &[("big", "expected a size")]),
    flag("log-text-split-stream", By::Both, SWITCHES, NO_SWITCH),
];

const MANAGER: &str = "machine-controller-manager";
const CONTROLLER: &str = "machine-controller";

fn programs(flag: &Flag) -> Vec<&'static str> {
    let all = [(MANAGER, By::Manager), (CONTROLLER, By::Controller)];
    all.into_iter().filter(|(_, by)| flag.by == By::Both || flag.by == *by).map(|(name, _)| name).collect()
}

/// Parses the flags of a program. Returns the error without the usage.
fn outcome(program: &str, flags: &[String]) -> Result<Vec<String>, String> {
    let cloud = (program == CONTROLLER).then(|| "--sim-endpoint=http://a:1".to_owned());
    let words = [program.to_owned()].into_iter().chain(cloud).chain(flags.iter().cloned());
    parse(words.map(OsString::from)).map(|parsed| parsed.warnings).map_err(|error| error.to_string())
}

/// Whether a flag was accepted, or rejected only because its feature does not exist yet.
#[track_caller]
fn is_valid(program: &str, flags: &[String]) {
    if let Err(error) = outcome(program, flags) {
        assert!(error.contains("is not supported yet"), "{program} {flags:?}: {error}");
    }
}

#[test]
fn every_flag_of_go_is_accepted_with_all_its_values() {
    for flag in FLAGS {
        for program in programs(flag) {
            for value in flag.values {
                is_valid(program, &[format!("--{}={value}", flag.name)]);
                is_valid(program, &[format!("--{}={value}", flag.name.replace('-', "_"))]);
                if flag.values != SWITCHES {
                    is_valid(program, &[format!("--{}", flag.name), (*value).to_owned()]);
                }
            }
            if flag.values == SWITCHES {
                is_valid(program, &[format!("--{}", flag.name)]);
            }
        }
    }
}

#[test]
fn a_wrong_value_names_the_flag_and_what_was_expected() {
    for flag in FLAGS {
        for program in programs(flag) {
            for (value, expected) in flag.wrong {
                let error = outcome(program, &[format!("--{}={value}", flag.name)]).expect_err(flag.name);
                let named = format!("--{}", flag.name);
                assert!(
                    error.contains(&named) && error.contains(expected),
                    "{program} {named}={value}: {error}"
                );
            }
        }
    }
}

#[test]
fn the_last_value_of_a_repeated_flag_counts() {
    let flags = ["--port=1", "--port=2", "--v=1", "-v=2", "-v3", "--leader-elect", "--leader-elect=false"];
    is_valid(MANAGER, &flags.map(str::to_owned));
}

#[test]
fn flags_without_a_meaning_are_named_once() {
    let flags =
        ["--cloud-provider=aws", "--profiling=false", "--logtostderr", "--port=1", "--feature-gates=A=true"];
    let warnings = outcome(MANAGER, &flags.map(str::to_owned)).expect("accepted");
    let expected =
        "these flags have no effect: --cloud-provider, --feature-gates, --logtostderr; --help says why";
    assert_eq!(warnings, [expected]);
    assert_eq!(outcome(MANAGER, &["--port=1".to_owned()]), Ok(Vec::new()));
}

/// A flag that the program has must be in the table, or be ours.
#[test]
fn the_table_knows_every_flag_that_is_not_ours() {
    const OURS: &[&str] = &[
        "help",
        "provider",
        "cluster-name",
        "drain-volumes-at-once",
        "replacements-at-once",
        "dead-node-timeout",
        "report-orphans-only",
        "tls-cert-file",
        "tls-private-key-file",
        "cert-dir",
        "client-ca-file",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
        "authorization-always-allow-paths",
    ];
    let root = Cli::command();
    for program in [MANAGER, CONTROLLER] {
        let command = root.find_subcommand(program).expect("a command");
        let is_ours =
            |name: &&str| OURS.contains(name) || name.starts_with("sim-") || name.starts_with("docker-");
        let names: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let unknown: Vec<_> = names
            .into_iter()
            .filter(|name| !is_ours(name))
            .filter(|name| !FLAGS.iter().any(|flag| flag.name == *name && programs(flag).contains(&program)))
            .collect();
        assert!(unknown.is_empty(), "{program}: not in the table: {unknown:?}");
    }
}
