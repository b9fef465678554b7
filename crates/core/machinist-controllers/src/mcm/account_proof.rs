//! Proof from the accounts of a process: it shows whether a credential opens the account in
//! which an instance was created. The rules are in `machinist_core::ownership`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_core::instance::Unkeyed;
use machinist_core::ownership::{Others, Ownership, shows_account};
use machinist_core::{Answers, Process};
use machinist_driver::{Provider, Providers};
use machinist_instance::{AccountId, Instance, Marks, Place, ProviderId, RecordedId, Sighting};
use machinist_plan::mcm::facts::{ClassFacts, CreationIntent, MachineFacts};
use serde_json::Value;

use super::memory::Opener;
use super::seen::{BY_CLASS, Seen};

/// Inputs of the decision about ownership.
pub(crate) struct Asked<'a> {
    pub answers: &'a Answers,
    /// Where the last call may have created the instance.
    pub intent: &'a CreationIntent,
    pub process: &'a Process,
}

/// Where a Machine's instance comes from.
pub(crate) struct Origin<'a> {
    /// The class of the Machine, if it exists.
    pub class: Option<&'a ClassFacts>,
    /// The place of the instance, if it is known.
    pub place: Option<&'a Place>,
}

/// Collects the proof that a Machine's instance was created in an account.
pub(crate) fn ownership(
    seen: &Seen,
    providers: &Providers,
    machine: &MachineFacts,
    origin: &Origin<'_>,
    account: Option<AccountId>,
    asked: &Asked<'_>,
) -> Ownership {
    let intended = asked.intent.account.clone();
    let recorded = machine.account();
    let mut ownership = Ownership { account, recorded, intended, ..Ownership::default() };
    let Some(today) = &ownership.account else { return ownership };
    let today = today.clone();
    let Origin { class, place } = *origin;
    let opener = class.zip(place).map(|(class, place)| opener(class, place));
    seen.memory.proofs.complete(&mut ownership, opener.as_ref(), &asked.answers.made_in);
    if let (Some(class), Some(place)) = (class, place)
        && is_compared(machine, &ownership, asked)
    {
        let (others, oldest) = compare(seen, providers, machine, (class, place), &today);
        ownership.others = others;
        ownership.oldest_shown = [ownership.oldest_shown, oldest].into_iter().flatten().min();
    }
    ownership
}

/// Returns whether the records of other Machines matter. Comparing with all of them takes time, so
/// it is done only if needed.
fn is_compared(machine: &MachineFacts, ownership: &Ownership, asked: &Asked<'_>) -> bool {
    let is_known = ownership.recorded.is_some()
        || ownership.oldest_shown.is_some_and(|oldest| oldest <= machine.created);
    let is_asked = match &machine.provider_id {
        Some(_) => asked.answers.absence.is_some(),
        None => !asked.process.saw_creation_of(machine.created),
    };
    is_asked && !is_known
}

fn opener(class: &ClassFacts, place: &Place) -> Opener {
    (class.opened_by().cloned(), place.clone())
}

/// Returns the place of the recorded instance of a Machine.
fn recorded_place(provider: &dyn Provider, machine: &MachineFacts, class: &ClassFacts) -> Option<Place> {
    let recorded = provider.parse_id(machine.spec.provider_id().unwrap_or_default());
    let of_id = recorded.ours().and_then(|id| provider.place_of(id));
    of_id.or_else(|| machine.place()).or_else(|| provider.place(&class.provider_spec).ok())
}

/// Returns the age class of the other Machines of the same Secret and place that record an
/// instance, and the creation time of the oldest one with that account.
fn compare(
    seen: &Seen,
    providers: &Providers,
    machine: &MachineFacts,
    (class, place): (&ClassFacts, &Place),
    account: &AccountId,
) -> (Others, Option<Timestamp>) {
    let (mut others, mut oldest) = (Others::None, None);
    let provider_of = |machine: &MachineFacts, class: &ClassFacts| {
        &**providers.of(class.provider.as_deref(), machine.spec.provider_id())
    };
    let own = provider_of(machine, class);
    let same_secret = seen.classes.iter().filter(|(_, other)| other.facts.opened_by() == class.opened_by());
    for (key, of_secret) in same_secret {
        for (_, other) in seen.machines.by_index(BY_CLASS, &key.name) {
            let other = &other.facts;
            if other.spec.provider_id().is_none() || other.uid == machine.uid {
                continue;
            }
            let provider = provider_of(other, &of_secret.facts);
            if provider.name() != own.name()
                || recorded_place(provider, other, &of_secret.facts).as_ref() != Some(place)
            {
                continue;
            }
            let is_as_old = other.created <= machine.created;
            others = others.and(other.created, machine.created);
            if other.account().as_ref() == Some(account) {
                oldest = [oldest, Some(other.created)].into_iter().flatten().min();
                if is_as_old {
                    return (Others::AsOld, oldest);
                }
            }
        }
    }
    (others, oldest)
}

/// Criteria that identify a Machine's instance.
pub(crate) struct InstanceMatch<'a> {
    /// Decides whether two ids identify the same instance.
    pub provider: &'a dyn Provider,
    /// The tag of our instances.
    pub cluster: &'a str,
    /// The place of the account that shows the instances.
    pub place: &'a Place,
}

impl InstanceMatch<'_> {
    /// Returns the id of a Machine's instance, as the provider parses it.
    fn recorded(&self, machine: &MachineFacts) -> Option<ProviderId> {
        self.provider.parse_id(machine.spec.provider_id()?).ours().cloned()
    }

    /// Returns whether the instance with the recorded id shows the account of the Machine.
    fn is_of(&self, machine: &MachineFacts, instance: &Instance) -> bool {
        shows_account(instance, &machine.key(), self.cluster)
    }
}

/// Adds the proof from a list of an account.
pub(crate) fn take_list(
    seen: &mut Seen,
    account: &AccountId,
    matching: &InstanceMatch<'_>,
    instances: &[Instance],
) {
    let by_id: BTreeMap<_, _> = instances.iter().map(|instance| (&instance.id, instance)).collect();
    let shown = seen.machines.iter().map(|(_, machine)| &machine.facts).filter(|machine| {
        let Some(recorded) = matching.recorded(machine) else { return false };
        let is_it = |instance: &&Instance| matching.provider.same_instance(&recorded, &instance.id);
        // Other programs may spell the id differently. If the Machine has a recorded account, we
        // have written the id.
        let spelled_otherwise = || match machine.account() {
            None => instances.iter().find(is_it),
            Some(_) => None,
        };
        let instance = by_id.get(&recorded).copied().or_else(spelled_otherwise);
        instance.is_some_and(|instance| matching.is_of(machine, instance))
    });
    let shown: Vec<Arc<MachineFacts>> = shown.cloned().collect();
    for machine in shown {
        take_shown(seen, account, matching.place, &machine);
    }
}

/// Adds the proof from a lookup of a Machine's instance.
pub(crate) fn take_sighting(
    seen: &mut Seen,
    account: &AccountId,
    matching: &InstanceMatch<'_>,
    machine: &MachineFacts,
    sighting: &Sighting,
) {
    if let Sighting::Present(instance) = sighting
        && let Some(recorded) = matching.recorded(machine)
        && matching.provider.same_instance(&recorded, &instance.id)
        && matching.is_of(machine, instance)
    {
        take_shown(seen, account, matching.place, machine);
    }
}

fn take_shown(seen: &mut Seen, account: &AccountId, place: &Place, machine: &MachineFacts) {
    let class = seen.class_of(machine).map(|class| class.facts.clone());
    let opener = class.as_deref().map(|class| opener(class, place));
    seen.memory.proofs.add(account, opener, machine.account(), machine.created);
    // For Machines with this recorded account, the record itself is the proof.
    if machine.account().as_ref() != Some(account) {
        let answers = seen.memory.answers.entry(machine.uid.clone()).or_default();
        answers.shown_in = Some(account.clone());
    }
}

/// Returns what is known about an instance without a key that the last lookup by the recorded id
/// found.
pub(crate) fn unkeyed(
    seen: &Seen,
    provider: &dyn Provider,
    machine: &MachineFacts,
    class: Option<&ClassFacts>,
    answers: &Answers,
) -> Unkeyed {
    let found = answers.find.as_deref().filter(|found| found.by.id.is_some());
    let Some(Ok(Sighting::Present(instance))) = found.map(|found| &found.answered.answer) else {
        return Unkeyed::default();
    };
    if instance.key.is_some() || machine.deleting_since.is_none() {
        return Unkeyed::default();
    }
    // Ids have several spellings, so an index of the texts does not find all of them. A younger
    // Machine is a copy, unless the instance has its name.
    let records_it = |other: &MachineFacts| {
        let counts = (other.created, &other.uid) < (machine.created, &machine.uid)
            || (other.uid != machine.uid && other.may_name(&instance.name));
        let recorded = other.spec.provider_id().map(|text| provider.parse_id(text));
        let recorded = recorded.as_ref().and_then(RecordedId::ours);
        counts && recorded.is_some_and(|id| provider.same_instance(id, &instance.id))
    };
    let recording = seen.machines.iter().find(|(_, other)| records_it(&other.facts)).map(|(key, _)| key);
    Unkeyed {
        marks: marks_of(provider, instance, class.map(|class| &*class.provider_spec)),
        recorded_by: recording.map(|key| key.name.clone()),
        unreadable: seen.machines.unreadable().next().map(|(key, _)| key.name.clone()),
    }
}

/// The marks on an instance, for its class. Without the class, any marks belong to some class, and
/// an instance without any counts as another program's if all classes of the provider have some.
fn marks_of(provider: &dyn Provider, instance: &Instance, provider_spec: Option<&Value>) -> Marks {
    match provider_spec {
        Some(provider_spec) => provider.marks_of(instance, provider_spec),
        None => match provider.marks_of(instance, &Value::Null) {
            Marks::OfClass => Marks::NotUsed,
            marks @ (Marks::NotUsed | Marks::Missing | Marks::OfAnotherClass) => marks,
        },
    }
}

/// Returns the name of the Machine with the foreign key that the last lookup found. An unreadable
/// Machine may be that one.
pub(crate) fn key_holder(seen: &Seen, answers: &Answers) -> Option<String> {
    let found = answers.find.as_deref()?;
    let Ok(Sighting::Foreign(foreign)) = &found.answered.answer else { return None };
    let key = foreign.key.as_ref()?;
    let holder = seen.machines.by_index(super::seen::BY_UID, key.as_str()).next();
    let unreadable = || seen.machines.unreadable().next().map(|(key, _)| key);
    holder.map(|(key, _)| key).or_else(unreadable).map(|key| key.name.clone())
}
