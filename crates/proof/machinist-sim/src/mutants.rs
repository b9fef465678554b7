//! The program, broken on purpose in many ways. A named invariant must catch each mutant, on
//! seeds that the correct program passes. An invariant that no mutant violates proves nothing.
//!
//! | mutant | what is broken | caught by |
//! |---|---|---|
//! | uid check | writes have no UID, so they apply to any object of that name | S21 |
//! | own-writes barrier | a process believes at once that its store contains its own write | S4 |
//! | fresh name | a POST with an unknown outcome is repeated under another name | S4 |
//! | early finalizer | the finalizer is removed before the instance is deleted | S3 |
//! | absence without lag | an instance that one read does not show is taken as deleted at once | S3 |
//! | node by name | every Node with the Machine's name is taken as the Machine's Node | S7 |
//! | unbounded requeue | an object is reconciled again at once, forever | L4 |
//! | replacement limit | each unhealthy Machine is replaced without regard to the others | S13 |
//! | unseen cordon | a Node is taken as cordoned and empty as soon as the store shows no pod | S6 |
//! | orphaned children | the children of an object that is being orphaned are deleted | S18 |
//! | two raises | a second set grows while a write has no answer | S4 |
//! | ownership proof | every account is taken as the account of the instance | S3 |
//! | attempts as answers | an attempt to delete a pod counts as an answer about it | S14 |
//! | stale deadlines | deadlines of health and join end with stale Nodes, and count unseen time | S15 |
//! | queue as failure | a Machine that waits for its first call is given up | S20 |
//! | replacement without stock | a Machine is replaced although its set can create none | S16 |
//! | first pass by force | a drain whose timeout passed unseen begins with force | S14 |
//! | unasked failure | a Machine is given up before the cloud is asked for its instance | S19 |
//! | failed call ends drain | a call that failed writes that the drain has ended | S6 |
//! | unavailable first | a rollout counts as if each set deleted unavailable Machines first | S5 |
//! | late size | a set deletes Machines for a size that its deployment has given up | S5 |
//! | unsent as unknown | a write that was never sent counts as unknown, and the return of the server wakes nothing | L8 |
//! | missed return | the return of a server wakes nothing | L8 |
//! | ignored lease | a replica acts without its Lease | S22 |
//! | silent wait | a Machine that waits counts as up to date | L9 |
//! | unreported rejection | a rejected eviction is not in the status | S23 |
//! | force needs nodes | the label `force-deletion` waits for the API server of the Nodes | L10 |
//! | idle lookups | each Machine is looked up again and again before it is created | S24 |
//! | short token | a token lasts no longer than a short creation timeout, and is made again | S17 |
//! | early recreation | the strategy `Recreate` is taken as a rolling update | S25 |
//! | forgotten preservation | a set deletes a failed Machine although it is preserved | S26 |
//! | orphan at first sight | an orphan is deleted when the first list shows it | S2 |
//! | orphan at any age | an orphan is deleted although it is younger than the creation timeout | S2 |
//! | orphan despite its node | an orphan is deleted although its Node exists | S2 |
//! | orphan of any namespace | an instance of another installation with the same names is deleted | S2 |
//! | marks of any namespace | Nodes and tokens of another installation with the same names count as ours | S29 |
//! | hasty annotation | a Node is annotated as not managed at once, without a look for its Machine | S30 |
//! | failed initialization | an initialization that failed counts as done | S31 |
//! | hasty selection | an update in place selects all Machines at once | S27 |
//! | forgotten volumes | a drain does not see which volumes are attached | S28 |
//! | moved instances | every instance counts as in the place that its class names now, and every account as the account of the instance | S3 |
//! | forgotten zone | a creation is repeated at once in the zone that the class names now | S1 |
//! | forgotten strays | a set that loses each new Machine to another program creates the next one at once | S32 |
//! | kept node | a Node that is being deleted keeps the finalizer although its Machine is gone | L2 |
//!
//! The product's code is not changed. A mutant rewrites requests and answers in transit
//! ([`Tamper`]), or it calls a planner with altered facts and alters the plan (`Planners`).

mod evidence;
mod orphans;
mod planners;
mod tampers;

use std::sync::Arc;

use async_trait::async_trait;
use machinist_controllers::mcm::Planners;
use machinist_core::reverted::Fix;

use self::planners::{
    absence_without_lag, early_finalizer, early_recreation, forgotten_preservation, forgotten_strays,
    forgotten_volumes, hasty_selection, late_size, no_ownership_proof, no_replacement_limit, node_by_name,
    orphaned_machines, orphaned_sets, two_raises, unbounded_requeue, unseen_cordon,
};
use self::tampers::{FreshNames, MissedReturn, OldRevisions, UnsentAsUnknown, WithoutUids};
use crate::ask::WholeRequest;
use crate::faults::answer::Answer;
use crate::invariants::Id;
use crate::mutation::Mutation;

/// Rewrites the requests of a process and their answers.
#[async_trait]
pub trait Tamper: Send + Sync {
    /// Changes a request before it is sent.
    fn request(&self, _ask: &mut WholeRequest) {}

    /// A further request to send after that answer, if any.
    fn again(&self, _ask: &WholeRequest, _answer: &Answer) -> Option<WholeRequest> {
        None
    }

    /// Changes an answer before the process receives it.
    async fn answer(&self, _ask: &WholeRequest, answer: Answer) -> Answer {
        answer
    }
}

/// One way in which the program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Mutant {
    /// Writes have no UID, so they apply to any object of that name.
    UidCheck,
    /// A process believes at once that its store contains its own write.
    OwnWritesBarrier,
    /// A POST with an unknown outcome is repeated under another name.
    FreshName,
    /// The finalizer is removed before the instance is deleted.
    EarlyFinalizer,
    /// An instance that one read does not show is taken as deleted at once.
    AbsenceWithoutLag,
    /// Every Node with the Machine's name is taken as the Machine's Node.
    NodeByName,
    /// An object is reconciled again at once, forever.
    UnboundedRequeue,
    /// Each unhealthy Machine is replaced without regard to the others.
    ReplacementLimit,
    /// A Node is taken as cordoned and empty as soon as the store shows no pod on it.
    UnseenCordon,
    /// Every account is taken as the account of the instance.
    OwnershipProof,
    /// The children of an object that is being orphaned are deleted.
    OrphanedChildren,
    /// A second set grows while a write has no answer.
    TwoRaises,
    /// An attempt to delete a pod counts as an answer about it.
    AttemptsAsAnswers,
    /// Deadlines of health and join end with stale Nodes, and count unseen time.
    StaleDeadlines,
    /// A Machine that waits for its first call is given up.
    QueueAsFailure,
    /// A Machine is replaced although its set can create none.
    ReplacementWithoutStock,
    /// A drain whose timeout passed unseen begins with force.
    FirstPassByForce,
    /// A Machine is given up before the cloud is asked for its instance.
    UnaskedFailure,
    /// A call that failed writes that the drain has ended.
    FailedCallEndsDrain,
    /// A rollout counts as if each set deleted unavailable Machines first.
    UnavailableFirst,
    /// A set deletes Machines for a size that its deployment has given up.
    LateSize,
    /// A Node that is being deleted keeps the finalizer although its Machine is gone.
    KeptNode,
    /// A write that was never sent counts as unknown, and the return of the server wakes nothing.
    UnsentAsUnknown,
    /// The return of a server wakes nothing.
    MissedReturn,
    /// A Machine that waits counts as up to date.
    SilentWait,
    /// A replica acts without its Lease.
    IgnoredLease,
    /// A rejected eviction is not in the status.
    UnreportedRejection,
    /// The label `force-deletion` waits for the API server of the Nodes.
    ForceNeedsNodes,
    /// Each Machine is looked up again and again before it is created.
    IdleLookups,
    /// A token lasts no longer than a short creation timeout, and is made again.
    ShortToken,
    /// The strategy `Recreate` is taken as a rolling update.
    EarlyRecreation,
    /// A set deletes a failed Machine although it is preserved.
    ForgottenPreservation,
    /// A set that loses each new Machine to another program creates the next one at once.
    ForgottenStrays,
    /// An orphan is deleted at the first sight.
    OrphanAtFirstSight,
    /// An orphan is deleted although it is younger than the creation timeout.
    OrphanAtAnyAge,
    /// An orphan is deleted although its Node exists.
    OrphanDespiteItsNode,
    /// An instance of another installation with the same names is deleted.
    OrphanOfAnyNamespace,
    /// Nodes and tokens of another installation with the same names count as ours.
    MarksOfAnyNamespace,
    /// A Node is annotated as not managed at once, without a look for its Machine.
    HastyAnnotation,
    /// An initialization that failed counts as done.
    FailedInitialization,
    /// An update in place selects all Machines at once.
    HastySelection,
    /// A drain does not see which volumes are attached.
    ForgottenVolumes,
    /// Every instance counts as in the place that its class names now, and every account as the
    /// account of the instance.
    MovedInstances,
    /// A creation is repeated at once in the zone that the class names now.
    ForgottenZone,
}

impl Mutation for Mutant {
    fn caught_by(self) -> Id {
        match self {
            Self::UidCheck => Id::S21,
            Self::EarlyFinalizer | Self::AbsenceWithoutLag | Self::OwnershipProof | Self::MovedInstances => {
                Id::S3
            }
            Self::ForgottenZone => Id::S1,
            Self::OwnWritesBarrier | Self::FreshName | Self::TwoRaises => Id::S4,
            Self::OrphanedChildren => Id::S18,
            Self::NodeByName => Id::S7,
            Self::UnboundedRequeue => Id::L4,
            Self::ReplacementLimit => Id::S13,
            Self::UnseenCordon | Self::FailedCallEndsDrain => Id::S6,
            Self::AttemptsAsAnswers | Self::FirstPassByForce => Id::S14,
            Self::StaleDeadlines => Id::S15,
            Self::ReplacementWithoutStock => Id::S16,
            Self::UnaskedFailure => Id::S19,
            Self::QueueAsFailure => Id::S20,
            Self::UnavailableFirst | Self::LateSize => Id::S5,
            Self::KeptNode => Id::L2,
            Self::UnsentAsUnknown | Self::MissedReturn => Id::L8,
            Self::SilentWait => Id::L9,
            Self::IgnoredLease => Id::S22,
            Self::UnreportedRejection => Id::S23,
            Self::ForceNeedsNodes => Id::L10,
            Self::IdleLookups => Id::S24,
            Self::ShortToken => Id::S17,
            Self::EarlyRecreation => Id::S25,
            Self::ForgottenPreservation => Id::S26,
            Self::ForgottenStrays => Id::S32,
            Self::OrphanAtFirstSight
            | Self::OrphanAtAnyAge
            | Self::OrphanDespiteItsNode
            | Self::OrphanOfAnyNamespace => Id::S2,
            Self::MarksOfAnyNamespace => Id::S29,
            Self::HastyAnnotation => Id::S30,
            Self::FailedInitialization => Id::S31,
            Self::HastySelection => Id::S27,
            Self::ForgottenVolumes => Id::S28,
        }
    }

    fn recorded(self) -> Option<u64> {
        Some(match self {
            Self::UnboundedRequeue => 0,
            Self::EarlyFinalizer | Self::IgnoredLease => 2,
            Self::ReplacementLimit | Self::SilentWait => 5,
            Self::ShortToken => 8,
            Self::ForceNeedsNodes | Self::QueueAsFailure => 10,
            Self::IdleLookups => 15,
            Self::NodeByName => 20,
            Self::OrphanedChildren => 25,
            Self::StaleDeadlines => 29,
            Self::AbsenceWithoutLag | Self::KeptNode => 38,
            Self::FreshName => 52,
            Self::OwnershipProof => 65,
            Self::UnseenCordon => 70,
            Self::OwnWritesBarrier => 77,
            Self::ReplacementWithoutStock => 123,
            Self::UnreportedRejection => 142,
            Self::UnsentAsUnknown | Self::MissedReturn => 182,
            Self::UnavailableFirst | Self::LateSize => 58,
            Self::AttemptsAsAnswers => 221,
            Self::FirstPassByForce => 312,
            Self::UidCheck => 217,
            Self::FailedCallEndsDrain => 457,
            Self::TwoRaises => 1139,
            Self::UnaskedFailure => 454,
            Self::EarlyRecreation => 87,
            Self::ForgottenPreservation => 17,
            // No seed draws their scenarios. They have traps.
            Self::OrphanAtFirstSight
            | Self::OrphanAtAnyAge
            | Self::OrphanDespiteItsNode
            | Self::OrphanOfAnyNamespace
            | Self::MarksOfAnyNamespace
            | Self::HastyAnnotation
            | Self::FailedInitialization
            | Self::HastySelection
            | Self::ForgottenVolumes
            | Self::ForgottenStrays
            | Self::MovedInstances
            | Self::ForgottenZone => return None,
        })
    }

    fn reverts(self) -> Option<Fix> {
        match self {
            Self::ShortToken => Some(Fix::CirclesPause),
            Self::MovedInstances => Some(Fix::PlacesAreRecorded),
            Self::OrphanDespiteItsNode => Some(Fix::NodesKeepInstances),
            Self::OrphanOfAnyNamespace => Some(Fix::NamespacesAreCompared),
            _ => None,
        }
    }
}

impl Mutant {
    /// The mutant's changes to requests and answers.
    pub fn tamper(self) -> Option<Arc<dyn Tamper>> {
        match self {
            Self::UidCheck => Some(Arc::new(WithoutUids)),
            Self::OwnWritesBarrier => Some(Arc::new(OldRevisions)),
            Self::FreshName => Some(Arc::new(FreshNames)),
            Self::UnsentAsUnknown => Some(Arc::new(UnsentAsUnknown)),
            Self::MissedReturn => Some(Arc::new(MissedReturn)),
            // They have other planners.
            _ => None,
        }
    }

    /// The mutant's planners.
    pub fn planners(self) -> Planners {
        let sound = Planners::default();
        match self {
            Self::EarlyFinalizer => Planners { machine: early_finalizer, ..sound },
            Self::AbsenceWithoutLag => Planners { machine: absence_without_lag, ..sound },
            Self::NodeByName => Planners { machine: node_by_name, ..sound },
            Self::UnboundedRequeue => Planners { machine: unbounded_requeue, ..sound },
            Self::OwnershipProof | Self::MovedInstances => {
                Planners { machine: no_ownership_proof, ..sound }
            }
            Self::ReplacementLimit => Planners { replacement: no_replacement_limit, ..sound },
            Self::UnseenCordon => Planners { machine: unseen_cordon, ..sound },
            // A sound set would ask its deployment before it creates.
            Self::EarlyRecreation => {
                Planners { machine_deployment: early_recreation, machine_set: late_size, ..sound }
            }
            Self::ForgottenPreservation => Planners { machine_set: forgotten_preservation, ..sound },
            Self::ForgottenStrays => Planners { machine_set: forgotten_strays, ..sound },
            Self::OrphanAtFirstSight => Planners { orphan: orphans::at_first_sight, ..sound },
            Self::OrphanAtAnyAge => Planners { orphan: orphans::at_any_age, ..sound },
            Self::OrphanDespiteItsNode => Planners { orphan: orphans::despite_nodes, ..sound },
            Self::OrphanOfAnyNamespace => Planners { orphan: orphans::of_any_namespace, ..sound },
            Self::MarksOfAnyNamespace => Planners {
                orphaned_node: orphans::node_of_any_namespace,
                orphaned_token: orphans::token_of_any_namespace,
                ..sound
            },
            Self::HastyAnnotation => Planners { orphaned_node: orphans::hasty_annotation, ..sound },
            Self::FailedInitialization => Planners { machine: evidence::failed_initialization, ..sound },
            Self::HastySelection => Planners { machine_deployment: hasty_selection, ..sound },
            Self::ForgottenVolumes => Planners { machine: forgotten_volumes, ..sound },
            Self::ForgottenZone => Planners { machine: evidence::forgotten_zone, ..sound },
            Self::OrphanedChildren => {
                Planners { machine_set: orphaned_machines, machine_deployment: orphaned_sets, ..sound }
            }
            // A sound set would keep to the bounds of its deployment by itself.
            Self::TwoRaises => Planners { machine_deployment: two_raises, machine_set: late_size, ..sound },
            Self::AttemptsAsAnswers => Planners { machine: evidence::attempts_as_answers, ..sound },
            Self::StaleDeadlines => Planners { replacement: evidence::stale_deadlines, ..sound },
            Self::QueueAsFailure => Planners { machine: evidence::queue_as_failure, ..sound },
            Self::ReplacementWithoutStock => Planners { replacement: evidence::without_stock, ..sound },
            Self::FirstPassByForce => Planners { machine: evidence::first_pass_by_force, ..sound },
            Self::UnaskedFailure => Planners { machine: evidence::unasked_failure, ..sound },
            Self::FailedCallEndsDrain => Planners { machine: evidence::failed_call_ends_drain, ..sound },
            Self::UnavailableFirst => Planners {
                machine_deployment: evidence::unavailable_first,
                machine_set: late_size,
                ..sound
            },
            Self::LateSize => Planners { machine_set: late_size, ..sound },
            Self::SilentWait => Planners { machine: evidence::silent_wait, ..sound },
            Self::KeptNode => Planners { orphaned_node: evidence::kept_node, ..sound },
            Self::UnreportedRejection => Planners { machine: evidence::unreported_rejection, ..sound },
            Self::ForceNeedsNodes => Planners { machine: evidence::force_needs_nodes, ..sound },
            Self::IdleLookups => Planners { machine: evidence::idle_lookups, ..sound },
            Self::ShortToken => Planners { machine: evidence::short_token, ..sound },
            Self::UidCheck
            | Self::OwnWritesBarrier
            | Self::FreshName
            | Self::UnsentAsUnknown
            | Self::MissedReturn
            // The replicas of its world ignore their Leases.
            | Self::IgnoredLease => sound,
        }
    }
}
