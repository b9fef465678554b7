//! The cloud-controller-manager, broken on purpose in five ways. A named invariant must catch each
//! mutant, on seeds that the correct program passes.
//!
//! | mutant | what is broken | caught by |
//! |---|---|---|
//! | list alone | a server that a list lacks is taken as deleted, without a lookup by id | C4 |
//! | absent by name | a server that a lookup by name does not find is taken as deleted | C4 |
//! | hasty release | a load balancer that one call does not find is taken as deleted at once | C3 |
//! | taint first | the taint is removed before the addresses are written | C5 |
//! | present by name | a server of the same name is taken as proof that the Node's server exists | L1 |

use std::fmt;
use std::time::Duration;

use machinist_controllers::ccm::Planners;
use machinist_core::Answers;
use machinist_instance::{InstanceRef, NodeName, ProviderId, RecordedId};
use machinist_plan::ccm::{Plan, node, node_removal, service};

use crate::invariants::Id;

/// One way in which the program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 5] =
        [Self::ListAlone, Self::AbsentByName, Self::PresentByName, Self::HastyRelease, Self::TaintFirst];

    /// Name of the mutant in cases and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ListAlone => "list-alone",
            Self::AbsentByName => "absent-by-name",
            Self::PresentByName => "present-by-name",
            Self::HastyRelease => "hasty-release",
            Self::TaintFirst => "taint-first",
        }
    }

    /// The invariant that must catch the mutant.
    pub fn caught_by(self) -> Id {
        match self {
            Self::ListAlone | Self::AbsentByName => Id::C4,
            Self::PresentByName => Id::L1,
            Self::HastyRelease => Id::C3,
            Self::TaintFirst => Id::C5,
        }
    }

    /// A seed of `cargo xtask sim` that catches the mutant.
    pub fn recorded(self) -> Option<u64> {
        Some(match self {
            Self::ListAlone | Self::PresentByName | Self::TaintFirst => 0,
            Self::AbsentByName => 1,
            Self::HastyRelease => 12,
        })
    }

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
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Mutant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == text).ok_or(format!("{text:?} is not a mutant"))
    }
}

/// Takes each absence as an absence by id, although the lookup asked for something else.
fn as_absence_by_id(answers: &mut Answers, recorded: &RecordedId) {
    let RecordedId::Ours(id) = recorded else { return };
    if let Some(found) = &mut answers.find {
        found.by = by_id(id.clone());
    }
    if let Some(absence) = &mut answers.absence {
        absence.by_id = true;
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
