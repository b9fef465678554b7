//! Connects MailgunMachines with the work loop. The rules are in
//! `machinist_plan::capi::mailgun_machine`.

use super::seen::Seen;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::Known;
use machinist_kube::ObjectKey;
use machinist_plan::capi::Plan;
use machinist_plan::capi::facts::MailgunMachineFacts;
use machinist_plan::capi::mailgun_machine::{Action, Snapshot};
use machinist_runtime::{Fed, Kind, Observed, Stop};

use super::contract::{Capi, Runtime, World};
use super::events::{key_of, reference};
use super::key::Key;
use super::mail::{self, Request, StoredRequest};
use super::options::Tools;

/// MailgunMachines in the work loop.
pub(crate) struct MailgunMachines;

impl Kind<Capi> for MailgunMachines {
    const EXPLAINS: Option<&'static str> = Some(<MailgunMachineFacts as Fed<Capi>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.mailgun_machines.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.mail().is_some()
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let seen = &world.seen;
        let Some(request) = seen.mailgun_machines.get(id).map(|entry| entry.facts.clone()) else {
            return Observed::Gone;
        };
        let Some(options) = runtime.tools.mail() else { return Observed::NotYet };
        let object = &request.mail.object;
        let owner = match object.owner("Machine") {
            None => Known::Unasked,
            Some(name) => Known::from_store(seen.machine(&ObjectKey::new(&object.namespace, name))),
        };
        let cluster = seen.cluster_of(object, owner.present().map(Arc::as_ref));
        let mail = mail::observe(runtime, world, &object.uid, options);
        Observed::Ready(Snapshot { request, owner, cluster, mail })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.mailgun_machine)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let facts = &s.request.mail;
        let request = Request { runtime, key: Key::MailgunMachine(key_of(&facts.object)), facts, stored };
        match action {
            Action::Mail(action) => request.act::<MailgunMachineFacts>(action).await,
            Action::SetStatus(status) => {
                request.set_status::<MailgunMachineFacts>("MailgunMachine", &status).await
            }
        }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference("MailgunMachine", &s.request.mail.object))
    }
}

fn stored<'s>(seen: &'s Seen, id: &ObjectKey) -> Option<StoredRequest<'s>> {
    let facts = &seen.mailgun_machines.get(id)?.facts.mail;
    Some(StoredRequest { facts, is_paused: seen.machine_is_paused(&facts.object) })
}
