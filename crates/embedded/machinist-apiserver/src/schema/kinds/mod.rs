//! The built-in kinds: one row each for names and behaviour (`rows`), and one module for each kind
//! that needs more rules than its row can express.

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
use crate::store::mvcc::Store;
use crate::values::identity::Identity;
use crate::values::key::Key;
use crate::values::status::{ApiResult, FieldErrors, Target};

/// Context for the rules of a kind.
pub(crate) struct Context<'a> {
    pub(crate) store: &'a Store,
    /// Addresses and ports of Services whose writes are under way.
    pub(crate) addresses: &'a Reserved,
    pub(crate) identity: &'a Identity,
    pub(crate) admission: Box<dyn Admission + 'a>,
    /// Time of this request, as `metav1.Time`.
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
    fn may_use_signer(&self, verb: &'static str, signer: &str) -> bool;
    /// Checks that a role grants nothing that its writer lacks.
    fn admit_role(&self, resource: &str, role: &Value) -> ApiResult<()>;
    /// Checks that a binding grants nothing that its writer lacks.
    fn admit_binding(&self, resource: &str, binding: &Value) -> ApiResult<()>;
}

/// Which part of an object that a write through a subresource may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    Approval,
    Finalize,
}

/// Differences of a kind from a plain object with an optional status. By default there are none.
pub(crate) trait Rules: Sync {
    /// Sets the defaults that the row cannot express, and copies values between two names of one
    /// field. A client that omits a defaulted field owns it as if the client had set it.
    fn fill_defaults(&self, _object: &mut Value) {}

    /// Admits and prepares a new object.
    fn on_create(&self, _object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        Ok(())
    }

    /// Restores the fields that a write to `part` may not change. The row has already handled
    /// `spec` and `status`.
    fn on_update(
        &self,
        _new: &mut Value,
        _old: &Value,
        _part: Part,
        _context: &Context<'_>,
    ) -> ApiResult<()> {
        Ok(())
    }

    /// Validates the object before it is stored.
    fn validate(&self, _object: &Value, _old: Option<&Value>, _part: Part, _errors: &mut FieldErrors) {}

    /// Whether a finalizer without a domain is accepted, even if it is not one of Kubernetes' own.
    fn takes_plain_finalizers(&self) -> bool {
        false
    }

    /// Checks whether the writer may write this object. Runs after validation.
    fn permit(
        &self,
        _object: &Value,
        _old: Option<&Value>,
        _part: Part,
        _context: &Context<'_>,
    ) -> ApiResult<()> {
        Ok(())
    }

    /// Returns the grace period of a deletion in seconds, if this kind is deleted gracefully.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether a deletion only marks the object, because something else must be cleaned up first.
    fn is_only_marked(&self, object: &Value) -> bool {
        self.outlives_finalizers(object)
    }

    /// Checks whether this caller may delete the object with this name.
    fn admit_delete(&self, _object: &Target<'_>, _key: &Key, _context: &Context<'_>) -> ApiResult<()> {
        Ok(())
    }

    /// Makes the changes that belong to the deletion mark.
    fn on_delete(&self, _object: &mut Value, _now: &str) {}

    /// Whether an object must stay although it has no more finalizers.
    fn outlives_finalizers(&self, _object: &Value) -> bool {
        false
    }

    /// Converts from the served version to the stored version.
    fn make_stored(&self, _object: &mut Value) {}

    /// Converts from the stored version to the served version.
    fn show_stored(&self, _object: &mut Value) {}
}

/// The rules of a kind without special behaviour.
pub(crate) struct Plain;

impl Rules for Plain {}
