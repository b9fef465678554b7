//! Creates the clients of the two clusters from flags, and checks that the clusters answer and
//! serve the machine kinds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use kube::config::Kubeconfig;
use machinist_api::mcm::API_VERSION;
use machinist_controllers::{Clients, Pulse};
use machinist_kube::clock::Skew;
use machinist_kube::{ClientOptions, KubeconfigSource, connect as connect_client, is_answer, no_cluster};
use machinist_serve::Metrics;
use tokio::time::timeout;

use super::secure::SecureOptions;
use crate::args::{ClusterArgs, ClusterFlag};
use crate::output;
use crate::wrong_flags::WrongFlags;

/// The flag that names the target cluster. Only controllers with this flag work without one.
const TARGET_FLAG: &str = "--target-kubeconfig";
/// How long an API server may take to answer after the start. Go's machine-controller-manager waits
/// as long.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two requests during that wait.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Requests per second about the permissions of clients, and how many may exceed that rate at once.
const REVIEWS: (f64, u32) = (10.0, 20);

/// Kubeconfigs of the two clusters.
pub(super) struct Sources {
    pub control: KubeconfigSource,
    /// Absent if the flags say that there is no target cluster.
    pub target: Option<KubeconfigSource>,
    /// URL of the API server, from `--master`; the URL of the kubeconfig if absent.
    server: Option<String>,
}

impl Sources {
    /// The address of the control cluster, for metrics.
    pub(super) fn control_host(&self) -> String {
        host(&self.control, self.server.as_deref())
    }
}

/// Returns the address of an API server for metrics.
fn host(source: &KubeconfigSource, server: Option<&str>) -> String {
    let without_scheme =
        |url: &str| url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/').to_owned();
    if let Some(server) = server {
        return without_scheme(server);
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    match source {
        KubeconfigSource::InCluster => {
            format!("{}:{}", variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"))
        }
        KubeconfigSource::File(path) => {
            let url = cluster_of(path).and_then(|(_, server)| server).unwrap_or_default();
            without_scheme(&url)
        }
    }
}

/// Converts the flags to kubeconfigs and client options.
pub(super) fn sources(args: &ClusterArgs, user_agent: &str) -> anyhow::Result<(Sources, ClientOptions)> {
    let flag = args.kubeconfig_flag;
    let target = match &args.target_kubeconfig {
        ClusterFlag::Unset if !is_pod() => {
            let master = match args.master {
                Some(_) => ". --master replaces only its URL, and the credential is still required",
                None => "",
            };
            bail!(WrongFlags::new(format!(
                "{flag}: expected a kubeconfig. The cluster of the pod is the default, but this process does not run in a pod{master}"
            )))
        }
        ClusterFlag::Unset | ClusterFlag::InCluster => Some(KubeconfigSource::InCluster),
        ClusterFlag::File(path) => Some(KubeconfigSource::File(path.clone())),
        ClusterFlag::None if flag == TARGET_FLAG => None,
        ClusterFlag::None => bail!(WrongFlags::new(format!(
            "{flag} none: this controller needs the cluster. Name a kubeconfig"
        ))),
    };
    let control = match &args.control_kubeconfig {
        ClusterFlag::Unset => target.clone().ok_or_else(|| {
            WrongFlags::new(format!(
                "--control-kubeconfig: expected a kubeconfig or inClusterConfig with {TARGET_FLAG} none"
            ))
        })?,
        ClusterFlag::InCluster => KubeconfigSource::InCluster,
        ClusterFlag::File(path) => KubeconfigSource::File(path.clone()),
        ClusterFlag::None => {
            bail!(WrongFlags::new("--control-kubeconfig none: expected a kubeconfig or inClusterConfig"))
        }
    };
    let mut options = ClientOptions::new(user_agent);
    options.qps = args.kube_api_qps;
    // As in Go's clients, a burst of 0 means the default of the client.
    options.burst = args.kube_api_burst.filter(|burst| *burst != 0);
    options.server.clone_from(&args.master);
    options.seed = super::seed();
    Ok((Sources { control, target, server: args.master.clone() }, options))
}

/// Returns whether this process runs in a pod. Every pod gets the address of the API server in its
/// environment.
fn is_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Connects to both clusters. Each client measures the difference between our clock and the clock
/// of its cluster. Deadlines use the clock of the control cluster. The time since a Node stopped
/// reporting uses the clock of the target cluster, in `target_skew`.
pub(super) async fn connect(
    sources: &Sources,
    control: &ClientOptions,
    target_skew: &Skew,
    metrics: &Metrics,
    pulse: &Pulse,
) -> anyhow::Result<Clients> {
    let (control_title, target_title) = titles(sources);
    let control_client = connect_client(&sources.control, control).await.context(control_title)?;
    let Some(source) = &sources.target else {
        return Ok(Clients { control: control_client, target: no_cluster() });
    };
    let mut target = ClientOptions::new(&control.user_agent);
    target.skew = target_skew.clone();
    target.qps = control.qps;
    target.burst = control.burst;
    target.seed = super::seed();
    target.server.clone_from(&control.server);
    let host = host(source, control.server.as_deref());
    target.observer = Some(super::request_metrics::observer(metrics, pulse, &host));
    let target = connect_client(source, &target).await.context(target_title)?;
    Ok(Clients { control: control_client, target })
}

/// Returns the address of the control cluster, and a client of it with these options once it is
/// awaited. Sends no request.
///
/// # Errors
/// If the flags name no cluster.
#[cfg(feature = "local")]
pub(crate) fn control_cluster(
    args: &ClusterArgs,
    options: ClientOptions,
) -> anyhow::Result<(String, impl Future<Output = anyhow::Result<kube::Client>> + use<>)> {
    let (sources, _) = sources(args, &options.user_agent)?;
    let options = ClientOptions { server: sources.server.clone(), ..options };
    let address = sources.control_host();
    Ok((address, async move { connect_client(&sources.control, &options).await.context("control cluster") }))
}

/// Creates the clients for TokenReviews and for SubjectAccessReviews: of the control cluster, which
/// usually runs this process and those that read its metrics.
///
/// Every client in the network can cause such requests. So they have a limit of their own, and
/// their answers do not change the clock of the controllers.
pub(super) async fn review_clients(
    sources: &Sources,
    secure: &SecureOptions,
    user_agent: &str,
    server: &Option<String>,
    metrics: &Metrics,
) -> anyhow::Result<(kube::Client, kube::Client)> {
    let client = async |file: &Option<PathBuf>, flag: &'static str| {
        let mut options = ClientOptions::new(user_agent);
        (options.qps, options.burst) = (Some(REVIEWS.0), Some(REVIEWS.1));
        options.seed = super::seed();
        let (source, title) = match file {
            Some(file) => (KubeconfigSource::File(file.clone()), flag),
            None => {
                options.server.clone_from(server);
                (sources.control.clone(), "cluster of the reviews")
            }
        };
        options.observer = Some(super::request_metrics::observer(
            metrics,
            &Pulse::default(),
            &host(&source, options.server.as_deref()),
        ));
        connect_client(&source, &options).await.context(title)
    };
    Ok((
        client(&secure.authentication, "--authentication-kubeconfig").await?,
        client(&secure.authorization, "--authorization-kubeconfig").await?,
    ))
}

/// Returns the names of the control and the target cluster for messages. By default both are the
/// same cluster.
fn titles(sources: &Sources) -> (&'static str, &'static str) {
    if sources.target.as_ref() == Some(&sources.control) {
        ("control and target cluster", "control and target cluster")
    } else {
        ("control cluster", "target cluster")
    }
}

/// Waits until both clusters answer, then checks that the control cluster serves the machine kinds.
///
/// A target cluster that does not answer holds nothing up: a Machine with the label
/// `force-deletion` is deleted without it, and `/readyz` and `why` name it.
pub(super) async fn wait_until_served(
    clients: &Clients,
    sources: &Sources,
    resources: &[&str],
) -> anyhow::Result<()> {
    let (control_title, target_title) = titles(sources);
    let control = describe(control_title, &sources.control);
    wait_for_answer(&clients.control, &control).await?;
    let target = sources.target.as_ref().filter(|target| **target != sources.control);
    if let Some(target) = target
        && let Err(error) = wait_for_answer(&clients.target, &describe(target_title, target)).await
    {
        if error.downcast_ref().is_some_and(is_answer) {
            return Err(error);
        }
        tracing::warn!(error = output::one_line(&error), "Starting without the target cluster");
    }
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
    match resources.iter().find(|name| !served.iter().any(|resource| resource.name == **name)) {
        None => Ok(()),
        Some(missing) => bail!(
            "{control}: the API server does not serve {missing} of {API_VERSION}. Install the kinds: machinist crds | kubectl apply -f -"
        ),
    }
}

/// Waits until an API server answers.
pub(super) async fn wait_for_answer(client: &kube::Client, cluster: &str) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    let mut ask = tokio::time::interval(ASK_EVERY);
    loop {
        ask.tick().await;
        let error = match timeout(ANSWERS_WITHIN, client.apiserver_version()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => anyhow::Error::new(error),
            Err(_) => anyhow::anyhow!("no answer within {} s", ANSWERS_WITHIN.as_secs()),
        };
        if ANSWERS_WITHIN <= began.elapsed() {
            return Err(error.context(format!("{cluster}: the API server did not answer")));
        }
        let reason = output::one_line(&error);
        tracing::info!(cluster, reason, "Waiting for the API server");
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
    match cluster_of(path) {
        Some((cluster, Some(server))) => format!("{file}, cluster {cluster} at {server}"),
        Some((cluster, None)) => format!("{file}, cluster {cluster}"),
        None => file,
    }
}

/// Returns the name and the URL of the current cluster of a kubeconfig.
fn cluster_of(path: &Path) -> Option<(String, Option<String>)> {
    let config = Kubeconfig::read_from(path).ok()?;
    let context =
        config.contexts.iter().find(|entry| Some(&entry.name) == config.current_context.as_ref())?;
    let name = context.context.as_ref()?.cluster.clone();
    let cluster = config.clusters.iter().find(|entry| entry.name == name);
    let server = cluster.and_then(|entry| entry.cluster.as_ref()?.server.clone());
    Some((name, server))
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
            master: None,
            kubeconfig_flag: "--target-kubeconfig",
        }
    }

    #[test]
    fn the_master_flag_determines_the_host_of_metrics() {
        let mut args = args("target.yaml", "");
        args.master = Some("https://192.0.2.1:6443/".to_owned());
        let (sources, options) = sources(&args, "test").expect("accepted");
        assert_eq!(sources.control_host(), "192.0.2.1:6443");
        assert_eq!(options.server, args.master);
    }

    #[test]
    fn the_target_cluster_is_the_default_control_cluster() {
        let (sources, _) = sources(&args("target.yaml", ""), "test").expect("accepted");
        assert_eq!(sources.control, KubeconfigSource::File("target.yaml".into()));
        assert_eq!(sources.target, Some(sources.control));
    }

    #[test]
    fn one_cluster_may_be_in_cluster_and_one_a_file() {
        let (sources, _) = sources(&args("target.yaml", "inClusterConfig"), "test").expect("accepted");
        assert_eq!(sources.control, KubeconfigSource::InCluster);
        assert_eq!(sources.target, Some(KubeconfigSource::File("target.yaml".into())));
    }

    #[test]
    fn without_a_target_cluster_the_control_cluster_is_required() {
        let (found, _) = sources(&args("none", "control.yaml"), "test").expect("accepted");
        assert_eq!((found.control, found.target), (KubeconfigSource::File("control.yaml".into()), None));
        let error = sources(&args("none", ""), "test").err().expect("no cluster is left");
        assert!(error.to_string().starts_with("--control-kubeconfig: expected "), "{error}");
    }

    #[test]
    fn other_controllers_need_their_cluster() {
        let args = ClusterArgs { kubeconfig_flag: "--kubeconfig", ..args("none", "control.yaml") };
        let error = sources(&args, "test").err().expect("refused");
        assert!(error.to_string().starts_with("--kubeconfig none: "), "{error}");
    }
}
