//! The properties of a cloud that the program uses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use machinist_driver::Provider;
use machinist_driver_http::Traffic;
use machinist_instance::Error;
use machinist_serve::Metrics;
use serde_json::Value;

use super::flags::SettingArgs;
use crate::args::ClusterArgs;
use crate::wiring::credential::TokenFrom;

/// The state of a process whose provider can be used at once.
pub(crate) const STARTING: &str = "starting";

/// The properties of one cloud that the program uses.
pub(crate) struct Cloud {
    /// The name on the command line, in a MachineClass, and before `://` in the ids of instances.
    pub name: &'static str,
    /// Further names in a MachineClass, exactly as the providers of machine-controller-manager
    /// spell them.
    pub other_names: &'static [&'static str],
    /// One line for the help of `--provider`.
    pub about: &'static str,
    /// Checks a providerSpec. The error names the first wrong field and the expected value.
    pub check: fn(&Value) -> Result<(), Error>,
    /// Whether a machine controller without `--provider` and without flags of a cloud serves it:
    /// its classes and Secrets have all that it needs.
    pub needs_no_settings: bool,
    /// The first flag that is set and that only this cloud has.
    pub own_flag: fn(&SettingArgs) -> Option<&'static str>,
    /// Returns what a machine controller needs. An error names a wrong flag or variable.
    pub for_machines: fn(&Given<'_>) -> anyhow::Result<ForMachines>,
    /// The cloud controller manager of the cloud, if there is one.
    pub for_nodes: Option<NodeCloud>,
    /// How checks and explanations get the provider.
    pub reader: Reader,
    /// How `up` runs the cloud, if it can.
    pub up: Option<ForUp>,
}

impl Cloud {
    /// Returns what `machinist why` needs.
    pub(crate) async fn for_explanations(&self) -> ForExplanations {
        match self.reader {
            Reader::Alone(provider) => ForExplanations { provider: provider(), silent: None },
            Reader::Asks(explanations) => explanations().await,
        }
    }

    /// Returns the provider for checks without a request; `None` if it must ask the cloud first.
    pub(crate) fn parser(&self) -> Option<Arc<dyn Provider>> {
        match self.reader {
            Reader::Alone(provider) => Some(provider()),
            Reader::Asks(_) => None,
        }
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The flags of a machine controller from which a cloud reads its settings.
pub(crate) struct Given<'a> {
    pub settings: &'a SettingArgs,
    #[cfg_attr(not(feature = "local"), allow(dead_code, reason = "only local reads it"))]
    pub clusters: &'a ClusterArgs,
}

/// The parts of a cloud that a machine controller needs.
pub(crate) struct ForMachines {
    /// Waits until the provider can be used.
    pub provider: BoxFuture<'static, anyhow::Result<Arc<dyn Provider>>>,
    /// The state of the process until then, for `/readyz`.
    pub waits_for: &'static str,
    /// How long after its start a call may take effect.
    pub call_bound: Duration,
    /// The requests to the cloud, if the driver counts them.
    pub traffic: Option<Traffic>,
}

impl ForMachines {
    /// A provider that can be used at once.
    pub(super) fn ready(provider: Arc<dyn Provider>, call_bound: Duration, traffic: Option<Traffic>) -> Self {
        let provider = Box::pin(std::future::ready(Ok(provider)));
        Self { provider, waits_for: STARTING, call_bound, traffic }
    }
}

/// How checks and explanations get a provider. Only its parsers and checks are used; nothing is
/// changed.
pub(crate) enum Reader {
    /// At once, without a request.
    Alone(fn() -> Arc<dyn Provider>),
    /// After a question to the cloud.
    Asks(fn() -> BoxFuture<'static, ForExplanations>),
}

/// The cloud controller manager of a cloud.
pub(crate) struct NodeCloud {
    /// One line for the help of `--cloud-provider`.
    pub about: &'static str,
    /// The class of Services whose load balancers are provided, in addition to Services without a
    /// class.
    pub balancer_class: &'static str,
    /// The prefix of the annotations of Services with options of load balancers.
    pub annotation_prefix: &'static str,
    /// Reads the settings. An error names a wrong variable.
    pub open: fn() -> anyhow::Result<ForNodes>,
}

/// The parts of a cloud that a cloud controller manager needs.
pub(crate) struct ForNodes {
    pub provider: Arc<dyn Provider>,
    pub token: TokenFrom,
    /// Whether the settings name a network for routes.
    pub has_routes: bool,
    /// Whether the settings allow load balancers.
    pub has_balancers: bool,
    /// Address of the plain HTTP server for metrics, if there is one.
    pub metrics: Option<SocketAddr>,
    /// Adds the metrics of the calls.
    pub measure: Box<dyn FnOnce(&Metrics)>,
    /// How long after its start a call may take effect.
    pub call_bound: Duration,
}

/// The parts of a cloud that `machinist why` needs.
pub(crate) struct ForExplanations {
    pub provider: Arc<dyn Provider>,
    /// The sentence that the cloud does not answer to this process.
    pub silent: Option<String>,
}

/// How `up` runs a cloud.
pub(crate) struct ForUp {
    pub which: UpCloud,
    /// One line for the help of `--cloud`.
    pub about: &'static str,
    /// The manifest that is applied without `--manifest`.
    pub quick_start: &'static str,
}

/// A cloud that `up` can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpCloud {
    /// The simulated cloud of this program.
    Sim,
    /// A stand-in for Hetzner Cloud.
    Hcloud,
    /// Containers of a Docker engine.
    Docker,
    /// Pods of the embedded API server.
    #[cfg_attr(not(feature = "local"), allow(dead_code, reason = "no row has it then"))]
    Local,
}
