//! The calls of this process that may have sent mails. Why a process must remember them:
//! `machinist_plan::capi::mail`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::plus;
use machinist_plan::capi::mail::OwnCalls;

/// The number of mails that a process remembers. Each needs about 100 bytes.
const MOST: usize = 10_000;

/// The calls of this process that may have sent mails, by UID of the request. A deletion of the
/// request does not end this memory.
#[derive(Debug, Default)]
pub(crate) struct MailCalls {
    by_uid: BTreeMap<String, MailCall>,
    /// The end of the last call that is no longer in the map.
    forgotten: Option<Timestamp>,
}

#[derive(Debug)]
struct MailCall {
    accepted: bool,
    /// The end of the last call, or the latest time at which it may end.
    ended: Timestamp,
}

impl MailCalls {
    /// Returns the calls for a request.
    pub(crate) fn of(&self, uid: &str) -> OwnCalls {
        let call = self.by_uid.get(uid);
        OwnCalls {
            accepted: call.is_some_and(|call| call.accepted),
            ended: call.map(|call| call.ended),
            forgotten: self.forgotten,
        }
    }

    /// Notes a call that ends at that time at the latest.
    pub(crate) fn begins(&mut self, uid: &str, ends_by: Timestamp) {
        self.note(uid, false, ends_by);
    }

    /// Notes an answer from which the mail may have been accepted.
    pub(crate) fn ended(&mut self, uid: &str, accepted: bool, ended: Timestamp) {
        self.note(uid, accepted, ended);
    }

    fn note(&mut self, uid: &str, accepted: bool, ended: Timestamp) {
        let was_accepted = self.by_uid.remove(uid).is_some_and(|call| call.accepted);
        if MOST <= self.by_uid.len() {
            self.forget_oldest();
        }
        self.by_uid.insert(uid.to_owned(), MailCall { accepted: accepted || was_accepted, ended });
    }

    /// Makes room for another call. Requests that are older than a forgotten call may belong to
    /// that call, so the planner looks their mails up.
    fn forget_oldest(&mut self) {
        let oldest = self.by_uid.iter().min_by_key(|(_, call)| call.ended).map(|(uid, _)| uid.clone());
        if let Some(call) = oldest.and_then(|uid| self.by_uid.remove(&uid)) {
            self.forgotten = self.forgotten.max(Some(call.ended));
        }
    }

    /// The clock has stepped to `now`: the noted times no longer have a meaning. All calls end
    /// within `bound`.
    pub(crate) fn forget_moments(&mut self, now: Timestamp, bound: Duration) {
        let ended = plus(now, bound);
        self.by_uid.values_mut().for_each(|call| call.ended = ended);
        self.forgotten = self.forgotten.map(|_| ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a valid time")
    }

    #[test]
    fn the_oldest_calls_are_forgotten_but_not_their_time() {
        let mut calls = MailCalls::default();
        for second in 0..10_005 {
            calls.ended(&format!("uid-{second}"), true, at(second));
        }
        assert_eq!(calls.by_uid.len(), MOST);
        assert_eq!(calls.of("uid-4"), OwnCalls { forgotten: Some(at(4)), ..OwnCalls::default() });
        let known = OwnCalls { accepted: true, ended: Some(at(5)), forgotten: Some(at(4)) };
        assert_eq!(calls.of("uid-5"), known);
    }

    #[test]
    fn an_accepted_mail_stays_accepted_in_a_later_call() {
        let mut calls = MailCalls::default();
        calls.ended("a", true, at(1));
        calls.begins("a", at(60));
        assert_eq!(calls.of("a"), OwnCalls { accepted: true, ended: Some(at(60)), forgotten: None });
        calls.forget_moments(at(1000), Duration::from_secs(30));
        assert_eq!(calls.of("a"), OwnCalls { accepted: true, ended: Some(at(1030)), forgotten: None });
    }
}
