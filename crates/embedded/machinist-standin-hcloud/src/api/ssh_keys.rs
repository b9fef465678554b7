//! SSH keys.

use serde_json::{Value, json};

use super::call::{Call, Handled, MaybeHandled, Reply, found, id_of};
use super::list::list;
use crate::error::ApiError;
use crate::model::SshKey;

pub(super) fn handle(call: &mut Call<'_>, method: &str, segments: &[&str]) -> MaybeHandled {
    match (method, segments) {
        ("GET", []) => {
            let of_project = call.state().ssh_keys.values().filter(|key| key.project == call.project);
            let wanted = call.query.get("fingerprint");
            let keys = of_project.filter(|key| wanted.is_none_or(|wanted| fingerprint(key) == wanted));
            found(list(call, "ssh_keys", keys.collect(), json_of))
        }
        ("POST", []) => found(create(call)),
        ("GET", [id]) => found(get(call, id)),
        ("DELETE", [id]) => found(delete(call, id)),
        _ => None,
    }
}

fn existing<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a SshKey, ApiError> {
    let key = call.state().ssh_keys.get(&id_of(id, "ssh_key")?);
    key.filter(|key| key.project == call.project).ok_or_else(|| ApiError::not_found("ssh_key"))
}

fn get(call: &Call<'_>, id: &str) -> Handled {
    Ok(Reply::ok(json!({"ssh_key": json_of(existing(call, id)?)})))
}

fn create(call: &mut Call<'_>) -> Handled {
    let mut body = call.body()?;
    let name = body.required_text("name");
    let public_key = body.required_text("public_key");
    let labels = body.labels("labels").unwrap_or_default();
    body.finish()?;
    let mut of_project = call.state().ssh_keys.values().filter(|key| key.project == call.project);
    if of_project.any(|key| key.name == name || key.public_key == public_key) {
        return Err(ApiError::not_unique("ssh_key", "name"));
    }
    let id = call.books.store.next_id(call.books.settings.seed);
    let key = SshKey { id, project: call.project.to_owned(), name, created: call.now, labels, public_key };
    let reply = Reply::created(json!({"ssh_key": json_of(&key)}));
    call.books.store.put_ssh_key(key);
    Ok(reply)
}

fn delete(call: &mut Call<'_>, id: &str) -> Handled {
    let id = existing(call, id)?.id;
    call.books.store.remove_ssh_key(id);
    Ok(Reply::empty())
}

fn json_of(key: &SshKey) -> Value {
    json!({
        "id": key.id, "name": key.name, "created": key.created, "labels": key.labels,
        "public_key": key.public_key,
        "fingerprint": fingerprint(key),
    })
}

/// A text of this key alone. A real fingerprint needs MD5, and no client computes it.
fn fingerprint(key: &SshKey) -> String {
    format!("00:00:00:00:00:00:00:00:{:016x}", key.id)
}
