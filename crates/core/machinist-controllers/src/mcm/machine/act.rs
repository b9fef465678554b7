//! Performs the actions about a Machine. Nothing is decided here.

use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::MachinePriority;
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_core::Call;
use machinist_core::orphan::NAMESPACE_TAG;
use machinist_instance::{InstanceSpec, Place};
use machinist_kube::recorder::EventType;
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_plan::facts::{
    ACCOUNT, EARLIER_CALLS_SINCE, INTENDED_ACCOUNT, INTENDED_KEY_SCOPE, INTENDED_PLACE, PLACE,
};
use machinist_plan::mcm::facts::{
    AttachmentFacts, CreationIntent, DELETION_HELD, JOINED_AS, MachineFacts, NODE_MARK, NodeFacts, Token,
};
use machinist_plan::mcm::machine::{Action, OperationWrite, Severity, Snapshot};
use machinist_runtime::Stop;
use serde_json::Value;

use super::status::{expiry_patch, status_patch};
use super::{drain, instance, node, observe, token, user_data};
use crate::mcm::contract::{Runtime, Write};
use crate::mcm::key::Key;
use crate::mcm::measure;
use crate::mcm::namespace;
use crate::mcm::reference::{machine_reference, object_key};
use crate::mcm::seen::TokenEntry;

/// An input of a call was deleted meanwhile; the next pass handles that.
const CLASS_OR_SECRET_GONE: Stop = Stop::NotNow("MachineClass or Secret not found");

pub(super) async fn perform(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
    // Reads and calls about pods remember more about their own answers, and a list of the Nodes is
    // answered later.
    let remembers = matches!(
        action,
        Action::Drain(_)
            | Action::ListPods(_)
            | Action::LookForNode(_)
            | Action::LookAtLease(_)
            | Action::ReadNodes
    );
    let is_for_the_nodes = action.is_for_the_nodes() && !remembers;
    let asked = runtime.now();
    let end = perform_one(runtime, s, action).await;
    if is_for_the_nodes {
        node::heard(runtime, &s.machine, asked, &end);
    }
    end
}

async fn perform_one(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
    let machine = &s.machine;
    let own_key = [Key::Machine(object_key(&machine.namespace, &machine.name))];
    let write = Write { runtime, charged: &own_key, key: object_key(&machine.namespace, &machine.name) };
    match action {
        Action::AddFinalizer { priority } => {
            let patch = GuardedPatch::new(&machine.uid)
                .add_finalizer(machine.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineFacts>(with_priority(patch, machine, priority)).await
        }
        Action::RemoveFinalizer => {
            // The watch may show the end of the Machine before this write has an answer.
            runtime.lock().seen.memory.released.insert(machine.uid.clone());
            let patch = GuardedPatch::new(&machine.uid)
                .remove_finalizer(machine.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineFacts>(patch).await
        }
        Action::Record { node, provider_id, account, place, priority } => {
            let mut patch = GuardedPatch::new(&machine.uid);
            if let Some(node) = node {
                patch = patch.set_label(machine.labels.as_ref(), labels::NODE, node.as_str());
            }
            patch = patch
                .test(&["spec", "providerID"], machine.spec.provider_id.clone().map(Value::from).as_ref())
                .add(&["spec", "providerID"], Value::from(provider_id.as_str()));
            if let Some(account) = account {
                patch = patch.set_annotation(machine.annotations.as_ref(), ACCOUNT, account.as_str());
            }
            let provider = runtime.tools.machine().providers.of(None, Some(provider_id.as_str()));
            let is_in_id = provider.place_of(&provider_id).is_some();
            let place = place.filter(|place| !is_in_id && *place != Place::WHOLE);
            if let Some(place) = place.filter(|place| machine.place().as_ref() != Some(place)) {
                patch = patch.set_annotation(machine.annotations.as_ref(), PLACE, place.as_str());
            }
            for intent in [INTENDED_ACCOUNT, INTENDED_PLACE, INTENDED_KEY_SCOPE] {
                patch = patch.remove_annotation(machine.annotations.as_ref(), intent);
            }
            write.patch::<MachineFacts>(with_priority(patch, machine, priority)).await
        }
        Action::LabelNode(node) => {
            let patch = GuardedPatch::new(&machine.uid).set_label(
                machine.labels.as_ref(),
                labels::NODE,
                node.as_str(),
            );
            write.patch::<MachineFacts>(patch).await
        }
        Action::RecordIntent(CreationIntent { account, place, key_scope }) => {
            let changes = [
                (INTENDED_ACCOUNT, account.map(|account| account.as_str().to_owned())),
                (INTENDED_PLACE, place.map(|place| place.as_str().to_owned())),
                (INTENDED_KEY_SCOPE, key_scope.map(|scope| scope.as_str().to_owned())),
            ];
            let changes = changes.map(|(name, value)| (name.to_owned(), value)).into();
            let patch = GuardedPatch::new(&machine.uid);
            let patch = patch.change_annotations(machine.annotations.as_ref(), &changes);
            // A late effect would replace the record of a later call.
            write.patch_that_takes_away::<MachineFacts>(patch).await
        }
        Action::RecordWait(since) => {
            let read = machine.annotations.as_ref();
            let patch = GuardedPatch::new(&machine.uid);
            let patch = patch.set_annotation(read, EARLIER_CALLS_SINCE, &since.to_string());
            write.patch::<MachineFacts>(patch).await
        }
        Action::CarryPreserve(value) => {
            // The Machine's own annotation is removed, as in Go MCM: the Node's annotation replaces
            // it.
            let read = machine.annotations.as_ref();
            let patch = GuardedPatch::new(&machine.uid).remove_annotation(read, annotations::PRESERVE);
            let carried = annotations::LAST_APPLIED_NODE_PRESERVE_VALUE;
            let patch = match value.as_str() {
                "" => patch.remove_annotation(read, carried),
                value => patch.set_annotation(read, carried, value),
            };
            write.patch::<MachineFacts>(patch).await
        }
        Action::ForgetPreserve => {
            let read = machine.annotations.as_ref();
            let patch = GuardedPatch::new(&machine.uid)
                .remove_annotation(read, annotations::PRESERVE)
                .remove_annotation(read, annotations::LAST_APPLIED_NODE_PRESERVE_VALUE);
            write.patch::<MachineFacts>(patch).await
        }
        Action::SetPreserveExpiry(until) => {
            // A preserved Machine that has failed delays no replacement in its deployment.
            let replacement = runtime.lock().seen.replacement_key(machine);
            let charged = [own_key[0].clone(), replacement];
            let write = Write { charged: &charged, ..write };
            write.patch_status::<MachineFacts>(expiry_patch(machine, until)).await
        }
        Action::RecordHold(held) => {
            let read = machine.annotations.as_ref();
            let patch = GuardedPatch::new(&machine.uid).set_annotation(read, DELETION_HELD, &held);
            write.patch::<MachineFacts>(patch).await
        }
        Action::SetStatus(status) => {
            if status.operation.as_ref().is_some_and(OperationWrite::is_failed_creation) {
                instance::note_wanted(runtime, machine);
            }
            // A failed Machine counts for the decision about replacements in its deployment.
            let replacement = runtime.lock().seen.replacement_key(machine);
            let charged = [own_key[0].clone(), replacement];
            let write = Write { charged: &charged, ..write };
            write.patch_status::<MachineFacts>(status_patch(machine, &status)).await
        }
        Action::DeleteMachine => {
            let replacement = runtime.lock().seen.replacement_key(machine);
            let charged = [own_key[0].clone(), replacement];
            Write { charged: &charged, ..write }.delete::<MachineFacts>(&machine.uid).await
        }
        Action::CreateToken { id, expires, intent } => {
            namespace::know(runtime).await?;
            token::create(runtime, &own_key, machine, &id, expires, intent).await
        }
        Action::DeleteToken(token) => {
            let key = token::secret_key(&token.id);
            Write { key, ..write }.delete::<TokenEntry>(&token.uid).await
        }
        Action::Queue(call) => {
            if call == Call::ENSURE {
                instance::note_wanted(runtime, machine);
            }
            instance::queue(asking(runtime, s)?, call)
        }
        Action::Ensure { adopt_made_since } => {
            namespace::know(runtime).await?;
            ensure(runtime, s, adopt_made_since)
        }
        Action::List => instance::list(asking(runtime, s)?),
        Action::Rekey { id, from } => instance::rekey(asking(runtime, s)?, id, from),
        Action::Initialize => initialize(runtime, s),
        Action::Find(which) => instance::find(asking(runtime, s)?, which),
        Action::ObserveBoot(which) => instance::observe_boot(asking(runtime, s)?, which),
        Action::Delete(permit) => instance::delete(asking(runtime, s)?, permit),
        Action::SyncNode(mut sync) => {
            if sync.annotations.contains_key(NODE_MARK) {
                namespace::know(runtime).await?;
                let uid = runtime.lock().seen.memory.namespace_uid.clone().flatten();
                sync.annotations.extend(uid.map(|uid| (NAMESPACE_TAG.to_owned(), Some(uid))));
                let id = machine.spec.provider_id().map(str::to_owned);
                sync.annotations.extend(id.map(|id| (JOINED_AS.to_owned(), Some(id))));
            }
            let key = ObjectKey::cluster_scoped(&sync.node.name);
            Write { key, ..write }.patch::<NodeFacts>(node::patch(&sync)).await
        }
        Action::SetTerminating { node, reason } => {
            let key = ObjectKey::cluster_scoped(&node.name);
            let terminating = node::terminating(&node, reason, s.now);
            let result = Write { key, ..write }.merge_status::<NodeFacts>(terminating).await;
            node::note_rejection(runtime, machine, result)
        }
        Action::SetUpdate { node, condition } => {
            let key = ObjectKey::cluster_scoped(&node.name);
            let write = Write { key, ..write };
            match node::change_update(&node, &condition, s.now) {
                Some(change) => write.patch_status::<NodeFacts>(change).await,
                None => write.merge_status::<NodeFacts>(node::add_update(&node, &condition, s.now)).await,
            }
        }
        Action::SetCapacity { node, changes } => {
            let key = ObjectKey::cluster_scoped(&node.name);
            let capacity = node::capacity(&node, &changes);
            Write { key, ..write }.merge_status::<NodeFacts>(capacity).await
        }
        Action::LabelUpdated => {
            let patch = GuardedPatch::new(&machine.uid).set_label(
                machine.labels.as_ref(),
                labels::UPDATE_RESULT,
                labels::UPDATE_SUCCESSFUL,
            );
            write.patch::<MachineFacts>(patch).await
        }
        Action::SetPreserved { node, condition } => {
            let key = ObjectKey::cluster_scoped(&node.name);
            let preserved = node::preserved(&node, &condition, s.now);
            Write { key, ..write }.merge_status::<NodeFacts>(preserved).await
        }
        Action::Cordon(node) => {
            let patch = GuardedPatch::new(&node.uid)
                .test(&["spec", "unschedulable"], node.unschedulable.map(Value::from).as_ref())
                .add(&["spec", "unschedulable"], Value::from(true));
            let write = Write { key: ObjectKey::cluster_scoped(&node.name), ..write };
            node::note_rejection(runtime, machine, write.patch::<NodeFacts>(patch).await)
        }
        Action::RemoveNodeFinalizer(node) => {
            let patch =
                GuardedPatch::new(&node.uid).remove_finalizer(node.finalizers.as_deref(), finalizers::NODE);
            Write { key: ObjectKey::cluster_scoped(&node.name), ..write }.patch::<NodeFacts>(patch).await
        }
        Action::DeleteNode(node) => {
            Write { key: ObjectKey::cluster_scoped(&node.name), ..write }.delete::<NodeFacts>(&node.uid).await
        }
        Action::LookForNode(name) => node::look_for(runtime, machine, &name).await,
        Action::ReadNodes => {
            runtime.read_soon::<NodeFacts>(&own_key[0]);
            Ok(())
        }
        Action::ListPods(node) => node::list_pods(runtime, machine, &node).await,
        Action::LookAtLease(node) => node::look_at_lease(runtime, machine, &node).await,
        Action::DeleteAttachment(attachment) => {
            let key = ObjectKey::cluster_scoped(&attachment.name);
            Write { key, ..write }.delete::<AttachmentFacts>(&attachment.uid).await
        }
        Action::Drain(call) => drain::perform(runtime, machine, call).await,
        Action::NoteVolumes(waits) => {
            drain::note_volumes(runtime, machine, waits);
            Ok(())
        }
        Action::Tell { severity, reason, message } => {
            let kind = match severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            };
            runtime.recorder.record(&machine_reference(machine), kind, reason, &message);
            Ok(())
        }
    }
}

/// Sets the deletion priority of a Machine that has none.
fn with_priority(
    patch: GuardedPatch,
    machine: &MachineFacts,
    priority: Option<MachinePriority>,
) -> GuardedPatch {
    match priority {
        None => patch,
        Some(priority) => {
            let priority = priority.0.to_string();
            patch.set_annotation(machine.annotations.as_ref(), annotations::MACHINE_PRIORITY, &priority)
        }
    }
}

fn asking<'a>(runtime: &'a Arc<Runtime>, s: &'a Snapshot) -> Result<instance::Asking<'a>, Stop> {
    let world = runtime.lock();
    let made_from = observe::ClassInputs::of(&world, &s.machine).ok_or(CLASS_OR_SECRET_GONE)?;
    asking_with(runtime, s, &made_from)
}

fn asking_with<'a>(
    runtime: &'a Arc<Runtime>,
    s: &'a Snapshot,
    made_from: &observe::ClassInputs<'_>,
) -> Result<instance::Asking<'a>, Stop> {
    let provider = observe::provider_of(runtime, Some(&made_from.class), &s.machine);
    let opened = made_from.open(runtime, provider, s.place.place()).ok_or(CLASS_OR_SECRET_GONE)?;
    let id = s.identity.recorded.ours().cloned();
    Ok(instance::Asking { runtime, machine: &s.machine, id, inputs: s.inputs, opened })
}

fn initialize(runtime: &Arc<Runtime>, s: &Snapshot) -> Result<(), Stop> {
    let class = s.class.present().ok_or(CLASS_OR_SECRET_GONE)?;
    let id = s.identity.recorded.ours().ok_or(Stop::NotNow("the Machine has no instance"))?;
    let (metrics, machine, class) = (runtime.options.metrics.clone(), s.machine.clone(), class.clone());
    let provider_spec = class.provider_spec.clone();
    let done = move |took| measure::initialized(&metrics, &machine, &class, took);
    instance::initialize(asking(runtime, s)?, id.clone(), provider_spec, done)
}

fn ensure(runtime: &Arc<Runtime>, s: &Snapshot, adopt_made_since: Timestamp) -> Result<(), Stop> {
    let machine = &s.machine;
    let options = runtime.tools.machine();
    let (asking, class, template, token, namespace) = {
        let world = runtime.lock();
        let namespace = world.seen.memory.namespace_uid.clone().flatten();
        let made_from = observe::ClassInputs::of(&world, machine).ok_or(CLASS_OR_SECRET_GONE)?;
        if made_from.lacks_content() {
            // The content of a Secret is forgotten while no class refers to it.
            return Err(CLASS_OR_SECRET_GONE);
        }
        // The class was read again. A user may have moved it meanwhile.
        let provider = observe::provider_of(runtime, Some(&made_from.class), machine);
        let provider_spec = &made_from.class.provider_spec;
        let is_moved = provider.place(provider_spec).ok() != s.place.of_class;
        if is_moved || provider.key_scope(provider_spec) != s.key_scope.of_class {
            return Err(Stop::NotNow("the class has changed"));
        }
        let asking = asking_with(runtime, s, &made_from)?;
        if asking.opened.as_ref().is_ok_and(|opened| Some(opened.account()) != s.ownership.account.as_ref()) {
            return Err(Stop::NotNow("the credential has changed"));
        }
        let (_, template) = made_from.merged().ok_or(CLASS_OR_SECRET_GONE)?;
        let token = match token::token(&world.seen, machine) {
            Token::Ours(token) => {
                let token = world.seen.tokens.get(&token::secret_key(&token.id));
                token.map(|entry| entry.facts.expose())
            }
            Token::Free(_) | Token::Exhausted => None,
        };
        (asking, made_from.class.clone(), template, token, namespace)
    };
    let Some(name) = machinist_instance::NodeName::new(&machine.name) else {
        return Err(Stop::refused("the Machine has no name"));
    };
    let spec = InstanceSpec {
        key: machine.key(),
        name,
        cluster: options.cluster.clone(),
        provider_spec: (*class.provider_spec).clone(),
        user_data: user_data::render(&template, &machine.name, token.as_deref()),
        tags: namespace.map(|uid| (NAMESPACE_TAG.to_owned(), uid)).into_iter().collect(),
        annotations: machine.spec.node_template.metadata.annotations.clone(),
        adopt_made_since: Some(adopt_made_since),
        last_known_state: machine.status.last_known_state.clone(),
    };
    instance::ensure(asking, spec)
}
