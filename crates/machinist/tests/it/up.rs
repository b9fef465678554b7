//! Tests of `machinist up` and its errors.

use crate::process::{Ended, Process, Up, machinist};

#[test]
fn the_quick_start_becomes_three_ready_nodes() {
    let ended = Ended::of(&mut machinist("up --until ready -o json"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = ended.result();
    for (field, expected) in
        [("machines", 3), ("running", 3), ("nodesReady", 3), ("instancesAlive", 3), ("instancesEver", 3)]
    {
        assert_eq!(result[field], expected, "{field} of {result}");
    }
    assert_eq!(result["result"], "ready");
    let fields: Vec<&String> = result.as_object().expect("an object").keys().collect();
    let expected = [
        "instancesAlive",
        "instancesEver",
        "machines",
        "nodesReady",
        "result",
        "running",
        "seconds",
        "writesPerMachine",
    ];
    assert_eq!(fields, expected);
    // Six writes for each machine, and the finalizers of class and Secret shared by three machines.
    let writes = result["writesPerMachine"]["machineController"].as_f64().expect("a number");
    assert!((6.0..=6.67).contains(&writes), "{result}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn until_gone_deletes_everything_in_the_cloud() {
    let ended = Ended::of(&mut machinist("up --until gone -o json"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = ended.result();
    for (field, expected) in
        [("machines", 0), ("running", 0), ("nodesReady", 0), ("instancesAlive", 0), ("instancesEver", 3)]
    {
        assert_eq!(result[field], expected, "{field} of {result}");
    }
    assert_eq!(result["result"], "gone");
    assert_eq!(ended.stderr, "");
}

#[test]
fn the_output_names_the_kubeconfig_and_example_commands() {
    let ended = Ended::of(&mut machinist("up --until ready"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for part in [
        "Kubeconfig   ",
        "export KUBECONFIG=",
        "kubectl get machinedeployments,machinesets,machines,nodes",
        "kubectl scale machinedeployment workers --replicas=5",
        "machinist why machinedeployment/workers",
        "MachineDeployment workers created",
        ": Running",
        "Ready: 3 of 3 machines Running, 3 Nodes ready",
    ] {
        assert!(ended.stdout.contains(part), "expected {part:?} in\n{}", ended.stdout);
    }
}

#[test]
fn a_timeout_is_exit_code_1_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("machine.yaml");
    let machine = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: Machine\nmetadata: {name: a}\n\
                   spec: {class: {kind: MachineClass, name: absent}}\n";
    std::fs::write(&manifest, machine).expect("written");
    let line = format!("up --until ready --timeout 1s -o json --manifest {}", manifest.display());
    let ended = Ended::of(&mut machinist(&line));
    assert_eq!(ended.code, Some(1));
    let result = ended.result();
    assert_eq!(
        (&result["result"], &result["machines"], &result["instancesEver"]),
        (&"timeout".into(), &1.into(), &0.into())
    );
    assert!(ended.stdout.contains("machine/default/a: MachineClass absent not found"), "{}", ended.stdout);
}

#[test]
fn a_manifest_is_checked_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("class.yaml");
    for (fields, wrong) in [
        ("providerSpec: {size: small}\nprovoder: sim\n", "provoder: "),
        ("providerSpec: {sice: small}\nprovider: sim\n", "providerSpec.sice: expected one of the fields "),
    ] {
        let class = format!(
            "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {{name: a}}\n{fields}"
        );
        std::fs::write(&manifest, class).expect("written");
        let file = manifest.display();
        let ended = Ended::of(&mut machinist(&format!("up --until ready --manifest {file}")));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        let expected = format!("error: manifest {file}: document 1: MachineClass a: {wrong}");
        assert!(ended.stderr.starts_with(&expected), "{}", ended.stderr);
    }
}

#[test]
fn a_rejected_object_shows_the_message_of_the_api_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("secret.yaml");
    std::fs::write(&manifest, "apiVersion: v1\nkind: Secret\nmetadata: {name: 'Not A Name'}\n")
        .expect("written");
    let ended = Ended::of(&mut machinist(&format!("up --until ready --manifest {}", manifest.display())));
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("Secret Not A Name: the API server rejected the object: "),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("metadata.name"), "{}", ended.stderr);
}

#[test]
fn a_stopped_cluster_continues_at_the_next_start() {
    let mut up = Up::start(None);
    for _ in 0..3 {
        up.process.line_with("\"state\":\"Running\"");
    }
    let ledger = up.cloud("GET", "/admin/ledger", "");
    assert_eq!(ledger["entries"].as_array().map(Vec::len), Some(3));
    let Up { process, folder, .. } = up;
    process.terminate().cleanly();

    let mut again = machinist("up --until gone -o json --data-dir");
    let ended = Ended::of(again.arg(folder.path()));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = ended.result();
    assert_eq!((&result["instancesAlive"], &result["instancesEver"]), (&0.into(), &3.into()));
}

#[test]
fn a_timeout_counts_machines_by_the_wanted_number() {
    let mut up = Up::start(None);
    up.process.line_with("\"state\":\"Running\"");
    let Up { mut process, folder, .. } = up;
    process.ask_to_stop();
    let stopped: serde_json::Value =
        serde_json::from_str(&process.line_with("\"stopped\"")).expect("one JSON object");
    assert_eq!(stopped["keptIn"], folder.path().to_str().expect("a path of text"));
    process.wait().cleanly();

    let quota = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineSet\nmetadata: {name: w}\nspec: {replicas: 7, selector: \
                 {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {class: {kind: MachineClass, name: absent}}}}\n";
    let manifest = folder.path().join("set.yaml");
    std::fs::write(&manifest, quota).expect("written");
    let line = format!("up --until ready --timeout 1s --manifest {}", manifest.display());
    let ended = Ended::of(&mut machinist(&line));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("Timed out: 0 of 7 machines Running"), "{}", ended.stdout);
    for part in ["kubectl scale machineset w --replicas=5", "machinist why machineset/w"] {
        assert!(ended.stdout.contains(part), "expected {part:?} in\n{}", ended.stdout);
    }
}

#[test]
fn the_last_line_says_what_is_kept() {
    let mut process = Process::start(&mut machinist("up"));
    process.line_with("Namespace    default");
    process.ask_to_stop();
    let line = process.line_with("Stopped the API server, the controllers and ");
    assert!(line.contains("their state is not kept (use --data-dir to keep it)"), "{line}");
    assert!(!line.contains("kubeconfig"), "it was deleted: {line}");
    process.wait().cleanly();
}

#[test]
fn the_next_process_deletes_the_directory_of_a_killed_one() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let start = || {
        let mut process = Process::start(machinist("up -o json").env("TMPDIR", temporary.path()));
        let started: serde_json::Value =
            serde_json::from_str(&process.line_with("started")).expect("one JSON object");
        let kubeconfig = std::path::PathBuf::from(started["kubeconfig"].as_str().expect("a path"));
        (process, kubeconfig)
    };
    let (killed, left) = start();
    let (alive, kept) = start();
    assert!(left.exists() && kept.exists(), "the second process deleted the directory of the first");
    // Dropping a process kills it with SIGKILL.
    drop(killed);
    assert!(left.exists(), "a killed process cannot delete its directory");
    let (next, own) = start();
    assert!(!left.parent().expect("a folder").exists(), "the directory of the killed process still exists");
    assert!(kept.exists() && own.exists());
    let mode =
        std::os::unix::fs::MetadataExt::mode(&own.parent().expect("a folder").metadata().expect("it exists"));
    assert_eq!(mode & 0o777, 0o700);
    for process in [alive, next] {
        process.terminate().cleanly();
    }
    assert_eq!(std::fs::read_dir(temporary.path()).expect("a folder").count(), 0);
}

#[test]
fn a_damaged_ledger_is_named_by_line_with_the_fix() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ledger = folder.path().join("ledger.jsonl");
    std::fs::write(&ledger, "{\"what\": \"secret-canary\"}\n").expect("written");
    let mut command = machinist("up --until ready --data-dir");
    let ended = Ended::of(command.arg(folder.path()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    for part in [
        "ledger.jsonl is damaged in line 1, column ",
        "Nothing was changed. Restore ledger.jsonl from a backup. To start again without any instance, move the directory away: mv ",
    ] {
        assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("canary") && !ended.stderr.contains("written"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&ledger).expect("it exists"), "{\"what\": \"secret-canary\"}\n");

    std::fs::remove_file(&ledger).expect("removed");
    let ended = Ended::of(machinist("up --until ready --data-dir").arg(folder.path()));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let sound = std::fs::read_to_string(&ledger).expect("it exists");
    std::fs::write(&ledger, format!("{sound}{{\"oops\":\n")).expect("written");
    let ended = Ended::of(machinist("up --until ready --data-dir").arg(folder.path()));
    let lines = sound.lines().count();
    let damage = format!("is damaged in line {}, column 8: expected one JSON object", lines + 1);
    assert!(ended.stderr.contains(&damage), "{}", ended.stderr);
    let (_, advice) = ended.stderr.split_once("truncate it: ").expect("advice");
    let (command, _) = advice.split_once(". To start").expect("a command");
    let done = std::process::Command::new("sh").args(["-c", command]).status().expect("a shell");
    assert!(done.success(), "{command}");
    let ended = Ended::of(machinist("up --until ready --data-dir").arg(folder.path()));
    assert_eq!(ended.code, Some(0), "the suggested command helps\n{}", ended.stderr);
}

#[test]
fn a_manifest_may_use_its_own_namespace() {
    let quick_start = include_str!("../../quickstart.yaml");
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name}\n---\n{}",
        quick_start.replace("namespace: default", "namespace: team"),
        name = "{name: team}"
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("team.yaml");
    std::fs::write(&manifest, text).expect("written");
    let ended = Ended::of(&mut machinist(&format!(
        "up --until gone --timeout 60s --manifest {}",
        manifest.display()
    )));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "Namespace    team",
        "machinist why machinedeployment/workers -n team",
        "Gone: no machine is left, 0 instances alive of 3 ever created; ",
    ] {
        assert!(ended.stdout.contains(part), "expected {part:?} in\n{}", ended.stdout);
    }
}
