//! `machinist up --data-dir` on a folder from which something is missing, in which something is damaged, or that is somebody else's: it says so
//! and changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use machinist_apiserver::{Folder, Kept};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{Ended, Process, Up, client, machinist};

/// What a run of the quick start leaves: three machines.
struct Left {
    /// Everything is below it, so that what an advised command moves away goes with it.
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

    /// What it says when it starts and everything runs.
    fn starts(&self) -> String {
        let ended = self.up("");
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    /// What it says when it does not start.
    #[track_caller]
    fn refuses(&self, parts: &[&str]) -> String {
        let before = self.content();
        let ended = self.up("");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
        for part in parts.iter().chain(&["othing was changed. "]) {
            assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
        }
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(before == self.content(), "something was changed");
        ended.stderr
    }

    /// Every file but the state, whose database notes that it was opened.
    fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries =
            fs::read_dir(&self.folder).expect("a folder").map(|entry| entry.expect("a file").path());
        let files = entries.filter(|path| path.is_file());
        let content = |path: &Path| {
            let is_state = path.ends_with("state.redb") && path.metadata().is_ok_and(|it| 1000 < it.len());
            if is_state { Vec::new() } else { fs::read(path).expect("readable") }
        };
        files.map(|path| (path.clone(), content(&path))).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Does the same to a file as a full disk, a wrong `rm` or a careless copy, looks, and brings the file back.
    #[track_caller]
    fn without(&self, name: &str, instead: Option<&[u8]>, parts: &[&str]) {
        let whole = fs::read(self.file(name)).expect("it is there");
        match instead {
            Some(bytes) => fs::write(self.file(name), bytes).expect("written"),
            None => fs::remove_file(self.file(name)).expect("removed"),
        }
        self.refuses(parts);
        fs::write(self.file(name), whole).expect("written");
    }
}

/// Does what a message advises.
#[track_caller]
fn follow(message: &str, before: &str) {
    let (_, command) = message.trim_end().rsplit_once(before).expect("advice");
    let done = Command::new("sh").args(["-c", command]).status().expect("a shell");
    assert!(done.success(), "{command}");
}

#[test]
fn a_cloud_that_has_lost_instances_which_machines_name_does_not_start() {
    let left = Left::by_a_quick_start();
    let ledger = fs::read_to_string(left.file("ledger.jsonl")).expect("a ledger");
    let name = "ledger.jsonl";
    left.without(
        name,
        None,
        &[
            "ledger.jsonl is missing, and in ",
            "state.redb 3 Machines name instances that it never had, such as sim:///i-",
        ],
    );
    left.without(name, Some(b""), &["ledger.jsonl is empty, and in ", "Bring ledger.jsonl back from a copy"]);
    let first = format!("{}\n", ledger.lines().next().expect("a line"));
    left.without(
        name,
        Some(first.as_bytes()),
        &["ledger.jsonl knows 1 instance, and in ", " 2 Machines name "],
    );
    assert!(left.starts().contains("Goes on with what the data folder holds"), "the file is back");

    fs::remove_file(left.file(name)).expect("removed");
    let refusal = left.refuses(&["start anew by moving the folder away: mv "]);
    follow(&refusal, "away: ");
    assert!(left.starts().contains("MachineDeployment workers created"), "what is advised helps");
    assert!(left.parent.path().join("data.old/state.redb").exists(), "and loses nothing");
}

#[test]
fn an_instance_that_somebody_deleted_is_no_reason_not_to_start() {
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
    process.line_with("1 instance in the cloud belongs to no Machine, such as sim:///i-4 (stranger)");
    process.line_with("Goes on with what the data folder holds");
    process.terminate().cleanly();
}

#[test]
fn a_lost_state_lets_nobody_delete_the_instances_that_it_knew() {
    let left = Left::by_a_quick_start();
    fs::remove_file(left.file("state.redb")).expect("removed");
    let files = "ca.crt, ca.key, tokens.key and up.json, which belong to it, are there, and 3 instances are alive in ";
    left.refuses(&["state.redb is missing, the API server's objects; ", files, "Bring state.redb back"]);
    for file in ["ca.crt", "ca.key", "tokens.key", "up.json"] {
        fs::remove_file(left.file(file)).expect("removed");
    }
    let refusal =
        left.refuses(&["state.redb is missing, the API server's objects; 3 instances are alive in "]);
    follow(&refusal, "away: ");
    left.starts();
}

#[test]
fn a_first_start_that_was_killed_at_any_moment_is_a_first_start_again() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let begin = |name: &str, files: &[&str]| {
        let folder = parent.path().join(name);
        fs::create_dir(&folder).expect("made");
        for file in files {
            fs::write(folder.join(file), "").expect("written");
        }
        folder
    };
    let with_state = begin("d", &["lock", "ledger.jsonl"]);
    Kept::open(Folder::open(&with_state).expect("free")).expect("a new state");
    let with_half_of_the_keys = begin("e", &["lock", "ledger.jsonl", "ca.key"]);
    Kept::open(Folder::open(&with_half_of_the_keys).expect("free")).expect("a new state");
    for folder in [
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
fn a_file_that_is_damaged_or_gone_is_named_with_what_was_expected_and_what_helps() {
    let left = Left::by_a_quick_start();
    let helps = "Bring the file back from a copy of the folder; or start anew by moving the folder away: mv ";
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
    let refusal = left.refuses(&["or write it anew: "]);
    follow(&refusal, "anew: ");
    left.starts();
}

#[test]
fn what_can_be_made_again_is_and_what_heals_by_itself_is_told() {
    let left = Left::by_a_quick_start();
    for file in ["up.json", "kubeconfig"] {
        fs::remove_file(left.file(file)).expect("removed");
    }
    fs::remove_dir_all(left.file("disks")).expect("removed");
    let told = left.starts();
    for part in [
        "up.json is missing; goes on in namespace default, where the machine objects are",
        "kubeconfig is missing or damaged, and is written again",
        "3 machines have lost the certificates on their disks",
        "the quick start is not applied again",
    ] {
        assert!(told.contains(part), "expected {part:?} in {told}");
    }
    let note = fs::read_to_string(left.file("up.json")).expect("written again");
    assert_eq!(note, r#"{"namespace":"default"}"#);
}

#[test]
fn a_folder_that_holds_other_things_is_left_as_it_is() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().to_owned();
    fs::write(folder.join("notes.txt"), "mine").expect("written");
    let left = Left { parent, folder };
    left.refuses(&["expected a new or empty folder, or one that an earlier run left", "such as notes.txt"]);
    fs::rename(left.file("notes.txt"), left.file("lost+found")).expect("renamed");
    left.starts();
}

#[tokio::test]
async fn a_full_disk_ends_it_with_one_line_and_what_was_answered_is_kept() {
    let left = Left::by_a_quick_start();
    // No file may grow beyond so many blocks; without the signal a write fails as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 3072; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    let folder = &left.folder;
    command
        .args(["-c", limited, env!("CARGO_BIN_EXE_machinist"), "up", "-o", "json", "--data-dir"])
        .arg(folder);
    let mut process = Process::start(&mut command);
    process.line_with("Goes on with what the data folder holds");
    let kind = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", "MachineDeployment");
    let client = client(&folder.join("kubeconfig")).await;
    let deployments: Api<DynamicObject> = Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind));
    let patch = Patch::Merge(json!({"spec": {"replicas": 150}}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
    let stopped = process.wait();
    assert_eq!(stopped.code, Some(1));
    for part in
        ["state.redb cannot be written any more: I/O error: ", "start again: machinist up --data-dir "]
    {
        assert!(stopped.stderr.contains(part), "expected {part:?} in {}", stopped.stderr);
    }
    assert_eq!(stopped.stderr.lines().count(), 1, "{}", stopped.stderr);

    let ended = left.up("-o json");
    let result = ended.result();
    assert_eq!((ended.code, &result["machines"]), (Some(0), &150.into()), "{result}");
    assert_eq!((&result["instancesAlive"], &result["instancesEver"]), (&150.into(), &150.into()), "{result}");
}
