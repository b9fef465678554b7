//! Scenarios with a queue and several threads.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::queue::{KeyQueue, QueueMetrics};
use crate::sync::{Instant, advance, block_on, in_every_order, poll_once};

type Queue = KeyQueue<&'static str>;

fn queue() -> Queue {
    KeyQueue::new(|_| Duration::ZERO, 1)
}

/// The object of a key: a version that a watch increments. The watch wakes the key after each
/// increment.
#[derive(Default)]
struct Object {
    version: Mutex<usize>,
}

impl Object {
    fn change(&self, queue: &Queue) {
        *self.version.lock().expect("unpoisoned") += 1;
        queue.wake("object");
    }

    fn look(&self) -> usize {
        *self.version.lock().expect("unpoisoned")
    }
}

/// Deletes the object, and checks that the queue keeps nothing of its key.
fn nothing_is_left(queue: &Queue) {
    queue.wake("object");
    let key = block_on(queue.next());
    queue.remove(&key);
    queue.done(&key);
    let QueueMetrics { scheduled, active, failing, resting, .. } = queue.metrics();
    assert_eq!((scheduled, active, failing, resting), (0, 0, 0, 0));
}

#[test]
fn an_object_created_during_a_removal_is_reconciled() {
    in_every_order(|| {
        let queue = KeyQueue::new(|_| Duration::from_secs(10), 1);
        let object = Arc::new(Object::default());
        queue.retry("object");
        advance(Duration::from_secs(2));
        let watch = thread::spawn({
            let (queue, object) = (queue.clone(), object.clone());
            move || object.change(&queue)
        });
        loop {
            let key = block_on(queue.next());
            let is_gone = object.look() == 0;
            if is_gone {
                queue.remove(&key);
            }
            queue.done(&key);
            if !is_gone {
                break;
            }
        }
        watch.join().expect("no panic");
        advance(Duration::from_secs(10));
        nothing_is_left(&queue);
    });
}

#[test]
fn the_last_change_is_seen_by_one_worker_at_a_time() {
    const CHANGES: usize = 2;
    in_every_order(|| {
        let queue = queue();
        let object = Arc::new(Object::default());
        let is_held = Arc::new(AtomicBool::new(false));
        let worker = || {
            let (queue, object, is_held) = (queue.clone(), object.clone(), is_held.clone());
            move || {
                loop {
                    let key = block_on(queue.next());
                    if key == "stop" {
                        queue.done(&key);
                        return;
                    }
                    assert!(
                        !is_held.swap(true, Ordering::SeqCst),
                        "two workers have the key at the same time"
                    );
                    let seen = object.look();
                    is_held.store(false, Ordering::SeqCst);
                    queue.done(&key);
                    if seen == CHANGES {
                        // Stops the other worker, which would otherwise wait forever for another
                        // change.
                        queue.wake("stop");
                        return;
                    }
                }
            }
        };
        let one = thread::spawn(worker());
        let changes = thread::spawn({
            let (queue, object) = (queue.clone(), object.clone());
            move || (0..CHANGES).for_each(|_| object.change(&queue))
        });
        worker()();
        one.join().expect("no panic");
        changes.join().expect("no panic");
    });
}

#[test]
fn a_burst_reaches_every_worker() {
    in_every_order(|| {
        let queue = queue();
        // Each worker keeps its key, so no worker can take both keys.
        let worker = || {
            let queue = queue.clone();
            move || block_on(queue.next())
        };
        let (one, two) = (thread::spawn(worker()), thread::spawn(worker()));
        let wakes = thread::spawn({
            let queue = queue.clone();
            move || queue.wake("a")
        });
        queue.wake("b");
        wakes.join().expect("no panic");
        let mut keys = [one.join().expect("no panic"), two.join().expect("no panic")];
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b"]);
    });
}

#[test]
fn a_worker_that_stops_waiting_loses_no_wake() {
    in_every_order(|| {
        let queue = queue();
        let fickle = thread::spawn({
            let queue = queue.clone();
            move || {
                if let Some(key) = poll_once(queue.next()) {
                    queue.wake(key);
                    queue.done(&key);
                }
            }
        });
        let wakes = thread::spawn({
            let queue = queue.clone();
            move || queue.wake("a")
        });
        assert_eq!(block_on(queue.next()), "a");
        fickle.join().expect("no panic");
        wakes.join().expect("no panic");
    });
}

#[test]
fn a_wake_within_the_minimum_interval_waits_for_its_end() {
    const INTERVAL: Duration = Duration::from_secs(10);
    in_every_order(|| {
        let queue: Queue = KeyQueue::new(|_| INTERVAL, 1);
        let object = Arc::new(Object::default());
        let passes = Arc::new((Mutex::new(0), Condvar::new()));
        queue.wake("object");
        let worker = thread::spawn({
            let (queue, object, passes) = (queue.clone(), object.clone(), passes.clone());
            move || {
                for pass in 0.. {
                    let key = block_on(queue.next());
                    let start = Instant::now();
                    let seen = object.look();
                    queue.done(&key);
                    *passes.0.lock().expect("unpoisoned") += 1;
                    passes.1.notify_all();
                    assert!(
                        Instant::now() + INTERVAL * pass <= start + INTERVAL,
                        "pass {pass} came too early"
                    );
                    if seen == 1 {
                        return;
                    }
                }
            }
        });
        let watch = thread::spawn({
            let (queue, object) = (queue.clone(), object.clone());
            move || object.change(&queue)
        });
        let mut done = passes.0.lock().expect("unpoisoned");
        while *done == 0 {
            done = passes.1.wait(done).expect("unpoisoned");
        }
        drop(done);
        advance(INTERVAL);
        worker.join().expect("no panic");
        watch.join().expect("no panic");
    });
}
