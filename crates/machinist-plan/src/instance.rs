//! Rules about instances that all front ends share: when one may be believed gone, and what is asked next.
//!
//! Two rules keep exactly one instance per machine: the intent is on the API object before the cloud is called, and
//! `ensure` is idempotent by key. From them follows when absence is proven:
//!
//! - An instance that the cloud has shown by its provider id is gone when `find` by that id says so. One whose id is known and
//!   that was not shown yet may only be late: then an absence counts after what the cloud promises about visibility.
//! - One that was never seen may still appear: somebody may have asked for it a moment ago. Absence counts only from a
//!   `find` later than anybody's last possible call, plus what the cloud promises about visibility.
//! - One that nobody can have asked for needs no proof.
//!
//! An instance without a key that is older than its machine was not made for it, whatever its name: it is neither adopted nor deleted.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{Error, Instance, InstanceKey, InstanceRef, Power, Sighting};

use crate::permit::{Evidence, Permit};
use crate::snapshot::{Answers, Call, Process, plus, retry_after, since};

/// How long a permit may be used: longer than a call takes to start, shorter than a lease.
const PERMIT_VALID: Duration = Duration::from_secs(10);
/// The first wait before looking whether an instance is gone, doubled at each look.
const FIRST_LOOK_AFTER: Duration = Duration::from_secs(1);
/// The longest wait between two looks.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
/// An instance that was to be deleted and is neither gone nor going after this long is asked again to be deleted.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(120);

/// What is asked about an instance that is to go.
#[derive(Debug)]
pub struct Departure<'s> {
    /// How it is found.
    pub which: InstanceRef,
    /// The key it must carry, if it carries one.
    pub owner: InstanceKey,
    /// When its machine was created.
    pub created: Timestamp,
    /// Why its deletion costs no pod, as far as that is known yet.
    pub evidence: Option<Evidence>,
    /// What the driver answered.
    pub answers: &'s Answers,
    /// A fingerprint of what calls are made from: when it changes, a call that failed is repeated without waiting.
    pub inputs: u64,
    /// Who asks.
    pub process: &'s Process,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// What follows for an instance that is to go.
#[derive(Debug)]
pub enum Next {
    /// It does not exist, and none can appear.
    Gone,
    /// A call is in flight; look again when it is answered, or when its bound has passed.
    Wait {
        /// The call.
        call: Call,
        /// Since when.
        since: Timestamp,
        /// When its bound has passed.
        until: Timestamp,
    },
    /// Ask where it is.
    Find,
    /// It was found, and is not recorded yet.
    Record(Box<Instance>),
    /// Ask for its deletion.
    Delete(Permit),
    /// Its deletion would be next, and it is not known that no pod is lost with it.
    NeedsEvidence,
    /// It is going; look again then.
    Going {
        /// When to look.
        look_at: Timestamp,
    },
    /// The last call failed; repeat it then.
    Failed {
        /// Which call.
        call: Call,
        /// What the cloud said.
        error: Error,
        /// When to repeat it.
        retry_at: Timestamp,
    },
    /// It may still appear; look again then.
    NotProven {
        /// From when on an absence counts.
        look_at: Timestamp,
    },
}

impl Departure<'_> {
    /// Decides what follows.
    pub fn next(&self) -> Next {
        if let Some((call, started)) = self.answers.in_flight {
            return Next::Wait {
                call,
                since: started,
                until: plus(started, self.process.promises.call_bound),
            };
        }
        if self.which.id.is_some() { self.seen() } else { self.never_seen() }
    }

    fn seen(&self) -> Next {
        if let Some((error, ended)) = Answers::failure(self.answers.delete.as_ref()) {
            let retry_at = self.retry_at(error, ended);
            // A deletion whose effect is unknown is settled by repeating it, like any other failure.
            return match self.now < retry_at {
                true => Next::Failed { call: Call::Delete, error: error.clone(), retry_at },
                false => self.delete(),
            };
        }
        let Some(asked) = self.answers.delete.as_ref().map(|answered| answered.ended) else {
            return self.delete();
        };
        let find =
            self.answers.find.as_ref().filter(|find| asked <= find.answered.started && find.by.id.is_some());
        let Some(find) = find else { return Next::Find };
        match &find.answered.answer {
            Ok(Sighting::Foreign(_)) => Next::Gone,
            Ok(Sighting::Absent) => self.absent_by_id(find.answered.started),
            Ok(Sighting::Present(instance)) => self.look_again(asked, find.answered.ended, instance.power),
            Err(error) => self.find_failed(error, find.answered.ended),
        }
    }

    /// An absence by id counts once the cloud has shown that id, or has had the time to: an instance made a moment ago may be
    /// on its way out and not be shown yet.
    fn absent_by_id(&self, looked: Timestamp) -> Next {
        let made = self.answers.ensure.as_ref().map(|ensured| ensured.ended);
        let made = made.unwrap_or(Timestamp::MIN).max(self.process.acting_since());
        let counts_from = plus(made, self.process.promises.visible_within);
        if self.answers.shown || counts_from < looked {
            return Next::Gone;
        }
        if counts_from < self.now {
            return Next::Find;
        }
        Next::NotProven { look_at: plus(counts_from, Duration::from_millis(1)) }
    }

    fn look_again(&self, asked: Timestamp, looked: Timestamp, power: Power) -> Next {
        let overdue = plus(asked, ASK_AGAIN_AFTER) <= self.now && power != Power::Deleting;
        if overdue {
            return self.delete();
        }
        // Each wait is as long as everything before it: looks double, whatever their number.
        let wait = since(looked, asked).clamp(FIRST_LOOK_AFTER, LOOK_AT_LEAST_EVERY);
        let look_at = plus(looked, wait);
        if look_at <= self.now { Next::Find } else { Next::Going { look_at } }
    }

    fn never_seen(&self) -> Next {
        if let Some(ensured) = &self.answers.ensure
            && let Ok(instance) = &ensured.answer
        {
            return Next::Record(Box::new(instance.clone()));
        }
        let nobody_asked = !self.answers.ever_ensured && self.process.saw_the_birth_of(self.created);
        if nobody_asked {
            return Next::Gone;
        }
        let last_possible_call =
            self.answers.ensure.as_ref().map_or(self.process.acting_since(), |ensured| ensured.ended);
        let last_possible_call = last_possible_call.max(self.process.acting_since());
        let counts_from = plus(last_possible_call, self.process.promises.absence_takes());
        let Some(find) = &self.answers.find else {
            // A first look at once: what is there already is found without waiting.
            return Next::Find;
        };
        match &find.answered.answer {
            Ok(Sighting::Present(instance)) if self.is_ours(instance) => {
                Next::Record(Box::new(instance.clone()))
            }
            // One of somebody else's is as good as none: ours may still appear beside it.
            Ok(_) if counts_from < find.answered.started => Next::Gone,
            Ok(_) if counts_from < self.now => Next::Find,
            Ok(_) => Next::NotProven { look_at: plus(counts_from, Duration::from_millis(1)) },
            Err(error) => self.find_failed(error, find.answered.ended),
        }
    }

    /// Whether an instance that a find by name showed is this machine's: it carries our key, or none and is young enough to have
    /// been made for us by another program. An older one has its owner somewhere else, whoever that is.
    fn is_ours(&self, instance: &Instance) -> bool {
        match &instance.key {
            Some(key) => *key == self.owner,
            None => self.created <= instance.created,
        }
    }

    fn find_failed(&self, error: &Error, ended: Timestamp) -> Next {
        let retry_at = self.retry_at(error, ended);
        if retry_at <= self.now {
            return Next::Find;
        }
        Next::Failed { call: Call::Find, error: error.clone(), retry_at }
    }

    fn retry_at(&self, error: &Error, ended: Timestamp) -> Timestamp {
        if self.answers.is_mended(self.inputs) {
            return self.now;
        }
        plus(ended, retry_after(error.kind, self.answers.failures, Duration::from_secs(30)))
    }

    fn delete(&self) -> Next {
        let Some(evidence) = self.evidence.clone() else { return Next::NeedsEvidence };
        let valid_until = plus(self.now, PERMIT_VALID);
        Next::Delete(Permit::mint(self.which.clone(), self.owner.clone(), evidence, valid_until))
    }
}

#[cfg(test)]
mod tests {
    use machinist_instance::{CreateGuarantee, ErrorKind, NodeName, Promises, ProviderId};

    use super::*;
    use crate::snapshot::{Answered, Found};

    const START: i64 = 1_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START + second).expect("a small number of seconds")
    }

    fn process() -> Process {
        let promises = Promises {
            visible_within: Duration::from_secs(10),
            call_bound: Duration::from_secs(30),
            create: CreateGuarantee::NativeKey,
            rate: None,
        };
        Process { started: at(0), leading_since: None, skew: Duration::ZERO, promises }
    }

    fn found(by_id: bool, second: i64, answer: Result<Sighting, Error>) -> Option<Found> {
        let by = InstanceRef { id: by_id.then(id), key: None, name: None };
        Some(Found { by, answered: Answered { started: at(second), ended: at(second), answer } })
    }

    fn id() -> ProviderId {
        ProviderId::parse("sim:///i-1").expect("well-formed")
    }

    fn next(seen: bool, created: i64, now: i64, answers: &Answers) -> Next {
        let which =
            InstanceRef { id: seen.then(id), key: Some(InstanceKey::new("uid")), name: NodeName::new("m") };
        let process = process();
        Departure {
            which,
            owner: InstanceKey::new("uid"),
            created: at(created),
            evidence: Some(Evidence::ForceDeletion),
            answers,
            inputs: 1,
            process: &process,
            now: at(now),
        }
        .next()
    }

    #[test]
    fn an_instance_never_seen_is_gone_only_after_the_lag() {
        let early = Answers { find: found(false, 5, Ok(Sighting::Absent)), ..Answers::default() };
        assert!(matches!(next(false, -60, 5, &early), Next::NotProven { .. }));
        assert!(matches!(next(false, -60, 41, &early), Next::Find));
        let late = Answers { find: found(false, 41, Ok(Sighting::Absent)), ..Answers::default() };
        assert!(matches!(next(false, -60, 41, &late), Next::Gone));
    }

    #[test]
    fn an_instance_that_nobody_can_have_asked_for_is_gone_at_once() {
        assert!(matches!(next(false, 1, 2, &Answers::default()), Next::Gone));
        let asked = Answers { ever_ensured: true, ..Answers::default() };
        assert!(matches!(next(false, 1, 2, &asked), Next::Find));
    }

    #[test]
    fn the_lag_counts_from_the_end_of_our_own_last_call() {
        let refused =
            Answered { started: at(99), ended: at(100), answer: Err(Error::new(ErrorKind::Ambiguous, "?")) };
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
        let mut answers = Answers { shown: true, ..Answers::default() };
        assert!(matches!(next(true, -60, 1, &answers), Next::Delete(_)));
        answers.delete = Some(Answered { started: at(1), ended: at(2), answer: Ok(()) });
        // An older sighting, or one by name, proves nothing.
        answers.find = found(true, 0, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 2, &answers), Next::Find));
        answers.find = found(false, 3, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 3, &answers), Next::Find));
        answers.find = found(true, 3, Ok(Sighting::Absent));
        assert!(matches!(next(true, -60, 3, &answers), Next::Gone));
    }

    #[test]
    fn an_instance_that_was_not_shown_yet_may_only_be_late() {
        let mut answers = Answers {
            delete: Some(Answered { started: at(20), ended: at(21), answer: Ok(()) }),
            find: found(true, 22, Ok(Sighting::Absent)),
            ..Answers::default()
        };
        assert!(matches!(next(true, -60, 22, &answers), Next::Gone), "the process is older than the lag");
        let made = made_at(19, None);
        answers.ensure = Some(Answered { started: at(18), ended: at(19), answer: Ok(made) });
        assert!(matches!(next(true, 18, 22, &answers), Next::NotProven { .. }));
        answers.find = found(true, 30, Ok(Sighting::Absent));
        assert!(matches!(next(true, 18, 30, &answers), Next::Gone));
    }

    fn made_at(second: i64, key: Option<&str>) -> Instance {
        Instance {
            id: id(),
            key: key.map(InstanceKey::new),
            name: NodeName::new("m").expect("not empty"),
            power: Power::Running,
            addresses: Vec::new(),
            instance_type: None,
            zone: None,
            region: None,
            tags: std::collections::BTreeMap::new(),
            created: at(second),
        }
    }

    #[test]
    fn only_an_instance_that_can_be_ours_is_taken_along() {
        let shown = |instance: Instance| {
            let find = found(false, 41, Ok(Sighting::Present(instance)));
            next(false, -60, 41, &Answers { find, ..Answers::default() })
        };
        assert!(matches!(shown(made_at(-90, Some("uid"))), Next::Record(_)), "it has our key");
        assert!(matches!(shown(made_at(-60, None)), Next::Record(_)), "others made it for this machine");
        assert!(matches!(shown(made_at(-61, None)), Next::Gone), "it was there before the machine");
        assert!(matches!(shown(made_at(0, Some("another"))), Next::Gone), "it has another's key");
    }

    #[test]
    fn a_failed_deletion_is_repeated_after_a_while() {
        let error = Error::new(ErrorKind::Unavailable, "try later");
        let delete = Some(Answered { started: at(1), ended: at(2), answer: Err(error) });
        let answers = Answers { delete, failures: 1, ..Answers::default() };
        assert!(matches!(next(true, -60, 3, &answers), Next::Failed { call: Call::Delete, .. }));
        assert!(matches!(next(true, -60, 7, &answers), Next::Delete(_)));
    }

    #[test]
    fn a_refused_call_is_repeated_at_once_when_class_or_secret_have_changed() {
        let refused = Error::new(ErrorKind::Denied, "wrong token");
        let delete = Some(Answered { started: at(1), ended: at(2), answer: Err(refused.clone()) });
        let mut answers = Answers { delete, failures: 9, inputs: Some(1), ..Answers::default() };
        assert!(matches!(next(true, -60, 100, &answers), Next::Failed { call: Call::Delete, .. }));
        answers.inputs = Some(2);
        assert!(matches!(next(true, -60, 100, &answers), Next::Delete(_)));
        answers.delete = Some(Answered { started: at(1), ended: at(2), answer: Ok(()) });
        answers.find = Some(Found {
            by: InstanceRef { id: Some(id()), key: None, name: None },
            answered: Answered { started: at(3), ended: at(4), answer: Err(refused) },
        });
        assert!(matches!(next(true, -60, 100, &answers), Next::Find));
        answers.inputs = Some(1);
        assert!(matches!(next(true, -60, 100, &answers), Next::Failed { call: Call::Find, .. }));
    }
}
