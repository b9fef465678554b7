//! The list of the load balancers of an account, which several decisions use.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::Call;
use machinist_instance::{AccountId, Balancer, BalancerKey};

/// Lists the load balancers of the account.
pub const LIST_BALANCERS: Call = Call::look("list the load balancers");
/// First and longest wait after a failed list.
pub(super) const LIST_AGAIN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// The load balancers of the account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedBalancers {
    /// When the list began.
    pub started: Timestamp,
    /// When the list was answered.
    pub ended: Timestamp,
    /// The account that was listed.
    pub account: Option<AccountId>,
    /// The keys of all Services that existed when the list began.
    pub services: Arc<Vec<BalancerKey>>,
    /// The load balancers.
    pub balancers: Vec<Balancer>,
}

impl ListedBalancers {
    /// The load balancers whose Service does not exist. `services` are the keys of today's
    /// Services. A Service that was deleted after the list began may have had its load balancer
    /// then.
    pub fn orphans<'a>(&'a self, services: &'a [BalancerKey]) -> impl Iterator<Item = &'a Balancer> {
        let is_known = |key| services.contains(key) || self.services.contains(key);
        self.balancers.iter().filter(move |balancer| balancer.key.as_ref().is_some_and(|key| !is_known(key)))
    }

    /// The entry of one Service.
    pub fn of(&self, key: &BalancerKey) -> ListedBalancer {
        let balancer = self.balancers.iter().find(|balancer| balancer.key.as_ref() == Some(key));
        ListedBalancer { started: self.started, balancer: balancer.cloned() }
    }
}

/// The result of the last list of load balancers for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedBalancer {
    /// When the list began.
    pub started: Timestamp,
    /// The load balancer with the key of the Service, if the list contained one.
    pub balancer: Option<Balancer>,
}
