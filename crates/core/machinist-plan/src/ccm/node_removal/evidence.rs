//! Judges whether the instance of a Node is proven not to exist, and whether the Node may be
//! deleted.

use std::fmt;

use jiff::Timestamp;
use machinist_core::ownership::{Ownership, Standing};
use machinist_core::{Absence, Answers, Process, Step, plus};
use machinist_instance::{AccountId, ProviderId, RecordedId, Sighting};

use crate::ccm::account::AccountFacts;
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::names;
use crate::ccm::node::{ListedNode, Options, Owner};
use crate::ccm::why::{CcmReason, Reason, Why};

/// Two lookups by id that found nothing, in the account of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absences {
    /// The provider id.
    pub instance: ProviderId,
    /// The account that was asked.
    pub account: AccountId,
    /// When the first lookup that counts began.
    pub first: Timestamp,
    /// When the last lookup began.
    pub last: Timestamp,
}

impl fmt::Display for Absences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was absent at {} and {}", self.instance, self.first, self.last)
    }
}

/// The facts about one Node whose last lookup by id found nothing.
#[derive(Debug)]
pub(crate) struct Case<'s> {
    pub(crate) now: Timestamp,
    pub(crate) process: &'s Process,
    pub(crate) options: &'s Options,
    pub(crate) account: &'s AccountFacts,
    pub(crate) node: &'s CloudNodeFacts,
    pub(crate) recorded: &'s RecordedId,
    pub(crate) answers: &'s Answers,
    pub(crate) listed: Option<&'s ListedNode>,
    pub(crate) ownership: &'s Ownership,
    pub(crate) owner: Option<&'s Owner>,
}

/// The conclusion from the evidence about the instance of a Node.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing indicates that the instance is missing, or newer facts contradict it.
    Present,
    /// The instance was missing, nothing has shown it since, and the last lookup failed.
    Unsure,
    /// The instance is missing. A second lookup is due at that moment.
    LookAgain { look_at: Timestamp, why: Why },
    /// The instance is missing. A list of the account shows whether the account is the right one.
    ListFirst,
    /// The instance is missing, and the Node is kept, at least until that moment.
    Held { until: Option<Timestamp>, why: Why },
    /// The instance does not exist, and the Node may be deleted.
    Proven(Absences),
}

impl Case<'_> {
    /// Judges the Node.
    pub(crate) fn judge(&self) -> Verdict {
        let is_followed =
            !self.node.is_ready() && !self.node.is_uninitialized() && self.node.deleting_since.is_none();
        if !is_followed {
            return Verdict::Present;
        }
        let Some(absences) = self.absences() else {
            return if self.is_unsure() { Verdict::Unsure } else { Verdict::Present };
        };
        let instance = absences.instance.to_string();
        let look_at = plus(absences.first, self.options.confirm_period);
        if absences.last < look_at {
            let why = Why::new(
                CcmReason::InstanceMissing { instance },
                Step::Expect("the controller looks up the instance again"),
            );
            return Verdict::LookAgain { look_at, why: why.since(absences.first) };
        }
        match self.ownership.of_recorded(self.node.created, self.answers, self.now) {
            Standing::Proven => self.of_missing(absences),
            Standing::Ask => Verdict::ListFirst,
            Standing::Asked(until) | Standing::Doubtful(until) => unproven(absences, Some(until)),
            Standing::Incomparable => unproven(absences, None),
        }
    }

    /// Judges a Node whose instance is missing in its account.
    fn of_missing(&self, absences: Absences) -> Verdict {
        let instance = absences.instance.to_string();
        let held = |until, reason: Reason, next| Verdict::Held {
            until,
            why: Why::new(reason, next).since(absences.first),
        };
        let deletion = || Step::Expect("the controller deletes the Node");
        if self.node.skips_deletion() {
            let next = format!("remove the annotation {} to delete the Node", names::SKIP_CLOUD_DELETION);
            return held(None, CcmReason::NodeDeletionSkipped { instance }.into(), Step::Fix(next));
        }
        if !self.process.may_enforce_deadlines() {
            let seconds = self.process.skew.as_secs();
            let next = Step::Fix("synchronize the clocks".to_owned());
            return held(Some(plus(self.now, SKEW_AGAIN)), Reason::ClockSkew { seconds }, next);
        }
        let acts_at = plus(self.process.acting_since(), self.options.monitor_period);
        if self.now < acts_at {
            return held(Some(acts_at), CcmReason::LeaderTooYoung.into(), deletion());
        }
        let old_at = plus(self.node.created, self.options.min_age);
        if self.now < old_at {
            return held(Some(old_at), CcmReason::NodeTooYoung { instance }.into(), deletion());
        }
        let grace_until = plus(absences.first, self.options.owner_grace);
        match self.owner {
            Some(Owner { machine, is_deleting: false }) if self.now < grace_until => {
                let reason = CcmReason::NodeOwned { instance, machine: machine.clone() };
                let next = Step::Expect("the machine controller replaces the Machine");
                held(Some(grace_until), reason.into(), next)
            }
            Some(_) | None => Verdict::Proven(absences),
        }
    }

    /// Whether the last lookup failed after others in today's account had found nothing. A failure
    /// is not a sighting, so the instance still counts as missing: otherwise an outage of the cloud
    /// would release the brake.
    fn is_unsure(&self) -> bool {
        let has_failed = self.answers.find.as_ref().is_some_and(|found| found.answered.answer.is_err());
        let row = self.answers.absence.as_ref();
        let is_of_today = row.is_some_and(|row| {
            row.id.as_ref() == self.recorded.ours() && self.account.id.as_ref() == Some(&row.account)
        });
        has_failed && is_of_today && self.recorded.ours().is_some()
    }

    /// Returns the row of absences in today's account, unless a newer list shows the instance. The
    /// row begins when the Node became not ready, at the earliest.
    fn absences(&self) -> Option<Absences> {
        let id = self.recorded.ours()?;
        let Absence { account, first, id: of } = self.answers.absence.as_ref()?;
        let found = self.answers.find.as_ref()?;
        let is_absent = found.answered.answer.as_ref().is_ok_and(Sighting::is_absent)
            && found.by.id.as_ref() == Some(id)
            && found.answered.account.as_ref() == Some(account);
        if !is_absent || of.as_ref() != Some(id) || self.account.id.as_ref() != Some(account) {
            return None;
        }
        let last = found.answered.started;
        let shown = self.listed.filter(|listed| listed.instance.is_some()).map(|listed| listed.started);
        if shown.is_some_and(|shown| last < shown) {
            return None;
        }
        let unready = self.node.ready.as_ref().and_then(|ready| ready.since);
        let first = [Some(*first), shown, unready].into_iter().flatten().max().unwrap_or(*first);
        Some(Absences { instance: id.clone(), account: account.clone(), first, last })
    }
}

/// Wait before the next look while the clocks differ too much.
const SKEW_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);

fn unproven(absences: Absences, until: Option<Timestamp>) -> Verdict {
    let reason = CcmReason::NodeAccountUnproven { instance: absences.instance.to_string() };
    let next = "check that the credential belongs to the project of the cluster's instances. If it does, and \
                the instance was deleted, delete the Node";
    let why = Why::new(reason, Step::Fix(next.to_owned())).since(absences.first);
    Verdict::Held { until, why }
}
