//! The client of one request, as admission asks about it: what it may write, beyond verb and name.

use serde_json::Value;

use crate::access::authz::attributes::Attributes;
use crate::access::authz::{Authorization, Authorizer, escalation, is_master, restriction};
use crate::schema::kinds::{Admission, Part};
use crate::values::identity::Identity;
use crate::values::key::Key;
use crate::values::status::ApiResult;

/// An identity, with what decides about it.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) authorizer: Authorizer<'a>,
    pub(crate) identity: &'a Identity,
}

impl Caller<'_> {
    /// Whether the caller may do what is asked.
    pub(crate) fn may(&self, asked: &Attributes) -> bool {
        self.authorizer.decide(self.identity, asked).allowed
    }

    /// Whether every check of this layer is off for the caller.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.authorizer.mode == Authorization::AlwaysAllow || is_master(self.identity)
    }
}

impl Admission for Caller<'_> {
    fn admit_node(&self, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        restriction::admit_node(self, new, old)
    }

    fn admit_node_delete(&self, name: &str) -> ApiResult<()> {
        restriction::admit_node_delete(self, name)
    }

    fn admit_new_pod(&self, pod: &Value) -> ApiResult<()> {
        restriction::admit_new_pod(self, pod)
    }

    fn admit_pod_update(&self, new: &Value, old: &Value, part: Part) -> ApiResult<()> {
        restriction::admit_pod_update(self, new, old, part)
    }

    fn admit_pod_delete(&self, key: &Key, name: &str) -> ApiResult<()> {
        restriction::admit_pod_delete(self, key, name)
    }

    fn admit_lease(&self, namespace: &str, name: &str) -> ApiResult<()> {
        restriction::admit_lease(self, namespace, name)
    }

    fn admit_certificate_request(&self, request: &Value) -> ApiResult<()> {
        restriction::admit_certificate_request(self, request)
    }

    fn may_use_signer(&self, verb: &'static str, signer: &str) -> bool {
        escalation::may_use_signer(self, verb, signer)
    }

    fn admit_role(&self, resource: &str, role: &Value) -> ApiResult<()> {
        escalation::admit_role(self, resource, role)
    }

    fn admit_binding(&self, resource: &str, binding: &Value) -> ApiResult<()> {
        escalation::admit_binding(self, resource, binding)
    }
}
