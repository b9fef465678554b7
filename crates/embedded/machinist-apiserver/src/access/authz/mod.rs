//! Authorization: decides which requests a user may send.
//!
//! ```text
//! system:masters -> everything
//! a node         -> its own objects (node); a second check covers the objects it writes (restriction)
//! any user       -> the permissions that bindings to roles grant (rbac)
//! ```
//!
//! The server authorizes every request before it reads the body, so a caller without permission
//! learns nothing about existing objects. A review asks the same question for another user
//! (`reviews`). With [`Authorization::AlwaysAllow`] every request is allowed.
//!
//! Not included: webhooks, the aggregation of ClusterRoles after the start, and constrained
//! impersonation.

pub(crate) mod attributes;
pub(crate) mod caller;
mod coverage;
mod decision;
pub(crate) mod escalation;
pub(crate) mod impersonation;
pub(crate) mod node;
pub(crate) mod rbac;
pub(crate) mod restriction;
pub(crate) mod roles;

use self::attributes::Attributes;
use self::decision::{Decision, refusal};
use crate::store::mvcc::Store;
use crate::values::identity::Identity;
use crate::values::status::ApiResult;

/// Group with all permissions.
const MASTERS: &str = "system:masters";

/// Authorization mode of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// Every authenticated user may do everything. For callers in the same process and for
    /// simulations.
    #[default]
    AlwaysAllow,
    /// As in a real cluster: nodes may access their own objects, and roles grant all other
    /// permissions. The default roles exist from the start.
    Rbac,
}

/// Decides what users may do: the mode, and the store that holds roles and bindings.
#[derive(Clone, Copy)]
pub(crate) struct Authorizer<'a> {
    pub(crate) mode: Authorization,
    pub(crate) store: &'a Store,
}

impl Authorizer<'_> {
    /// Whether `user` may send the request.
    pub(crate) fn decide(self, user: &Identity, asked: &Attributes) -> Decision {
        if self.mode == Authorization::AlwaysAllow || is_master(user) {
            return Decision { allowed: true, reason: String::new() };
        }
        let by_node = node::decide(self.store, user, asked);
        if by_node.allowed {
            return by_node;
        }
        let by_roles = rbac::decide(self.store, user, asked);
        if by_roles.allowed {
            return by_roles;
        }
        let reasons: Vec<String> =
            [by_node.reason, by_roles.reason].into_iter().filter(|reason| !reason.is_empty()).collect();
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// Rejects a request that `user` may not send.
    pub(crate) fn authorize(self, user: &Identity, asked: &Attributes) -> ApiResult<()> {
        let decision = self.decide(user, asked);
        if decision.allowed { Ok(()) } else { Err(refusal(user, asked, &decision.reason)) }
    }
}

pub(crate) fn is_master(user: &Identity) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}
