//! Evidence from the accounts of a process: it shows whether a credential opens the account in
//! which an instance was created. The rules are in `machinist_core::ownership`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::ownership::{List, Others, Ownership};
use machinist_core::{Answers, MadeIn, Process, plus};
use machinist_driver::Provider;
use machinist_instance::{AccountId, Instance, ProviderId, Sighting};
use machinist_plan::facts::{ClassFacts, MachineFacts, Token};

use super::seen::{BY_CLASS, Seen};

/// Minimum interval between two lists of an account that serve only as evidence.
const LIST_AT_MOST_EVERY: Duration = Duration::from_secs(300);
/// Delay before a list that failed, or did not begin, is repeated.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of remembered accounts: each change of a Secret may open another account. A
/// forgotten account costs one list.
const MOST_ACCOUNTS: usize = 64;

/// The evidence of all accounts.
#[derive(Debug, Default)]
pub(crate) struct Evidence(BTreeMap<AccountId, Shown>);

/// Evidence from one account.
#[derive(Debug, Default)]
struct Shown {
    /// Accounts that Machines recorded and whose instances this account shows: other names of this
    /// account.
    same_as: BTreeSet<AccountId>,
    /// Evidence by Secret.
    by_secret: BTreeMap<Secret, ShownOfSecret>,
    list: List,
}

/// The Secret that opens an account, if a class refers to one.
type Secret = Option<(String, String)>;

#[derive(Debug)]
struct ShownOfSecret {
    /// Creation time of the oldest object whose instance was shown.
    oldest: Timestamp,
    /// Whether one of these objects has no recorded account.
    has_unrecorded: bool,
}

impl Evidence {
    /// Records that an account shows the instance of a Machine.
    pub(crate) fn add(&mut self, account: &AccountId, machine: &MachineFacts, class: Option<&ClassFacts>) {
        let recorded = machine.account();
        let shown = self.of(account);
        shown.same_as.extend(recorded.clone());
        let Some(class) = class else { return };
        let of_secret = shown.by_secret.entry(class.opened_by().cloned());
        let of_secret = of_secret.or_insert(ShownOfSecret { oldest: machine.created, has_unrecorded: false });
        of_secret.oldest = of_secret.oldest.min(machine.created);
        of_secret.has_unrecorded |= recorded.is_none();
    }

    /// Returns whether an account may be listed now, given the end of its last list. If so, other
    /// Machines wait for this list. They do not wait long, because the call may never begin.
    pub(crate) fn may_list(&mut self, account: &AccountId, last: Option<Timestamp>, now: Timestamp) -> bool {
        let shown = self.of(account);
        let may = match shown.list {
            List::NotAsked => true,
            // Planners ask again only after a longer time, or while many instances are being
            // deleted.
            List::Ended(_) => last.is_none_or(|last| plus(last, LIST_AGAIN_AFTER) <= now),
            List::Asked(again_at) | List::Failed(again_at) => again_at <= now,
        };
        if may {
            shown.list = List::Asked(plus(now, LIST_AGAIN_AFTER));
        }
        may
    }

    /// Records that a list call begins.
    pub(crate) fn list_begins(&mut self, account: &AccountId, now: Timestamp) {
        self.of(account).list = List::Asked(plus(now, LIST_AT_MOST_EVERY));
    }

    /// Records that a list call ended.
    pub(crate) fn list_ended(&mut self, account: &AccountId, worked: bool, now: Timestamp) {
        self.of(account).list = match worked {
            true => List::Ended(plus(now, LIST_AT_MOST_EVERY)),
            false => List::Failed(plus(now, LIST_AGAIN_AFTER)),
        };
    }

    /// Resets the times of all lists. The evidence itself stays valid.
    pub(crate) fn forget_moments(&mut self) {
        for shown in self.0.values_mut() {
            shown.list = List::NotAsked;
        }
    }

    fn of(&mut self, account: &AccountId) -> &mut Shown {
        if self.0.len() >= MOST_ACCOUNTS && !self.0.contains_key(account) {
            self.0.clear();
        }
        self.0.entry(account.clone()).or_default()
    }
}

/// Inputs of the decision about ownership.
pub(crate) struct Asked<'a> {
    pub answers: &'a Answers,
    pub token: &'a Token,
    pub process: &'a Process,
}

/// Collects the evidence whether an account is the one in which a Machine's instance was created.
pub(crate) fn ownership(
    seen: &Seen,
    machine: &MachineFacts,
    class: Option<&ClassFacts>,
    account: Option<AccountId>,
    asked: &Asked<'_>,
) -> Ownership {
    let intended = match asked.token {
        Token::Ours(token) => token.account.clone(),
        Token::Free(_) | Token::Exhausted => None,
    };
    let recorded = machine.account();
    let mut ownership = Ownership { account, recorded, intended, ..Ownership::default() };
    let Some(today) = &ownership.account else { return ownership };
    if let Some(shown) = seen.memory.evidence.0.get(today) {
        ownership.list = shown.list;
        ownership.shows_recorded =
            ownership.recorded.as_ref().is_some_and(|account| shown.same_as.contains(account));
        ownership.shows_made_in = match (&asked.answers.made_in, &ownership.intended) {
            (MadeIn::Account(account), _) => shown.same_as.contains(account),
            (MadeIn::Nowhere, Some(account)) => shown.same_as.contains(account),
            (MadeIn::Nowhere, None) | (MadeIn::Several, _) => false,
        };
        let of_secret = class.and_then(|class| shown.by_secret.get(&class.opened_by().cloned()));
        ownership.oldest_shown = of_secret.map(|shown| shown.oldest);
        ownership.shows_unrecorded = of_secret.is_some_and(|shown| shown.has_unrecorded);
    }
    if let Some(class) = class
        && is_compared(machine, &ownership, asked)
    {
        let (others, oldest) = compare(seen, machine, class, today);
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
        None => !asked.process.saw_the_birth_of(machine.created),
    };
    is_asked && !is_known
}

/// Returns the age class of the other Machines of the same Secret that record an instance, and the
/// creation time of the oldest one with that account.
fn compare(
    seen: &Seen,
    machine: &MachineFacts,
    class: &ClassFacts,
    account: &AccountId,
) -> (Others, Option<Timestamp>) {
    let (mut others, mut oldest) = (Others::None, None);
    let same_secret = seen.classes.iter().filter(|(_, other)| other.facts.opened_by() == class.opened_by());
    for (key, _) in same_secret {
        for (_, other) in seen.machines.by_index(BY_CLASS, &key.name) {
            let other = &other.facts;
            if other.spec.provider_id().is_none() || other.uid == machine.uid {
                continue;
            }
            let is_as_old = other.created <= machine.created;
            others = match others {
                Others::AsOld => Others::AsOld,
                Others::None | Others::Younger if is_as_old => Others::AsOld,
                Others::None | Others::Younger => Others::Younger,
            };
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
pub(crate) struct Recognition<'a> {
    /// Decides whether two ids identify the same instance.
    pub provider: &'a dyn Provider,
    /// The tag of our instances.
    pub cluster: &'a str,
}

impl Recognition<'_> {
    /// Returns the id of a Machine's instance, as the provider parses it.
    fn recorded(&self, machine: &MachineFacts) -> Option<ProviderId> {
        self.provider.parse_id(machine.spec.provider_id()?).ours().cloned()
    }

    /// Returns whether the instance with the recorded id belongs to the Machine. The instance has
    /// another key if the Machine was restored.
    fn is_of(&self, machine: &MachineFacts, instance: &Instance) -> bool {
        match &instance.key {
            None => true,
            Some(key) => *key == machine.key() || instance.cluster.as_deref() == Some(self.cluster),
        }
    }
}

/// Adds the evidence from a list of an account.
pub(crate) fn take_list(
    seen: &mut Seen,
    account: &AccountId,
    recognition: &Recognition<'_>,
    instances: &[Instance],
) {
    let by_id: BTreeMap<_, _> = instances.iter().map(|instance| (&instance.id, instance)).collect();
    let shown = seen.machines.iter().map(|(_, machine)| &machine.facts).filter(|machine| {
        let Some(recorded) = recognition.recorded(machine) else { return false };
        let is_it = |instance: &&Instance| recognition.provider.same_instance(&recorded, &instance.id);
        // Other programs may spell the id differently. If the Machine has a recorded account, we
        // have written the id.
        let spelled_otherwise = || match machine.account() {
            None => instances.iter().find(is_it),
            Some(_) => None,
        };
        let instance = by_id.get(&recorded).copied().or_else(spelled_otherwise);
        instance.is_some_and(|instance| recognition.is_of(machine, instance))
    });
    let shown: Vec<Arc<MachineFacts>> = shown.cloned().collect();
    for machine in shown {
        take_shown(seen, account, &machine);
    }
}

/// Adds the evidence from a lookup of a Machine's instance.
pub(crate) fn take_sighting(
    seen: &mut Seen,
    account: &AccountId,
    recognition: &Recognition<'_>,
    machine: &MachineFacts,
    sighting: &Sighting,
) {
    if let Sighting::Present(instance) = sighting
        && let Some(recorded) = recognition.recorded(machine)
        && recognition.provider.same_instance(&recorded, &instance.id)
        && recognition.is_of(machine, instance)
    {
        take_shown(seen, account, machine);
    }
}

fn take_shown(seen: &mut Seen, account: &AccountId, machine: &MachineFacts) {
    let class = seen.class_of(machine).map(|class| class.facts.clone());
    seen.memory.evidence.add(account, machine, class.as_deref());
    // For Machines with this recorded account, the record itself is the evidence.
    if machine.account().as_ref() != Some(account) {
        let answers = seen.memory.answers.entry(machine.uid.clone()).or_default();
        answers.shown_in = Some(account.clone());
    }
}

/// Returns the name of the Machine with the foreign key that the last lookup found. An unreadable
/// Machine may be that one.
pub(crate) fn key_holder(seen: &Seen, answers: &Answers) -> Option<String> {
    let found = answers.find.as_ref()?;
    let Ok(Sighting::Foreign(foreign)) = &found.answered.answer else { return None };
    let holder = seen.machines.by_index(super::seen::BY_UID, foreign.key.as_str()).next();
    let unreadable = || seen.machines.unreadable().next();
    holder.map(|(key, _)| key).or_else(unreadable).map(|key| key.name.clone())
}
