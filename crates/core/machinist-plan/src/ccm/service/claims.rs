//! Names of load balancers: which Service of a cluster holds a name that several want.
//!
//! The cloud accepts a name once. The second Service would pay for a load balancer that never gets
//! its name. So the name is claimed before the creation: by the Service whose load balancer has the
//! name, then by one whose creation has begun, then by the oldest one.
//!
//! Every creation of a load balancer for one Service uses the same first name, which is made of its
//! UID. So the cloud refuses a second one, as long as the first one has that name. A request
//! without an answer may take effect late, and lists show a new load balancer late. So a load
//! balancer gets the name that its Service chooses only when it is older than both together.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Step, minus, plus};
use machinist_instance::{Balancer, BalancerNote, Ensured, NameClaim, Progress};

use super::action::ENSURE_BALANCER;
use super::answers::ServiceAnswers;
use super::late_calls::{earlier_calls_end, own_creations_end};
use super::options::Options;
use super::served::wants_balancer;
use super::snapshot::Snapshot;
use crate::ccm::facts::ServiceFacts;
use crate::ccm::names::BALANCER_NAME;
use crate::ccm::why::{CcmReason, Why};

/// Margin of the planner: the driver is asked only when it will also find the load balancer old
/// enough. The measured difference of the clocks varies by less between two decisions.
const CLOCKS_VARY_BY: Duration = Duration::from_secs(5);

/// Wait before another try, if the cloud shows the first name although the driver has changed it.
const RENAMED_AGAIN: Duration = Duration::from_secs(60);

/// Length of the longest name of a load balancer.
const MAX_NAME_LEN: usize = 32;

/// Returns the name of a load balancer whose Service names none: the letter `a` and the UID without
/// dashes.
pub(super) fn default_name(uid: &str) -> String {
    let letters = uid.chars().filter(|letter| *letter != '-');
    std::iter::once('a').chain(letters).take(MAX_NAME_LEN).collect()
}

/// Returns the name that a Service chooses for its load balancer.
pub fn balancer_name<'s>(service: &'s ServiceFacts, options: &Options) -> Option<&'s str> {
    let name = service.annotations.get(&format!("{}{BALANCER_NAME}", options.prefix))?.trim();
    (!name.is_empty()).then_some(name)
}

/// Whether a Service has, or may get, a load balancer of this program, so that its claim counts.
pub fn may_hold_a_name(service: &ServiceFacts, options: &Options) -> bool {
    let may_be_created = service.deleting_since.is_none() && wants_balancer(service, options);
    // A change of the type removes the class.
    let is_ours = service.class.as_ref().is_none_or(|class| *class == options.class);
    may_be_created || (service.has_finalizer && is_ours)
}

/// Whether this process has begun to create a load balancer, and the cloud has not refused it.
pub fn has_begun(answers: &ServiceAnswers) -> bool {
    let last = answers.ensure.as_ref().map(|(_, last)| &last.answer);
    answers.in_flight.is_some_and(|(call, _)| call == ENSURE_BALANCER)
        || last.is_some_and(|last| last.as_ref().map_or_else(|error| error.kind.may_have_effect(), |_| true))
}

/// Returns the other Service that holds the wanted name.
pub(super) fn holder(s: &Snapshot) -> Option<&str> {
    let name = balancer_name(&s.service, &s.options)?;
    let own = ensured(s).or(s.listed.as_ref().and_then(|listed| listed.balancer.as_ref()));
    let has_name = |balancer: Option<&str>| balancer == Some(name);
    let order = |name: Option<&str>, has_begun: bool| (!has_name(name), !has_begun);
    let service = &s.service;
    let mine = order(own.map(|own| own.name.as_str()), has_begun(&s.answers));
    let mine = (mine, service.created, &service.uid);
    let claims = s.rivals.iter().map(|rival| {
        let claim = order(rival.balancer_name.as_deref(), rival.has_begun);
        ((claim, rival.created, &rival.uid), rival.service.as_str())
    });
    claims.min().filter(|(first, _)| *first < mine).map(|(_, service)| service)
}

fn ensured(s: &Snapshot) -> Option<&Balancer> {
    s.answers.ensure.as_ref().and_then(|(_, last)| match &last.answer {
        Ok(Progress::Done(ensured)) => Some(&ensured.balancer),
        Ok(Progress::Working(_)) | Err(_) => None,
    })
}

/// Returns the id of the load balancer that this process has seen last, or that the Service
/// records. The driver asks for it before a creation, because a list may lack the load balancer.
pub(super) fn known_balancer(s: &Snapshot) -> Option<String> {
    let recorded = || s.service.recorded_balancer().and_then(|record| record.id).map(str::to_owned);
    ensured(s).map(|balancer| balancer.id.clone()).or_else(recorded)
}

/// Returns how old a load balancer must be before its first name is given away: then no creation
/// that began before the lists showed it can still take effect. Its age is the difference
/// between two clocks.
fn keeps_first_name_for(s: &Snapshot) -> Duration {
    s.process.promises.absence_takes().saturating_add(s.process.cloud_tolerance())
}

/// Returns when the driver is asked to rename a load balancer that still has its first name. `None`
/// if it has the name that its Service chooses, or cannot get it.
pub(super) fn renamed_at<T>(s: &Snapshot, ensured: &Ensured, last: &Answered<T>) -> Option<Timestamp> {
    let first_name = default_name(&s.service.uid);
    let name = balancer_name(&s.service, &s.options)?;
    let is_taken = ensured.notes.iter().any(|note| note.reason == BalancerNote::NAME_TAKEN);
    if ensured.balancer.name != first_name || name == first_name || is_taken || holder(s).is_some() {
        return None;
    }
    let old_at = plus(ensured.balancer.created?, keeps_first_name_for(s) + CLOCKS_VARY_BY);
    Some(if last.started < old_at { old_at } else { plus(last.ended, RENAMED_AGAIN) })
}

/// Returns the reason for a load balancer that still has its first name.
pub(super) fn why(s: &Snapshot, ensured: &Ensured, renamed_at: Option<Timestamp>) -> Option<Why> {
    let (first_name, name) =
        (ensured.balancer.name.clone(), balancer_name(&s.service, &s.options)?.to_owned());
    let reason = CcmReason::BalancerNameKept { first_name, name };
    Some(Why::new(reason, Step::Repeat(ENSURE_BALANCER, renamed_at?)))
}

/// Returns the right of a Service to the name of its load balancer.
pub(super) fn claim(s: &Snapshot) -> NameClaim {
    let service = &s.service;
    NameClaim {
        held_by: holder(s).map(|holder| format!("Service {holder}")),
        adopts: s.options.adopts_in.as_ref().is_none_or(|all| all.contains(&service.namespace)),
        invited_as: Some(format!("{}.{}", service.namespace, service.name)),
        renames_if_created_before: Some(minus(s.now, keeps_first_name_for(s))),
        has_open_creation: s.now < own_creations_end(s).max(earlier_creations_end(s)),
    }
}

/// Returns the moment from which calls of earlier processes can no longer create the load balancer,
/// and lists show it if it exists.
fn earlier_creations_end(s: &Snapshot) -> Timestamp {
    if s.answers.is_first_intent { Timestamp::MIN } else { earlier_calls_end(s) }
}

/// Returns the part of a claim whose change leads to another call. The rest follows the time.
pub(super) fn lasting(claim: &NameClaim) -> NameClaim {
    NameClaim { renames_if_created_before: None, has_open_creation: false, ..claim.clone() }
}
