//! Records of every answered request and every commit, for tests, benchmarks and invariants.
//!
//! Both subscriptions are unbounded on purpose. A record dropped because of a slow reader would
//! make a count wrong, and readers live in the same process. Commits arrive in commit order.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use tokio::sync::mpsc;

use crate::store::commits::Subscription;
use crate::values::route::Verb;

/// One answered request, including rejected requests. A watch is recorded when it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Authenticated user name, empty when authentication failed.
    pub user: String,
    /// User that the caller impersonated, if any.
    pub impersonated: Option<String>,
    /// `User-Agent`, empty when not sent.
    pub user_agent: String,
    /// Operation of the request.
    pub verb: AuditVerb,
    /// API group, empty for core.
    pub group: String,
    /// Plural name of the resource. For paths outside of resources, the path itself.
    pub resource: String,
    /// Subresource, empty for the main resource.
    pub subresource: String,
    /// Namespace, empty when cluster-wide.
    pub namespace: String,
    /// Object name. For a create, the name of the new object, if the create succeeded.
    pub name: String,
    /// HTTP status code.
    pub code: u16,
    /// Revision of this request's last commit, if it committed.
    pub revision: Option<u64>,
}

impl AuditRecord {
    /// Whether this request tries to change something. Write budgets count these requests,
    /// including rejected ones. Of the requests outside of served resources, only PATCH and DELETE
    /// count.
    pub fn is_write(&self) -> bool {
        match &self.verb {
            AuditVerb::Resource(verb) => !verb.is_read(),
            AuditVerb::Other(method) => matches!(*method, Method::PATCH | Method::DELETE),
        }
    }
}

/// Operation of a request. `Display` writes one of get, list, watch, create, update, patch, delete
/// and deletecollection. For paths outside of served resources, it writes the lower-case method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditVerb {
    /// The verb of a request on a resource.
    Resource(Verb),
    /// The HTTP method of any other request.
    Other(Method),
}

impl AuditVerb {
    /// Name of the operation, as `Display` writes it.
    pub fn as_str(&self) -> &'static str {
        match self {
            AuditVerb::Resource(verb) => verb.as_str(),
            AuditVerb::Other(method) => method_name(method),
        }
    }
}

fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

impl fmt::Display for AuditVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<Verb> for AuditVerb {
    fn eq(&self, other: &Verb) -> bool {
        match self {
            AuditVerb::Resource(verb) => verb == other,
            AuditVerb::Other(_) => false,
        }
    }
}

/// Subscribers of the request log.
#[derive(Debug, Default)]
pub(crate) struct AuditFeed(Mutex<Vec<mpsc::UnboundedSender<Arc<AuditRecord>>>>);

impl AuditFeed {
    pub(crate) fn subscribe(&self) -> Subscription<Arc<AuditRecord>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        Subscription::new(receiver)
    }

    pub(crate) fn publish(&self, record: AuditRecord) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !senders.is_empty() {
            let record = Arc::new(record);
            senders.retain(|sender| sender.send(record.clone()).is_ok());
        }
    }
}
