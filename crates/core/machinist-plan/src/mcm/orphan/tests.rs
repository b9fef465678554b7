//! Time and number of collected orphans. `machinist_core::orphan` tests the evidence for one.

use machinist_core::orphan::{NAMESPACE_TAG, OwnerNode};
use machinist_core::{FreshRead, Silence};
use machinist_instance::{ErrorKind, InstanceKey};

use serde_json::{Value, json};

use super::*;
use crate::testing::{self, at, process};

const PERIOD: i64 = 900;

/// An account that was listed with this many instances of the installation, at that second.
fn snapshot(listed: i64, instances: usize) -> Snapshot {
    Snapshot {
        now: at(0),
        settings: OrphanOptions {
            period: Duration::from_secs(900),
            minimum_age: Duration::from_secs(1200),
            deletes: true,
        },
        installation: Some(Installation {
            cluster: "prod".to_owned(),
            namespace_uid: Some("uid-ns".to_owned()),
        }),
        account: Arc::new(AccountOrphans {
            listed: Some(AccountList { started: at(listed), instances }),
            ..AccountOrphans::default()
        }),
        being_deleted: BTreeSet::new(),
        listing_since: None,
        frozen: None,
        process: process(-7200, Duration::from_secs(30), Duration::from_secs(10)),
    }
}

fn instance(name: &str) -> Instance {
    Instance {
        key: Some(InstanceKey::new(format!("uid-{name}"))),
        cluster: Some("prod".to_owned()),
        tags: [(NAMESPACE_TAG.to_owned(), "uid-ns".to_owned())].into(),
        ..testing::instance(&format!("sim:///{name}"), name, -7200)
    }
}

/// An instance that two lists have shown without a Machine.
fn seen_twice(name: &str) -> Candidate {
    Candidate {
        instance: instance(name),
        first_seen: at(-660),
        last_seen: at(-30),
        owners: None,
        saw_deletion: false,
        is_second: false,
        deleted: None,
        reported: None,
    }
}

/// The same, and lists of Machines and Nodes show none of it.
fn ownerless(name: &str) -> Candidate {
    let owners = Some(Owners { started: at(-2), ended: at(-1), object: None, node: OwnerNode::None });
    Candidate { owners, ..seen_twice(name) }
}

fn with(s: &mut Snapshot, candidates: impl IntoIterator<Item = Candidate>) {
    let account = Arc::make_mut(&mut s.account);
    account.instances = candidates.into_iter().map(|one| (one.instance.id.clone(), one)).collect();
}

/// The first words of the actions.
fn actions(s: &Snapshot) -> Vec<String> {
    let words = |action: &Action| action.to_string().split(": ").take(2).collect::<Vec<_>>().join(" ");
    plan(s).actions.iter().map(words).collect()
}

fn deletions(s: &Snapshot) -> usize {
    plan(s).actions.iter().filter(|action| matches!(action, Action::Delete(_))).count()
}

fn wait(s: &Snapshot) -> machinist_core::Wait {
    plan(s).wait
}

#[test]
fn an_account_is_listed_once_per_period() {
    let mut s = snapshot(-30, 3);
    s.account = Arc::default();
    assert_eq!(actions(&s), ["cloud list instances"]);
    let s = snapshot(-30, 3);
    assert_eq!((actions(&s), wait(&s)), (vec![], machinist_core::Wait::Until(at(PERIOD - 30))));
    assert_eq!(actions(&snapshot(-PERIOD, 3)), ["cloud list instances"]);
}

#[test]
fn t_57_an_instance_without_a_machine_is_seen_twice_and_deleted() {
    let mut s = snapshot(-30, 3);
    with(&mut s, [Candidate { first_seen: at(-30), ..seen_twice("w-1") }]);
    let again = machinist_core::Wait::Until(at(570));
    assert_eq!((actions(&s), wait(&s)), (vec![], again), "Go MCM deletes it at first sight");
    with(&mut s, [seen_twice("w-1")]);
    assert_eq!(actions(&s), ["machines, nodes list with quorum"]);
    with(&mut s, [ownerless("w-1")]);
    assert_eq!(actions(&s), ["cloud delete sim:///w-1"]);
}

#[test]
fn t_57_a_machine_that_is_being_created_keeps_its_instance() {
    let (of_uid, other) = (machine(json!({"name": "w-1", "uid": "uid-w-1"}), ""), seen_twice("w-1"));
    assert!(other.may_be_of(&of_uid, None), "CrashLoopBackOff: it has not recorded the instance yet");
    let namesake = machine(json!({"name": "w-1", "uid": "uid-new"}), "");
    assert!(!other.may_be_of(&namesake, None), "it can never adopt an instance with another key");
    let foreign = machine(json!({"name": "w-2", "uid": "uid-w-2"}), "");
    assert!(!other.may_be_of(&foreign, None));
}

#[test]
fn t_57_only_the_second_of_two_listed_instances_is_an_orphan() {
    let records_another = machine(json!({"name": "w-1", "uid": "uid-w-1"}), "sim:///w-1-first");
    let mut second = seen_twice("w-1");
    assert!(second.may_be_of(&records_another, Some(false)), "the recorded instance was not listed");
    second.is_second = true;
    assert!(!second.may_be_of(&records_another, Some(false)));
    assert!(second.may_be_of(&records_another, Some(true)), "it is the recorded one");
    assert!(second.may_be_of(&records_another, None), "the record cannot be read");
    let deleting = machine(
        json!({"name": "w-1", "uid": "uid-w-1", "deletionTimestamp": at(-5).to_string()}),
        "sim:///w-1-first",
    );
    assert!(second.may_be_of(&deleting, Some(false)), "its deletion may still need the instance");
}

#[test]
fn a_node_of_its_name_or_mark_is_its_node() {
    let one = seen_twice("w-1");
    let node = |annotations: Value| {
        let node =
            json!({"metadata": {"name": "w-1", "uid": "uid-n", "annotations": annotations}, "spec": {}});
        NodeFacts::parse(&serde_json::from_value(node).expect("a Node"))
    };
    assert!(one.may_have_node(&node(json!({})), None), "the name is all that is known");
    assert!(one.may_have_node(&node(json!({})), Some(true)));
    assert!(one.may_have_node(&node(json!({})), Some(false)), "a kubelet may use an earlier Node");
    assert!(!seen_twice("w-2").may_have_node(&node(json!({})), Some(false)));
    let mut renamed = seen_twice("w-9");
    renamed.instance.key = Some(InstanceKey::new("uid-m"));
    let marked = node(json!({"machinist.dev/machine": "prod/team/uid-m"}));
    assert!(renamed.may_have_node(&marked, None), "the mark names the Machine of the key");
}

#[test]
fn a_period_deletes_one_instance_or_a_twentieth() {
    let names: Vec<String> = (0..10).map(|n| format!("w-{n}")).collect();
    let deleted = |instances: usize, before: &[i64]| {
        let mut s = snapshot(-30, instances);
        with(&mut s, names.iter().map(|name| ownerless(name)));
        Arc::make_mut(&mut s.account).deletions = before.iter().map(|second| at(*second)).collect();
        deletions(&s)
    };
    assert_eq!((deleted(10, &[]), deleted(19, &[]), deleted(40, &[]), deleted(1000, &[])), (1, 1, 2, 10));
    assert_eq!(deleted(40, &[-899]), 1, "one was deleted in this period");
    assert_eq!(deleted(40, &[-901, -902]), 2, "these were in the period before");
    let mut s = snapshot(-30, 10);
    with(&mut s, names.iter().map(|name| ownerless(name)));
    Arc::make_mut(&mut s.account).deletions = vec![at(-100)];
    let plan = plan(&s);
    assert!(plan.actions.is_empty());
    assert_eq!(
        plan.why.reason.to_string(),
        "10 instances have no Machine; the first is sim:///w-0: the limit of deletions in 15 minutes is reached"
    );
}

#[test]
fn a_deletion_is_repeated_only_after_another_list() {
    let mut s = snapshot(-30, 3);
    let asked = |error| Candidate { deleted: Some((at(-20), error)), ..ownerless("w-1") };
    with(&mut s, [asked(None)]);
    assert_eq!((actions(&s), wait(&s)), (vec![], machinist_core::Wait::Until(at(100))));
    let error = Error::new(ErrorKind::Denied, "the server is protected");
    with(&mut s, [asked(Some(error))]);
    let failed = plan(&s);
    assert!(failed.actions.is_empty());
    assert!(failed.why.to_string().contains("the server is protected"), "{}", failed.why);
    assert_eq!(failed.wait, machinist_core::Wait::Until(at(PERIOD - 30)), "no call every two minutes");
    with(&mut s, [Candidate { last_seen: at(-10), ..asked(None) }]);
    assert_eq!(deletions(&s), 1, "a list shows that it is still there");
}

#[test]
fn a_kept_instance_is_reported_once() {
    let mut s = snapshot(-30, 3);
    let mut unmarked = ownerless("w-1");
    unmarked.instance.tags.clear();
    with(&mut s, [unmarked.clone()]);
    let Some(Action::Report { kept, message, .. }) = plan(&s).actions.pop() else { panic!("an Event") };
    assert_eq!(kept, KeepReason::NoNamespace);
    assert_eq!(
        message,
        "Instance sim:///w-1 has no Machine, and is not deleted: its tags do not say for which namespace it was \
         created. Delete it in the cloud if it is not needed"
    );
    with(&mut s, [Candidate { reported: Some(kept), ..unmarked }]);
    assert_eq!(actions(&s), [""; 0]);
    assert!(plan(&s).why.to_string().contains("its tags do not say"));
}

#[test]
fn another_installation_is_neither_touched_nor_reported() {
    let mut s = snapshot(-30, 3);
    let mut other = ownerless("w-1");
    other.instance.tags.insert(NAMESPACE_TAG.to_owned(), "uid-of-another".to_owned());
    with(&mut s, [other]);
    assert_eq!(actions(&s), [""; 0]);
}

#[test]
fn nothing_is_listed_or_deleted_while_frozen() {
    let mut s = snapshot(-PERIOD, 3);
    let server = "the API server of the control cluster".to_owned();
    let silence = Silence { server, since: at(-300), read: FreshRead::Possible };
    s.frozen = Some(Frozen { silence });
    with(&mut s, [ownerless("w-1")]);
    assert_eq!(actions(&s), [""; 0]);
    let mut unread = snapshot(-PERIOD, 3);
    unread.installation = None;
    assert_eq!(actions(&unread), ["namespace read its UID"]);
}

#[test]
fn orphans_are_only_reported_on_request() {
    let mut s = snapshot(-30, 3);
    s.settings.deletes = false;
    with(&mut s, [seen_twice("w-1")]);
    let says_so = |s: &Snapshot| plan(s).why.to_string().contains("this controller only reports orphans");
    assert_eq!(
        actions(&s),
        ["warning OrphanedInstance Instance sim:///w-1 has no Machine, and is not deleted"],
        "not even a list of the Nodes"
    );
    assert!(says_so(&s));
    with(&mut s, [Candidate { reported: Some(KeepReason::ReportOnly), ..seen_twice("w-1") }]);
    assert!(actions(&s).is_empty() && says_so(&s), "once");
}

#[test]
fn a_failed_list_is_repeated_later_each_time() {
    let failed = |failures| {
        let mut s = snapshot(-PERIOD - 5, 3);
        let error = Error::new(ErrorKind::Denied, "the token is not valid");
        Arc::make_mut(&mut s.account).failed = Some((at(-5), error, failures));
        s
    };
    assert_eq!((actions(&failed(1)), wait(&failed(1))), (vec![], machinist_core::Wait::Until(at(55))));
    assert_eq!(wait(&failed(9)), machinist_core::Wait::Until(at(595)));
}

#[test]
fn t_60_a_suspicion_leads_to_one_list_a_minute_later() {
    let mut s = snapshot(-61, 3);
    assert_eq!(actions(&s), [""; 0]);
    Arc::make_mut(&mut s.account).suspected = Some(at(-60));
    assert_eq!(actions(&s), ["cloud list instances"]);
    let mut soon = snapshot(-30, 3);
    Arc::make_mut(&mut soon.account).suspected = Some(at(-1));
    assert_eq!(wait(&soon), machinist_core::Wait::Until(at(59)), "several causes share one list");
}

fn machine(metadata: Value, provider_id: &str) -> MachineFacts {
    let machine = json!({"metadata": metadata, "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": provider_id}});
    MachineFacts::parse(&serde_json::from_value(machine).expect("a Machine"))
}
