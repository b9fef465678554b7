//! Actions and reports of `up` while the cluster runs: about the engine, about the control plane,
//! and about its published port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use machinist_driver_docker::EngineNews;
use machinist_instance::Scope;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::nodes::ServerNews;
use super::{Docker, Target, note};
use crate::progress::Progress;

/// How long the port is looked for after the engine has returned: the container starts first.
const PORT_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks for the port.
const LOOK_FOR_PORT_EVERY: Duration = Duration::from_secs(1);

impl Docker {
    /// Follows the engine: starts containers again that ended with it, and reports that it does not
    /// answer.
    pub(in crate::cmd::up) fn follow(
        self: &Arc<Self>,
        parts: &mut JoinSet<anyhow::Error>,
        target: &Target,
        progress: &Progress,
    ) {
        let (docker, progress) = (self.clone(), progress.clone());
        parts.spawn(async move {
            let scope = Scope::Ours(docker.name().to_owned());
            let ran = docker.identity.running(&docker.folder);
            match docker.provider.follow(&scope, ran, |news| docker.take_in(news, &progress)).await {}
        });
        let (docker, target) = (self.clone(), target.clone());
        parts.spawn(async move {
            loop {
                docker.may_have_moved.notified().await;
                if docker.has_moved(&target).await {
                    return PortMoved.into();
                }
            }
        });
    }

    /// Starts containers that ended with the engine while no run of `up` followed it.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub(super) async fn resume(&self, progress: &Progress) -> anyhow::Result<()> {
        let (scope, ran) = (Scope::Ours(self.name().to_owned()), self.identity.running(&self.folder));
        let started = self.provider.resume(&scope, &ran).await?;
        if !started.is_empty() {
            let started = started.join(", ");
            note(progress, &format!("Started the containers that ended with the engine: {started}"));
        }
        Ok(())
    }

    fn take_in(&self, news: EngineNews, progress: &Progress) {
        let engine = self.engine();
        match news {
            EngineNews::Running(containers) => self.keep_running(&containers, progress),
            EngineNews::Ended { container } => self.control_plane_ended(&container, progress),
            EngineNews::Silent(why) => {
                self.is_explained.store(true, Ordering::Relaxed);
                let then = "When it answers, the containers continue";
                note(progress, &format!("The engine at {engine} does not answer: {why}. {then}"));
            }
            EngineNews::Back { started } => {
                self.is_explained.store(false, Ordering::Relaxed);
                self.may_have_moved.notify_one();
                let started = started.join(", ");
                if started.is_empty() {
                    note(progress, &format!("The engine at {engine} answers again"));
                } else {
                    let what = "answers; started what had ended with it";
                    note(progress, &format!("The engine at {engine} {what}: {started}"));
                }
            }
            EngineNews::NotStarted { container, message } => {
                self.is_explained.store(false, Ordering::Relaxed);
                let what = "ended with the engine and cannot be started";
                note(progress, &format!("Container {container} {what}: {message}"));
            }
        }
    }

    /// Keeps which containers run, so that the next start knows what ended with the engine.
    pub(super) fn keep_running(&self, containers: &BTreeMap<String, String>, progress: &Progress) {
        if !self.is_continued_later || self.is_removed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.identity.keep_running(&self.folder, containers) {
            note(progress, &format!("{error:#}. After a reboot, `up` will not start containers again"));
        }
    }

    /// Reports that the control plane ended. The machine controller replaces the other containers.
    fn control_plane_ended(&self, container: &str, progress: &Progress) {
        let name = self.identity.control_plane_name();
        if container == name.as_str() && !self.is_removed.load(Ordering::Relaxed) {
            self.is_explained.store(true, Ordering::Relaxed);
            note(
                progress,
                &format!(
                    "Container {name}, the control plane, has ended, so the Nodes cannot be seen. Start it again: docker start \
                     {name}; or look into it: docker logs {name}"
                ),
            );
        }
    }

    /// Reports that the API server of the Nodes does not answer, unless a note has named the cause.
    pub(super) fn hear(&self, target: &Target, news: ServerNews, progress: &Progress) {
        if self.is_removed.load(Ordering::Relaxed) {
            return;
        }
        match news {
            ServerNews::Silent(_) if self.is_explained.load(Ordering::Relaxed) => {}
            ServerNews::Silent(error) => {
                self.may_have_moved.notify_one();
                note(progress, &self.server_silent(&target.url, &error));
            }
            ServerNews::Back => {
                self.is_explained.store(false, Ordering::Relaxed);
                note(progress, "The API server of the Nodes answers again");
            }
        }
    }

    pub(super) fn server_silent(&self, url: &str, error: &str) -> String {
        let name = self.identity.control_plane_name();
        format!(
            "The API server of the Nodes at {url} does not answer: {error}. Until it does, no machine joins, is drained or \
             is replaced. Look into its container: docker exec {name} crictl ps --all; start it again: docker restart \
             {name}. To delete the cluster instead, stop this command and add --until gone"
        )
    }

    /// Whether the API server is published at another port than the clients use. Clusters of
    /// earlier versions have a port that the engine chooses at each start.
    pub(super) async fn has_moved(&self, target: &Target) -> bool {
        let deadline = Instant::now() + PORT_WITHIN;
        while Instant::now() < deadline {
            if let Ok(Some(port)) = self.provider.api_server_port(&target.container).await {
                return target.url.starts_with(LOCAL) && target.url != format!("{LOCAL}{port}");
            }
            sleep(LOOK_FOR_PORT_EVERY).await;
        }
        false
    }
}

/// Begin of the URL of a published API server.
pub(super) const LOCAL: &str = "https://127.0.0.1:";

/// The engine publishes the API server of the Nodes at another port.
#[derive(Debug)]
pub(in crate::cmd::up) struct PortMoved;

impl std::error::Error for PortMoved {}

impl fmt::Display for PortMoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine publishes the API server of the Nodes at another port now")
    }
}
