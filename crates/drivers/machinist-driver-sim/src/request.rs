//! Builds the cloud's requests. Pure functions.

use machinist_cloud_sim::{CreateRequest, DeleteRequest, Request};
use machinist_instance::{InstanceKey, InstanceRef, InstanceSpec, Scope};

use crate::spec::ProviderSpec;

pub(crate) fn ensure(spec: &InstanceSpec, provider_spec: ProviderSpec) -> Request {
    Request::Ensure(CreateRequest {
        key: spec.key.clone(),
        name: spec.name.clone(),
        cluster: spec.cluster.clone(),
        instance_type: provider_spec.instance_type,
        region: provider_spec.region,
        zone: provider_spec.zone,
        image: provider_spec.image,
        boot_seconds: provider_spec.boot_seconds,
        user_data: spec.user_data.clone(),
        tags: spec.tags.clone(),
        adopt_made_since: spec.adopt_made_since,
    })
}

pub(crate) fn list(scope: &Scope) -> Request {
    let cluster = match scope {
        Scope::Ours(cluster) => Some(cluster.clone()),
        Scope::Visible => None,
    };
    Request::List { cluster }
}

pub(crate) fn delete(which: &InstanceRef, owner: &InstanceKey) -> Request {
    Request::Delete(DeleteRequest { which: which.clone(), owner: owner.clone() })
}
