//! Actions: lists, single actions, and the lists of one resource.

use serde_json::{Value, json};

use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use crate::error::ApiError;
use crate::model::HcloudAction;

/// `/actions` and `/actions/{id}`.
pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => found(list_some(call, |_| true)),
        ("GET", [id]) => found(get(call, id, |_| true)),
        _ => None,
    }
}

/// `/SORTS/actions`, `/SORTS/{id}/actions` and the single actions below them.
pub(super) fn of_resource(call: &mut Call<'_>, sort: &str, segments: &[&str]) -> MaybeHandled {
    let is_of_sort = |action: &HcloudAction| action.resources.iter().any(|resource| resource.kind == sort);
    match segments {
        ["actions"] => found(list_some(call, is_of_sort)),
        ["actions", id] => found(get(call, id, is_of_sort)),
        [of, "actions", rest @ ..] => {
            let of = of.parse::<i64>().ok()?;
            let is_of = |action: &HcloudAction| {
                action.resources.iter().any(|resource| resource.kind == sort && resource.id == of)
            };
            match rest {
                [] => found(list_some(call, is_of)),
                [id] => found(get(call, id, is_of)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn list_some(call: &mut Call<'_>, is_wanted: impl Fn(&HcloudAction) -> bool) -> Handled {
    let ids = call
        .query
        .all("id")
        .map(|id| id.parse::<i64>().map_err(|_| ApiError::invalid("id", "expected numbers")))
        .collect::<Result<Vec<_>, _>>()?;
    let shown = |call: &Call<'_>| -> Vec<i64> {
        let actions = call.state().actions.values();
        let of_project = actions.filter(|action| action.project == call.project && is_wanted(action));
        of_project.map(|action| action.id).filter(|id| ids.is_empty() || ids.contains(id)).collect()
    };
    for id in shown(call) {
        call.books.poll(id, call.now);
    }
    let ids = shown(call);
    let actions: Vec<&HcloudAction> = ids.iter().filter_map(|id| call.state().actions.get(id)).collect();
    list(call, "actions", actions, |action| json_of(action, call))
}

fn get(call: &mut Call<'_>, id: &str, is_wanted: impl Fn(&HcloudAction) -> bool) -> Handled {
    let id = id_of(id, "action")?;
    call.books.poll(id, call.now);
    let action = call.state().actions.get(&id);
    let action = action.filter(|action| action.project == call.project && is_wanted(action));
    let action = action.ok_or_else(|| ApiError::not_found("action"))?;
    Ok(Reply::ok(json!({"action": json_of(action, call)})))
}

/// The JSON of an action.
pub(super) fn json_of(action: &HcloudAction, call: &Call<'_>) -> Value {
    json!({
        "id": action.id, "command": action.command, "status": action.status,
        "progress": action.progress_at(call.now), "started": action.started, "finished": action.finished,
        "resources": action.resources, "error": action.error,
    })
}

/// The JSON of an action that this request began.
pub(super) fn json_with_id(call: &Call<'_>, id: i64) -> Value {
    call.state().actions.get(&id).map_or(Value::Null, |action| json_of(action, call))
}

/// The reply to a request that began an action.
pub(super) fn begun(call: &Call<'_>, id: i64) -> Reply {
    Reply::created(json!({"action": json_with_id(call, id)}))
}
