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
    /// [default: /healthz,/readyz,/livez]
    #[arg(long, value_name = "PATHS", value_delimiter = ',', help_heading = SERVER)]
    pub authorization_always_allow_paths: Option<Vec<String>>,
}

/// Paths that every client may read if the flag is absent.
const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

impl SecureArgs {
    /// Whether a flag asks for TLS and permissions. Without one, a controller that is plain by
    /// default stays plain.
    pub(crate) fn is_given(&self) -> bool {
        let files = [
            &self.tls_cert_file,
            &self.tls_private_key_file,
            &self.cert_dir,
            &self.client_ca_file,
            &self.authentication_kubeconfig,
            &self.authorization_kubeconfig,
        ];
        files.into_iter().any(Option::is_some) || self.authorization_always_allow_paths.is_some()
    }

    /// The paths that every client may read.
    pub(crate) fn always_allow(&self) -> Vec<String> {
        let default = || ALWAYS_ALLOWED.map(str::to_owned).to_vec();
        self.authorization_always_allow_paths.clone().unwrap_or_else(default)
    }
}
