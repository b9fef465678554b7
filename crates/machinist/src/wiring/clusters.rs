//! Creates the clients of the two clusters from flags, and checks that the clusters answer and
//! serve the machine kinds.

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

/// How long an API server may take to answer after the start. Go's machine-controller-manager waits
/// as long.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two requests during that wait.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Kubeconfigs of the two clusters.
pub(super) struct Sources {
    pub control: KubeconfigSource,
    pub target: KubeconfigSource,
}

/// Converts the flags to kubeconfigs and client options.
pub(super) fn sources(args: &ClusterArgs, user_agent: &str) -> anyhow::Result<(Sources, ClientOptions)> {
    let target = match &args.target_kubeconfig {
        ClusterFlag::Unset if !is_pod() => bail!(WrongFlags::new(
            "--target-kubeconfig: expected a kubeconfig. The cluster of the pod is the default, but this process does not run in a pod"
        )),
        ClusterFlag::Unset | ClusterFlag::InCluster => KubeconfigSource::InCluster,
        ClusterFlag::File(path) => KubeconfigSource::File(path.clone()),
        ClusterFlag::None => bail!(WrongFlags::new(
            "--target-kubeconfig none: machines without a target cluster are not supported yet. Name a kubeconfig"
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

/// Returns whether this process runs in a pod. Every pod gets the address of the API server in its
/// environment.
fn is_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Connects to both clusters. Each client measures the difference between our clock and the clock
/// of its cluster. Deadlines use the clock of the control cluster. The time since a Node stopped
/// reporting uses that of the target cluster, in `target_skew`.
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
    let (control_title, target_title) = titles(sources);
    Ok(Clients {
        control: connect_client(&sources.control, control).await.context(control_title)?,
        target: connect_client(&sources.target, &target).await.context(target_title)?,
    })
}

/// Returns the names of the control and the target cluster for messages. By default both are the
/// same cluster.
fn titles(sources: &Sources) -> (&'static str, &'static str) {
    if sources.control == sources.target {
        ("control and target cluster", "control and target cluster")
    } else {
        ("control cluster", "target cluster")
    }
}

/// Waits until both clusters answer, then checks that the control cluster serves the machine kinds.
pub(super) async fn wait_until_served(
    clients: &Clients,
    sources: &Sources,
    resources: &[&str],
) -> anyhow::Result<()> {
    let (control_title, target_title) = titles(sources);
    let control = describe(control_title, &sources.control);
    let target = describe(target_title, &sources.target);
    wait_for_answer(&clients.control, &control).await?;
    wait_for_answer(&clients.target, &target).await?;
    if resources.is_empty() {
        return Ok(());
    }
    let served = match clients.control.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            return Err(
                anyhow::Error::new(error).context(format!("{control}: the API server did not answer"))
            );
        }
    };
    match resources.iter().find(|name| !served.iter().any(|it| it.name == **name)) {
        None => Ok(()),
        Some(missing) => bail!(
            "{control}: the API server does not serve {missing} of {API_VERSION}. Install the kinds: machinist crds | kubectl apply -f -"
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
                return Err(
                    anyhow::Error::new(error).context(format!("{cluster}: the API server did not answer"))
                );
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

/// Describes a kubeconfig by file, cluster and address, so that users see which kubeconfig is
/// wrong.
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
        let cluster = |text: &str| text.parse().expect("every text is a valid cluster flag");
        ClusterArgs {
            target_kubeconfig: cluster(target),
            control_kubeconfig: cluster(control),
            namespace: "default".to_owned(),
            kube_api_qps: None,
            kube_api_burst: None,
        }
    }

    #[test]
    fn the_target_cluster_is_the_default_control_cluster() {
        let (sources, _) = sources(&args("target.yaml", ""), "test").expect("accepted");
        assert_eq!(sources.control, KubeconfigSource::File("target.yaml".into()));
        assert_eq!(sources.control, sources.target);
    }

    #[test]
    fn one_cluster_may_be_in_cluster_and_one_a_file() {
        let (sources, _) = sources(&args("target.yaml", "inClusterConfig"), "test").expect("accepted");
        assert_eq!(sources.control, KubeconfigSource::InCluster);
        assert_eq!(sources.target, KubeconfigSource::File("target.yaml".into()));
    }

    #[test]
    fn a_target_cluster_is_required() {
        let error = sources(&args("none", "control.yaml"), "test").err().expect("not supported");
        assert!(error.to_string().starts_with("--target-kubeconfig none: "), "{error}");
    }
}
