//! Runs the driver contract, in process and over HTTP.

use std::sync::Arc;
use std::time::Duration;

use machinist_cloud_sim::Clock;
use machinist_driver::Provider as _;
use machinist_driver::contract::{Report, run};
use machinist_driver_sim::{PROMISES, SimProvider};
use machinist_instance::{Credential, Place, Scope};

use crate::pipe;
use crate::subject::{SimSubject, cloud};

#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract_in_process() {
    let cloud = cloud();
    let provider = SimProvider::in_process(cloud.clone());
    expect_all_passed(&run(&SimSubject::new(cloud, provider)).await);
}

#[tokio::test(start_paused = true)]
async fn the_driver_keeps_the_contract_over_http() {
    let cloud = cloud();
    let provider = SimProvider::over(Arc::new(pipe::endpoint(cloud.clone())), PROMISES);
    expect_all_passed(&run(&SimSubject::new(cloud, provider)).await);
}

#[tokio::test(start_paused = true)]
async fn the_driver_measures_the_clouds_clock_over_http() {
    let cloud = cloud();
    let ours = cloud.clock().now() + Duration::from_secs(40);
    let endpoint = pipe::endpoint(cloud.clone()).compared_with(Clock::starting_at(ours));
    let provider = SimProvider::over(Arc::new(endpoint), PROMISES);
    let credential = Credential::default();
    let driver = provider
        .open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
        .expect("no call is made");
    assert_eq!(driver.clock_skew(), None, "no answer has been received yet");
    driver.instances().list(&Scope::Visible).await.expect("listed");
    let skew = driver.clock_skew().expect("an answer has a date").as_secs_f64();
    assert!((-41.0..=-39.0).contains(&skew), "{skew}");
}

/// The simulated cloud can inject every case of an instance, so only the cases of other objects
/// may be skipped.
fn expect_all_passed(report: &Report) {
    let absent = [
        "this driver has no balancers",
        "this driver has no routes",
        "this cloud cannot inject RefusedAfterParts",
    ];
    let mut skipped = report.skipped().filter(|(_, why)| !absent.contains(why));
    assert!(report.failed().next().is_none() && skipped.next().is_none(), "\n{report}");
    assert!(!report.cases.is_empty());
}
