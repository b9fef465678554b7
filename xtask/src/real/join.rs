//! The lane that checks the control plane itself: a machine joins with a bootstrap token, and only
//! with one.
//!
//! The lane acts as the machine with kubectl, step by step. If this lane passes and a scenario of
//! the real lane fails, the scenario is wrong.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::control_plane::{Cluster, ControlPlane, pause, pipe_into};
use crate::workspace::output_of;

const TOKEN_ID: &str = "abcdef";
const TOKEN_SECRET: &str = "0123456789abcdef";
const NODE: &str = "joins";
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn check(control_plane: &mut ControlPlane) -> Result<()> {
    let cluster = control_plane.target();
    println!("kube-apiserver {}", cluster.describe().version());
    output_of(cluster.kubectl().args(["create", "namespace", "join-check"]))?;

    apply(cluster, &token_secret(TOKEN_ID, "2999-01-01T00:00:00Z"))?;
    apply(cluster, &token_secret("expire", "2020-01-01T00:00:00Z"))?;
    an_invalid_token_is_refused(cluster)?;
    let key = KeyPair::generate()?;
    let certificate = certificate_for_the_token(cluster, &key)?;
    let node = Identity::new(&certificate, &key)?;
    the_certificate_registers_its_own_node_only(cluster, &node)?;
    a_silent_node_becomes_unknown(cluster, &node)?;
    eventually("deletion of the expired token's Secret", || {
        is_absent(cluster, &["get", "secret", "bootstrap-token-expire", "--namespace=kube-system"])
    })
}

fn token_secret(id: &str, expiration: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Secret
type: bootstrap.kubernetes.io/token
metadata: {{name: bootstrap-token-{id}, namespace: kube-system}}
stringData:
  token-id: {id}
  token-secret: {TOKEN_SECRET}
  expiration: {expiration}
  usage-bootstrap-authentication: "true"
"#
    )
}

fn an_invalid_token_is_refused(cluster: &Cluster) -> Result<()> {
    for token in [format!("{TOKEN_ID}.fedcba9876543210"), format!("expire.{TOKEN_SECRET}")] {
        let output = with_token(cluster, &token).args(["get", "csr"]).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(error.contains("Unauthorized"), "an invalid token did not cause a 401: {error}");
    }
    println!("an invalid token and an expired one both cause a 401");
    Ok(())
}

/// Creates the signing request as the token's user, and waits for the certificate.
fn certificate_for_the_token(cluster: &Cluster, key: &KeyPair) -> Result<String> {
    let started = Instant::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{NODE}"));
    let request = BASE64_STANDARD.encode(params.serialize_request(key)?.pem()?);
    let manifest = format!(
        r#"
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {NODE}}}
spec:
  request: {request}
  signerName: kubernetes.io/kube-apiserver-client-kubelet
  usages: [digital signature, client auth]
"#
    );
    let token = format!("{TOKEN_ID}.{TOKEN_SECRET}");
    pipe_into(with_token(cluster, &token).args(["create", "--filename=-"]), &manifest)?;

    let user = read(cluster, &["get", "csr", NODE, "--output=jsonpath={.spec.username}"])?;
    ensure!(
        user == format!("system:bootstrap:{TOKEN_ID}"),
        "the request was created by {user:?}, not by the token's user"
    );
    let mut certificate = String::new();
    eventually("approval and signature of the certificate", || {
        certificate = read(cluster, &["get", "csr", NODE, "--output=jsonpath={.status.certificate}"])?;
        Ok(!certificate.is_empty())
    })?;
    println!("the token's request was approved and signed after {:.1?}", started.elapsed());
    Ok(String::from_utf8(BASE64_STANDARD.decode(certificate)?)?)
}

/// A client certificate in files, as kubectl requires.
struct Identity {
    folder: tempfile::TempDir,
}

impl Identity {
    fn new(certificate: &str, key: &KeyPair) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder")?;
        std::fs::write(folder.path().join("node.crt"), certificate)?;
        std::fs::write(folder.path().join("node.key"), key.serialize_pem())?;
        Ok(Self { folder })
    }

    fn kubectl(&self, cluster: &Cluster) -> Command {
        let mut command = cluster.kubectl_as_nobody();
        command.arg("--client-certificate").arg(self.folder.path().join("node.crt"));
        command.arg("--client-key").arg(self.folder.path().join("node.key"));
        command
    }
}

fn the_certificate_registers_its_own_node_only(cluster: &Cluster, node: &Identity) -> Result<()> {
    let who = output_of(node.kubectl(cluster).args([
        "auth",
        "whoami",
        "--output=jsonpath={.status.userInfo.username}",
    ]))?;
    ensure!(who == format!("system:node:{NODE}"), "the certificate identifies {who:?}");
    let manifest = |name: &str| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
    pipe_into(node.kubectl(cluster).args(["create", "--filename=-"]), &manifest(NODE))?;
    let error = pipe_into(node.kubectl(cluster).args(["create", "--filename=-"]), &manifest("other"))
        .err()
        .context("a node could register another Node")?;
    ensure!(format!("{error:#}").contains("Forbidden"), "not rejected by authorization: {error:#}");
    println!("Node {NODE} was registered by system:node:{NODE}, which must not register another Node");
    Ok(())
}

fn a_silent_node_becomes_unknown(cluster: &Cluster, node: &Identity) -> Result<()> {
    eventually("the Ready status of the Node", || says_that_it_is_ready(cluster, node))?;
    let started = Instant::now();
    eventually("the status Unknown of the silent Node", || {
        let status = read(
            cluster,
            &["get", "node", NODE, r#"--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}"#],
        )?;
        Ok(status == "Unknown")
    })?;
    println!("the silent Node became Unknown after {:.1?}", started.elapsed());
    Ok(())
}

/// Tries once to set Ready, with a raw request: kubectl reads a subresource before it patches it,
/// which a node is not allowed to do.
///
/// A node must not change its taints, and this check runs before the check of the resourceVersion.
/// If the node lifecycle controller adds a taint in between, the response is Forbidden or Conflict,
/// and the attempt is repeated.
fn says_that_it_is_ready(cluster: &Cluster, node: &Identity) -> Result<bool> {
    let read = output_of(node.kubectl(cluster).args(["get", &format!("--raw=/api/v1/nodes/{NODE}")]))?;
    let mut object: Value = serde_json::from_str(&read).context("the Node is not JSON")?;
    object["status"]["conditions"] =
        json!([{"type": "Ready", "status": "True", "reason": "Check", "message": "said once"}]);
    let path = format!("--raw=/api/v1/nodes/{NODE}/status");
    match pipe_into(node.kubectl(cluster).args(["replace", &path, "--filename=-"]), &object.to_string()) {
        Ok(()) => Ok(true),
        Err(error) => {
            let now = output_of(node.kubectl(cluster).args(["get", &format!("--raw=/api/v1/nodes/{NODE}")]))?;
            if now == read { Err(error) } else { Ok(false) }
        }
    }
}

fn apply(cluster: &Cluster, manifest: &str) -> Result<()> {
    pipe_into(cluster.kubectl().args(["apply", "--filename=-"]), manifest)
}

fn read(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    output_of(cluster.kubectl().args(arguments))
}

fn is_absent(cluster: &Cluster, arguments: &[&str]) -> Result<bool> {
    let Output { status, stderr, .. } = cluster.kubectl().args(arguments).output()?;
    Ok(!status.success() && String::from_utf8_lossy(&stderr).contains("NotFound"))
}

fn with_token(cluster: &Cluster, token: &str) -> Command {
    let mut command = cluster.kubectl_as_nobody();
    command.arg(format!("--token={token}"));
    command
}

fn eventually(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < DEADLINE {
        if is_so()? {
            return Ok(());
        }
        pause(LOOK_EVERY);
    }
    bail!("timed out after {DEADLINE:?}: {what}")
}
