//! Connects MailgunClusters with the work loop. The rules are in
//! `machinist_plan::capi::mailgun_cluster`.

use super::seen::Seen;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::Known;
use machinist_kube::ObjectKey;
use machinist_plan::capi::Plan;
use machinist_plan::capi::facts::MailgunClusterFacts;
use machinist_plan::capi::mailgun_cluster::{Action, Snapshot};
use machinist_runtime::{Fed, Kind, Observed, Stop};

use super::contract::{Capi, Runtime, World};
use super::events::{key_of, reference};
use super::key::Key;
use super::mail::{self, Request, StoredRequest};
use super::options::Tools;

/// MailgunClusters in the work loop.
pub(crate) struct MailgunClusters;

impl Kind<Capi> for MailgunClusters {
    const EXPLAINS: Option<&'static str> = Some(<MailgunClusterFacts as Fed<Capi>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.mailgun_clusters.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.mail().is_some()
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let seen = &world.seen;
        let Some(request) = seen.mailgun_clusters.get(id).map(|entry| entry.facts.clone()) else {
            return Observed::Gone;
        };
        let Some(options) = runtime.tools.mail() else { return Observed::NotYet };
        let object = &request.mail.object;
        let cluster = match object.owner("Cluster") {
            None => Known::Unasked,
            Some(name) => Known::from_store(seen.cluster(&ObjectKey::new(&object.namespace, name))),
        };
        let mail = mail::observe(runtime, world, &object.uid, options);
        Observed::Ready(Snapshot { request, cluster, mail })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.mailgun_cluster)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let facts = &s.request.mail;
        let request = Request { runtime, key: Key::MailgunCluster(key_of(&facts.object)), facts, stored };
        match action {
            Action::Mail(action) => request.act::<MailgunClusterFacts>(action).await,
            Action::SetStatus(status) => {
                request.set_status::<MailgunClusterFacts>("MailgunCluster", &status).await
            }
        }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference("MailgunCluster", &s.request.mail.object))
    }
}

fn stored<'s>(seen: &'s Seen, id: &ObjectKey) -> Option<StoredRequest<'s>> {
    let facts = &seen.mailgun_clusters.get(id)?.facts.mail;
    Some(StoredRequest { facts, is_paused: seen.cluster_is_paused(&facts.object) })
}
