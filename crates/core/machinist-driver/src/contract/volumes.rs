//! Rules for volumes: a drain waits for the volumes that a driver knows.

use machinist_instance::VolumeSource;

use super::bench::{Bench, check, fail};
use super::case::cases;
use super::ending::{Ending, Played};

cases![volumes_of_this_cloud_have_an_id_of_their_own, volumes_of_another_cloud_have_no_id];

async fn volumes_of_this_cloud_have_an_id_of_their_own(bench: &Bench<'_>) -> Played {
    let known = bench.subject.volumes();
    let (Some(volumes), [first, second, ..]) = (bench.driver.volumes(), known.as_slice()) else {
        return without_volumes(bench, &known);
    };
    let ids = [first, second].map(|source| volumes.volume_id(source));
    check(ids.iter().all(|id| id.as_ref().is_some_and(|id| !id.is_empty())), || {
        format!("volume_id: expected ids of {first:?} and {second:?}, got {ids:?}")
    })?;
    check(ids[0] != ids[1], || format!("volume_id: expected two ids of two volumes, got {ids:?}"))?;
    check(volumes.volume_id(first) == ids[0], || "volume_id: expected the same id again".to_owned())
}

async fn volumes_of_another_cloud_have_no_id(bench: &Bench<'_>) -> Played {
    let known = bench.subject.volumes();
    let Some(volumes) = bench.driver.volumes() else { return without_volumes(bench, &known) };
    let source = |plugin: &str, id: &str| VolumeSource { plugin: plugin.to_owned(), id: id.to_owned() };
    let foreign = [
        source("csi.another-cloud.example", "1"),
        source("kubernetes.io/another-cloud", "disk-1"),
        source("", ""),
    ];
    let nameless = known.first().map(|known| VolumeSource { id: String::new(), ..known.clone() });
    for source in foreign.into_iter().chain(nameless) {
        let id = volumes.volume_id(&source);
        check(id.is_none(), || format!("volume_id: expected no id of {source:?}, got {id:?}"))?;
    }
    Ok(())
}

/// Skips a case for a driver without volumes, if its tests say the same.
fn without_volumes(bench: &Bench<'_>, known: &[VolumeSource]) -> Played {
    match (bench.driver.volumes().is_some(), known) {
        (false, []) => Err(Ending::Skip("this driver has no volumes".to_owned())),
        (true, known) => fail(format!("expected two volumes of this cloud, got {known:?}")),
        (false, known) => fail(format!("the driver has no volumes, but its tests name {known:?}")),
    }
}
