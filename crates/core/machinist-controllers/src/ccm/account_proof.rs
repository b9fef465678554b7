//! Proof that today's credential opens the account of the Nodes' instances. The rules are in
//! `machinist_core::ownership`.
//!
//! A cloud-controller-manager has one credential for all Nodes, so all Nodes are compared with each
//! other.

use jiff::Timestamp;
use machinist_core::ownership::{Others, Ownership};
use machinist_core::{Answers, MadeIn};
use machinist_driver::Provider;
use machinist_instance::{AccountId, Instance, Power, Sighting};
use machinist_plan::ccm::account::{BalancerProof, ProofFacts};
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::node::take_listed;
use machinist_runtime::Sightings;

use super::seen::{BALANCED, BY_ACCOUNT, Seen, YES};

/// Collects what is known about an account. The rule is
/// [`machinist_plan::ccm::account::Proof::of`].
pub(crate) fn proof_facts(
    seen: &Seen,
    account: &AccountId,
    provider: &dyn Provider,
    is_listed: bool,
) -> ProofFacts {
    let has_instance =
        |node: &CloudNodeFacts| node.provider_id().is_some_and(|id| provider.parse_id(id).ours().is_some());
    let is_recorded = seen.nodes.by_index(BY_ACCOUNT, account.as_str()).next().is_some();
    let has_shown = seen.memory.proofs.shows_any(account);
    ProofFacts {
        is_recorded,
        has_shown,
        // Looking at all Nodes takes time, and the other facts are usually enough.
        has_instances: is_recorded
            || has_shown
            || seen.nodes.iter().any(|(_, node)| has_instance(&node.facts)),
        is_listed,
    }
}

/// Returns what the Services and the last list of an account show about the load balancers. Without
/// the service controller there are no Services here, and nothing changes a load balancer.
pub(crate) fn balancers(seen: &Seen, account: &AccountId) -> BalancerProof {
    let services = seen.services.by_index(BALANCED, YES).map(|(_, service)| &*service.facts);
    let listed = seen.memory.drift.listed.as_deref();
    let listed = listed.filter(|listed| listed.account.as_ref() == Some(account));
    BalancerProof::of(services, account, listed, seen.memory.drift.failed.as_ref())
}

/// Collects the proof about the account of one Node.
pub(crate) fn ownership(
    seen: &Seen,
    node: &CloudNodeFacts,
    account: Option<AccountId>,
    answers: &Answers,
) -> Ownership {
    let mut ownership = Ownership { account, recorded: node.account(), ..Ownership::default() };
    if ownership.account.is_none() {
        return ownership;
    }
    seen.memory.proofs.complete(&mut ownership, Some(&()), &MadeIn::Nowhere);
    let is_known =
        ownership.recorded.is_some() || ownership.oldest_shown.is_some_and(|oldest| oldest <= node.created);
    // The comparison takes time, so it is made only for a Node whose instance is missing.
    if answers.absence.is_some() && !is_known {
        ownership.others = others(seen, node);
    }
    ownership
}

/// Returns the age of the other Nodes that record an instance.
fn others(seen: &Seen, node: &CloudNodeFacts) -> Others {
    let mut others = Others::None;
    for (_, other) in seen.nodes.iter() {
        if other.uid == node.uid || other.facts.provider_id().is_none() {
            continue;
        }
        others = others.and(other.facts.created, node.created);
        if others == Others::AsOld {
            break;
        }
    }
    others
}

/// Adds the proof from a list of an account.
pub(crate) fn take_list(seen: &mut Seen, account: &AccountId, provider: &dyn Provider, list: &Sightings) {
    let shown: Vec<(Shown, Power)> = seen
        .nodes
        .iter()
        .filter_map(|(_, node)| {
            let id = provider.parse_id(node.facts.provider_id()?).ours().cloned()?;
            list.of(&id).map(|instance| (Shown::of(&node.facts), instance.power))
        })
        .collect();
    for (node, power) in shown {
        seen.memory.note_power(&node.uid, power, list.ended);
        let (uid, name) = (node.uid.clone(), node.name.clone());
        take_shown(seen, account, node);
        // The list shows the instance, so absences that were seen before no longer count.
        if let Some(answers) = seen.memory.answers.get_mut(&uid) {
            take_listed(answers, account, list.started);
            seen.memory.suspect(&uid, &name);
        }
    }
}

/// Adds the proof from a lookup of a Node's instance by id.
pub(crate) fn take_sighting(
    seen: &mut Seen,
    account: &AccountId,
    provider: &dyn Provider,
    node: &CloudNodeFacts,
    sighting: &Sighting,
) {
    if let Sighting::Present(instance) = sighting
        && is_recorded(provider, node, instance)
    {
        take_shown(seen, account, Shown::of(node));
    }
}

/// Whether the Node records this instance.
fn is_recorded(provider: &dyn Provider, node: &CloudNodeFacts, instance: &Instance) -> bool {
    let recorded = node.provider_id().map(|id| provider.parse_id(id));
    recorded.is_some_and(|id| id.ours().is_some_and(|id| provider.same_instance(id, &instance.id)))
}

/// A Node whose instance an account shows.
struct Shown {
    uid: String,
    name: String,
    recorded: Option<AccountId>,
    created: Timestamp,
}

impl Shown {
    fn of(node: &CloudNodeFacts) -> Self {
        let (uid, name) = (node.uid.clone(), node.name.clone());
        Self { uid, name, recorded: node.account(), created: node.created }
    }
}

fn take_shown(seen: &mut Seen, account: &AccountId, node: Shown) {
    seen.memory.proofs.add(account, Some(()), node.recorded.clone(), node.created);
    // For Nodes with this recorded account, the record itself is the proof.
    if node.recorded.as_ref() != Some(account) {
        let answers = seen.memory.answers.entry(node.uid).or_default();
        answers.shown_in = Some(account.clone());
    }
}
