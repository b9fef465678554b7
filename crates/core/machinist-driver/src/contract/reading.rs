//! Rules for reads: the results of `find` and `list`, and the proof of absence.

use machinist_instance::{CreateGuarantee, ErrorKind, Foreign, InstanceRef, InstanceSpec, Scope, Sighting};

use super::bench::{Bench, by_id, by_key, by_name, check, fail, present};
use super::case::cases;
use super::ending::Played;
use super::subject::Trouble;

/// Number of listed instances: enough to detect a list that stops early.
const LISTED: usize = 5;

cases![
    find_works_by_id_key_and_name,
    find_of_a_missing_instance_returns_absent,
    find_reports_an_instance_of_another_key_as_foreign,
    list_is_complete_and_filters_by_cluster,
    reads_show_a_new_instance_within_the_promised_time,
];

async fn find_works_by_id_key_and_name(bench: &Bench<'_>) -> Played {
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    bench.wait_until_visible().await;
    let identities = [
        ("id", by_id(&made)),
        ("key", by_key(&spec.key)),
        ("name", by_name(&spec.name)),
        ("all", InstanceRef { key: Some(spec.key.clone()), name: Some(spec.name.clone()), ..by_id(&made) }),
    ];
    for (by, which) in identities {
        let found = present(bench.find(&which).await?, &format!("find by {by}"))?;
        check(found.id == made.id, || format!("find by {by}: expected {}, got {}", made.id, found.id))?;
        check(found.key.as_ref() == Some(&spec.key), || format!("find by {by}: wrong key {:?}", found.key))?;
    }
    Ok(())
}

async fn find_of_a_missing_instance_returns_absent(bench: &Bench<'_>) -> Played {
    bench.wait_until_settled().await;
    for which in [by_key(&bench.key("never")), by_name(&bench.name("never"))] {
        let sighting = bench.find(&which).await?;
        check(sighting == Sighting::Absent, || format!("find {which}: expected absent, got {sighting:?}"))?;
    }
    Ok(())
}

async fn find_reports_an_instance_of_another_key_as_foreign(bench: &Bench<'_>) -> Played {
    let theirs = bench.spec("theirs");
    let made = bench.ensure(&theirs).await?;
    bench.wait_until_visible().await;
    let ours = Some(bench.key("ours"));
    let by_their_id = InstanceRef { key: ours.clone(), ..by_id(&made) };
    let by_their_name = InstanceRef { key: ours, ..by_name(&theirs.name) };
    for (by, which) in [("id", by_their_id), ("name", by_their_name)] {
        match bench.find(&which).await? {
            Sighting::Foreign(foreign) => {
                let expected = Foreign {
                    id: made.id.clone(),
                    key: Some(theirs.key.clone()),
                    cluster: Some(bench.cluster()),
                    created: made.created,
                };
                check(foreign == expected, || {
                    format!("find by {by}: expected {expected:?}, got {foreign:?}")
                })?;
            }
            other => {
                return fail(format!(
                    "find by {by}: expected a foreign instance of key {}, got {other:?}",
                    theirs.key
                ));
            }
        }
    }
    Ok(())
}

async fn list_is_complete_and_filters_by_cluster(bench: &Bench<'_>) -> Played {
    let elsewhere = InstanceSpec { cluster: format!("{}-other", bench.cluster()), ..bench.spec("elsewhere") };
    let elsewhere = bench.ensure(&elsewhere).await?;
    let mut here = Vec::new();
    for number in 0..LISTED {
        here.push(bench.ensure(&bench.spec(&number.to_string())).await?);
    }
    bench.wait_until_visible().await;
    let list = async |scope| match bench.driver.instances().list(&scope).await {
        Ok(instances) => Ok(instances.into_iter().map(|instance| instance.id).collect::<Vec<_>>()),
        Err(error) => fail(format!("list: {error}")),
    };
    let (ours, visible) = (list(Scope::Ours(bench.cluster())).await?, list(Scope::Visible).await?);
    for instance in &here {
        check(ours.contains(&instance.id), || format!("list: {} is missing in its cluster", instance.id))?;
        check(visible.contains(&instance.id), || format!("list: {} is missing in the account", instance.id))?;
    }
    check(!ours.contains(&elsewhere.id), || "an instance of another cluster is listed in ours".to_owned())?;
    check(visible.contains(&elsewhere.id), || "an instance of another cluster is missing".to_owned())
}

async fn reads_show_a_new_instance_within_the_promised_time(bench: &Bench<'_>) -> Played {
    bench.inject(Trouble::SlowReads).await?;
    let spec = bench.spec("a");
    let made = bench.ensure(&spec).await?;
    match (bench.driver.instances().ensure(&spec).await, bench.promises().create) {
        (Ok(again), _) => check(again.id == made.id, || {
            "ensure created a second instance because reads did not show the first".to_owned()
        })?,
        // The cloud refuses the name and does not show the instance yet: the call had no effect.
        (Err(error), CreateGuarantee::UniqueName) if error.kind == ErrorKind::Unavailable => {}
        (Err(error), _) => return fail(format!("ensure: expected success, got {error}")),
    }
    bench.wait_until_visible().await;
    let again = bench.ensure(&spec).await?;
    check(again.id == made.id, || format!("ensure: expected {}, got {}", made.id, again.id))?;
    for (by, which) in [("id", by_id(&made)), ("key", by_key(&spec.key)), ("name", by_name(&spec.name))] {
        present(bench.find(&which).await?, &format!("find by {by} after the promised delay"))?;
    }
    bench.check_alive(&spec.key, 1).await
}
