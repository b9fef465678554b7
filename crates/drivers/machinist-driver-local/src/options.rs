//! Options of the provider: the control cluster, and how clients of API servers are made.

use std::fmt;

use kube::Client;
use machinist_instance::{Error, ErrorKind};
use machinist_kube::{ClientOptions, connect_to};

/// User-Agent of the driver's requests.
const USER_AGENT: &str = concat!("machinist-driver-local/", env!("CARGO_PKG_VERSION"));

/// Options of the provider for all accounts.
#[derive(Clone, Default)]
pub struct LocalOptions {
    /// The namespace of pods whose class names none: the namespace of the Machines.
    pub namespace: String,
    /// The cluster with the machine objects, which runs the pods of a class without a kubeconfig.
    /// `None`: calls for a class without a kubeconfig fail.
    pub control: Option<ControlCluster>,
}

/// The cluster with the machine objects.
#[derive(Clone)]
pub struct ControlCluster {
    /// The address of the API server. The names of accounts contain it, so another cluster has
    /// another address.
    pub address: String,
    /// A client with [`client_options`].
    pub client: Client,
    /// Whether the API server ends with this process. Then no request of an earlier process can
    /// still take effect.
    pub ends_with_process: bool,
}

impl fmt::Debug for ControlCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControlCluster").field(&self.address).finish()
    }
}

/// Options of the driver's clients: one attempt per request, because the caller repeats calls.
pub fn client_options() -> ClientOptions {
    ClientOptions { read_retries: 0, ..ClientOptions::new(USER_AGENT) }
}

/// Makes the clients for the kubeconfigs of Secrets.
pub trait ClusterConnector: Send + Sync {
    /// Makes a client. Sends no request.
    ///
    /// # Errors
    /// `Denied` if the credential or the certificates cannot be used.
    fn connect(&self, config: kube::Config, options: &ClientOptions) -> Result<Client, Error>;
}

/// Connects over TCP.
pub(crate) struct OverTcp;

impl ClusterConnector for OverTcp {
    fn connect(&self, config: kube::Config, options: &ClientOptions) -> Result<Client, Error> {
        connect_to(config, options)
            .map_err(|error| Error::new(ErrorKind::Denied, format!("kubeconfig: {error}")))
    }
}
