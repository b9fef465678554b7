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
mod case;
mod creation;
mod deletion;
mod ending;
mod identity;
mod initialization;
mod ownership;
mod places;
mod reading;
mod refusals;
mod routing;
mod subject;
mod unknown_outcomes;
mod volumes;

use std::fmt;

use self::bench::Bench;
use self::case::Case;
use self::ending::{Ending, Played};
pub use self::subject::{DriverVerb, Hook, Subject, Trouble};

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
    subject.clear_trouble().await;
    let balancers = balancing::clean_up(&bench).await;
    let routes = routing::clean_up(&bench).await;
    let instances = bench.clean_up().await;
    ended.and(balancers).and(routes).and(instances)
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
