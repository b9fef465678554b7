//! The balancer that an `ensure` found, and the failures after which its targets still follow the
//! Nodes.

use machinist_instance::ErrorKind;

use crate::model::LoadBalancer;

/// Path of the load balancers.
pub(in crate::balancer) const BALANCERS: &str = "/load_balancers";

/// A balancer that an `ensure` changes.
pub(in crate::balancer) enum Existing {
    /// The balancer has the wanted key.
    Ours(Box<LoadBalancer>),
    /// The balancer has the wanted name, and may get the wanted key.
    Adoptable(Box<LoadBalancer>),
}

/// Whether a failure may concern the settings only, so that the targets can follow the Nodes.
pub(in crate::balancer) fn is_about_settings(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::InvalidSpec | ErrorKind::Exhausted | ErrorKind::Unavailable | ErrorKind::Unsupported => {
            true
        }
        ErrorKind::Denied | ErrorKind::Throttled { .. } | ErrorKind::Ambiguous | ErrorKind::Bug => false,
    }
}
