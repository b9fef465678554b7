//! The requests. They derive from counters only, so that every server gets the same requests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::report::{Fanned, Rate};
use crate::objects;

/// Number of concurrent requests, each on its own connection.
const CLIENTS: u32 = 32;
const WATCHERS: usize = 100;
/// Number of changes that every watcher must see.
const CHANGES: u32 = 200;
/// Number of objects for lists.
const LISTED: u32 = 100;
/// Time before the measurement, to open connections and fill caches.
const WARM_UP: Duration = Duration::from_secs(1);
/// Namespace of the objects for memory and restart, separate so that lists do not include them.
const FILLED: &str = "bench-filled";
const NAMESPACE: &str = "bench";

/// A client of one server, and the measured time per part.
pub(super) struct Load {
    client: Client,
    measured: Duration,
}

impl Load {
    /// Creates the objects that the requests use.
    pub(super) async fn prepare(client: Client, measured: Duration) -> Result<Self> {
        objects::install_kinds(&client).await?;
        let load = Load { client, measured };
        for namespace in [NAMESPACE, FILLED] {
            let body = json!({"metadata": {"name": namespace}});
            load.send(Method::POST, "/api/v1/namespaces", &body.to_string()).await?;
        }
        for number in 0..LISTED {
            load.send(Method::POST, &maps(), &config_map(&format!("listed-{number}"))).await?;
        }
        for writer in 0..CLIENTS {
            load.send(Method::POST, &machines(NAMESPACE), &machine(&format!("m-{writer}"))).await?;
        }
        Ok(load)
    }

    /// Writes, mixed as by controllers. Of seven requests, four patch a Machine's status; the
    /// others create, patch and delete a ConfigMap.
    pub(super) async fn writes(&self) -> Result<Rate> {
        self.rate(async |writer, round| {
            let machine = format!("{}/m-{writer}/status", machines(NAMESPACE));
            let name = format!("w-{writer}-{}", round / 7);
            let map = format!("{}/{name}", maps());
            match round % 7 {
                0 => self.send(Method::POST, &maps(), &config_map(&name)).await,
                3 => {
                    let patch = json!({"data": {"round": round.to_string()}});
                    self.patch("application/merge-patch+json", &map, &patch).await
                }
                6 => self.send(Method::DELETE, &map, "").await,
                _ => {
                    let status = json!([{"op": "add", "path": "/status", "value": status(round)}]);
                    self.patch("application/json-patch+json", &machine, &status).await
                }
            }
        })
        .await
    }

    /// Reads: nine gets of one object, then a list of a hundred.
    pub(super) async fn reads(&self) -> Result<Rate> {
        self.rate(async |reader, round| {
            let path = match round % 10 {
                9 => format!("{}?limit={LISTED}", maps()),
                _ => format!("{}/m-{reader}", machines(NAMESPACE)),
            };
            self.send(Method::GET, &path, "").await
        })
        .await
    }

    /// Many watchers of one object. The next change comes when every watcher has seen the last one.
    pub(super) async fn fan_out(&self) -> Result<Fanned> {
        let made = self.send(Method::POST, &maps(), &config_map("watched")).await?;
        let made: Value = serde_json::from_str(&made)?;
        let from = made.pointer("/metadata/resourceVersion").and_then(Value::as_str).context("a revision")?;
        let path = format!(
            "{}?watch=1&resourceVersion={from}&timeoutSeconds=600&fieldSelector=metadata.name%3Dwatched",
            maps()
        );
        let (seen, mut sights) = tokio::sync::mpsc::unbounded_channel();
        let mut watchers = tokio::task::JoinSet::new();
        for _ in 0..WATCHERS {
            let (client, path, seen) = (self.client.clone(), path.clone(), seen.clone());
            let request = Request::get(&path).body(Vec::new())?;
            let mut lines = client.request_stream(request).await?.lines();
            watchers.spawn(async move {
                while let Ok(Some(_line)) = lines.try_next().await {
                    if seen.send(Instant::now()).is_err() {
                        return;
                    }
                }
            });
        }
        let mut delays = Vec::new();
        let began = Instant::now();
        for change in 0..CHANGES {
            let asked = Instant::now();
            let patch = json!({"data": {"change": change.to_string()}});
            self.patch("application/merge-patch+json", &format!("{}/watched", maps()), &patch).await?;
            for _ in 0..WATCHERS {
                let at = tokio::time::timeout(WARM_UP * 30, sights.recv()).await;
                let at =
                    at.context("a watcher did not see a change in time")?.context("all watchers ended")?;
                delays.push(at.duration_since(asked));
            }
        }
        let took = began.elapsed();
        Ok(Fanned::of(delays, took))
    }

    /// Creates Machines of realistic size.
    pub(super) async fn fill(&self, objects: u32) -> Result<()> {
        let path = machines(FILLED);
        let fillers = (0..CLIENTS).map(|filler| {
            let path = &path;
            async move {
                for number in (filler..objects).step_by(CLIENTS as usize) {
                    let name = format!("filled-{number}");
                    self.send(Method::POST, path, &machine(&name)).await?;
                    let status = json!({"status": status(number)});
                    self.patch("application/merge-patch+json", &format!("{path}/{name}/status"), &status)
                        .await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(fillers).await.map(drop)
    }

    /// Sends requests from all clients at once, and counts the answers within the measured time.
    async fn rate(&self, ask: impl AsyncFn(u32, u32) -> Result<String>) -> Result<Rate> {
        let begin = Instant::now() + WARM_UP;
        let end = begin + self.measured;
        let client = async |number| {
            let mut delays = Vec::new();
            for round in 0.. {
                let asked = Instant::now();
                ask(number, round).await?;
                let answered = Instant::now();
                // Stop only at the end of a round, because its last request deletes what the round
                // created.
                if end <= answered && round % 70 == 69 {
                    break;
                }
                if begin <= asked && answered < end {
                    delays.push(answered.duration_since(asked));
                }
            }
            anyhow::Ok(delays)
        };
        let delays = try_join_all((0..CLIENTS).map(client)).await?;
        Ok(Rate::of(delays.concat(), self.measured))
    }

    async fn patch(&self, kind: &str, path: &str, patch: &Value) -> Result<String> {
        let request = Request::patch(path).header("content-type", kind);
        self.perform(request.body(patch.to_string().into_bytes())?).await
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> Result<String> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.perform(request.body(body.as_bytes().to_vec())?).await
    }

    async fn perform(&self, request: Request<Vec<u8>>) -> Result<String> {
        let what = format!("{} {}", request.method(), request.uri());
        let text = self.client.request_text(request).await.with_context(|| what.clone())?;
        ensure!(!text.is_empty(), "{what} has an empty answer");
        Ok(text)
    }
}

fn maps() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

fn machines(namespace: &str) -> String {
    format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/{namespace}/machines")
}

/// A ConfigMap of about one kilobyte.
fn config_map(name: &str) -> String {
    json!({"metadata": {"name": name, "labels": {"app": "bench"}}, "data": {"text": "0123456789".repeat(100)}}).to_string()
}

/// A Machine as a MachineSet creates it.
fn machine(name: &str) -> String {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "labels": {"machine-template-hash": "3507824614", "name": "workers", "node": name},
            "annotations": {"machinepriority.machine.sapcloud.io": "3"},
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "workers-6bd7f",
                "uid": "5e0b9c2e-6f43-4c5b-9f0e-0a4b7c9d1e2f", "controller": true, "blockOwnerDeletion": true
            }],
        },
        "spec": {
            "class": {"kind": "MachineClass", "name": "workers"}, "providerID": format!("sim:///zone-1/{name}"),
            "nodeTemplate": {"metadata": {"labels": {"name": "workers", "topology.kubernetes.io/zone": "zone-1"}}, "spec": {}}
        }
    })
    .to_string()
}

/// A status as the machine controller writes it.
fn status(round: u32) -> Value {
    let condition = |kind: &str, status: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("Kubelet{kind}"), "message": message,
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"
        })
    };
    json!({
        "conditions": [
            condition("MemoryPressure", "False", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "kubelet has sufficient PID available"),
            condition("Ready", "True", "kubelet is posting ready status"),
        ],
        "currentStatus": {"phase": "Running", "lastUpdateTime": "2026-01-01T00:00:00Z"},
        "lastOperation": {
            "description": format!("Machine joined the cluster in round {round}"), "lastUpdateTime": "2026-01-01T00:00:00Z",
            "state": "Successful", "type": "Create"
        }
    })
}
