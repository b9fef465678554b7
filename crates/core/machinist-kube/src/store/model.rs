//! Compares a store with a model of the API server: random histories, a watch that lags, and reads
//! with late and unordered answers.
//!
//! The model keeps the whole history. So it knows which states of an object are still possible
//! after the deltas that the store has received.

use std::collections::BTreeMap;

use super::*;
use crate::backoff::Jitter;

const NAMES: [&str; 3] = ["a", "b", "c"];
const COLOURS: [&str; 2] = ["red", "blue"];

/// State of an object at the server; `None` if no object has that name.
type State = Option<Entry<String>>;

#[derive(Clone, Default)]
struct Server {
    /// All changes, with their resourceVersions.
    history: Vec<(u64, ObjectKey, State)>,
    resource_version: u64,
    uids: u64,
    /// The last resourceVersion before a restore. Up to this version the model does not update
    /// restored objects, because a store cannot distinguish two versions of an object with the same
    /// resourceVersion.
    lost_until: u64,
}

impl Server {
    fn at(&self, key: &ObjectKey, rv: u64) -> State {
        let until = self.history.iter().take_while(|(at, _, _)| *at <= rv);
        until.filter(|(_, of, _)| of == key).last().and_then(|(_, _, state)| state.clone())
    }

    fn now(&self, key: &ObjectKey) -> State {
        self.at(key, self.resource_version)
    }

    fn list(&self, rv: u64) -> Vec<(ObjectKey, Entry<String>)> {
        NAMES.map(named).into_iter().filter_map(|key| Some((key.clone(), self.at(&key, rv)?))).collect()
    }

    fn change(&mut self, key: ObjectKey, draw: &mut Draw) {
        self.resource_version += 1;
        let colour = Arc::new(COLOURS[draw.below(2)].to_owned());
        let resource_version = self.resource_version;
        let entry = |uid, deleting| Entry { uid, resource_version, deleting, facts: colour };
        let state = match self.now(&key) {
            Some(_) if draw.below(3) == 0 || resource_version <= self.lost_until => None,
            Some(old) => Some(entry(old.uid, draw.below(4) == 0)),
            None => {
                self.uids += 1;
                Some(entry(format!("u{}", self.uids), false))
            }
        };
        self.history.push((resource_version, key, state));
    }

    /// The resourceVersion at which the object of that UID was deleted or replaced.
    fn removed_at(&self, key: &ObjectKey, uid: &str) -> Option<u64> {
        let mut seen = false;
        self.history.iter().filter(|(_, of, _)| of == key).find_map(|(rv, _, state)| {
            let is_it = state.as_ref().is_some_and(|entry| entry.uid == uid);
            seen |= is_it;
            (seen && !is_it).then_some(*rv)
        })
    }
}

fn relist(items: Vec<(ObjectKey, Entry<String>)>, resource_version: u64, sent: Instant) -> Relist<String> {
    Relist { items, unreadable: Vec::new(), resource_version, sent }
}

fn named(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

struct Draw(Jitter);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        let unit = self.0.stretch(std::time::Duration::from_secs(1), 1.0).as_secs_f64() - 1.0;
        // The stretch is less than the whole spread, except for rounding.
        ((unit * limit as f64) as usize).min(limit - 1)
    }
}

/// An answer of the server that has not arrived yet.
#[derive(Clone)]
enum Answer {
    Get(ObjectKey, Entry<String>),
    NotFound(ObjectKey, String),
    Part(&'static str, Vec<(ObjectKey, Entry<String>)>, u64),
    Whole(Relist<String>),
}

struct Run {
    /// The number that the whole run follows from.
    seed: u64,
    server: Server,
    store: Store<String>,
    draw: Draw,
    /// The resourceVersion up to which the watch has reported.
    watched: u64,
    /// The resourceVersion of a list that was sent but not answered yet, and when it was sent. The
    /// watch waits for this list.
    list: Option<(u64, Instant)>,
    answers: Vec<Answer>,
    /// For each key, the oldest resourceVersion that is still possible.
    floor: BTreeMap<ObjectKey, u64>,
    /// Keys that a partial list lacked, with the resourceVersion until which they may be missing.
    left_part: BTreeMap<ObjectKey, u64>,
    /// The entries that result from the reported changes.
    mirror: BTreeMap<ObjectKey, Arc<String>>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            server: Server::default(),
            store: Store::new(&[("colour", |colour, values| values.push(colour.clone()))]),
            draw: Draw(Jitter::new(seed)),
            watched: 0,
            list: Some((0, Instant::now())),
            answers: Vec::new(),
            floor: BTreeMap::new(),
            left_part: BTreeMap::new(),
            mirror: BTreeMap::new(),
        }
    }

    fn name(&mut self) -> ObjectKey {
        named(NAMES[self.draw.below(NAMES.len())])
    }

    fn step(&mut self) {
        match self.draw.below(11) {
            0..=2 => {
                let key = self.name();
                self.server.change(key, &mut self.draw);
            }
            3 | 4 => self.watch(),
            5 => {
                let key = self.name();
                let known = self.store.get(&key).map(|entry| entry.uid.clone());
                match (self.server.now(&key), known) {
                    (Some(entry), _) => self.answers.push(Answer::Get(key, entry)),
                    (None, Some(uid)) => self.answers.push(Answer::NotFound(key, uid)),
                    (None, None) => {}
                }
            }
            6 => {
                let colour = COLOURS[self.draw.below(2)];
                let rv = self.server.resource_version;
                let mut items = self.server.list(rv);
                items.retain(|(_, entry)| *entry.facts == colour);
                self.answers.push(Answer::Part(colour, items, rv));
            }
            7 | 8 => {
                if !self.answers.is_empty() {
                    let place = self.draw.below(self.answers.len());
                    let answer = self.answers.remove(place);
                    self.arrive(answer);
                }
            }
            9 => self.list = self.list.or(Some((self.server.resource_version, Instant::now()))),
            _ => {
                let resource_version = self.server.resource_version;
                let items = self.server.list(resource_version);
                self.answers.push(Answer::Whole(relist(items, resource_version, Instant::now())));
            }
        }
    }

    /// Delivers the list that the watch waits for, or else the next event of the watch.
    fn watch(&mut self) {
        if let Some((resource_version, sent)) = self.list.take() {
            let items = self.server.list(resource_version);
            self.apply(Delta::Relist(relist(items, resource_version, sent)));
            return self.watched_until(resource_version);
        }
        let next = self.server.history.iter().find(|(rv, _, _)| self.watched < *rv).cloned();
        let Some((resource_version, key, state)) = next else {
            return self.apply(Delta::Bookmark(self.watched));
        };
        let before = self.server.at(&key, resource_version - 1);
        match (state, before) {
            (Some(entry), _) => self.apply(Delta::Upsert(key, entry)),
            (None, Some(Entry { uid, .. })) => self.apply(Delta::Delete { key, uid, resource_version }),
            (None, None) => unreachable!("only an existing object is deleted"),
        }
        self.watched_until(resource_version);
    }

    fn watched_until(&mut self, resource_version: u64) {
        self.watched = resource_version;
        for key in NAMES.map(named) {
            self.raise(key, resource_version);
        }
    }

    fn raise(&mut self, key: ObjectKey, resource_version: u64) {
        let floor = self.floor.entry(key).or_default();
        *floor = resource_version.max(*floor);
    }

    fn arrive(&mut self, answer: Answer) {
        match answer {
            Answer::Get(key, entry) => {
                let resource_version = entry.resource_version;
                self.apply(Delta::Fetched(key.clone(), entry));
                self.raise(key, resource_version);
            }
            Answer::NotFound(key, uid) => {
                let removed = self.server.removed_at(&key, &uid).expect("the read did not find the object");
                self.apply(Delta::Absent { key: key.clone(), uid });
                self.raise(key, removed);
            }
            Answer::Part(colour, items, resource_version) => {
                for key in NAMES.map(named) {
                    if items.iter().any(|(listed, _)| *listed == key) {
                        self.raise(key, resource_version);
                    } else {
                        let until = self.left_part.entry(key).or_default();
                        *until = resource_version.max(*until);
                    }
                }
                let part = RelistPart { index: "colour", value: colour.to_owned(), items, resource_version };
                self.apply(Delta::RelistPart(part));
            }
            Answer::Whole(list) => {
                let resource_version = list.resource_version;
                self.apply(Delta::ListedOnce(list));
                for key in NAMES.map(named) {
                    self.raise(key, resource_version);
                }
            }
        }
    }

    fn apply(&mut self, delta: Delta<String>) {
        for change in self.store.apply(delta) {
            let before = match &change.new {
                Some(new) => self.mirror.insert(change.key, new.clone()),
                None => self.mirror.remove(&change.key),
            };
            assert_eq!(
                before, change.old,
                "seed {}: the old facts of a change equal the new facts of the previous change",
                self.seed
            );
        }
        let shown = self.store.iter().map(|(key, entry)| (key.clone(), entry.facts.clone()));
        assert_eq!(
            shown.collect::<BTreeMap<_, _>>(),
            self.mirror,
            "seed {}: the store reports every change",
            self.seed
        );
        for colour in COLOURS {
            let indexed: Vec<&ObjectKey> =
                self.store.by_index("colour", colour).map(|(key, _)| key).collect();
            let coloured = self.mirror.iter().filter(|(_, facts)| facts.as_str() == colour);
            assert_eq!(
                indexed,
                coloured.map(|(key, _)| key).collect::<Vec<_>>(),
                "seed {}: the index {colour}",
                self.seed
            );
        }
    }

    /// Each object is shown in a state that it once had, and never in a state older than the store
    /// already knows.
    fn nothing_went_back(&self) {
        for key in NAMES.map(named) {
            let shown = self.store.get(&key);
            let floor = self.floor.get(&key).copied().unwrap_or_default();
            let may_be_hidden = self.left_part.get(&key).is_some_and(|until| self.watched < *until);
            let mut possible = (floor..=self.server.resource_version).map(|rv| self.server.at(&key, rv));
            assert!(
                possible.any(|state| state.as_ref() == shown) || (shown.is_none() && may_be_hidden),
                "seed {}: {key} is shown as {shown:?}, but the store has seen version {floor} of {:?}",
                self.seed,
                self.server.history
            );
        }
    }

    /// After the watch has reported all events, the store equals the server and keeps no results of
    /// reads.
    fn catches_up(&mut self) {
        while self.list.is_some() || self.watched < self.server.resource_version {
            self.watch();
        }
        let shown: Vec<_> = self.store.iter().map(|(key, entry)| (key.clone(), entry.clone())).collect();
        assert_eq!(shown, self.server.list(self.server.resource_version), "seed {}", self.seed);
        assert!(self.store.ahead.is_empty(), "seed {}: results of reads are kept", self.seed);
    }
}

#[test]
fn a_store_never_goes_back_and_ends_equal_to_the_server() {
    for seed in 0..3_000 {
        let mut run = Run::new(seed);
        for _ in 0..80 {
            run.step();
            run.nothing_went_back();
        }
        run.catches_up();
    }
}

#[test]
fn after_a_restore_the_store_ends_equal_to_the_server() {
    let (mut noticed, mut unnoticed) = (0, 0);
    for seed in 0..3_000 {
        let mut run = Run::new(seed);
        for _ in 0..60 {
            run.step();
        }
        // Answers from before the restore have arrived or never will. The watch breaks off and
        // lists.
        run.answers.clear();
        let backup = run.server.resource_version.saturating_sub(run.draw.below(20) as u64);
        run.server.lost_until = run.server.resource_version;
        run.server.history.retain(|(rv, _, _)| *rv <= backup);
        run.server.resource_version = backup;
        // Objects created from now on have other UIDs than the lost objects.
        run.server.uids += 1_000;
        for _ in 0..run.draw.below(5) {
            let key = run.name();
            run.server.change(key, &mut run.draw);
        }
        // The list has an older resourceVersion, so the store sees the restore at once.
        let is_noticed = run.server.resource_version < run.store.known_rv();
        *(if is_noticed { &mut noticed } else { &mut unnoticed }) += 1;
        run.list = Some((run.server.resource_version, Instant::now()));
        run.watch();
        if !is_noticed {
            // The server passes the lost resourceVersions, and the watch lists once more.
            for _ in 0..25 {
                let key = run.name();
                run.server.change(key, &mut run.draw);
            }
            run.list = Some((run.server.resource_version, Instant::now()));
            run.watch();
        }
        run.catches_up();
    }
    assert!(100 < noticed && 100 < unnoticed, "both kinds of restore occurred: {noticed}, {unnoticed}");
}
