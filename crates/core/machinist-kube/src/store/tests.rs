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
    Delta::Relist(listed(items, rv))
}

fn listed(items: Vec<(ObjectKey, Entry<String>)>, resource_version: u64) -> Relist<String> {
    Relist { items, unreadable: Vec::new(), resource_version, sent: Instant::now() }
}

fn object(uid: &str) -> Unreadable {
    Unreadable { uid: uid.to_owned(), controller: None, deleting: false }
}

fn unreadable(name: &str, resource_version: u64) -> Delta<String> {
    Delta::Unreadable { key: key(name), resource_version, object: object("u1") }
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
    store.apply(unreadable("a", 6));
    let both = vec![(key("a"), object("u1")), (key("b"), object("u2"))];
    let list = Relist { unreadable: both, ..listed(Vec::new(), 9) };
    let changes = store.apply(Delta::Relist(list.clone()));
    assert_eq!(told(&changes), ["b:u2 ->-"], "the store has facts of a");
    assert_eq!(told(&store.apply(Delta::Relist(list))), Vec::<String>::new());
    assert!(
        store.get(&key("a")).is_some() && store.is_unreadable(&key("a")) && store.is_unreadable(&key("b"))
    );
    store.apply(upsert("a", "u1", 10, "red"));
    assert_eq!(told(&store.apply(delete("b", "u2", 11))), ["b:u2 ->-"]);
    assert_eq!(store.unreadable().count(), 0);
    store.apply(unreadable("c", 12));
    assert_eq!(told(&store.apply(relist(vec![item("a", "u1", 10, "red")], 13))), ["c:u1 ->-"]);
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
    store.apply(unreadable("a", 12));
    assert!(!store.is_unreadable(&key("a")), "the read is newer");
    store.apply(unreadable("a", 25));
    assert!(store.is_unreadable(&key("a")) && store.get(&key("a")).is_some());
}

fn listed_once(items: Vec<(ObjectKey, Entry<String>)>, rv: u64) -> Delta<String> {
    Delta::ListedOnce(listed(items, rv))
}

#[test]
fn a_list_that_the_watch_overtook_is_no_restore() {
    let mut store = colours();
    store.apply(relist(Vec::new(), 10));
    store.apply(upsert("a", "u1", 12, "red"));
    store.apply(fetched("b", "u2", 14, "blue"));
    assert_eq!(told(&store.apply(listed_once(Vec::new(), 11))), Vec::<String>::new());
    assert_eq!(store.observed_rv(), 12, "only a list of the watch may go back");
    assert_eq!((in_index(&store, "red"), in_index(&store, "blue")), (vec!["a".into()], vec!["b".into()]));
}

#[test]
fn events_older_than_a_list_bring_nothing_back() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red"), item("d", "u4", 6, "red")], 9));
    let list = vec![item("c", "u3", 17, "blue"), item("d", "u4", 6, "red")];
    assert_eq!(told(&store.apply(listed_once(list, 20))), ["a:u1 red>-", "c:u3 ->blue"]);
    assert_eq!(store.observed_rv(), 9, "the watch itself is not ahead");
    let older = [
        upsert("a", "u1", 12, "green"),
        upsert("b", "u2", 15, "red"),
        upsert("c", "u3", 16, "red"),
        fetched("b", "u2", 15, "red"),
        part("red", vec![item("b", "u2", 15, "red"), item("d", "u4", 6, "red")], 16),
        delete("a", "u1", 18),
        delete("b", "u2", 19),
    ];
    for news in older {
        let shown = format!("{news:?}");
        assert_eq!(told(&store.apply(news)), Vec::<String>::new(), "{shown}");
    }
    assert_eq!(told(&store.apply(upsert("c", "u3", 17, "blue"))), Vec::<String>::new());
    assert_eq!(told(&store.apply(upsert("b", "u5", 21, "red"))), ["b:u5 ->red"]);
    assert!(store.ahead.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_relist_older_than_another_list_brings_nothing_back() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(listed_once(vec![item("c", "u3", 17, "blue")], 20));
    let older = vec![item("a", "u1", 5, "red"), item("b", "u2", 14, "red")];
    assert_eq!(told(&store.apply(relist(older, 15))), Vec::<String>::new());
    assert_eq!(told(&store.apply(listed_once(Vec::new(), 16))), Vec::<String>::new());
    store.apply(delete("a", "u1", 16));
    store.apply(upsert("c", "u3", 17, "blue"));
    store.apply(delete("b", "u2", 18));
    assert_eq!(told(&store.apply(Delta::Bookmark(20))), Vec::<String>::new());
    assert!(store.ahead.is_empty());
    store.apply(listed_once(Vec::new(), 30));
    tokio::time::advance(Duration::from_millis(1)).await;
    let restored = vec![item("a", "u1", 5, "red")];
    assert_eq!(told(&store.apply(relist(restored, 25))), ["a:u1 ->red"], "sent later: a restore");
    assert!(store.ahead.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_before_the_first_relist_fills_the_store() {
    let mut store = colours();
    store.apply(listed_once(vec![item("a", "u1", 15, "red")], 20));
    assert!(store.synced() && store.is_fresh());
    let older = vec![item("a", "u1", 5, "blue"), item("b", "u2", 6, "blue")];
    assert_eq!(told(&store.apply(relist(older, 10))), Vec::<String>::new());
    store.apply(upsert("a", "u1", 15, "red"));
    store.apply(delete("b", "u2", 16));
    assert_eq!(told(&store.apply(Delta::Bookmark(20))), Vec::<String>::new());
    assert_eq!(in_index(&store, "red"), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_knows_unreadable_objects() {
    let mut store = colours();
    store.apply(relist(vec![item("a", "u1", 5, "red")], 9));
    store.apply(unreadable("d", 9));
    let both = vec![(key("a"), object("u1")), (key("b"), object("u2"))];
    let list = Relist { unreadable: both, ..listed(Vec::new(), 20) };
    let changes = store.apply(Delta::ListedOnce(list));
    assert_eq!(told(&changes), ["b:u2 ->-", "d:u1 ->-"], "b appeared, d is gone, and a keeps its facts");
    store.apply(upsert("a", "u1", 12, "blue"));
    store.apply(relist(vec![item("a", "u1", 12, "blue")], 14));
    let marked: Vec<_> = store.unreadable().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!((marked, in_index(&store, "red")), (vec!["a", "b"], vec!["a".to_owned()]));
    store.apply(unreadable("a", 15));
    // The watch shows a deletion of b after the list.
    assert_eq!(told(&store.apply(delete("b", "u2", 21))), ["b:u2 ->-"]);
    assert!(store.is_unreadable(&key("a")) && store.ahead.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_proves_freshness_as_of_its_request() {
    use tokio::time::advance;

    let second = Duration::from_secs(1);
    let mut store = colours();
    store.apply(relist(Vec::new(), 9));
    store.apply(upsert("a", "u1", 12, "red"));
    advance(FRESH_FOR + second).await;
    store.apply(listed_once(Vec::new(), 11));
    assert!(!store.is_fresh(), "the watch may be silent since it overtook the list");
    let late = listed_once(vec![item("a", "u1", 12, "red")], 12);
    advance(second).await;
    store.apply(late);
    assert!(store.is_fresh(), "the next list shows the content of the store");
    advance(FRESH_FOR).await;
    assert!(!store.is_fresh(), "the list was sent a second before it was applied");
    let late = listed_once(vec![item("a", "u1", 12, "red")], 13);
    advance(second).await;
    store.doubt();
    store.apply(late);
    assert!(!store.is_fresh(), "the answer waited in a buffer while the process was suspended");
    store.apply(listed_once(vec![item("a", "u1", 12, "red")], 13));
    assert!(store.is_fresh());
}

#[tokio::test(start_paused = true)]
async fn only_the_watch_and_whole_lists_make_a_store_fresh() {
    use tokio::time::advance;

    let second = Duration::from_secs(1);
    let mut store = colours();
    assert!(!store.is_fresh(), "nothing was listed");
    store.apply(relist(vec![item("a", "u1", 4, "red")], 9));
    assert!(store.is_fresh());
    advance(FRESH_FOR).await;
    assert!(store.is_fresh());
    advance(second).await;
    assert!(!store.is_fresh(), "a connected watch that is silent shows nothing");
    let (read, entry) = item("a", "u1", 10, "blue");
    store.apply(Delta::Fetched(read.clone(), entry));
    store.apply(part("blue", vec![item("b", "u2", 11, "blue")], 12));
    store.apply(Delta::Absent { key: read, uid: "u1".to_owned() });
    assert!(!store.is_fresh(), "a read of one object or of a part is not the whole kind");
    let news = [
        Delta::Bookmark(20),
        upsert("a", "u3", 21, "red"),
        upsert("a", "u3", 21, "red"),
        unreadable("c", 22),
        delete("a", "u3", 23),
        relist(Vec::new(), 24),
    ];
    for news in news {
        let shown = format!("{news:?}");
        store.apply(news);
        assert!(store.is_fresh(), "{shown}");
        advance(FRESH_FOR + second).await;
        assert!(!store.is_fresh(), "{shown}");
    }
    store.apply(Delta::Bookmark(30));
    store.doubt();
    assert!(!store.is_fresh(), "the process was suspended");
    store.apply(Delta::Bookmark(31));
    assert!(store.is_fresh());
}
