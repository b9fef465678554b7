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

/// What the Services of a cluster without Nodes say about today's account. Each Service is a UID
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

/// R23: in a cluster without Nodes, the Services are the only witnesses.
#[test]
fn services_prove_the_account_of_a_cluster_without_nodes() {
    let account = account();
    let today = Some(account.as_str());
    let missing = |service: &str| {
        let (service, balancer) = (format!("default/{service}"), "7".to_owned());
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
    let missing = RecordedBalancer { service: "default/api".to_owned(), balancer: "9".to_owned() };
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
        let told = "warning CloudAccountUnproven: load balancer 9 of Service default/api was created with \
                    another credential, and the project of today's credential does not show it. Nothing is";
        assert!(planned.contains(told), "{planned}");
        let told = "if it does not exist any more, remove the annotation machinist.dev/load-balancer from";
        assert!(planned.contains(told), "{planned}");
    }
}

/// R23: the absence in today's account proves nothing about that of the record.
#[test]
fn a_service_with_a_balancer_elsewhere_waits() {
    let absent = |world: World| deleting(world).deleted(-1, absent());
    absent(recorded_elsewhere("6")).check(expect![[r#"
        do    warning LoadBalancerLeftOver: Load balancer 6 was created for this Service with another credential, and the project of today's credential does not show it. If the first one exists in another project, delete it there. Then remove the annotation machinist.dev/load-balancer.
        why   load balancer 6 of Service default/web was created with another credential, and the project of today's credential does not show it; next: use a credential of the project with the load balancer; if it does not exist any more, remove the annotation machinist.dev/load-balancer from the Service
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

/// A credential of the same project: after the deletion, no user could tell what was deleted.
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
