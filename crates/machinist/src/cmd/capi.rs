//! `machinist capi-docker` and `machinist capi-mailgun`: the Cluster API providers.

mod permissions;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use machinist_controllers::capi::{CapiOptions, CapiProvider, DockerOptions, MailOptions, Serves};
use machinist_driver_docker::PROMISES;
use machinist_instance::AccountId;
use machinist_mailgun::{DEFAULT_BASE, Mailgun};
use machinist_plan::capi::docker_machine;
use machinist_plan::capi::mail::SEND_BOUND;
use machinist_serve::Profiler;

use crate::args::{CapiArgs, CapiDockerArgs, CapiMailgunArgs, ClusterArgs, ClusterFlag};
use crate::clouds::docker;
use crate::wiring::{self, LeaseName, Prerequisite, Process, Shows};

/// Namespace of the Lease outside of a pod.
const LEASE_NAMESPACE: &str = "kube-system";

pub(crate) async fn run_docker(args: &CapiDockerArgs) -> anyhow::Result<ExitCode> {
    let settings = docker::options(&args.docker)?;
    let machines = Arc::new(docker_machine::Options {
        image: args.node_image_template.clone(),
        bootstrap_timeout: args.bootstrap_timeout,
        ..docker_machine::Options::default()
    });
    let provider = Provider {
        component: "capi-docker",
        lease: &args.leader_elect_resource_name,
        kinds: Kinds::Docker,
        call_bound: PROMISES.call_bound,
    };
    let serves = Prerequisite {
        waits_for: docker::WAITS_FOR_ENGINE,
        found: async {
            let mut options = DockerOptions::new(Arc::new(docker::provider(settings).await?));
            options.machines = machines;
            anyhow::Ok(Serves::Docker(options))
        },
    };
    run(&args.common, provider, serves).await
}

pub(crate) async fn run_mailgun(args: &CapiMailgunArgs) -> anyhow::Result<ExitCode> {
    let (domain, key) = (required("MAILGUN_DOMAIN")?, required("MAILGUN_API_KEY")?);
    let recipient = required("MAIL_RECIPIENT")?;
    machinist_mailgun::check_address("MAIL_RECIPIENT", &recipient)?;
    let base = variable("MAILGUN_API_BASE").unwrap_or_else(|| DEFAULT_BASE.to_owned());
    let service = AccountId::of([base.as_bytes(), domain.as_bytes()]);
    // The fingerprint does not reveal the key.
    let credential = AccountId::of([base.as_bytes(), domain.as_bytes(), key.as_bytes()]);
    let mailer = Mailgun::new(&base, &domain, key).context("MAILGUN_API_BASE")?;
    let options = MailOptions {
        mailer: Arc::new(mailer),
        domain,
        service: service.as_str().to_owned(),
        recipient,
        recipient_domains: args.recipient_domains.clone(),
        credential: credential.as_str().to_owned(),
        process: format!("{}-{:016x}", wiring::host_name(), wiring::seed()),
    };
    let provider = Provider {
        component: "capi-mailgun",
        lease: &args.leader_elect_resource_name,
        kinds: Kinds::Mailgun,
        call_bound: SEND_BOUND,
    };
    let serves = Prerequisite {
        waits_for: wiring::WAITS_FOR_API_SERVER,
        found: async { anyhow::Ok(Serves::Mailgun(options)) },
    };
    run(&args.common, provider, serves).await
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn required(name: &str) -> anyhow::Result<String> {
    match variable(name) {
        Some(value) => Ok(value),
        None => bail!("missing required env {name}"),
    }
}

/// One of the providers.
struct Provider<'a> {
    component: &'static str,
    lease: &'a str,
    kinds: Kinds,
    call_bound: Duration,
}

/// The kinds that a provider serves.
#[derive(Clone, Copy)]
enum Kinds {
    Docker,
    Mailgun,
}

async fn run(
    args: &CapiArgs,
    provider: Provider<'_>,
    serves: Prerequisite<impl Future<Output = anyhow::Result<Serves>>>,
) -> anyhow::Result<ExitCode> {
    let clusters = clusters(args);
    let namespace = args.leader_elect_resource_namespace.clone().or_else(|| variable("POD_NAMESPACE"));
    let namespace = namespace.unwrap_or_else(|| LEASE_NAMESPACE.to_owned());
    let process = Process {
        component: provider.component,
        resources: &[],
        clusters: &clusters,
        listen: Some(args.health_addr),
        secure: None,
        lease: LeaseName { namespace: &namespace, name: provider.lease },
        concurrency: args.concurrency,
        leader: &args.leader,
        permissions: permissions::needed(provider.kinds, &args.namespace),
        metrics: None,
        profiler: Profiler::Off,
        call_bound: Some(provider.call_bound),
        shows: Shows::default(),
    };
    let options = Prerequisite {
        waits_for: serves.waits_for,
        found: async {
            let serves = serves.found.await?;
            let core = wiring::core_api_of(&clusters).await?;
            tracing::info!(component = provider.component, ?core, "Serving a Cluster API provider");
            anyhow::Ok(CapiOptions {
                watch_filter: args.watch_filter.clone(),
                ..CapiOptions::new(serves, core)
            })
        },
    };
    let sync_period = args.sync_period;
    process
        .run_after(options, |options, clients, mut common, leadership| {
            common.resync = sync_period;
            CapiProvider::start(clients, common, options, leadership)
        })
        .await
}

/// The management cluster is the only one. Workload clusters are reached by their kubeconfigs.
fn clusters(args: &CapiArgs) -> ClusterArgs {
    ClusterArgs {
        target_kubeconfig: args.kubeconfig.clone(),
        control_kubeconfig: ClusterFlag::Unset,
        namespace: args.namespace.clone(),
        kube_api_qps: args.kube_api_qps,
        kube_api_burst: args.kube_api_burst,
        master: None,
        kubeconfig_flag: "--kubeconfig",
    }
}
