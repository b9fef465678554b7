//! Runs the driver contract over HTTP.

use machinist_driver::contract::run;

use crate::cloud::Cloud;

/// The cloud has one place, and makes nothing before a server. The stand-in can inject every other
/// case.
const SKIPPED: &[&str] = &[
    "parts_of_a_failed_creation_are_used_again",
    "parts_of_a_failed_creation_are_deleted",
    "places_of_one_credential_are_two_accounts",
    "another_place_cannot_see_the_instance",
    "a_place_refuses_the_spec_of_another_place",
];

#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract() {
    let report = run(&Cloud::new()).await;
    let skipped: Vec<&str> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, SKIPPED, "\n{report}");
    assert!(report.failed().next().is_none(), "\n{report}");
}
