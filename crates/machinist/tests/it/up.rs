//! `machinist up`: the main job, and what it says when that cannot be done.

use crate::process::{Ended, Up, machinist};

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
    // Six for each machine, and the finalizers of class and Secret shared by three.
    let writes = result["writesPerMachine"]["machineController"].as_f64().expect("a number");
    assert!((6.0..=6.67).contains(&writes), "{result}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn everything_goes_again_and_nothing_is_left_in_the_cloud() {
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
fn people_are_told_where_the_kubeconfig_is_and_what_to_try() {
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
fn a_state_that_is_not_reached_in_time_is_exit_code_1_with_the_reason() {
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
    assert!(
        ended.stdout.contains("machine/default/a waits for MachineClass absent, which does not exist"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_manifest_is_checked_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("class.yaml");
    let class = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: a}\nproviderSpec: {}\nprovoder: sim\n";
    std::fs::write(&manifest, class).expect("written");
    let file = manifest.display();
    let ended = Ended::of(&mut machinist(&format!("up --until ready --manifest {file}")));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    let expected = format!("error: manifest {file}: document 1: MachineClass a: provoder: ");
    assert!(ended.stderr.starts_with(&expected), "{}", ended.stderr);
}

#[test]
fn what_the_api_server_refuses_is_said_in_its_words() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = folder.path().join("secret.yaml");
    std::fs::write(&manifest, "apiVersion: v1\nkind: Secret\nmetadata: {name: 'Not A Name'}\n")
        .expect("written");
    let ended = Ended::of(&mut machinist(&format!("up --until ready --manifest {}", manifest.display())));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("Secret Not A Name: the API server refuses it: "), "{}", ended.stderr);
    assert!(ended.stderr.contains("metadata.name"), "{}", ended.stderr);
}

#[test]
fn it_stops_cleanly_when_asked_and_goes_on_when_started_again() {
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
fn instances_of_an_api_server_whose_state_is_gone_are_removed() {
    let mut up = Up::start(None);
    for _ in 0..3 {
        up.process.line_with("\"state\":\"Running\"");
    }
    let Up { process, folder, .. } = up;
    process.terminate().cleanly();
    for file in ["state.redb", "up.json"] {
        std::fs::remove_file(folder.path().join(file)).expect("it is there");
    }
    let ended = Ended::of(machinist("up --until ready -o json --data-dir").arg(folder.path()));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("Removed 3 instances of an earlier run"), "{}", ended.stdout);
    let result = ended.result();
    assert_eq!((&result["instancesAlive"], &result["instancesEver"]), (&3.into(), &6.into()));
}
