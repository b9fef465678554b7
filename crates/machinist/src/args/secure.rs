//! Flags of an HTTP port with TLS and permissions, with the names of Kubernetes' components.

use std::path::PathBuf;

use clap::Args;

pub(super) const SERVER: &str = "HTTPS server";

/// Certificate of the port, and who may read its paths.
#[derive(Debug, Args)]
pub(crate) struct SecureArgs {
    /// PEM file with the certificate of the server [default: generated at each start]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file", help_heading = SERVER)]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", help_heading = SERVER)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Directory that keeps the generated certificate across restarts [default: memory]
    #[arg(long, value_name = "DIR", help_heading = SERVER)]
    pub cert_dir: Option<PathBuf>,
    /// PEM file with the CA of client certificates [default: the CA of the ConfigMap
    /// kube-system/extension-apiserver-authentication]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub client_ca_file: Option<PathBuf>,
    /// Kubeconfig for the TokenReviews of bearer tokens [default: the kubeconfig of the cluster]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews [default: the kubeconfig of the cluster]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that every client may read, separated by commas; * at the end stands for any rest
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez", help_heading = SERVER)]
    pub authorization_always_allow_paths: Vec<String>,
}
