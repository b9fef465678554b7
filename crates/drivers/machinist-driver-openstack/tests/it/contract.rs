//! Runs the driver contract over HTTP.

use std::time::Duration;

use machinist_driver::contract::run;

use crate::cloud::{Cloud, class_with_volume};
use crate::fake::Settings;
use crate::subject::settings;

/// The cases that are skipped, with a part of the reason.
const SKIPPED: [&str; 4] = [
    "this driver has no balancers",
    "this driver has no routes",
    // Nova accepts a server, and finds no host for it later. A test of its own plays that.
    "cannot inject StockUsedUp",
    "this driver supports only one caller per key",
];

async fn keeps_the_contract(cloud: Cloud) {
    let report = run(&cloud).await;
    let is_known = |why: &str| SKIPPED.iter().any(|part| why.contains(part));
    let mut skipped = report.skipped().filter(|(_, why)| !is_known(why));
    assert!(report.failed().next().is_none() && skipped.next().is_none(), "\n{report}");
}

#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract() {
    keeps_the_contract(Cloud::with(settings())).await;
}

/// The same with a root volume of our own. Cinder fills it at once, so that each call comes to the
/// server.
#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract_with_a_volume() {
    let settings = Settings { volume: Duration::ZERO, ..settings() };
    keeps_the_contract(Cloud { class: class_with_volume(), ..Cloud::with(settings) }).await;
}

/// The same with a volume that Cinder fills, for the cases that begin with a whole creation.
#[tokio::test(start_paused = true)]
async fn the_contract_waits_for_a_volume() {
    let report = run(&Cloud { class: class_with_volume(), ..Cloud::with(settings()) }).await;
    // The first call of these cases must reach the server, and only begins to fill the volume.
    let once = [
        "an_outage_is_unavailable_and_has_no_effect",
        "throttling_returns_retry_after",
        "a_used_up_quota_is_exhausted_and_has_no_effect",
        "ensure_failing_after_its_effect_is_ambiguous_and_repeatable",
        "ensure_without_an_answer_is_ambiguous_and_repeatable",
        "ensure_with_a_late_effect_creates_one_instance",
        "reads_show_a_new_instance_within_the_promised_time",
    ];
    let failed: Vec<_> = report.failed().filter(|(name, _)| !once.contains(name)).collect();
    assert!(failed.is_empty(), "\n{report}");
}
