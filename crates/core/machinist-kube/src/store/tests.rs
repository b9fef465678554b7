//! Tests of the changes that a store makes of deltas.

use super::*;

/// A store of colours. A colour is the facts of an object and also the value in the index.
type Colours = Store<String>;

fn colours() -> Colours {
    Store::new(&[("colour", |colour, values| values.push(colour.clone()))])
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

fn item(name: &str, uid: &str, rv: u64, colour: &str) -> (ObjectKey, Entry<String>) {
    let facts = Arc::new(colour.to_owned());
    (key(name), Entry { uid: uid.into(), resource_version: rv, deleting: false, facts })
}

fn upsert(name: &str, uid: &str, rv: u64, colour: &str) -> Delta<String> {
    let (key, entry) = item(name, uid, rv, colour);
    Delta::Upsert(key, entry)
}

fn delete(name: &str, uid: &str, rv: u64) -> Delta<String> {
    Delta::Delete { key: key(name), uid: uid.into(), resource_version: rv }
}

fn relist(items: Vec<(ObjectKey, Entry<String>)>, rv: u64) -> Delta<String> {
    Delta::Relist(Relist { items, unreadable: Vec::new(), resource_version: rv })
}

fn part(colour: &str, items: Vec<(ObjectKey, Entry<String>)>, rv: u64) -> Delta<String> {
    Delta::RelistPart(RelistPart { index: "colour", value: colour.into(), items, resource_version: rv })
}

/// Changes as `name:uid old>new`.
fn told(changes: &[Change<String>]) -> Vec<String> {
    let side = |side: &Option<Arc<String>>| side.as_deref().map_or("-".to_owned(), Clone::clone);
    changes.iter().map(|c| format!("{}:{} {}>{}", c.key.name, c.uid, side(&c.old), side(&c.new))).collect()
}

fn in_index(store: &Colours, colour: &str) -> Vec<String> {
    store.by_index("colour", colour).map(|(key, _)| key.name.clone()).collect()
}

#[test]
fn a_relist_reports_deletions_since_the_last_list() {
    let mut store = colours();
    assert!(!store.synced());
    store.apply(relist(vec![item("b", "u2", 5, "red"), item("a", "u1", 4, "red")], 9));
    assert!(store.synced());
    let changes = store.apply(relist(vec![item("b", "u2", 5, "red"), item("c", "u3", 11, "blue")], 12));
    assert_eq!(told(&changes), ["a:u1 red>-", "c:u3 ->blue"]);
    assert_eq!(in_index(&store, "red"), ["b"]);
    assert_eq!(store.observed_rv(), 12);
}

#[test]
fn indexes_follow_the_facts_and_are_ordered() {
    let mut store = colours();
    for name in ["c", "a", "b"] {
        store.apply(upsert(name, name, 1, "red"));
    }
    assert_eq!(in_index(&store, "red"), ["a", "b", "c"]);
    store.apply(upsert("b", "b", 2, "blue"));
    store.apply(delete("c", "c", 3));
    assert_eq!(in_index(&store, "red"), ["a"]);
    assert_eq!(in_index(&store, "blue"), ["b"]);
    assert_eq!(in_index(&store, "green"), Vec::<String>::new());
}

#[test]
fn old_events_change_nothing() {
    let mut store = colours();
    store.apply(upsert("a", "u1", 5, "red"));
    for rv in [4, 5] {
        assert_eq!(told(&store.apply(upsert("a", "u1", rv, "blue"))), Vec::<String>::new());
        assert_eq!(told(&store.apply(upsert("a", "u0", rv, "blue"))), Vec::<String>::new());
    }
    assert_eq!(told(&store.apply(delete("a", "u0", 6))), Vec::<String>::new());
    assert_eq!(store.len(), 1);
}

#[test]
fn only_a_relist_may_go_back() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 50, "new")], 60));
    let changes = store.apply(relist(vec![item("a", "u1", 40, "restored")], 41));
    assert_eq!(told(&changes), ["a:u1 new>restored"]);
    assert_eq!(store.observed_rv(), 41);
}

#[test]
fn another_object_of_the_same_name_is_two_changes() {
    let mut store = colours();
    store.apply(upsert("a", "u1", 5, "red"));
    assert_eq!(told(&store.apply(upsert("a", "u2", 7, "blue"))), ["a:u1 red>-", "a:u2 ->blue"]);
    assert_eq!(told(&store.apply(delete("a", "u1", 6))), Vec::<String>::new());
    assert_eq!(in_index(&store, "red"), Vec::<String>::new());
}

#[test]
fn an_unreadable_object_is_not_deleted() {
    let mut store = colours();
    store.apply(upsert("a", "u1", 5, "red"));
    store.apply(Delta::Unreadable { key: key("a"), resource_version: 6 });
    let list = Relist { items: Vec::new(), unreadable: vec![key("a"), key("b")], resource_version: 9 };
    assert_eq!(told(&store.apply(Delta::Relist(list))), Vec::<String>::new());
    assert!(
        store.get(&key("a")).is_some() && store.is_unreadable(&key("a")) && store.is_unreadable(&key("b"))
    );
    store.apply(upsert("a", "u1", 10, "red"));
    store.apply(delete("b", "u2", 11));
    assert_eq!(store.unreadable().count(), 0);
}

#[test]
fn bookmarks_only_increase_the_observed_version() {
    let mut store = colours();
    store.apply(Delta::Bookmark(7));
    store.apply(Delta::Bookmark(6));
    assert_eq!(store.observed_rv(), 7);
}

#[test]
fn a_partial_list_can_be_ahead_of_the_watch() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red"), item("z", "u9", 5, "blue")], 9));
    let changes = store.apply(part("red", vec![item("b", "u2", 15, "red")], 20));
    assert_eq!(told(&changes), ["a:u1 red>-", "b:u2 ->red"]);
    assert_eq!(store.observed_rv(), 9, "the watch itself is not ahead");
    assert_eq!(in_index(&store, "blue"), ["z"]);
}

#[test]
fn older_events_do_not_restore_what_a_part_lacks() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(part("red", Vec::new(), 20));
    assert_eq!(told(&store.apply(upsert("a", "u1", 12, "red"))), Vec::<String>::new());
    store.apply(delete("a", "u1", 14));
    assert_eq!(told(&store.apply(Delta::Bookmark(25))), Vec::<String>::new());
    assert!(store.is_empty());
}

#[test]
fn an_object_that_left_the_index_returns_with_the_watch() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(part("red", Vec::new(), 20));
    store.apply(upsert("a", "u1", 12, "blue"));
    assert_eq!(told(&store.apply(Delta::Bookmark(20))), ["a:u1 ->blue"]);
}

#[test]
fn a_partial_list_older_than_the_watch_removes_nothing() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 30));
    assert_eq!(told(&store.apply(part("red", Vec::new(), 20))), Vec::<String>::new());
    assert_eq!(store.len(), 1);
}

#[test]
fn a_fetched_object_does_not_advance_the_watch() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    let (key, entry) = item("a", "u1", 20, "blue");
    assert_eq!(told(&store.apply(Delta::Fetched(key, entry))), ["a:u1 red>blue"]);
    assert_eq!(store.observed_rv(), 9);
    assert_eq!(told(&store.apply(upsert("a", "u1", 15, "green"))), Vec::<String>::new());
}

#[test]
fn older_events_do_not_restore_an_absent_object() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    let absent = Delta::Absent { key: key("a"), uid: "u1".into() };
    assert_eq!(told(&store.apply(absent)), ["a:u1 red>-"]);
    assert_eq!(told(&store.apply(upsert("a", "u1", 12, "red"))), Vec::<String>::new());
    assert_eq!(told(&store.apply(upsert("a", "u2", 13, "blue"))), ["a:u2 ->blue"]);
    assert_eq!(told(&store.apply(delete("a", "u1", 14))), Vec::<String>::new());
    assert!(store.ahead.is_empty());
}

fn fetched(name: &str, uid: &str, rv: u64, colour: &str) -> Delta<String> {
    let (key, entry) = item(name, uid, rv, colour);
    Delta::Fetched(key, entry)
}

fn absent(name: &str, uid: &str) -> Delta<String> {
    Delta::Absent { key: key(name), uid: uid.into() }
}

#[test]
fn a_list_older_than_a_read_keeps_the_read() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(fetched("a", "u1", 20, "blue"));
    store.apply(fetched("b", "u2", 21, "blue"));
    let changes = store.apply(relist(vec![item("a", "u1", 5, "red")], 15));
    assert_eq!(told(&changes), Vec::<String>::new());
    assert_eq!(in_index(&store, "blue"), ["a", "b"]);
    assert_eq!(store.observed_rv(), 15);
    store.apply(upsert("a", "u1", 20, "blue"));
    store.apply(upsert("b", "u2", 21, "blue"));
    assert!(store.ahead.is_empty());
}

#[test]
fn a_list_older_than_an_absence_restores_nothing() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(absent("a", "u1"));
    assert_eq!(told(&store.apply(relist(vec![item("a", "u1", 5, "red")], 12))), Vec::<String>::new());
    store.apply(delete("a", "u1", 14));
    assert!(store.is_empty() && store.ahead.is_empty());
}

#[test]
fn a_list_older_than_a_part_keeps_the_part() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(part("red", vec![item("b", "u2", 15, "red")], 20));
    assert_eq!(told(&store.apply(relist(vec![item("a", "u1", 5, "red")], 12))), Vec::<String>::new());
    assert_eq!(in_index(&store, "red"), ["b"]);
}

#[test]
fn a_late_read_restores_nothing() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(delete("a", "u1", 14));
    assert_eq!(told(&store.apply(fetched("a", "u1", 12, "red"))), Vec::<String>::new());
    assert_eq!(told(&store.apply(part("red", vec![item("a", "u1", 12, "red")], 13))), Vec::<String>::new());
}

#[test]
fn a_restore_also_drops_reads() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red"), item("c", "u3", 6, "red")], 50));
    store.apply(fetched("a", "u1", 60, "blue"));
    store.apply(fetched("b", "u2", 61, "blue"));
    store.apply(absent("c", "u3"));
    let changes = store.apply(relist(vec![item("a", "u1", 5, "red"), item("c", "u3", 6, "red")], 20));
    assert_eq!(told(&changes), ["a:u1 blue>red", "b:u2 blue>-", "c:u3 ->red"]);
}

#[test]
fn a_restore_hidden_from_lists_is_found_by_the_watch() {
    let mut store = colours();
    store.apply(relist(vec![item("c", "u3", 6, "red")], 9));
    // The watch lags, and the events that it has not reported are lost: the backup was taken at 30.
    store.apply(fetched("b", "u2", 61, "blue"));
    store.apply(absent("c", "u3"));
    store.apply(relist(vec![item("c", "u3", 6, "red")], 30));
    assert_eq!(told(&store.apply(Delta::Bookmark(61))), ["b:u2 blue>-"]);
    let changes = store.apply(relist(vec![item("c", "u3", 6, "red")], 62));
    assert_eq!(told(&changes), ["c:u3 ->red"], "this list was sent after the first list, so after the read");
}

#[test]
fn a_newer_event_makes_a_read_object_unreadable_again() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(fetched("a", "u1", 20, "blue"));
    store.apply(Delta::Unreadable { key: key("a"), resource_version: 12 });
    assert!(!store.is_unreadable(&key("a")), "the read is newer");
    store.apply(Delta::Unreadable { key: key("a"), resource_version: 25 });
    assert!(store.is_unreadable(&key("a")) && store.get(&key("a")).is_some());
}
