//! Rules for creation: a key has one instance, even after repeated and concurrent calls.

use std::time::Duration;

use futures::future::join_all;
use machinist_instance::{CreateGuarantee, InstanceSpec, UserData};

use super::bench::{Bench, by_key, check, fail, present};
use super::case::cases;
use super::ending::{Ending, Played};

/// Number of concurrent callers: enough for their calls to overlap.
const CONCURRENT_CALLERS: usize = 8;

cases![
    ensure_creates_the_instance_of_the_spec,
    ensure_twice_returns_the_same_instance,
    ensure_with_other_user_data_returns_the_same_instance,
    concurrent_ensure_calls_create_one_instance,
    ensure_never_returns_an_instance_of_another_key,
    ensure_adopts_a_recent_instance_without_a_key,
    ensure_does_not_adopt_an_older_instance,
];

async fn ensure_creates_the_instance_of_the_spec(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    check(made.key.as_ref() == Some(&spec.key), || {
        format!("key: expected {}, got {:?}", spec.key, made.key)
    })?;
    let node = bench.subject.node_name(&spec.name);
    check(made.name == node, || format!("name: expected {node}, got {}", made.name))?;
    let tagged = made.tags.get("purpose").map(String::as_str) == Some("contract");
    check(tagged, || format!("tags: expected purpose=contract, got {:?}", made.tags))?;
    bench.check_alive(&spec.key, 1).await
}

async fn ensure_twice_returns_the_same_instance(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let (first, second) = (bench.ensure(&spec).await?, bench.ensure(&spec).await?);
    check(first.id == second.id, || format!("two instances for one key: {} and {}", first.id, second.id))?;
    bench.check_alive(&spec.key, 1).await
}

async fn ensure_with_other_user_data_returns_the_same_instance(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let first = bench.ensure(&spec).await?;
    let second = bench
        .ensure(&InstanceSpec { user_data: UserData::new("#!/bin/sh\n# other\n"), ..spec.clone() })
        .await?;
    check(first.id == second.id, || format!("two instances for one key: {} and {}", first.id, second.id))?;
    bench.check_alive(&spec.key, 1).await
}

async fn concurrent_ensure_calls_create_one_instance(bench: &Bench<'_>) -> Played {
    match bench.promises().create {
        CreateGuarantee::NativeKey | CreateGuarantee::UniqueName => {}
        CreateGuarantee::FindThenCreate => {
            return Err(Ending::Skip("this driver supports only one caller per key".to_owned()));
        }
    }
    let spec = bench.spec("a");
    let calls = (0..CONCURRENT_CALLERS).map(|_| bench.driver.instances().ensure(&spec));
    let mut ids: Vec<_> = join_all(calls).await.into_iter().flatten().map(|instance| instance.id).collect();
    check(!ids.is_empty(), || format!("ensure failed for all {CONCURRENT_CALLERS} callers"))?;
    ids.dedup();
    check(ids.len() == 1, || format!("several instances for one key: {ids:?}"))?;
    bench.check_alive(&spec.key, 1).await
}

async fn ensure_never_returns_an_instance_of_another_key(bench: &Bench<'_>) -> Played {
    let (theirs, ours) = (bench.spec("theirs"), bench.spec("ours"));
    bench.ensure(&theirs).await?;
    let same_name = InstanceSpec {
        name: theirs.name.clone(),
        adopt_made_since: Some(jiff::Timestamp::UNIX_EPOCH),
        ..ours.clone()
    };
    // The cloud may reject or create a second instance of the name, but must not return the first.
    match bench.driver.instances().ensure(&same_name).await {
        Err(_) => {}
        Ok(made) if made.key.as_ref() == Some(&ours.key) => {}
        Ok(made) => return fail(format!("ensure with {}: got the instance of {:?}", ours.key, made.key)),
    }
    bench.check_alive(&theirs.key, 1).await
}

async fn ensure_adopts_a_recent_instance_without_a_key(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let since = bench.subject.now();
    let found = bench.made_by_others(&spec, since).await?;
    let adopted = bench.ensure(&InstanceSpec { adopt_made_since: Some(since), ..spec.clone() }).await?;
    check(adopted.id == found.id, || format!("expected {}, got a second instance {}", found.id, adopted.id))?;
    check(adopted.key.as_ref() == Some(&spec.key), || "the adopted instance has no key".to_owned())?;
    bench.wait_until_visible().await;
    present(bench.find(&by_key(&spec.key)).await?, "find the adopted instance by key")?;
    bench.check_alive(&spec.key, 1).await
}

async fn ensure_does_not_adopt_an_older_instance(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let created = bench.subject.now();
    let theirs = bench.made_by_others(&spec, created).await?;
    let since = created.saturating_add(Duration::from_secs(1)).unwrap_or(created);
    let later = InstanceSpec { adopt_made_since: Some(since), ..spec.clone() };
    match bench.driver.instances().ensure(&later).await {
        Err(_) => {}
        Ok(made) if made.id != theirs.id => {}
        Ok(made) => return fail(format!("{} was created before {since} and was adopted", made.id)),
    }
    let still = present(bench.find(&super::bench::by_id(&theirs)).await?, "find by id")?;
    check(still.key.is_none(), || "ensure tagged an instance of another program".to_owned())
}
