//! Tests about load balancers that a Service records with another account than today's.

use machinist_core::Wait;

use super::*;
use crate::ccm::account::RecordedBalancer;

/// The Service records this load balancer with another account than today's.
fn recorded_elsewhere(id: &str) -> World {
    held_service()
        .set("/metadata/annotations", json!({names::BALANCER_RECORD: format!("{id} in another for 0a-1b")}))
}

fn deleting(world: World) -> World {
    world.set("/metadata/deletionTimestamp", json!(at(-1).to_string()))
}

/// A list of today's account that contains this load balancer of the Service.
fn listed(balancer: Option<&str>) -> impl FnOnce(&mut Snapshot) {
    let balancer = balancer.map(|id| Balancer { id: id.to_owned(), ..super::balancer() });
    move |s| s.listed = Some(ListedBalancer { started: at(-1), balancer })
}

/// The proof of today's account by the Services of a cluster without Nodes. Each Service is a UID
/// and the account that it records.
fn proof(services: &[(&str, Option<&str>)], listed: Option<&[&str]>) -> BalancerProof {
    let facts: Vec<ServiceFacts> = services
        .iter()
        .map(|(uid, account)| {
            let record = account.map(|account| format!("7 in {account} for {uid}"));
            let annotations = record.map(|record| (names::BALANCER_RECORD.to_owned(), record));
            let service = json!({"metadata": {
                "namespace": "default", "name": uid, "uid": uid,
                "annotations": annotations.into_iter().collect::<BTreeMap<_, _>>(),
            }});
            ServiceFacts::parse(&serde_json::from_value(service).expect("a Service"))
        })
        .collect();
    let listed = listed.map(|keys| {
        let balancers =
            keys.iter().map(|key| Balancer { key: Some(BalancerKey::new(*key)), ..balancer() }).collect();
        let services = Arc::default();
        crate::ccm::listed_balancers::ListedBalancers {
            started: at(-1),
            ended: at(-1),
            account: Some(account()),
            services,
            balancers,
        }
    });
    BalancerProof::of(facts.iter(), &account(), listed.as_ref(), None)
}

/// In a cluster without Nodes, the Services are the only witnesses.
#[test]
fn services_prove_the_account_of_a_cluster_without_nodes() {
    let account = account();
    let today = Some(account.as_str());
    let missing = |service: &str| {
        let (service, balancer) = (format!("default/{service}"), Some("7".to_owned()));
        BalancerProof::Missing(RecordedBalancer { service, balancer })
    };
    assert_eq!(proof(&[], None), BalancerProof::Given, "nothing is recorded");
    assert_eq!(proof(&[("a", None)], None), BalancerProof::Given);
    assert_eq!(proof(&[("a", today)], None), BalancerProof::Given);
    assert_eq!(proof(&[("a", Some("x"))], None), BalancerProof::Unlisted(None));
    assert_eq!(proof(&[("a", Some("x"))], Some(&["b"])), missing("a"));
    assert_eq!(proof(&[("a", Some("x"))], Some(&["a"])), BalancerProof::Given, "a renewed credential");
    assert_eq!(proof(&[("b", Some("x")), ("a", Some("y"))], Some(&[])), missing("a"), "in any order");
    assert_eq!(proof(&[("a", Some("x")), ("b", today)], Some(&[])), BalancerProof::Given);
    assert_eq!(proof(&[("a", Some("x")), ("b", None)], Some(&["b"])), BalancerProof::Given);
}

/// Otherwise a second load balancer is created, and a deleted Service forgets the first one.
#[test]
fn nothing_is_done_while_recorded_balancers_are_unseen() {
    let missing = RecordedBalancer { service: "default/api".to_owned(), balancer: Some("9".to_owned()) };
    let doubts = |world: World, proof: BalancerProof| world.with(|s| s.account.balancers = proof);
    for world in [held_service, || deleting(held_service()), || recorded_elsewhere("9")] {
        let waiting = doubts(world(), BalancerProof::Unlisted(None)).plan();
        assert!(waiting.starts_with("why   waiting for the cloud to list the load balancers"), "{waiting}");
        let error = Error::new(ErrorKind::Denied, "forbidden");
        let failed = Failure { error, ended: at(-1), count: 2 };
        let planned = doubts(world(), BalancerProof::Unlisted(Some(failed))).plan();
        assert!(!planned.contains("driver") && planned.contains("LoadBalancerFailed: Error"), "{planned}");
        assert!(planned.contains("why   the cloud failed 2 times to list the load balancers"), "{planned}");
        let planned = doubts(world(), BalancerProof::Missing(missing.clone())).plan();
        assert!(!planned.contains("driver") && !planned.contains("service:"), "{planned}");
        let message = "warning CloudAccountUnproven: load balancer 9 of Service default/api was created with \
                    another credential, and the project of today's credential does not show it. Nothing is";
        assert!(planned.contains(message), "{planned}");
        let message = "if it no longer exists, remove the annotation machinist.dev/load-balancer from";
        assert!(planned.contains(message), "{planned}");
    }
}

/// The absence in today's account proves nothing about the account of the record.
#[test]
fn a_service_with_a_balancer_elsewhere_waits() {
    let absent = |world: World| deleting(world).deleted(-1, absent());
    absent(recorded_elsewhere("6")).check(expect![[r#"
        do    warning LoadBalancerLeftOver: Load balancer 6 was created for this Service with another credential, and the project of today's credential does not show it. If the first one exists in another project, delete it there. Then remove the annotation machinist.dev/load-balancer.
        why   load balancer 6 of Service default/web was created with another credential, and the project of today's credential does not show it; next: use a credential of the project with the load balancer; if it no longer exists, remove the annotation machinist.dev/load-balancer from the Service
        wait  for a change
    "#]]);
    let other = deleting(recorded_elsewhere("6").with(listed(None))).plan();
    assert!(other.contains("driver: delete balancer 0a-1b"), "one of today's account is deleted: {other}");
    // The user has deleted it there.
    let removed = absent(held_service()).plan();
    assert!(removed.starts_with("do    service: remove finalizer, clear status\n"), "{removed}");
    // A credential of the right project looks again.
    let renewed = absent(recorded_elsewhere("6").with(listed(None)))
        .with(|s| s.account.id = Some(AccountId::of([&b"right"[..]])));
    assert!(renewed.plan().contains("driver: delete balancer 0a-1b"), "{}", renewed.plan());
}

/// The deleted one was created after the correction of a wrong credential.
#[test]
fn a_balancer_left_elsewhere_is_named_at_the_end() {
    for ended in [BalancerDeletion::Gone, BalancerDeletion::Retained] {
        let gone = |world: World| deleting(world).deleted(-1, Ok(Progress::Done(ended))).plan();
        let released = gone(recorded_elsewhere("6"));
        assert!(released.contains("do    service: remove finalizer"), "{released}");
        assert!(released.contains("warning LoadBalancerLeftOver: Load balancer 6 was created"), "{released}");
        let usual = gone(held_service().set("/metadata/annotations", recorded()));
        assert!(!usual.contains("LeftOver"), "{usual}");
        let handed = recorded_elsewhere("6").set("/spec/loadBalancerClass", json!("other"));
        let handed = handed.deleted(-1, Ok(Progress::Done(ended))).plan();
        assert!(
            handed.contains("do    service: remove finalizer\n") && handed.contains("LeftOver"),
            "{handed}"
        );
    }
    let left = recorded_elsewhere("6").set("/spec/loadBalancerClass", json!("other")).deleted(-1, absent());
    assert!(left.plan().contains("LeftOver"), "the other program knows nothing of it: {}", left.plan());
}

/// A credential of the same project: after the deletion, no user could find out what was deleted.
#[test]
fn a_renewed_credential_is_recorded_before_the_deletion() {
    let world = || deleting(recorded_elsewhere("7"));
    let unlisted = plan(&world().snapshot());
    assert!(unlisted.actions.is_empty() && matches!(unlisted.wait, Wait::Idle), "{unlisted}");
    let writes = format!("do    service: record 7 in {} for 0a-1b\n", account().as_str());
    let planned = world().with(listed(Some("7"))).plan();
    assert!(planned.starts_with(&writes) && !planned.contains("driver"), "{planned}");
    let planned = deleting(settled()).plan();
    assert!(planned.contains("driver: delete balancer 0a-1b"), "today's account is recorded: {planned}");
}

fn intent() -> String {
    format!("? in {} for 0a-1b", account().as_str())
}

/// The Service records only the account of its load balancer, and not today's.
fn intended_elsewhere() -> World {
    recorded_elsewhere("?")
}

/// The process may end, or get another credential, before the answer.
#[test]
fn the_account_is_recorded_before_the_first_call() {
    let planned = plan(&new_service().snapshot());
    let [Action::AddFinalizer(Some(record))] = &planned.actions[..] else { panic!("one patch: {planned}") };
    assert_eq!(*record, intent());
    let unrecorded = || held_service().set("/metadata/annotations", json!({}));
    unrecorded().check(expect![[r#"
        do    service: record ? in 64b4b5ce852512812aa755f4 for 0a-1b
        why   recording the account in which a load balancer may exist; next: the cloud creates the load balancer
        wait  for a change
    "#]]);
    let done = unrecorded().ensured(-1, done()).plan();
    assert!(done.contains("service: record 7 in ") && !done.contains("record ?"), "{done}");
    let copied = json!({names::BALANCER_RECORD: "7 in another for another-uid"});
    let copied = plan(&new_service().set("/metadata/annotations", copied).snapshot());
    assert!(matches!(&copied.actions[..], [Action::AddFinalizer(Some(_))]), "{copied}");
    // A record that names an earlier account is kept.
    let earlier = plan(&recorded_elsewhere("6").set("/metadata/finalizers", json!([])).snapshot());
    assert!(matches!(&earlier.actions[..], [Action::AddFinalizer(None)]), "{earlier}");
}

/// Nothing is created with a mistyped token, so its record would only be in the way.
#[test]
fn no_account_is_recorded_before_it_has_answered() {
    let untried = |world: World, failed: Option<ErrorKind>| {
        let failed = failed.map(|kind| Failure { error: Error::new(kind, "no"), ended: at(-1), count: 1 });
        world
            .with(|s| s.account = AccountFacts { is_untried: true, list_failed: failed, ..s.account.clone() })
            .plan()
    };
    for world in [new_service, || held_service().set("/metadata/annotations", json!({}))] {
        let waits = untried(world(), None);
        assert!(waits.starts_with("why   waiting for the cloud to list"), "{waits}");
        let message = untried(world(), Some(ErrorKind::Denied));
        assert!(
            message.starts_with("do    warning SyncLoadBalancerFailed: Error syncing load bal"),
            "{message}"
        );
        assert!(!message.contains("service:") && !message.contains("driver:"), "{message}");
    }
    let known = untried(held_service(), None);
    assert!(known.contains("driver: ensure"), "its account is recorded: {known}");
}

/// Whether the first load balancer exists is not known, so it is named as a possible one.
#[test]
fn a_creation_without_an_answer_is_named_elsewhere() {
    let created = intended_elsewhere().ensured(-1, done()).plan();
    let message = "warning LoadBalancerLeftOver: A load balancer may have been created for this Service with \
                another credential, and now the Service has load balancer 7. If the first one exists in";
    assert!(created.contains(message) && !created.contains("service: record"), "{created}");
    let waits = deleting(intended_elsewhere().with(listed(None))).deleted(-1, absent()).plan();
    let why =
        "why   a load balancer of Service default/web may have been created with another credential, and";
    assert!(waits.contains(why) && !waits.contains("remove finalizer"), "{waits}");
    let service = json!({"metadata": {
        "namespace": "default", "name": "a", "uid": "a", "annotations": {names::BALANCER_RECORD: "? in x for a"},
    }});
    let service = ServiceFacts::parse(&serde_json::from_value(service).expect("a Service"));
    let listed = crate::ccm::listed_balancers::ListedBalancers {
        started: at(-1),
        ended: at(-1),
        account: Some(account()),
        services: Arc::default(),
        balancers: Vec::new(),
    };
    let missing = RecordedBalancer { service: "default/a".to_owned(), balancer: None };
    let proof = BalancerProof::of([&service].into_iter(), &account(), Some(&listed), None);
    assert_eq!(proof, BalancerProof::Missing(missing), "nothing is created in another project");
}
