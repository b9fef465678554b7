//! Proof from the accounts of a process, for the ownership rules of `machinist_core::ownership`.
//! Every contract collects this proof in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::ownership::{List, Ownership};
use machinist_core::{MadeIn, plus};
use machinist_instance::AccountId;

/// Minimum interval between two lists of an account that serve only as proof.
const LIST_AT_MOST_EVERY: Duration = Duration::from_secs(300);
/// Delay before a list that failed, or did not begin, is repeated.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of remembered accounts: each change of a credential may open another account. A
/// forgotten account costs one list.
const MAX_ACCOUNTS: usize = 64;

/// The proofs of all accounts. `Opener` identifies the credential that opens an account.
#[derive(Debug)]
pub(crate) struct AccountProofs<Opener>(BTreeMap<AccountId, Shown<Opener>>);

impl<Opener> Default for AccountProofs<Opener> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The instances that one account has shown.
#[derive(Debug)]
struct Shown<Opener> {
    /// Accounts that objects recorded and whose instances this account shows: other names of this
    /// account.
    same_as: BTreeSet<AccountId>,
    /// Shown instances, by credential.
    by_opener: BTreeMap<Opener, ShownOfOpener>,
    list: List,
}

impl<Opener> Default for Shown<Opener> {
    fn default() -> Self {
        Self { same_as: BTreeSet::new(), by_opener: BTreeMap::new(), list: List::default() }
    }
}

#[derive(Debug)]
struct ShownOfOpener {
    /// Creation time of the oldest object whose instance was shown.
    oldest: Timestamp,
    /// Whether one of these objects has no recorded account.
    has_unrecorded: bool,
}

impl<Opener: Ord> AccountProofs<Opener> {
    /// Records that an account shows the instance of an object: which credential opens its account,
    /// if that is known, and the account that was recorded on the object.
    pub(crate) fn add(
        &mut self,
        account: &AccountId,
        opener: Option<Opener>,
        recorded: Option<AccountId>,
        created: Timestamp,
    ) {
        let is_unrecorded = recorded.is_none();
        let shown = self.of(account);
        shown.same_as.extend(recorded);
        let Some(opener) = opener else { return };
        let unknown = ShownOfOpener { oldest: created, has_unrecorded: false };
        let of_opener = shown.by_opener.entry(opener).or_insert(unknown);
        of_opener.oldest = of_opener.oldest.min(created);
        of_opener.has_unrecorded |= is_unrecorded;
    }

    /// Whether an account has shown the instance of an object.
    pub(crate) fn shows_any(&self, account: &AccountId) -> bool {
        self.0.get(account).is_some_and(|shown| !shown.by_opener.is_empty())
    }

    /// Completes the facts about ownership with what today's account has shown.
    pub(crate) fn complete(&self, facts: &mut Ownership, opener: Option<&Opener>, made_in: &MadeIn) {
        let Some(shown) = facts.account.as_ref().and_then(|today| self.0.get(today)) else { return };
        facts.list = shown.list;
        facts.shows_recorded = facts.recorded.as_ref().is_some_and(|account| shown.same_as.contains(account));
        facts.shows_made_in = match (made_in, &facts.intended) {
            (MadeIn::Account(account), _) => shown.same_as.contains(account),
            (MadeIn::Nowhere, Some(account)) => shown.same_as.contains(account),
            (MadeIn::Nowhere, None) | (MadeIn::Several, _) => false,
        };
        let of_opener = opener.and_then(|opener| shown.by_opener.get(opener));
        facts.oldest_shown = of_opener.map(|shown| shown.oldest);
        facts.shows_unrecorded = of_opener.is_some_and(|shown| shown.has_unrecorded);
    }

    /// Returns whether an account may be listed now, given the end of its last list. If so, other
    /// objects wait for this list. They do not wait long, because the call may never begin.
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
        self.of(account).list = if worked {
            List::Ended(plus(now, LIST_AT_MOST_EVERY))
        } else {
            List::Failed(plus(now, LIST_AGAIN_AFTER))
        };
    }

    /// Resets the times of all lists. The proof itself stays valid.
    pub(crate) fn forget_moments(&mut self) {
        for shown in self.0.values_mut() {
            shown.list = List::NotAsked;
        }
    }

    fn of(&mut self, account: &AccountId) -> &mut Shown<Opener> {
        if self.0.len() >= MAX_ACCOUNTS && !self.0.contains_key(account) {
            self.0.clear();
        }
        self.0.entry(account.clone()).or_default()
    }
}
