//! Asks the management cluster which version of Cluster and Machine it serves.

use anyhow::{Context, bail};
use machinist_api::capi::{Beta1, Beta2, CORE_GROUP, CoreVersion};
use machinist_controllers::capi::CoreApi;
use machinist_kube::connect;

use super::clusters;
use crate::args::ClusterArgs;
use crate::version::VERSION;

/// Returns the newest version that the cluster of the flags serves.
///
/// # Errors
/// If the cluster does not answer, or does not have Cluster API.
pub(crate) async fn core_api_of(args: &ClusterArgs) -> anyhow::Result<CoreApi> {
    let agent = format!("machinist-capi/{VERSION}");
    let (sources, options) = clusters::sources(args, &agent)?;
    let client = connect(&sources.control, &options).await?;
    clusters::wait_for_answer(&client, "management cluster").await?;
    core_api(&client).await
}

/// Returns the newest version that a cluster serves.
///
/// # Errors
/// If the cluster does not answer, or does not have Cluster API.
pub(crate) async fn core_api(client: &kube::Client) -> anyhow::Result<CoreApi> {
    let groups = client.list_api_groups().await.context("the API server did not answer")?;
    let group = groups.groups.iter().find(|group| group.name == CORE_GROUP);
    let serves = |version: &str| {
        group.is_some_and(|group| group.versions.iter().any(|served| served.version == version))
    };
    if serves(Beta2::VERSION) {
        return Ok(CoreApi::Beta2);
    }
    if serves(Beta1::VERSION) {
        return Ok(CoreApi::Beta1);
    }
    bail!(
        "the API server serves neither v1beta2 nor v1beta1 of {CORE_GROUP}. Install Cluster API first, for example with clusterctl init"
    )
}
