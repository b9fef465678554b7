//! Creates or adopts the control plane container, step by step. Each step says what it waits for.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use machinist_driver_docker::Privileges;
use machinist_instance::{
    AddressKind, BootstrapFailure, BootstrapState, Error, ErrorKind, Instance, InstanceRef, InstanceSpec,
    NativeId, Power, Sighting,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::identity::{API_SERVER_PORT, PREFIX};
use super::news::LOCAL;
use super::{Docker, LOOK_EVERY, OWNER_FOLDER, Target, bootstrap_data, is_passing};
use crate::cmd::up::writes::UP;
use crate::output::one_line;
use crate::progress::Progress;

/// Longest time of kubeadm, on a slow computer. It takes half a minute on two cores.
const INITIALISED_WITHIN: Duration = Duration::from_secs(5 * 60);
/// Longest time of a pull of the image.
const PULLED_WITHIN: Duration = Duration::from_secs(30 * 60);
/// Longest time until the API server answers after kubeadm has ended.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// Longest time until a container publishes its port.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);
/// First port for API servers on this host, and number of ports.
const PORTS: (u16, u32) = (20_000, 12_000);
/// Attempts to create the container. An engine that is busy answers a later one.
const ATTEMPTS: u32 = 4;
/// Lines of the output of a failed kubeadm in the error.
const LINES_TOLD: usize = 12;

impl Docker {
    /// Brings the control plane up, from any state that an earlier start left.
    ///
    /// # Errors
    /// If a step fails. The error says what to do.
    pub(in crate::cmd::up) async fn start(&self, progress: &Progress) -> anyhow::Result<Target> {
        let name = self.identity.control_plane_name();
        progress.note(&format!("Cluster {} on the engine at {}", self.name(), self.engine()))?;
        if self.identity.control_plane.is_none() {
            self.provide_image(progress).await?;
        }
        let instance = self.provide_container(progress).await?;
        self.wait_for_kubeadm(progress).await?;
        let native_id = instance.native_id.clone().context("the engine gave the container no id")?;
        let engine = self.provider.engine_id().unwrap_or_default();
        self.identity.keep(&self.folder, engine, Some(native_id.as_str()))?;
        if self.identity.control_plane.is_some() {
            self.check_address(&native_id).await?;
        }
        let port = self.published_port(&native_id).await?;
        let url = url(port, &instance).with_context(|| format!("container {name} has no address"))?;
        let kubeconfig = self.identity.write_kubeconfig(&self.folder, &url)?;
        let target = Target { url, kubeconfig, container: native_id };
        self.resume(progress).await?;
        self.wait_for_answer(&target, progress).await?;
        Ok(target)
    }

    /// Reads the port at which the container publishes its API server. A container that was started
    /// a moment ago may not publish it yet.
    async fn published_port(&self, native_id: &NativeId) -> anyhow::Result<Option<u16>> {
        let deadline = Instant::now() + PUBLISHED_WITHIN;
        loop {
            match self.provider.api_server_port(native_id).await? {
                None if Instant::now() < deadline => sleep(LOOK_EVERY).await,
                port => return Ok(port),
            }
        }
    }

    /// Checks that a control plane of an earlier start has its address. Without it, etcd and the
    /// API server cannot start.
    async fn check_address(&self, native_id: &NativeId) -> anyhow::Result<()> {
        let name = self.identity.control_plane_name();
        let Sighting::Present(instance) = self.driver.instances().find(&self.reference()).await? else {
            return Ok(());
        };
        // Without an answer, the wait for the API server reports the problem.
        let configured = self.provider.configured_address(native_id).await.ok().flatten();
        let own: Vec<&str> = instance.addresses.iter().map(|address| address.address.as_str()).collect();
        match configured {
            Some(configured) if is_elsewhere(&own, &configured) => {
                let at = own.last().copied().unwrap_or_default();
                bail!(lost_address(name.as_str(), self.name(), &configured, at))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn provide_image(&self, progress: &Progress) -> anyhow::Result<()> {
        let image = &self.image;
        let deadline = Instant::now() + PULLED_WITHIN;
        let mut is_told = false;
        loop {
            match self.provider.ensure_image(image).await {
                Ok(true) => return Ok(()),
                Ok(false) if deadline < Instant::now() => {
                    bail!("--node-image {image}: not pulled within {} s", PULLED_WITHIN.as_secs())
                }
                Ok(false) if !is_told => {
                    progress.note(&format!("Waits for the engine to pull image {image}"))?;
                    is_told = true;
                }
                Ok(false) => {}
                Err(error) => return Err(no_image(image, &error)),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Creates the container, or finds the container of an earlier start, and starts it if it is
    /// stopped.
    async fn provide_container(&self, progress: &Progress) -> anyhow::Result<Instance> {
        let name = self.identity.control_plane_name();
        let existing = self.driver.instances().find(&self.reference()).await?;
        match (existing, &self.identity.control_plane) {
            (Sighting::Present(instance), _) if instance.power == Power::Stopped => {
                progress.note(&format!("Starts container {name}, the control plane, which was stopped"))?;
                let container = instance.native_id.as_ref().context("the engine gave the container no id")?;
                self.provider.start(container).await?;
            }
            (Sighting::Present(_), _) => {
                progress.note(&format!("Continues with container {name}, the control plane"))?;
            }
            (Sighting::Absent | Sighting::Ended, Some(_)) => {
                return Err(self.identity.without_control_plane());
            }
            // The engine then refuses the name, and says which object has it.
            (Sighting::Absent | Sighting::Ended | Sighting::Parts(_) | Sighting::Foreign(_), _) => {
                let (network, image) = (self.name(), &self.image);
                progress.note(&format!(
                    "Creates container {name}, the control plane, in network {network} from image {image}"
                ))?;
            }
        }
        for attempt in 1..=ATTEMPTS {
            match self.create_container().await {
                Ok(instance) => return Ok(instance),
                Err(error) if is_passing(&error) && attempt < ATTEMPTS => {
                    progress.note(&format!("Container {name}: {}. Tries again", error.message))?;
                    sleep(LOOK_EVERY * attempt).await;
                }
                Err(error) => return Err(self.no_container(&error)),
            }
        }
        bail!("container {name} could not be created")
    }

    /// Makes the call in a task of its own. If the user stops `up` meanwhile, the engine creates
    /// the container nevertheless, so the removal waits for the task.
    async fn create_container(&self) -> Result<Instance, Error> {
        let (driver, spec) = (self.driver.clone(), self.spec());
        let mut creation = self.creation.lock().await;
        let call = creation.insert(tokio::spawn(async move { driver.instances().ensure(&spec).await }));
        let ended = call.await;
        *creation = None;
        ended.unwrap_or_else(|error| {
            let text = format!("the call that creates the control plane ended unexpectedly: {error}");
            Err(Error::new(ErrorKind::Bug, text))
        })
    }

    fn spec(&self) -> InstanceSpec {
        let name = self.identity.control_plane_name();
        let folder = self.folder.display().to_string();
        InstanceSpec {
            key: self.identity.key(),
            cluster: self.name().to_owned(),
            provider_spec: json!({
                "image": self.image,
                "role": "control-plane",
                "apiServerPort": free_port(self.name()),
                "labels": {OWNER_FOLDER: folder},
            }),
            user_data: bootstrap_data::of_control_plane(name.as_str(), self.identity.authority()),
            name,
            tags: BTreeMap::new(),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        }
    }

    fn reference(&self) -> InstanceRef {
        InstanceRef {
            key: Some(self.identity.key()),
            name: Some(self.identity.control_plane_name()),
            ..InstanceRef::default()
        }
    }

    /// Waits until the user data of the container has run.
    async fn wait_for_kubeadm(&self, progress: &Progress) -> anyhow::Result<()> {
        let name = self.identity.control_plane_name();
        let bootstrap = self.driver.bootstrap().context("the driver has no bootstrap")?;
        let deadline = Instant::now() + INITIALISED_WITHIN;
        let mut reported = String::new();
        loop {
            let waits_for = match bootstrap.progress(&self.reference()).await {
                Ok(status) => match status.state {
                    BootstrapState::Succeeded => return Ok(()),
                    BootstrapState::Failed(failure) => return Err(self.kubeadm_failed(&failure)),
                    BootstrapState::NotStarted => "systemd in the container".to_owned(),
                    BootstrapState::Running { step, steps } => {
                        format!("kubeadm init (step {step} of {steps})")
                    }
                },
                Err(error) if is_passing(&error) => "the engine".to_owned(),
                Err(error) => bail!("container {name}: {}", error.message),
            };
            if Instant::now() > deadline {
                bail!(
                    "container {name}: waited {} s for {waits_for}. Look into it: docker exec {name} journalctl --no-pager --lines=50",
                    INITIALISED_WITHIN.as_secs()
                );
            }
            if reported != waits_for {
                progress.note(&format!("Container {name}: waits for {waits_for}"))?;
                reported = waits_for;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn wait_for_answer(&self, target: &Target, progress: &Progress) -> anyhow::Result<()> {
        progress.note(&format!("Waits for the API server at {}", target.url))?;
        let client = target.client(UP).await?;
        let deadline = Instant::now() + ANSWERS_WITHIN;
        loop {
            match client.apiserver_version().await {
                Ok(version) => {
                    progress.note(&format!("The control plane runs Kubernetes {}", version.git_version))?;
                    return Ok(());
                }
                Err(error) if deadline < Instant::now() => {
                    bail!(self.server_silent(&target.url, &one_line(&anyhow::Error::new(error))))
                }
                Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    fn kubeadm_failed(&self, failure: &BootstrapFailure) -> anyhow::Error {
        let name = self.identity.control_plane_name();
        let output = format!("{}\n{}", failure.stdout, failure.stderr);
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        let end = lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n  ");
        let advice = if self.is_continued_later {
            format!(
                "Look at the kubelet: docker exec {name} journalctl --no-pager --unit=kubelet. To start again, first delete the \
                 container: docker rm --force --volumes {name}"
            )
        } else {
            "With --data-dir, the container stays for a closer look".to_owned()
        };
        anyhow!(
            "container {name}: kubeadm init failed: {}. {advice}. The end of the output:\n  {end}",
            failure.cause
        )
    }

    fn no_container(&self, error: &Error) -> anyhow::Error {
        let name = self.identity.control_plane_name();
        let advice = match self.privileges {
            Privileges::Full => {
                ". If this host cannot run privileged containers, try --docker-privileges caps"
            }
            Privileges::Capabilities | Privileges::None => "",
        };
        anyhow!("container {name} could not be created: {}{advice}", error.message)
    }
}

/// Whether a container with these addresses does not have the configured one.
fn is_elsewhere(own: &[&str], configured: &str) -> bool {
    let mut ips = own.iter().filter_map(|address| address.parse::<IpAddr>().ok()).peekable();
    let configured: Option<IpAddr> = configured.parse().ok();
    ips.peek().is_some() && configured.is_some_and(|configured| ips.all(|address| address != configured))
}

fn lost_address(name: &str, network: &str, configured: &str, at: &str) -> String {
    format!(
        "container {name} has the address {at}, but its control plane is configured for {configured}: a restart of the engine \
         dealt the addresses of network {network} out in another order, because an earlier version created the network. Give the \
         address back: stop the containers of the network (docker stop $(docker ps --quiet --filter network={network})), restart \
         the engine, and start this container first (docker start {name}). To delete the cluster instead, add --until gone"
    )
}

/// Returns a port of this host for the API server. It is fixed, so that kubeconfigs stay valid
/// after a restart of the engine, and outside of the range from which systems choose ports
/// themselves.
fn free_port(cluster: &str) -> Option<u16> {
    let number =
        cluster.strip_prefix(PREFIX).and_then(|text| u32::from_str_radix(text, 16).ok()).unwrap_or(0);
    let ports = (0..PORTS.1).map(|step| u32::from(PORTS.0) + (number.wrapping_add(step)) % PORTS.1);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.filter_map(|port| u16::try_from(port).ok()).find(is_free)
}

/// Returns the URL of the API server on this host: the published port, or the container's address.
fn url(port: Option<u16>, instance: &Instance) -> Option<String> {
    if let Some(port) = port {
        return Some(format!("{LOCAL}{port}"));
    }
    let own = instance.addresses.iter().find(|address| address.kind == AddressKind::InternalIP)?;
    Some(format!("https://{}:{API_SERVER_PORT}", own.address))
}

fn no_image(image: &str, error: &Error) -> anyhow::Error {
    anyhow!(
        "--node-image {image}: {}. Nothing was created. Pull an image that kind's tools built (docker pull kindest/node:TAG), and name \
         it with --node-image; or build the image from the sources of this program: cargo xtask node-image --import",
        error.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_address_is_named_with_a_way_out() {
        assert!(is_elsewhere(&["c-control-plane", "172.18.0.3"], "172.18.0.2"));
        assert!(!is_elsewhere(&["c-control-plane", "172.18.0.2", "fd00::2"], "172.18.0.2"));
        assert!(!is_elsewhere(&["c-control-plane"], "172.18.0.2"), "the container does not run");
        assert!(!is_elsewhere(&["172.18.0.3"], "not an address"));
        let message = lost_address("c-control-plane", "c", "172.18.0.2", "172.18.0.3");
        for part in ["172.18.0.2", "172.18.0.3", "docker start c-control-plane", "--until gone"] {
            assert!(message.contains(part), "expected {part:?} in {message}");
        }
    }

    #[test]
    fn the_port_of_the_api_server_is_free_and_fixed() {
        let first = free_port("machinist-0000002a").expect("a free port");
        assert_eq!(free_port("machinist-0000002a"), Some(first));
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).expect("it is free");
        let second = free_port("machinist-0000002a").expect("a free port");
        assert!(second != first && (20_000..32_000).contains(&second), "{second}");
    }

    #[test]
    fn a_missing_image_is_named_with_two_ways_to_get_one() {
        let error = Error::new(ErrorKind::InvalidSpec, "image a:1 does not exist");
        let message = no_image("a:1", &error).to_string();
        for part in ["--node-image a:1: ", "docker pull", "cargo xtask node-image --import"] {
            assert!(message.contains(part), "expected {part:?} in {message}");
        }
    }
}
