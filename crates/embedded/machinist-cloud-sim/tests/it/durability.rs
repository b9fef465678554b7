//! Everything that the cloud has answered outlives its process.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use machinist_cloud_sim::{Cloud, Code, Kept, LedgerCommit, OpenError, Settings};

use crate::{by_id, clock, create, delete, ensure, find, seconds};

#[tokio::test(start_paused = true)]
async fn a_reopened_cloud_knows_its_instances_user_data_and_disks() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock();
    let open =
        || Cloud::open(folder.path(), Settings { delete: seconds(60), ..Settings::default() }, clock.clone());
    let (stays, goes, went) = {
        let cloud = open().expect("new");
        let stays = ensure(&cloud, create("stays")).await.expect("made");
        let goes = ensure(&cloud, create("goes")).await.expect("made");
        let went = ensure(&cloud, create("went")).await.expect("made");
        cloud.disk(&stays.id).write("kubelet.pem", b"key").expect("written");
        cloud.disk(&went.id).write("kubelet.pem", b"key").expect("written");
        let disk = cloud.disk(&went.id);
        cloud.kill(&went.id).expect("it exists");
        disk.write("kubelet.pem", b"key").expect_err("the disk was deleted with its instance");
        delete(&cloud, &goes).await.expect("accepted");
        (stays, goes, went)
    };
    tokio::task::yield_now().await;
    let cloud = open().expect("the earlier cloud has closed");
    assert_eq!(find(&cloud, by_id(&stays)).await.as_ref(), Some(&stays));
    assert_eq!(cloud.user_data(&stays.id).expect("kept").expose(), b"secret-of-the-machine");
    assert_eq!(cloud.disk(&stays.id).read("kubelet.pem").expect("read").as_deref(), Some(b"key".as_slice()));
    assert_eq!(cloud.disk(&went.id).read("kubelet.pem").expect("read"), None);
    assert_eq!(ensure(&cloud, create("stays")).await.expect("found").id, stays.id);
    assert_eq!(ensure(&cloud, create("went")).await.expect_err("spent").code, Code::KeySpent);
    assert_eq!(ensure(&cloud, create("new")).await.expect("made").id.as_str(), "sim:///i-4");

    let mut following = cloud.follow();
    let gone = following.commits.recv().await.expect("the deletion in progress ends");
    assert!(matches!(&*gone, LedgerCommit::Gone { id, .. } if *id == goes.id));
}

#[tokio::test(start_paused = true)]
async fn a_new_instance_has_an_empty_disk_after_the_ledger_was_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Cloud::open(folder.path(), Settings::default(), clock()).expect("ours");
    let cloud = open();
    let lost = ensure(&cloud, create("lost")).await.expect("made");
    cloud.disk(&lost.id).write("kubelet.pem", b"key").expect("written");
    drop(cloud);
    tokio::task::yield_now().await;
    fs::remove_file(folder.path().join("ledger.jsonl")).expect("removed");
    let cloud = open();
    let made = ensure(&cloud, create("new")).await.expect("made");
    assert_eq!(made.id, lost.id, "numbers start again from 1");
    assert_eq!(cloud.disk(&made.id).read("kubelet.pem").expect("read"), None);
}

#[tokio::test(start_paused = true)]
async fn the_folder_is_private_and_locked_by_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let cloud = Cloud::open(folder.path(), Settings::default(), clock()).expect("new");
    let made = ensure(&cloud, create("a")).await.expect("made");
    cloud.disk(&made.id).write("kubelet.pem", b"key").expect("written");
    for file in ["ledger.jsonl", "disks/1/kubelet.pem"] {
        let mode = fs::metadata(folder.path().join(file)).expect(file).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let second = Cloud::open(folder.path(), Settings::default(), clock());
    assert!(matches!(second, Err(OpenError::InUse { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_partial_last_line_is_cut_and_a_damaged_line_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.jsonl");
    let open = || Cloud::open(folder.path(), Settings::default(), clock());
    ensure(&open().expect("new"), create("a")).await.expect("made");
    tokio::task::yield_now().await;
    let whole = fs::read(&path).expect("written");

    let append = |bytes: &[u8]| {
        OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(bytes))
            .expect("appended");
    };
    append(br#"{"commit":"made","entry":{"ser"#);
    {
        let cloud = open().expect("a partial line is cut off");
        assert_eq!(cloud.alive(), 1);
        assert_eq!(fs::read(&path).expect("the ledger exists"), whole);
    }
    append(b"{\"commit\":\"nonsense\"}\n");
    match open() {
        Err(OpenError::Damaged { line, .. }) => assert_eq!(line, 2),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_ledger_is_locked_and_unchanged_until_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.jsonl");
    let (clock, settings) = (clock(), Settings { delete: seconds(60), ..Settings::default() });
    let open = || Cloud::open(folder.path(), settings.clone(), clock.clone());
    assert!(Kept::read(folder.path()).expect("readable").is_none());
    assert!(!path.exists(), "reading creates no ledger");
    {
        let cloud = open().expect("new");
        let goes = ensure(&cloud, create("goes")).await.expect("made");
        ensure(&cloud, create("stays")).await.expect("made");
        delete(&cloud, &goes).await.expect("accepted");
    }
    tokio::task::yield_now().await;
    let torn = [fs::read(&path).expect("written"), br#"{"commit":"made","#.to_vec()].concat();
    fs::write(&path, &torn).expect("written");
    tokio::time::advance(seconds(60)).await;

    let kept = Kept::read(folder.path()).expect("readable").expect("a ledger");
    let ledger = kept.ledger(&clock);
    assert_eq!((ledger.ever().len(), ledger.alive().count()), (2, 1), "one deletion has ended meanwhile");
    assert!(matches!(open(), Err(OpenError::InUse { .. })));
    assert_eq!(fs::read(&path).expect("the ledger exists"), torn);
    let cloud = Cloud::resume(kept, settings.clone(), clock.clone()).expect("ours");
    assert_eq!(cloud.alive(), 1);
    let lines = fs::read_to_string(&path).expect("the ledger exists");
    assert!(lines.ends_with("}\n") && lines.contains(r#"{"commit":"gone","#), "{lines}");
}
