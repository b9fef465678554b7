//! The suite that every driver passes, lag, faults and unknown outcomes included.
//!
//! A driver's own tests bring a [`Subject`]: the provider under test, and whatever hooks its cloud offers to
//! arrange trouble. [`run`] plays every case against it and gives a [`Report`]: a case whose hook is missing is
//! skipped by name, never silently. Cases make their own instances under fresh keys and delete what they made, so
//! the suite can run against an account that holds other things.
//!
//! Deliberately absent: speed, prices, quotas of real clouds, and anything a Kubernetes object could tell.

mod bench;
mod creation;
mod deletion;
mod identity;
mod ownership;
mod reading;
mod refusals;
mod unknown_outcomes;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, ProviderId};
use serde_json::Value;

use crate::Provider;
use bench::Bench;

/// A driver under test, with what its cloud lets a test arrange.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The provider under test.
    fn provider(&self) -> &dyn Provider;

    /// An account that may make instances.
    fn account(&self) -> (AccountId, Credential);

    /// A credential of another account of the same cloud, if there is one.
    fn another_account(&self) -> Option<Credential>;

    /// A provider spec that the provider accepts: the smallest and cheapest instance there is.
    fn provider_spec(&self) -> Value;

    /// A provider spec with one mistake, and the field that an error about it must name.
    fn broken_spec(&self) -> (Value, &'static str);

    /// How else a Machine or a Node may spell the id of that instance; nothing if there is one way only.
    fn other_spellings(&self, _id: &ProviderId) -> Vec<String> {
        Vec::new()
    }

    /// Texts that are ids of another cloud; nothing if the provider takes every text for an id of its own.
    fn foreign_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Texts that look like an id of this provider and are none; nothing if the provider takes every text for one.
    fn malformed_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Something that no other run of the suite against this account has: it becomes part of keys and names.
    fn run_id(&self) -> String;

    /// The time as the cloud shows it.
    fn now(&self) -> Timestamp;

    /// Lets time pass, for the driver and its cloud alike.
    async fn wait(&self, span: Duration);

    /// Arranges trouble for the calls that follow.
    async fn arrange(&self, trouble: Trouble) -> Hook;

    /// Ends all arranged trouble.
    async fn calm(&self);

    /// Makes an instance that has a name and no key, as another program would, at that time.
    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook;

    /// How many instances exist for a key by the cloud's own books; `None` if only the driver can say.
    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize>;
}

/// Whether a subject could do what a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// It is arranged.
    Arranged,
    /// This cloud offers no way to arrange it.
    Missing,
}

/// What can be arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The next such call takes effect and is answered with an error.
    ErrorAfterEffect(Verb),
    /// The next such call takes effect and is never answered.
    SilenceAfterEffect(Verb),
    /// The next such call breaks off at once and takes effect just before the call bound ends.
    LateEffect(Verb),
    /// The next such call is refused before any effect, as a passing outage.
    Outage(Verb),
    /// The next such call is refused because there were too many, with a time to come back.
    Throttled(Verb),
    /// The next instance is shown by reads as late as the promise permits.
    SlowReads,
    /// Deletions take a while, during which the instance is still shown.
    SlowDeletion,
    /// The account's credential opens nothing any more.
    RevokedCredential,
    /// The account may have no more instances than it has.
    QuotaUsedUp,
    /// The cloud has no more instances of the kind.
    StockUsedUp,
}

/// The calls that trouble can be arranged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `ensure`.
    Ensure,
    /// `find`.
    Find,
    /// `list`.
    List,
    /// `delete`.
    Delete,
}

/// How one case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The driver keeps the rule.
    Passed,
    /// The case could not be played, and why.
    Skipped(String),
    /// The driver breaks the rule, and how.
    Failed(String),
}

/// How all cases ended, in the order in which they ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The name of each case, which is the rule it checks, and its verdict.
    pub cases: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// The rules that were broken.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.cases.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Failed(how) => Some((*name, how.as_str())),
            Verdict::Passed | Verdict::Skipped(_) => None,
        })
    }

    /// The rules that could not be checked.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.cases.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Skipped(why) => Some((*name, why.as_str())),
            Verdict::Passed | Verdict::Failed(_) => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.cases {
            match verdict {
                Verdict::Passed => writeln!(f, "passed   {name}")?,
                Verdict::Skipped(why) => writeln!(f, "skipped  {name}: {why}")?,
                Verdict::Failed(how) => writeln!(f, "FAILED   {name}: {how}")?,
            }
        }
        Ok(())
    }
}

/// Why a case ends before its last line.
#[derive(Debug)]
pub(crate) enum Ending {
    Skip(String),
    Fail(String),
}

/// What a case returns; `?` on it is how a case stops.
pub(crate) type Played<T = ()> = Result<T, Ending>;

pub(crate) struct Case {
    name: &'static str,
    play: for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Played>,
}

/// Lists cases by the functions that play them: a rule's name is written once.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[$crate::contract::Case] = &[$(
            $crate::contract::Case { name: stringify!($name), play: |bench| Box::pin($name(bench)) }
        ),*];
    };
}
use cases;

/// Plays every case against the subject, one after the other.
pub async fn run(subject: &dyn Subject) -> Report {
    let groups = [
        creation::CASES,
        identity::CASES,
        reading::CASES,
        deletion::CASES,
        ownership::CASES,
        unknown_outcomes::CASES,
        refusals::CASES,
    ];
    let mut cases = Vec::new();
    for case in groups.into_iter().flatten() {
        let verdict = match play(subject, case).await {
            Ok(()) => Verdict::Passed,
            Err(Ending::Skip(why)) => Verdict::Skipped(why),
            Err(Ending::Fail(how)) => Verdict::Failed(how),
        };
        cases.push((case.name, verdict));
    }
    Report { cases }
}

async fn play(subject: &dyn Subject, case: &Case) -> Played {
    let bench = Bench::open(subject, case.name)?;
    let ended = (case.play)(&bench).await;
    subject.calm().await;
    let cleaned = bench.clean_up().await;
    ended.and(cleaned)
}
