//! The credential of the cloud account, which comes from outside of the cluster.

use machinist_instance::Credential;
use tokio::sync::watch;

/// A credential, and a number that differs for each credential that the process has read.
#[derive(Debug, Clone)]
pub struct Versioned {
    /// The number of the credential.
    pub version: u64,
    /// The credential.
    pub credential: Credential,
}

/// The current credential; `None` until it was read for the first time.
pub type CredentialSource = watch::Receiver<Option<Versioned>>;
