//! Simulates the pods that are bound to a machine.
//!
//! ```text
//! feed    the pods of one node, from its own watch or one shared by all machines
//! decide  the next step for each pod, pure
//! here    performs the steps, several at once, and retries after a failure
//! ```
//!
//! Everything runs inside the machine's one task, so it stops when the machine stops.

mod decide;
mod feed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use machinist_cloud_sim::Clock;
use machinist_kube::ObjectKey;
use tokio::sync::mpsc;

pub(crate) use decide::PodFacts;
pub(crate) use feed::{OwnFeed, PodChange, SharedFeed};

use crate::connect::code;
use decide::{Step, next_step};

/// How long a machine waits before it retries a failed request.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Sets pods Running and Ready, and ends pods that are being deleted.
pub(crate) struct PodWorker {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    /// How long a pod takes from bound to ready.
    pub(crate) start: Duration,
    /// How long a pod takes to end, unless its grace period is shorter.
    pub(crate) stop: Duration,
}

/// The result of a step.
enum Ended {
    Done(Step),
    Failed,
}

impl PodWorker {
    /// Runs until the stream of changes ends.
    pub(crate) async fn run(self, mut changes: mpsc::UnboundedReceiver<PodChange>) {
        let mut pods: BTreeMap<String, PodFacts> = BTreeMap::new();
        let mut done: BTreeMap<String, Step> = BTreeMap::new();
        let mut busy: BTreeSet<String> = BTreeSet::new();
        let mut steps: FuturesUnordered<BoxFuture<'_, (String, Ended)>> = FuturesUnordered::new();
        loop {
            for (uid, pod) in &pods {
                let step = next_step(pod, done.get(uid)).filter(|_| !busy.contains(uid));
                if let Some(step) = step {
                    busy.insert(uid.clone());
                    steps.push(Box::pin(self.perform(uid.clone(), pod.clone(), step)));
                }
            }
            tokio::select! {
                biased;
                change = changes.recv() => match change {
                    Some(PodChange::Seen(uid, facts)) => drop(pods.insert(uid, facts)),
                    Some(PodChange::Gone(uid)) => {
                        pods.remove(&uid);
                        done.remove(&uid);
                    }
                    Some(PodChange::All(all)) => {
                        pods = all;
                        done.retain(|uid, _| pods.contains_key(uid));
                    }
                    None => return,
                },
                Some((uid, ended)) = steps.next() => {
                    busy.remove(&uid);
                    if let (Ended::Done(step), true) = (ended, pods.contains_key(&uid)) {
                        done.insert(uid, step);
                    }
                }
            }
        }
    }

    async fn perform(&self, uid: String, pod: PodFacts, step: Step) -> (String, Ended) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let result = match step {
            Step::Start => {
                tokio::time::sleep(self.start).await;
                self.say_ready(&api, &uid, &pod).await
            }
            Step::End { grace } => {
                tokio::time::sleep(grace.min(self.stop)).await;
                end(&api, &uid, &pod.key).await
            }
        };
        match result {
            Ok(()) => (uid, Ended::Done(step)),
            // The pod was deleted, or another pod has its name: no step is left for this pod.
            Err(error) if matches!(code(&error), Some(404 | 409)) => (uid, Ended::Done(step)),
            Err(_) => {
                tokio::time::sleep(RETRY_AFTER).await;
                (uid, Ended::Failed)
            }
        }
    }

    async fn say_ready(&self, api: &Api<Pod>, uid: &str, pod: &PodFacts) -> Result<(), kube::Error> {
        let patch = Patch::Strategic(decide::ready_patch(uid, pod, self.clock.now()));
        api.patch_status(&pod.key.name, &PatchParams::default(), &patch).await.map(drop)
    }
}

/// Deletes a pod with grace period 0, as its kubelet does at the end.
async fn end(api: &Api<Pod>, uid: &str, key: &ObjectKey) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params =
        DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
    api.delete(&key.name, &params).await.map(drop)
}
