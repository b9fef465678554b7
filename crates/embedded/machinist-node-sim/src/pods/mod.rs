//! What a machine does with the pods that are bound to it.
//!
//! ```text
//! feed    the pods of one node, from a watch of its own or one shared by all machines
//! decide  what is to be done with each, pure
//! here    doing it, several at once, again after a failure
//! ```
//!
//! Everything runs inside the machine's one task, so that it stops with it.

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

/// How long a machine waits before it repeats what the server refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Sets pods Running and Ready, and ends those that are being deleted, for ever.
pub(crate) struct PodWorker {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    /// How long a pod takes from bound to ready.
    pub(crate) start: Duration,
    /// How long a pod takes to end, if its grace period allows so long.
    pub(crate) stop: Duration,
}

/// What came of a step.
enum Ended {
    Done(Step),
    Failed,
}

impl PodWorker {
    /// Never returns, except when the changes end.
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
            // It is gone, or another pod has its name: there is nothing left to do for this one.
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

/// The last word about a pod is its machine's: a deletion with grace 0.
async fn end(api: &Api<Pod>, uid: &str, key: &ObjectKey) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params =
        DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
    api.delete(&key.name, &params).await.map(drop)
}
