//! Tests of the queue on one thread. `tests/interleave` tests it with several threads.

use std::time::Duration;

use tokio::time::{Instant, advance, timeout};

use crate::queue::KeyQueue;

fn queue() -> KeyQueue<&'static str> {
    KeyQueue::new(|_| Duration::ZERO, 1)
}

/// The next key, preceded by the seconds until the queue hands it out.
async fn next(queue: &KeyQueue<&'static str>) -> (u64, &'static str) {
    let start = Instant::now();
    let key = queue.next().await;
    (start.elapsed().as_secs(), key)
}

async fn nothing_due(queue: &KeyQueue<&'static str>) -> bool {
    timeout(Duration::from_millis(1), queue.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn keys_come_in_order_of_due_time_then_of_name() {
    let queue = queue();
    let now = Instant::now();
    queue.wake_at("late", now + Duration::from_secs(5));
    for key in ["c", "a", "b"] {
        queue.wake_at(key, now);
    }
    for expected in [(0, "a"), (0, "b"), (0, "c"), (5, "late")] {
        assert_eq!(next(&queue).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_handed_out_twice_at_once() {
    let queue = queue();
    queue.wake("a");
    assert_eq!(next(&queue).await, (0, "a"));
    queue.wake("a");
    assert!(nothing_due(&queue).await);
    queue.done(&"a");
    assert_eq!(next(&queue).await, (0, "a"));
    queue.done(&"a");
    assert!(nothing_due(&queue).await && queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_wake_wins_and_a_later_one_changes_nothing() {
    let queue = queue();
    let now = Instant::now();
    queue.wake_at("a", now + Duration::from_secs(60));
    queue.wake_at("a", now + Duration::from_secs(600));
    queue.wake_at("a", now + Duration::from_secs(6));
    assert_eq!(next(&queue).await, (6, "a"));
    queue.done(&"a");
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_key_wakes_a_waiting_worker() {
    let queue = queue();
    queue.wake_at("late", Instant::now() + Duration::from_secs(60));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { next(&queue).await }
    });
    tokio::task::yield_now().await;
    advance(Duration::from_secs(2)).await;
    queue.wake("now");
    assert_eq!(waiting.await.expect("no panic"), (2, "now"));
}

#[tokio::test(start_paused = true)]
async fn two_workers_share_a_burst() {
    let queue = queue();
    let worker = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.next().await })
    };
    let (one, two) = (worker(), worker());
    tokio::task::yield_now().await;
    queue.wake("a");
    queue.wake("b");
    let mut keys = [one.await.expect("no panic"), two.await.expect("no panic")];
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn wakes_within_the_minimum_interval_become_one() {
    let queue: KeyQueue<&str> = KeyQueue::new(|_| Duration::from_secs(10), 1);
    queue.wake("a");
    assert_eq!(next(&queue).await, (0, "a"));
    queue.wake("a");
    queue.done(&"a");
    queue.wake("a");
    assert_eq!(next(&queue).await, (10, "a"));
    queue.done(&"a");
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn retries_double_until_a_success() {
    let queue = queue();
    let delays: Vec<u64> = (0..12).map(|_| queue.retry("a").as_secs()).collect();
    let grow = delays.windows(2).all(|pair| pair[0] <= pair[1]);
    assert!(grow && delays[0] == 1 && delays[11] == 300, "{delays:?}");
    queue.forget(&"a");
    assert_eq!(queue.retry("a").as_secs(), 1);
    assert_eq!(queue.metrics().retries, 13);
}

#[tokio::test(start_paused = true)]
async fn a_wake_does_not_wait_for_a_retry() {
    let queue = queue();
    for _ in 0..8 {
        queue.retry("a");
    }
    queue.wake("a");
    assert_eq!(next(&queue).await, (0, "a"));
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_is_not_handed_out_again() {
    let queue = queue();
    queue.wake("a");
    assert_eq!(next(&queue).await, (0, "a"));
    queue.remove(&"a");
    queue.done(&"a");
    assert!(queue.is_empty() && nothing_due(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_wake_during_a_removal_is_not_lost() {
    let queue = queue();
    queue.wake("a");
    assert_eq!(next(&queue).await, (0, "a"));
    // The worker has seen that the object is deleted. Now another object has that name.
    queue.wake("a");
    queue.remove(&"a");
    queue.done(&"a");
    assert_eq!(next(&queue).await, (0, "a"));
}

#[tokio::test(start_paused = true)]
async fn the_queue_keeps_nothing_of_a_removed_key() {
    let queue: KeyQueue<&str> = KeyQueue::new(|_| Duration::from_secs(10), 1);
    queue.retry("a");
    assert_eq!(next(&queue).await, (1, "a"));
    queue.wake("a");
    queue.remove(&"a");
    queue.done(&"a");
    assert_eq!(
        next(&queue).await,
        (0, "a"),
        "another object does not wait for the interval of the deleted object"
    );
    queue.remove(&"a");
    queue.done(&"a");
    let metrics = queue.metrics();
    assert_eq!((metrics.scheduled, metrics.active, metrics.failing, metrics.resting), (0, 0, 0, 0));
}
