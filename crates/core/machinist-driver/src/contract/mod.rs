//! The contract suite that every driver passes. It covers delayed reads, faults and unknown
//! outcomes.
//!
//! The tests of a driver implement [`Subject`]: the provider under test, and the hooks with which
//! its cloud can produce trouble. [`run`] plays every case against the subject and returns a
//! [`Report`]. If a cloud lacks a hook, the report lists the case as skipped. Each case creates
//! instances under new keys and deletes them at its end. So the suite can run against an account
//! that has other instances. Cases for balancers, routes, volumes and initialization are
//! skipped for a driver without them.
//!
//! Deliberately absent: speed, prices, quotas of real clouds, and facts from Kubernetes objects.

mod balancing;
mod bench;
mod creation;
mod deletion;
mod identity;
mod initialization;
mod ownership;
mod places;
mod reading;
mod refusals;
mod routing;
mod unknown_outcomes;
mod volumes;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, ProviderId, VolumeSource};
use serde_json::Value;

use crate::Provider;
use bench::Bench;

/// Number of letters of a DNS label. In most clouds the name of an instance is one.
const LABEL_LETTERS: usize = 63;

/// A driver under test, and the hooks of its cloud.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The provider under test.
    fn provider(&self) -> &dyn Provider;

    /// An account that may create instances.
    fn account(&self) -> (AccountId, Credential);

    /// A credential of another account of the same cloud, if one exists.
    fn another_account(&self) -> Option<Credential>;

    /// A valid provider spec of the smallest and cheapest instance.
    fn provider_spec(&self) -> Value;

    /// A valid provider spec of an instance in another place of the cloud; `None` if the cloud has
    /// one place only.
    fn elsewhere(&self) -> Option<Value> {
        None
    }

    /// A valid provider spec in the same place with another key scope; `None` if a key counts in
    /// the whole place.
    fn other_key_scope(&self) -> Option<Value> {
        None
    }

    /// A provider spec whose instances need an initialization; `None` if the cloud has no such
    /// instances.
    fn uninitialized_spec(&self) -> Option<Value> {
        None
    }

    /// A provider spec with one mistake, and the field that the error must name.
    fn broken_spec(&self) -> (Value, &'static str);

    /// Other spellings of the instance's id that a Machine or a Node may have; empty if the cloud
    /// has one spelling only.
    fn other_spellings(&self, _id: &ProviderId) -> Vec<String> {
        Vec::new()
    }

    /// Ids of another cloud; empty if the provider accepts every text as its own id.
    fn foreign_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Texts that resemble an id of this provider but are malformed; empty if the provider accepts
    /// every text as its own id.
    fn malformed_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// The name with which the kubelet of the instance of that name registers its Node.
    fn node_name(&self, name: &NodeName) -> NodeName {
        name.clone()
    }

    /// Number of letters that the name of an instance may have.
    fn longest_name(&self) -> usize {
        LABEL_LETTERS
    }

    /// An id of this run, unique among all runs against the account. Keys and names contain it.
    fn run_id(&self) -> String;

    /// The time of the cloud.
    fn now(&self) -> Timestamp;

    /// Waits, or advances the clock of the driver and its cloud.
    async fn wait(&self, span: Duration);

    /// Arranges trouble for the following calls.
    async fn arrange(&self, trouble: Trouble) -> Hook;

    /// Ends all arranged trouble.
    async fn calm(&self);

    /// Creates an instance with a name, without a key and with that creation time, as another
    /// program would.
    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook;

    /// Counts the instances of a key in the records of the cloud; `None` if only the driver can
    /// count them.
    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize>;

    /// Counts the requests so far that can change the cloud; `None` if the cloud does not count.
    async fn changing_requests(&self) -> Option<u64> {
        None
    }

    /// Options without which the cloud creates no balancer.
    fn balancer_options(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Two volumes of this cloud, as their PersistentVolumes name them; empty if the cloud attaches
    /// no volumes.
    fn volumes(&self) -> Vec<VolumeSource> {
        Vec::new()
    }

    /// A range of pod addresses in CIDR notation for a route. Different numbers give different
    /// ranges.
    fn pod_range(&self, number: u8) -> String {
        format!("10.244.{number}.0/24")
    }
}

/// Whether a subject could arrange the situation that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// The situation is arranged.
    Arranged,
    /// This cloud cannot produce the situation.
    Missing,
}

/// The trouble that a case can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The next call takes effect, and the cloud returns an error.
    ErrorAfterEffect(DriverVerb),
    /// The next call takes effect, and the cloud never answers.
    SilenceAfterEffect(DriverVerb),
    /// The connection of the next call breaks at once. The call takes effect shortly before the
    /// call bound ends.
    LateEffect(DriverVerb),
    /// The cloud rejects the next call without effect, as in a temporary outage.
    Outage(DriverVerb),
    /// The cloud throttles the next call and returns a `Retry-After`.
    Throttled(DriverVerb),
    /// Reads show the next instance as late as the promise permits.
    SlowReads,
    /// Deletions take some time, during which reads still show the instance.
    SlowDeletion,
    /// The cloud no longer accepts the credential of the account.
    RevokedCredential,
    /// The quota of the account is used up.
    QuotaUsedUp,
    /// The cloud has no capacity left for the instance type.
    StockUsedUp,
    /// The next creation makes the parts that an instance needs before it, and is then rejected.
    RefusedAfterParts,
}

/// The calls for which trouble can be arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverVerb {
    /// [`Instances::ensure`](crate::Instances::ensure).
    Ensure,
    /// [`Instances::find`](crate::Instances::find).
    Find,
    /// [`Instances::list`](crate::Instances::list).
    List,
    /// [`Instances::delete`](crate::Instances::delete).
    Delete,
}

/// The result of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The driver obeys the rule.
    Passed,
    /// The case could not be played. The text says why.
    Skipped(String),
    /// The driver breaks the rule. The text says how.
    Failed(String),
}

/// The results of all cases, in the order in which they ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The name of each case and its result. The name is the rule that the case checks.
    pub cases: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// The rules that the driver breaks, each with an explanation.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.cases.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Failed(how) => Some((*name, how.as_str())),
            Verdict::Passed | Verdict::Skipped(_) => None,
        })
    }

    /// The rules that could not be checked, each with the reason.
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

/// The reason why a case ends early.
#[derive(Debug)]
pub(crate) enum Ending {
    Skip(String),
    Fail(String),
}

/// The return type of a case. The operator `?` ends a case early.
pub(crate) type Played<T = ()> = Result<T, Ending>;

pub(crate) struct Case {
    name: &'static str,
    play: for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Played>,
}

/// Builds the list of cases from their functions, so that the name of a rule is written once.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[$crate::contract::Case] = &[$(
            $crate::contract::Case { name: stringify!($name), play: |bench| Box::pin($name(bench)) }
        ),*];
    };
}
use cases;

/// Plays all cases against the subject, one after another.
pub async fn run(subject: &dyn Subject) -> Report {
    let groups = [
        creation::CASES,
        identity::CASES,
        reading::CASES,
        deletion::CASES,
        ownership::CASES,
        places::CASES,
        unknown_outcomes::CASES,
        refusals::CASES,
        balancing::CASES,
        routing::CASES,
        volumes::CASES,
        initialization::CASES,
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
    let balancers = balancing::clean_up(&bench).await;
    let routes = routing::clean_up(&bench).await;
    let instances = bench.clean_up().await;
    ended.and(balancers).and(routes).and(instances)
}
