//! Where the CA of client certificates comes from: a file, or the cluster.

use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

/// Namespace and name of the ConfigMap with the CA.
pub(crate) const CLIENT_CA_CONFIG_MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// The source of the CA. It is read again and again, because CAs are replaced.
pub(super) enum Source {
    File(PathBuf),
    Cluster(kube::Client),
}

impl Source {
    /// Returns the CA in PEM; `None` if the cluster has none.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(super) async fn read(&self) -> anyhow::Result<Option<String>> {
        match self {
            Self::File(file) => {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || read(&file));
                Ok(Some(read.await.context("--client-ca-file")??))
            }
            Self::Cluster(client) => {
                let (namespace, name) = CLIENT_CA_CONFIG_MAP;
                let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let found = maps.get_opt(name).await;
                let found = found.with_context(|| format!("ConfigMap {namespace}/{name}"))?;
                Ok(found.and_then(|map| map.data?.remove("client-ca-file")))
            }
        }
    }
}

/// Reads the file of `--client-ca-file`.
///
/// # Errors
/// If it cannot be read. The error names the flag and the file.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file)
        .with_context(|| format!("--client-ca-file {}: cannot read it", file.display()))
}
