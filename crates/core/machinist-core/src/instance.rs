//! Rules about instances that all contracts share: when an instance counts as deleted, and which
//! call comes next.
//!
//! Two rules keep exactly one instance per machine. The intent is on the API object before the
//! first cloud call, and `ensure` is idempotent by key. These rules determine when an absence is
//! proven:
//!
//! - If the cloud has shown the instance by its provider id, an absence in a `find` by that id is
//!   proof. If the id is known but the cloud has not shown the instance yet, the instance may only
//!   be late. Then an absence counts after the promised visibility lag.
//! - If the instance was never seen, it may still appear, because a process may have requested it a
//!   moment ago. Then an absence counts only in a `find` later than the last possible call of any
//!   process plus the promised visibility lag.
//! - If no process can have requested the instance, no proof is needed.
//! - If another call may have requested the same instance a moment ago, the deletion waits until
//!   that call can no longer have an effect: the name of a deleted instance is free again.
//!
//! An absence counts only in the account in which the instance was created, as [`crate::ownership`]
//! explains. Until the account is known, the instance is looked up before it is deleted: a deletion
//! in another account succeeds and proves nothing. For the same reason an answer counts only if it
//! came from the recorded account or from the account that today's credential opens.
//!
//! An instance without a key that is older than its machine, by more than clocks may differ, was
//! not created for this machine, even if the name matches. It is neither adopted nor deleted, and
//! an Event reports it.
//!
//! If our object records the id of an instance without a key, another program created it, or a user
//! wrote the id. The recorded id alone proves nothing. The instance is deleted if it is not older
//! than the object and has its name, as in an adoption. If it carries the marks of the object's
//! class, either of the two is enough: a restored object is newer than its instance. If instances
//! of the class have marks and this one has none, it is not deleted. An instance that another
//! object also records is left to the older object, or to the object that has its name.
//!
//! An instance with another key is not ours, with one exception: objects that were restored or
//! moved have new UIDs. The instance receives our key if our object recorded its id, it carries our
//! cluster's tag, no live object holds the old key, and it is older than our object. This protects
//! the original of a copied cluster: the copy has another tag, or its Machines hold none of the
//! keys. It also protects an instance that another program created after ours was gone, where the
//! cloud gives a name out again and the name is the id.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{
    AccountId, CreateGuarantee, Error, ErrorKind, Foreign, Instance, InstanceKey, InstanceRef, KeyTag, Marks,
    Power, ProviderId, Sighting,
};

use crate::ownership::{List, Ownership, Standing, second_look_at};
use crate::permit::{Evidence, Permit};
use crate::snapshot::{Answered, Answers, Call, Found, Process, READ_WITHIN, plus, retry_after, since};

/// Lifetime of a permit: longer than a call takes to start, shorter than a lease.
const PERMIT_VALID: Duration = Duration::from_secs(10);
/// First wait before the lookup that checks a deletion; doubled at each lookup.
const FIRST_LOOK_AFTER: Duration = Duration::from_secs(1);
/// The longest wait between two lookups.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
/// The deletion is requested again if the instance neither disappears nor reports `Deleting` within
/// this time.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(120);
/// Wait before the next lookup of an instance with another key: only a user can change the key.
const LOOK_AT_FOREIGN_EVERY: Duration = Duration::from_secs(600);

/// The facts for the decision about an instance that must be deleted.
#[derive(Debug)]
pub struct Departure<'s> {
    /// The reference by which `find` looks up the instance.
    pub which: InstanceRef,
    /// The key that the instance must carry, if it carries a key.
    pub owner: InstanceKey,
    /// This cluster's tag on its instances.
    pub cluster: &'s str,
    /// The live object that holds the foreign key which the last `find` showed.
    pub key_holder: Option<&'s str>,
    /// Facts about the instance that the last `find` showed without a key.
    pub unkeyed: &'s Unkeyed,
    /// When the machine was created.
    pub created: Timestamp,
    /// Since when no process creates the instance, as the first process recorded that had to wait
    /// for the calls of earlier ones.
    pub no_creation_since: Option<Timestamp>,
    /// Evidence that the deletion loses no pod that must be evicted first, if known.
    pub evidence: Option<Evidence>,
    /// The driver's answers for this instance.
    pub answers: &'s Answers,
    /// The facts about the account in which the instance was created.
    pub ownership: &'s Ownership,
    /// The facts that all objects of the account share.
    pub shared: &'s Shared,
    /// Fingerprint of the inputs of a call: when it changes, a failed call is retried without
    /// waiting.
    pub inputs: u64,
    /// The deciding process.
    pub process: &'s Process,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Facts from the last list of an account, shared by all of its objects. A hint: it saves lookups
/// and proves nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Shared {
    /// The result of the last list for this instance.
    pub listed: Option<Listed>,
    /// Whether the account deletes so many instances that one list is cheaper than a lookup of
    /// each.
    pub is_crowd: bool,
}

/// The result of an account's list for one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Listed {
    /// When the list began.
    pub started: Timestamp,
    /// When the list was answered.
    pub ended: Timestamp,
    /// The power state of the instance, if the list contained the instance.
    pub power: Option<Power>,
}

/// Facts about an instance without a key whose id the object records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Unkeyed {
    /// The marks of another program on the instance.
    pub marks: Marks,
    /// Another object that records the same instance: an older object, or the object that has its
    /// name.
    pub recorded_by: Option<String>,
    /// An object that cannot be parsed, and that may record the instance.
    pub unreadable: Option<String>,
}

/// The next step for an instance that must be deleted.
#[derive(Debug)]
pub enum Next {
    /// The instance does not exist, and cannot appear later.
    Gone(AbsenceEvidence),
    /// A call is in flight. Look again when it is answered.
    Wait {
        /// The call in flight.
        call: Call,
        /// When the call started.
        since: Timestamp,
        /// When to look again if no answer arrives.
        until: Timestamp,
    },
    /// Look up the instance.
    Find,
    /// The instance was found and is not recorded yet.
    Record {
        /// The found instance.
        instance: Box<Instance>,
        /// The account that showed the instance.
        account: Option<AccountId>,
    },
    /// Request the deletion of the instance.
    Delete(Permit),
    /// The deletion would be next, but evidence is missing that it loses no pod.
    NeedsEvidence,
    /// Give the instance our key.
    Rekey {
        /// Provider id of the instance.
        id: ProviderId,
        /// The key that the instance carries now.
        from: InstanceKey,
    },
    /// The cloud is deleting the instance. Look again later.
    Going {
        /// The parts that are left of the instance; empty while the instance itself exists.
        parts: Vec<String>,
        /// When to look again.
        look_at: Timestamp,
    },
    /// The last call failed. Retry it later.
    Failed {
        /// The failed call.
        call: Call,
        /// The error of the driver.
        error: Error,
        /// When to retry the call.
        retry_at: Timestamp,
    },
    /// The instance may still appear. Look again later.
    NotProven {
        /// When an absence counts.
        look_at: Timestamp,
    },
    /// Request a list of the account, to learn whether the instance was created in this account.
    List,
    /// Another object has already requested the list of the account.
    AwaitList {
        /// When to request the list again.
        until: Timestamp,
    },
    /// The instance is absent, and it is unknown whether it was created in this account. Look a
    /// second time later.
    LookTwice {
        /// When a second absence counts.
        look_at: Timestamp,
    },
    /// The instance and all others created with this Secret are absent: this seems to be another
    /// account.
    OtherAccount {
        /// When to list the account again.
        look_at: Timestamp,
    },
    /// The recorded instance carries the key of another object.
    NotOurs {
        /// The instance and its key.
        foreign: Foreign,
        /// When to look again.
        look_at: Timestamp,
    },
}

/// Why an instance counts as deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbsenceEvidence {
    /// The instance is absent in the account in which it was created, or it was never created.
    Sure,
    /// The instance was absent twice, ten minutes apart, and it is unknown whether it was created
    /// in this account.
    LookedTwice,
    /// No instance with our key exists. An instance with the same name exists, and no live object
    /// holds its key.
    NameTaken(Foreign),
}

/// An instance with the machine's name that does not belong to the machine. It is left alone.
#[derive(Debug)]
pub enum Refused<'a> {
    /// The instance carries no key and was created before the machine.
    MadeBefore(&'a Instance),
    /// The instance was created for another key, or without a key by another program.
    OfAnotherOwner(Option<&'a InstanceKey>),
}

impl Departure<'_> {
    /// Decides the next step.
    pub fn next(&self) -> Next {
        if let Some((call, since, until)) = self.answers.waiting(self.process, self.now) {
            return Next::Wait { call, since, until };
        }
        if self.which.id.is_some() { self.seen() } else { self.never_seen() }
    }

    fn seen(&self) -> Next {
        let Some(asked) = self.here(self.answers.deleted(self.which.id.as_ref())) else {
            return match self.standing() {
                // Without a recorded account, another program created the instance, and it may have
                // no key.
                Standing::Proven if self.ownership.recorded.is_none() => self.look_first(),
                Standing::Proven => self.delete(),
                Standing::Ask | Standing::Asked(_) | Standing::Incomparable | Standing::Doubtful(_) => {
                    self.look_first()
                }
            };
        };
        match &asked.answer {
            Ok(()) => self.after_deletion(asked.ended),
            // The instance may belong to another owner. If the account cannot be opened, the error
            // proves nothing.
            Err(error) if error.kind == ErrorKind::Denied && asked.account.is_some() => {
                self.denied(error, asked)
            }
            // If the effect of a deletion is unknown, the deletion is retried, like after any other
            // failure.
            Err(error) => self.delete_failed(error, asked.ended),
        }
    }

    /// Looks up the instance before its deletion, because a deletion in another account proves
    /// nothing.
    fn look_first(&self) -> Next {
        let Some(find) = self.found_by_id(Timestamp::MIN) else { return Next::Find };
        match &find.answered.answer {
            Ok(Sighting::Present(_) | Sighting::Parts(_)) => self.delete(),
            Ok(Sighting::Absent | Sighting::Ended) => self.absent_by_id(&find.answered),
            Ok(Sighting::Foreign(foreign)) => self.foreign(foreign, find.answered.ended),
            Err(error) => self.find_failed(error, find.answered.ended),
        }
    }

    fn after_deletion(&self, asked: Timestamp) -> Next {
        let Some(find) = self.found_by_id(asked) else { return Next::Find };
        match &find.answered.answer {
            // It was deleted by the key of the object that was lost.
            Ok(Sighting::Foreign(foreign))
                if self.was_ours(foreign) && self.process.promises.keys == KeyTag::Rekeyable =>
            {
                self.look_again(asked, &find.answered, Power::Changing)
            }
            // A foreign instance means that the cloud has reused the id.
            Ok(Sighting::Foreign(_) | Sighting::Absent | Sighting::Ended) => {
                self.absent_by_id(&find.answered)
            }
            Ok(Sighting::Present(instance)) => self.look_again(asked, &find.answered, instance.power),
            Ok(Sighting::Parts(parts)) => self.delete_parts(asked, parts, find.answered.ended),
            Err(error) => self.find_failed(error, find.answered.ended),
        }
    }

    /// Handles a denied deletion: the instance carries another key, or the credential lacks
    /// permission.
    fn denied(&self, error: &Error, asked: &Answered<()>) -> Next {
        let Some(find) = self.found_by_id(asked.ended) else { return Next::Find };
        match &find.answered.answer {
            Ok(Sighting::Foreign(foreign)) => self.foreign(foreign, find.answered.ended),
            Ok(Sighting::Absent | Sighting::Ended) => self.absent_by_id(&find.answered),
            Ok(Sighting::Present(instance)) if instance.key.is_none() && !self.owns_unkeyed(instance) => {
                self.not_ours(instance.clone().into(), find.answered.ended)
            }
            Ok(Sighting::Present(instance)) if instance.key.is_none() && !self.asked_without_key() => {
                self.delete()
            }
            Ok(Sighting::Present(_) | Sighting::Parts(_)) => self.delete_failed(error, asked.ended),
            Err(error) => self.find_failed(error, find.answered.ended),
        }
    }

    /// Deletes the parts that the last deletion has left. If a part cannot be deleted yet, the
    /// driver answers with an error, which has its own wait.
    fn delete_parts(&self, asked: Timestamp, parts: &[String], looked: Timestamp) -> Next {
        let delete_at = plus(looked, wait_after(asked, looked));
        if self.now < delete_at {
            return Next::Going { parts: parts.to_vec(), look_at: delete_at };
        }
        self.delete()
    }

    /// Whether an instance without a key, whose id the object records, belongs to the object.
    fn owns_unkeyed(&self, instance: &Instance) -> bool {
        let is_young = self.process.adopts_since(self.created) <= instance.created;
        let names = [&self.which.name, &self.which.node_name];
        let has_name = names.into_iter().flatten().any(|name| *name == instance.name);
        let is_alike = match self.unkeyed.marks {
            // The rule of adoption: a creation would have returned this instance.
            Marks::NotUsed | Marks::OfAnotherClass => is_young && has_name,
            Marks::OfClass => is_young || has_name,
            Marks::Missing => false,
        };
        is_alike && self.unkeyed.recorded_by.is_none() && self.unkeyed.unreadable.is_none()
    }

    /// Whether the last deletion was allowed to delete an instance without a key.
    fn asked_without_key(&self) -> bool {
        self.answers.delete.as_deref().is_some_and(|deleted| deleted.may_lack_key)
    }

    fn delete_failed(&self, error: &Error, ended: Timestamp) -> Next {
        let retry_at = self.retry_at(error, ended);
        if self.now < retry_at {
            Next::Failed { call: Call::DELETE, error: error.clone(), retry_at }
        } else {
            self.delete()
        }
    }

    /// Handles a recorded instance with another key. If our object was restored, the instance
    /// receives our key; otherwise it is left alone.
    fn foreign(&self, foreign: &Foreign, looked: Timestamp) -> Next {
        let Some(carried) = foreign.key.as_ref().filter(|_| self.was_ours(foreign)) else {
            return self.not_ours(foreign.clone(), looked);
        };
        let rekey = || Next::Rekey { id: foreign.id.clone(), from: carried.clone() };
        match self.process.promises.keys {
            // The recorded id is the proof.
            KeyTag::Fixed => self.delete_as(carried),
            KeyTag::Rekeyable => match self.here(self.answers.rekey.as_deref()) {
                Some(rekeyed) if looked <= rekeyed.started => match &rekeyed.answer {
                    Ok(()) => self.delete(),
                    // The cloud changes no tag of this instance now, for example because it failed.
                    Err(error) if error.kind == ErrorKind::Unsupported => self.delete_as(carried),
                    Err(error) => {
                        let retry_at = self.retry_at(error, rekeyed.ended);
                        if self.now < retry_at {
                            Next::Failed { call: Call::REKEY, error: error.clone(), retry_at }
                        } else {
                            // The current key is looked up before the next attempt.
                            Next::Find
                        }
                    }
                },
                Some(_) | None => rekey(),
            },
        }
    }

    /// Whether an instance with another key was created for an object that was restored as ours. A
    /// restored object has another UID, and is newer than its instance.
    fn was_ours(&self, foreign: &Foreign) -> bool {
        foreign.cluster.as_deref() == Some(self.cluster)
            && self.key_holder.is_none()
            && foreign.created < self.created
    }

    /// Leaves an instance of another owner alone until it changes.
    fn not_ours(&self, foreign: Foreign, looked: Timestamp) -> Next {
        let look_at = plus(looked, LOOK_AT_FOREIGN_EVERY);
        if look_at <= self.now { Next::Find } else { Next::NotOurs { foreign, look_at } }
    }

    /// An absence by id counts if the cloud has shown that id before, or if the visibility lag has
    /// passed: the cloud may not show a new instance yet. The absence counts only in the account of
    /// the instance.
    fn absent_by_id(&self, looked: &Answered<Sighting>) -> Next {
        let standing = if self.is_recorded(looked) { Standing::Proven } else { self.standing() };
        let (looked, alone_from) = (looked.started, self.alone_from());
        if looked < alone_from {
            return if alone_from <= self.now { Next::Find } else { Next::NotProven { look_at: alone_from } };
        }
        let made = self.answers.ensure.as_ref().map(|ensured| ensured.ended);
        let made = made.unwrap_or(Timestamp::MIN).max(self.process.acting_since());
        let counts_from = plus(made, self.process.promises.visible_within);
        if self.answers.shown == self.which.id || counts_from < looked {
            return self.absent(standing, looked, AbsenceEvidence::Sure);
        }
        if counts_from < self.now {
            return Next::Find;
        }
        Next::NotProven { look_at: plus(counts_from, Duration::from_millis(1)) }
    }

    /// Returns the next step after an absence, given the account's standing.
    fn absent(&self, standing: Standing, looked: Timestamp, evidence: AbsenceEvidence) -> Next {
        match standing {
            Standing::Proven => Next::Gone(evidence),
            Standing::Ask => Next::List,
            Standing::Asked(until) => Next::AwaitList { until },
            Standing::Doubtful(look_at) => Next::OtherAccount { look_at },
            Standing::Incomparable => {
                let row = self.answers.absence.as_ref();
                let row = row.filter(|row| {
                    self.ownership.account.as_ref() == Some(&row.account) && row.id == self.which.id
                });
                let look_at = second_look_at(row.map_or(looked, |row| row.first.min(looked)));
                match (look_at <= looked, look_at <= self.now) {
                    (true, _) => Next::Gone(AbsenceEvidence::LookedTwice),
                    (false, true) => Next::Find,
                    (false, false) => Next::LookTwice { look_at },
                }
            }
        }
    }

    fn look_again(&self, asked: Timestamp, find: &Answered<Sighting>, power: Power) -> Next {
        // A list that began later than the lookup is newer evidence.
        let listed = self.shared.listed.filter(|listed| find.started < listed.started);
        let (looked, power) = match listed {
            None => (find.ended, power),
            Some(Listed { ended, power: Some(power), .. }) => (ended, power),
            // The list suggests a deletion. Only a lookup of this instance proves it.
            Some(Listed { power: None, .. }) => return Next::Find,
        };
        let overdue = plus(asked, ASK_AGAIN_AFTER) <= self.now && power != Power::Deleting;
        if overdue {
            return self.delete();
        }
        let wait = wait_after(asked, looked);
        let look_at = plus(looked, wait);
        if self.now < look_at {
            return Next::Going { parts: Vec::new(), look_at };
        }
        match self.ownership.list {
            _ if !self.shared.is_crowd || wait < LOOK_AT_LEAST_EVERY => Next::Find,
            List::Asked(until) if self.now < until => Next::AwaitList { until },
            // If the list fails, a lookup may still succeed.
            List::Failed(again_at) if self.now < again_at => Next::Find,
            List::NotAsked | List::Asked(_) | List::Ended(_) | List::Failed(_) => Next::List,
        }
    }

    fn never_seen(&self) -> Next {
        if let Some(ensured) = &self.answers.ensure
            && let Ok(instance) = &ensured.answer
        {
            return Next::Record { instance: Box::new(instance.clone()), account: ensured.account.clone() };
        }
        let may_exist = self.answers.may_have_created();
        let nobody_asked = !may_exist && self.process.saw_creation_of(self.created);
        if nobody_asked {
            return Next::Gone(AbsenceEvidence::Sure);
        }
        let own = self.answers.ensure.as_ref().map_or(Timestamp::MIN, |ensured| ensured.ended);
        let last_possible_call = own.max(self.earlier_calls_began_by());
        let counts_from = plus(last_possible_call, self.process.promises.absence_takes());
        let Some(find) = self.found_by_name().filter(|find| self.is_here(&find.answered)) else {
            // The first lookup is immediate: an existing instance is found without waiting.
            return Next::Find;
        };
        let looked = find.answered.started;
        match &find.answered.answer {
            Ok(Sighting::Present(instance)) if self.is_ours(instance) => {
                Next::Record { instance: Box::new(instance.clone()), account: find.answered.account.clone() }
            }
            // The instance may still appear, and it needs its parts then.
            Ok(Sighting::Parts(parts)) if counts_from < looked => {
                self.parts_of_none(parts, find.answered.ended)
            }
            // A foreign instance counts as an absence: our instance may still appear, too.
            Ok(shown) if counts_from < looked => {
                let standing =
                    self.ownership.of_unrecorded(self.created, self.answers, self.process, self.now);
                self.absent(standing, looked, self.evidence_of_none(shown))
            }
            Ok(_) if counts_from < self.now => Next::Find,
            Ok(_) => Next::NotProven { look_at: plus(counts_from, Duration::from_millis(1)) },
            Err(error) => self.find_failed(error, find.answered.ended),
        }
    }

    /// Deletes the parts of an instance that was never created.
    fn parts_of_none(&self, parts: &[String], looked: Timestamp) -> Next {
        match self.here(self.answers.deleted(None)) {
            None => self.delete(),
            Some(asked) => match &asked.answer {
                Err(error) => self.delete_failed(error, asked.ended),
                Ok(()) if looked < asked.ended => Next::Find,
                Ok(()) => self.delete_parts(asked.ended, parts, looked),
            },
        }
    }

    /// Returns when the last call of an earlier process began at the latest: before this process
    /// began to act, and soon after the record on the object. So a process that restarts again and
    /// again does not begin the wait again.
    fn earlier_calls_began_by(&self) -> Timestamp {
        let own = self.process.acting_since();
        let recorded = self.no_creation_since.map(|since| plus(since, READ_WITHIN + self.process.skew));
        recorded.map_or(own, |recorded| recorded.min(own))
    }

    /// Returns the proof that no instance with our key exists. Users must know about an instance
    /// with our name and a key that no Machine holds.
    fn evidence_of_none(&self, shown: &Sighting) -> AbsenceEvidence {
        match shown {
            Sighting::Foreign(foreign)
                if foreign.cluster.as_deref() == Some(self.cluster) && self.key_holder.is_none() =>
            {
                AbsenceEvidence::NameTaken(foreign.clone())
            }
            Sighting::Foreign(_)
            | Sighting::Present(_)
            | Sighting::Parts(_)
            | Sighting::Absent
            | Sighting::Ended => AbsenceEvidence::Sure,
        }
    }

    /// Returns the instance that has this machine's name and is not its own, as the last `find` by
    /// name showed it.
    pub fn refused(&self) -> Option<Refused<'_>> {
        if self.which.id.is_some() {
            return None;
        }
        match self.found_by_name()?.answered.answer.as_ref().ok()? {
            Sighting::Present(instance) if !self.is_ours(instance) => Some(Refused::MadeBefore(instance)),
            Sighting::Foreign(foreign) => Some(Refused::OfAnotherOwner(foreign.key.as_ref())),
            Sighting::Present(_) | Sighting::Parts(_) | Sighting::Absent | Sighting::Ended => None,
        }
    }

    /// Whether an instance from a `find` by name belongs to this machine. It must carry our key, or
    /// carry no key and have the recorded native id or be young enough that another program created
    /// it for this machine. An older instance has another owner.
    fn is_ours(&self, instance: &Instance) -> bool {
        match &instance.key {
            Some(key) => *key == self.owner,
            None if self.which.native_id.is_some() && instance.native_id == self.which.native_id => true,
            None => self.process.adopts_since(self.created) <= instance.created,
        }
    }

    fn find_failed(&self, error: &Error, ended: Timestamp) -> Next {
        let retry_at = self.retry_at(error, ended);
        if retry_at <= self.now {
            return Next::Find;
        }
        Next::Failed { call: Call::FIND, error: error.clone(), retry_at }
    }

    fn retry_at(&self, error: &Error, ended: Timestamp) -> Timestamp {
        if self.answers.is_fixed(self.inputs) {
            return self.now;
        }
        plus(ended, retry_after(error.kind, self.answers.failures, Duration::from_secs(30)))
    }

    fn delete(&self) -> Next {
        self.delete_as(&self.owner)
    }

    fn delete_as(&self, owner: &InstanceKey) -> Next {
        let look_at = self.alone_from();
        if self.now < look_at {
            // The age of the instance may show that no other call is left.
            return match self.found_by_id(Timestamp::MIN) {
                Some(_) => Next::NotProven { look_at },
                None => Next::Find,
            };
        }
        let Some(evidence) = self.evidence.clone() else { return Next::NeedsEvidence };
        let valid_until = plus(self.now, PERMIT_VALID);
        let which = InstanceRef { may_lack_key: self.may_lack_key(), ..self.which.clone() };
        Next::Delete(Permit::mint(which, owner.clone(), evidence, valid_until))
    }

    /// Whether the last lookup has shown that the recorded instance has no key and belongs to the
    /// object. The driver looks at the key again.
    fn may_lack_key(&self) -> bool {
        match self.found_by_id(Timestamp::MIN).map(|find| &find.answered.answer) {
            Some(Ok(Sighting::Present(instance))) => instance.key.is_none() && self.owns_unkeyed(instance),
            Some(_) | None => false,
        }
    }

    /// Returns from when on no other call can create this instance a second time.
    ///
    /// A failed call of this process, or a call of a process that has ended, may still take effect.
    /// While the instance exists, the cloud or the driver refuses a second one. After its deletion,
    /// the call would create it again, and no object would record its id.
    fn alone_from(&self) -> Timestamp {
        let promises = &self.process.promises;
        match promises.create {
            CreateGuarantee::UniqueName | CreateGuarantee::FindThenCreate => {}
            // The cloud answers a repeated request with the instance that it has deleted.
            CreateGuarantee::NativeKey => return Timestamp::MIN,
        }
        let own = self.answers.unsure_since.map_or(Timestamp::MIN, |began| plus(began, promises.call_bound));
        if !promises.calls_outlive_process || self.process.saw_creation_of(self.created) {
            return own;
        }
        let others = plus(self.process.acting_since(), promises.call_bound);
        // A call that began when the instance was visible has created nothing.
        let visible_by = promises.visible_within + self.process.cloud_tolerance();
        let dead_by = self.birth().map(|birth| plus(birth, visible_by + promises.call_bound));
        own.max(dead_by.map_or(others, |dead_by| others.min(dead_by)))
    }

    /// When the cloud created the instance, if an answer shows it.
    fn birth(&self) -> Option<Timestamp> {
        match &self.found_by_id(Timestamp::MIN)?.answered.answer {
            Ok(Sighting::Present(instance)) => Some(instance.created),
            Ok(Sighting::Foreign(foreign)) => Some(foreign.created),
            Ok(Sighting::Absent | Sighting::Ended | Sighting::Parts(_)) | Err(_) => None,
        }
    }

    fn standing(&self) -> Standing {
        self.ownership.of_recorded(self.created, self.answers, self.now)
    }

    /// Returns the last lookup by the recorded id that began at `from` or later, if its account
    /// counts. An answer about the id that was recorded before says nothing.
    fn found_by_id(&self, from: Timestamp) -> Option<&Found> {
        let is_recorded = |find: &Found| find.by.id.is_some() && find.by.id == self.which.id;
        let counts = |find: &&Found| from <= find.answered.started && is_recorded(find);
        self.answers.find.as_deref().filter(counts).filter(|find| self.is_here(&find.answered))
    }

    /// Returns the last lookup by key and name. A lookup by an id that the object recorded before
    /// says nothing about the instance that has our key.
    fn found_by_name(&self) -> Option<&Found> {
        self.answers.find.as_deref().filter(|find| find.by.id.is_none())
    }

    /// Returns the answer if its account counts.
    fn here<'a, T>(&self, answered: Option<&'a Answered<T>>) -> Option<&'a Answered<T>> {
        answered.filter(|answered| self.is_here(answered))
    }

    /// Whether the answer came from today's account or from the recorded account.
    fn is_here<T>(&self, answered: &Answered<T>) -> bool {
        answered.account == self.ownership.account || self.is_recorded(answered)
    }

    fn is_recorded<T>(&self, answered: &Answered<T>) -> bool {
        answered.account.is_some() && answered.account == self.ownership.recorded
    }
}

/// Returns the wait after a lookup that followed a deletion. Each wait is as long as all time
/// before it, so the waits double without a counter.
fn wait_after(asked: Timestamp, looked: Timestamp) -> Duration {
    since(looked, asked).clamp(FIRST_LOOK_AFTER, LOOK_AT_LEAST_EVERY)
}

#[cfg(test)]
mod tests {
    use machinist_instance::NodeName;

    use super::*;
    use crate::ownership::{List, Others};
    use crate::snapshot::{Absence, Deleted, MadeIn};
    use crate::testing::{at, process};

    fn account(name: &str) -> Option<AccountId> {
        AccountId::recorded(name)
    }

    fn answered<T>(started: i64, ended: i64, answer: Result<T, Error>) -> Answered<T> {
        Answered { started: at(started), ended: at(ended), account: account("a"), answer }
    }

    fn deleted(answered: Answered<()>) -> Option<Box<Deleted>> {
        Some(Box::new(Deleted { id: Some(id()), may_lack_key: false, answered }))
    }

    fn found(by_id: bool, second: i64, answer: Result<Sighting, Error>) -> Option<Box<Found>> {
        let by = InstanceRef { id: by_id.then(id), ..InstanceRef::default() };
        Some(Box::new(Found { by, answered: answered(second, second, answer) }))
    }

    fn id() -> ProviderId {
        ProviderId::parse("sim:///i-1").expect("well-formed")
    }

    /// Decides in the recorded account.
    fn next(seen: bool, created: i64, now: i64, answers: &Answers) -> Next {
        let ownership = Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() };
        Case {
            seen,
            created,
            now,
            answers,
            ownership: &ownership,
            key_holder: None,
            keys: KeyTag::Rekeyable,
            shared: Shared::default(),
            unkeyed: Unkeyed::default(),
        }
        .next()
    }

    struct Case<'a> {
        seen: bool,
        created: i64,
        now: i64,
        answers: &'a Answers,
        ownership: &'a Ownership,
        key_holder: Option<&'a str>,
        keys: KeyTag,
        shared: Shared,
        unkeyed: Unkeyed,
    }

    impl Case<'_> {
        #[expect(clippy::disallowed_methods, reason = "the test checks its decision")]
        fn next(self) -> Next {
            let id = self.seen.then(id);
            let which = InstanceRef {
                id,
                key: Some(InstanceKey::new("uid")),
                name: NodeName::new("m"),
                ..InstanceRef::default()
            };
            let mut process = process();
            process.promises.keys = self.keys;
            Departure {
                which,
                owner: InstanceKey::new("uid"),
                cluster: "ours",
                key_holder: self.key_holder,
                unkeyed: &self.unkeyed,
                created: at(self.created),
                no_creation_since: None,
                evidence: Some(Evidence::ForceDeletion),
                answers: self.answers,
                ownership: self.ownership,
                shared: &self.shared,
                inputs: 1,
                process: &process,
                now: at(self.now),
            }
            .next()
        }
    }

    /// A user has taken a wrong provider id off the object.
    #[test]
    fn a_lookup_by_an_id_proves_no_absence_by_key() {
        let by_id = Answers { find: found(true, 41, Ok(Sighting::Absent)), ..Answers::default() };
        assert!(matches!(next(false, -60, 41, &by_id), Next::Find));
    }

    #[test]
    fn an_unseen_instance_is_absent_only_after_the_lag() {
        let early = Answers { find: found(false, 5, Ok(Sighting::Absent)), ..Answers::default() };
        assert!(matches!(next(false, -60, 5, &early), Next::NotProven { .. }));
        assert!(matches!(next(false, -60, 41, &early), Next::Find));
        let late = Answers { find: found(false, 41, Ok(Sighting::Absent)), ..Answers::default() };
        assert!(matches!(next(false, -60, 41, &late), Next::Gone(AbsenceEvidence::Sure)));
    }

    /// A process that restarts every minute would otherwise never end the wait.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test checks its decision")]
    fn the_lag_counts_from_the_record_of_an_earlier_process() {
        let next = |recorded: i64, second: i64| {
            let find = found(false, second, Ok(Sighting::Absent));
            Departure {
                which: InstanceRef { name: NodeName::new("m"), ..InstanceRef::default() },
                owner: InstanceKey::new("uid"),
                cluster: "ours",
                key_holder: None,
                unkeyed: &Unkeyed::default(),
                created: at(-600),
                no_creation_since: Some(at(recorded)),
                evidence: Some(Evidence::ForceDeletion),
                answers: &Answers { find, ..Answers::default() },
                ownership: &Ownership {
                    account: account("a"),
                    recorded: account("a"),
                    ..Ownership::default()
                },
                shared: &Shared::default(),
                inputs: 1,
                process: &process(),
                now: at(second),
            }
            .next()
        };
        // 120 s until the last call begins, 40 s until lists show its effect.
        assert!(matches!(next(-150, 5), Next::NotProven { .. }));
        assert!(matches!(next(-150, 11), Next::Gone(AbsenceEvidence::Sure)));
        assert!(matches!(next(-10, 39), Next::NotProven { .. }));
        assert!(matches!(next(-10, 41), Next::Gone(AbsenceEvidence::Sure)), "this process was not restarted");
    }

    #[test]
    fn an_instance_that_was_never_requested_is_absent_at_once() {
        assert!(matches!(next(false, 1, 2, &Answers::default()), Next::Gone(AbsenceEvidence::Sure)));
        let asked = Answers { ever_ensured: true, ..Answers::default() };
        assert!(matches!(next(false, 1, 2, &asked), Next::Find));
    }

    /// Lookups of such instances would use up the calls that creations need.
    #[test]
    fn an_instance_that_no_call_created_is_not_looked_up() {
        let refused = |kind| {
            let mut answers = Answers { ever_ensured: true, ..Answers::default() };
            answers.take_ensure(answered(5, 6, Err(Error::new(kind, "no"))));
            answers
        };
        let gone =
            |answers: &Answers| matches!(next(false, 1, 7, answers), Next::Gone(AbsenceEvidence::Sure));
        assert!(gone(&refused(ErrorKind::Exhausted)));
        assert!(gone(&refused(ErrorKind::Throttled { retry_after: None })));
        assert!(!gone(&refused(ErrorKind::Ambiguous)), "it may have had an effect");
        assert!(!gone(&refused(ErrorKind::Denied)), "an instance of another owner may have the name");
        let mut earlier = refused(ErrorKind::Ambiguous);
        earlier.take_ensure(answered(7, 8, Err(Error::new(ErrorKind::Exhausted, "no"))));
        assert!(!gone(&earlier), "an earlier call may have had an effect");
        let elsewhere = Answers { made_in: MadeIn::Several, ..refused(ErrorKind::Exhausted) };
        assert!(!gone(&elsewhere));
        let born_before = matches!(next(false, -60, 7, &refused(ErrorKind::Exhausted)), Next::Gone(_));
        assert!(!born_before, "another process may have made a call");
    }

    #[test]
    fn the_lag_counts_from_the_end_of_our_own_last_call() {
        let refused = answered(99, 100, Err(Error::new(ErrorKind::Ambiguous, "?")));
        let answers = Answers {
            ever_ensured: true,
            ensure: Some(refused),
            find: found(false, 139, Ok(Sighting::Absent)),
            ..Answers::default()
        };
        assert!(matches!(next(false, 50, 139, &answers), Next::NotProven { .. }));
    }

    #[test]
    fn a_known_instance_is_deleted_once_then_looked_for_by_id() {
        let mut answers = Answers { shown: Some(id()), ..Answers::default() };
        assert!(matches!(next(true, -60, 1, &answers), Next::Delete(_)));
        answers.delete = deleted(answered(1, 2, Ok(())));
        // An older sighting, or one by name, proves nothing.
        answers.find = found(true, 0, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 2, &answers), Next::Find));
        answers.find = found(false, 3, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 3, &answers), Next::Find));
        answers.find = found(true, 3, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 3, &answers), Next::Gone(AbsenceEvidence::Sure)));
    }

    /// Decides about a recorded instance at that second. The process began at second 0, and its
    /// calls have no effect after 30 seconds.
    fn deletion(create: CreateGuarantee, created: i64, now: i64, answers: &Answers) -> Next {
        let mut process = process();
        process.promises.create = create;
        deletion_by(&process, created, now, answers)
    }

    #[expect(clippy::disallowed_methods, reason = "the test checks its decision")]
    fn deletion_by(process: &Process, created: i64, now: i64, answers: &Answers) -> Next {
        let ownership = Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() };
        Departure {
            which: InstanceRef { id: Some(id()), ..InstanceRef::default() },
            owner: InstanceKey::new("uid"),
            cluster: "ours",
            key_holder: None,
            unkeyed: &Unkeyed::default(),
            created: at(created),
            no_creation_since: None,
            evidence: Some(Evidence::ForceDeletion),
            answers,
            ownership: &ownership,
            shared: &Shared::default(),
            inputs: 1,
            process,
            now: at(now),
        }
        .next()
    }

    /// The promises of clouds that create an instance again after its deletion.
    const REPEATING: [CreateGuarantee; 2] = [CreateGuarantee::UniqueName, CreateGuarantee::FindThenCreate];

    #[test]
    fn a_deletion_waits_for_creations_of_an_earlier_process() {
        let nothing = Answers::default();
        let shown = |birth| Answers {
            find: found(true, 1, Ok(Sighting::Present(made_at(birth, Some("uid"))))),
            ..Answers::default()
        };
        let (young, old) = (shown(-30), shown(-300));
        for create in REPEATING {
            assert!(matches!(deletion(create, -600, 1, &nothing), Next::Find), "its age may be enough");
            let waits = deletion(create, -600, 2, &young);
            assert!(matches!(waits, Next::NotProven { look_at } if look_at == at(30)), "{waits:?}");
            let deletes = |created, now, answers: &Answers| {
                matches!(deletion(create, created, now, answers), Next::Delete(_))
            };
            assert!(deletes(-600, 30, &young), "no such call is left");
            assert!(deletes(-600, 2, &old), "a call that began later found the instance");
            assert!(deletes(1, 2, &nothing), "only this process knew the machine");
        }
        let native = deletion(CreateGuarantee::NativeKey, -600, 1, &nothing);
        assert!(matches!(native, Next::Delete(_)), "the instance is never made again");
    }

    #[test]
    fn a_deletion_does_not_wait_if_calls_end_with_the_process() {
        for create in REPEATING {
            let mut process = process();
            process.promises.create = create;
            process.promises.calls_outlive_process = false;
            let deletes = |answers| matches!(deletion_by(&process, -600, 10, &answers), Next::Delete(_));
            assert!(deletes(Answers::default()));
            assert!(!deletes(Answers { unsure_since: Some(at(5)), ..Answers::default() }), "its own call");
        }
    }

    #[test]
    fn a_deletion_waits_for_a_failed_creation() {
        let mut answers = Answers::default();
        answers.take_ensure(answered(5, 6, Err(Error::new(ErrorKind::Ambiguous, "no answer"))));
        answers.take_ensure(answered(7, 8, Ok(made_at(8, Some("uid")))));
        answers.take_found(Found {
            by: InstanceRef { id: Some(id()), ..InstanceRef::default() },
            answered: answered(9, 9, Ok(Sighting::Absent)),
        });
        for create in REPEATING {
            let waits = deletion(create, 1, 10, &answers);
            assert!(matches!(waits, Next::NotProven { look_at } if look_at == at(35)), "{waits:?}");
            assert!(matches!(deletion(create, 1, 35, &answers), Next::Delete(_)), "no such call is left");
        }
        let mut refused = Answers::default();
        refused.take_ensure(answered(5, 6, Err(Error::new(ErrorKind::Denied, "the name is taken"))));
        refused.take_ensure(answered(7, 8, Ok(made_at(8, Some("uid")))));
        assert!(matches!(deletion(REPEATING[0], 1, 10, &refused), Next::Delete(_)), "it had no effect");
    }

    #[test]
    fn an_early_absence_is_not_proof_while_a_creation_may_act() {
        let absent = |second| Answers {
            unsure_since: Some(at(5)),
            shown: Some(id()),
            delete: deleted(answered(1, 2, Ok(()))),
            find: found(true, second, Ok(Sighting::Absent)),
            ..Answers::default()
        };
        for create in REPEATING {
            assert!(matches!(deletion(create, 1, 20, &absent(20)), Next::NotProven { .. }));
            assert!(matches!(deletion(create, 1, 40, &absent(20)), Next::Find), "it may have appeared");
            assert!(matches!(deletion(create, 1, 40, &absent(36)), Next::Gone(AbsenceEvidence::Sure)));
        }
    }

    #[test]
    fn an_instance_that_was_not_shown_yet_may_be_late() {
        let mut answers = Answers {
            delete: deleted(answered(20, 21, Ok(()))),
            find: found(true, 22, Ok(Sighting::Absent)),
            ..Answers::default()
        };
        assert!(matches!(next(true, -60, 22, &answers), Next::Gone(_)), "the process is older than the lag");
        let made = made_at(19, None);
        answers.ensure = Some(answered(18, 19, Ok(made)));
        assert!(matches!(next(true, 18, 22, &answers), Next::NotProven { .. }));
        answers.find = found(true, 30, Ok(Sighting::Absent));
        assert!(matches!(next(true, 18, 30, &answers), Next::Gone(AbsenceEvidence::Sure)));
    }

    #[test]
    fn parts_of_a_deleted_instance_are_deleted() {
        let left = |asked, looked| Answers {
            shown: Some(id()),
            delete: deleted(answered(asked, asked, Ok(()))),
            find: found(true, looked, Ok(Sighting::Parts(vec!["port 7".to_owned()]))),
            ..Answers::default()
        };
        match next(true, -60, 20, &left(10, 20)) {
            Next::Going { parts, look_at } => {
                assert_eq!((parts, look_at), (vec!["port 7".to_owned()], at(30)))
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(next(true, -60, 30, &left(10, 20)), Next::Delete(_)), "the driver deletes them");
        assert!(matches!(next(true, -60, 31, &left(31, 20)), Next::Find), "the lookup is older");
    }

    /// A call that made only a port leaves it, and nothing else knows the port.
    #[test]
    fn parts_of_an_instance_that_never_existed_are_deleted() {
        let refused = Error::new(ErrorKind::Exhausted, "no host").with_state("port 7");
        let mut answers = Answers { ever_ensured: true, ..Answers::default() };
        answers.take_ensure(answered(1, 2, Err(refused)));
        assert!(matches!(next(false, 0, 3, &answers), Next::Find), "the rejected call made a part");
        answers.find = found(false, 43, Ok(Sighting::Parts(vec!["port 7".to_owned()])));
        let deletes = next(false, 0, 44, &answers);
        assert!(matches!(deletes, Next::Delete(_)), "{deletes:?}");
        answers.delete =
            Some(Box::new(Deleted { id: None, ..*deleted(answered(44, 45, Ok(()))).expect("some") }));
        assert!(matches!(next(false, 0, 46, &answers), Next::Find));
        answers.find = found(false, 46, Ok(Sighting::Absent));
        assert!(matches!(next(false, 0, 47, &answers), Next::Gone(AbsenceEvidence::Sure)));
    }

    fn made_at(second: i64, key: Option<&str>) -> Instance {
        Instance {
            id: id(),
            native_id: None,
            key: key.map(InstanceKey::new),
            cluster: key.map(|_| "ours".to_owned()),
            name: NodeName::new("m").expect("not empty"),
            power: Power::Running,
            addresses: Vec::new(),
            instance_type: None,
            zone: None,
            region: None,
            tags: std::collections::BTreeMap::new(),
            node_labels: std::collections::BTreeMap::new(),
            created: at(second),
        }
    }

    #[test]
    fn only_an_instance_that_can_be_ours_is_recorded() {
        let shown = |instance: Instance| {
            let find = found(false, 41, Ok(Sighting::Present(instance)));
            next(false, -60, 41, &Answers { find, ..Answers::default() })
        };
        assert!(matches!(shown(made_at(-90, Some("uid"))), Next::Record { .. }), "it has our key");
        assert!(
            matches!(shown(made_at(-60, None)), Next::Record { .. }),
            "another program created it for this machine"
        );
        assert!(
            matches!(shown(made_at(-120, None)), Next::Record { .. }),
            "the clock of the cloud may be late"
        );
        assert!(
            matches!(shown(made_at(-121, None)), Next::Gone(AbsenceEvidence::Sure)),
            "it existed before the machine"
        );
        assert!(
            matches!(shown(made_at(0, Some("another"))), Next::Gone(AbsenceEvidence::Sure)),
            "it has another key"
        );
    }

    #[test]
    fn a_failed_deletion_is_retried_later() {
        let error = Error::new(ErrorKind::Unavailable, "try later");
        let delete = deleted(answered(1, 2, Err(error)));
        let answers = Answers { delete, failures: 1, ..Answers::default() };
        assert!(matches!(next(true, -60, 3, &answers), Next::Failed { call: Call::DELETE, .. }));
        assert!(matches!(next(true, -60, 7, &answers), Next::Delete(_)));
    }

    #[test]
    fn a_denied_call_is_retried_when_class_or_secret_change() {
        let refused = Error::new(ErrorKind::Denied, "wrong token");
        let delete = deleted(answered(1, 2, Err(refused.clone())));
        let mut answers = Answers { delete, failures: 9, inputs: Some(1), ..Answers::default() };
        assert!(matches!(next(true, -60, 100, &answers), Next::Find), "it may belong to another owner");
        answers.find = found(true, 3, Ok(Sighting::Present(made_at(0, Some("uid")))));
        assert!(matches!(next(true, -60, 100, &answers), Next::Failed { call: Call::DELETE, .. }));
        answers.inputs = Some(2);
        assert!(matches!(next(true, -60, 100, &answers), Next::Delete(_)));
        answers.delete = deleted(answered(1, 2, Ok(())));
        answers.find = Some(Box::new(Found {
            by: InstanceRef { id: Some(id()), ..InstanceRef::default() },
            answered: answered(3, 4, Err(refused)),
        }));
        assert!(matches!(next(true, -60, 100, &answers), Next::Find));
        answers.inputs = Some(1);
        assert!(matches!(next(true, -60, 100, &answers), Next::Failed { call: Call::FIND, .. }));
    }

    /// Answers after a successful deletion and a lookup that found nothing, both in today's
    /// account.
    fn absent_since(second: i64) -> Answers {
        Answers {
            delete: deleted(answered(1, 2, Ok(()))),
            find: found(true, second, Ok(Sighting::Absent)),
            absence: Some(Absence {
                account: account("a").expect("a name"),
                first: at(second),
                id: Some(id()),
            }),
            shown: Some(id()),
            ..Answers::default()
        }
    }

    fn elsewhere(change: impl FnOnce(&mut Ownership)) -> Ownership {
        let mut ownership =
            Ownership { account: account("a"), recorded: account("b"), ..Ownership::default() };
        change(&mut ownership);
        ownership
    }

    fn of(ownership: &Ownership, now: i64, answers: &Answers) -> Next {
        Case {
            seen: true,
            created: -60,
            now,
            answers,
            ownership,
            key_holder: None,
            keys: KeyTag::Rekeyable,
            shared: Shared::default(),
            unkeyed: Unkeyed::default(),
        }
        .next()
    }

    #[test]
    fn an_absence_in_another_account_proves_nothing() {
        let answers = absent_since(3);
        let unlisted = elsewhere(|_| {});
        assert!(matches!(of(&unlisted, 3, &answers), Next::List));
        let asked = elsewhere(|o| o.list = List::Asked(at(303)));
        assert!(matches!(of(&asked, 4, &answers), Next::AwaitList { until } if until == at(303)));
        let listed = elsewhere(|o| o.list = List::Ended(at(303)));
        assert!(matches!(of(&listed, 4, &answers), Next::OtherAccount { look_at } if look_at == at(303)));
        assert!(matches!(of(&listed, 303, &answers), Next::List), "it is listed again after a while");
    }

    #[test]
    fn a_renewed_credential_is_recognized_by_its_instances() {
        let answers = absent_since(3);
        let sibling = elsewhere(|o| o.shows_recorded = true);
        assert!(matches!(of(&sibling, 3, &answers), Next::Gone(AbsenceEvidence::Sure)));
        let itself = Answers { shown_in: account("a"), ..absent_since(3) };
        assert!(matches!(of(&elsewhere(|_| {}), 3, &itself), Next::Gone(AbsenceEvidence::Sure)));
        let by_another = Answers { shown_in: account("c"), ..absent_since(3) };
        assert!(matches!(of(&elsewhere(|_| {}), 3, &by_another), Next::List));
    }

    #[test]
    fn a_lookup_precedes_deletion_in_an_unknown_account() {
        let unlisted = elsewhere(|_| {});
        assert!(matches!(of(&unlisted, 1, &Answers::default()), Next::Find));
        let present = found(true, 1, Ok(Sighting::Present(made_at(-60, Some("uid")))));
        let present = Answers { find: present, ..Answers::default() };
        assert!(matches!(of(&unlisted, 1, &present), Next::Delete(_)));
        let absent = Answers { find: found(true, 20, Ok(Sighting::Absent)), ..Answers::default() };
        assert!(
            matches!(of(&unlisted, 20, &absent), Next::List),
            "a deletion would succeed and prove nothing"
        );
    }

    /// A cloud may show for some time that an instance was deleted.
    #[test]
    fn the_end_of_an_instance_proves_its_account() {
        let looked = |account_of_answer: &str, sighting| {
            let mut answers = Answers { delete: deleted(answered(1, 2, Ok(()))), ..Answers::default() };
            let mut found = *found(true, 20, Ok(sighting)).expect("an answer");
            found.answered.account = account(account_of_answer);
            answers.take_found(found);
            answers
        };
        let ended = looked("a", Sighting::Ended);
        for ownership in [elsewhere(|_| {}), unrecorded(|o| o.others = Others::AsOld), unrecorded(|_| {})] {
            assert!(matches!(of(&ownership, 20, &ended), Next::Gone(AbsenceEvidence::Sure)));
            let absent = looked("a", Sighting::Absent);
            assert!(!matches!(of(&ownership, 20, &absent), Next::Gone(_)), "an absence proves nothing");
        }
        // Today's credential opens another account than the account that answered.
        assert!(matches!(of(&elsewhere(|_| {}), 20, &looked("c", Sighting::Ended)), Next::Find));
        // The row of absences goes on.
        let mut twice = looked("a", Sighting::Absent);
        twice.take_found(*found(true, 30, Ok(Sighting::Ended)).expect("an answer"));
        assert_eq!(twice.absence.map(|row| row.first), Some(at(20)));
    }

    #[test]
    fn answers_of_another_account_do_not_count() {
        // Deleted and absent, in an account that was used for a while.
        let answers = absent_since(3);
        let today = Ownership { account: account("b"), recorded: account("b"), ..Ownership::default() };
        assert!(matches!(of(&today, 3, &answers), Next::Delete(_)));
        let deleted = Answers {
            delete: deleted(Answered { account: account("b"), ..answered(1, 2, Ok(())) }),
            ..absent_since(3)
        };
        assert!(matches!(of(&today, 3, &deleted), Next::Find));
    }

    #[test]
    fn answers_of_the_recorded_account_stay_valid() {
        let exchanged = Ownership { account: account("b"), recorded: account("a"), ..Ownership::default() };
        assert!(matches!(of(&exchanged, 3, &absent_since(3)), Next::Gone(AbsenceEvidence::Sure)));
        let missing = Ownership { account: None, recorded: account("a"), ..Ownership::default() };
        assert!(matches!(of(&missing, 3, &absent_since(3)), Next::Gone(AbsenceEvidence::Sure)));
    }

    /// Ownership facts of a Machine that Go's machine-controller-manager created.
    fn unrecorded(change: impl FnOnce(&mut Ownership)) -> Ownership {
        elsewhere(|o| {
            o.recorded = None;
            o.list = List::Ended(at(303));
            change(o);
        })
    }

    #[test]
    fn without_a_record_an_older_sibling_is_proof() {
        let shown = |second| {
            unrecorded(|o| {
                o.others = Others::AsOld;
                o.oldest_shown = Some(at(second));
            })
        };
        assert!(matches!(of(&shown(-60), 3, &absent_since(3)), Next::Gone(AbsenceEvidence::Sure)), "as old");
        assert!(matches!(of(&shown(-59), 3, &absent_since(3)), Next::OtherAccount { .. }), "younger");
    }

    #[test]
    fn two_absences_count_if_nothing_can_be_compared() {
        let alone = unrecorded(|_| {});
        let first = absent_since(3);
        assert!(matches!(of(&alone, 3, &first), Next::LookTwice { look_at } if look_at == at(603)));
        assert!(matches!(of(&alone, 603, &first), Next::Find));
        let second = Answers { find: found(true, 603, Ok(Sighting::Absent)), ..absent_since(3) };
        assert!(matches!(of(&alone, 603, &second), Next::Gone(AbsenceEvidence::LookedTwice)));
    }

    #[test]
    fn the_oldest_is_compared_only_with_its_own_kind() {
        let oldest = |shows_unrecorded| {
            unrecorded(|o| {
                o.others = Others::Younger;
                o.oldest_shown = Some(at(-10));
                o.shows_unrecorded = shows_unrecorded;
            })
        };
        assert!(matches!(of(&oldest(true), 3, &absent_since(3)), Next::LookTwice { .. }));
        // The siblings may have been created after the Secret was replaced.
        assert!(matches!(of(&oldest(false), 3, &absent_since(3)), Next::OtherAccount { .. }));
    }

    fn never_seen(ownership: &Ownership, created: i64, answers: Answers) -> Next {
        let find = found(false, 200, Ok(Sighting::Absent));
        let answers = Answers { find, ever_ensured: true, ..answers };
        Case {
            seen: false,
            created,
            now: 200,
            answers: &answers,
            ownership,
            key_holder: None,
            keys: KeyTag::Rekeyable,
            shared: Shared::default(),
            unkeyed: Unkeyed::default(),
        }
        .next()
    }

    #[test]
    fn an_absence_counts_in_the_account_of_the_request() {
        let siblings = unrecorded(|o| o.others = Others::AsOld);
        let made_in = |made_in| Answers { made_in, ..Answers::default() };
        let here = || made_in(MadeIn::Account(account("a").expect("a name")));
        let there = || made_in(MadeIn::Account(account("b").expect("a name")));
        assert!(matches!(never_seen(&siblings, 10, here()), Next::Gone(AbsenceEvidence::Sure)));
        assert!(matches!(
            never_seen(&siblings, 10, made_in(MadeIn::Nowhere)),
            Next::Gone(AbsenceEvidence::Sure)
        ));
        assert!(matches!(never_seen(&siblings, 10, there()), Next::OtherAccount { .. }));
        assert!(matches!(never_seen(&siblings, 10, made_in(MadeIn::Several)), Next::OtherAccount { .. }));
        let same = unrecorded(|o| o.shows_made_in = true);
        assert!(
            matches!(never_seen(&same, 10, there()), Next::Gone(AbsenceEvidence::Sure)),
            "under another name"
        );
        // Another process may have requested it before.
        assert!(matches!(never_seen(&siblings, -60, here()), Next::OtherAccount { .. }));
        let shown = unrecorded(|o| o.oldest_shown = Some(at(-90)));
        assert!(matches!(never_seen(&shown, -60, here()), Next::Gone(AbsenceEvidence::Sure)));
        assert!(matches!(never_seen(&unrecorded(|_| {}), -60, here()), Next::LookTwice { .. }));
    }

    fn foreign(key: &str, cluster: Option<&str>) -> Foreign {
        let cluster = cluster.map(str::to_owned);
        Foreign { id: id(), key: Some(InstanceKey::new(key)), cluster, created: at(-3600) }
    }

    /// Answers after a denied deletion.
    fn denied(sighting: Option<Foreign>) -> Answers {
        Answers {
            delete: deleted(answered(1, 2, Err(Error::new(ErrorKind::Denied, "made for another key")))),
            find: sighting.and_then(|foreign| found(true, 3, Ok(Sighting::Foreign(foreign)))),
            failures: 1,
            ..Answers::default()
        }
    }

    #[test]
    fn a_restored_object_gives_its_instance_its_new_key() {
        assert!(matches!(next(true, -60, 3, &denied(None)), Next::Find));
        let mut answers = denied(Some(foreign("old", Some("ours"))));
        match next(true, -60, 3, &answers) {
            Next::Rekey { id: which, from } => assert_eq!((which, from), (id(), InstanceKey::new("old"))),
            other => panic!("{other:?}"),
        }
        answers.rekey = Some(Box::new(answered(4, 5, Err(Error::new(ErrorKind::Unavailable, "later")))));
        assert!(matches!(next(true, -60, 6, &answers), Next::Failed { call: Call::REKEY, .. }));
        assert!(matches!(next(true, -60, 10, &answers), Next::Find), "the current key is looked up");
        answers.rekey = Some(Box::new(answered(4, 5, Ok(()))));
        assert!(matches!(next(true, -60, 6, &answers), Next::Delete(_)));
    }

    /// A server in an error state keeps its tags.
    #[test]
    fn an_instance_whose_key_stays_is_deleted_by_that_key() {
        let mut answers = denied(Some(foreign("old", Some("ours"))));
        answers.rekey = Some(Box::new(answered(4, 5, Err(Error::unsupported("rekey")))));
        match next(true, -60, 6, &answers) {
            Next::Delete(permit) => assert_eq!(permit.owner(), &InstanceKey::new("old")),
            other => panic!("{other:?}"),
        }
        answers.delete = deleted(answered(6, 7, Ok(())));
        answers.find = found(true, 8, Ok(Sighting::Foreign(foreign("old", Some("ours")))));
        assert!(matches!(next(true, -60, 8, &answers), Next::Going { .. }), "it still exists");
        answers.find = found(true, 19, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 19, &answers), Next::Gone(_)));
    }

    #[test]
    fn with_fixed_keys_the_recorded_id_is_proof() {
        let answers = denied(Some(foreign("old", Some("ours"))));
        let ownership = Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() };
        let keys = KeyTag::Fixed;
        let case = Case {
            seen: true,
            created: -60,
            now: 3,
            answers: &answers,
            ownership: &ownership,
            key_holder: None,
            keys,
            shared: Shared::default(),
            unkeyed: Unkeyed::default(),
        };
        match case.next() {
            Next::Delete(permit) => assert_eq!(*permit.owner(), InstanceKey::new("old")),
            other => panic!("{other:?}"),
        }
    }

    /// Answers after a denied deletion of an instance without a key.
    fn denied_without_key(created: i64, name: &str) -> Answers {
        let instance = Instance { name: NodeName::new(name).expect("not empty"), ..made_at(created, None) };
        Answers { find: found(true, 3, Ok(Sighting::Present(instance))), ..denied(None) }
    }

    /// Whether the recorded instance without a key is deleted.
    fn is_deleted_without_key(answers: &Answers, unkeyed: Unkeyed) -> bool {
        let ownership = Ownership { account: account("a"), ..Ownership::default() };
        let case = Case {
            seen: true,
            created: 0,
            now: 4,
            answers,
            ownership: &ownership,
            key_holder: None,
            keys: KeyTag::Rekeyable,
            shared: Shared::default(),
            unkeyed,
        };
        match case.next() {
            Next::Delete(permit) => permit.which().may_lack_key,
            Next::NotOurs { foreign, .. } => {
                assert_eq!(foreign.key, None);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_recorded_id_alone_deletes_no_instance_without_a_key() {
        let marked = |marks| Unkeyed { marks, ..Unkeyed::default() };
        let (young, old) = (0, -3600);
        let cases = [
            (Marks::OfClass, young, "m", true),
            (Marks::OfClass, young, "another", true),
            (Marks::OfClass, old, "m", true),
            (Marks::OfClass, old, "another", false),
            (Marks::OfAnotherClass, young, "m", true),
            (Marks::OfAnotherClass, young, "another", false),
            (Marks::OfAnotherClass, old, "m", false),
            (Marks::NotUsed, young, "m", true),
            (Marks::NotUsed, young, "another", false),
            (Marks::NotUsed, old, "m", false),
            (Marks::Missing, young, "m", false),
        ];
        for (marks, created, name, expected) in cases {
            let deleted = is_deleted_without_key(&denied_without_key(created, name), marked(marks));
            assert_eq!(deleted, expected, "{marks:?} {created} {name}");
        }
        let other = || Some("other".to_owned());
        let taken = Unkeyed { recorded_by: other(), ..marked(Marks::OfClass) };
        let unclear = Unkeyed { unreadable: other(), ..marked(Marks::OfClass) };
        assert!(!is_deleted_without_key(&denied_without_key(young, "m"), taken));
        assert!(!is_deleted_without_key(&denied_without_key(young, "m"), unclear));
    }

    /// The credential lacks the permission.
    #[test]
    fn a_denied_deletion_without_key_is_not_repeated_at_once() {
        let mut answers = denied_without_key(0, "m");
        answers.delete = answers.delete.map(|deleted| Box::new(Deleted { may_lack_key: true, ..*deleted }));
        let ownership = Ownership { account: account("a"), ..Ownership::default() };
        let case = Case {
            seen: true,
            created: 0,
            now: 3,
            answers: &answers,
            ownership: &ownership,
            key_holder: None,
            keys: KeyTag::Rekeyable,
            shared: Shared::default(),
            unkeyed: Unkeyed { marks: Marks::OfClass, ..Unkeyed::default() },
        };
        assert!(matches!(case.next(), Next::Failed { call: Call::DELETE, .. }));
    }

    /// The id is a name, and the cloud has given it out again.
    #[test]
    fn an_instance_that_is_younger_than_its_object_is_left_alone() {
        let young = Foreign { created: at(-59), ..foreign("old", Some("ours")) };
        let answers = denied(Some(young));
        let ownership = Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() };
        for keys in [KeyTag::Fixed, KeyTag::Rekeyable] {
            let case = Case {
                seen: true,
                created: -60,
                now: 3,
                answers: &answers,
                ownership: &ownership,
                key_holder: None,
                keys,
                shared: Shared::default(),
                unkeyed: Unkeyed::default(),
            };
            assert!(matches!(case.next(), Next::NotOurs { .. }), "{keys:?}");
        }
    }

    #[test]
    fn an_instance_with_another_key_is_left_alone() {
        for stays in [foreign("old", Some("theirs")), foreign("old", None)] {
            let next = next(true, -60, 3, &denied(Some(stays.clone())));
            assert!(matches!(&next, Next::NotOurs { foreign, .. } if *foreign == stays), "{next:?}");
        }
        let answers = denied(Some(foreign("live", Some("ours"))));
        let ownership = Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() };
        let case = |now| Case {
            seen: true,
            created: -60,
            now,
            answers: &answers,
            ownership: &ownership,
            key_holder: Some("n"),
            keys: KeyTag::Rekeyable,
            shared: Shared::default(),
            unkeyed: Unkeyed::default(),
        };
        assert!(matches!(case(3).next(), Next::NotOurs { .. }), "a live Machine holds the key");
        assert!(matches!(case(603).next(), Next::Find));
    }

    #[test]
    fn a_namesake_under_an_old_key_is_left_and_reported() {
        let find = |foreign| found(false, 41, Ok(Sighting::Foreign(foreign)));
        let answers = |foreign| Answers { find: find(foreign), ..Answers::default() };
        let next = |foreign| next(false, -60, 41, &answers(foreign));
        assert!(matches!(next(foreign("old", Some("ours"))), Next::Gone(AbsenceEvidence::NameTaken(_))));
        assert!(matches!(next(foreign("old", Some("theirs"))), Next::Gone(AbsenceEvidence::Sure)));
    }

    /// The lookups are 30 s apart: the deletion was requested a while ago.
    #[test]
    fn many_deletions_share_one_list() {
        let gone = Instance { power: Power::Deleting, ..made_at(-60, Some("uid")) };
        let answers = Answers {
            delete: deleted(answered(0, 1, Ok(()))),
            find: found(true, 100, Ok(Sighting::Present(gone))),
            ..Answers::default()
        };
        let ownership =
            |list| Ownership { list, account: account("a"), recorded: account("a"), ..Ownership::default() };
        let of = |now, listed: Option<(i64, Option<Power>)>, is_crowd, list| {
            let listed =
                listed.map(|(started, power)| Listed { started: at(started), ended: at(started), power });
            let ownership = ownership(list);
            Case {
                seen: true,
                created: -60,
                now,
                answers: &answers,
                ownership: &ownership,
                key_holder: None,
                keys: KeyTag::Rekeyable,
                shared: Shared { listed, is_crowd },
                unkeyed: Unkeyed::default(),
            }
            .next()
        };
        assert!(matches!(of(131, None, false, List::NotAsked), Next::Find), "alone");
        assert!(matches!(of(131, None, true, List::NotAsked), Next::List));
        assert!(
            matches!(of(131, None, true, List::Asked(at(140))), Next::AwaitList { .. }),
            "the list is in flight"
        );
        assert!(matches!(of(131, None, true, List::Failed(at(140))), Next::Find), "the list failed");
        let there = Some((120, Some(Power::Deleting)));
        let going = |next| matches!(next, Next::Going { look_at, .. } if look_at == at(150));
        assert!(going(of(131, there, true, List::Ended(at(420)))), "it was listed a while ago");
        assert!(matches!(of(150, there, true, List::Ended(at(420))), Next::List), "and once more");
        let missing = of(121, Some((120, None)), true, List::Ended(at(420)));
        assert!(matches!(missing, Next::Find), "a list proves nothing");
        let older = of(131, Some((90, None)), true, List::Ended(at(390)));
        assert!(matches!(older, Next::List), "the lookup is newer than the list");
    }
}
