//! The Docker provider as a process, with exactly the roles of `deploy/capi`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::management::{self, Stack};
use crate::components::Provider;
use crate::control_plane::processes::Processes;
use crate::docker::Daemon;
use crate::node_image::NodeImages;
use crate::workspace::output_of;

const NAMESPACE: &str = "machinist-docker-system";
const ACCOUNT: &str = "manager";
const HEALTH_PORT: u16 = 9740;

/// The default image of a balancer in the provider.
pub(super) const BALANCER_IMAGE: &str = "kindest/haproxy:v20230606-42a2262b";

/// Returns the default image of a node in the provider.
pub(super) fn node_image() -> String {
    format!("kindest/node:{}", NodeImages::kubernetes_version())
}

/// Installs the provider, and starts it as a user with its roles.
pub(super) fn start(stack: &Stack, processes: &mut Processes, docker: &Daemon, program: &Path) -> Result<()> {
    let Stack { cluster, certificate, port_offset, .. } = *stack;
    let objects = management::objects_in(cluster, &Provider::Docker.components(program)?)?;
    let objects = management::adapted(objects, 0, &certificate.bundle);
    management::apply(cluster, &objects).context("cannot install the provider")?;

    let kubeconfig = kubeconfig(stack)?;
    let port = HEALTH_PORT + port_offset;
    let mut command = Command::new(program);
    command
        .arg("capi-docker")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--health-addr=127.0.0.1:{port}"))
        // This value also works where a capability is missing, so that Docker refuses privileged
        // containers.
        .arg("--docker-privileges=caps")
        .env("DOCKER_HOST", docker.host())
        .env("POD_NAMESPACE", NAMESPACE);
    processes.spawn("machinist", command, stack.log("machinist"))?;
    management::wait_until_ready(processes, "machinist capi-docker", port)
}

/// Writes a kubeconfig with a token of the provider's service account.
fn kubeconfig(stack: &Stack) -> Result<PathBuf> {
    let cluster = stack.cluster;
    let mut create = cluster.kubectl();
    create.args(["create", "token", ACCOUNT, "--duration=2h", "--namespace", NAMESPACE]);
    let token = output_of(&mut create)?;
    let mut view = cluster.kubectl();
    let config = output_of(view.args(["config", "view", "--raw", "--minify", "--output=json"]))?;
    let mut config: Value = serde_json::from_str(&config).context("cannot parse the kubeconfig")?;
    let user = config.pointer_mut("/users/0/user").context("the kubeconfig has a user")?;
    *user = json!({"token": token.trim()});
    let file = stack.folder.join(format!("{}-provider.kubeconfig", stack.name));
    fs::write(&file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}
