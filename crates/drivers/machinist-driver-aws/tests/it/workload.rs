//! The identity of a workload: its token is exchanged for keys.

use std::time::Duration;

use machinist_driver::Provider as _;
use machinist_driver_aws::AwsOptions;
use machinist_instance::{Credential, ErrorKind, Place, Scope};

use crate::cloud::{Cloud, REGION};
use crate::fake::{Settings, WORKLOAD_TOKEN};
use crate::subject::refusal;

/// A cloud whose workload has a token in a file.
fn cloud(folder: &tempfile::TempDir, token: &str) -> (Cloud, Credential) {
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).expect("written");
    let options = AwsOptions { token_folder: folder.path().to_owned(), ..AwsOptions::default() };
    let file = file.to_str().expect("UTF-8");
    let entries =
        [("workloadIdentityTokenFile", file), ("roleARN", "arn:aws:iam::123456789012:role/machines")];
    let entries = entries.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    (Cloud::with(Settings::default(), options), Credential::new(entries.into()))
}

fn open(cloud: &Cloud, credential: &Credential) -> std::sync::Arc<dyn machinist_driver::Driver> {
    let place = Place::new(REGION);
    let account = cloud.provider.account(credential, &place);
    cloud.provider.open(&account, credential, &place).expect("opened")
}

#[tokio::test(start_paused = true)]
async fn keys_are_exchanged_once_and_renewed_before_they_expire() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cloud, credential) = cloud(&folder, WORKLOAD_TOKEN);
    cloud.made_by_go("w-1");
    let driver = open(&cloud, &credential);
    let exchanges = || cloud.fake.count("AssumeRoleWithWebIdentity");
    for (wait, expected) in [(0, 1), (54 * 60, 1), (2 * 60, 2), (54 * 60, 2)] {
        tokio::time::advance(Duration::from_secs(wait)).await;
        let listed = driver.instances().list(&Scope::Visible).await.expect("a list");
        assert_eq!((listed.len(), exchanges()), (1, expected), "after {wait} s");
    }
    let state = cloud.fake.lock();
    let (first, second) = (&state.requests[0], &state.requests[1]);
    assert_eq!((first.access_key.as_str(), second.access_key.as_str()), ("", "ASIA0"));
    assert_eq!(first.parameters["RoleArn"], "arn:aws:iam::123456789012:role/machines");
}

#[tokio::test(start_paused = true)]
async fn rejected_keys_are_exchanged_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cloud, credential) = cloud(&folder, WORKLOAD_TOKEN);
    let driver = open(&cloud, &credential);
    cloud.fake.inject("DescribeInstances", refusal(400, "ExpiredToken"));
    let error = driver.instances().list(&Scope::Visible).await.expect_err("expired");
    assert_eq!(error.kind, ErrorKind::Denied);
    driver.instances().list(&Scope::Visible).await.expect("new keys");
    assert_eq!(cloud.fake.count("AssumeRoleWithWebIdentity"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_denied_and_not_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cloud, credential) = cloud(&folder, "canary");
    let error = open(&cloud, &credential).instances().list(&Scope::Visible).await.expect_err("rejected");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("InvalidIdentityToken") && !error.message.contains("canary"), "{error}");
    std::fs::remove_file(folder.path().join("token")).expect("removed");
    let error = open(&cloud, &credential).instances().list(&Scope::Visible).await.expect_err("no file");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.starts_with("workloadIdentityTokenFile: expected an existing file"), "{error}");
}
