//! The providers of Cluster API, broken on purpose. A named invariant must catch each mutant, on
//! seeds that the correct program passes.
//!
//! | mutant | what is broken | caught by |
//! |---|---|---|
//! | second container | a container that was lost is created again | K1 |
//! | early release | the finalizer is removed with the call that deletes the container | K3 |
//! | absence without lag | an absence counts although a call may still create the container | K3 |
//! | unbalanced bootstrap | the control plane is bootstrapped before the load balancer has it | K5 |
//! | hasty mail | a mail that the service does not show yet is taken as not accepted | K6 |
//! | taken-over intent | the intent of an earlier process is taken as an own one without a call | K6 |
//! | hasty deletion | the control plane is deleted while the load balancer has it | K8 |
//! | dropped while draining | the load balancer loses a machine as soon as its Node is drained | K8 |
//! | without key | a container of the right name counts as the own one without the key | K4 |
//! | forgotten node | a bootstrapped machine counts as up to date without its Node | K10 |

use std::sync::Arc;
use std::time::Duration;

use machinist_api::capi::constants::CONTAINER_ID_ANNOTATION;
use machinist_api::capi::{DockerClusterStatus, LoadBalancerStatus};
use machinist_controllers::capi::Planners;
use machinist_instance::RecordedId;
use machinist_plan::capi::facts::MailRequestFacts;
use machinist_plan::capi::{
    CapiReason, Plan, Reason, Why, docker_cluster, docker_machine, mail, mailgun_cluster, mailgun_machine,
};

use crate::invariants::Id;
use crate::mutation::Mutation;

/// One way in which the program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "the table at the top of this module describes each of them")]
pub enum Mutant {
    SecondContainer,
    EarlyRelease,
    AbsenceWithoutLag,
    UnbalancedBootstrap,
    HastyMail,
    TakenOverIntent,
    HastyDeletion,
    DroppedWhileDraining,
    ForgottenNode,
    WithoutKey,
}

impl Mutation for Mutant {
    fn caught_by(self) -> Id {
        match self {
            Self::SecondContainer => Id::K1,
            Self::EarlyRelease | Self::AbsenceWithoutLag => Id::K3,
            Self::WithoutKey => Id::K4,
            Self::UnbalancedBootstrap => Id::K5,
            Self::HastyMail | Self::TakenOverIntent => Id::K6,
            Self::HastyDeletion | Self::DroppedWhileDraining => Id::K8,
            Self::ForgottenNode => Id::K10,
        }
    }

    fn recorded(self) -> Option<u64> {
        match self {
            Self::ForgottenNode => Some(1),
            Self::EarlyRelease | Self::HastyDeletion | Self::DroppedWhileDraining => Some(2),
            Self::HastyMail => Some(6),
            Self::SecondContainer => Some(9),
            Self::UnbalancedBootstrap => Some(10),
            Self::TakenOverIntent => Some(65),
            Self::AbsenceWithoutLag => Some(620),
            Self::WithoutKey => Some(4),
        }
    }
}

impl Mutant {
    /// The mutant's planners.
    pub fn planners(self) -> Planners {
        let sound = Planners::default();
        match self {
            Self::SecondContainer => Planners { docker_machine: second_container, ..sound },
            Self::EarlyRelease => Planners { docker_machine: early_release, ..sound },
            Self::AbsenceWithoutLag => Planners { docker_machine: absence_without_lag, ..sound },
            Self::UnbalancedBootstrap => Planners { docker_machine: unbalanced_bootstrap, ..sound },
            Self::HastyMail => {
                Planners { mailgun_machine: hasty_mail, mailgun_cluster: hasty_mail_of_cluster, ..sound }
            }
            Self::TakenOverIntent => Planners { mailgun_machine: taken_over_intent, ..sound },
            Self::HastyDeletion => Planners { docker_machine: hasty_deletion, ..sound },
            Self::DroppedWhileDraining => Planners { docker_cluster: dropped_while_draining, ..sound },
            Self::ForgottenNode => Planners { docker_machine: forgotten_node, ..sound },
            // The engine of its world ignores keys.
            Self::WithoutKey => sound,
        }
    }
}

type MachinePlan = Plan<docker_machine::Action>;

/// Creates a recorded container again when it no longer exists.
fn second_container(s: &docker_machine::Snapshot) -> MachinePlan {
    let plan = docker_machine::plan(s);
    if !matches!(plan.why.reason, Reason::Contract(CapiReason::ContainerMissing { .. })) {
        return plan;
    }
    let mut s = s.clone();
    let machine = Arc::make_mut(&mut s.machine);
    machine.spec.provider_id = None;
    if let Some(annotations) = &mut machine.object.annotations {
        annotations.remove(CONTAINER_ID_ANNOTATION);
    }
    (s.recorded, s.answers.ensure) = (RecordedId::Unset, None);
    docker_machine::plan(&s)
}

fn early_release(s: &docker_machine::Snapshot) -> MachinePlan {
    let mut plan = docker_machine::plan(s);
    let is_delete = |action: &docker_machine::Action| matches!(action, docker_machine::Action::Delete(_));
    if plan.actions.iter().any(is_delete) {
        plan.actions.push(docker_machine::Action::Release);
    }
    plan
}

fn absence_without_lag(s: &docker_machine::Snapshot) -> MachinePlan {
    let mut s = s.clone();
    // The wait for a call in flight is another rule.
    if s.answers.in_flight.is_none() {
        s.process.promises.visible_within = Duration::ZERO;
        s.process.promises.call_bound = Duration::ZERO;
    }
    docker_machine::plan(&s)
}

/// Assumes that the load balancer has the machine.
fn unbalanced_bootstrap(s: &docker_machine::Snapshot) -> MachinePlan {
    let mut s = s.clone();
    if let Some(infrastructure) = &mut s.infrastructure
        && s.machine.object.deleting_since.is_none()
    {
        let status = Arc::make_mut(infrastructure).status.get_or_insert_with(DockerClusterStatus::default);
        let balancer = status.load_balancer.get_or_insert_with(LoadBalancerStatus::default);
        balancer.backends.push(s.machine.object.name.clone());
    }
    docker_machine::plan(&s)
}

fn hasty_deletion(s: &docker_machine::Snapshot) -> MachinePlan {
    let mut s = s.clone();
    if s.machine.object.deleting_since.is_some() {
        s.infrastructure = None;
    }
    docker_machine::plan(&s)
}

/// Never completes a Node.
fn forgotten_node(s: &docker_machine::Snapshot) -> MachinePlan {
    let mut plan = docker_machine::plan(s);
    let before = plan.actions.len();
    plan.actions.retain(|action| !matches!(action, docker_machine::Action::CompleteNode { .. }));
    if before == plan.actions.len() { plan } else { Plan { why: Why::up_to_date(), ..plan } }
}

fn dropped_while_draining(s: &docker_cluster::Snapshot) -> Plan<docker_cluster::Action> {
    let mut s = s.clone();
    if s.docker.object.deleting_since.is_none() {
        s.machines.retain(|member| !member.is_draining);
    }
    docker_cluster::plan(&s)
}

fn hasty_mail(s: &mailgun_machine::Snapshot) -> Plan<mailgun_machine::Action> {
    let mut s = s.clone();
    s.mail.shown_within = Duration::ZERO;
    mailgun_machine::plan(&s)
}

fn hasty_mail_of_cluster(s: &mailgun_cluster::Snapshot) -> Plan<mailgun_cluster::Action> {
    let mut s = s.clone();
    s.mail.shown_within = Duration::ZERO;
    mailgun_cluster::plan(&s)
}

/// Sends the mail of an intent that another process wrote.
fn taken_over_intent(s: &mailgun_machine::Snapshot) -> Plan<mailgun_machine::Action> {
    let mut s = s.clone();
    if s.mail.sent.is_none()
        && let Some(intent) = open_intent(&s.request.mail)
        && intent.holder != s.mail.identity
    {
        s.mail.identity = intent.holder;
        s.mail.may_send = true;
    }
    mailgun_machine::plan(&s)
}

/// The intent of a mail whose outcome is not recorded.
fn open_intent(request: &MailRequestFacts) -> Option<mail::Intent> {
    mail::intent_of(request)?.ok().filter(|intent| intent.outcome.is_none())
}
