//! Rules for rejected calls: the kind of the error is correct, and the call has no effect.

use machinist_instance::{ErrorKind, InstanceSpec};

use super::bench::{Bench, by_key, check};
use super::case::cases;
use super::ending::Played;
use super::subject::{DriverVerb, Trouble};

cases![
    the_error_for_an_invalid_spec_names_the_field,
    an_outage_is_unavailable_and_has_no_effect,
    throttling_returns_retry_after,
    a_revoked_credential_is_denied,
    a_used_up_quota_is_exhausted_and_has_no_effect,
    a_used_up_stock_is_exhausted_and_has_no_effect,
];

async fn the_error_for_an_invalid_spec_names_the_field(bench: &Bench<'_>) -> Played {
    let (broken, field) = bench.subject.broken_spec();
    let provider = bench.subject.provider();
    let valid = provider.validate(&bench.subject.provider_spec());
    check(valid.is_ok(), || format!("validate: expected success for the valid spec, got {valid:?}"))?;
    let validated = bench.fails(provider.validate(&broken), "validate", "invalid spec")?;
    let spec = InstanceSpec { provider_spec: broken, ..bench.spec("a") };
    let ensured = bench.ensure_fails(&spec, "invalid spec", |kind| kind == ErrorKind::InvalidSpec).await?;
    for (call, error) in [("validate", validated), ("ensure", ensured)] {
        let is_invalid = error.kind == ErrorKind::InvalidSpec;
        check(is_invalid, || format!("{call}: expected invalid spec, got {error}"))?;
        check(error.message.contains(field), || {
            format!("{call}: expected a message that names {field}, got {:?}", error.message)
        })?;
    }
    bench.check_alive(&spec.key, 0).await
}

async fn an_outage_is_unavailable_and_has_no_effect(bench: &Bench<'_>) -> Played {
    bench.inject(Trouble::Outage(DriverVerb::Ensure)).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "unavailable", |kind| kind == ErrorKind::Unavailable).await?;
    bench.check_alive(&spec.key, 0).await?;
    bench.ensure(&spec).await?;
    bench.inject(Trouble::Outage(DriverVerb::Find)).await?;
    let found = bench.driver.instances().find(&by_key(&spec.key)).await;
    let error = bench.fails(found, "find", "unavailable")?;
    check(error.kind == ErrorKind::Unavailable, || format!("find: expected unavailable, got {error}"))?;
    bench.inject(Trouble::Outage(DriverVerb::List)).await?;
    let listed = bench.driver.instances().list(&machinist_instance::Scope::Visible).await;
    let error = bench.fails(listed, "list", "unavailable, not a partial list")?;
    check(error.kind == ErrorKind::Unavailable, || format!("list: expected unavailable, got {error}"))
}

async fn throttling_returns_retry_after(bench: &Bench<'_>) -> Played {
    bench.inject(Trouble::Throttled(DriverVerb::Ensure)).await?;
    let spec = bench.spec("a");
    let with_time = |kind| matches!(kind, ErrorKind::Throttled { retry_after: Some(_) });
    bench.ensure_fails(&spec, "throttled, with retry_after", with_time).await?;
    bench.check_alive(&spec.key, 0).await
}

async fn a_revoked_credential_is_denied(bench: &Bench<'_>) -> Played {
    let made = bench.spec("made-before");
    bench.ensure(&made).await?;
    bench.inject(Trouble::RevokedCredential).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "denied", |kind| kind == ErrorKind::Denied).await?;
    // With a rejected credential, `find` must fail. An absence would be a false proof.
    let found = bench.driver.instances().find(&by_key(&made.key)).await;
    let error = bench.fails(found, "find", "denied")?;
    check(error.kind == ErrorKind::Denied, || format!("find: expected denied, got {error}"))?;
    bench.subject.clear_trouble().await;
    bench.check_alive(&spec.key, 0).await
}

async fn a_used_up_quota_is_exhausted_and_has_no_effect(bench: &Bench<'_>) -> Played {
    exhausted_by(bench, Trouble::QuotaUsedUp).await
}

async fn a_used_up_stock_is_exhausted_and_has_no_effect(bench: &Bench<'_>) -> Played {
    exhausted_by(bench, Trouble::StockUsedUp).await
}

async fn exhausted_by(bench: &Bench<'_>, trouble: Trouble) -> Played {
    let before = bench.spec("before");
    let made = bench.ensure(&before).await?;
    bench.inject(trouble).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "exhausted", |kind| kind == ErrorKind::Exhausted).await?;
    let again = bench.ensure(&before).await?;
    check(again.id == made.id, || "ensure of an existing instance created a second one".to_owned())?;
    bench.check_alive(&spec.key, 0).await?;
    bench.subject.clear_trouble().await;
    bench.ensure(&spec).await?;
    bench.check_alive(&spec.key, 1).await
}
