//! DELETE of one object and of collections.

use std::sync::Arc;

use serde_json::json;

use crate::schema::conversion::in_version;
use crate::server::verbs::list::{prefix, selector};
use crate::server::verbs::write::deletion::{DeleteOptions, Deleted, delete_one};
use crate::server::verbs::write::prepare::context;
use crate::server::verbs::{Answer, Call, Effect};
use crate::store::selector::Selector;
use crate::values::key::Key;
use crate::values::object::{Object, drop_field, to_bytes};
use crate::values::status::ApiResult;

/// Warning for Jobs, which keep their pods by default.
const ORPHANS_PODS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

pub(crate) fn delete(call: &Call) -> ApiResult<Answer> {
    let options = DeleteOptions::of(call)?;
    warn_of_orphans(call, &options);
    let call = &call.taking(Effect::of(&options.dry_run));
    let key = Key::new(&call.path.namespace, &call.path.name);
    call.served.rules().admit_delete(&call.served.target(&call.path.name), &key, &context(call))?;
    let deleted = delete_one(call, &key, &options)?;
    // Only requests with the older option get 202 for a pending deletion.
    let pending = if options.orphan_dependents == Some(false) { 202 } else { 200 };
    Ok(match deleted {
        Deleted::Unchanged(object) => Answer::json(pending, call.render(&object)),
        Deleted::Deleting(object) => {
            Answer::json(pending, call.render(&object)).committed(call, object.revision())
        }
        Deleted::Gone(object) if call.served.returns_deleted() => {
            Answer::json(200, call.render(&object)).committed(call, object.revision())
        }
        Deleted::Gone(object) => {
            let mut details =
                json!({"name": object.name(), "kind": call.served.resource.plural, "uid": object.uid()});
            if !call.served.resource.group.is_empty() {
                details["group"] = json!(call.served.resource.group);
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details
            });
            Answer::json(200, to_bytes(&status)).committed(call, object.revision())
        }
    })
}

/// Warns that a Job's pods stay, if the request has no propagation policy.
fn warn_of_orphans(call: &Call, options: &DeleteOptions) {
    if call.served.built_in().is_some_and(|kind| kind.orphans) && options.propagation().is_none() {
        call.warn(vec![ORPHANS_PODS.to_owned()]);
    }
}

/// Deletes all objects that match the selectors, one by one.
pub(crate) fn delete_collection(call: &Call) -> ApiResult<Answer> {
    let selector = selector(call)?;
    let options = DeleteOptions::of(call)?;
    warn_of_orphans(call, &options);
    let call = &call.taking(Effect::of(&options.dry_run));
    // Checked once without a name, as in kube-apiserver.
    let nameless = Key::new(&call.path.namespace, "");
    call.served.rules().admit_delete(&call.served.target(""), &nameless, &context(call))?;
    let mut items = Vec::new();
    let mut revision = None;
    let list_revision = call.core.store.revision();
    for (key, object) in matching(call, &call.path.namespace, &selector) {
        match delete_one(call, &key, &options) {
            Ok(Deleted::Gone(gone) | Deleted::Deleting(gone)) => revision = Some(gone.revision()),
            Ok(Deleted::Unchanged(_)) => {}
            // Another client deleted the object first.
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
        let mut item = in_version(&object.whole(), &call.served);
        if !call.served.is_custom() {
            // Typed lists name the type of their items only in their own kind.
            drop_field(&mut item, "kind");
            drop_field(&mut item, "apiVersion");
        }
        items.push(item);
    }
    let mut body = json!({
        "kind": call.served.resource.list_kind, "apiVersion": call.served.api_version(),
        "metadata": {"resourceVersion": list_revision.to_string()}, "items": items,
    });
    if call.served.is_custom() {
        body["metadata"]["continue"] = json!("");
    }
    let answer = Answer::json(200, to_bytes(&body));
    Ok(match revision {
        Some(revision) => answer.committed(call, revision),
        None => answer,
    })
}

fn matching(call: &Call, namespace: &str, selector: &Selector) -> Vec<(Key, Arc<Object>)> {
    let slice = call.core.store.slice(&call.served.resource.collection, &prefix(namespace), None, None);
    let items = slice.map(|s| s.items).unwrap_or_default();
    items.into_iter().filter(|(_, object)| selector.selects(object)).collect()
}
