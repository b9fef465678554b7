//! One module per verb, all with the same write path.

pub(crate) mod apply;
pub(crate) mod bind;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod evict;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod scale;
pub(crate) mod token;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use crate::access::authz::caller::Caller;
use crate::log::origin::Origin;
use crate::schema::body::FieldValidation;
use crate::schema::resource::Served;
use crate::schema::shape::{Shape, render};
use crate::server::core::Core;
use crate::server::replica::ReplicaView;
use crate::store::mvcc::{Change, Raced};
use crate::values::identity::Identity;
use crate::values::key::Key;
use crate::values::object::Object;
use crate::values::query::Query;
use crate::values::route::ResourcePath;
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// One request on a resource, authenticated and routed.
pub(crate) struct Call {
    pub(crate) core: Arc<Core>,
    pub(crate) served: Served,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) identity: Arc<Identity>,
    pub(crate) origin: Origin,
    pub(crate) shape: Shape,
    pub(crate) view: Option<ReplicaView>,
    pub(crate) effect: Effect,
    pub(crate) validation: FieldValidation,
    /// Warnings for the caller.
    pub(crate) warnings: Mutex<Vec<String>>,
}

/// Returns the media type of the body, JSON by default.
fn content_type(headers: &HeaderMap) -> &str {
    headers.get(http::header::CONTENT_TYPE).and_then(|c| c.to_str().ok()).unwrap_or("application/json")
}

/// Whether a write is committed or only checked (dry run).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Commit,
    DryRun,
}

impl Effect {
    /// Reads the effect from the query of a write with options of this kind.
    pub(crate) fn asked(query: &Query, options: &str) -> ApiResult<Self> {
        let asked = query.all("dryRun");
        let mut errors = FieldErrors::default();
        Self::check(asked, &mut errors);
        if errors.is_empty() {
            Ok(Self::of(asked))
        } else {
            Err(ApiError::invalid("meta.k8s.io", options, "", &errors))
        }
    }

    /// Parses the values of `dryRun`.
    pub(crate) fn of(asked: &[String]) -> Self {
        if asked.is_empty() { Effect::Commit } else { Effect::DryRun }
    }

    pub(crate) fn check(asked: &[String], errors: &mut FieldErrors) {
        if asked.iter().any(|value| value != "All") {
            errors.not_supported("dryRun", json!(asked), &["All".to_owned()]);
        }
    }
}

/// Answer of a verb.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
    /// Name for the audit record.
    pub(crate) name: Option<String>,
    pub(crate) revision: Option<u64>,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    pub(crate) fn json(code: u16, body: Bytes) -> Self {
        Answer { code, body, name: None, revision: None, warnings: Vec::new() }
    }

    /// Records the commit's revision. A dry run has none.
    pub(crate) fn committed(mut self, call: &Call, revision: u64) -> Self {
        self.revision = (call.effect == Effect::Commit).then_some(revision);
        self
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
}

impl Call {
    /// The client, as admission asks about it.
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { authorizer: self.core.authorizer(), identity: &self.identity }
    }

    /// A call that the server itself makes on a resource.
    pub(crate) fn of_server(core: Arc<Core>, served: Served) -> Call {
        Call {
            core,
            path: ResourcePath { plural: served.resource.plural.clone(), ..ResourcePath::default() },
            served,
            query: Query::default(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            identity: Arc::new(Identity::admin()),
            origin: Origin::default(),
            shape: Shape::Full,
            view: None,
            effect: Effect::Commit,
            validation: FieldValidation::Ignore,
            warnings: Mutex::default(),
        }
    }

    /// Copies the call with the effect that its body requested.
    pub(crate) fn taking(&self, effect: Effect) -> Call {
        Call { path: self.path.clone(), effect, ..self.on(self.served.clone()) }
    }

    /// Copies the call with another resource and the same caller.
    pub(crate) fn on(&self, served: Served) -> Call {
        Call {
            identity: self.identity.clone(),
            origin: self.origin.clone(),
            shape: self.shape,
            effect: self.effect,
            ..Call::of_server(self.core.clone(), served)
        }
    }

    /// Reports whether the request stores an object. Reviews and tokens are created and answered,
    /// but not stored.
    pub(crate) fn is_kept(&self) -> bool {
        !self.served.is_only_created() && self.path.subresource != "token"
    }

    pub(crate) fn content_type(&self) -> &str {
        content_type(&self.headers)
    }

    /// Adds warnings for the caller, each once.
    pub(crate) fn warn(&self, warnings: Vec<String>) {
        let mut said = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        // A write that lost a race is checked again, and repeats its warnings.
        for warning in warnings {
            if !said.contains(&warning) {
                said.push(warning);
            }
        }
    }

    /// Renders the object's text in the caller's format.
    pub(crate) fn render(&self, object: &Object) -> Bytes {
        render(object, &self.served, self.shape, self.core.config.clock.now())
    }

    /// Commits a change. In a dry run, returns the object that the change would produce.
    pub(crate) fn commit(
        &self,
        collection: &Arc<str>,
        key: &Key,
        change: Change,
    ) -> Result<Arc<Object>, Raced> {
        match self.effect {
            Effect::Commit => self.core.store.commit(collection, key, change, &self.origin),
            Effect::DryRun => match change {
                Change::Create(_) if self.core.store.get(collection, key).is_some() => Err(Raced),
                Change::Create(value) => Ok(Object::new(value, 0)),
                Change::Update { read, value } => {
                    let revision = read.revision();
                    Ok(Object::following(&read, value, revision))
                }
                Change::Delete { read } => Ok(read),
            },
        }
    }
}
