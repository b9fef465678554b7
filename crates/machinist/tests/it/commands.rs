//! Tests of errors: one line that names the expected value, and the right exit code.

use std::net::TcpListener;

use crate::process::{Ended, machinist};

#[track_caller]
fn fails(line: &str, code: i32, parts: &[&str]) {
    let ended = Ended::of(&mut machinist(line));
    assert_eq!(ended.code, Some(code), "{line}\n{}", ended.stderr);
    for part in parts {
        assert!(ended.stderr.contains(part), "{line}: expected {part:?} in\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    if code == 1 {
        // Controllers log first. The error is the last line.
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{}", ended.stderr);
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    fails("up --until never", 2, &["'never' for '--until <STATE>'", "ready, gone"]);
    fails("up --no-such-flag", 2, &["unexpected argument '--no-such-flag'"]);
    fails("", 2, &["Usage: machinist"]);
    fails("machine-controller --provider hcloud,sim", 2, &["--sim-endpoint <URL>"]);
    fails("machine-controller --provider hcloud,mars", 2, &["invalid value 'mars' for '--provider <NAMES>'"]);
    let mine = "machine-controller --provider hcloud --sim-endpoint http://127.0.0.1:1";
    fails(mine, 2, &["--sim-endpoint: expected only with --provider sim"]);
    for controller in [
        "machine-controller-manager",
        "machine-controller",
        "machine-controller --sim-endpoint http://127.0.0.1:1",
    ] {
        let expected = "error: --target-kubeconfig: expected a kubeconfig. ";
        fails(controller, 2, &[expected]);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let port = address.port();
    fails(&format!("up --listen {address}"), 1, &[&format!("API server: cannot listen on {address}: ")]);
    fails(
        &format!("machine-controller-manager --address 127.0.0.1 --port {port} --target-kubeconfig x"),
        1,
        &[&format!("cannot listen on {address}: ")],
    );
}

#[test]
fn an_unreachable_cluster_is_named_by_file_name_and_address() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("kubeconfig");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: far, user: me}}}}]\n\
         clusters: [{{name: far, cluster: {{server: 'http://{free}'}}}}]\nusers: [{{name: me, user: {{}}}}]\n"
    );
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let expected = format!("kubeconfig {file}, cluster far at http://{free}: the API server did not answer");
    fails(&format!("why machine/a --kubeconfig {file}"), 1, &[&expected, "Connection refused"]);
}

#[test]
fn an_invalid_kubeconfig_is_named_and_never_quoted() {
    fails(
        "why machine/a --kubeconfig no/such/file",
        1,
        &["cannot use kubeconfig no/such/file; name a readable file"],
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, "users: [{name: a, user: {token: secret-canary, \n oops").expect("written");
    let ended = Ended::of(&mut machinist(&format!("why machine/a --kubeconfig {}", file.display())));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("expected YAML of `kind: Config`"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
}

#[test]
fn an_unusable_data_directory_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "not a directory").expect("written");
    for command in ["up", "api-server"] {
        let expected = format!("--data-dir {}: this path exists and is not a directory", file.display());
        fails(&format!("{command} --data-dir {}", file.display()), 1, &[&expected]);
    }
    let below = file.join("data").display().to_string();
    fails(
        &format!("up --data-dir {below}"),
        1,
        &[&format!("--data-dir {below}: expected a writable directory")],
    );
}

#[test]
fn the_simulated_cloud_checks_its_files_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path().display();
    let line = format!("sim-cloud --data-dir {folder} --target-server https://127.0.0.1:1 --target-ca");
    fails(&format!("{line} no/such/ca"), 1, &["--target-ca no/such/ca: cannot read the file"]);
    let not_pem = format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
    fails(&format!("{line} {not_pem}"), 1, &["expected a file with PEM certificates"]);
}

#[test]
fn a_lease_must_be_longer_than_its_renew_deadline_only() {
    // The flags are checked before the kubeconfig, which does not exist.
    let line = "machine-controller --sim-endpoint http://127.0.0.1:1 --target-kubeconfig no/such/file";
    fails(
        &format!("{line} --leader-elect-renew-deadline 15s"),
        2,
        &["leader election: invalid renew deadline; set it to less than the lease duration"],
    );
    // These flags leave less of the lease than the 1 s of a call. They are accepted; the next error
    // is about the port.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let late = format!("--leader-elect-renew-deadline 14500ms --address 127.0.0.1 --port {}", address.port());
    let expected = format!("cannot listen on {address}: ");
    fails(&format!("{line} {late}"), 1, &[&expected]);
    fails(&format!("{line} {late} --leader-elect=false"), 1, &[&expected]);
    fails(&format!("machine-controller-manager --target-kubeconfig no/such/file {late}"), 1, &[&expected]);
}

#[test]
fn a_lease_renewal_of_zero_is_an_error() {
    let line =
        "sim-cloud --data-dir d --target-server https://127.0.0.1:1 --target-ca c --node-lease-renewal";
    fails(
        &format!("{line} 0s"),
        2,
        &["--node-lease-renewal <DURATION>", "expected a duration of more than 0s"],
    );
}

#[test]
fn version_crds_and_help_print_text_and_json() {
    let version = Ended::of(&mut machinist("version"));
    assert!(version.stdout.starts_with("machinist 0."), "{}", version.stdout);
    assert_eq!(Ended::of(&mut machinist("version -o json")).result()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(Ended::of(&mut machinist("crds -o json")).result()["kind"], "List");
    let help = Ended::of(&mut machinist("--help"));
    assert_eq!(help.code, Some(0));
    assert_eq!(Ended::of(&mut machinist("help")).stdout, help.stdout);
    let of_up = Ended::of(&mut machinist("help up"));
    assert!(of_up.code == Some(0) && of_up.stdout.contains("--data-dir"), "{}", of_up.stdout);
    for word in ["machinist up --until ready", "why", "Exit codes"] {
        assert!(help.stdout.contains(word), "{}", help.stdout);
    }
}

#[test]
fn a_link_named_like_a_controller_runs_that_controller() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, flag) in
        [("machine-controller", "--sim-endpoint"), ("machine-controller-manager", "--safety-up")]
    {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_machinist"), &link).expect("linked");
        let ended = Ended::of(std::process::Command::new(&link).arg("--help"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains(flag), "{name}: {}", ended.stdout);
    }
}
