//! Rules for initialization: which instances need it, and that the call can be repeated.

use machinist_instance::{ErrorKind, InstanceSpec};
use serde_json::Value;

use super::bench::{Bench, by_id, check, fail};
use super::case::cases;
use super::ending::{Ending, Played};
use crate::Initializer;

cases![
    an_initialization_can_be_repeated,
    an_instance_of_another_owner_is_not_initialized,
    an_absent_instance_is_not_initialized,
];

async fn an_initialization_can_be_repeated(bench: &Bench<'_>) -> Played {
    let (calls, provider_spec) = initialization(bench)?;
    let spec = InstanceSpec { provider_spec, ..bench.spec("a") };
    let made = bench.ensure(&spec).await?;
    for time in ["first", "second"] {
        let done = bench.initialize(calls, &made.id, &spec).await;
        done.or_else(|error| fail(format!("initialize, {time} time: {error}")))?;
    }
    let again = bench.ensure(&spec).await?;
    check(again.id == made.id, || format!("ensure: expected {}, got {}", made.id, again.id))
}

async fn an_instance_of_another_owner_is_not_initialized(bench: &Bench<'_>) -> Played {
    let (calls, provider_spec) = initialization(bench)?;
    let spec = InstanceSpec { provider_spec, ..bench.spec("a") };
    let made = bench.ensure(&spec).await?;
    let done = calls.initialize(&made.id, &bench.key("other"), &spec.provider_spec).await;
    let error = bench.fails(done, "initialize", "Denied")?;
    check(error.kind == ErrorKind::Denied, || format!("initialize: expected Denied, got {error}"))
}

async fn an_absent_instance_is_not_initialized(bench: &Bench<'_>) -> Played {
    let (calls, provider_spec) = initialization(bench)?;
    let spec = InstanceSpec { provider_spec, ..bench.spec("a") };
    let made = bench.ensure(&spec).await?;
    // Before that, reads may miss the instance although its deletion has not ended.
    bench.wait_until_visible().await;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    let done = calls.initialize(&made.id, &spec.key, &spec.provider_spec).await;
    bench.fails(done, "initialize", "an error").map(drop)
}

/// Returns the calls and a provider spec that needs them. Skips a case for a cloud without such
/// instances, if its tests say the same.
fn initialization<'b>(bench: &'b Bench<'_>) -> Played<(&'b dyn Initializer, Value)> {
    let provider = bench.subject.provider();
    match (bench.driver.initialization(), bench.subject.uninitialized_spec()) {
        (None, None) => Err(Ending::Skip("this driver initializes no instance".to_owned())),
        (Some(calls), Some(spec)) if provider.needs_initialization(&spec) => Ok((calls, spec)),
        (Some(_), Some(_)) => {
            fail("needs_initialization: expected true for the spec of the tests".to_owned())
        }
        (Some(_), None) => fail("the driver initializes instances, but its tests name no spec".to_owned()),
        (None, Some(_)) => fail("the tests name a spec, but the driver initializes no instance".to_owned()),
    }
}
