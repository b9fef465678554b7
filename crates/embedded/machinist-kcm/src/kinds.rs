//! Maps kinds to resources: owner references name kinds, requests name resources.
//!
//! Results are cached. A served kind stays cached until its definition changes. A kind that is not
//! served is looked up again after a while, since a definition may be added.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, Error};
use tokio::time::Instant;

/// Time for which a kind counts as not served.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Owner references can name arbitrary kinds. Beyond this many, those that are not served are
/// forgotten.
const KINDS_KEPT: usize = 256;

/// A resource and its scope.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) api: ApiResource,
    pub(crate) scope: Scope,
}

impl Resource {
    /// Returns the client API of this resource; `namespace` is ignored for cluster-scoped
    /// resources.
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self.scope {
            Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &self.api),
            Scope::Cluster => Api::all_with(client.clone(), &self.api),
        }
    }
}

/// Cache of the looked-up kinds.
pub(crate) struct Kinds {
    client: Client,
    known: Mutex<BTreeMap<(String, String), Known>>,
}

enum Known {
    Served(Resource),
    NotServed { since: Instant },
}

impl Kinds {
    /// Creates a cache with these resources.
    pub(crate) fn new(client: Client, resources: impl IntoIterator<Item = Resource>) -> Self {
        let served = |resource: Resource| {
            ((resource.api.api_version.clone(), resource.api.kind.clone()), Known::Served(resource))
        };
        Self { client, known: Mutex::new(resources.into_iter().map(served).collect()) }
    }

    /// Removes a kind in all of its versions, so that it is looked up again.
    pub(crate) fn forget(&self, group: &str, kind: &str) {
        let group_of =
            |api_version: &str| api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        self.lock().retain(|(api_version, known), _| known != kind || group_of(api_version) != group);
    }

    /// Returns the resource of a kind; `None` if the server does not serve it.
    pub(crate) async fn resource(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, Error> {
        let key = (api_version.to_owned(), kind.to_owned());
        match self.lock().get(&key) {
            Some(Known::Served(resource)) => return Ok(Some(resource.clone())),
            Some(Known::NotServed { since }) if since.elapsed() < ASK_AGAIN_AFTER => return Ok(None),
            Some(Known::NotServed { .. }) | None => {}
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let found = match pinned_kind(&self.client, &GroupVersionKind::gvk(group, version, kind)).await {
            Ok((api, capabilities)) => Some(Resource { api, scope: capabilities.scope }),
            Err(error) if says_not_served(&error) => None,
            Err(error) => return Err(error),
        };
        let known = match &found {
            Some(resource) => Known::Served(resource.clone()),
            None => Known::NotServed { since: Instant::now() },
        };
        let mut all = self.lock();
        if KINDS_KEPT <= all.len() {
            all.retain(|_, known| matches!(known, Known::Served(_)));
        }
        all.insert(key, known);
        drop(all);
        Ok(found)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn says_not_served(error: &Error) -> bool {
    match error {
        Error::Discovery(_) => true,
        Error::Api(status) => status.code == 404,
        _ => false,
    }
}
