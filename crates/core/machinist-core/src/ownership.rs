//! Whether the account that is asked today is the one that an instance was made in.
//!
//! "Not found" in the wrong account reads as "everything is gone": a Secret that was exchanged for another project's would let every
//! Machine go and leave its instance behind. So an absence counts only in an account that is known to be the right one:
//!
//! - (a) The account that was recorded on the object, when its instance was made, is today's.
//! - (b) Today's account has shown this very instance; or one that is recorded by an object with the same recorded account. For an
//!   object without a recorded account (Go MCM records none): by an object of the same Secret that is as old or older.
//! - (c) The object has no recorded account, and nothing can be compared: then two absences ten minutes apart count, and an Event
//!   says so. Nothing can be compared when no other object of its Secret records an instance; or when it is the oldest that does, and
//!   today's account shows a younger one of its kind.
//!
//! A credential that is renewed within its project opens an account of another name, and (b) proves that it is the same. The evidence
//! is one list of the account, which is shared by all of its Machines and is asked for at most every five minutes.
//!
//! A process that saw an object from its beginning has made all calls for it: then the accounts of those calls take the place of (c).
//! So does the account that was written down with the intent, before the first call: in no other account is an instance asked for.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::AccountId;

use crate::snapshot::{Answers, MadeIn, Process, plus};

/// Two absences this far apart count where nothing can be compared.
pub const SECOND_LOOK_AFTER: Duration = Duration::from_secs(600);

/// What tells the accounts apart, for one object.
#[derive(Debug, Clone, Default, Hash)]
pub struct Ownership {
    /// The account that today's credential opens; absent while it cannot be opened.
    pub account: Option<AccountId>,
    /// The account that was recorded on the object when its instance was made.
    pub recorded: Option<AccountId>,
    /// The account in which the instance was to be made, as it was written before the first call.
    pub intended: Option<AccountId>,
    /// Whether today's account has shown an instance that is recorded by an object with the same recorded account.
    pub shows_recorded: bool,
    /// Whether today's account is known to be the one in which the instance was asked for, or was to be, under another name.
    pub shows_made_in: bool,
    /// The creation of the oldest object of the Secret whose instance today's account has shown.
    pub oldest_shown: Option<Timestamp>,
    /// Whether an object without a recorded account is among those.
    pub shows_unrecorded: bool,
    /// The other objects of the Secret that record an instance.
    pub others: Others,
    /// What a list of today's account has told so far.
    pub list: List,
}

/// The other objects of a Secret that record an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Others {
    /// There are none.
    #[default]
    None,
    /// There are, and all of them are younger than this one.
    Younger,
    /// There are, and one of them is as old as this one or older.
    AsOld,
}

/// How far the one list of an account has come that all of its objects share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum List {
    /// It was not asked for.
    #[default]
    NotAsked,
    /// It was asked for. Should its answer never come, it may be asked for again then.
    Asked(Timestamp),
    /// It was answered. It may be asked for again then.
    Ended(Timestamp),
    /// It failed. It may be asked for again then.
    Failed(Timestamp),
}

/// What an absence in today's account proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is the account of the instance.
    Proven,
    /// It is not known yet. A list of the account will tell.
    Ask,
    /// It is not known yet, and the list may not be asked for before that moment.
    Asked(Timestamp),
    /// Nothing can be compared: two absences ten minutes apart count.
    Incomparable,
    /// What was made with this Secret is not shown: it looks like another account. Look again then.
    Doubtful(Timestamp),
}

impl Ownership {
    /// What an absence of the recorded instance of an object proves.
    pub fn of_recorded(&self, created: Timestamp, answers: &Answers, now: Timestamp) -> Standing {
        if self.is_named_or_shown(answers) {
            return Standing::Proven;
        }
        match self.recorded {
            Some(_) => self.doubt(now),
            None => self.by_age(created, self.shows_unrecorded, now),
        }
    }

    /// What an absence of an instance proves that was never recorded.
    pub fn of_unrecorded(
        &self,
        created: Timestamp,
        answers: &Answers,
        process: &Process,
        now: Timestamp,
    ) -> Standing {
        if self.intended.is_some() && self.intended == self.account {
            return Standing::Proven;
        }
        let asked_here = match &answers.made_in {
            MadeIn::Nowhere => self.intended.is_none() || self.shows_made_in,
            MadeIn::Account(account) => self.account.as_ref() == Some(account) || self.shows_made_in,
            MadeIn::Several => false,
        };
        if !asked_here {
            return self.doubt(now);
        }
        if process.saw_the_birth_of(created) || self.is_named_or_shown(answers) {
            return Standing::Proven;
        }
        self.by_age(created, self.oldest_shown.is_some(), now)
    }

    /// From when on evidence about the account is worth a list although nothing waits for it: later, when an instance is gone, it
    /// cannot be had any more. Never again once a list was answered.
    pub fn is_worth_a_list_from(&self, answers: &Answers) -> Option<Timestamp> {
        if self.account.is_none() || self.is_named_or_shown(answers) {
            return None;
        }
        match self.list {
            List::NotAsked => Some(Timestamp::MIN),
            List::Asked(again_at) | List::Failed(again_at) => Some(again_at),
            List::Ended(_) => None,
        }
    }

    fn is_named_or_shown(&self, answers: &Answers) -> bool {
        let Some(today) = &self.account else { return false };
        self.recorded.as_ref() == Some(today)
            || self.shows_recorded
            || answers.shown_in.as_ref() == Some(today)
    }

    fn by_age(&self, created: Timestamp, shows_another: bool, now: Timestamp) -> Standing {
        if self.oldest_shown.is_some_and(|oldest| oldest <= created) {
            return Standing::Proven;
        }
        match self.others {
            Others::None => Standing::Incomparable,
            Others::Younger if shows_another => Standing::Incomparable,
            Others::Younger | Others::AsOld => self.doubt(now),
        }
    }

    fn doubt(&self, now: Timestamp) -> Standing {
        match self.list {
            List::NotAsked => Standing::Ask,
            List::Asked(again_at) | List::Ended(again_at) | List::Failed(again_at) if again_at <= now => {
                Standing::Ask
            }
            List::Asked(again_at) => Standing::Asked(again_at),
            List::Ended(again_at) | List::Failed(again_at) => Standing::Doubtful(again_at),
        }
    }
}

/// When the second of two absences counts, the first of which was seen by a look that began then.
pub fn second_look_at(first: Timestamp) -> Timestamp {
    plus(first, SECOND_LOOK_AFTER)
}
