//! The records of the Services prove the account of load balancers while no Node can prove it.
//!
//! A cluster may have no Node with an instance, for example after it was scaled to zero. In the
//! account of another project, each Service would then get a second load balancer, and the first
//! one of a deleted Service would look deleted.
//!
//! The initialisation of Nodes does not ask for this proof: a record may itself come from a wrong
//! credential, and the first Node that finds its instance decides.

use machinist_core::{Step, plus};
use machinist_instance::{AccountId, BalancerKey};

use super::{AccountFacts, Failure, Proof, calling, failure_wait};
use crate::ccm::facts::{BalancerRecord, ServiceFacts};
use crate::ccm::listed_balancers::{LIST_AGAIN, LIST_BALANCERS, ListedBalancers};
use crate::ccm::names;
use crate::ccm::why::{CcmReason, Plan, Why};

/// Whether an account is known to be the account of the load balancers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum BalancerProof {
    /// A Service records the account, or the account shows the load balancer of a Service, or no
    /// Service records one. The value is the same while Nodes have instances: then the instances
    /// decide.
    #[default]
    Given,
    /// The Services record other accounts, and the load balancers were not listed yet. Has the last
    /// list, if it failed.
    Unlisted(Option<Failure>),
    /// The Services record other accounts, and the last list shows none of their load balancers.
    Missing(RecordedBalancer),
}

/// A load balancer that a Service records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordedBalancer {
    /// `namespace/name` of the Service.
    pub service: String,
    /// The id of the load balancer; absent if only its account was recorded, before the creation.
    pub balancer: Option<String>,
}

impl RecordedBalancer {
    /// The load balancer that a Service records.
    pub(in crate::ccm) fn of(service: &ServiceFacts, record: &BalancerRecord<'_>) -> Self {
        Self { service: service.full_name(), balancer: record.id.map(str::to_owned) }
    }

    /// Returns why nothing is done about load balancers while this one is not shown.
    pub fn unseen(&self) -> Why {
        let Self { service, balancer } = self.clone();
        let next = format!(
            "use a credential of the project with the load balancer; if it no longer exists, remove the \
             annotation {} from the Service",
            names::BALANCER_RECORD
        );
        Why::new(CcmReason::BalancerElsewhere { balancer, service }, Step::Fix(next))
    }
}

impl BalancerProof {
    /// Returns what the Services and the last list of today's account show about the load
    /// balancers.
    pub fn of<'s>(
        services: impl Iterator<Item = &'s ServiceFacts>,
        today: &AccountId,
        listed: Option<&ListedBalancers>,
        failed: Option<&Failure>,
    ) -> Self {
        let shows = |key: &BalancerKey| listed.is_some_and(|listed| listed.of(key).balancer.is_some());
        let mut missing: Option<RecordedBalancer> = None;
        for service in services {
            let record = service.recorded_balancer();
            if record.is_some_and(|record| record.account == today.as_str()) || shows(&service.key()) {
                return Self::Given;
            }
            let Some(record) = record else { continue };
            let recorded = RecordedBalancer::of(service, &record);
            // The order of the Services must not change the reason.
            missing = Some(missing.map_or(recorded.clone(), |first| first.min(recorded)));
        }
        match (missing, listed) {
            (None, _) => Self::Given,
            (Some(_), None) => Self::Unlisted(failed.cloned()),
            (Some(missing), Some(_)) => Self::Missing(missing),
        }
    }
}

impl AccountFacts {
    /// Whether the Nodes and the load balancers are known to be in this account.
    pub fn is_proven(&self) -> bool {
        self.proof == Proof::Given && self.balancers == BalancerProof::Given
    }

    /// Like [`Self::is_doubtful`], for load balancers and routes.
    pub(in crate::ccm) fn is_doubtful_for_balancers<A>(&self) -> Option<Plan<A>> {
        self.is_doubtful().or_else(|| match &self.balancers {
            BalancerProof::Given => None,
            BalancerProof::Unlisted(None) => Some(Plan::idle(calling(LIST_BALANCERS))),
            BalancerProof::Unlisted(Some(failure)) => {
                let retry_at = plus(failure.ended, failure_wait(failure, LIST_AGAIN));
                let why = Why::call_failed(LIST_BALANCERS, &failure.error, failure.count, retry_at);
                Some(Plan::idle(why))
            }
            BalancerProof::Missing(missing) => Some(Plan::idle(missing.unseen())),
        })
    }
}
