//! The contract, in process and over HTTP.

use std::sync::Arc;

use machinist_driver::contract::{Report, run};
use machinist_driver_sim::{PROMISES, SimProvider};

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

/// The simulated cloud can arrange everything, so nothing may be skipped either.
fn expect_all_passed(report: &Report) {
    assert!(report.failed().next().is_none() && report.skipped().next().is_none(), "\n{report}");
    assert!(!report.cases.is_empty());
}
