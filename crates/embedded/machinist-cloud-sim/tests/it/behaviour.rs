//! Behaviour of the cloud with and without faults.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use machinist_cloud_sim::{
    CallOutcome, CallRecord, Code, Fault, FaultRule, Foreigner, IdStyle, IncomingCall, LedgerCommit,
    Operation, Reply, Request, Schedule, Settings,
};
use machinist_instance::{InstanceKey, NodeName, Power, ProviderId, UserData};

use crate::{by_id, call, cloud, create, delete, ensure, find, lost, seconds};

#[tokio::test(start_paused = true)]
async fn an_instance_boots_and_after_its_deletion_the_key_is_spent() {
    let cloud = cloud(Settings { boot: seconds(30), delete: seconds(5), ..Settings::default() });
    let made = ensure(&cloud, create("a")).await.expect("made");
    assert_eq!(made.power, Power::Pending);
    tokio::time::sleep(seconds(30)).await;
    assert_eq!(find(&cloud, by_id(&made)).await.map(|found| found.power), Some(Power::Running));
    delete(&cloud, &made).await.expect("accepted");
    assert_eq!(find(&cloud, by_id(&made)).await.map(|found| found.power), Some(Power::Deleting));
    tokio::time::sleep(seconds(5)).await;
    assert_eq!(find(&cloud, by_id(&made)).await, None);
    let refusal = ensure(&cloud, create("a")).await.expect_err("a late repetition must not bring it back");
    assert_eq!(refusal.code, Code::KeySpent);
    let ledger = cloud.ledger();
    assert_eq!((ledger.ever().len(), ledger.alive().count()), (1, 0));
    assert_eq!(ledger.ever()[0].calls.get(&Operation::Find), Some(&2));
    assert_eq!(
        ledger.ever()[0].deleted,
        Some(ledger.ever()[0].created + jiff::SignedDuration::from_secs(35))
    );
}

#[tokio::test(start_paused = true)]
async fn reads_lag_and_a_deletion_by_key_misses_hidden_instances() {
    let cloud = cloud(Settings { lag: seconds(2), ..Settings::default() });
    let made = ensure(&cloud, create("a")).await.expect("made");
    assert_eq!(find(&cloud, by_id(&made)).await, None);
    let which = machinist_instance::InstanceRef { key: made.key.clone(), ..Default::default() };
    let owner = made.key.clone().expect("keyed");
    let request = Request::Delete(machinist_cloud_sim::DeleteRequest { which, owner });
    call(&cloud, request).await.expect("deleting an absent instance succeeds");
    tokio::time::sleep(seconds(2)).await;
    assert_eq!(find(&cloud, by_id(&made)).await, Some(made));
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_its_caller() {
    let cloud = cloud(Settings { latency: seconds(1), ..Settings::default() });
    let caller = tokio::spawn({
        let cloud = cloud.clone();
        async move { ensure(&cloud, create("a")).await }
    });
    tokio::task::yield_now().await;
    caller.abort();
    tokio::time::sleep(seconds(2)).await;
    assert_eq!(cloud.alive(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_fault_applies_before_or_after_the_effect() {
    let cases = [
        (Fault::Reset, 0, CallOutcome::Lost),
        (Fault::LateEffect { by: seconds(3) }, 1, CallOutcome::Made),
        (Fault::EffectThenSilence, 1, CallOutcome::Made),
    ];
    for (fault, alive, outcome) in cases {
        let cloud = cloud(Settings::default());
        cloud.faults().add(FaultRule::once(Operation::Ensure, fault.clone()));
        lost(cloud.call(None, Request::Ensure(create("a"))).await);
        tokio::time::sleep(seconds(10)).await;
        assert_eq!(cloud.alive(), alive, "{fault:?}");
        assert_eq!(cloud.calls()[0].outcome, outcome, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_may_die_young_or_never_boot() {
    let cloud = cloud(Settings::default());
    let rules = [("a", Fault::Dies { after: seconds(60) }), ("b", Fault::NeverBoots)];
    for (name, fault) in rules {
        let rule = FaultRule::once(Operation::Ensure, fault);
        cloud.faults().add(rule.for_name(NodeName::new(name).expect("not empty")));
    }
    let dies = ensure(&cloud, create("a")).await.expect("made");
    let idle = ensure(&cloud, create("b")).await.expect("made");
    assert_eq!(cloud.entry(&idle.id).and_then(|entry| entry.boots()), None);
    tokio::time::sleep(seconds(61)).await;
    assert_eq!(find(&cloud, by_id(&dies)).await, None);
    assert_eq!(find(&cloud, by_id(&idle)).await.map(|found| found.power), Some(Power::Running));
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_a_key_is_adopted_by_name() {
    let cloud = cloud(Settings { scheme: "fast".to_owned(), ids: IdStyle::ByName, ..Settings::default() });
    let created = cloud.clock().now();
    let foreigner = |name: &str, key: Option<&str>| Foreigner {
        id: None,
        name: NodeName::new(name).expect("not empty"),
        key: key.map(InstanceKey::new),
        project: String::new(),
        created,
        instance_type: "m5.large".to_owned(),
        user_data: UserData::default(),
    };
    let entry = cloud.load(&foreigner("w-1", None)).expect("loaded");
    assert_eq!(entry.id, ProviderId::parse("fast:///w-1").expect("an id"));
    cloud.load(&foreigner("w-2", Some("theirs"))).expect("loaded");

    let mut request = create("w-1");
    assert_eq!(ensure(&cloud, request.clone()).await.expect_err("adopts nothing").code, Code::Foreign);
    request.adopt_made_since = Some(created);
    let adopted = ensure(&cloud, request).await.expect("adopted");
    assert_eq!((adopted.id, adopted.key), (entry.id, Some(InstanceKey::new("uid-of-w-1"))));
    let mut request = create("w-2");
    request.adopt_made_since = Some(created);
    assert_eq!(ensure(&cloud, request).await.expect_err("foreign").code, Code::Foreign);
    assert_eq!(cloud.ledger().ever().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_every_commit_before_its_answer() {
    let cloud = cloud(Settings::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut following = cloud.follow();
    cloud.observe({
        let seen = seen.clone();
        move |commit| seen.lock().expect("no panic").push(commit.clone())
    });
    let made = ensure(&cloud, create("a")).await.expect("made");
    assert!(
        matches!(seen.lock().expect("no panic").as_slice(), [LedgerCommit::Made { entry }] if entry.id == made.id)
    );
    delete(&cloud, &made).await.expect("accepted");
    tokio::task::yield_now().await;
    let kinds: Vec<_> = std::iter::from_fn(|| following.commits.try_recv().ok())
        .map(|commit| match &*commit {
            LedgerCommit::Made { .. } => "made",
            LedgerCommit::DeletionBegun { .. } => "deletion begun",
            LedgerCommit::Gone { .. } => "gone",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["made", "deletion begun", "gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_decides_each_call_and_learns_its_outcome() {
    struct EverySecond(Mutex<Vec<(u64, CallOutcome)>>);
    impl Schedule for EverySecond {
        fn decide(&self, call: &IncomingCall) -> Option<Fault> {
            (call.number % 2 == 1).then_some(Fault::EffectThenError)
        }
        fn decided(&self, record: &CallRecord) {
            self.0.lock().expect("no panic").push((record.number, record.outcome));
        }
    }
    let cloud = cloud(Settings::default());
    let schedule = Arc::new(EverySecond(Mutex::default()));
    cloud.set_schedule(schedule.clone());
    ensure(&cloud, create("a")).await.expect("calm");
    assert_eq!(ensure(&cloud, create("b")).await.expect_err("decided").code, Code::InternalError);
    assert_eq!(*schedule.0.lock().expect("no panic"), [(0, CallOutcome::Made), (1, CallOutcome::Made)]);
    assert_eq!(cloud.call_counts(), BTreeMap::from([(Operation::Ensure, 2)]));
}

#[tokio::test(start_paused = true)]
async fn the_ledger_shows_no_user_data() {
    let cloud = cloud(Settings::default());
    let made = ensure(&cloud, create("a")).await.expect("made");
    let shown = format!("{:?} {:?}", cloud.ledger(), cloud.calls());
    assert!(!shown.contains("secret-of-the-machine"));
    assert!(!serde_json::to_string(&cloud.ledger()).expect("json").contains("c2VjcmV0"));
    assert_eq!(cloud.user_data(&made.id).expect("kept").expose(), b"secret-of-the-machine");
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_hourly_limit_are_refused() {
    let cloud = cloud(Settings { calls_per_hour: NonZeroU32::new(2), ..Settings::default() });
    let look = async || cloud.call(Some("a"), Request::List { cluster: None }).await.expect("an answer");
    look().await.expect("the first call");
    look().await.expect("the second call");
    let refused = look().await.expect_err("the limit is reached");
    assert_eq!((refused.code, refused.retry_after_seconds), (Code::RateLimited, Some(1800)));
    assert_eq!(cloud.calls()[2].outcome, CallOutcome::Refused(Code::RateLimited));
    tokio::time::sleep(seconds(1800)).await;
    look().await.expect("the next call fits");
}

#[tokio::test(start_paused = true)]
async fn a_project_sees_its_own_instances_only() {
    let projects =
        BTreeMap::from([("b".to_owned(), "other".to_owned()), ("c".to_owned(), "other".to_owned())]);
    let cloud = cloud(Settings { projects, ..Settings::default() });
    let made = ensure(&cloud, create("a")).await.expect("made");
    let ask = async |token, request| cloud.call(Some(token), request).await.expect("an answer");
    let list = || Request::List { cluster: None };
    assert_eq!(ask("a", list()).await, Ok(Reply::Instances(vec![made.clone()])), "a token without a project");
    assert_eq!(ask("b", list()).await, Ok(Reply::Instances(Vec::new())));
    assert_eq!(ask("b", Request::Find(by_id(&made))).await, Ok(Reply::Found(None)));
    let owner = made.key.clone().expect("keyed");
    let rekey = Request::Rekey { id: made.id.clone(), from: owner.clone(), to: InstanceKey::new("uid-of-b") };
    let deletion = Request::Delete(machinist_cloud_sim::DeleteRequest { which: by_id(&made), owner });
    assert_eq!(ask("b", deletion).await, Ok(Reply::Done), "deleting an absent instance succeeds");
    assert_eq!(cloud.alive(), 1);
    let rekeyed = ask("b", rekey).await;
    assert_eq!(rekeyed.expect_err("the instance is in another project").code, Code::NotFound);
    let theirs =
        ask("b", Request::Ensure(create("a"))).await.expect("the name and the key are free in this project");
    let Reply::Instance(theirs) = theirs else { panic!("ensure answers with an instance, not {theirs:?}") };
    assert_eq!(ask("c", list()).await, Ok(Reply::Instances(vec![theirs])), "another token of that project");
    assert_eq!(cloud.alive(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_instance_changes_its_key_and_the_old_key_stays_spent() {
    let cloud = cloud(Settings::default());
    let made = ensure(&cloud, create("a")).await.expect("made");
    let (from, to) = (InstanceKey::new("uid-of-a"), InstanceKey::new("uid-of-b"));
    let rekey = |from: &InstanceKey, to: &InstanceKey| {
        call(&cloud, Request::Rekey { id: made.id.clone(), from: from.clone(), to: to.clone() })
    };
    assert_eq!(rekey(&to, &from).await.map(drop), Ok(()), "the instance already carries the new key");
    let stranger = InstanceKey::new("uid-of-c");
    assert_eq!(rekey(&stranger, &to).await.expect_err("another key").code, Code::Foreign);
    rekey(&from, &to).await.expect("rekeyed");
    rekey(&from, &to).await.expect("a repeated rekey succeeds");
    assert_eq!(find(&cloud, by_id(&made)).await.and_then(|found| found.key), Some(to));
    assert_eq!(ensure(&cloud, create("a")).await.expect_err("the old key").code, Code::Foreign);
    let same = machinist_cloud_sim::CreateRequest { key: InstanceKey::new("uid-of-b"), ..create("a") };
    assert_eq!(ensure(&cloud, same).await.expect("found").id, made.id);
}
