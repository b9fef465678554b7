//! TokenRequest: the subresource `serviceaccounts/NAME/token`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::access::authz::restriction;
use crate::access::tokens::{ISSUER, PRIVATE, account_user, sign};
use crate::schema::crd::prune;
use crate::schema::kinds::{decode, notation};
use crate::server::verbs::write::decode::decode_body;
use crate::server::verbs::write::prepare::admit_namespace;
use crate::server::verbs::{Answer, Call};
use crate::values::clock::rfc3339_seconds;
use crate::values::key::Key;
use crate::values::object::{Object, meta_str, to_bytes};
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// Default lifetime of a token.
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

pub(crate) fn create(call: &Call) -> ApiResult<Answer> {
    let mut asked = decode_body(call)?;
    let schema = notation::schema(KIND);
    decode::check_types(&asked, &schema, KIND, "v1")?;
    prune::normalise(&mut asked, &schema);
    admit_namespace(call, &call.path.name)?;
    check_place(call, &asked)?;
    restriction::admit_token(&call.caller(), &call.path.namespace, &call.path.name, &asked)?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    let account = call.core.store.get_shown("serviceaccounts", &key);
    let account = account.ok_or_else(|| call.served.not_found(&call.path.name))?;
    let wanted = WantedToken::of(&asked)?;
    let bound = bound_to(call, &asked)?;
    let now = call.core.config.clock.now();
    let expires = now.checked_add(SignedDuration::from_secs(wanted.seconds)).unwrap_or(Timestamp::MAX);
    let mut private = Map::new();
    private.insert("namespace".into(), json!(call.path.namespace));
    private.insert("serviceaccount".into(), json!({"name": account.name(), "uid": account.uid()}));
    private.extend(bound);
    let claims = json!({
        "iss": ISSUER, "aud": wanted.audiences, "sub": account_user(&call.path.namespace, account.name()),
        "iat": now.as_second(), "nbf": now.as_second(), "exp": now.as_second() + wanted.seconds,
        "jti": call.core.config.ids.uid(), PRIVATE: private,
    });
    let signed = call.core.keys.token_key().and_then(|key| sign(key, &claims));
    let token = signed.map_err(|e| ApiError::internal(e.to_string()))?;
    let answer = json!({
        "kind": KIND, "apiVersion": format!("{GROUP}/v1"),
        "metadata": {
            "name": account.name(), "namespace": call.path.namespace, "uid": account.uid(),
            "creationTimestamp": rfc3339_seconds(now),
        },
        "spec": {
            "audiences": wanted.audiences, "expirationSeconds": wanted.seconds,
            "boundObjectRef": asked.pointer("/spec/boundObjectRef"),
        },
        "status": {"token": token, "expirationTimestamp": rfc3339_seconds(expires)},
    });
    Ok(Answer::json(201, to_bytes(&answer)))
}

/// Checks that the name and namespace in the body match the path.
fn check_place(call: &Call, asked: &Value) -> ApiResult<()> {
    let (namespace, name) = (meta_str(asked, "namespace"), meta_str(asked, "name"));
    if !namespace.is_empty() && namespace != call.path.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if name.is_empty() || name == call.path.name {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    errors.invalid("metadata.name", json!(name), "must match the service account name if specified");
    Err(ApiError::invalid(GROUP, KIND, &call.path.name, &errors))
}

struct WantedToken {
    audiences: Vec<String>,
    seconds: i64,
}

impl WantedToken {
    fn of(asked: &Value) -> ApiResult<Self> {
        let seconds =
            asked.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
        let problem = match seconds {
            ..MIN_SECONDS => Some("may not specify a duration less than 10 minutes"),
            MIN_SECONDS..=MAX_SECONDS => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(problem) = problem {
            let mut errors = FieldErrors::default();
            errors.invalid("spec.expirationSeconds", json!(seconds), problem);
            return Err(ApiError::invalid(GROUP, KIND, "", &errors));
        }
        let given = asked.pointer("/spec/audiences").and_then(Value::as_array).into_iter().flatten();
        let mut audiences: Vec<String> =
            given.filter_map(|audience| audience.as_str().map(str::to_owned)).collect();
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        Ok(WantedToken { audiences, seconds })
    }
}

/// Returns the bound object as claims.
fn bound_to(call: &Call, asked: &Value) -> ApiResult<Map<String, Value>> {
    let mut claims = Map::new();
    let Some(reference) = asked.pointer("/spec/boundObjectRef").filter(|reference| reference.is_object())
    else {
        return Ok(claims);
    };
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, api_version) = (text("kind"), text("name"), text("apiVersion"));
    let (claim, collection) = match (kind, api_version) {
        ("Pod", "" | "v1") => ("pod", "pods"),
        ("Secret", "" | "v1") => ("secret", "secrets"),
        ("Node", "" | "v1") => ("node", "nodes"),
        _ => {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let what = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(what));
        }
    };
    let namespace = if kind == "Node" { "" } else { call.path.namespace.as_str() };
    let held = call.core.store.get_shown(collection, &Key::new(namespace, name));
    let held = held.ok_or_else(|| ApiError::not_found(&Target { group: "", resource: collection, name }))?;
    if kind == "Pod" {
        bind_pod(call, &held, &mut claims)?;
    }
    let uid = text("uid");
    if !uid.is_empty() && uid != held.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(&Target { group: "", resource: kind, name }, &why));
    }
    claims.insert(claim.into(), json!({"name": name, "uid": held.uid()}));
    Ok(claims)
}

/// Binds a token to a pod. The pod must use the same account; the claims include the pod's node.
fn bind_pod(call: &Call, pod: &Object, claims: &mut Map<String, Value>) -> ApiResult<()> {
    let spec = |key: &str| pod.value()["spec"][key].as_str().unwrap_or_default();
    if spec("serviceAccountName") != call.path.name {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
            call.path.name
        )));
    }
    let node = spec("nodeName");
    if let Some(held) = call.core.store.get_shown("nodes", &Key::new("", node)).filter(|_| !node.is_empty()) {
        claims.insert("node".into(), json!({"name": node, "uid": held.uid()}));
    }
    Ok(())
}
