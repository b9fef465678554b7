//! From flags to clients of two clusters, and the first questions: does it answer, and does it serve our kinds?

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::config::Kubeconfig;
use machinist_api::mcm::API_VERSION;
use machinist_controllers::Clients;
use machinist_kube::clock::Skew;
use machinist_kube::{ClientOptions, KubeconfigSource, connect as connect_client};

use crate::args::{ClusterArgs, ClusterFlag, WrongFlags};
use crate::output;

/// How long an API server may take to answer after we start: as long as the original waits.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How often it is asked meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Where the two clusters are found.
pub(super) struct Sources {
    pub control: KubeconfigSource,
    pub target: KubeconfigSource,
}

/// Reads the flags.
pub(super) fn sources(args: &ClusterArgs, user_agent: &str) -> anyhow::Result<(Sources, ClientOptions)> {
    let target = match &args.target_kubeconfig {
        ClusterFlag::Unset if !is_pod() => bail!(WrongFlags::new(
            "--target-kubeconfig: expected a kubeconfig; this process is in no pod, whose cluster it could take"
        )),
        ClusterFlag::Unset | ClusterFlag::InCluster => KubeconfigSource::InCluster,
        ClusterFlag::File(path) => KubeconfigSource::File(path.clone()),
        ClusterFlag::None => bail!(WrongFlags::new(
            "--target-kubeconfig none: machines without a cluster to join are not supported yet"
        )),
    };
    let control = match &args.control_kubeconfig {
        ClusterFlag::Unset => target.clone(),
        ClusterFlag::InCluster => KubeconfigSource::InCluster,
        ClusterFlag::File(path) => KubeconfigSource::File(path.clone()),
        ClusterFlag::None => {
            bail!(WrongFlags::new("--control-kubeconfig none: expected a kubeconfig or inClusterConfig"))
        }
    };
    let mut options = ClientOptions::new(user_agent);
    options.qps = args.kube_api_qps;
    options.burst = args.kube_api_burst;
    options.seed = super::seed();
    Ok((Sources { control, target }, options))
}

/// Whether Kubernetes started this process: every pod is told where the API server is.
fn is_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Connects to both. Our clock is compared with each one's: deadlines come from the control cluster, and when a Node went silent from
/// the target cluster, for which `target_skew` is.
pub(super) async fn connect(
    sources: &Sources,
    control: &ClientOptions,
    target_skew: &Skew,
) -> anyhow::Result<Clients> {
    let mut target = ClientOptions::new(&control.user_agent);
    target.skew = target_skew.clone();
    target.qps = control.qps;
    target.burst = control.burst;
    target.seed = super::seed();
    Ok(Clients {
        control: connect_client(&sources.control, control).await.context("control cluster")?,
        target: connect_client(&sources.target, &target).await.context("target cluster")?,
    })
}

/// Waits until both clusters answer, then expects the control cluster to serve the kinds.
pub(super) async fn wait_until_served(
    clients: &Clients,
    sources: &Sources,
    resources: &[&str],
) -> anyhow::Result<()> {
    let control = describe("control cluster", &sources.control);
    let target = describe("target cluster", &sources.target);
    wait_for_answer(&clients.control, &control).await?;
    wait_for_answer(&clients.target, &target).await?;
    let served = match clients.control.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(anyhow::Error::new(error).context(format!("{control}: no answer"))),
    };
    match resources.iter().find(|name| !served.iter().any(|it| it.name == **name)) {
        None => Ok(()),
        Some(missing) => bail!(
            "{control}: expected {missing} of {API_VERSION} to be served; `machinist crds | kubectl apply -f -` installs the kinds"
        ),
    }
}

async fn wait_for_answer(client: &kube::Client, cluster: &str) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    let mut ask = tokio::time::interval(ASK_EVERY);
    loop {
        ask.tick().await;
        match client.apiserver_version().await {
            Ok(_) => return Ok(()),
            Err(error) if ANSWERS_WITHIN <= began.elapsed() => {
                return Err(anyhow::Error::new(error).context(format!("{cluster}: no answer")));
            }
            Err(error) => {
                let reason = output::one_line(&anyhow::Error::new(error));
                tracing::info!(cluster, reason, "Waiting for the API server");
            }
        }
    }
}

fn describe(which: &str, source: &KubeconfigSource) -> String {
    match source {
        KubeconfigSource::File(path) => format!("{which} ({})", describe_kubeconfig(path)),
        KubeconfigSource::InCluster => format!("{which} (the cluster of this pod)"),
    }
}

/// A kubeconfig by its file, cluster and address: what people need to see which of them is wrong.
pub(crate) fn describe_kubeconfig(path: &Path) -> String {
    let file = format!("kubeconfig {}", path.display());
    let Ok(config) = Kubeconfig::read_from(path) else { return file };
    let context = config.contexts.iter().find(|it| Some(&it.name) == config.current_context.as_ref());
    let Some(cluster_name) = context.and_then(|it| Some(it.context.as_ref()?.cluster.clone())) else {
        return file;
    };
    let cluster = config.clusters.iter().find(|it| it.name == cluster_name);
    match cluster.and_then(|it| it.cluster.as_ref()?.server.clone()) {
        Some(server) => format!("{file}, cluster {cluster_name} at {server}"),
        None => format!("{file}, cluster {cluster_name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(target: &str, control: &str) -> ClusterArgs {
        let cluster = |text: &str| text.parse().expect("any text names a cluster");
        ClusterArgs {
            target_kubeconfig: cluster(target),
            control_kubeconfig: cluster(control),
            namespace: "default".to_owned(),
            kube_api_qps: None,
            kube_api_burst: None,
        }
    }

    #[test]
    fn without_a_control_kubeconfig_both_clusters_are_one() {
        let (sources, _) = sources(&args("target.yaml", ""), "test").expect("understood");
        assert_eq!(sources.control, KubeconfigSource::File("target.yaml".into()));
        assert_eq!(sources.control, sources.target);
    }

    #[test]
    fn in_cluster_and_a_file_may_be_mixed() {
        let (sources, _) = sources(&args("target.yaml", "inClusterConfig"), "test").expect("understood");
        assert_eq!(sources.control, KubeconfigSource::InCluster);
        assert_eq!(sources.target, KubeconfigSource::File("target.yaml".into()));
    }

    #[test]
    fn a_missing_target_cluster_is_refused_by_name() {
        let error = sources(&args("none", "control.yaml"), "test").err().expect("not supported");
        assert!(error.to_string().starts_with("--target-kubeconfig none: "), "{error}");
    }
}
