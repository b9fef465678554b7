//! Rules for deletion: `delete` requests the deletion, and only a later read shows its end.

use machinist_instance::{ErrorKind, Instance, InstanceRef, InstanceSpec, Power, Sighting};

use super::bench::{Bench, by_id, by_key, check, fail, present};
use super::case::cases;
use super::ending::Played;
use super::subject::Trouble;

cases![
    a_deleted_instance_becomes_absent,
    delete_finds_a_visible_instance_by_key,
    delete_twice_succeeds,
    delete_of_a_missing_instance_succeeds,
    delete_refuses_the_instance_of_another_key,
    delete_refuses_an_instance_without_key,
    an_instance_without_key_is_deleted_by_its_id,
    find_shows_an_instance_until_its_deletion_ends,
    the_end_of_an_instance_is_shown_in_its_account_only,
    parts_of_a_failed_creation_are_used_again,
    parts_of_a_failed_creation_are_deleted,
];

async fn a_deleted_instance_becomes_absent(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.check_alive(&spec.key, 0).await
}

async fn delete_finds_a_visible_instance_by_key(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    bench.delete(&by_key(&spec.key), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.check_alive(&spec.key, 0).await
}

async fn delete_twice_succeeds(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.delete(&by_id(&made), &spec.key).await
}

async fn delete_of_a_missing_instance_succeeds(bench: &Bench<'_>) -> Played {
    let never = bench.key("never");
    let which = InstanceRef { name: Some(bench.name("never")), ..by_key(&never) };
    bench.delete(&which, &never).await
}

async fn delete_refuses_the_instance_of_another_key(bench: &Bench<'_>) -> Played {
    let theirs = bench.spec("theirs");
    let made = bench.ensure(&theirs).await?;
    bench.wait_until_visible().await;
    let ours = bench.key("ours");
    let by_their_name = InstanceRef { name: Some(theirs.name.clone()), ..by_key(&ours) };
    for which in [by_id(&made), by_their_name] {
        let error = bench.fails(bench.try_delete(&which, &ours).await, "delete", "denied")?;
        check(error.kind == ErrorKind::Denied, || format!("delete {which}: expected denied, got {error}"))?;
    }
    let found = present(bench.find(&by_id(&made)).await?, "find after the denied delete")?;
    check(found.power != Power::Deleting, || "delete was denied, but the instance is deleting".to_owned())
}

async fn delete_refuses_an_instance_without_key(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.made_by_others(&spec, bench.subject.now()).await?;
    let by_name = InstanceRef { may_lack_key: true, name: Some(spec.name.clone()), ..by_key(&spec.key) };
    for which in [by_id(&made), by_name] {
        let error = bench.fails(bench.try_delete(&which, &spec.key).await, "delete", "denied")?;
        check(error.kind == ErrorKind::Denied, || format!("delete {which}: expected denied, got {error}"))?;
    }
    let found = present(bench.find(&by_id(&made)).await?, "find after the denied delete")?;
    check(found.power != Power::Deleting, || "delete was denied, but the instance is deleting".to_owned())?;
    remove(bench, &spec, &made).await
}

async fn an_instance_without_key_is_deleted_by_its_id(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.made_by_others(&spec, bench.subject.now()).await?;
    remove(bench, &spec, &made).await?;
    let theirs = bench.spec("theirs");
    let of_another_key = bench.ensure(&theirs).await?;
    bench.wait_until_visible().await;
    let which = InstanceRef { may_lack_key: true, ..by_id(&of_another_key) };
    let error = bench.fails(bench.try_delete(&which, &spec.key).await, "delete", "denied")?;
    check(error.kind == ErrorKind::Denied, || format!("delete {which}: expected denied, got {error}"))?;
    bench.check_alive(&theirs.key, 1).await
}

async fn remove(bench: &Bench<'_>, spec: &InstanceSpec, made: &Instance) -> Played {
    let which = InstanceRef { may_lack_key: true, ..by_id(made) };
    bench.delete(&which, &spec.key).await?;
    bench.wait_until_gone(&which).await
}

async fn find_shows_an_instance_until_its_deletion_ends(bench: &Bench<'_>) -> Played {
    bench.inject(Trouble::SlowDeletion).await?;
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    bench.delete(&by_id(&made), &spec.key).await?;
    match bench.find(&by_id(&made)).await? {
        Sighting::Present(instance) if instance.power == Power::Deleting => {}
        other => return fail(format!("find during a slow deletion: expected deleting, got {other:?}")),
    }
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.check_alive(&spec.key, 0).await
}

/// A cloud may forget a deleted instance at once. If it shows the end, the answer proves the
/// account.
async fn the_end_of_an_instance_is_shown_in_its_account_only(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    present(bench.find(&by_id(&made)).await?, "find of a living instance")?;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    let of_another_key = InstanceRef { key: Some(bench.key("other")), ..by_id(&made) };
    let sighting = bench.find(&of_another_key).await?;
    check(sighting == Sighting::Absent, || {
        format!("find of a deleted instance of another key: expected absent, got {sighting:?}")
    })?;
    // Parts that only the key names may be left.
    let sighting = bench.find(&by_key(&spec.key)).await?;
    check(sighting != Sighting::Ended, || "find by key: expected no end of an instance".to_owned())?;
    bench.wait_until_gone(&by_key(&spec.key)).await?;
    let Some(credential) = bench.subject.another_account() else { return Ok(()) };
    match bench.open_other(&credential)?.instances().find(&by_id(&made)).await {
        Ok(Sighting::Absent) => Ok(()),
        found => fail(format!("find in another account: expected absent, got {found:?}")),
    }
}

async fn parts_of_a_failed_creation_are_used_again(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    half_made(bench, &spec).await?;
    let made = bench.ensure(&spec).await?;
    let which = InstanceRef { key: Some(spec.key.clone()), name: Some(spec.name.clone()), ..by_id(&made) };
    bench.wait_until_visible().await;
    bench.delete(&which, &spec.key).await?;
    bench.wait_until_gone(&which).await?;
    bench.check_alive(&spec.key, 0).await
}

async fn parts_of_a_failed_creation_are_deleted(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let which = half_made(bench, &spec).await?;
    let error = bench.fails(bench.try_delete(&which, &bench.key("other")).await, "delete", "denied");
    match error {
        Ok(error) => {
            check(error.kind == ErrorKind::Denied, || format!("delete: expected denied, got {error}"))?
        }
        // A driver that finds parts by the key finds none of another key.
        Err(_) => match bench.find(&which).await? {
            Sighting::Parts(_) => {}
            other => return fail(format!("delete with another key: expected parts, got {other:?}")),
        },
    }
    bench.delete(&which, &spec.key).await?;
    bench.wait_until_gone(&which).await?;
    bench.check_alive(&spec.key, 0).await
}

/// Begins a creation that ends after the first part, and finds that part.
async fn half_made(bench: &Bench<'_>, spec: &InstanceSpec) -> Played<InstanceRef> {
    bench.inject(Trouble::RefusedAfterParts).await?;
    let error = bench.fails(bench.driver.instances().ensure(spec).await, "ensure", "an error")?;
    check(error.may_have_effect(), || format!("ensure: expected an error with a state, got {error}"))?;
    bench.subject.clear_trouble().await;
    let which = InstanceRef { name: Some(spec.name.clone()), ..by_key(&spec.key) };
    match bench.find(&which).await? {
        Sighting::Parts(parts) if !parts.is_empty() => Ok(which),
        other => fail(format!("find after a creation that made only parts: expected parts, got {other:?}")),
    }
}
