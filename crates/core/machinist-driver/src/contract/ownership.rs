//! Rules for ownership: the key, the cluster and the account of an instance.

use machinist_instance::{ErrorKind, InstanceRef, InstanceSpec, KeyTag, Marks, Place, Scope, Sighting};

use super::bench::{Bench, by_id, by_key, by_name, check, fail, present};
use super::case::cases;
use super::ending::{Ending, Played};
use super::subject::Hook;

cases![
    reads_return_the_cluster_of_an_instance,
    rekey_changes_the_key,
    rekey_can_be_repeated,
    rekey_refuses_the_instance_of_a_third_key,
    account_names_are_stable_and_unique,
    another_account_cannot_see_the_instance,
    only_instances_of_other_programs_count_as_marked,
];

async fn reads_return_the_cluster_of_an_instance(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    let found = present(bench.find(&by_id(&made)).await?, "find by id")?;
    let listed = listed(bench, &Scope::Visible).await?;
    let listed = listed.into_iter().find(|instance| instance.id == made.id);
    let shown = [("ensure", Some(made)), ("find", Some(found)), ("list", listed)];
    for (call, instance) in shown {
        let cluster = instance.and_then(|instance| instance.cluster);
        check(cluster.as_ref() == Some(&spec.cluster), || {
            format!("{call}: expected cluster {:?}, got {cluster:?}", spec.cluster)
        })?;
    }
    Ok(())
}

async fn rekey_changes_the_key(bench: &Bench<'_>) -> Played {
    let (old, new) = (bench.spec("a"), bench.spec("restored"));
    let made = rekeyable(bench, &old).await?;
    rekey(bench, &made, &old, &new).await?;
    bench.wait_until_visible().await;
    let both = InstanceRef { key: Some(new.key.clone()), ..by_id(&made) };
    for (by, which) in [("id and the new key", both), ("the new key", by_key(&new.key))] {
        let found = present(bench.find(&which).await?, &format!("find by {by}"))?;
        check(found.id == made.id && found.key.as_ref() == Some(&new.key), || {
            format!("find by {by}: expected {} with key {}, got {found:?}", made.id, new.key)
        })?;
    }
    let as_before = InstanceRef { key: Some(old.key.clone()), ..by_id(&made) };
    match bench.find(&as_before).await? {
        Sighting::Foreign(foreign) if foreign.key.as_ref() == Some(&new.key) => {}
        other => return fail(format!("find by id and the old key: expected foreign, got {other:?}")),
    }
    let refused = bench.try_delete(&as_before, &old.key).await;
    let error = bench.fails(refused, "delete with the old key", "denied")?;
    check(error.kind == ErrorKind::Denied, || {
        format!("delete with the old key: expected denied, got {error}")
    })?;
    let same = bench.ensure(&InstanceSpec { name: old.name.clone(), ..new.clone() }).await?;
    check(same.id == made.id, || format!("ensure with the new key: expected {}, got {}", made.id, same.id))?;
    bench.delete(&by_id(&made), &new.key).await?;
    bench.wait_until_gone(&by_id(&made)).await
}

async fn rekey_can_be_repeated(bench: &Bench<'_>) -> Played {
    let (old, new) = (bench.spec("a"), bench.spec("restored"));
    let made = rekeyable(bench, &old).await?;
    rekey(bench, &made, &old, &new).await?;
    rekey(bench, &made, &old, &new).await?;
    bench.check_alive(&new.key, 1).await?;
    bench.check_alive(&old.key, 0).await
}

async fn rekey_refuses_the_instance_of_a_third_key(bench: &Bench<'_>) -> Played {
    let theirs = bench.spec("theirs");
    let made = rekeyable(bench, &theirs).await?;
    let (old, new) = (bench.key("old"), bench.key("new"));
    let refused = bench.driver.instances().rekey(&made.id, &old, &new).await;
    let error = bench.fails(refused, "rekey", "denied")?;
    check(error.kind == ErrorKind::Denied, || format!("rekey: expected denied, got {error}"))?;
    let found = present(bench.find(&by_id(&made)).await?, "find after the denied rekey")?;
    check(found.key.as_ref() == Some(&theirs.key), || format!("denied rekey: the key is {:?}", found.key))
}

async fn account_names_are_stable_and_unique(bench: &Bench<'_>) -> Played {
    let provider = bench.subject.provider();
    let (account, credential) = bench.subject.account();
    check(provider.account(&credential, &Place::WHOLE) == account, || {
        "account: expected the same name for the same credential".to_owned()
    })?;
    let other = provider.account(&another(bench)?, &Place::WHOLE);
    check(other != account, || format!("account: two accounts have the name {account}"))
}

async fn another_account_cannot_see_the_instance(bench: &Bench<'_>) -> Played {
    let other = bench.open_other(&another(bench)?)?;
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    for (by, which) in [("id", by_id(&made)), ("key", by_key(&spec.key)), ("name", by_name(&spec.name))] {
        match other.instances().find(&which).await {
            Ok(Sighting::Absent) => {}
            found => {
                return fail(format!("find by {by} in another account: expected absent, got {found:?}"));
            }
        }
    }
    // The delete may fail or succeed, but must not delete an instance of this account.
    #[expect(clippy::disallowed_methods, reason = "the suite owns every instance that it deletes")]
    let _ = other.instances().delete(&by_id(&made), &spec.key).await;
    bench.check_alive(&spec.key, 1).await
}

/// Creates an instance with a changeable key, or skips the case.
async fn rekeyable(bench: &Bench<'_>, spec: &InstanceSpec) -> Played<machinist_instance::Instance> {
    match bench.promises().keys {
        KeyTag::Rekeyable => {}
        KeyTag::Fixed => return Err(Ending::Skip("this cloud cannot change keys".to_owned())),
    }
    let made = bench.complete(spec).await?;
    bench.wait_until_visible().await;
    Ok(made)
}

async fn rekey(
    bench: &Bench<'_>,
    made: &machinist_instance::Instance,
    old: &InstanceSpec,
    new: &InstanceSpec,
) -> Played {
    let rekeyed = bench.driver.instances().rekey(&made.id, &old.key, &new.key).await;
    rekeyed.or_else(|error| fail(format!("rekey: expected success, got {error}")))
}

async fn listed(bench: &Bench<'_>, scope: &Scope) -> Played<Vec<machinist_instance::Instance>> {
    bench.driver.instances().list(scope).await.or_else(|error| fail(format!("list: {error}")))
}

fn another(bench: &Bench<'_>) -> Played<machinist_instance::Credential> {
    let missing = || Ending::Skip("the subject has no second account".to_owned());
    bench.subject.another_account().ok_or_else(missing)
}

/// An instance that `list_marked` returns is reported as an orphan, unless a Machine records it.
async fn only_instances_of_other_programs_count_as_marked(bench: &Bench<'_>) -> Played {
    let ours = bench.spec("ours");
    let made = bench.complete(&ours).await?;
    // Without a cloud where others create instances, the list is empty.
    let theirs = bench.subject.made_by_others(&bench.name("theirs"), bench.subject.now()).await;
    bench.wait_until_visible().await;
    let classes = [ours.provider_spec.clone()];
    let listed = bench.quiet(bench.driver.instances().list_marked(&classes).await, "list_marked")?;
    check(listed.iter().all(|one| one.id != made.id), || {
        format!("list_marked: expected no instance with a key, got {}", made.id)
    })?;
    for one in &listed {
        let marks = bench.subject.provider().marks_of(one, &ours.provider_spec);
        check(one.key.is_none() && marks == Marks::OfClass, || {
            format!("list_marked: expected the marks of the class and no key, got {one:?}")
        })?;
    }
    if matches!(theirs, Hook::Missing) {
        check(listed.is_empty(), || format!("list_marked: expected nothing, got {listed:?}"))?;
    }
    let without_classes = bench.quiet(bench.driver.instances().list_marked(&[]).await, "list_marked")?;
    check(without_classes.is_empty(), || "list_marked without classes: expected nothing".to_owned())
}
