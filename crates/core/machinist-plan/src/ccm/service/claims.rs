//! Names of load balancers: which Service of a cluster holds one that several want.
//!
//! The cloud accepts a name once. The second Service would pay for a load balancer that never gets
//! its name. So the name is claimed before the creation: by the Service whose load balancer has the
//! name, then by one whose creation has begun, then by the oldest one.

use machinist_instance::{NameClaim, Progress};

use super::{BalancerAnswers, ENSURE_BALANCER, Options, Snapshot, wants_balancer};
use crate::ccm::names::BALANCER_NAME;
use crate::facts::ServiceFacts;

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
pub fn has_begun(answers: &BalancerAnswers) -> bool {
    let last = answers.ensure.as_ref().map(|(_, last)| &last.answer);
    answers.in_flight.is_some_and(|(call, _)| call == ENSURE_BALANCER)
        || last.is_some_and(|last| last.as_ref().map_or_else(|error| error.kind.may_have_effect(), |_| true))
}

/// Returns the other Service that holds the wanted name.
pub(super) fn holder(s: &Snapshot) -> Option<&str> {
    let name = balancer_name(&s.service, &s.options)?;
    let ensured = s.answers.ensure.as_ref().and_then(|(_, last)| match &last.answer {
        Ok(Progress::Done(ensured)) => Some(&ensured.balancer),
        Ok(Progress::Working(_)) | Err(_) => None,
    });
    let own = ensured.or(s.listed.as_ref().and_then(|listed| listed.balancer.as_ref()));
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

/// Returns the right of a Service to the name of its load balancer.
pub(super) fn claim(s: &Snapshot) -> NameClaim {
    let service = &s.service;
    NameClaim {
        held_by: holder(s).map(|holder| format!("Service {holder}")),
        adopts: s.options.adopts_in.as_ref().is_none_or(|all| all.contains(&service.namespace)),
        invited_as: Some(format!("{}.{}", service.namespace, service.name)),
    }
}
