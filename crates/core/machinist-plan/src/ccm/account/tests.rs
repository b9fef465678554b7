//! Tests of the periodic list.

use super::*;
use crate::testing::at;

fn snapshot() -> Snapshot {
    Snapshot {
        now: at(0),
        account: AccountFacts { id: Some(AccountId::of([&b"sim"[..]])), ..AccountFacts::default() },
        listed: Some(at(-100)),
        misconfigured: None,
        status_period: Duration::from_secs(300),
        emitted: Arc::default(),
    }
}

fn failed(kind: ErrorKind, count: u32) -> Option<Failure> {
    Some(Failure { error: Error::new(kind, "no"), ended: at(0), count })
}

/// One list per period serves all Nodes.
#[test]
fn the_account_is_listed_once_per_period() {
    assert!(plan(&snapshot()).to_string().contains(&format!("wait  until {}", at(200))));
    let due = |listed| Snapshot { listed, ..snapshot() };
    assert!(plan(&due(Some(at(-300)))).to_string().starts_with("do    driver: list\n"));
    assert!(plan(&due(None)).to_string().starts_with("do    driver: list\n"));
    let flying = AccountFacts { list_since: Some(at(-1)), ..snapshot().account };
    assert!(plan(&Snapshot { account: flying, ..due(None) }).actions.is_empty());
    let paused = AccountFacts { paused_until: Some(at(9)), ..snapshot().account };
    assert!(plan(&Snapshot { account: paused, ..due(None) }).actions.is_empty());
}

#[test]
fn a_failed_list_is_repeated_soon() {
    for (count, wait) in [(1, 5), (2, 10), (9, 60)] {
        let account =
            AccountFacts { list_failed: failed(ErrorKind::Unavailable, count), ..snapshot().account };
        let planned = plan(&Snapshot { account, ..snapshot() }).to_string();
        assert!(planned.contains(&format!("wait  until {}", at(wait))), "{planned}");
    }
}

#[test]
fn a_rejected_credential_is_reported_once() {
    let account = AccountFacts { list_failed: failed(ErrorKind::Denied, 1), ..snapshot().account };
    let s = Snapshot { account, ..snapshot() };
    let planned = plan(&s);
    let [Action::Tell(event)] = &planned.actions[..] else { panic!("one Event is planned: {planned}") };
    let mut emitted = EmittedEvents::default();
    emitted.note(event, s.now);
    assert!(plan(&Snapshot { emitted: Arc::new(emitted), ..s }).actions.is_empty());
}

/// A network that does not exist is a wrong setting, by its name as by its id.
#[test]
fn a_wrong_setting_is_reported_once() {
    let failed = AccountFacts { list_failed: failed(ErrorKind::InvalidSpec, 1), ..snapshot().account };
    for s in [
        Snapshot { misconfigured: Some("no".to_owned()), ..snapshot() },
        Snapshot { account: failed, ..snapshot() },
    ] {
        let planned = plan(&s);
        let [Action::Tell(event)] = &planned.actions[..] else { panic!("one Event is planned: {planned}") };
        let expected =
            "warning CloudSettingsInvalid: The settings of the program are wrong: no. Correct them.";
        assert_eq!(event.to_string(), expected);
        let mut emitted = EmittedEvents::default();
        emitted.note(event, s.now);
        assert!(plan(&Snapshot { emitted: Arc::new(emitted), ..s }).actions.is_empty());
    }
}

/// The objects that failed wait for minutes, so one cheap request looks for the end of an outage.
#[test]
fn an_outage_is_probed_every_four_seconds() {
    let outage = |since: i64, probed: Option<i64>| AccountFacts {
        outage: Some(Outage { since: at(since), probed: probed.map(at) }),
        ..snapshot().account
    };
    let planned = |account: AccountFacts| plan(&Snapshot { account, ..snapshot() }).to_string();
    for (account, probes) in [
        (outage(-3, None), false),
        (outage(-4, None), true),
        (outage(-90, Some(-3)), false),
        (outage(-90, Some(-4)), true),
    ] {
        let planned = planned(account);
        assert_eq!(planned.contains("do    driver: probe"), probes, "{planned}");
        assert!(probes || planned.contains(&format!("wait  until {}", at(1))), "{planned}");
    }
    let paused = |is_pause_assumed| AccountFacts {
        paused_until: Some(at(30)),
        is_pause_assumed,
        ..outage(-90, Some(-4))
    };
    assert!(planned(paused(true)).contains("do    driver: probe"));
    let stated = planned(paused(false));
    assert!(!stated.contains("driver") && stated.contains(&format!("wait  until {}", at(30))), "{stated}");
}

#[test]
fn the_end_of_an_outage_ends_the_waits_that_it_caused() {
    let outage = Outage { since: at(0), probed: None };
    assert!(!outage.wakes_at(at(9)) && outage.wakes_at(at(10)), "a short one may concern one object");
    let listed = |kind| {
        let works_since = Some(at(1));
        let account = AccountFacts { list_failed: failed(kind, 9), works_since, ..snapshot().account };
        plan(&Snapshot { account, now: at(2), ..snapshot() }).to_string().contains("do    driver: list")
    };
    for kind in [ErrorKind::Unavailable, ErrorKind::Ambiguous, ErrorKind::Throttled { retry_after: None }] {
        assert!(listed(kind), "{kind:?}");
    }
    for kind in [ErrorKind::Exhausted, ErrorKind::Denied, ErrorKind::InvalidSpec] {
        assert!(!listed(kind), "{kind:?}: another call proves nothing");
    }
}
