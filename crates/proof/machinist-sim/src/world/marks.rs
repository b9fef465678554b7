//! Other writers: a user or an autoscaler that sets taints, labels, annotations and finalizers, and
//! takes them off again. Some are marks of the processes under test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use machinist_api::constants::{annotations, labels};
use machinist_apiserver::{Identity, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::NAMESPACE;
use crate::actor::Side;
use crate::faults::LongFault;
use crate::lab::Lab;
use crate::seed::{Seed, Stream};
use crate::sight::{MACHINES, NODES, SeenObject};

/// A writer of marks on Nodes and, with a control server, on Machines.
pub(crate) struct Marks {
    pub(crate) lab: Arc<Lab>,
    pub(crate) servers: BTreeMap<Side, Server>,
    pub(crate) seed: Seed,
}

impl Marks {
    /// Sets marks and takes them off again, until no mark is left.
    pub(crate) async fn set_until(&self, fault: LongFault, until: Instant) {
        const PAUSE: std::ops::Range<Duration> = Duration::from_secs(5)..Duration::from_secs(90);
        let mut stream = self.seed.stream(&format!("foreign marks/{}", fault.pick));
        let mut held: Vec<(Side, String)> = Vec::new();
        while Instant::now() < until {
            tokio::time::sleep(stream.within(PAUSE)).await;
            let side = stream.pick(&[Side::Target, Side::Target, Side::Control]).unwrap_or(Side::Target);
            let side = if self.servers.contains_key(&side) { side } else { Side::Target };
            let Some(name) = self.pick(side, &mut stream) else { continue };
            let patch = match stream.below(10) {
                0 | 1 => self.taint(side, &name, Set::On),
                2 | 3 => self.taint(side, &name, Set::Off),
                4 => Some(
                    json!({"metadata": {"labels": {"example.org/mark": "a"}, "annotations": {"example.org/mark": "b"}}}),
                ),
                5 => Some(
                    json!({"metadata": {"labels": {"example.org/mark": null}, "annotations": {"example.org/mark": null}}}),
                ),
                6 => {
                    held.push((side, name.clone()));
                    self.finalizers(side, &name, Set::On)
                }
                7 => self.our_marks(side),
                // The cluster-autoscaler ranks Machines in this way.
                _ => (side == Side::Control).then(|| {
                    let priority = if stream.happens(500) { json!("1") } else { json!(null) };
                    json!({"metadata": {"annotations": {(annotations::MACHINE_PRIORITY): priority}}})
                }),
            };
            self.patch(side, &name, patch).await;
        }
        for (side, name) in held {
            // A patch of an object that changes in this instant is refused.
            while let Some(patch) = self.finalizers(side, &name, Set::Off) {
                self.patch(side, &name, Some(patch)).await;
            }
        }
        for node in self.server(Side::Target).snapshot(NODES) {
            let name = SeenObject(node.value()).name().to_owned();
            let patch = self.taint(Side::Target, &name, Set::Off);
            self.patch(Side::Target, &name, patch).await;
        }
    }

    fn pick(&self, side: Side, stream: &mut Stream) -> Option<String> {
        let objects = self.server(side).snapshot(table(side));
        let index = stream.below(u64::try_from(objects.len()).unwrap_or(0));
        let object = objects.get(usize::try_from(index).ok()?)?;
        Some(SeenObject(object.value()).name().to_owned())
    }

    fn server(&self, side: Side) -> &Server {
        &self.servers[&side]
    }

    fn now(&self, side: Side, name: &str) -> Option<Value> {
        let objects = self.server(side).snapshot(table(side));
        objects
            .iter()
            .find(|object| SeenObject(object.value()).name() == name)
            .map(|object| object.value().clone())
    }

    /// The taint of the autoscaler, which only Nodes have.
    fn taint(&self, side: Side, name: &str, set: Set) -> Option<Value> {
        const TAINT: &str = "ToBeDeletedByClusterAutoscaler";
        if side == Side::Control {
            return None;
        }
        let node = self.now(side, name)?;
        let revision = SeenObject(&node).text("/metadata/resourceVersion");
        let mut taints = node.pointer("/spec/taints").cloned().unwrap_or(json!([]));
        let list = taints.as_array_mut()?;
        let before = list.len();
        list.retain(|taint| taint["key"] != TAINT);
        match set {
            Set::On => list.push(json!({"key": TAINT, "value": "1", "effect": "NoSchedule"})),
            Set::Off if list.len() == before => return None,
            Set::Off => {}
        }
        Some(json!({"metadata": {"resourceVersion": revision}, "spec": {"taints": taints}}))
    }

    fn finalizers(&self, side: Side, name: &str, set: Set) -> Option<Value> {
        const FINALIZER: &str = "example.org/hold";
        let object = self.now(side, name)?;
        // An object that is being deleted gets no new finalizers.
        if set == Set::On && SeenObject(&object).is_deleting() {
            return None;
        }
        let mut finalizers = object.pointer("/metadata/finalizers").cloned().unwrap_or(json!([]));
        let list = finalizers.as_array_mut()?;
        let before = list.len();
        list.retain(|finalizer| finalizer != FINALIZER);
        match set {
            Set::On => list.push(json!(FINALIZER)),
            Set::Off if list.len() == before => return None,
            Set::Off => {}
        }
        let revision = SeenObject(&object).text("/metadata/resourceVersion");
        Some(json!({"metadata": {"finalizers": finalizers, "resourceVersion": revision}}))
    }

    async fn patch(&self, side: Side, name: &str, patch: Option<Value>) {
        let Some(patch) = patch else { return };
        self.lab.history.note(format!("the autoscaler patches {name}: {patch}"));
        let service = self.server(side).service_as(Identity::admin()).with_user_agent("autoscaler");
        let client = kube::Client::new(service, NAMESPACE);
        let (group, version, kind) = match side {
            Side::Control => ("machine.sapcloud.io", "v1alpha1", "Machine"),
            Side::Target => ("", "v1", "Node"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match side {
            Side::Control => Api::namespaced_with(client, NAMESPACE, &resource),
            Side::Target => Api::all_with(client, &resource),
        };
        // The object may have been deleted meanwhile.
        let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    }

    /// Takes off a label that the machine controller sets.
    fn our_marks(&self, side: Side) -> Option<Value> {
        let is_marked = side == Side::Target && self.servers.contains_key(&Side::Control);
        is_marked.then(|| json!({"metadata": {"labels": {(labels::MACHINE_NAME): null}}}))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    On,
    Off,
}

fn table(side: Side) -> &'static str {
    match side {
        Side::Control => MACHINES,
        Side::Target => NODES,
    }
}
