//! GET of one object, and the formats of objects in answers.

use std::sync::Arc;
use std::time::Duration;

use crate::server::core::Core;
use crate::server::verbs::{Answer, Call};
use crate::values::key::Key;
use crate::values::object::Object;
use crate::values::status::{ApiError, ApiResult};

pub(crate) async fn get(call: &Call) -> ApiResult<Answer> {
    let object = read(call).await?;
    Ok(Answer::json(200, call.render(&object)))
}

/// Reads the object in the path, at least as new as `resourceVersion` demands.
pub(crate) async fn read(call: &Call) -> ApiResult<Arc<Object>> {
    let key = Key::new(&call.path.namespace, &call.path.name);
    let collection = &call.served.resource.collection;
    let wanted = call.query.text("resourceVersion");
    let found = match (wanted, &call.view) {
        ("0", Some(view)) => match view.limit() {
            Some(limit) => call.core.store.get_at(collection, &key, limit),
            None => call.core.store.get_shown(collection, &key),
        },
        ("" | "0", _) => call.core.store.get_shown(collection, &key),
        (text, _) => {
            wait_for(&call.core, parse_revision(text)?).await?;
            call.core.store.get_shown(collection, &key)
        }
    };
    found.ok_or_else(|| call.served.not_found(&call.path.name))
}

/// Parses a `resourceVersion` parameter.
pub(crate) fn parse_revision(text: &str) -> ApiResult<u64> {
    text.parse().map_err(|_| {
        ApiError::unexpected(format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"))
    })
}

/// Waits until the store has reached `revision`. Fails with 504 after a few seconds.
pub(crate) async fn wait_for(core: &Core, revision: u64) -> ApiResult<()> {
    let limit: Duration = core.config.future_revision_wait;
    let reached = tokio::time::timeout(limit, core.store.reaches(revision)).await;
    reached.map_err(|_| ApiError::too_large_resource_version(revision, core.store.revision()))
}
