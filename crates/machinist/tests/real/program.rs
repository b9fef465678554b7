//! The process under test.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use http_body_util::BodyExt as _;

use crate::clusters::{Process, free_port};

/// Periods that are short enough for a test. A Lease of a killed process is taken over after 6 s.
const FLAGS: &str = "cloud-controller-manager --cloud-provider=hcloud --bind-address=127.0.0.1 \
    --cluster-cidr=10.244.0.0/16 --allocate-node-cidrs --machine-namespace=default \
    --node-monitor-period=1s --node-status-update-frequency=3s --node-deletion-confirm-period=2s \
    --node-deletion-min-age=1s --route-reconciliation-period=10s \
    --leader-elect-lease-duration=6s --leader-elect-renew-deadline=4s --leader-elect-retry-period=1s";

/// The files, the endpoint and the network that the process needs to reach the cluster and the
/// cloud.
pub(crate) struct Surroundings {
    pub kubeconfig: PathBuf,
    pub token_file: PathBuf,
    pub endpoint: String,
    pub network: i64,
}

/// A running process.
pub(crate) struct Program {
    pub process: Process,
    port: u16,
}

impl Program {
    /// Starts the process. Its log goes to a file of this name in the folder.
    pub(crate) fn start(surroundings: &Surroundings, folder: &Path, name: &str) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command
            .args(FLAGS.split_whitespace())
            .arg(format!("--secure-port={port}"))
            .arg("--kubeconfig")
            .arg(&surroundings.kubeconfig)
            .env("HCLOUD_TOKEN_FILE", &surroundings.token_file)
            .env("HCLOUD_ENDPOINT", &surroundings.endpoint)
            .env("HCLOUD_NETWORK", surroundings.network.to_string())
            .env("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1")
            // A fixed port, which two processes on one computer cannot share.
            .env("HCLOUD_METRICS_ENABLED", "false")
            .stdout(Stdio::null());
        Ok(Self { process: Process::start(&mut command, folder, name)?, port })
    }

    /// Asks the process to stop, and waits for its end.
    pub(crate) fn stop(&mut self) -> Result<ExitStatus> {
        let pid = self.process.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().context("cannot send a signal")?;
        Ok(self.process.child.wait()?)
    }

    /// GET of a path of the process's HTTPS server: status and body. Its certificate is
    /// self-signed, so it is not checked.
    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> Result<(u16, String)> {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{}", self.port).parse()?);
        config.accept_invalid_certs = true;
        // 503 is an answer that scenarios expect.
        config.default_retry = false;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = kube::Client::try_from(config)?;
        let request = http::Request::get(path).body(kube::client::Body::empty())?;
        let answer = client.send(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}
