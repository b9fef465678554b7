//! Rules for places: an instance is seen only in the place in which it was created.

use machinist_instance::{InstanceSpec, KeyScope, Place, Sighting};
use serde_json::Value;

use super::bench::{Bench, by_id, by_key, by_name, check, fail};
use super::case::cases;
use super::ending::{Ending, Played};

cases![
    an_id_names_the_place_of_its_instance_or_none,
    places_of_one_credential_are_two_accounts,
    another_place_cannot_see_the_instance,
    a_place_refuses_the_spec_of_another_place,
    another_key_scope_returns_the_visible_instance,
];

async fn an_id_names_the_place_of_its_instance_or_none(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    let provider = bench.subject.provider();
    let named = place(bench, &spec.provider_spec)?;
    match provider.place_of(&made.id) {
        None => Ok(()),
        Some(of_id) => {
            check(of_id == named, || format!("place_of {}: expected {named}, got {of_id}", made.id))
        }
    }
}

async fn places_of_one_credential_are_two_accounts(bench: &Bench<'_>) -> Played {
    let (here, there) = (place(bench, &bench.spec("a").provider_spec)?, elsewhere(bench)?.1);
    let (_, credential) = bench.subject.account();
    let account = |place: &Place| bench.subject.provider().account(&credential, place);
    check(account(&here) != account(&there), || format!("account: {here} and {there} have one name"))
}

async fn another_place_cannot_see_the_instance(bench: &Bench<'_>) -> Played {
    let (_, there) = elsewhere(bench)?;
    let (_, credential) = bench.subject.account();
    let provider = bench.subject.provider();
    let other = provider
        .open(&provider.account(&credential, &there), &credential, &there)
        .map_err(|error| Ending::Fail(format!("cannot open {there}: {error}")))?;
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    for (by, which) in [("id", by_id(&made)), ("key", by_key(&spec.key)), ("name", by_name(&spec.name))] {
        match other.instances().find(&which).await {
            Ok(Sighting::Absent) => {}
            found => return fail(format!("find by {by} in {there}: expected absent, got {found:?}")),
        }
    }
    #[expect(clippy::disallowed_methods, reason = "the suite owns every instance that it deletes")]
    let _ = other.instances().delete(&by_id(&made), &spec.key).await;
    bench.check_alive(&spec.key, 1).await
}

async fn a_place_refuses_the_spec_of_another_place(bench: &Bench<'_>) -> Played {
    let (provider_spec, there) = elsewhere(bench)?;
    let spec = InstanceSpec { provider_spec, ..bench.spec("a") };
    let refused = bench.driver.instances().ensure(&spec).await;
    bench.fails(refused, "ensure", &format!("a refusal of the spec for {there}"))?;
    bench.check_alive(&spec.key, 0).await
}

/// The controller repeats a call in another key scope only when reads show the instance.
async fn another_key_scope_returns_the_visible_instance(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let provider = bench.subject.provider();
    let here = provider.key_scope(&spec.provider_spec);
    let Some(provider_spec) = bench.subject.other_key_scope() else {
        return check(here == KeyScope::WHOLE, || {
            format!("key_scope: expected the whole place of a subject without another one, got {here}")
        });
    };
    let edited = InstanceSpec { provider_spec, ..spec.clone() };
    check(provider.place(&edited.provider_spec) == provider.place(&spec.provider_spec), || {
        "other_key_scope: expected a spec of the same place".to_owned()
    })?;
    let there = provider.key_scope(&edited.provider_spec);
    check(there != here, || format!("key_scope: {here} for both specs"))?;
    let first = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    let second = bench.ensure(&edited).await?;
    check(first.id == second.id, || format!("two instances for one key: {} and {}", first.id, second.id))?;
    bench.check_alive(&spec.key, 1).await
}

/// Returns the place of a provider spec.
fn place(bench: &Bench<'_>, provider_spec: &Value) -> Played<Place> {
    let place = bench.subject.provider().place(provider_spec);
    place.map_err(|error| Ending::Fail(format!("place: {error}")))
}

/// Returns a provider spec of another place, and that place. Skips a case of a cloud with one
/// place.
fn elsewhere(bench: &Bench<'_>) -> Played<(Value, Place)> {
    let none = || Ending::Skip("this cloud has one place only".to_owned());
    let provider_spec = bench.subject.elsewhere().ok_or_else(none)?;
    let there = place(bench, &provider_spec)?;
    Ok((provider_spec, there))
}
