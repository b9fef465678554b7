//! Runs the driver contract over HTTP.

use machinist_driver::contract::run;
use machinist_driver_aws::AwsOptions;

use crate::cloud::Cloud;
use crate::subject::settings;

/// The fake can inject every case of an instance, which has no parts. So only the cases of other
/// objects are skipped.
const ABSENT: [&str; 3] = [
    "this driver has no balancers",
    "this driver has no routes",
    "this cloud cannot inject RefusedAfterParts",
];

#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract() {
    let report = run(&Cloud::with(settings(), AwsOptions::default())).await;
    let mut skipped = report.skipped().filter(|(_, why)| !ABSENT.contains(why));
    assert!(report.failed().next().is_none() && skipped.next().is_none(), "\n{report}");
}
