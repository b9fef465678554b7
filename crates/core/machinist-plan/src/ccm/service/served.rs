//! Which Services this program serves, and whose load balancers it may delete.

use super::options::Options;
use crate::ccm::facts::ServiceFacts;

/// Whether this program provides the load balancer of a Service.
pub fn wants_balancer(service: &ServiceFacts, options: &Options) -> bool {
    service.is_load_balancer && service.class.as_ref().is_none_or(|class| *class == options.class)
}

/// Whether a Service may have a load balancer that must be deleted.
pub fn needs_cleanup(service: &ServiceFacts) -> bool {
    service.has_finalizer && (service.deleting_since.is_some() || !service.is_load_balancer)
}

/// Whether the load balancer of a Service may be deleted: no Service wants it from this program.
pub fn may_be_deleted(service: &ServiceFacts, options: &Options) -> bool {
    service.has_finalizer && (service.deleting_since.is_some() || !wants_balancer(service, options))
}

/// The program that served a Service when this process last saw it with the type LoadBalancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Served {
    /// This process has not seen the Service with that type.
    #[default]
    Unseen,
    /// This program.
    Ours,
    /// The program of this other class.
    ByOther(String),
}

impl Served {
    /// Returns the program for a class that was seen.
    pub fn of_class(class: Option<&str>, options: &Options) -> Self {
        match class {
            Some(other) if other != options.class => Self::ByOther(other.to_owned()),
            Some(_) | None => Self::Ours,
        }
    }
}
