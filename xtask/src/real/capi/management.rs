//! The controllers of Cluster API on the management cluster: core, kubeadm bootstrap and kubeadm
//! control plane.
//!
//! The controllers run as processes next to the API server, and not as pods. So the objects of a
//! released installation are used without Deployments, Services and certificates, and the webhooks
//! get a URL instead of a Service.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::control_plane::processes::Processes;
use crate::control_plane::{Cluster, pause, pipe_into};
use crate::go_modules;
use crate::go_programs::{
    CLUSTER_API_BOOTSTRAP, CLUSTER_API_CONTROL_PLANE, CLUSTER_API_CORE, CLUSTER_API_MODULE,
    CLUSTER_API_VERSION, GoProgram,
};
use crate::workspace::output_of;

/// Kinds that make sense only if the controllers are pods.
const KINDS_OF_PODS: [&str; 4] = ["Deployment", "Service", "Certificate", "Issuer"];

const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One provider of Cluster API.
pub(super) struct Provider {
    pub(super) program: GoProgram,
    /// Folder of the kustomization in the module of Cluster API.
    pub(super) kustomization: &'static str,
    /// Ports of the webhooks, and of the health check. No other process has the network of the
    /// lane.
    webhook_port: u16,
    health_port: u16,
    features: &'static str,
}

pub(super) const PROVIDERS: [Provider; 3] = [
    Provider {
        program: CLUSTER_API_CORE,
        kustomization: "config/default",
        webhook_port: 9443,
        health_port: 9440,
        features: "ClusterTopology=true,MachinePool=true",
    },
    Provider {
        program: CLUSTER_API_BOOTSTRAP,
        kustomization: "bootstrap/kubeadm/config/default",
        webhook_port: 9543,
        health_port: 9540,
        features: "KubeadmBootstrapFormatIgnition=true,MachinePool=true",
    },
    Provider {
        program: CLUSTER_API_CONTROL_PLANE,
        kustomization: "controlplane/kubeadm/config/default",
        webhook_port: 9643,
        health_port: 9640,
        features: "ClusterTopology=true,KubeadmBootstrapFormatIgnition=true",
    },
];

/// Returns the folder of Cluster API's sources.
pub(super) fn sources() -> Result<PathBuf> {
    let source = go_modules::Source::CacheOrProxy;
    Ok(go_modules::provide(CLUSTER_API_MODULE, CLUSTER_API_VERSION, source)?.folder)
}

/// The certificate of all webhooks of the lane.
pub(super) struct WebhookCertificate {
    pub(super) folder: PathBuf,
    /// As API objects have it.
    pub(super) bundle: String,
}

impl WebhookCertificate {
    pub(super) fn create(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()])?.self_signed(&key)?.pem();
        fs::write(folder.join("tls.crt"), &certificate)?;
        fs::write(folder.join("tls.key"), key.serialize_pem())?;
        Ok(Self { folder, bundle: BASE64_STANDARD.encode(certificate) })
    }
}

/// A management cluster, and its processes.
#[derive(Clone, Copy)]
pub(super) struct Stack<'a> {
    /// Start of the names of the logs.
    pub(super) name: &'static str,
    pub(super) cluster: &'a Cluster,
    pub(super) certificate: &'a WebhookCertificate,
    /// Added to every port, because two stacks share a network.
    pub(super) port_offset: u16,
    /// Folder of the logs.
    pub(super) folder: &'a Path,
}

impl Stack<'_> {
    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{}-{program}.log", self.name))
    }
}

/// Installs the providers and starts their controllers.
pub(super) fn start(stack: &Stack, processes: &mut Processes) -> Result<()> {
    let Stack { cluster, certificate, port_offset, .. } = *stack;
    let sources = sources()?;
    for provider in &PROVIDERS {
        let printed =
            output_of(cluster.kubectl().arg("kustomize").arg(sources.join(provider.kustomization)))?;
        let objects =
            adapted(objects_in(cluster, &printed)?, provider.webhook_port + port_offset, &certificate.bundle);
        apply(cluster, &objects).with_context(|| format!("cannot install {}", provider.program.name()))?;
    }
    for provider in &PROVIDERS {
        let name = provider.program.name();
        processes.spawn(name, controllers(stack, provider)?, stack.log(name))?;
    }
    for provider in &PROVIDERS {
        wait_until_ready(processes, provider.program.name(), provider.health_port + port_offset)?;
    }
    Ok(())
}

fn controllers(stack: &Stack, provider: &Provider) -> Result<Command> {
    let Stack { cluster, certificate, port_offset, .. } = *stack;
    let mut command = Command::new(provider.program.provide()?);
    command
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .arg("--leader-elect=false")
        .arg(format!("--webhook-port={}", provider.webhook_port + port_offset))
        .arg(format!("--webhook-cert-dir={}", certificate.folder.display()))
        .arg(format!("--health-addr=127.0.0.1:{}", provider.health_port + port_offset))
        .args(["--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics"])
        .arg(format!("--feature-gates={}", provider.features));
    Ok(command)
}

/// Waits until a process reports that it is ready, webhooks included.
pub(super) fn wait_until_ready(processes: &mut Processes, name: &str, port: u16) -> Result<()> {
    let started = Instant::now();
    while !is_ready(port) {
        if let Some(ended) = processes.ended()? {
            bail!("{} ended ({}):\n{}", ended.name, ended.status, ended.log_tail);
        }
        ensure!(
            started.elapsed() < READY_WITHIN,
            "timed out: {name} is not ready within {READY_WITHIN:?}{}",
            processes.log_tails()
        );
        pause(LOOK_EVERY);
    }
    Ok(())
}

/// Asks the health check of a process. One request needs no HTTP library.
fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    ask().is_ok_and(|reply| reply.split_whitespace().nth(1) == Some("200"))
}

/// Returns the objects of a YAML text.
pub(super) fn objects_in(cluster: &Cluster, yaml: &str) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("objects.yaml");
    fs::write(&file, yaml)?;
    // An empty patch: kubectl prints the objects as JSON, and asks no server.
    let printed = output_of(
        cluster
            .kubectl()
            .args(["patch", "--local", "--type=json", "--patch=[]", "--output=json", "--filename"])
            .arg(&file),
    )?;
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    objects.collect::<Result<_, _>>().context("kubectl printed no JSON")
}

/// Returns the objects that controllers outside of the cluster need, with webhooks at a local port.
/// Definitions get the label that `clusterctl init` gives them: `clusterctl move` moves only
/// objects of such kinds.
pub(super) fn adapted(objects: Vec<Value>, webhook_port: u16, bundle: &str) -> Vec<Value> {
    let is_needed = |object: &Value| {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        !KINDS_OF_PODS.contains(&kind)
    };
    let mut objects: Vec<Value> = objects.into_iter().filter(is_needed).collect();
    for object in &mut objects {
        if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
            use_local_port(client, webhook_port, bundle);
        }
        if object["kind"] == "CustomResourceDefinition" {
            object["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] = json!("");
        }
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for client in webhooks.into_iter().flatten().filter_map(|webhook| webhook.get_mut("clientConfig")) {
            use_local_port(client, webhook_port, bundle);
        }
    }
    objects
}

fn use_local_port(client: &mut Value, port: u16, bundle: &str) {
    let path = client.pointer("/service/path").and_then(Value::as_str).unwrap_or("/");
    *client = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": bundle});
}

/// Applies objects, and waits until the API server serves the kinds among them.
pub(super) fn apply(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut command = cluster.kubectl();
    command.args(["apply", "--server-side", "--force-conflicts", "--filename=-"]);
    pipe_into(&mut command, &list.to_string())?;
    let kinds = objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
    let names: Vec<String> = kinds
        .filter_map(|object| object.pointer("/metadata/name").and_then(Value::as_str))
        .map(|name| format!("crd/{name}"))
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut wait = cluster.kubectl();
    wait.args(["wait", "--for=condition=Established", "--timeout=60s"]).args(names);
    output_of(&mut wait).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_get_a_local_url_and_pods_are_left_out() {
        let service = json!({"name": "webhook-service", "namespace": "a", "path": "/convert"});
        let definition = json!({
            "kind": "CustomResourceDefinition",
            "spec": {"conversion": {"webhook": {"clientConfig": {"service": service}}}},
        });
        let validation = json!({
            "kind": "ValidatingWebhookConfiguration",
            "webhooks": [{"name": "b", "clientConfig": {"service": {"path": "/validate"}}}],
        });
        let pods = KINDS_OF_PODS.map(|kind| json!({"kind": kind}));
        let found = adapted([vec![definition, validation], pods.to_vec()].concat(), 9443, "Y2E=");
        let urls = ["/0/spec/conversion/webhook/clientConfig", "/1/webhooks/0/clientConfig"]
            .map(|path| json!(found).pointer(path).cloned());
        let wanted = |path: &str| json!({"url": format!("https://127.0.0.1:9443{path}"), "caBundle": "Y2E="});
        assert_eq!(found[0]["metadata"]["labels"], json!({"clusterctl.cluster.x-k8s.io": ""}));
        assert_eq!(urls, [Some(wanted("/convert")), Some(wanted("/validate"))]);
        assert_eq!(found.len(), 2);
    }
}
