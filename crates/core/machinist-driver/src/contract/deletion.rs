//! Deleting asks; only a later read says that it is done.

use machinist_instance::{ErrorKind, InstanceRef, Power, Sighting};

use super::bench::{Bench, by_id, by_key, check, fail, present};
use super::{Played, Trouble, cases};

cases![
    delete_ends_with_absence,
    delete_works_by_key_once_it_is_visible,
    delete_twice_succeeds,
    delete_of_what_never_was_succeeds,
    delete_refuses_the_instance_of_another_key,
    delete_shows_the_instance_until_it_is_gone,
];

async fn delete_ends_with_absence(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.check_alive(&spec.key, 0).await
}

async fn delete_works_by_key_once_it_is_visible(bench: &Bench<'_>) -> Played {
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

async fn delete_of_what_never_was_succeeds(bench: &Bench<'_>) -> Played {
    let never = bench.key("never");
    let which = InstanceRef { name: Some(bench.name("never")), ..by_key(&never) };
    bench.delete(&which, &never).await
}

async fn delete_refuses_the_instance_of_another_key(bench: &Bench<'_>) -> Played {
    let theirs = bench.spec("theirs");
    let made = bench.ensure(&theirs).await?;
    bench.wait_until_visible().await;
    let ours = bench.key("ours");
    let by_their_name = InstanceRef { key: Some(ours.clone()), name: Some(theirs.name.clone()), id: None };
    for which in [by_id(&made), by_their_name] {
        let error = bench.fails(bench.try_delete(&which, &ours).await, "delete", "denied")?;
        check(error.kind == ErrorKind::Denied, || format!("delete {which}: expected denied, got {error}"))?;
    }
    let found = present(bench.find(&by_id(&made)).await?, "find what was not to be deleted")?;
    check(found.power != Power::Deleting, || "it is being deleted although that was refused".to_owned())
}

async fn delete_shows_the_instance_until_it_is_gone(bench: &Bench<'_>) -> Played {
    bench.arrange(Trouble::SlowDeletion).await?;
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    bench.delete(&by_id(&made), &spec.key).await?;
    match bench.find(&by_id(&made)).await? {
        Sighting::Present(instance) if instance.power == Power::Deleting => {}
        other => return fail(format!("find during a slow deletion: expected it deleting, got {other:?}")),
    }
    bench.delete(&by_id(&made), &spec.key).await?;
    bench.wait_until_gone(&by_id(&made)).await?;
    bench.check_alive(&spec.key, 0).await
}
