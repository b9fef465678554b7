//! The Cluster API providers as processes: wrong settings end them with an error.

use crate::process::{Ended, machinist};

/// Runs a provider with these variables only. It ends before it connects to a cluster.
fn fails(line: &str, variables: &[(&str, &str)], code: i32, expected: &str) {
    let mut command = machinist(line);
    for name in ["MAILGUN_DOMAIN", "MAILGUN_API_KEY", "MAIL_RECIPIENT", "MAILGUN_API_BASE", "DOCKER_HOST"] {
        command.env_remove(name);
    }
    let ended = Ended::of(command.envs(variables.iter().copied()));
    assert_eq!(ended.code, Some(code), "{line}\n{}", ended.stderr);
    let error = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains(expected), "expected {expected:?} in {}", ended.stderr);
    assert!(!ended.stderr.contains("key-canary"), "{}", ended.stderr);
}

/// Each required variable is named.
#[test]
fn a_missing_variable_of_the_mail_service_is_named() {
    let all = [
        ("MAILGUN_DOMAIN", "example.com"),
        ("MAILGUN_API_KEY", "key-canary"),
        ("MAIL_RECIPIENT", "a@b.example"),
    ];
    for missing in 0..all.len() {
        let mut variables = all.to_vec();
        let (name, _) = variables.remove(missing);
        fails("capi-mailgun", &variables, 1, &format!("missing required env {name}"));
        variables.push((name, ""));
        fails("capi-mailgun", &variables, 1, &format!("missing required env {name}"));
    }
}

/// A provider that cannot use its settings ends with an error.
#[test]
fn a_provider_that_cannot_start_ends_with_an_error() {
    let variables = [
        ("MAILGUN_DOMAIN", "example.com"),
        ("MAILGUN_API_KEY", "key-canary"),
        ("MAIL_RECIPIENT", "a@b.example"),
    ];
    fails("capi-mailgun --kubeconfig no/such/file", &variables, 1, "no/such/file");
    let nobody = [&variables[..2], &[("MAIL_RECIPIENT", "nobody")]].concat();
    fails("capi-mailgun", &nobody, 1, "MAIL_RECIPIENT: expected one mail address");
    fails("capi-docker --docker-subnet 172.20.0.0", &[], 2, "expected an IPv4 subnet");
    fails("stand-in mailgun --data-dir d", &[], 2, "--data-dir: expected only with hcloud");
    fails("capi-docker --kubeconfig no/such/file", &[("DOCKER_HOST", "ssh://a")], 2, "DOCKER_HOST");
}
