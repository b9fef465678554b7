//! Scenarios with a barrier and several threads. The threads use the barrier like the controllers:
//! one lock around the stores and the barrier, a charge before each write, and a wake for each key
//! that a settled or seen write unblocks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::{self, JoinHandle};
use machinist_kube::store::{Delta, Entry, ObjectKey, Store};

use crate::barrier::{Barrier, Charge, Expect, OVERDUE_AFTER, Settled, WriteKind};
use crate::cluster::Cluster;
use crate::queue::KeyQueue;
use crate::sync::{advance, block_on, in_every_order};

const SET: &str = "set";
const DEPLOYMENT: &str = "deployment";
/// Both keys count the written object.
const CHARGED: [&str; 2] = [SET, DEPLOYMENT];
const UID: &str = "u1";

/// An API server with one object, a watch of this object, and a process that writes the object.
#[derive(Clone)]
struct Rig {
    server: Arc<(Mutex<Server>, Condvar)>,
    world: Arc<Mutex<World>>,
    queue: KeyQueue<&'static str>,
    routes: Routes,
}

/// The keys that a change of the object wakes, besides the keys that the barrier unblocks.
#[derive(Clone, Copy, PartialEq)]
enum Routes {
    /// No keys: the wakes of the barrier must be enough.
    Nothing,
    /// The keys that count the object.
    Changes,
}

/// A write of this process.
#[derive(Clone, Copy)]
enum Write {
    Update,
    Delete,
    /// An update that removes the last finalizer of an object that is being deleted.
    LastFinalizer,
}

/// All events of the object, in the order in which the watch reports them. The resourceVersion of
/// an event is its position, from 1.
#[derive(Default)]
struct Server {
    log: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Written,
    Deleted,
}

struct World {
    store: Store<()>,
    barrier: Barrier<&'static str>,
}

fn object() -> ObjectKey {
    ObjectKey::new("ns", "m1")
}

fn entry(resource_version: u64) -> Entry<()> {
    Entry { uid: UID.to_owned(), resource_version, deleting: false, facts: Arc::new(()) }
}

impl Server {
    fn newest(&self) -> u64 {
        self.log.len() as u64
    }

    /// The answer to a quorum read.
    fn get(&self) -> Option<Entry<()>> {
        let written = self.log.last().is_some_and(|event| *event == Event::Written);
        written.then(|| entry(self.newest()))
    }
}

impl World {
    /// Whether the store shows the current state of the server, from the watch or from a read.
    fn shows(&self, server: &Server) -> bool {
        self.store.get(&object()).map(|entry| entry.resource_version)
            == server.get().map(|entry| entry.resource_version)
    }
}

impl Rig {
    fn new(routes: Routes) -> Self {
        let world = World { store: Store::new(&[]), barrier: Barrier::new() };
        Self {
            server: Arc::default(),
            world: Arc::new(Mutex::new(world)),
            queue: KeyQueue::new(|_| Duration::ZERO, 1),
            routes,
        }
    }

    fn spawn(&self, act: impl FnOnce(&Self) + 'static) -> JoinHandle<()> {
        let rig = self.clone();
        thread::spawn(move || act(&rig))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("unpoisoned")
    }

    fn wake(&self, keys: Vec<&'static str>) {
        keys.into_iter().for_each(|key| self.queue.wake(key));
    }

    fn open(&self, kind: WriteKind) -> Charge {
        let expect = Expect {
            cluster: Cluster::Control,
            resource: "machines",
            key: object(),
            kind,
            uid: None,
            unchanged_since: None,
        };
        self.world().barrier.open(&CHARGED, expect)
    }

    /// Commits an event at the server and returns its resourceVersion.
    fn commit(&self, event: Event) -> u64 {
        let mut server = self.server.0.lock().expect("unpoisoned");
        server.log.push(event);
        self.server.1.notify_all();
        server.newest()
    }

    fn record_outcome(&self, charge: Charge, settled: Settled) {
        let woken = self.world().barrier.record_outcome(charge, settled);
        self.wake(woken);
    }

    /// Writes the object in the same steps as `write.rs` of machinist-runtime.
    fn write(&self, write: Write) {
        let (kind, event) = match write {
            Write::Update => (WriteKind::Update, Event::Written),
            Write::Delete => (WriteKind::Delete, Event::Deleted),
            Write::LastFinalizer => (WriteKind::Update, Event::Deleted),
        };
        let charge = self.open(kind);
        let resource_version = self.commit(event);
        let uid = UID.to_owned();
        let settled = match write {
            Write::Update => Settled::Committed { uid, resource_version },
            Write::Delete => Settled::Deleted { uid },
            Write::LastFinalizer => Settled::Gone { uid },
        };
        self.record_outcome(charge, settled);
    }

    /// Applies a delta in the same steps as `take_in.rs` of machinist-runtime.
    fn take_in(&self, delta: Delta<()>) {
        let mut woken = Vec::new();
        {
            let mut world = self.world();
            let changes = world.store.apply(delta);
            let observed = world.store.observed_rv();
            woken.extend(world.barrier.observe(Cluster::Control, "machines", observed, &changes));
            if self.routes == Routes::Changes && !changes.is_empty() {
                woken.extend(CHARGED);
            }
        }
        self.wake(woken);
    }

    /// The watch: delivers this many events, each at some time after its commit.
    fn watch(&self, events: usize) {
        for place in 0..events {
            let event = {
                let mut server = self.server.0.lock().expect("unpoisoned");
                while server.log.len() <= place {
                    server = self.server.1.wait(server).expect("unpoisoned");
                }
                server.log[place]
            };
            let resource_version = place as u64 + 1;
            self.take_in(match event {
                Event::Written => Delta::Upsert(object(), entry(resource_version)),
                Event::Deleted => Delta::Delete { key: object(), uid: UID.to_owned(), resource_version },
            });
        }
    }

    /// Reads the outcome of a write in the same steps as `outcomes.rs` of machinist-runtime: with a
    /// quorum read that is applied to the store.
    fn look(&self) -> Settled {
        let known = self.world().store.get(&object()).map(|entry| entry.uid.clone());
        let found = self.server.0.lock().expect("unpoisoned").get();
        match found {
            Some(entry) => {
                let (uid, resource_version) = (entry.uid.clone(), entry.resource_version);
                self.take_in(Delta::Fetched(object(), entry));
                Settled::Committed { uid, resource_version }
            }
            None => {
                if let Some(uid) = known {
                    self.take_in(Delta::Absent { key: object(), uid });
                }
                Settled::NotCommitted
            }
        }
    }

    /// A worker that runs until it has decided about both keys on a view with this many events.
    fn decide(&self, events: usize, check: impl Fn(&World, &Server)) {
        CHARGED.iter().for_each(|key| self.queue.wake(key));
        let mut left = BTreeSet::from(CHARGED);
        while !left.is_empty() {
            let key = block_on(self.queue.next());
            let blocked = {
                let world = self.world();
                let blocked = world.barrier.blocked(&key);
                if blocked.is_none() {
                    let server = self.server.0.lock().expect("unpoisoned");
                    check(&world, &server);
                    if server.log.len() == events && world.shows(&server) {
                        left.remove(key);
                    }
                }
                blocked
            };
            for charge in blocked.into_iter().flat_map(|blocked| blocked.unknown) {
                self.record_outcome(charge, self.look());
                self.queue.wake(key);
            }
            self.queue.done(&key);
        }
        assert_eq!(self.world().barrier.metrics().open, 0);
    }
}

fn shows_every_write(world: &World, server: &Server) {
    assert!(world.shows(server), "the view of a decision lacks a write of this process");
}

#[test]
fn no_decision_precedes_the_view_of_an_own_write() {
    for last in [Write::Delete, Write::LastFinalizer] {
        in_every_order(move || {
            let rig = Rig::new(Routes::Nothing);
            let watch = rig.spawn(|rig| rig.watch(2));
            let worker = rig.spawn(|rig| rig.decide(2, shows_every_write));
            rig.write(Write::Update);
            rig.write(last);
            watch.join().expect("no panic");
            worker.join().expect("no panic");
        });
    }
}

#[test]
fn keys_wait_for_the_writes_of_all_threads() {
    in_every_order(|| {
        let rig = Rig::new(Routes::Nothing);
        let watch = rig.spawn(|rig| rig.watch(2));
        let writer = rig.spawn(|rig| rig.write(Write::Update));
        let worker = rig.spawn(|rig| rig.decide(2, shows_every_write));
        rig.write(Write::Update);
        for thread in [watch, writer, worker] {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn a_read_ahead_of_the_watch_unblocks_the_keys() {
    in_every_order(|| {
        let rig = Rig::new(Routes::Nothing);
        rig.write(Write::Update);
        advance(OVERDUE_AFTER);
        let watch = rig.spawn(|rig| rig.watch(1));
        let worker = rig.spawn(|rig| rig.decide(1, shows_every_write));
        // The same steps as `tend_barrier` of machinist-runtime.
        let overdue = rig.world().barrier.overdue();
        for late in overdue {
            rig.look();
            let woken = rig.world().barrier.verified(late.charge);
            rig.wake(woken);
        }
        watch.join().expect("no panic");
        worker.join().expect("no panic");
    });
}

#[test]
fn a_write_without_an_answer_blocks_no_key_forever() {
    in_every_order(|| {
        let rig = Rig::new(Routes::Changes);
        let charge = rig.open(WriteKind::Create);
        // The request may take effect at any time after its sender has stopped waiting.
        let network = rig.spawn(|rig| {
            rig.commit(Event::Written);
            rig.watch(1);
        });
        rig.record_outcome(charge, Settled::Unknown);
        let worker = rig.spawn(|rig| rig.decide(1, |_, _| {}));
        // The worker of the other key settles the same charge, perhaps with an older answer.
        rig.record_outcome(charge, rig.look());
        network.join().expect("no panic");
        worker.join().expect("no panic");
    });
}
