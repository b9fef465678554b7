//! Calls for a program that owns a whole cluster on an engine, such as `machinist up`: the image
//! before the first container, the start of a stopped container, the published port of the API
//! server, and the network at the end.

use machinist_instance::{Error, NativeId};
use tokio::time::Instant;

use crate::driver::DockerProvider;
use crate::engine::EngineAddress;
use crate::engine::call::{Call, Nature};
use crate::engine::{Command, Stdin};
use crate::model::Container;
use crate::request::API_SERVER;
use crate::{network, request};

/// The manifest of the API server in a container of the control plane.
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

impl DockerProvider {
    /// The id of the engine; absent unless the provider was made by [`DockerProvider::connect`] or
    /// its options name the engine.
    pub fn engine_id(&self) -> Option<&str> {
        self.options.engine_id.as_deref()
    }

    /// The address of the engine.
    pub fn engine_address(&self) -> &EngineAddress {
        &self.options.engine
    }

    /// The network of the containers.
    pub fn network(&self) -> &str {
        &self.options.network
    }

    /// Checks whether the engine has the image, and starts to pull it if the options permit that.
    /// Returns whether the image is there.
    ///
    /// # Errors
    /// The error of the last pull. `InvalidSpec` if the image does not exist, or if pulls are
    /// disabled.
    pub async fn ensure_image(&self, image: &str) -> Result<bool, Error> {
        self.images.ensure(image, self.options.pulls_images).await
    }

    /// Starts a container that was stopped. Starting a running one succeeds.
    ///
    /// # Errors
    /// As every call of the engine.
    pub async fn start(&self, container: &NativeId) -> Result<(), Error> {
        Ok(self.engine.call(request::start(container.as_str())).await.map(drop)?)
    }

    /// Returns the port of the host at which a control plane container publishes its API server.
    /// `None` if the container does not run. The port changes when the container is restarted.
    ///
    /// # Errors
    /// As every call of the engine.
    pub async fn api_server_port(&self, container: &NativeId) -> Result<Option<u16>, Error> {
        let found: Option<Container> = self.engine.find(request::inspect(container.as_str())).await?;
        let ports = found.map(|found| found.network_settings.ports).unwrap_or_default();
        let bindings = ports.get(API_SERVER).and_then(Option::as_ref);
        Ok(bindings.into_iter().flatten().find_map(|binding| binding.host_port.parse().ok()))
    }

    /// Returns the address for which kubeadm configured the API server in a container of the
    /// control plane. `None` if there is no such configuration.
    ///
    /// # Errors
    /// As every call of the engine.
    pub async fn configured_address(&self, container: &NativeId) -> Result<Option<String>, Error> {
        let find = Command {
            container: container.as_str(),
            argv: vec!["sed", "-n", "s/.*--advertise-address=//p", MANIFEST],
            nature: Nature::Reads,
        };
        let output = self.engine.run(find, Stdin::Empty).await?;
        Ok(output.text().lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned))
    }

    /// Returns the last moment at which the engine may still create a container or a network for an
    /// earlier call of this provider: the call was dropped, or its answer was lost. `None` if there
    /// is no such call. A list that begins later shows every container of earlier calls.
    pub fn may_create_until(&self) -> Option<Instant> {
        self.engine.creations.until()
    }

    /// Removes the network of the options. Removing an absent network succeeds.
    ///
    /// # Errors
    /// `Unavailable` while a container uses the network.
    pub async fn remove_network(&self) -> Result<(), Error> {
        // A process that ended during its creation may have left it.
        let probe = network::probe_of(self.network());
        if network::is_probe(&self.engine, &probe).await? == Some(true) {
            match self.engine.call(Call::delete("/networks/-", &probe)).await {
                Ok(_) => {}
                Err(failure) if failure.is_absence() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        match self.engine.call(Call::delete("/networks/-", self.network())).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_absence() => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }
}
