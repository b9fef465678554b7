//! Rules for calls with an unknown outcome: repeating the call determines the outcome.

use machinist_instance::ErrorKind;

use super::bench::{Bench, by_id, check};
use super::case::cases;
use super::ending::Played;
use super::subject::{DriverVerb, Trouble};

cases![
    ensure_failing_after_its_effect_is_ambiguous_and_repeatable,
    ensure_without_an_answer_is_ambiguous_and_repeatable,
    ensure_with_a_late_effect_creates_one_instance,
    delete_failing_after_its_effect_is_ambiguous_and_repeatable,
    delete_without_an_answer_is_ambiguous_and_repeatable,
];

async fn ensure_failing_after_its_effect_is_ambiguous_and_repeatable(bench: &Bench<'_>) -> Played {
    ensure_again_after(bench, Trouble::ErrorAfterEffect(DriverVerb::Ensure)).await
}

async fn ensure_without_an_answer_is_ambiguous_and_repeatable(bench: &Bench<'_>) -> Played {
    ensure_again_after(bench, Trouble::SilenceAfterEffect(DriverVerb::Ensure)).await
}

/// The first call takes effect after the repeated call.
async fn ensure_with_a_late_effect_creates_one_instance(bench: &Bench<'_>) -> Played {
    ensure_again_after(bench, Trouble::LateEffect(DriverVerb::Ensure)).await
}

async fn ensure_again_after(bench: &Bench<'_>, trouble: Trouble) -> Played {
    bench.inject(trouble).await?;
    let spec = bench.spec("a");
    bench.ensure_fails(&spec, "ambiguous", |kind| kind == ErrorKind::Ambiguous).await?;
    let made = bench.ensure(&spec).await?;
    check(made.key.as_ref() == Some(&spec.key), || format!("repeated ensure: wrong key {:?}", made.key))?;
    bench.check_alive(&spec.key, 1).await?;
    let again = bench.ensure(&spec).await?;
    check(again.id == made.id, || format!("ensure: expected {}, got {}", made.id, again.id))
}

async fn delete_failing_after_its_effect_is_ambiguous_and_repeatable(bench: &Bench<'_>) -> Played {
    delete_again_after(bench, Trouble::ErrorAfterEffect(DriverVerb::Delete)).await
}

async fn delete_without_an_answer_is_ambiguous_and_repeatable(bench: &Bench<'_>) -> Played {
    delete_again_after(bench, Trouble::SilenceAfterEffect(DriverVerb::Delete)).await
}

async fn delete_again_after(bench: &Bench<'_>, trouble: Trouble) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.inject(trouble).await?;
    let error = bench.fails(bench.try_delete(&by_id(&made), &spec.key).await, "delete", "ambiguous")?;
    check(error.kind == ErrorKind::Ambiguous, || format!("delete: expected ambiguous, got {error}"))?;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.check_alive(&spec.key, 0).await
}
