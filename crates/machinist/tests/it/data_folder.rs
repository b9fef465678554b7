//! Tests of `machinist up --data-dir` with missing, damaged or foreign files: the command reports
//! them and changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use machinist_apiserver::{Folder, Kept};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{Ended, Process, Up, call, client, machinist};

/// Data directory after a run of the quick start with three machines.
struct Left {
    /// Parent of the data directory. It is deleted together with directories that suggested
    /// commands move.
    parent: TempDir,
    folder: PathBuf,
}

impl Left {
    fn by_a_quick_start() -> Self {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("data");
        let left = Self { parent, folder };
        left.starts();
        left
    }

    fn up(&self, more: &str) -> Ended {
        Ended::of(machinist(&format!("up --until ready {more} --data-dir")).arg(&self.folder))
    }

    /// Asserts a successful start and returns stdout.
    fn starts(&self) -> String {
        let ended = self.up("");
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    /// Asserts a failed start without changes and returns stderr.
    #[track_caller]
    fn refuses(&self, parts: &[&str]) -> String {
        let before = self.content();
        let ended = self.up("");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
        for part in parts.iter().chain(&["othing was changed. "]) {
            assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
        }
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(before == self.content(), "a file was changed");
        ended.stderr
    }

    /// Returns the content of all files, including disks. The state is left out, because its
    /// database records each opening.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut content = BTreeMap::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let is_state = path.ends_with("state.redb")
                    && path.metadata().is_ok_and(|metadata| 1000 < metadata.len());
                let bytes = if is_state { Vec::new() } else { fs::read(&path).expect("readable") };
                content.insert(path, bytes);
            }
        }
        content
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Deletes or overwrites a file, like a full disk or a wrong command, asserts a failed start,
    /// and restores the file.
    #[track_caller]
    fn without(&self, name: &str, instead: Option<&[u8]>, parts: &[&str]) {
        let whole = fs::read(self.file(name)).expect("it exists");
        match instead {
            Some(bytes) => fs::write(self.file(name), bytes).expect("written"),
            None => fs::remove_file(self.file(name)).expect("removed"),
        }
        self.refuses(parts);
        fs::write(self.file(name), whole).expect("written");
    }
}

/// Runs the suggested command at the end of a message.
#[track_caller]
fn follow(message: &str, before: &str) {
    let (_, command) = message.trim_end().rsplit_once(before).expect("advice");
    run(command);
}

/// Runs the suggested command between two parts of a message.
#[track_caller]
fn follow_up_to(message: &str, before: &str, after: &str) {
    let (_, advice) =
        message.split_once(before).unwrap_or_else(|| panic!("expected {before:?} in {message}"));
    let (command, _) = advice.split_once(after).unwrap_or_else(|| panic!("expected {after:?} in {advice}"));
    run(command);
}

#[track_caller]
fn run(command: &str) {
    let done = Command::new("sh").args(["-c", command]).status().expect("a shell");
    assert!(done.success(), "{command}");
}

fn machine_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", kind))
}

fn machine_objects(kind: &str, client: kube::Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client, &machine_kind(kind))
}

#[test]
fn a_ledger_without_the_instances_of_machines_is_an_error() {
    let left = Left::by_a_quick_start();
    let ledger = fs::read_to_string(left.file("ledger.jsonl")).expect("a ledger");
    let name = "ledger.jsonl";
    left.without(
        name,
        None,
        &[
            "ledger.jsonl is missing, but in ",
            "state.redb 3 Machines name instances that it never recorded, such as sim:///i-",
        ],
    );
    left.without(name, Some(b""), &["ledger.jsonl is empty, but in ", "Restore ledger.jsonl from a backup"]);
    let first = format!("{}\n", ledger.lines().next().expect("a line"));
    left.without(
        name,
        Some(first.as_bytes()),
        &["ledger.jsonl has 1 instance, but in ", " 2 Machines name "],
    );
    assert!(
        left.starts().contains("Continues with the state in the data directory"),
        "the file was restored"
    );

    fs::remove_file(left.file(name)).expect("removed");
    let refusal = left.refuses(&["start again by moving the directory away: mv "]);
    follow(&refusal, "away: ");
    assert!(left.starts().contains("MachineDeployment workers created"), "the suggested command helps");
    assert!(left.parent.path().join("data.old/state.redb").exists(), "the old state is kept");
}

#[test]
fn the_ledger_of_another_directory_is_an_error() {
    let (left, other) = (Left::by_a_quick_start(), Left::by_a_quick_start());
    let ids = |left: &Left| {
        let ledger = fs::read_to_string(left.file("ledger.jsonl")).expect("a ledger");
        (1..=3).map(|number| ledger.contains(&format!("\"sim:///i-{number}\""))).collect::<Vec<_>>()
    };
    assert_eq!((ids(&left), ids(&other)), (vec![true; 3], vec![true; 3]), "both ledgers have the same ids");
    let ledger = fs::read(other.file("ledger.jsonl")).expect("a ledger");
    left.without(
        "ledger.jsonl",
        Some(&ledger),
        &[
            "ledger.jsonl has 3 instances, but in ",
            " 3 Machines name instances that it never recorded or created for other Machines, such as sim:///i-",
            "The ledger does not belong to these Machines. ",
        ],
    );
    left.starts();
}

#[test]
fn with_two_missing_files_nothing_is_changed() {
    let left = Left::by_a_quick_start();
    let ledger = fs::read_to_string(left.file("ledger.jsonl")).expect("a ledger");
    // The first line and an incomplete second line, as after a crash.
    let torn: String = ledger.chars().take(ledger.find('\n').expect("a line") + 20).collect();
    let key = fs::read(left.file("tokens.key")).expect("a key");

    fs::remove_file(left.file("tokens.key")).expect("removed");
    left.without("ledger.jsonl", None, &["tokens.key is missing"]);
    left.without("ledger.jsonl", Some(torn.as_bytes()), &["tokens.key is missing"]);
    fs::write(left.file("tokens.key"), key).expect("written");

    fs::remove_file(left.file("up.json")).expect("removed");
    left.without("ledger.jsonl", None, &["ledger.jsonl is missing"]);
    left.without("ledger.jsonl", Some(torn.as_bytes()), &["ledger.jsonl has 1 instance"]);
    let state = fs::read(left.file("state.redb")).expect("a state");
    fs::remove_file(left.file("state.redb")).expect("removed");
    left.without(
        "ledger.jsonl",
        Some(torn.as_bytes()),
        &["state.redb (the API server's objects) is missing", "1 instance is alive"],
    );
    fs::write(left.file("state.redb"), state).expect("written");
    assert!(left.starts().contains("up.json is missing. Continuing in namespace default"));
}

#[tokio::test]
async fn instances_of_a_damaged_ledger_can_be_given_up_alone() {
    let left = Left::by_a_quick_start();
    let ledger = fs::read_to_string(left.file("ledger.jsonl")).expect("a ledger");
    let second = ledger.match_indices("{\"commit\":\"made\"").nth(1).expect("three were made").0;
    fs::write(left.file("ledger.jsonl"), format!("{}x{}", &ledger[..second], &ledger[second..]))
        .expect("written");
    let refusal = left.refuses(&[
        "ledger.jsonl is damaged in line 2, column 1: expected one JSON object. Nothing was changed. Restore ledger.jsonl from a \
         backup. Without a backup, you can keep lines 1 to 1. Records from line 2 on are then lost. ",
    ]);
    follow_up_to(&refusal, "truncate it: ", ". To start");
    let refusal = left.refuses(&["ledger.jsonl has 1 instance, but in ", " 2 Machines name "]);

    follow_up_to(&refusal, "serve an unused namespace: ", " && machinist up --data-dir ");
    let mut process = Process::start(machinist("up --data-dir").arg(&left.folder));
    process
        .line_with("2 Machines in other namespaces name instances that this cloud did not create for them");
    process.line_with("Continues with the state in the data directory");
    let client = client(&left.file("kubeconfig")).await;
    let (machines, nodes) = (machine_objects("Machine", client.clone()), Api::<Node>::all(client));
    let kept = fs::read_to_string(left.file("ledger.jsonl")).expect("a ledger");
    for machine in machines.list(&ListParams::default()).await.expect("listed").items {
        if kept.contains(&machine.uid().expect("a uid")) {
            continue;
        }
        let freed = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let name = machine.name_any();
        machines.patch(&name, &PatchParams::default(), &freed).await.expect("patched");
        machines.delete(&name, &DeleteParams::default()).await.expect("deleted");
        let node = &machine.labels()["node"];
        nodes.patch(node, &PatchParams::default(), &freed).await.expect("patched");
        nodes.delete(node, &DeleteParams::default()).await.expect("deleted");
    }
    process.terminate().cleanly();
    follow_up_to(&refusal, "start it again after: ", ". Or start again");
    let ended = left.up("-o json --timeout 60s");
    let result = ended.result();
    for (field, expected) in [("running", 3), ("nodesReady", 3), ("instancesAlive", 3), ("instancesEver", 3)]
    {
        assert_eq!(result[field], expected, "{field} of {result}");
    }
}

#[tokio::test]
async fn machines_in_other_namespaces_may_use_another_cloud() {
    let left = Left::by_a_quick_start();
    let mut process = Process::start(machinist("up --data-dir").arg(&left.folder));
    process.line_with("Continues with the state in the data directory");
    let client = client(&left.file("kubeconfig")).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team = serde_json::from_value(json!({"metadata": {"name": "team"}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &team).await.expect("created");
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "restored", "namespace": "team", "labels": {"node": "restored"}},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": "sim:///i-70"}
    });
    let machines: Api<DynamicObject> = Api::namespaced_with(client, "team", &machine_kind("Machine"));
    let machine = serde_json::from_value(machine).expect("an object");
    machines.create(&PostParams::default(), &machine).await.expect("created");
    process.terminate().cleanly();
    let printed = left.starts();
    let remark = "1 Machine in another namespace names an instance that this cloud did not create for them, such as sim:///i-70 of \
                  Machine team/restored. The controllers serve only namespace default and ignore them";
    assert!(printed.contains(remark), "{printed}");

    fs::write(left.file("up.json"), r#"{"namespace":"team"}"#).expect("written");
    left.refuses(&[
        " 1 Machine names an instance that it never recorded: sim:///i-70 of Machine team/restored. ",
    ]);
    // A manifest determines the served namespace.
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    let ended = left.up(&format!("--manifest {manifest}"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn a_manifest_replaces_a_lost_note() {
    let left = Left::by_a_quick_start();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    let apply = || {
        let ended = left.up(&format!("--manifest {manifest}"));
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("MachineDeployment workers updated"), "{}", ended.stdout);
        let note = fs::read_to_string(left.file("up.json")).expect("written again");
        assert_eq!(note, r#"{"namespace":"default"}"#);
    };
    fs::write(left.file("up.json"), "-").expect("written");
    apply();
    fs::remove_file(left.file("up.json")).expect("removed");
    apply();
    fs::write(left.file("up.json"), r#"{"namespace":"default","unfinished":true}"#).expect("written");
    apply();
}

#[test]
fn an_interrupted_quick_start_is_applied_again() {
    let left = Left::by_a_quick_start();
    let unfinished = r#"{"namespace":"default","unfinished":true}"#;
    fs::write(left.file("up.json"), unfinished).expect("written");
    assert!(left.starts().contains("MachineDeployment workers updated"), "the existing object is updated");
    assert!(left.starts().contains("the quick start is not applied again"), "the quick start is complete");

    let ended = Ended::of(machinist("up --until gone --data-dir").arg(&left.folder));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    fs::write(left.file("up.json"), unfinished).expect("written");
    assert!(left.starts().contains("MachineDeployment workers created"), "the objects did not exist");
}

#[test]
fn a_state_with_only_definitions_gets_the_quick_start() {
    let left = Left::by_a_quick_start();
    let ended = Ended::of(machinist("up --until gone --data-dir").arg(&left.folder));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    // The state after a kill that follows the installation of the definitions.
    fs::remove_file(left.file("up.json")).expect("removed");
    assert!(left.starts().contains("MachineDeployment workers created"));
}

#[test]
fn a_deleted_instance_does_not_prevent_the_start() {
    let mut up = Up::start(None);
    for _ in 0..3 {
        up.process.line_with("\"state\":\"Running\"");
    }
    let ledger = up.cloud("GET", "/admin/ledger", "");
    let id = ledger.pointer("/entries/0/id").expect("an instance");
    up.cloud("POST", "/admin/kill", &json!({"id": id}).to_string());
    let stranger = json!({"name": "stranger", "created": "2026-01-01T00:00:00Z", "instanceType": "small"});
    up.cloud("POST", "/admin/load", &stranger.to_string());
    let Up { process, folder, .. } = up;
    // Dropping a process kills it with SIGKILL.
    drop(process);
    let mut process = Process::start(machinist("up --data-dir").arg(folder.path()));
    let printed =
        process.line_with("1 instance in the cloud belongs to no Machine, such as sim:///i-4 (stranger)");
    process.line_with("Continues with the state in the data directory");
    // Send the request of the suggested curl command.
    let (_, advice) = printed.trim_end().split_once("To delete this one: curl -d '").expect("advice");
    let (body, url) = advice.split_once("' ").expect("a body and a URL");
    let cloud = url.strip_suffix("/admin/kill").expect("the URL of the cloud");
    call(cloud, "POST", "/admin/kill", body);
    let ledger = call(cloud, "GET", "/admin/ledger", "");
    assert!(ledger.pointer("/entries/3/deleted").is_some_and(|at| at.is_string()), "{ledger}");
    process.terminate().cleanly();
}

#[test]
fn a_lost_state_with_alive_instances_is_an_error() {
    let left = Left::by_a_quick_start();
    fs::remove_file(left.file("state.redb")).expect("removed");
    let files = "is missing, but ca.crt, ca.key, tokens.key and up.json exist, and 3 instances are alive in ";
    left.refuses(&["state.redb (the API server's objects) ", files, "Restore state.redb from a backup"]);
    for file in ["ca.crt", "ca.key", "tokens.key", "up.json"] {
        fs::remove_file(left.file(file)).expect("removed");
    }
    let refusal =
        left.refuses(&["state.redb (the API server's objects) is missing, but 3 instances are alive in "]);
    follow(&refusal, "away: ");
    left.starts();
}

#[test]
fn a_killed_first_start_can_be_repeated() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let begin = |name: &str, files: &[&str]| {
        let folder = parent.path().join(name);
        fs::create_dir(&folder).expect("created");
        for file in files {
            fs::write(folder.join(file), "").expect("written");
        }
        folder
    };
    let with_state = begin("d", &["lock", "ledger.jsonl"]);
    Kept::open(Folder::open(&with_state).expect("free")).expect("a new state");
    let with_half_of_the_keys = begin("e", &["lock", "ledger.jsonl", "ca.key"]);
    Kept::open(Folder::open(&with_half_of_the_keys).expect("free")).expect("a new state");
    let whole = Left::by_a_quick_start();
    let with_keys = |name: &str, keys: &[&str]| {
        let folder = begin(name, &["lock", "ledger.jsonl"]);
        for key in keys {
            fs::copy(whole.file(key), folder.join(key)).expect("copied");
        }
        Kept::open(Folder::open(&folder).expect("free")).expect("a new state");
        folder
    };
    for folder in [
        with_keys("f", &["ca.key", "ca.crt"]),
        with_keys("g", &["ca.key", "ca.crt", "tokens.key"]),
        begin("a", &[]),
        begin("b", &["lock"]),
        begin("c", &["lock", "ledger.jsonl", "state.redb.new"]),
        with_state,
        with_half_of_the_keys,
    ] {
        let ended = Ended::of(machinist("up --until ready --data-dir").arg(&folder));
        assert_eq!(ended.code, Some(0), "{}: {}{}", folder.display(), ended.stdout, ended.stderr);
    }
}

#[test]
fn a_damaged_or_missing_file_is_named_with_the_fix() {
    let left = Left::by_a_quick_start();
    let helps = "Restore the file from a backup, or start again by moving the directory away: mv ";
    let garbage: Option<&[u8]> = Some(b"garbage \xff");
    left.without("state.redb", Some(b""), &["state.redb is damaged: it is empty. ", helps]);
    left.without(
        "state.redb",
        garbage,
        &["state.redb holds something else than the state of an API server", helps],
    );
    left.without("ca.key", None, &["ca.key is missing: expected the private key of ca.crt. ", helps]);
    left.without("ca.key", garbage, &["ca.key is damaged: expected ", helps]);
    left.without(
        "ca.crt",
        None,
        &["ca.crt is missing: expected the certificate that kubeconfigs and Nodes trust. ", helps],
    );
    left.without(
        "ca.crt",
        Some(b"-"),
        &["ca.crt is damaged: expected the certificate of an authority, in PEM. ", helps],
    );
    left.without(
        "tokens.key",
        None,
        &["tokens.key is missing: expected the key that signed the tokens ", helps],
    );
    left.without("tokens.key", Some(b"-"), &["tokens.key is damaged: expected a private ECDSA key", helps]);
    left.without("up.json", Some(b"-"), &["up.json is damaged: expected {\"namespace\":\"NAME\"}", "echo '"]);

    fs::write(left.file("up.json"), "-").expect("written");
    let refusal = left.refuses(&["or write it again: "]);
    follow(&refusal, "again: ");
    left.starts();

    fs::remove_file(left.file("up.json")).expect("removed");
    fs::create_dir(left.file("up.json")).expect("created");
    let refusal = left.refuses(&["up.json cannot be read or written: Is a directory"]);
    assert!(!refusal.contains("write it again"), "an unreadable file may be valid: {refusal}");
}

#[test]
fn a_ledger_lost_together_with_the_note_is_reported() {
    let left = Left::by_a_quick_start();
    let ended = Ended::of(machinist("up --until gone --data-dir").arg(&left.folder));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    fs::remove_file(left.file("up.json")).expect("removed");
    fs::remove_file(left.file("ledger.jsonl")).expect("removed");
    let ended = left.up(&format!("--manifest {manifest}"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("ledger.jsonl is missing. No Machine in namespace default"),
        "{}",
        ended.stdout
    );
}

#[tokio::test]
async fn a_quick_start_is_checked_only_if_it_is_applied() {
    let left = Left::by_a_quick_start();
    let mut process = Process::start(machinist("up --data-dir").arg(&left.folder));
    process.line_with("Continues with the state in the data directory");
    let secrets: Api<Secret> = Api::default_namespaced(client(&left.file("kubeconfig")).await);
    let changed =
        Patch::Merge(json!({"immutable": true, "stringData": {"userData": "changed by its owner"}}));
    secrets.patch("workers", &PatchParams::default(), &changed).await.expect("patched");
    process.terminate().cleanly();
    assert!(left.starts().contains("the quick start is not applied again"));
}

#[test]
fn recreated_files_are_reported() {
    let left = Left::by_a_quick_start();
    for file in ["up.json", "kubeconfig"] {
        fs::remove_file(left.file(file)).expect("removed");
    }
    let printed = left.starts();
    for part in [
        "up.json is missing. Continuing in namespace default, which has the machine objects",
        "kubeconfig is missing or damaged and is written again",
        "the quick start is not applied again",
    ] {
        assert!(printed.contains(part), "expected {part:?} in {printed}");
    }
    let note = fs::read_to_string(left.file("up.json")).expect("written again");
    assert_eq!(note, r#"{"namespace":"default"}"#);
}

#[test]
fn machines_without_disks_do_not_become_ready_again() {
    let left = Left::by_a_quick_start();
    fs::remove_dir_all(left.file("disks")).expect("removed");
    let ended = left.up("--timeout 2s");
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    for part in [
        "3 machines have lost the certificates on their disks",
        "has not reported since the start",
        "Timed out: 3 of 3 machines Running, 0 Nodes ready",
    ] {
        assert!(ended.stdout.contains(part), "expected {part:?} in {}", ended.stdout);
    }
}

#[test]
fn a_directory_with_other_files_stays_unchanged() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().to_owned();
    fs::write(folder.join("notes.txt"), "mine").expect("written");
    let left = Left { parent, folder };
    left.refuses(&["expected an empty directory or one of an earlier run", "such as notes.txt"]);
    // Many programs create a lock file.
    fs::write(left.file("lock"), "").expect("written");
    fs::write(left.file("state.redb.new"), "").expect("written");
    left.refuses(&["expected an empty directory or one of an earlier run", "such as notes.txt"]);
    fs::rename(left.file("notes.txt"), left.file("lost+found")).expect("renamed");
    left.starts();
}

#[tokio::test]
async fn a_full_disk_is_one_error_and_keeps_acknowledged_writes() {
    let left = Left::by_a_quick_start();
    // The limit of blocks per file makes writes fail like on a full disk, because the signal is
    // ignored.
    let limited = "trap '' XFSZ; ulimit -f 3072; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    let folder = &left.folder;
    command
        .args(["-c", limited, env!("CARGO_BIN_EXE_machinist"), "up", "-o", "json", "--data-dir"])
        .arg(folder);
    let mut process = Process::start(&mut command);
    process.line_with("Continues with the state in the data directory");
    let deployments = machine_objects("MachineDeployment", client(&folder.join("kubeconfig")).await);
    let patch = Patch::Merge(json!({"spec": {"replicas": 150}}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
    let stopped = process.wait();
    assert_eq!(stopped.code, Some(1));
    for part in ["state.redb can no longer be written: I/O error: ", "start again: machinist up --data-dir "]
    {
        assert!(stopped.stderr.contains(part), "expected {part:?} in {}", stopped.stderr);
    }
    // A controller may also log a warning about a write that failed just before.
    let errors = stopped.stderr.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{}", stopped.stderr);

    let ended = left.up("-o json");
    let result = ended.result();
    assert_eq!((ended.code, &result["machines"]), (Some(0), &150.into()), "{result}");
    assert_eq!((&result["instancesAlive"], &result["instancesEver"]), (&150.into(), &150.into()), "{result}");
}

#[test]
fn files_deleted_during_the_run_are_reported() {
    let left = Left::by_a_quick_start();
    let stopped_after = |flags: &str, remove: &dyn Fn()| {
        let mut process = Process::start(machinist(&format!("up {flags} --data-dir")).arg(&left.folder));
        process.line_with("Continues with the state in the data directory");
        remove();
        process.ask_to_stop();
        let stopped =
            process.line_with(if flags.is_empty() { "Stopped the API server" } else { "\"stopped\"" });
        process.wait().cleanly();
        stopped
    };
    let key = fs::read(left.file("ca.key")).expect("a key");
    let remove_key = || fs::remove_file(left.file("ca.key")).expect("removed");
    let stopped = stopped_after("-o json", &remove_key);
    assert!(stopped.contains("\"keptIn\":null,\"lostFiles\":[\"ca.key\"]"), "{stopped}");
    fs::write(left.file("ca.key"), key).expect("written");

    let stopped = stopped_after("", &|| {
        // The program still writes: a file that it adds would make the removal of its directory
        // fail. Under another name it finds the directory no longer.
        let moved = left.folder.with_extension("removed");
        fs::rename(&left.folder, &moved).expect("moved");
        fs::remove_dir_all(moved).expect("removed");
    });
    let lost = format!(
        "; {} lost state.redb, ledger.jsonl, ca.crt, ca.key and tokens.key during this run; ",
        left.folder.display()
    );
    assert!(stopped.contains(&lost), "{stopped}");
    for untrue in ["use --data-dir to keep", "kubeconfig", "continue with: "] {
        assert!(!stopped.contains(untrue), "{untrue:?} in {stopped}");
    }
}
