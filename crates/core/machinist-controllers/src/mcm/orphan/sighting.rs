//! Evaluates a list of an account: finds the instances that seem to have no Machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_core::Answered;
use machinist_core::orphan::NAMESPACE_TAG;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_driver::Provider;
use machinist_instance::{AccountId, Instance, ProviderId};
use machinist_plan::mcm::orphan::{AccountList, AccountOrphans, Candidate};

use crate::mcm::seen::{BY_UID, Seen};

/// Maximum number of remembered orphans of an account. The others follow when these are gone.
const MAX_ORPHANS: usize = 1000;

/// Remembers the answer to the list of an account.
pub(super) fn take_list(
    seen: &mut Seen,
    account: &AccountId,
    provider: &dyn Provider,
    answered: Answered<Vec<Instance>>,
) {
    let Answered { started, ended, answer, .. } = answered;
    let mut orphans = (*seen.memory.orphans.remove(account).unwrap_or_default()).clone();
    match answer {
        Ok(instances) => {
            let ours = seen.memory.namespace_uid.clone().flatten();
            let ours = ours.filter(|_| !is_reverted(Fix::NamespacesAreCompared));
            let is_of_another = |one: &Instance| {
                one.tags.get(NAMESPACE_TAG).is_some_and(|uid| ours.as_ref().is_some_and(|ours| ours != uid))
            };
            // Another installation with this name needs no decision and no place in memory.
            let instances: Vec<_> = instances.into_iter().filter(|one| !is_of_another(one)).collect();
            // The others are never deleted, so they do not raise the limit.
            let with_key = instances.iter().filter(|one| one.key.is_some()).count();
            let listed = AccountList { started, instances: with_key };
            let owned: Vec<Option<Owner>> =
                instances.iter().map(|one| owner(seen, provider, one, &instances)).collect();
            let candidates = instances.into_iter().zip(owned).filter_map(|(instance, owner)| {
                let is_second = match owner {
                    Some(Owner::Machine) => return None,
                    Some(Owner::OfAnother) => true,
                    None => false,
                };
                let key = instance.key.as_ref();
                let saw_deletion = key.is_some_and(|key| seen.memory.lost_machines.contains(key.as_str()));
                let new = Candidate {
                    first_seen: started,
                    last_seen: started,
                    owners: None,
                    saw_deletion,
                    is_second,
                    deleted: None,
                    reported: None,
                    instance: instance.clone(),
                };
                let known = orphans.instances.remove(&instance.id);
                // An instance that got another key in between is another orphan.
                let known = known.filter(|known| known.instance.key == instance.key);
                let one = known.map_or(new, |known| Candidate {
                    instance,
                    last_seen: started,
                    saw_deletion: saw_deletion || known.saw_deletion,
                    is_second,
                    ..known
                });
                Some((one.instance.id.clone(), one))
            });
            let instances: BTreeMap<ProviderId, Candidate> = candidates.take(MAX_ORPHANS).collect();
            orphans =
                AccountOrphans { listed: Some(listed), failed: None, suspected: None, instances, ..orphans };
        }
        Err(error) => {
            let failures = orphans.failed.map_or(1, |(_, _, failures)| failures + 1);
            orphans.failed = Some((ended, error, failures));
        }
    }
    seen.memory.orphans.insert(account.clone(), Arc::new(orphans));
}

/// The owner that an instance seems to have.
enum Owner {
    /// A Machine.
    Machine,
    /// The instance has the key of a Machine that records another instance of the same list.
    OfAnother,
}

fn owner(seen: &Seen, provider: &dyn Provider, instance: &Instance, listed: &[Instance]) -> Option<Owner> {
    if may_be_recorded(seen, provider, &instance.id) {
        return Some(Owner::Machine);
    }
    let key = instance.key.as_ref()?;
    let (_, machine) = seen.machines.by_index(BY_UID, key.as_str()).next()?;
    let recorded = machine.facts.spec.provider_id();
    let records = |other: &Instance| {
        let is_recorded = same_instance(provider, recorded, &other.id) == Some(true);
        // Users can write the record, so the recorded instance must have the Machine's key.
        is_recorded && other.id != instance.id && other.key == instance.key
    };
    let is_own = same_instance(provider, recorded, &instance.id) != Some(false);
    Some(if !is_own && listed.iter().any(records) { Owner::OfAnother } else { Owner::Machine })
}

/// Whether a Machine may record an instance.
pub(super) fn may_be_recorded(seen: &Seen, provider: &dyn Provider, id: &ProviderId) -> bool {
    let mut recorded = seen.machines_with_id_like(id.as_str()).map(|(_, one)| one.facts.spec.provider_id());
    recorded.any(|recorded| same_instance(provider, recorded, id) != Some(false))
}

/// Whether the provider id of a Machine or a Node names an instance; `None` if it is absent, or the
/// provider cannot read it.
pub(super) fn same_instance(
    provider: &dyn Provider,
    recorded: Option<&str>,
    id: &ProviderId,
) -> Option<bool> {
    let recorded = provider.parse_id(recorded?);
    recorded.ours().map(|recorded| provider.same_instance(recorded, id))
}
