//! Runs the driver contract over HTTP.

use machinist_driver::contract::run;

use crate::cloud::Cloud;

/// The stand-in can arrange every case but one: the cloud has one spelling of an id.
#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract() {
    let report = run(&Cloud::new()).await;
    let skipped: Vec<&str> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, ["other_spellings_name_the_same_instance"], "\n{report}");
    assert!(report.failed().next().is_none(), "\n{report}");
}
