//! The operator's functions over HTTP.
//!
//! | Route | |
//! |---|---|
//! | `GET`, `PATCH /_control/settings` | the settings; tokens are written and not read |
//! | `POST /_control/advance` | `{"seconds": 60}` |
//! | `POST /_control/rate` | `{"project": "default", "limit": 100, "remaining": 10}` |
//! | `POST /_control/tokens/revoke` | `{"token": "..."}` |
//! | `GET`, `POST`, `DELETE /_control/faults`, `DELETE /_control/faults/N` | the fault rules |
//! | `POST /_control/actions/freeze`, `/thaw` | new actions never end; they end again |
//! | `POST /_control/actions/fail-next` | `{"command": "add_route", "code": "...", "message": "..."}`; without a command any action |
//! | `GET`, `DELETE /_control/requests`, `GET /_control/counters` | the recorded requests |
//! | `GET`, `PUT /_control/state` | all objects |
//! | `POST /_control/reset` | removes all objects, faults and records |
//! | `GET /_control/servers` | every server that ever existed |
//! | `GET /_control/alive?label=KEY` | the servers that exist, with that label |
//! | `POST /_control/servers` | creates a server: `{"project": "default", "name": "a"}` |
//! | `PATCH /_control/servers/ID` | changes fields, such as `{"status": "migrating"}`, `{"ipv4": null}`, `{"name": "b"}` or `{"project": "other"}` |
//! | `DELETE /_control/servers/ID` | deletes a server at once |
//! | `GET /_control/servers/ID/console` | the last lines that its machine printed |
//! | `POST /_control/servers/ID/power-off`, `/power-on` | at once |
//! | `POST /_control/servers/ID/detach` | `{"network": 1}` |
//! | `DELETE /_control/projects/NAME` | deletes all servers of a project at once |

use std::time::Duration;

use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::response::{ReplyBody, json as json_response};
use crate::api::Query;
use crate::{ControlError, FaultRule, HcloudServer, NewServer, Settings, Standin, State};

/// Enough to see why a machine did not join.
const CONSOLE_LINES: usize = 200;

pub(super) fn respond(
    standin: &Standin,
    method: &Method,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Response<ReplyBody> {
    let query = Query::parse(query.unwrap_or_default());
    let segments: Vec<&str> = path.trim_start_matches("/_control").trim_matches('/').split('/').collect();
    match route(standin, method.as_str(), &segments, &query, body) {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err((status, message)) => json_response(status, &json!({"error": {"message": message}})),
    }
}

type Routed = Result<Value, (StatusCode, String)>;

fn route(standin: &Standin, method: &str, segments: &[&str], query: &Query, body: &[u8]) -> Routed {
    match (method, segments) {
        ("GET", ["settings"]) => Ok(settings_json(&standin.settings())),
        ("PATCH", ["settings"]) => change_settings(standin, body),
        ("POST", ["advance"]) => {
            let Seconds { seconds } = parse(body)?;
            let by = Duration::try_from_secs_f64(seconds)
                .map_err(|_| invalid("seconds: expected zero or more"))?;
            standin.advance(by);
            Ok(json!({"now": standin.now()}))
        }
        ("POST", ["rate"]) => {
            let NewRate { project, limit, remaining } = parse(body)?;
            done(|| standin.set_rate(&project, limit, remaining))
        }
        ("POST", ["tokens", "revoke"]) => {
            let Token { token } = parse(body)?;
            Ok(json!({"revoked": standin.revoke_token(&token)}))
        }
        (_, ["faults", rest @ ..]) => faults(standin, method, rest, body),
        (_, ["actions", rest @ ..]) => actions(standin, method, rest, body),
        ("GET", ["requests"]) => Ok(json!(standin.requests())),
        ("DELETE", ["requests"]) => done(|| standin.clear_requests()),
        ("GET", ["counters"]) => Ok(json!(standin.counters())),
        ("GET", ["state"]) => Ok(json!(standin.dump())),
        ("PUT", ["state"]) => written(standin.load(parse::<State>(body)?)),
        ("POST", ["reset"]) => written(standin.reset()),
        ("GET", ["alive"]) => {
            let key = query.get("label").ok_or_else(|| invalid("label: expected a label key"))?;
            Ok(json!(standin.truly_alive(key)))
        }
        (_, ["servers", rest @ ..]) => servers(standin, method, rest, body),
        ("DELETE", ["projects", project]) => done(|| standin.empty_project(project)),
        _ => Err((StatusCode::NOT_FOUND, format!("/_control has no {method} {}", segments.join("/")))),
    }
}

fn faults(standin: &Standin, method: &str, segments: &[&str], body: &[u8]) -> Routed {
    match (method, segments) {
        ("GET", []) => Ok(json!(standin.faults())),
        ("POST", []) => Ok(json!({"number": standin.add_fault(parse::<FaultRule>(body)?)})),
        ("DELETE", []) => done(|| standin.clear_faults()),
        ("DELETE", [number]) => {
            let number = number.parse().map_err(|_| invalid("fault: expected the number of a rule"))?;
            done(|| standin.remove_fault(number))
        }
        _ => Err((StatusCode::NOT_FOUND, format!("/_control/faults has no {method}"))),
    }
}

fn actions(standin: &Standin, method: &str, segments: &[&str], body: &[u8]) -> Routed {
    match (method, segments) {
        ("POST", ["freeze"]) => done(|| standin.freeze_actions()),
        ("POST", ["thaw"]) => done(|| standin.thaw_actions()),
        ("POST", ["fail-next"]) => {
            let FailNext { command, code, message } = parse(body)?;
            done(|| standin.fail_next_action(command.as_deref(), &code, &message))
        }
        _ => Err((StatusCode::NOT_FOUND, "expected POST freeze, thaw or fail-next".to_owned())),
    }
}

fn servers(standin: &Standin, method: &str, segments: &[&str], body: &[u8]) -> Routed {
    let id = || {
        let id = segments.first().and_then(|id| id.parse::<i64>().ok());
        id.ok_or_else(|| invalid("server: expected its id"))
    };
    match (method, segments) {
        ("GET", []) => Ok(json!(standin.servers_ever())),
        ("POST", []) => Ok(json!(standin.create_server(&parse::<NewServer>(body)?).map_err(refused)?)),
        ("DELETE", [_]) => standin.delete_server(id()?).map_err(refused).map(|()| json!({})),
        ("PATCH", [_]) => change_server(standin, id()?, body),
        ("GET", [_, "console"]) => Ok(json!(standin.console(id()?, CONSOLE_LINES))),
        ("POST", [_, "power-off"]) => standin.power_off(id()?).map_err(refused).map(|()| json!({})),
        ("POST", [_, "power-on"]) => standin.power_on(id()?).map_err(refused).map(|()| json!({})),
        ("POST", [_, "detach"]) => {
            let Detach { network } = parse(body)?;
            standin.detach_server(id()?, network).map_err(refused).map(|()| json!({}))
        }
        _ => {
            Err((StatusCode::NOT_FOUND, format!("/_control/servers has no {method} {}", segments.join("/"))))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seconds {
    seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRate {
    project: String,
    limit: u32,
    remaining: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailNext {
    #[serde(default)]
    command: Option<String>,
    code: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Detach {
    network: i64,
}

/// The settings without the tokens, which are secret.
fn settings_json(settings: &Settings) -> Value {
    let mut json = json!(settings);
    if let Some(fields) = json.as_object_mut() {
        fields.remove("tokens");
    }
    json
}

/// Changes the fields that the body names; other fields keep their values.
fn change_settings(standin: &Standin, body: &[u8]) -> Routed {
    let changes: Map<String, Value> = parse(body)?;
    let settings: Settings = merged(&standin.settings(), changes)?;
    standin.configure(|current| *current = settings);
    Ok(settings_json(&standin.settings()))
}

/// Changes the fields that the body names. Identifiers and times stay.
fn change_server(standin: &Standin, id: i64, body: &[u8]) -> Routed {
    let mut changes: Map<String, Value> = parse(body)?;
    for fixed in ["id", "serial", "created", "deleted"] {
        if changes.remove(fixed).is_some() {
            return Err(invalid(&format!("{fixed}: expected another field, this one cannot change")));
        }
    }
    let before = standin.server(id).ok_or_else(|| invalid("server not found"))?;
    let after: HcloudServer = merged(&before, changes)?;
    standin.change_server(id, |server| *server = after).map_err(refused)?;
    Ok(json!(standin.server(id)))
}

fn merged<T: serde::Serialize + DeserializeOwned>(
    before: &T,
    changes: Map<String, Value>,
) -> Result<T, (StatusCode, String)> {
    let Value::Object(mut fields) = json!(before) else { return Err(invalid("expected an object")) };
    fields.extend(changes);
    // The error names the field and the expected form, not the value.
    serde_json::from_value(Value::Object(fields)).map_err(|error| invalid(&error.to_string()))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| invalid(&format!("body: {error}")))
}

fn invalid(message: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, message.to_owned())
}

fn refused(error: ControlError) -> (StatusCode, String) {
    (StatusCode::CONFLICT, error.to_string())
}

fn written(result: std::io::Result<()>) -> Routed {
    result
        .map(|()| json!({}))
        .map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, format!("cannot write the journal: {error}")))
}

fn done(act: impl FnOnce()) -> Routed {
    act();
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    /// A user finds the functions in the book, in the words of this file.
    #[test]
    fn the_book_lists_every_function() {
        let page = include_str!("../../../../../docs/src/ccm/stand-in.md");
        let rows = include_str!("control.rs").lines().filter_map(|line| line.strip_prefix("//! "));
        let rows: Vec<&str> = rows.filter(|line| line.starts_with("| `")).collect();
        assert!(10 < rows.len(), "{rows:?}");
        for row in rows {
            assert!(page.lines().any(|line| line == row), "docs/src/ccm/stand-in.md lacks {row}");
        }
    }
}
