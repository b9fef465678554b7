//! Rules for routes: one route per destination, and a deletion names the gateway.

use std::net::IpAddr;
use std::time::Duration;

use machinist_instance::{AddressKind, ErrorKind, Instance, Progress, Route, RouteSpec, Sighting};

use super::bench::{Bench, check, fail};
use super::case::cases;
use super::ending::{Ending, Played};
use crate::Routes;

/// Number of calls until a change must have ended. The time of the subject passes between them.
const CALLS: usize = 30;

/// The time between two calls while the cloud carries out a change.
const PAUSE: Duration = Duration::from_secs(3);

cases![
    a_created_route_names_its_instance,
    create_of_an_existing_route_only_reads,
    create_replaces_a_route_to_another_instance,
    create_refuses_an_address_that_the_instance_lacks,
    delete_leaves_a_route_to_another_gateway,
    delete_of_an_absent_route_succeeds,
];

async fn a_created_route_names_its_instance(bench: &Bench<'_>) -> Played {
    routes(bench)?;
    let (worker, address) = worker(bench, "w").await?;
    let destination = bench.destination(1);
    create(bench, &spec(&destination, &worker, address)).await?;
    let expected = Route { destination, gateway: address, instance: Some(worker.id) };
    let shown = route_of(bench, &expected.destination).await?;
    check(shown.as_ref() == Some(&expected), || format!("list: expected {expected:?}, got {shown:?}"))
}

async fn create_of_an_existing_route_only_reads(bench: &Bench<'_>) -> Played {
    routes(bench)?;
    let (worker, address) = worker(bench, "w").await?;
    let spec = spec(&bench.destination(1), &worker, address);
    create(bench, &spec).await?;
    let before = changing_requests(bench).await?;
    create(bench, &spec).await?;
    let changes = changing_requests(bench).await? - before;
    check(changes == 0, || format!("create sent {changes} changes for an existing route"))
}

async fn create_replaces_a_route_to_another_instance(bench: &Bench<'_>) -> Played {
    routes(bench)?;
    let (old, new) = (worker(bench, "old").await?, worker(bench, "new").await?);
    let destination = bench.destination(1);
    create(bench, &spec(&destination, &old.0, old.1)).await?;
    create(bench, &spec(&destination, &new.0, new.1)).await?;
    let shown = route_of(bench, &destination).await?;
    let instance = shown.and_then(|route| route.instance);
    check(instance.as_ref() == Some(&new.0.id), || {
        format!("expected a route to {}, got {instance:?}", new.0.id)
    })
}

async fn create_refuses_an_address_that_the_instance_lacks(bench: &Bench<'_>) -> Played {
    let routes = routes(bench)?;
    let (worker, _) = worker(bench, "w").await?;
    let foreign = spec(&bench.destination(1), &worker, IpAddr::from([203, 0, 113, 9]));
    let error = bench.fails(routes.create(&foreign).await, "create", "invalid spec")?;
    check(error.kind == ErrorKind::InvalidSpec, || format!("create: expected invalid spec, got {error}"))?;
    let shown = route_of(bench, &foreign.destination).await?;
    check(shown.is_none(), || format!("the refused call created {shown:?}"))
}

async fn delete_leaves_a_route_to_another_gateway(bench: &Bench<'_>) -> Played {
    routes(bench)?;
    let (old, new) = (worker(bench, "old").await?, worker(bench, "new").await?);
    let destination = bench.destination(1);
    create(bench, &spec(&destination, &new.0, new.1)).await?;
    let outdated = Route { destination: destination.clone(), gateway: old.1, instance: Some(old.0.id) };
    delete(bench, &outdated).await?;
    let shown = route_of(bench, &destination).await?;
    let Some(shown) = shown else { return fail("delete removed the route to another gateway") };
    check(shown.gateway == new.1, || format!("gateway: expected {}, got {}", new.1, shown.gateway))?;
    delete(bench, &shown).await?;
    let shown = route_of(bench, &destination).await?;
    check(shown.is_none(), || format!("list after the deletion: expected none, got {shown:?}"))
}

async fn delete_of_an_absent_route_succeeds(bench: &Bench<'_>) -> Played {
    routes(bench)?;
    let (worker, gateway) = worker(bench, "w").await?;
    let route = Route { destination: bench.destination(1), gateway, instance: Some(worker.id) };
    delete(bench, &route).await
}

/// The calls for routes, or the end of the case.
fn routes<'a>(bench: &'a Bench<'_>) -> Played<&'a dyn Routes> {
    bench.driver.routes().ok_or_else(|| Ending::Skip("this driver has no routes".to_owned()))
}

fn spec(destination: &str, instance: &Instance, address: IpAddr) -> RouteSpec {
    RouteSpec { destination: destination.to_owned(), instance: instance.id.clone(), addresses: vec![address] }
}

/// Creates an instance, and waits until it has an internal address.
async fn worker(bench: &Bench<'_>, which: &str) -> Played<(Instance, IpAddr)> {
    let made = bench.ensure(&bench.spec(which)).await?;
    for _ in 0..CALLS {
        bench.subject.wait(PAUSE).await;
        let Sighting::Present(instance) = bench.find(&super::bench::by_id(&made)).await? else { continue };
        let internal = instance.addresses.iter().find(|address| address.kind == AddressKind::InternalIP);
        if let Some(address) = internal.and_then(|address| address.address.parse().ok()) {
            return Ok((instance, address));
        }
    }
    fail(format!("{} has no internal address after {CALLS} checks", made.id))
}

async fn create(bench: &Bench<'_>, spec: &RouteSpec) -> Played {
    for _ in 0..CALLS {
        if let Progress::Done(()) = bench.quiet(routes(bench)?.create(spec).await, "create")? {
            return Ok(());
        }
        bench.subject.wait(PAUSE).await;
    }
    fail(format!("create has not ended after {CALLS} calls"))
}

async fn delete(bench: &Bench<'_>, route: &Route) -> Played {
    for _ in 0..CALLS {
        if let Progress::Done(()) = bench.quiet(routes(bench)?.delete(route).await, "delete")? {
            return Ok(());
        }
        bench.subject.wait(PAUSE).await;
    }
    fail(format!("delete has not ended after {CALLS} calls"))
}

async fn route_of(bench: &Bench<'_>, destination: &str) -> Played<Option<Route>> {
    let table = bench.quiet(routes(bench)?.list().await, "list")?;
    let mut found = table.routes.into_iter().filter(|route| route.destination == destination);
    let (first, second) = (found.next(), found.next());
    check(second.is_none(), || format!("two routes have the destination {destination}"))?;
    Ok(first)
}

/// Deletes the routes of the case.
pub(crate) async fn clean_up(bench: &Bench<'_>) -> Played {
    for destination in bench.destinations() {
        if let Some(route) = route_of(bench, &destination).await? {
            delete(bench, &route).await?;
        }
    }
    Ok(())
}

async fn changing_requests(bench: &Bench<'_>) -> Played<u64> {
    let missing = || Ending::Skip("this cloud does not count requests".to_owned());
    bench.subject.changing_requests().await.ok_or_else(missing)
}
