//! The embedded API server of `up` and `api-server`: its directory, address, kubeconfig and
//! built-in controllers.
//!
//! ```text
//! data_folder     checks of --data-dir that both commands share
//! private_folder  temporary directory for kubeconfig and keys without --data-dir
//! kubeconfig      the administrator's kubeconfig, with the URLs of the controllers
//! permissions     roles of machines that join, and of the cloud controller manager
//! ```

pub(crate) mod data_folder;
pub(crate) mod kubeconfig;
mod permissions;
mod private_folder;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kube::Client;
use machinist_apiserver::{Authorization, Config, Identity, ServeError, Server, Serving};
use machinist_kcm::CaPair;
use machinist_kube::{ClientOptions, layer_client};
use tokio::task::JoinSet;

use self::data_folder::Command;
use self::private_folder::PrivateFolder;
use crate::wiring;

/// Returns the configuration of the server, with RBAC as in a real cluster.
pub(crate) fn config() -> Config {
    Config { authorization: Authorization::Rbac, ..Config::default() }
}

/// Directory for kubeconfig and keys, and for all state with `--data-dir`.
pub(crate) struct Place {
    command: Command,
    path: PathBuf,
    /// Temporary directory, deleted on drop; absent with `--data-dir`.
    private: Option<PrivateFolder>,
}

impl Place {
    /// Returns the directory of `--data-dir`, or a new private temporary directory.
    ///
    /// # Errors
    /// If the temporary directory cannot be created.
    pub(crate) fn of(command: Command, data_dir: Option<&Path>) -> anyhow::Result<Self> {
        let private = match data_dir {
            Some(_) => None,
            None => Some(
                PrivateFolder::make(&std::env::temp_dir(), command)
                    .context("cannot create a temporary directory for the kubeconfig")?,
            ),
        };
        let path = private.as_ref().map(PrivateFolder::path).or(data_dir).unwrap_or(Path::new("."));
        Ok(Self { command, path: path.to_owned(), private })
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of `--data-dir`, if the flag was given.
    fn data_dir(&self) -> Option<&Path> {
        match self.private {
            Some(_) => None,
            None => Some(&self.path),
        }
    }
}

/// Returns whether this is the temporary directory of an `up` that was killed.
pub(crate) fn is_abandoned(folder: &Path) -> bool {
    private_folder::abandoned(folder, Command::Up).is_some()
}

/// A listening API server. Dropping it stops it.
pub(crate) struct ApiServer {
    /// The server itself, for callers in this process.
    pub server: Server,
    /// Address of an earlier run, if it is no longer available.
    pub moved: Option<SocketAddr>,
    serving: Serving,
    place: Place,
}

impl ApiServer {
    /// Listens on the given address. For port 0, the port of an earlier run is reused if it is
    /// free, so that old kubeconfigs still work.
    ///
    /// # Errors
    /// If the address is not available, or a file cannot be written.
    pub(crate) async fn listen(server: Server, place: Place, address: SocketAddr) -> anyhow::Result<Self> {
        let before = place.data_dir().and_then(data_folder::address);
        let before = before.filter(|before| address.port() == 0 && before.ip() == address.ip());
        if let Some(before) = before {
            match server.serve(before, &place.path).await {
                Ok(serving) => return Ok(Self { server, moved: None, serving, place }),
                Err(ServeError::Bind { .. }) => {}
                Err(error) => return Err(anyhow::Error::new(error).context("API server")),
            }
        }
        let serving = server.serve(address, &place.path).await.context("API server")?;
        Ok(Self { server, moved: before, serving, place })
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        self.serving.url()
    }

    /// Returns the CA certificate that clients trust.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.serving.ca_pem
    }

    /// Adds the URLs of controllers to the kubeconfig and writes it, to `out` if given. Returns its
    /// path.
    ///
    /// # Errors
    /// If the file cannot be written, or has other content.
    pub(crate) fn write_kubeconfig(
        &self,
        controllers: &[String],
        out: Option<&Path>,
    ) -> anyhow::Result<PathBuf> {
        let written = kubeconfig::extend(&self.serving.kubeconfig, controllers)?;
        match out {
            // The printed path must work from any directory.
            None => std::fs::canonicalize(&self.serving.kubeconfig)
                .with_context(|| format!("cannot read {}", self.serving.kubeconfig.display())),
            Some(file) => kubeconfig::write(file, &written),
        }
    }

    /// Returns a warning if the address changed since the earlier run.
    pub(crate) fn address_change_notice(&self) -> Option<String> {
        let before = self.moved?;
        Some(format!(
            "The previous address {before} of the API server is in use. Kubeconfigs of earlier runs do not work"
        ))
    }

    /// Waits until a write to the data directory fails.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        let failed = self.server.failed().await;
        match self.server.folder() {
            Some(folder) => data_folder::failure(self.place.command, folder.path(), failed),
            None => failed.into(),
        }
    }

    /// Stops listening and waits until every connection has ended.
    pub(crate) async fn shutdown(self) {
        self.serving.shutdown().await;
    }
}

/// Returns an in-process client with administrator rights.
pub(crate) fn client(server: &Server, user_agent: &str) -> Client {
    layer_client(server.service_as(Identity::admin()), &ClientOptions::new(user_agent))
}

/// Binds the roles that machines need to join.
///
/// # Errors
/// If a role cannot be bound. The error names the role.
pub(crate) async fn let_machines_join(client: &Client) -> anyhow::Result<()> {
    permissions::install(client).await
}

/// Creates the roles of the cloud controller manager. `machines` is the namespace of the Machines.
///
/// # Errors
/// If a role cannot be created. The error names the role.
pub(crate) async fn let_nodes_be_initialized(client: &Client, machines: &str) -> anyhow::Result<()> {
    permissions::cloud_controller_manager::install(client, machines).await
}

/// Returns the identity of the cloud controller manager.
pub(crate) fn cloud_controller_manager() -> Identity {
    permissions::cloud_controller_manager::identity()
}

/// Runs the built-in controllers that every cluster needs. Garbage collection includes custom
/// resources.
///
/// # Errors
/// If the CA for signing certificates is missing.
pub(crate) fn run_built_in_controllers(
    parts: &mut JoinSet<anyhow::Error>,
    server: &Server,
) -> anyhow::Result<()> {
    let ca = server.ca()?;
    let mut config = machinist_kcm::KcmConfig::default();
    config.ca = Some(CaPair::from_pem(ca.certificate_pem(), ca.key_pem())?);
    config.seed = wiring::seed();
    config.collect_defined_kinds = true;
    let client = client(server, "machinist-kcm");
    parts.spawn(async move {
        match machinist_kcm::run(client, config).await {
            Ok(never) => match never {},
            Err(error) => anyhow::Error::new(error).context("a built-in controller failed"),
        }
    });
    Ok(())
}
