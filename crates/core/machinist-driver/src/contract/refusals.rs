//! Refusals say what the caller can do, and leave nothing behind.

use machinist_instance::{ErrorKind, InstanceSpec};

use super::bench::{Bench, by_key, check};
use super::{Played, Trouble, Verb, cases};

cases![
    a_broken_spec_is_invalid_and_its_field_is_named,
    an_outage_is_unavailable_and_leaves_nothing,
    throttling_is_told_with_its_time,
    a_revoked_credential_is_denied,
    a_used_up_quota_is_exhausted_and_leaves_nothing,
    a_used_up_stock_is_exhausted_and_leaves_nothing,
];

async fn a_broken_spec_is_invalid_and_its_field_is_named(bench: &Bench<'_>) -> Played {
    let (broken, field) = bench.subject.broken_spec();
    let provider = bench.subject.provider();
    let valid = provider.validate(&bench.subject.provider_spec());
    check(valid.is_ok(), || format!("validate: the valid spec is refused: {valid:?}"))?;
    let validated = bench.fails(provider.validate(&broken), "validate", "invalid spec")?;
    let spec = InstanceSpec { provider_spec: broken, ..bench.spec("a") };
    let ensured = bench.ensure_fails(&spec, "invalid spec", |kind| kind == ErrorKind::InvalidSpec).await?;
    for (call, error) in [("validate", validated), ("ensure", ensured)] {
        let is_invalid = error.kind == ErrorKind::InvalidSpec;
        check(is_invalid, || format!("{call}: expected invalid spec, got {error}"))?;
        check(error.message.contains(field), || {
            format!("{call}: {field} is not named in {:?}", error.message)
        })?;
    }
    bench.check_alive(&spec.key, 0).await
}

async fn an_outage_is_unavailable_and_leaves_nothing(bench: &Bench<'_>) -> Played {
    bench.arrange(Trouble::Outage(Verb::Ensure)).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "unavailable", |kind| kind == ErrorKind::Unavailable).await?;
    bench.check_alive(&spec.key, 0).await?;
    bench.ensure(&spec).await?;
    bench.arrange(Trouble::Outage(Verb::Find)).await?;
    let found = bench.driver.instances().find(&by_key(&spec.key)).await;
    let error = bench.fails(found, "find", "unavailable")?;
    check(error.kind == ErrorKind::Unavailable, || format!("find: expected unavailable, got {error}"))?;
    bench.arrange(Trouble::Outage(Verb::List)).await?;
    let listed = bench.driver.instances().list(&machinist_instance::Scope::Visible).await;
    let error = bench.fails(listed, "list", "unavailable, never a part of the list")?;
    check(error.kind == ErrorKind::Unavailable, || format!("list: expected unavailable, got {error}"))
}

async fn throttling_is_told_with_its_time(bench: &Bench<'_>) -> Played {
    bench.arrange(Trouble::Throttled(Verb::Ensure)).await?;
    let spec = bench.spec("a");
    let with_time = |kind| matches!(kind, ErrorKind::Throttled { retry_after: Some(_) });
    bench.ensure_fails(&spec, "throttled, with the time to come back", with_time).await?;
    bench.check_alive(&spec.key, 0).await
}

async fn a_revoked_credential_is_denied(bench: &Bench<'_>) -> Played {
    let made = bench.spec("made-before");
    bench.ensure(&made).await?;
    bench.arrange(Trouble::RevokedCredential).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "denied", |kind| kind == ErrorKind::Denied).await?;
    // A credential that sees nothing must not make anybody believe that there is nothing.
    let found = bench.driver.instances().find(&by_key(&made.key)).await;
    let error = bench.fails(found, "find", "denied")?;
    check(error.kind == ErrorKind::Denied, || format!("find: expected denied, got {error}"))?;
    bench.subject.calm().await;
    bench.check_alive(&spec.key, 0).await
}

async fn a_used_up_quota_is_exhausted_and_leaves_nothing(bench: &Bench<'_>) -> Played {
    exhausted_by(bench, Trouble::QuotaUsedUp).await
}

async fn a_used_up_stock_is_exhausted_and_leaves_nothing(bench: &Bench<'_>) -> Played {
    exhausted_by(bench, Trouble::StockUsedUp).await
}

async fn exhausted_by(bench: &Bench<'_>, trouble: Trouble) -> Played {
    let before = bench.spec("before");
    let made = bench.ensure(&before).await?;
    bench.arrange(trouble).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "exhausted", |kind| kind == ErrorKind::Exhausted).await?;
    let again = bench.ensure(&before).await?;
    check(again.id == made.id, || "what exists needs no quota, and was made again".to_owned())?;
    bench.check_alive(&spec.key, 0).await?;
    bench.subject.calm().await;
    bench.ensure(&spec).await?;
    bench.check_alive(&spec.key, 1).await
}
