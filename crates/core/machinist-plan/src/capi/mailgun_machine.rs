//! MailgunMachine: a machine that a person provides on request.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use machinist_core::{Known, Step};

use super::gates;
use super::mail::{self, Letter};
use super::mailgun_cluster::{conclude, paused};
use crate::capi::facts::{ClusterFacts, CoreMachineFacts, MailgunMachineFacts};
use crate::capi::why::{CapiReason, Plan, Why};

pub use super::mailgun_cluster::Action;

/// All facts for one decision about one MailgunMachine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The MailgunMachine to decide about.
    pub request: Arc<MailgunMachineFacts>,
    /// The Machine that owns it; `Unasked` if there is no owner reference.
    pub owner: Known<Arc<CoreMachineFacts>>,
    /// The Cluster of the Machine.
    pub cluster: Option<Arc<ClusterFacts>>,
    /// The facts about its mail.
    pub mail: mail::Snapshot,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { request, owner, cluster, mail } = self;
        (request, owner, cluster, mail).hash(state);
    }
}

/// Decides the next actions for one MailgunMachine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let request = &s.request.mail;
    let object = &request.object;
    if object.deleting_since.is_some() {
        return Plan::idle(Why::up_to_date());
    }
    if gates::is_paused(object, s.cluster.as_deref()) {
        let is_paused = s.cluster.as_ref().is_some_and(|cluster| cluster.is_paused);
        return paused("MailgunMachine", request, is_paused, s.mail.now);
    }
    let waiting = |reason, next| Plan::idle(Why::new(reason, Step::Expect(next)));
    let owner = match &s.owner {
        Known::Present(owner) => owner,
        Known::Unasked => {
            return waiting(CapiReason::OwnerUnset { kind: "Machine" }, "the Machine adopts it");
        }
        Known::Absent => {
            let owner = format!("Machine {}", object.owner("Machine").unwrap_or_default());
            return waiting(CapiReason::OwnerMissing { owner }, "the Machine appears");
        }
    };
    let Some(cluster) = &s.cluster else {
        let fix = "set the label cluster.x-k8s.io/cluster-name to the name of the Cluster".to_owned();
        return Plan::idle(Why::new(CapiReason::ClusterUnknown, Step::Fix(fix)));
    };
    let name = cluster.object.name.clone();
    if !cluster.infrastructure_provisioned {
        let reason = CapiReason::InfrastructureNotReady { cluster: name };
        return waiting(reason, "the infrastructure is ready");
    }
    if owner.bootstrap_secret.is_none() {
        let reason = CapiReason::BootstrapDataMissing { machine: owner.object.name.clone() };
        return waiting(reason, "the bootstrap provider creates the data");
    }
    let letter = Letter {
        kind: "mailgunmachine",
        purpose: "create",
        subject: format!(
            "[{}] New Machine {} for Cluster {name} requested",
            request.priority, owner.object.name
        ),
        text: text(owner, &request.request),
        request,
    };
    let decision = mail::decide(&s.mail, &letter);
    conclude(&s.mail, "MailgunMachine", request, decision, s.request.has_provider_id, "spec.providerID")
}

/// Returns the text of the mail. The bootstrap data contains tokens, so it is never in a mail.
fn text(machine: &CoreMachineFacts, request: &str) -> String {
    let role = if machine.is_control_plane { "control plane" } else { "worker" };
    let mut text = format!("Hello! One machine please.\n\n{request}\n\nRole: {role}\n");
    for (name, value) in [("Version", &machine.kubernetes), ("Failure domain", &machine.failure_domain)] {
        if let Some(value) = value {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text
}
