//! Connects Services with the work loop. The rules are in `machinist_plan::ccm::service`.
//!
//! A Service goes from `feeds` to `observe`, to the planner, to `act`. There `start` begins a call
//! of the driver's `Balancers`, and its answer wakes the Service again, which then gets its status.

mod rehearsal;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{Answered, Call};
use machinist_driver::Driver;
use machinist_instance::{
    BalancerDeletion, BalancerKey, BalancerRef, BalancerSpec, Ensured, Error, Progress, SkippedTarget,
};
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_plan::ccm::Plan;
use machinist_plan::ccm::facts::ServiceFacts;
use machinist_plan::ccm::names::{BALANCER_FINALIZER, BALANCER_NAME, BALANCER_RECORD, EARLIER_CALLS_SINCE};
use machinist_plan::ccm::service::{
    Action, DELETE_BALANCER, ENSURE_BALANCER, Inputs, ListedTargets, Rehearsal, Rival, Served,
    ServiceAnswers, Snapshot, balancer_name, has_begun, ingress_entry, lacks_finalizer, may_be_deleted,
    may_hold_a_name, selector, shape, wants_balancer,
};
use machinist_runtime::{Fed, Kind, Observed, Opened, Stop, refresh};
use serde_json::Value;

use super::cloud::{self, Start};
use super::contract::{Ccm, Runtime, World, Write};
use super::events::{reference, tell};
use super::key::Key;
use super::measure;
use super::options::Tools;
use super::seen::{BY_BALANCER_NAME, NAME_SUFFIX, Seen};

/// Path of the status that a Service shows to its clients.
const INGRESS: [&str; 3] = ["status", "loadBalancer", "ingress"];

/// Services in the work loop.
pub(crate) struct Services;

impl Kind<Ccm> for Services {
    const EXPLAINS: Option<&'static str> = Some(<ServiceFacts as Fed<Ccm>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.services.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.service
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let seen = &world.seen;
        let Some(service) = seen.services.get(id) else { return Observed::Gone };
        // The computation of the Nodes wakes this key.
        let Some(backends) = seen.memory.backends.clone() else { return Observed::NotYet };
        let (service, rehearsal) = assumed(runtime, &service.facts);
        let opened = cloud::open(runtime, seen).ok();
        let mut answers = seen.memory.balancers.get(&service.uid).cloned().unwrap_or_default();
        answers.in_flight = world.asks.of(&subject(&service.uid));
        let today = opened.as_ref().map(Opened::account);
        let listed = seen.memory.drift.listed.as_ref().filter(|listed| listed.account.as_ref() == today);
        Observed::Ready(Snapshot {
            now: runtime.now(),
            process: runtime.process_facts(opened.as_ref()),
            options: runtime.tools.options.services.clone(),
            backends,
            nodes_silence: seen.memory.drift.nodes_silence.clone(),
            account: cloud::account(runtime, world, opened.as_ref()),
            listed: listed.map(|listed| listed.of(&service.key())),
            list_failed: seen.memory.drift.failed.clone(),
            targets: opened.as_ref().and_then(|opened| listed_targets(opened, &answers)),
            served: served(runtime, seen, &service.uid),
            rivals: rivals(runtime, world, &service),
            emitted: seen.memory.emitted(&service.uid),
            rehearsal,
            answers,
            service,
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.service)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let service = &s.service;
        let key = ObjectKey::new(&service.namespace, &service.name);
        let own_key = [Key::Service(key.clone())];
        let write = Write { runtime, charged: &own_key, key };
        let patch = || GuardedPatch::new(&service.uid);
        let finalizers = service.finalizers.as_deref();
        let released = || {
            patch()
                .remove_finalizer(finalizers, BALANCER_FINALIZER)
                .remove_annotation(noted(service).as_ref(), EARLIER_CALLS_SINCE)
        };
        match action {
            Action::Tell(event) => {
                tell(runtime, &reference_of(service), &service.uid, &event);
                Ok(())
            }
            Action::Compare { spec, inputs } => rehearsal::compare(runtime, s, *spec, inputs),
            // Only reported.
            Action::Foreseen(_) => Ok(()),
            Action::AddFinalizer(record) => {
                let mut patch = patch().add_finalizer(finalizers, BALANCER_FINALIZER);
                let is_intent = record.is_some();
                if let Some(record) = record {
                    patch = patch.set_annotation(noted(service).as_ref(), BALANCER_RECORD, &record);
                }
                write.patch_status::<ServiceFacts>(patch).await?;
                note_intent(runtime, s, is_intent);
                Ok(())
            }
            Action::Ensure { spec, inputs } => ensure(runtime, s, *spec, inputs),
            Action::Delete(which) => delete(runtime, s, which),
            Action::SetStatus(ingress) => {
                let ingress: Vec<_> = ingress.iter().map(ingress_entry).collect();
                let ingress = serde_json::to_value(ingress).unwrap_or(Value::Null);
                let patch = patch().test(&INGRESS, read(service).as_ref());
                write.patch_status::<ServiceFacts>(patch.add(&INGRESS, ingress)).await
            }
            Action::Record(record) => {
                let patch = patch().set_annotation(noted(service).as_ref(), BALANCER_RECORD, &record);
                write.patch_status::<ServiceFacts>(patch).await?;
                note_intent(runtime, s, true);
                Ok(())
            }
            Action::RecordWait(since) => {
                let patch =
                    patch().set_annotation(noted(service).as_ref(), EARLIER_CALLS_SINCE, &since.to_string());
                write.patch_status::<ServiceFacts>(patch).await
            }
            Action::ForgetWait => {
                let patch = patch().remove_annotation(noted(service).as_ref(), EARLIER_CALLS_SINCE);
                write.patch_status::<ServiceFacts>(patch).await
            }
            Action::HandOver => write.patch_status::<ServiceFacts>(released()).await,
            Action::Release => {
                let mut patch = released().remove_annotation(noted(service).as_ref(), BALANCER_RECORD);
                if let Some(read) = read(service) {
                    patch = patch.test(&INGRESS, Some(&read)).remove(&INGRESS);
                }
                write.patch_status::<ServiceFacts>(patch).await
            }
        }
    }

    fn is_rehearsed(runtime: &Runtime, action: &Action) -> bool {
        runtime.tools.options.dry_run
            && match action {
                Action::Compare { .. } => false,
                Action::AddFinalizer(_)
                | Action::Ensure { .. }
                | Action::Foreseen(_)
                | Action::Delete(_)
                | Action::SetStatus(_)
                | Action::Record(_)
                | Action::RecordWait(_)
                | Action::ForgetWait
                | Action::Release
                | Action::HandOver
                | Action::Tell(_) => true,
            }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference_of(&s.service))
    }
}

/// Remembers that this process has written the first record of an account to a Service.
fn note_intent(runtime: &Runtime, s: &Snapshot, is_written: bool) {
    if is_written && s.service.balancer_record.is_none() {
        let balancers = &mut runtime.lock().seen.memory.balancers;
        balancers.entry(s.service.uid.clone()).or_default().is_first_intent = true;
    }
}

/// Returns the Service of a decision, and the facts of a dry run. A dry run writes no finalizer, so
/// it decides as if the Service had one.
fn assumed(runtime: &Runtime, service: &Arc<ServiceFacts>) -> (Arc<ServiceFacts>, Option<Rehearsal>) {
    let options = &runtime.tools.options;
    if !options.dry_run {
        return (service.clone(), None);
    }
    let lacks_finalizer = lacks_finalizer(service, &options.services);
    let assumed = if lacks_finalizer {
        Arc::new(ServiceFacts { has_finalizer: true, ..(**service).clone() })
    } else {
        service.clone()
    };
    (assumed, Some(Rehearsal { lacks_finalizer }))
}

fn reference_of(service: &ServiceFacts) -> ObjectReference {
    reference("Service", Some(&service.namespace), &service.name, &service.uid)
}

/// Returns the skipped targets of a load balancer, as the last list of instances shows them.
fn listed_targets(opened: &Opened, answers: &ServiceAnswers) -> Option<ListedTargets> {
    let skipped = answers.skipped();
    let listed = opened.account.sightings().filter(|_| !skipped.is_empty())?;
    let shown = |skipped: &SkippedTarget| {
        Some((skipped.instance.clone(), listed.of(&skipped.instance)?.addresses.clone()))
    };
    Some(ListedTargets { started: listed.started, addresses: skipped.iter().filter_map(shown).collect() })
}

/// Returns the program that served a Service when its type was LoadBalancer.
fn served(runtime: &Runtime, seen: &Seen, uid: &str) -> Served {
    let class = seen.memory.classes.get(uid);
    let options = &runtime.tools.options.services;
    class.map_or(Served::Unseen, |class| Served::of_class(class.as_deref(), options))
}

/// Returns the other Services whose load balancer has, or should have, the name of this one.
fn rivals(runtime: &Runtime, world: &World, service: &ServiceFacts) -> Vec<Rival> {
    let seen = &world.seen;
    let options = &runtime.tools.options.services;
    let Some(name) = balancer_name(service, options) else { return Vec::new() };
    let name = format!("{}{BALANCER_NAME}={name}", options.prefix);
    let others = seen.services.by_index(BY_BALANCER_NAME, &name);
    let others = others.map(|(_, other)| &other.facts);
    others
        .filter(|other| other.uid != service.uid && may_hold_a_name(other, options))
        .map(|other| Rival {
            service: other.full_name(),
            uid: other.uid.clone(),
            created: other.created,
            balancer_name: name_of_balancer(seen, other),
            has_begun: world.asks.of(&subject(&other.uid)).is_some_and(|(call, _)| call == ENSURE_BALANCER)
                || seen.memory.balancers.get(&other.uid).is_some_and(has_begun),
        })
        .collect()
}

/// Returns the name of the load balancer of a Service, as this process has seen it last.
fn name_of_balancer(seen: &Seen, service: &ServiceFacts) -> Option<String> {
    let ensured = seen.memory.balancers.get(&service.uid).and_then(|answers| answers.ensure.as_ref());
    match ensured.map(|(_, last)| &last.answer) {
        Some(Ok(Progress::Done(ensured))) => Some(ensured.balancer.name.clone()),
        Some(Ok(Progress::Working(_)) | Err(_)) | None => {
            let listed = seen.memory.drift.listed.as_ref()?.of(&service.key());
            listed.balancer.map(|balancer| balancer.name)
        }
    }
}

/// Returns the keys of the Services whose claim to a name may depend on this one.
pub(super) fn rival_keys(seen: &Seen, service: &ServiceFacts) -> Vec<Key> {
    let names = service.annotations.iter().filter(|(key, _)| key.ends_with(NAME_SUFFIX));
    let names = names.map(|(key, name)| format!("{key}={}", name.trim()));
    names
        .flat_map(|name| {
            seen.services.by_index(BY_BALANCER_NAME, &name).map(|(key, _)| key.clone()).collect::<Vec<_>>()
        })
        .filter(|key| key.name != service.name || key.namespace != service.namespace)
        .map(Key::Service)
        .collect()
}

/// Returns the ingress as it was read; absent if the Service has none.
fn read(service: &ServiceFacts) -> Option<Value> {
    service.ingress.as_ref().and_then(|ingress| serde_json::to_value(ingress).ok())
}

/// Returns the annotations of a Service as its guards need them; absent if the Service has none.
fn noted(service: &ServiceFacts) -> Option<BTreeMap<String, String>> {
    let all =
        [(EARLIER_CALLS_SINCE, &service.earlier_calls_since), (BALANCER_RECORD, &service.balancer_record)];
    let set = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
    service.has_annotations.then(|| set.collect())
}

/// Returns the name of the calls for one Service.
fn subject(uid: &str) -> String {
    format!("service/{uid}")
}

fn ensure(runtime: &Arc<Runtime>, s: &Snapshot, spec: BalancerSpec, inputs: Inputs) -> Result<(), Stop> {
    let options = runtime.tools.options.services.clone();
    // Between the decision and the call, the Service may have been deleted or its type changed.
    let is_wanted = move |service: &ServiceFacts| {
        service.has_finalizer && service.deleting_since.is_none() && wants_balancer(service, &options)
    };
    let (metrics, selector, waker) = (runtime.options.metrics.clone(), selector(s), runtime.clone());
    let remember = move |answers: &mut ServiceAnswers, answered: Answered<Progress<Ensured>>| {
        measure::balancer_updated(&metrics, answers, inputs, &answered);
        answers.take_ensure(inputs, answered);
        answers.selector = selector.or(answers.selector.take());
        if answers.late_deletion().is_some() {
            // Only a list shows what an earlier deletion has done meanwhile.
            waker.wake(Key::BalancerDrift);
        }
    };
    start(runtime, s, ENSURE_BALANCER, is_wanted, remember, |driver| async move {
        match driver.balancers() {
            Some(balancers) => balancers.ensure(&spec).await,
            None => Err(Error::unsupported("load balancers")),
        }
    })
}

fn delete(runtime: &Arc<Runtime>, s: &Snapshot, which: BalancerRef) -> Result<(), Stop> {
    let options = runtime.tools.options.services.clone();
    // A Service that wants a load balancer again keeps it.
    let is_wanted = move |service: &ServiceFacts| may_be_deleted(service, &options);
    let shape = shape(&s.service);
    let remember = move |answers: &mut ServiceAnswers, answered: Answered<Progress<BalancerDeletion>>| {
        answers.deleted_shape = Some(shape);
        answers.take_delete(answered);
    };
    start(runtime, s, DELETE_BALANCER, is_wanted, remember, |driver| async move {
        match driver.balancers() {
            Some(balancers) => balancers.delete(&which).await,
            None => Err(Error::unsupported("load balancers")),
        }
    })
}

fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    runtime: &Arc<Runtime>,
    s: &Snapshot,
    call: Call,
    is_wanted: impl FnOnce(&ServiceFacts) -> bool + Send + 'static,
    remember: impl FnOnce(&mut ServiceAnswers, Answered<T>) + Send + 'static,
    made: impl FnOnce(Arc<dyn Driver>) -> F,
) -> Result<(), Stop> {
    let service = &s.service;
    let (id, uid) = (ObjectKey::new(&service.namespace, &service.name), service.uid.clone());
    let still_wanted = {
        let (id, uid) = (id.clone(), uid.clone());
        Box::new(move |seen: &Seen| {
            seen.services.get(&id).is_some_and(|entry| entry.uid == uid && is_wanted(&entry.facts))
        })
    };
    // The Service may have changed, and its watch may lag behind.
    let confirm = {
        let (runtime, id) = (runtime.clone(), id.clone());
        Box::pin(async move { refresh::<Ccm, ServiceFacts>(&runtime, &id).await.map(drop) })
    };
    let remember = {
        let (id, uid, metrics) = (id.clone(), uid.clone(), runtime.options.metrics.clone());
        Box::new(move |seen: &mut Seen, answered: Answered<T>| {
            measure::balancer_synced(&metrics);
            // The Service may have been deleted, and memory must not grow.
            if seen.services.get(&id).is_some_and(|entry| entry.uid == uid) {
                remember(seen.memory.balancers.entry(uid).or_default(), answered);
            }
        })
    };
    let start = Start {
        subject: subject(&uid),
        key: Key::Service(id),
        call,
        decided_for: s.account.id.clone(),
        bound: cloud::LONG_CALL,
        begins_by: None,
        confirm: Some(confirm),
        still_wanted,
        remember,
    };
    cloud::start(runtime, start, made)
}

/// Collects the keys of all Services.
pub(super) fn keys(seen: &Seen) -> Arc<Vec<BalancerKey>> {
    Arc::new(seen.services.iter().map(|(_, service)| service.facts.key()).collect())
}

#[cfg(test)]
mod tests;
