//! The driver's answers for one load balancer, as this process remembers them.

use std::hash::Hash;

use jiff::Timestamp;
use machinist_core::{Answered, Call};
use machinist_instance::{BalancerDeletion, Ensured, ErrorKind, Progress, SkipCause, SkippedTarget};
use machinist_labels::Selector;

/// The driver's answers for one load balancer. They may be lost at any moment: then the calls are
/// repeated, and only read what matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ServiceAnswers {
    /// The call in flight and its start.
    pub in_flight: Option<(Call, Timestamp)>,
    /// The last answer to `ensure`, with the inputs of the call.
    pub ensure: Option<(Inputs, Answered<Progress<Ensured>>)>,
    /// The inputs of the last `ensure` that ended with `Done`.
    pub done: Option<Inputs>,
    /// The inputs of the one before, if they were others. They show whether only Nodes changed.
    pub replaced: Option<Inputs>,
    /// The last answer to `delete`.
    pub delete: Option<Answered<Progress<BalancerDeletion>>>,
    /// The last answer to the comparison of a dry run: the changes that `ensure` would make.
    pub foreseen: Option<(Inputs, String)>,
    /// Fingerprint of the Service for which the last `delete` began ([`super::shape`]).
    pub deleted_shape: Option<u64>,
    /// End of the last `ensure` that had an outcome or was refused. Lists may not show its load
    /// balancer yet.
    pub ensured_at: Option<Timestamp>,
    /// End of the last `ensure` without a clear answer. The cloud may still carry it out.
    pub unsure_at: Option<Timestamp>,
    /// Whether this process has written the first record of an account to the Service. Then no
    /// earlier process has called `ensure`, because the record comes first.
    pub is_first_intent: bool,
    /// End of the last `delete` that may still take effect, or that lists may not show yet. It
    /// stays known if the Service wants a load balancer again.
    pub deleting_at: Option<Timestamp>,
    /// Start of the first of several calls that all answered `Working`.
    pub working_since: Option<Timestamp>,
    /// Consecutive failures of the last kind of call; 0 after a success. An answer that asks for a
    /// certain delay is not counted.
    pub failures: u32,
    /// Consecutive answers to `ensure` with the same inputs in which the cloud rejected a target
    /// without a visible reason.
    pub refusals: u32,
    /// The selector of the Nodes in the last `ensure` whose Service had a valid one. It applies
    /// while the annotation cannot be read.
    pub selector: Option<Selector>,
}

/// Fingerprint of a [`machinist_instance::BalancerSpec`] and of the Service's spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inputs {
    /// Fingerprint of everything but the targets.
    pub shape: u64,
    /// Fingerprint of the targets.
    pub targets: u64,
}

impl ServiceAnswers {
    /// The targets that the load balancer lacks, as far as the last `ensure` shows.
    pub fn skipped(&self) -> &[SkippedTarget] {
        match &self.ensure {
            Some((_, Answered { answer: Ok(Progress::Done(ensured)), .. })) => &ensured.skipped,
            Some(_) | None => &[],
        }
    }

    /// Stores an answer to `ensure`.
    pub fn take_ensure(&mut self, inputs: Inputs, answered: Answered<Progress<Ensured>>) {
        // The wait after a failure belongs to the inputs that failed.
        if self.ensure.as_ref().is_some_and(|(before, _)| *before != inputs) {
            (self.failures, self.refusals) = (0, 0);
        }
        self.count(&answered);
        if let Ok(Progress::Done(ensured)) = &answered.answer {
            let is_refused = ensured.skipped.iter().any(|skipped| skipped.cause == SkipCause::Refused);
            self.refusals = if is_refused { self.refusals.saturating_add(1) } else { 0 };
        }
        if matches!(answered.answer, Ok(Progress::Done(_))) {
            self.replaced = self.done.replace(inputs).filter(|before| *before != inputs);
        }
        match &answered.answer {
            Ok(_) => self.ensured_at = Some(answered.ended),
            Err(error) if is_refusal(error.kind) => self.ensured_at = Some(answered.ended),
            Err(_) => self.unsure_at = Some(answered.ended),
        }
        self.delete = None;
        self.ensure = Some((inputs, answered));
    }

    /// Stores an answer to `delete`.
    pub fn take_delete(&mut self, mut answered: Answered<Progress<BalancerDeletion>>) {
        self.count(&answered);
        let was_deleting = self.delete.as_ref().is_some_and(|last| {
            last.account == answered.account
                && matches!(last.answer, Ok(Progress::Working(_) | Progress::Done(BalancerDeletion::Gone)))
        });
        if was_deleting && answered.answer == Ok(Progress::Done(BalancerDeletion::Absent)) {
            answered.answer = Ok(Progress::Done(BalancerDeletion::Gone));
        }
        let may_delete = match &answered.answer {
            Ok(Progress::Working(_) | Progress::Done(BalancerDeletion::Gone)) => true,
            Ok(Progress::Done(BalancerDeletion::Absent | BalancerDeletion::Retained)) => false,
            Err(error) => !is_refusal(error.kind),
        };
        if may_delete {
            self.deleting_at = Some(answered.ended);
        }
        self.ensure = None;
        (self.done, self.replaced) = (None, None);
        self.delete = Some(answered);
    }

    /// The end of an earlier `delete` that may still hit a load balancer that the Service wants
    /// again.
    pub fn late_deletion(&self) -> Option<Timestamp> {
        self.deleting_at.filter(|_| self.ensure.is_some())
    }

    fn count<T>(&mut self, answered: &Answered<Progress<T>>) {
        self.working_since = match &answered.answer {
            Ok(Progress::Working(_)) => self.working_since.or(Some(answered.started)),
            Ok(Progress::Done(_)) | Err(_) => None,
        };
        match &answered.answer {
            Ok(_) => self.failures = 0,
            Err(error) if matches!(error.kind, ErrorKind::Throttled { retry_after: Some(_) }) => {}
            Err(_) => self.failures = self.failures.saturating_add(1),
        }
    }
}

/// Whether the cloud answered with a refusal. Then no request of the call is left that could create
/// the load balancer later.
fn is_refusal(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::InvalidSpec
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::Throttled { .. }
        | ErrorKind::Unsupported => true,
        ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Bug => false,
    }
}
