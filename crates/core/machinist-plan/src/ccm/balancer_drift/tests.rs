//! Tests of the list of load balancers.

use machinist_instance::{AccountId, Error, ErrorKind};

use super::*;
use crate::ccm::account::Proof;
use crate::testing::{self, at};

fn balancer(key: Option<&str>) -> Balancer {
    Balancer {
        id: "7".to_owned(),
        native_id: None,
        key: key.map(BalancerKey::new),
        name: "web".to_owned(),
        ingress: Vec::new(),
        ports: Vec::new(),
        host_ports: Default::default(),
        targets: Vec::new(),
        room: None,
        created: None,
        is_protected: false,
    }
}

fn account() -> AccountId {
    AccountId::of([&b"sim"[..]])
}

/// A process that started at that second. A call takes effect within 60 s, and lists show it 10 s
/// later.
fn process(started: i64) -> Process {
    testing::process(started, Duration::from_secs(60), Duration::from_secs(10))
}

fn snapshot(balancers: Vec<Balancer>) -> Snapshot {
    Snapshot {
        now: at(0),
        process: process(-86_400),
        account: AccountFacts { id: Some(account()), ..AccountFacts::default() },
        in_flight: None,
        listed: Some(Arc::new(ListedBalancers {
            started: at(-100),
            ended: at(-100),
            account: Some(account()),
            services: Arc::new(vec![BalancerKey::new("ours")]),
            balancers,
        })),
        failed: None,
        services: Arc::new(vec![BalancerKey::new("ours")]),
        has_balancers: true,
        late_deletion: None,
        period: Duration::from_secs(600),
        nodes_freshness: Freshness::Fresh,
        nodes_asked: None,
        emitted: Arc::default(),
    }
}

#[test]
fn balancers_are_listed_once_per_period() {
    assert!(plan(&snapshot(Vec::new())).to_string().contains(&format!("wait  until {}", at(500))));
    let due = || Snapshot { listed: None, ..snapshot(Vec::new()) };
    assert!(plan(&due()).to_string().starts_with("do    driver: list balancers\n"));
    assert!(plan(&Snapshot { in_flight: Some(at(-1)), ..due() }).actions.is_empty());
    let failed = Failure { error: Error::new(ErrorKind::Unavailable, "no"), ended: at(0), count: 1 };
    assert!(plan(&Snapshot { failed: Some(failed), ..due() }).actions.is_empty());
}

/// A deletion without an answer may hit a load balancer that its Service wants again.
#[test]
fn a_list_follows_a_late_deletion() {
    let until = |second: i64| format!("wait  until {}", at(second));
    let after = |ended: i64| Snapshot { late_deletion: Some(at(ended)), ..snapshot(Vec::new()) };
    assert!(plan(&after(-20)).to_string().contains(&until(50)), "{}", plan(&after(-20)));
    let due = plan(&Snapshot { now: at(50), ..after(-20) });
    assert!(due.to_string().starts_with("do    driver: list balancers\n"), "{due}");
    assert!(plan(&after(-171)).to_string().contains(&until(500)), "the list began after that");
    let restarted = || Snapshot { process: process(-20), ..snapshot(Vec::new()) };
    assert!(plan(&restarted()).to_string().contains(&until(50)), "an earlier process may have sent it");
    let without = plan(&Snapshot { has_balancers: false, ..restarted() });
    assert!(without.to_string().contains(&until(3500)), "{without}");
}

/// 4.8: never deleted, because another cluster may own it.
#[test]
fn a_balancer_without_a_service_is_reported_once() {
    let all = [Some("ours"), Some("other"), None].map(balancer).to_vec();
    let s = snapshot(all);
    let planned = plan(&s);
    let [Action::Tell(event)] = &planned.actions[..] else { panic!("one Event is planned: {planned}") };
    assert!(event.message.contains("web (7)"), "{event}");
    let mut emitted = EmittedEvents::default();
    emitted.note(event, s.now);
    let emitted = Arc::new(emitted);
    let again = plan(&Snapshot { emitted: emitted.clone(), now: at(299), ..s.clone() });
    assert!(again.actions.is_empty(), "{again}");
    let again = plan(&Snapshot { emitted, now: at(400), ..s });
    assert!(again.to_string().contains("warning OrphanedLoadBalancer"), "it still costs money: {again}");
}

/// Events with one reason replace each other, so there is one for all.
#[test]
fn all_balancers_without_a_service_share_an_event() {
    let orphans = |count: usize| {
        let names = (0..count).map(|number| format!("gone-{number}")).collect::<Vec<_>>();
        snapshot(names.iter().map(|key| balancer(Some(key))).collect())
    };
    let message = |count: usize| match &plan(&orphans(count)).actions[..] {
        [Action::Tell(event)] => event.message.clone(),
        other => panic!("one Event is planned: {other:?}"),
    };
    let two = message(2);
    assert!(two.starts_with("Load balancers web (7), web (7) have labels of Services"), "{two}");
    assert!(message(22).contains("(7) and 2 more have"), "{}", message(22));
    let listed = orphans(3).listed.expect("listed");
    assert_eq!(listed.orphans(&[BalancerKey::new("gone-1")]).count(), 2);
}

/// A cluster without a load balancer may have lost all its Services by force.
#[test]
fn balancers_are_looked_for_without_services_too() {
    let without = |listed: Option<i64>| {
        let mut s = snapshot(Vec::new());
        s.has_balancers = false;
        s.listed = listed.map(|ended| {
            let listed = s.listed.as_deref().expect("listed").clone();
            Arc::new(ListedBalancers { ended: at(ended), ..listed })
        });
        plan(&s).to_string()
    };
    assert!(without(None).contains("do    driver: list balancers"));
    assert!(without(Some(-3600)).contains("do    driver: list balancers"));
    let waiting = without(Some(-3599));
    assert!(waiting.contains(&format!("wait  until {}", at(1))), "{waiting}");
}

/// The list is up to a period old: a Service that was deleted since then took its load balancer
/// with it.
#[test]
fn a_balancer_deleted_after_the_list_is_not_reported() {
    let deleted = Snapshot { services: Arc::default(), ..snapshot(vec![balancer(Some("ours"))]) };
    assert!(plan(&deleted).actions.is_empty(), "{}", plan(&deleted));
}

/// In another account, the load balancers belong to clusters of another project.
#[test]
fn nothing_is_reported_from_an_unproven_account() {
    let in_account = |change: fn(&mut AccountFacts)| {
        let mut s = snapshot(vec![balancer(Some("other"))]);
        change(&mut s.account);
        plan(&s)
    };
    for change in [
        |account: &mut AccountFacts| account.proof = Proof::Missing,
        |account: &mut AccountFacts| account.proof = Proof::Unlisted,
    ] {
        assert!(in_account(change).actions.is_empty(), "{}", in_account(change));
    }
    let renewed = in_account(|account| account.id = Some(AccountId::of([&b"renewed"[..]]))).to_string();
    assert!(
        renewed.starts_with("do    driver: list balancers\n"),
        "the list was of another account: {renewed}"
    );
}

#[test]
fn a_service_finds_its_balancer_in_the_list() {
    let listed = snapshot(vec![balancer(Some("ours"))]).listed.expect("listed");
    assert!(listed.of(&BalancerKey::new("ours")).balancer.is_some());
    assert!(listed.of(&BalancerKey::new("none")).balancer.is_none());
}

/// The watch of Nodes has been silent since that second.
fn silent(since: i64, read: FreshRead) -> Freshness {
    Freshness::Stale(Silence { server: "the API server".to_owned(), since: at(since), read })
}

/// Otherwise new Nodes never become targets, and no user learns of it.
#[test]
fn the_nodes_are_listed_once_per_period_of_silence() {
    let reads = |s: &Snapshot| plan(s).actions.iter().any(|action| matches!(action, Action::ReadNodes));
    let quiet = |nodes_asked: Option<i64>| Snapshot {
        nodes_freshness: silent(-700, FreshRead::Possible),
        nodes_asked: nodes_asked.map(at),
        ..snapshot(Vec::new())
    };
    assert!(!reads(&snapshot(Vec::new())), "a watch that works costs no request");
    assert!(reads(&quiet(None)) && reads(&quiet(Some(-600))));
    assert!(!reads(&quiet(Some(-599))));
    assert!(!reads(&Snapshot { has_balancers: false, ..quiet(None) }));
    for read in [FreshRead::InFlight(at(9)), FreshRead::Failed(at(9))] {
        assert!(!reads(&Snapshot { nodes_freshness: silent(-700, read), ..quiet(None) }));
    }
}

#[test]
fn a_list_of_nodes_without_an_answer_is_known() {
    let is_unanswered =
        |freshness: &Freshness, asked: Option<i64>| unanswered(freshness, asked.map(at)).is_some();
    assert!(!is_unanswered(&Freshness::Fresh, Some(-1)));
    assert!(!is_unanswered(&silent(-700, FreshRead::Possible), None), "no list has failed");
    assert!(!is_unanswered(&silent(-700, FreshRead::Possible), Some(-800)), "in an earlier silence");
    assert!(!is_unanswered(&silent(-700, FreshRead::InFlight(at(9))), Some(-1)));
    for read in [FreshRead::Failed(at(9)), FreshRead::Possible] {
        assert!(is_unanswered(&silent(-700, read), Some(-1)));
    }
}
