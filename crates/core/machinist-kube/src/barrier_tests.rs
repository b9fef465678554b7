//! Tests of the barrier on one thread. `tests/interleave` tests it with several threads.

use std::time::Duration;

use tokio::time::Instant;

use crate::barrier::{Barrier, Expect, OVERDUE_AFTER, Settled, WriteKind};
use crate::cluster::Cluster;
use crate::store::{Change, ObjectKey};

const SET: &str = "set";
const DEPLOYMENT: &str = "deployment";

fn expect(kind: WriteKind) -> Expect {
    Expect {
        cluster: Cluster::Control,
        resource: "machines",
        key: ObjectKey::new("ns", "m1"),
        kind,
        uid: None,
        unchanged_since: None,
    }
}

fn committed(rv: u64) -> Settled {
    Settled::Committed { uid: "u1".into(), resource_version: rv }
}

fn deleted() -> Settled {
    Settled::Deleted { uid: "u1".into() }
}

fn observe(barrier: &mut Barrier<&'static str>, rv: u64) -> Vec<&'static str> {
    barrier.observe::<()>(Cluster::Control, "machines", rv, &[])
}

fn leaving(uid: &str) -> Change<()> {
    Change {
        key: ObjectKey::new("ns", "m1"),
        uid: uid.into(),
        resource_version: 7,
        deleting: true,
        old: None,
        new: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_blocked_until_the_store_has_seen_the_write() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET, DEPLOYMENT], expect(WriteKind::Create));
    assert_eq!(barrier.blocked(&SET).expect("charged").charges, 1);
    assert!(barrier.record_outcome(charge, committed(10)).is_empty());
    assert!(observe(&mut barrier, 9).is_empty());
    assert!(barrier.blocked(&DEPLOYMENT).is_some() && barrier.blocked(&"other").is_none());
    assert_eq!(observe(&mut barrier, 10), [DEPLOYMENT, SET]);
    assert!(barrier.blocked(&SET).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_watch_may_be_faster_than_the_answer() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Update));
    observe(&mut barrier, 10);
    assert_eq!(barrier.record_outcome(charge, committed(10)), [SET]);

    let charge = barrier.open(&[SET], expect(WriteKind::Delete));
    barrier.observe(Cluster::Control, "machines", 11, &[leaving("u1")]);
    assert_eq!(barrier.record_outcome(charge, deleted()), [SET]);
}

/// A change of an object that is being deleted but still exists.
fn deleting(uid: &str) -> Change<()> {
    Change { new: Some(std::sync::Arc::new(())), ..leaving(uid) }
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_deleting_object_waits_for_its_version() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Update));
    barrier.observe(Cluster::Control, "machines", 7, &[deleting("u1")]);
    assert!(
        barrier.record_outcome(charge, committed(10)).is_empty(),
        "the older event does not show this write"
    );
    assert_eq!(observe(&mut barrier, 10), [SET]);
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_finalizer_waits_for_the_deletion() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Update));
    barrier.observe(Cluster::Control, "machines", 7, &[deleting("u1")]);
    assert!(barrier.record_outcome(charge, Settled::Gone { uid: "u1".into() }).is_empty());
    assert_eq!(barrier.observe(Cluster::Control, "machines", 8, &[leaving("u1")]), [SET]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_its_uid_and_not_for_another() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Delete));
    barrier.record_outcome(charge, deleted());
    assert!(barrier.observe(Cluster::Control, "machines", 99, &[leaving("u0")]).is_empty());
    assert_eq!(barrier.observe(Cluster::Control, "machines", 100, &[leaving("u1")]), [SET]);
}

#[tokio::test(start_paused = true)]
async fn versions_of_other_kinds_and_clusters_close_nothing() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Update));
    barrier.record_outcome(charge, committed(10));
    assert!(barrier.observe::<()>(Cluster::Target, "machines", 99, &[]).is_empty());
    assert!(barrier.observe::<()>(Cluster::workload("a/shop"), "machines", 99, &[]).is_empty());
    assert!(barrier.observe::<()>(Cluster::Control, "machinesets", 99, &[]).is_empty());
    assert!(barrier.blocked(&SET).is_some());
}

#[tokio::test(start_paused = true)]
async fn workload_clusters_are_independent() {
    let mut barrier = Barrier::new();
    let [shop, blog] = ["a/shop", "a/blog"].map(Cluster::workload);
    let charge = barrier.open(&[SET], Expect { cluster: shop.clone(), ..expect(WriteKind::Update) });
    barrier.record_outcome(charge, committed(10));
    assert!(barrier.observe::<()>(blog, "machines", 99, &[]).is_empty());
    assert_eq!(barrier.observe::<()>(shop, "machines", 10, &[]), [SET]);
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_all_of_its_charges() {
    let mut barrier = Barrier::new();
    let one = barrier.open(&[SET], expect(WriteKind::Create));
    let two = barrier.open(&[SET], expect(WriteKind::Create));
    barrier.record_outcome(one, committed(10));
    barrier.record_outcome(two, committed(11));
    assert!(observe(&mut barrier, 10).is_empty());
    assert_eq!(observe(&mut barrier, 11), [SET]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_blocks_until_the_write_is_settled() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Create));
    barrier.record_outcome(charge, Settled::Unknown);
    assert!(observe(&mut barrier, 1_000).is_empty());
    tokio::time::advance(Duration::from_secs(600)).await;
    assert!(barrier.overdue().is_empty(), "no list can settle an unknown outcome");
    assert_eq!(barrier.blocked(&SET).expect("still open").unknown, [charge]);
    assert_eq!(barrier.record_outcome(charge, committed(900)), [SET]);
}

/// The write waits for its turn in this process, and its connection ends without an answer.
#[tokio::test(start_paused = true)]
async fn an_unanswered_write_was_sent_until_it_was_given_up() {
    let mut barrier = Barrier::new();
    let opened = Instant::now();
    let charge = barrier.open(&[SET], expect(WriteKind::TakeAway));
    tokio::time::advance(Duration::from_secs(50)).await;
    barrier.record_outcome(charge, Settled::Unknown);
    let sent = barrier.unanswered(charge).expect("it is open").sent;
    assert_eq!(sent - opened, Duration::from_secs(50));
    let blocked = barrier.blocked(&SET).expect("it is open");
    assert_eq!(blocked.since, opened, "users see since when the key waits");
}

#[tokio::test(start_paused = true)]
async fn an_older_read_does_not_undo_a_certain_answer() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Create));
    barrier.record_outcome(charge, Settled::Unknown);
    assert!(barrier.record_outcome(charge, committed(10)).is_empty());
    assert!(
        barrier.record_outcome(charge, Settled::NotCommitted).is_empty(),
        "this read was sent before the write took effect"
    );
    assert!(barrier.record_outcome(charge, Settled::Unknown).is_empty());
    assert!(barrier.blocked(&SET).expect("not seen yet").unknown.is_empty());
    assert_eq!(observe(&mut barrier, 10), [SET]);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_effect_blocks_no_key() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Update));
    assert_eq!(barrier.record_outcome(charge, Settled::NotCommitted), [SET]);
    assert_eq!(barrier.record_outcome(charge, Settled::NotCommitted), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_restore_closes_only_answered_charges() {
    let mut barrier = Barrier::new();
    observe(&mut barrier, 50);
    let answered = barrier.open(&[SET], expect(WriteKind::Update));
    barrier.record_outcome(answered, committed(60));
    let sent = barrier.open(&[DEPLOYMENT], expect(WriteKind::Update));
    assert_eq!(observe(&mut barrier, 20), [SET]);
    assert!(barrier.blocked(&DEPLOYMENT).is_some());
    barrier.record_outcome(sent, committed(21));
    assert_eq!(observe(&mut barrier, 21), [DEPLOYMENT]);
    assert_eq!(barrier.metrics().restores, 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_watch_does_not_show_becomes_overdue() {
    let mut barrier = Barrier::new();
    let charge = barrier.open(&[SET], expect(WriteKind::Delete));
    barrier.record_outcome(charge, deleted());
    assert!(barrier.overdue().is_empty());
    tokio::time::advance(OVERDUE_AFTER - Duration::from_millis(1)).await;
    assert!(barrier.overdue().is_empty());
    tokio::time::advance(Duration::from_millis(1)).await;
    let overdue = barrier.overdue();
    assert_eq!((overdue.len(), overdue[0].charge), (1, charge));
    barrier.overdue();
    assert_eq!(barrier.metrics().overdue, 1, "counted once");
    assert_eq!(barrier.verified(charge), [SET]);
    assert_eq!(barrier.metrics().open, 0);
}
