//! Decides whether today's cloud account is the account in which an instance was created.
//!
//! In the wrong account every instance is "not found". If a Secret were replaced by the Secret of
//! another project, every Machine would be deleted while its instance kept running. So an absence
//! counts only in an account that is known to be the right one:
//!
//! - (a) Today's account is the account that was recorded on the object when its instance was
//!   created.
//! - (b) Today's account has shown this instance, or its end, or an instance recorded by an object
//!   with the same recorded account. For an object without a recorded account (Go MCM records
//!   none), the other object must use the same Secret and be as old or older.
//! - (c) The object has no recorded account, and there is nothing to compare with. Then two
//!   absences ten minutes apart count, and an Event reports this. There is nothing to compare with
//!   in two cases: no other object of the Secret records an instance; or this object is the oldest
//!   that does, and today's account shows a younger instance of the same kind.
//!
//! A credential that is renewed within its project opens an account with another name, and (b)
//! proves that both are the same. The evidence is one list of the account. All Machines of the
//! account share the list, and it is requested at most every five minutes.
//!
//! A process that has watched an object since its creation has made all calls for it. Then the
//! accounts of those calls replace (c). The account that was written with the intent, before the
//! first call, also replaces (c): no other account is asked for the instance.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{AccountId, Instance, InstanceKey};

use crate::snapshot::{Answers, MadeIn, Process, plus};

/// Two absences this far apart count if there is nothing to compare with.
pub const SECOND_LOOK_AFTER: Duration = Duration::from_secs(600);

/// The facts that distinguish cloud accounts, for one object.
#[derive(Debug, Clone, Default, Hash)]
pub struct Ownership {
    /// The account that today's credential opens; absent while the credential opens none.
    pub account: Option<AccountId>,
    /// The account that was recorded on the object when its instance was created.
    pub recorded: Option<AccountId>,
    /// The account in which the instance was to be created, as written before the first call.
    pub intended: Option<AccountId>,
    /// Whether today's account has shown an instance of an object with the same recorded account.
    pub shows_recorded: bool,
    /// Whether today's account is known, under another name, as the account in which creation was
    /// requested or intended.
    pub shows_made_in: bool,
    /// Creation time of the Secret's oldest object with an instance that today's account has shown.
    pub oldest_shown: Option<Timestamp>,
    /// Whether an object without a recorded account is among the shown objects.
    pub shows_unrecorded: bool,
    /// The other objects of the Secret that record an instance.
    pub others: Others,
    /// State of the list of today's account.
    pub list: List,
}

/// The age of the other objects of a Secret that record an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Others {
    /// There are no other objects.
    #[default]
    None,
    /// All other objects are younger than this one.
    Younger,
    /// At least one other object is as old as this one or older.
    AsOld,
}

impl Others {
    /// Returns the age class after one more object, for an object of that creation time.
    #[must_use]
    pub fn and(self, other: Timestamp, created: Timestamp) -> Self {
        match self {
            Self::AsOld => Self::AsOld,
            Self::None | Self::Younger if other <= created => Self::AsOld,
            Self::None | Self::Younger => Self::Younger,
        }
    }
}

/// Whether an instance with the recorded id of an object shows the account of that object. A
/// restored object has a new key, and its instance has the old key and the tag of our cluster.
/// Other programs create instances without a key.
pub fn shows_account(instance: &Instance, key: &InstanceKey, cluster: &str) -> bool {
    match &instance.key {
        None => true,
        Some(of) => of == key || instance.cluster.as_deref() == Some(cluster),
    }
}

/// State of the account's list, which all objects of the account share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum List {
    /// The list was not requested.
    #[default]
    NotAsked,
    /// The list was requested. If no answer arrives, it may be requested again at this moment.
    Asked(Timestamp),
    /// The list was answered. It may be requested again at this moment.
    Ended(Timestamp),
    /// The list failed. It may be requested again at this moment.
    Failed(Timestamp),
}

/// How much an absence in today's account proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Today's account is the account of the instance.
    Proven,
    /// Not known yet. A list of the account answers it.
    Ask,
    /// Not known yet, and the list may not be requested before this moment.
    Asked(Timestamp),
    /// There is nothing to compare with: two absences ten minutes apart count.
    Incomparable,
    /// No instance created with this Secret is visible: this seems to be another account. Look
    /// again at this moment.
    Doubtful(Timestamp),
}

impl Ownership {
    /// Returns how much an absence proves for an object that records its instance.
    pub fn of_recorded(&self, created: Timestamp, answers: &Answers, now: Timestamp) -> Standing {
        if self.is_named_or_shown(answers) {
            return Standing::Proven;
        }
        match self.recorded {
            Some(_) => self.doubt(now),
            None => self.by_age(created, self.shows_unrecorded, now),
        }
    }

    /// Returns how much an absence proves for an object that never recorded an instance.
    pub fn of_unrecorded(
        &self,
        created: Timestamp,
        answers: &Answers,
        process: &Process,
        now: Timestamp,
    ) -> Standing {
        let is_made_elsewhere = match &answers.made_in {
            MadeIn::Nowhere => false,
            MadeIn::Account(account) => self.account.as_ref() != Some(account),
            MadeIn::Several => true,
        };
        if self.intended.is_some() && self.intended == self.account && !is_made_elsewhere {
            return Standing::Proven;
        }
        let asked_here = match &answers.made_in {
            // A process that has watched the object since its creation knows that the intended call
            // had no effect.
            MadeIn::Nowhere => {
                self.intended.is_none() || self.shows_made_in || process.saw_creation_of(created)
            }
            MadeIn::Account(account) => self.account.as_ref() == Some(account) || self.shows_made_in,
            MadeIn::Several => false,
        };
        if !asked_here {
            return self.doubt(now);
        }
        if process.saw_creation_of(created) || self.is_named_or_shown(answers) {
            return Standing::Proven;
        }
        self.by_age(created, self.oldest_shown.is_some(), now)
    }

    /// Returns from when on a list of the account is worth its cost although nothing waits for it.
    /// The evidence must be collected while instances exist. After one answered list, no further
    /// list is needed.
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

/// Returns when the second of two absences counts. `first` is when the lookup that saw the first
/// absence began.
pub fn second_look_at(first: Timestamp) -> Timestamp {
    plus(first, SECOND_LOOK_AFTER)
}
