//! Rules for load balancers: a key has one balancer, and a call changes only differences.

use std::time::Duration;

use machinist_instance::{
    Balancer, BalancerDeletion, BalancerKey, BalancerRef, BalancerSpec, BalancerTarget, Ensured, ErrorKind,
    Instance, Listener, Progress, TransportProtocol,
};

use super::bench::{Bench, check, fail};
use super::case::cases;
use super::ending::{Ending, Played};
use crate::Balancers;

/// Number of calls until a change must have ended. The time of the subject passes between them.
const CALLS: usize = 30;

/// The time between two calls while the cloud carries out a change.
const PAUSE: Duration = Duration::from_secs(3);

cases![
    ensure_creates_the_balancer_of_the_spec,
    ensure_of_an_equal_balancer_only_reads,
    ensure_changes_ports_and_targets,
    ensure_twice_returns_the_same_balancer,
    ensure_refuses_the_balancer_of_another_key,
    ensure_skips_a_target_that_does_not_exist,
    find_and_list_show_the_balancer,
    a_deleted_balancer_is_absent,
    delete_refuses_the_balancer_of_another_key,
];

async fn ensure_creates_the_balancer_of_the_spec(bench: &Bench<'_>) -> Played {
    balancers(bench)?;
    let worker = worker(bench, "w").await?;
    let spec = spec(bench, "a", &[80, 443], &[&worker]);
    let made = ensure(bench, &spec).await?.balancer;
    check(made.key.as_ref() == Some(&spec.key), || {
        format!("key: expected {}, got {:?}", spec.key, made.key)
    })?;
    check(made.name == spec.name, || format!("name: expected {}, got {}", spec.name, made.name))?;
    check(sorted(&made.ports) == [80, 443], || format!("ports: expected 80 and 443, got {:?}", made.ports))?;
    check(made.targets == [worker.id.clone()], || {
        format!("targets: expected {}, got {:?}", worker.id, made.targets)
    })?;
    check(!made.ingress.is_empty(), || "the balancer has no address".to_owned())
}

async fn ensure_of_an_equal_balancer_only_reads(bench: &Bench<'_>) -> Played {
    balancers(bench)?;
    let worker = worker(bench, "w").await?;
    let spec = spec(bench, "a", &[80], &[&worker]);
    let made = ensure(bench, &spec).await?;
    let before = changing_requests(bench).await?;
    let again = ensure(bench, &spec).await?;
    let changes = changing_requests(bench).await? - before;
    check(changes == 0, || format!("ensure sent {changes} changes for an equal balancer"))?;
    check(again.balancer == made.balancer, || format!("expected {made:?}, got {again:?}"))
}

async fn ensure_changes_ports_and_targets(bench: &Bench<'_>) -> Played {
    balancers(bench)?;
    let (old, new) = (worker(bench, "old").await?, worker(bench, "new").await?);
    let before = spec(bench, "a", &[80, 443], &[&old]);
    let made = ensure(bench, &before).await?.balancer;
    let changed = BalancerSpec { listeners: listeners(&[443, 8080]), targets: targets(&[&new]), ..before };
    let changed = ensure(bench, &changed).await?.balancer;
    check(changed.id == made.id, || format!("expected {}, got a second balancer {}", made.id, changed.id))?;
    check(sorted(&changed.ports) == [443, 8080], || format!("ports: {:?}", changed.ports))?;
    check(changed.targets == [new.id.clone()], || {
        format!("targets: expected {}, got {:?}", new.id, changed.targets)
    })
}

async fn ensure_twice_returns_the_same_balancer(bench: &Bench<'_>) -> Played {
    let balancers = balancers(bench)?;
    let spec = spec(bench, "a", &[80], &[]);
    // The first call may only start the creation.
    let _ = bench.quiet(balancers.ensure(&spec).await, "ensure")?;
    let (first, second) = (ensure(bench, &spec).await?.balancer, ensure(bench, &spec).await?.balancer);
    check(first.id == second.id, || format!("two balancers for one key: {} and {}", first.id, second.id))?;
    let all = bench.quiet(balancers.list().await, "list")?;
    let count = all.iter().filter(|balancer| balancer.key.as_ref() == Some(&spec.key)).count();
    check(count == 1, || format!("{count} balancers have the key {}", spec.key))
}

async fn ensure_refuses_the_balancer_of_another_key(bench: &Bench<'_>) -> Played {
    let balancers = balancers(bench)?;
    let theirs = spec(bench, "theirs", &[80], &[]);
    let made = ensure(bench, &theirs).await?.balancer;
    let ours = BalancerSpec { name: theirs.name.clone(), ..spec(bench, "ours", &[443], &[]) };
    let error = bench.fails(balancers.ensure(&ours).await, "ensure", "invalid spec")?;
    check(error.kind == ErrorKind::InvalidSpec, || format!("ensure: expected invalid spec, got {error}"))?;
    let still = find(bench, &by_id(&made, &theirs.key)).await?;
    check(still.as_ref() == Some(&made), || format!("expected {made:?} unchanged, got {still:?}"))
}

async fn ensure_skips_a_target_that_does_not_exist(bench: &Bench<'_>) -> Played {
    balancers(bench)?;
    let (worker, deleted) = (worker(bench, "w").await?, worker(bench, "deleted").await?);
    let which = super::bench::by_id(&deleted);
    bench.delete(&which, &bench.key("deleted")).await?;
    bench.wait_until_gone(&which).await?;
    let made = ensure(bench, &spec(bench, "a", &[80], &[&worker, &deleted])).await?;
    let reached = made.balancer.targets;
    check(reached == [worker.id.clone()], || format!("targets: expected {}, got {reached:?}", worker.id))?;
    let is_noted = made.notes.iter().any(|note| note.message.contains(deleted.name.as_str()));
    check(is_noted, || format!("expected a note about {}, got {:?}", deleted.name, made.notes))
}

async fn find_and_list_show_the_balancer(bench: &Bench<'_>) -> Played {
    let balancers = balancers(bench)?;
    let spec = spec(bench, "a", &[80], &[]);
    let made = ensure(bench, &spec).await?.balancer;
    for which in [by_id(&made, &spec.key), by_key(&spec.key)] {
        let found = find(bench, &which).await?;
        check(found.as_ref() == Some(&made), || format!("find {which:?}: expected {made:?}, got {found:?}"))?;
    }
    let all = bench.quiet(balancers.list().await, "list")?;
    check(all.contains(&made), || format!("list: {} is missing", made.id))?;
    let never = find(bench, &by_key(&bench.balancer_key("never"))).await?;
    check(never.is_none(), || format!("find of an unknown key: expected none, got {never:?}"))
}

async fn a_deleted_balancer_is_absent(bench: &Bench<'_>) -> Played {
    balancers(bench)?;
    let spec = spec(bench, "a", &[80], &[]);
    let made = ensure(bench, &spec).await?.balancer;
    let calls = [
        (by_id(&made, &spec.key), BalancerDeletion::Gone),
        (by_id(&made, &spec.key), BalancerDeletion::Absent),
        (by_key(&spec.key), BalancerDeletion::Absent),
    ];
    for (which, expected) in calls {
        let deleted = delete(bench, &which).await?;
        check(deleted == expected, || format!("delete {which:?}: expected {expected:?}, got {deleted:?}"))?;
        let found = find(bench, &which).await?;
        check(found.is_none(), || format!("find after the deletion: expected none, got {found:?}"))?;
    }
    Ok(())
}

async fn delete_refuses_the_balancer_of_another_key(bench: &Bench<'_>) -> Played {
    let balancers = balancers(bench)?;
    let theirs = spec(bench, "theirs", &[80], &[]);
    let made = ensure(bench, &theirs).await?.balancer;
    let refused = balancers.delete(&by_id(&made, &bench.balancer_key("ours"))).await;
    let error = bench.fails(refused, "delete", "invalid spec")?;
    check(error.kind == ErrorKind::InvalidSpec, || format!("delete: expected invalid spec, got {error}"))?;
    let still = find(bench, &by_key(&theirs.key)).await?;
    check(still.as_ref() == Some(&made), || format!("expected {made:?} unchanged, got {still:?}"))
}

/// The calls for balancers, or the end of the case.
fn balancers<'a>(bench: &'a Bench<'_>) -> Played<&'a dyn Balancers> {
    bench.driver.balancers().ok_or_else(|| Ending::Skip("this driver has no balancers".to_owned()))
}

fn spec(bench: &Bench<'_>, which: &str, ports: &[u16], instances: &[&Instance]) -> BalancerSpec {
    BalancerSpec {
        key: bench.balancer_key(which),
        claim: Default::default(),
        id: None,
        native_id: None,
        name: bench.name(which).as_str().to_owned(),
        listeners: listeners(ports),
        targets: targets(instances),
        options: bench.subject.balancer_options(),
    }
}

fn listeners(ports: &[u16]) -> Vec<Listener> {
    let listener =
        |port: &u16| Listener { protocol: TransportProtocol::Tcp, port: *port, target_port: 20000 + port };
    ports.iter().map(listener).collect()
}

fn targets(instances: &[&Instance]) -> Vec<BalancerTarget> {
    let target = |instance: &&Instance| BalancerTarget {
        node: instance.name.as_str().to_owned(),
        instance: instance.id.clone(),
        weight: BalancerTarget::FULL_WEIGHT,
    };
    instances.iter().map(target).collect()
}

async fn worker(bench: &Bench<'_>, which: &str) -> Played<Instance> {
    let made = bench.ensure(&bench.spec(which)).await?;
    bench.wait_until_settled().await;
    Ok(made)
}

/// Calls `ensure` until the cloud has carried out all changes.
async fn ensure(bench: &Bench<'_>, spec: &BalancerSpec) -> Played<Ensured> {
    let mut last = String::new();
    for _ in 0..CALLS {
        match bench.quiet(balancers(bench)?.ensure(spec).await, "ensure")? {
            Progress::Done(ensured) => return Ok(ensured),
            Progress::Working(command) => last = command,
        }
        bench.subject.wait(PAUSE).await;
    }
    fail(format!("ensure has not ended after {CALLS} calls; the last change is {last}"))
}

async fn delete(bench: &Bench<'_>, which: &BalancerRef) -> Played<BalancerDeletion> {
    for _ in 0..CALLS {
        if let Progress::Done(deleted) = bench.quiet(balancers(bench)?.delete(which).await, "delete")? {
            return Ok(deleted);
        }
        bench.subject.wait(PAUSE).await;
    }
    fail(format!("delete has not ended after {CALLS} calls"))
}

async fn find(bench: &Bench<'_>, which: &BalancerRef) -> Played<Option<Balancer>> {
    bench.quiet(balancers(bench)?.find(which).await, "find")
}

/// Deletes the balancers of the case.
pub(crate) async fn clean_up(bench: &Bench<'_>) -> Played {
    for key in bench.balancer_keys() {
        delete(bench, &by_key(&key)).await?;
    }
    Ok(())
}

async fn changing_requests(bench: &Bench<'_>) -> Played<u64> {
    let missing = || Ending::Skip("this cloud does not count requests".to_owned());
    bench.subject.changing_requests().await.ok_or_else(missing)
}

fn by_id(balancer: &Balancer, key: &BalancerKey) -> BalancerRef {
    BalancerRef { id: Some(balancer.id.clone()), key: key.clone(), native_id: None, trace: None }
}

fn by_key(key: &BalancerKey) -> BalancerRef {
    BalancerRef { id: None, key: key.clone(), native_id: None, trace: None }
}

fn sorted(ports: &[u16]) -> Vec<u16> {
    let mut ports = ports.to_vec();
    ports.sort_unstable();
    ports
}
