//! Checks whether the calls to one object are linearizable: could the answers come from the calls
//! in some sequential order?
//!
//! The search is Wing and Gong's algorithm with Lowe's memory. It takes any call that began before
//! every other open call ended, checks whether the object could give that answer, and continues
//! from there. It never checks the same set of calls with the same object state twice.

use std::collections::{BTreeMap, HashSet};

/// Request to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Get,
    Create { value: u64 },
    Put { value: u64, revision: u64 },
    Patch { value: u64 },
    Delete { revision: Option<u64> },
}

/// Answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The object's value after the call.
    Object {
        revision: u64,
        value: u64,
    },
    /// The object was deleted.
    Deleted,
    NotFound,
    AlreadyExists,
    Conflict,
}

/// A call with its start and end on a logical clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) ask: Ask,
    pub(super) answer: Answer,
}

/// Model of one object: its value and its last revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Register {
    current: Option<(u64, u64)>,
    newest: u64,
}

impl Register {
    /// Returns the object after a call, or `None` if the object cannot give the call's answer.
    fn after(self, call: &Call) -> Option<Self> {
        let now = self.current;
        let written = |revision: u64, value: u64, wanted: u64| {
            let is_new = self.newest < revision;
            (is_new && value == wanted)
                .then_some(Register { current: Some((revision, value)), newest: revision })
        };
        match (call.ask, call.answer, now) {
            (Ask::Get, Answer::Object { revision, value }, Some(held)) => {
                (held == (revision, value)).then_some(self)
            }
            (Ask::Create { .. }, Answer::AlreadyExists, Some(_))
            | (Ask::Get | Ask::Put { .. } | Ask::Patch { .. } | Ask::Delete { .. }, Answer::NotFound, None) => {
                Some(self)
            }
            (Ask::Create { value: wanted }, Answer::Object { revision, value }, None)
            | (Ask::Patch { value: wanted }, Answer::Object { revision, value }, Some(_)) => {
                written(revision, value, wanted)
            }
            (
                Ask::Put { value: wanted, revision: expected },
                Answer::Object { revision, value },
                Some((held, _)),
            ) => {
                if held == expected {
                    written(revision, value, wanted)
                } else {
                    None
                }
            }
            (
                Ask::Put { revision: expected, .. } | Ask::Delete { revision: Some(expected) },
                Answer::Conflict,
                Some((held, _)),
            ) => (held != expected).then_some(self),
            (Ask::Delete { revision }, Answer::Deleted, Some((held, _))) => {
                revision.is_none_or(|expected| expected == held).then_some(Register { current: None, ..self })
            }
            _ => None,
        }
    }
}

/// Checks whether a sequential order exists.
///
/// # Errors
/// The calls that cannot follow after the longest order found.
pub(super) fn check(calls: &[Call]) -> Result<(), String> {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.began);
    let mut looked_at: HashSet<(Vec<bool>, Register)> = HashSet::new();
    let mut open = vec![(vec![false; calls.len()], Register::default())];
    let mut furthest = vec![false; calls.len()];
    while let Some((taken, register)) = open.pop() {
        let left = || calls.iter().zip(&taken).enumerate().filter(|(_, (_, taken))| !**taken);
        let Some(first_end) = left().map(|(_, (call, _))| call.ended).min() else { return Ok(()) };
        for (index, (call, _)) in left().take_while(|(_, (call, _))| call.began <= first_end) {
            if let Some(after) = register.after(call) {
                let mut with = taken.clone();
                with[index] = true;
                if looked_at.insert((with.clone(), after)) {
                    if count(&furthest) < count(&with) {
                        furthest.clone_from(&with);
                    }
                    open.push((with, after));
                }
            }
        }
    }
    let unexplained: Vec<&Call> =
        calls.iter().zip(&furthest).filter(|(_, taken)| !**taken).map(|(call, _)| call).collect();
    Err(format!("no order continues with any of {:?}", &unexplained[..unexplained.len().min(8)]))
}

fn count(taken: &[bool]) -> usize {
    taken.iter().filter(|taken| **taken).count()
}

/// Checks each object separately. If every object is linearizable, all of them together are.
pub(super) fn check_each(calls: &BTreeMap<String, Vec<Call>>) {
    for (name, calls) in calls {
        if let Err(why) = check(calls) {
            panic!("{name}: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: Answer = Answer::Object { revision: 1, value: 10 };

    fn call(began: u64, ended: u64, ask: Ask, answer: Answer) -> Call {
        Call { began, ended, ask, answer }
    }

    fn made() -> Call {
        call(0, 1, Ask::Create { value: 10 }, MADE)
    }

    #[test]
    fn calls_at_the_same_time_may_have_either_order() {
        let put = call(2, 5, Ask::Put { value: 11, revision: 1 }, Answer::Object { revision: 2, value: 11 });
        let old = call(3, 4, Ask::Get, MADE);
        let late = call(3, 6, Ask::Put { value: 12, revision: 1 }, Answer::Conflict);
        assert_eq!(check(&[made(), put, old, late]), Ok(()));
    }

    #[test]
    fn a_stale_read_is_rejected() {
        let patch = call(2, 3, Ask::Patch { value: 11 }, Answer::Object { revision: 2, value: 11 });
        assert!(check(&[made(), patch, call(4, 5, Ask::Get, MADE)]).is_err());
        assert!(check(&[made(), patch, call(4, 5, Ask::Get, Answer::NotFound)]).is_err());
    }

    #[test]
    fn two_updates_of_the_same_revision_are_rejected() {
        let put =
            |value, revision| call(2, 5, Ask::Put { value, revision: 1 }, Answer::Object { revision, value });
        assert!(check(&[made(), put(11, 2), put(12, 3)]).is_err());
    }

    #[test]
    fn falling_revisions_and_second_creations_are_rejected() {
        let gone = call(2, 3, Ask::Delete { revision: None }, Answer::Deleted);
        let again = |revision| call(4, 5, Ask::Create { value: 12 }, Answer::Object { revision, value: 12 });
        assert_eq!(check(&[made(), gone, again(3)]), Ok(()));
        assert!(check(&[made(), gone, again(1)]).is_err(), "a repeated revision");
        assert!(check(&[made(), again(3)]).is_err(), "two objects with one name");
        assert!(check(&[made(), gone, gone]).is_err(), "deleted twice");
    }

    #[test]
    fn a_conflict_without_another_writer_is_rejected() {
        let put = call(2, 3, Ask::Put { value: 11, revision: 1 }, Answer::Conflict);
        assert!(check(&[made(), put]).is_err());
    }
}
