//! The embedded API server as a command runs it: a folder for its files, an address, a kubeconfig, and the built-in controllers
//! beside it.
//!
//! ```text
//! data_folder     --data-dir: is it ours, can it be gone on with      (each command compares what only it keeps there)
//! private_folder  the place of kubeconfig and keys without --data-dir
//! kubeconfig      the administrator's, and where the controllers answer
//! permissions     what lets a machine join with a bootstrap token
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

/// How the server is set up: callers are asked what they may do, as in a cluster.
pub(crate) fn config() -> Config {
    Config { authorization: Authorization::Rbac, ..Config::default() }
}

/// The folder of kubeconfig and keys, and of everything else if a folder was named.
pub(crate) struct Place {
    command: Command,
    path: PathBuf,
    /// Removed with this, unless a folder was named.
    private: Option<PrivateFolder>,
}

impl Place {
    /// The named folder, or else a private and temporary one.
    ///
    /// # Errors
    /// When a temporary folder cannot be made.
    pub(crate) fn of(command: Command, data_dir: Option<&Path>) -> anyhow::Result<Self> {
        let private = match data_dir {
            Some(_) => None,
            None => Some(
                PrivateFolder::make(&std::env::temp_dir(), command)
                    .context("cannot make a temporary folder for the kubeconfig")?,
            ),
        };
        let path = private.as_ref().map(PrivateFolder::path).or(data_dir).unwrap_or(Path::new("."));
        Ok(Self { command, path: path.to_owned(), private })
    }

    /// The folder of `--data-dir`, if there is one.
    fn data_dir(&self) -> Option<&Path> {
        match self.private {
            Some(_) => None,
            None => Some(&self.path),
        }
    }
}

/// A server that can be reached, until it is dropped.
pub(crate) struct ApiServer {
    /// The server itself, for callers in this process.
    pub server: Server,
    /// Where it used to listen, if it cannot any more.
    pub moved: Option<SocketAddr>,
    serving: Serving,
    place: Place,
}

impl ApiServer {
    /// Listens on the address that was asked for. If any port will do, it is the one that kubeconfigs of an earlier run have, unless
    /// another process has it by now.
    ///
    /// # Errors
    /// When the address cannot be had, or a file cannot be written.
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

    /// Where it can be reached.
    pub(crate) fn url(&self) -> String {
        self.serving.url()
    }

    /// The certificate that its clients trust.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.serving.ca_pem
    }

    /// Adds the URLs of controllers to the kubeconfig, and writes it where it was asked for. Returns where it is.
    ///
    /// # Errors
    /// When it cannot be written, or a file with other content is there.
    pub(crate) fn write_kubeconfig(
        &self,
        controllers: &[String],
        out: Option<&Path>,
    ) -> anyhow::Result<PathBuf> {
        let written = kubeconfig::extend(&self.serving.kubeconfig, controllers)?;
        match out {
            // What is printed should work from any folder.
            None => std::fs::canonicalize(&self.serving.kubeconfig)
                .with_context(|| format!("cannot read {}", self.serving.kubeconfig.display())),
            Some(file) => kubeconfig::write(file, &written),
        }
    }

    /// What kubeconfigs of an earlier run should know.
    pub(crate) fn told_of_move(&self) -> Option<String> {
        let before = self.moved?;
        Some(format!(
            "{before}, where the API server listened before, is taken: kubeconfigs of that time do not reach it"
        ))
    }

    /// Waits until the data folder cannot be written any more.
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

/// A client of the administrator, in this process.
pub(crate) fn client(server: &Server, user_agent: &str) -> Client {
    layer_client(server.service_as(Identity::admin()), &ClientOptions::new(user_agent))
}

/// Binds the roles with which machines join.
///
/// # Errors
/// Names the role that could not be bound.
pub(crate) async fn let_machines_join(client: &Client) -> anyhow::Result<()> {
    permissions::install(client).await
}

/// Runs the controllers that an API server lacks, beside it; they collect the kinds of definitions, too.
///
/// # Errors
/// When there is no CA to sign with.
pub(crate) fn run_built_in_controllers(
    parts: &mut JoinSet<anyhow::Error>,
    server: &Server,
) -> anyhow::Result<()> {
    let ca = server.ca()?;
    let mut config = machinist_kcm::Config::default();
    config.ca = Some(CaPair::from_pem(ca.certificate_pem(), ca.key_pem())?);
    config.seed = wiring::seed();
    config.collect_defined_kinds = true;
    let client = client(server, "machinist-kcm");
    parts.spawn(async move {
        match machinist_kcm::run(client, config).await {
            Ok(never) => match never {},
            Err(error) => anyhow::Error::new(error).context("the built-in controllers"),
        }
    });
    Ok(())
}
