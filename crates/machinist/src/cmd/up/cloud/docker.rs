//! The cluster of `--cloud docker`: a Kubernetes cluster whose Nodes are containers of an engine.
//!
//! ```text
//! identity (name, CA) -> engine answers -> control plane: image, container, kubeadm init
//!   -> kubeconfig -> its API server answers -> the machine controller makes workers, which join
//! ```
//!
//! `up` creates the control plane and the network. The machine controller creates and deletes the
//! workers, as in any other cluster: the embedded API server is its control cluster, and the
//! cluster in the containers is its target cluster. All containers have the label
//! `machinist.dev/cluster` with the name of the [`Identity`], and share a network of that name.
//!
//! Deliberately absent: a load balancer, because there is one control plane container. Its name is
//! its address in the network.

mod bootstrap_data;
mod control_plane;
mod identity;
mod news;
mod nodes;
mod others;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use machinist_controllers::Clients;
use machinist_driver::{Driver, Provider};
use machinist_driver_docker::{DockerProvider, PROMISES, Privileges};
use machinist_instance::{
    Credential, Error, ErrorKind, Instance, InstanceRef, NativeId, Place, Power, Scope,
};
use machinist_kube::{ClientOptions, KubeconfigSource, connect};
use serde_json::Value;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

pub(in crate::cmd::up) use self::identity::{DOCKER, FILES, Identity};
pub(in crate::cmd::up) use self::news::PortMoved;
use crate::args::UpArgs;
use crate::clouds::docker as settings;
use crate::cmd::up::cloud::Counts;
use crate::progress::Progress;
use crate::wiring::seed;

/// Image of all Nodes without `--node-image`.
pub(in crate::cmd::up) const NODE_IMAGE: &str = "kindest/node:v1.36.3";
/// Group of bootstrap tokens to which kubeadm gives the permissions to join.
pub(in crate::cmd::up) const TOKEN_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// Label of the control plane container: the directory of the `up` that owns the cluster.
const OWNER_FOLDER: &str = "machinist.dev/up-folder";

/// The engine ends a container within seconds.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);
/// An engine has no event that the driver follows, so `up` asks again after this time.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A cluster of containers.
pub(in crate::cmd::up) struct Docker {
    identity: Identity,
    provider: DockerProvider,
    driver: Arc<dyn Driver>,
    /// Image of the control plane.
    image: String,
    /// Directory of `up`: the value of `--data-dir`, or a temporary one.
    folder: PathBuf,
    /// Whether a later run may continue: with `--data-dir`.
    is_continued_later: bool,
    privileges: Privileges,
    /// The call that creates the control plane, which continues if its caller is stopped.
    creation: Mutex<Option<JoinHandle<Result<Instance, Error>>>>,
    /// If an earlier run was killed, the end of the time in which its calls may take effect. Empty
    /// until this run may send calls.
    killed_run_calls_until: OnceLock<Option<Instant>>,
    /// Whether this run deletes the cluster.
    is_removed: AtomicBool,
    /// Whether a note says why the Nodes cannot be seen.
    is_explained: AtomicBool,
    /// Wakes the look for the published port.
    may_have_moved: Notify,
}

/// The API server of the cluster of containers.
#[derive(Debug, Clone)]
pub(in crate::cmd::up) struct Target {
    /// URL of the API server, on this host.
    pub url: String,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Id of the control plane container.
    container: NativeId,
}

impl Docker {
    /// Asks the engine who it is. Creates nothing.
    ///
    /// # Errors
    /// If no engine answers, or if it is not the engine that has the containers of the directory.
    pub(in crate::cmd::up) async fn connect(
        args: &UpArgs,
        identity: Identity,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut options = settings::options(&args.docker)?;
        // A network for each cluster, so that clusters on one engine do not see each other.
        options.network.clone_from(&identity.name);
        let privileges = options.privileges;
        let provider = DockerProvider::connect(options).await.map_err(|error| no_engine(&error))?;
        identity.check_engine(provider.engine_id().unwrap_or_default())?;
        let credential = Credential::default();
        let driver =
            provider.open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)?;
        Ok(Self {
            identity,
            provider,
            driver,
            image: args.node_image.clone().unwrap_or_else(|| NODE_IMAGE.to_owned()),
            folder: std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
            is_continued_later: args.data_dir.is_some(),
            privileges,
            creation: Mutex::default(),
            killed_run_calls_until: OnceLock::new(),
            is_removed: AtomicBool::new(false),
            is_explained: AtomicBool::new(false),
            may_have_moved: Notify::new(),
        })
    }

    /// The name of the cluster.
    pub(in crate::cmd::up) fn name(&self) -> &str {
        &self.identity.name
    }

    /// The address of the engine.
    pub(in crate::cmd::up) fn engine(&self) -> String {
        self.provider.engine_address().to_string()
    }

    /// Whether an earlier run kept the identity.
    pub(in crate::cmd::up) fn is_kept(&self) -> bool {
        self.identity.is_kept
    }

    pub(in crate::cmd::up) fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.provider.clone())
    }

    /// Writes the identity to the directory of `up`, before anything with this name is created, and
    /// notes that this run may send calls.
    ///
    /// # Errors
    /// If a file cannot be written. The error names it.
    pub(in crate::cmd::up) fn keep(&self) -> anyhow::Result<()> {
        let engine = self.provider.engine_id().unwrap_or_default();
        self.identity.keep(&self.folder, engine, self.identity.control_plane.as_deref())?;
        if self.is_continued_later && self.killed_run_calls_until.get().is_none() {
            let was_killed = self.identity.open_calls(&self.folder)?;
            // The directory is locked, so the earlier run has sent its last call before.
            let until = was_killed.then(|| Instant::now() + PROMISES.call_bound);
            self.killed_run_calls_until.get_or_init(|| until);
        }
        Ok(())
    }

    /// Notes that this run ends in order, after its controllers have ended. If a call may still
    /// take effect, the next run waits for it, as after a kill.
    pub(in crate::cmd::up) async fn end(&self) {
        let is_creating = self.creation.lock().await.as_ref().is_some_and(|call| !call.is_finished());
        let has_open_calls = is_creating || self.provider.may_create_until().is_some();
        // A run that was refused before has noted nothing, and another one may use the directory.
        let has_noted = self.killed_run_calls_until.get().is_some();
        if has_noted && !has_open_calls && self.killed_run_calls_until().is_none() {
            self.identity.close_calls(&self.folder);
        }
    }

    /// If an earlier run was killed, the end of the time in which its calls may take effect.
    fn killed_run_calls_until(&self) -> Option<Instant> {
        let until = self.killed_run_calls_until.get().copied().flatten();
        until.filter(|until| Instant::now() <= *until)
    }

    /// Returns the shell command that deletes everything of the cluster.
    pub(in crate::cmd::up) fn cleanup(&self) -> String {
        identity::cleanup(self.name())
    }

    /// Counts the containers of the cluster.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub(in crate::cmd::up) async fn counts(&self) -> anyhow::Result<Counts> {
        let listed = self.list().await.map_err(|error| anyhow!(error.message))?;
        let stopped = listed.iter().filter(|instance| instance.power == Power::Stopped).count();
        Ok(Counts { alive: listed.len(), stopped, ever: None })
    }

    /// Deletes every container of the cluster, and its network. The next start with the same
    /// directory creates a new cluster of the same name.
    ///
    /// # Errors
    /// If something still exists after a minute, or the engine refuses a deletion. The error has
    /// the command that deletes the rest.
    pub(in crate::cmd::up) async fn remove(&self, progress: &Progress) -> anyhow::Result<()> {
        self.is_removed.store(true, Ordering::Relaxed);
        // First, so that the start after a kill does not miss the control plane.
        if self.is_continued_later {
            let engine = self.provider.engine_id().unwrap_or_default();
            self.identity.keep(&self.folder, engine, None)?;
            self.identity.keep_running(&self.folder, &BTreeMap::new())?;
        }
        self.await_creation(progress).await;
        let now = Instant::now();
        let deadline = self.killed_run_calls_until().map_or(now, |until| until.max(now)) + REMOVED_WITHIN;
        let removed = async {
            self.remove_containers(deadline, progress).await?;
            self.remove_network(deadline).await
        };
        removed.await.map_err(|error: anyhow::Error| {
            anyhow!("{error:#}. Delete everything of this cluster: {}", identity::cleanup(self.name()))
        })
    }

    /// Waits until the call that creates the control plane has ended. Its caller may have been
    /// stopped.
    async fn await_creation(&self, progress: &Progress) {
        let Some(creation) = self.creation.lock().await.take() else { return };
        if !creation.is_finished() {
            note(progress, "Waits until the engine has created the control plane, to delete it");
        }
        // The list shows the result.
        let _ = creation.await;
    }

    async fn remove_containers(&self, deadline: Instant, progress: &Progress) -> anyhow::Result<()> {
        let mut reported = String::new();
        let mut waits = false;
        // A container may stay after its deletion, and the engine may still create one for a call
        // that ended without its answer. So the list is read again.
        loop {
            // Read before the list, which shows the container of a creation that ended in between.
            let killed_run_calls_until = self.killed_run_calls_until();
            let may_appear = self.provider.may_create_until().is_some() || killed_run_calls_until.is_some();
            let left = match self.delete_listed().await {
                Ok(names) if names.is_empty() && !may_appear => return Ok(()),
                Ok(names) if names.is_empty() => {
                    if !waits {
                        waits = true;
                        let why = killed_run_calls_until.map_or_else(String::new, |until| {
                            let left = until.saturating_duration_since(Instant::now()).as_secs() + 1;
                            format!(". An earlier run was killed, and its calls may take effect for another {left} s")
                        });
                        note(
                            progress,
                            &format!(
                                "Waits for a container that the engine may still create, to delete it{why}"
                            ),
                        );
                    }
                    "a container that the engine may still create".to_owned()
                }
                Ok(names) => format!("the containers {}", names.join(", ")),
                Err(error) if is_passing(&error) => {
                    if reported != error.message {
                        reported.clone_from(&error.message);
                        note(progress, &format!("{reported}. Tries again"));
                    }
                    format!("the containers ({reported})")
                }
                Err(error) => bail!(error.message),
            };
            ensure_time(deadline, &left)?;
            sleep(LOOK_EVERY).await;
        }
    }

    async fn remove_network(&self, deadline: Instant) -> anyhow::Result<()> {
        while let Err(error) = self.provider.remove_network().await {
            ensure_time(deadline, &format!("the network {} ({})", self.name(), error.message))?;
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Requests the deletion of each listed container, and returns their names.
    ///
    /// # Errors
    /// The first error that no later call can avoid, or else the first one. The call has requested
    /// the other deletions.
    async fn delete_listed(&self) -> Result<Vec<String>, Error> {
        let listed = self.list().await?;
        let mut failed: Option<Error> = None;
        for instance in &listed {
            if let Err(error) = self.delete(instance).await
                && failed.as_ref().is_none_or(|first| is_passing(first) && !is_passing(&error))
            {
                failed = Some(error);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(listed.into_iter().map(|instance| instance.name.to_string()).collect()),
        }
    }

    async fn delete(&self, instance: &Instance) -> Result<(), Error> {
        let key = instance.key.clone().unwrap_or_else(|| self.identity.key());
        let which = InstanceRef {
            id: Some(instance.id.clone()),
            native_id: instance.native_id.clone(),
            ..InstanceRef::default()
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "`up` removes the cluster that it made, after its controllers have ended; the label names it"
        )]
        let deleted = self.driver.instances().delete(&which, &key).await;
        deleted.map_err(|error| {
            let text = format!("cannot delete container {}: {}", instance.name, error.message);
            Error::new(error.kind, text)
        })
    }

    async fn list(&self) -> Result<Vec<Instance>, Error> {
        let listed = self.driver.instances().list(&Scope::Ours(self.name().to_owned())).await;
        listed.map_err(|error| {
            let text = format!("cannot list the containers of {}: {}", self.name(), error.message);
            Error::new(error.kind, text)
        })
    }
}

/// Reports one sentence. The removal continues even if the reader of the output has ended.
fn note(progress: &Progress, message: &str) {
    let _ = progress.note(message);
}

fn ensure_time(deadline: Instant, what: &str) -> anyhow::Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    bail!("{what} could not be deleted within {} s", REMOVED_WITHIN.as_secs())
}

impl Target {
    /// Creates a client with administrator rights.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub(in crate::cmd::up) async fn client(&self, user_agent: &str) -> anyhow::Result<kube::Client> {
        let mut options = ClientOptions::new(user_agent);
        options.seed = seed();
        let source = KubeconfigSource::File(self.kubeconfig.clone());
        connect(&source, &options).await.context("cluster of containers")
    }

    /// Returns the clients of a controller: machine objects in `control`, Nodes here.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(in crate::cmd::up) async fn clients(
        &self,
        control: kube::Client,
        user_agent: &str,
    ) -> anyhow::Result<Clients> {
        Ok(Clients { control, target: self.client(user_agent).await? })
    }

    /// Follows the Nodes, by name.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(in crate::cmd::up) async fn nodes(
        &self,
        parts: &mut JoinSet<anyhow::Error>,
        docker: &Arc<Docker>,
        progress: &Progress,
    ) -> anyhow::Result<watch::Receiver<BTreeMap<String, Value>>> {
        let client = self.client(crate::cmd::up::writes::UP).await?;
        let (target, docker, progress) = (self.clone(), docker.clone(), progress.clone());
        Ok(nodes::follow(parts, client, move |news| docker.hear(&target, news, &progress)))
    }
}

/// Whether a failed call may succeed if it is repeated.
fn is_passing(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Throttled { .. } => true,
        ErrorKind::InvalidSpec
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::Unsupported
        | ErrorKind::Bug => false,
    }
}

fn no_engine(error: &Error) -> anyhow::Error {
    let advice = match error.kind {
        ErrorKind::Denied => {
            "Run as a user who may use the socket, on most systems a member of the group `docker`"
        }
        ErrorKind::Unsupported => "Use Docker Engine 20.10 or newer",
        _ => {
            "Start Docker, or set DOCKER_HOST to the address of an engine (unix:///PATH or tcp://HOST:PORT). Without an engine, try \
             `machinist up`, with a simulated cloud"
        }
    };
    anyhow!("--cloud docker: {}. {advice}", error.message)
}
