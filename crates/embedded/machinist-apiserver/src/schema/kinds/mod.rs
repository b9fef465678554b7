//! The built-in kinds: a table of what they are called and how they behave, and one module per kind whose rules are more
//! than the table can say.

pub(crate) mod built_in;
pub(crate) mod certificate;
pub(crate) mod config;
pub(crate) mod custom_resource_definition;
pub(crate) mod decode;
pub(crate) mod event;
pub(crate) mod job;
pub(crate) mod lease;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod notation;
pub(crate) mod pod;
pub(crate) mod pod_disruption_budget;
pub(crate) mod pod_references;
pub(crate) mod pod_template;
pub(crate) mod rbac;
pub(crate) mod rows;
pub(crate) mod scheduling;
pub(crate) mod service;
pub(crate) mod topology;
pub(crate) mod volume;
pub(crate) mod workload;

use serde_json::Value;

use crate::schema::kinds::service::addresses::Reserved;
use crate::store::key::Key;
use crate::store::mvcc::Store;
use crate::values::identity::Identity;
use crate::values::status::{ApiResult, FieldErrors, Target};

/// What a kind's rules may look at.
pub(crate) struct Context<'a> {
    pub(crate) store: &'a Store,
    /// Addresses and ports of Services whose writes are under way.
    pub(crate) addresses: &'a Reserved,
    pub(crate) identity: &'a Identity,
    pub(crate) admission: Box<dyn Admission + 'a>,
    /// `metav1.Time` of this request.
    pub(crate) now: String,
}

/// Checks of a write that depend on the writer. The access layer implements them; each kind calls
/// them at the point where kube-apiserver's admission plugins do.
pub(crate) trait Admission {
    /// Checks a Node that is created, or changed from `old`.
    fn admit_node(&self, new: &Value, old: Option<&Value>) -> ApiResult<()>;
    /// Checks the deletion of a Node.
    fn admit_node_delete(&self, name: &str) -> ApiResult<()>;
    /// Checks a Pod that is created.
    fn admit_new_pod(&self, pod: &Value) -> ApiResult<()>;
    /// Checks a Pod that is changed.
    fn admit_pod_update(&self, new: &Value, old: &Value, part: Part) -> ApiResult<()>;
    /// Checks the deletion of a Pod.
    fn admit_pod_delete(&self, key: &Key, name: &str) -> ApiResult<()>;
    /// Checks a Lease that is created, changed or deleted.
    fn admit_lease(&self, namespace: &str, name: &str) -> ApiResult<()>;
    /// Checks a new CertificateSigningRequest.
    fn admit_certificate_request(&self, request: &Value) -> ApiResult<()>;
    /// Whether the writer may `approve` or `sign` for a signer.
    fn may_use_signer(&self, verb: &str, signer: &str) -> bool;
    /// Checks that a role grants nothing that its writer lacks.
    fn admit_role(&self, resource: &str, role: &Value) -> ApiResult<()>;
    /// Checks that a binding grants nothing that its writer lacks.
    fn admit_binding(&self, resource: &str, binding: &Value) -> ApiResult<()>;
}

/// Which part of an object a write through a subresource may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    Approval,
    Finalize,
}

/// How a kind differs from a plain object with an optional status. Every default is "it does not".
pub(crate) trait Rules: Sync {
    /// Fills in the defaults that the table cannot say, and what two names of one thing have in common. Who leaves a field to this
    /// owns it as if he had set it.
    fn fill_defaults(&self, _object: &mut Value) {}

    /// Admission and preparation of a new object.
    fn on_create(&self, _object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        Ok(())
    }

    /// Puts back what a write to `part` may not change. The table has dealt with `spec` and `status` already.
    fn on_update(
        &self,
        _new: &mut Value,
        _old: &Value,
        _part: Part,
        _context: &Context<'_>,
    ) -> ApiResult<()> {
        Ok(())
    }

    /// Checks the object that is about to be stored.
    fn validate(&self, _object: &Value, _old: Option<&Value>, _part: Part, _errors: &mut FieldErrors) {}

    /// Whether a finalizer may have a name without a domain that is none of Kubernetes' own.
    fn takes_plain_finalizers(&self) -> bool {
        false
    }

    /// Whether the writer may write this, asked once it is known to be valid.
    fn permit(
        &self,
        _object: &Value,
        _old: Option<&Value>,
        _part: Part,
        _context: &Context<'_>,
    ) -> ApiResult<()> {
        Ok(())
    }

    /// Seconds that a deletion waits for, when this kind is deleted gracefully.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether a deletion does no more than mark the object, because something else has to be cleared away first.
    fn is_only_marked(&self, object: &Value) -> bool {
        self.outlives_finalizers(object)
    }

    /// Whether the object of this name may be deleted by this caller at all.
    fn admit_delete(&self, _object: &Target<'_>, _key: &Key, _context: &Context<'_>) -> ApiResult<()> {
        Ok(())
    }

    /// Changes that come with the deletion mark.
    fn on_delete(&self, _object: &mut Value, _now: &str) {}

    /// Whether an object whose finalizers are gone has to stay.
    fn outlives_finalizers(&self, _object: &Value) -> bool {
        false
    }

    /// From the served version to the stored one.
    fn make_stored(&self, _object: &mut Value) {}

    /// From the stored version to the served one.
    fn show_stored(&self, _object: &mut Value) {}
}

/// The rules of a kind without any.
pub(crate) struct Plain;

impl Rules for Plain {}
