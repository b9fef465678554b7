//! The cloud-controller-manager, broken on purpose in several ways. A named invariant must catch
//! each mutant, on seeds that the correct program passes.
//!
//! | mutant | what is broken | caught by |
//! |---|---|---|
//! | list alone | a server that a list lacks is taken as deleted, without a lookup by id | C4 |
//! | absent by name | a server that a lookup by name does not find is taken as deleted | C4 |
//! | hasty release | a load balancer that one call does not find is taken as deleted at once | C3 |
//! | taint first | the taint is removed before the addresses are written | C5 |
//! | forgotten targets | a target that the cloud refused is never tried again | L1 |
//! | ignored taints | a Node that loses the taint of the autoscaler wakes nothing | L9 |
//! | missed recovery | the end of an outage of the cloud ends no wait | L8 |
//! | present by name | a server of the same name is taken as proof that the Node's server exists | L1 |
//! | hasty takeover | a replica deletes Nodes as soon as it has taken over | C10 |
//! | blind rivals | Services do not see that another one has chosen the same name | C12 |
//! | silent orphans | a load balancer without a Service is not reported | C9 |
//! | renewed wait | each life begins the wait for calls of earlier lives again | C11 |

use std::sync::Arc;
use std::time::Duration;

use machinist_controllers::ccm::Planners;
use machinist_core::reverted::Fix;
use machinist_core::{Answers, Wait};
use machinist_instance::{InstanceRef, NodeName, Progress, ProviderId, RecordedId};
use machinist_plan::ccm::{CcmReason, Plan, Reason, balancer_drift, node, node_removal, service};

use crate::invariants::Id;
use crate::mutation::Mutation;

/// One way in which the program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Mutant {
    /// A server that a list lacks is taken as deleted.
    ListAlone,
    /// A server that a lookup by name does not find is taken as deleted.
    AbsentByName,
    /// A server of the same name is taken as proof that the Node's server exists.
    PresentByName,
    /// A load balancer that one call does not find is taken as deleted at once.
    HastyRelease,
    /// The taint of an uninitialised Node is removed before its addresses are written.
    TaintFirst,
    /// A target that the cloud refused is never tried again.
    ForgottenTargets,
    /// A Node that loses the taint of the autoscaler wakes nothing.
    IgnoredTaints,
    /// The end of an outage of the cloud ends no wait.
    MissedRecovery,
    /// A replica deletes Nodes as soon as it has taken over.
    HastyTakeover,
    /// Services do not see that another one has chosen the same name.
    BlindRivals,
    /// Each life begins the wait for calls of earlier lives again.
    RenewedWait,
    /// A load balancer without a Service is not reported.
    SilentOrphans,
}

impl Mutation for Mutant {
    fn caught_by(self) -> Id {
        match self {
            Self::ListAlone | Self::AbsentByName => Id::C4,
            Self::PresentByName | Self::ForgottenTargets => Id::L1,
            Self::IgnoredTaints => Id::L9,
            Self::MissedRecovery => Id::L8,
            Self::HastyRelease => Id::C3,
            Self::TaintFirst => Id::C5,
            Self::SilentOrphans => Id::C9,
            Self::HastyTakeover => Id::C10,
            Self::RenewedWait => Id::C11,
            Self::BlindRivals => Id::C12,
        }
    }

    fn recorded(self) -> Option<u64> {
        Some(match self {
            Self::ListAlone | Self::PresentByName | Self::TaintFirst => 0,
            Self::AbsentByName => 1,
            Self::HastyRelease => 12,
            Self::ForgottenTargets => 114,
            Self::IgnoredTaints => 230,
            Self::MissedRecovery => 827,
            Self::HastyTakeover => 43,
            Self::BlindRivals => 30,
            Self::RenewedWait => 319,
            Self::SilentOrphans => 46,
        })
    }

    fn reverts(self) -> Option<Fix> {
        match self {
            Self::IgnoredTaints => Some(Fix::TaintsChangeTargets),
            Self::HastyTakeover => Some(Fix::TakeoverWaits),
            Self::ListAlone
            | Self::AbsentByName
            | Self::PresentByName
            | Self::HastyRelease
            | Self::TaintFirst
            | Self::ForgottenTargets
            | Self::MissedRecovery
            | Self::BlindRivals
            | Self::RenewedWait
            | Self::SilentOrphans => None,
        }
    }
}

impl Mutant {
    /// The mutant's planners.
    pub fn planners(self) -> Planners {
        let sound = Planners::default();
        match self {
            Self::ListAlone => Planners { node: list_alone, node_removal: any_absence, ..sound },
            Self::AbsentByName => Planners { node: by_name, node_removal: any_absence, ..sound },
            // Lookups by name find the new server, so the row of absences never begins.
            Self::PresentByName => Planners { node: by_name, ..sound },
            Self::HastyRelease => Planners { service: hasty_release, ..sound },
            Self::TaintFirst => Planners { node: taint_first, ..sound },
            Self::ForgottenTargets => Planners { service: forgotten_targets, ..sound },
            Self::IgnoredTaints | Self::HastyTakeover => sound,
            Self::BlindRivals => Planners { service: blind_rivals, ..sound },
            Self::RenewedWait => Planners { service: renewed_wait, ..sound },
            Self::SilentOrphans => Planners { balancer_drift: silent_orphans, ..sound },
            Self::MissedRecovery => {
                Planners { node: missed_recovery_of_node, service: missed_recovery, ..sound }
            }
        }
    }
}

/// Takes each absence as an absence by id, although the lookup asked for something else.
fn as_absence_by_id(answers: &mut Answers, recorded: &RecordedId) {
    let RecordedId::Ours(id) = recorded else { return };
    if let Some(found) = &mut answers.find {
        found.by = by_id(id.clone());
    }
    if let Some(absence) = &mut answers.absence {
        absence.id = Some(id.clone());
    }
}

fn by_id(id: ProviderId) -> InstanceRef {
    InstanceRef { id: Some(id), ..InstanceRef::default() }
}

/// Without promises, and without memory of earlier calls, an absence counts at once.
fn hasty_release(s: &service::Snapshot) -> Plan<service::Action> {
    let mut s = s.clone();
    s.process.promises.visible_within = Duration::ZERO;
    s.process.promises.call_bound = Duration::ZERO;
    (s.answers.ensured_at, s.answers.unsure_at) = (None, None);
    service::plan(&s)
}

/// The last refusal counts as one of this moment, and no time is set for another try.
fn forgotten_targets(s: &service::Snapshot) -> Plan<service::Action> {
    let mut s = s.clone();
    if let Some((_, last)) = &mut s.answers.ensure
        && matches!(&last.answer, Ok(Progress::Done(ensured)) if !ensured.skipped.is_empty())
    {
        (last.started, last.ended) = (s.now, s.now);
    }
    let mut plan = service::plan(&s);
    if matches!(plan.why.reason, Reason::Contract(CcmReason::TargetsSkipped { .. })) {
        plan.wait = Wait::Idle;
    }
    plan
}

fn blind_rivals(s: &service::Snapshot) -> Plan<service::Action> {
    let mut s = s.clone();
    s.rivals.clear();
    service::plan(&s)
}

fn silent_orphans(s: &balancer_drift::Snapshot) -> Plan<balancer_drift::Action> {
    let mut plan = balancer_drift::plan(s);
    plan.actions.retain(|action| !matches!(action, balancer_drift::Action::Tell(_)));
    plan
}

/// The record of the wait is neither read nor written.
fn renewed_wait(s: &service::Snapshot) -> Plan<service::Action> {
    let mut s = s.clone();
    Arc::make_mut(&mut s.service).earlier_calls_since = None;
    let mut plan = service::plan(&s);
    plan.actions.retain(|action| !matches!(action, service::Action::RecordWait(_)));
    plan
}

/// The process does not remember that the cloud works again.
fn missed_recovery(s: &service::Snapshot) -> Plan<service::Action> {
    let mut s = s.clone();
    s.account.works_since = None;
    service::plan(&s)
}

fn missed_recovery_of_node(s: &node::Snapshot) -> Plan<node::Action> {
    let mut s = s.clone();
    s.account.works_since = None;
    node::plan(&s)
}

fn taint_first(s: &node::Snapshot) -> Plan<node::Action> {
    let mut plan = node::plan(s);
    plan.actions.sort_by_key(|action| !matches!(action, node::Action::Patch(_)));
    plan
}

fn any_absence(s: &node_removal::Snapshot) -> Plan<node_removal::Action> {
    let mut s = s.clone();
    for suspect in &mut s.suspects {
        as_absence_by_id(&mut suspect.answers, &suspect.recorded);
    }
    node_removal::plan(&s)
}

/// Looks up each initialised Node by another reference than its id.
fn looking_up(s: &node::Snapshot, which: Option<InstanceRef>) -> Plan<node::Action> {
    let mut s = s.clone();
    as_absence_by_id(&mut s.answers, &s.recorded);
    let mut plan = node::plan(&s);
    for action in &mut plan.actions {
        if let (node::Action::Find(asked), Some(which)) = (action, &which)
            && asked.id.is_some()
        {
            *asked = which.clone();
        }
    }
    plan
}

/// The name of the Node takes the place of the id.
fn by_name(s: &node::Snapshot) -> Plan<node::Action> {
    looking_up(s, Some(InstanceRef { name: NodeName::new(s.node.name.clone()), ..InstanceRef::default() }))
}

/// If the last list lacks the server, a lookup that cannot find anything takes the place of the
/// lookup by id. So the list alone decides.
fn list_alone(s: &node::Snapshot) -> Plan<node::Action> {
    let is_unlisted = s.listed.as_ref().is_some_and(|listed| listed.instance.is_none());
    let nothing = InstanceRef { id: ProviderId::parse("hcloud://1").ok(), ..InstanceRef::default() };
    looking_up(s, is_unlisted.then_some(nothing))
}
