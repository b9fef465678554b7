//! TokenReview: finds the user of a token.

use serde_json::{Value, json};

use super::{text, texts};
use crate::access::authn::Authenticator;
use crate::access::tokens::{self, Rejected};
use crate::server::verbs::Call;
use crate::values::status::{ApiError, ApiResult};

pub(super) fn review(call: &Call, mut asked: Value) -> ApiResult<Value> {
    let token = text(&asked, "/spec/token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = texts(&asked, "/spec/audiences");
    let wanted: Vec<&str> = match audiences.as_slice() {
        [] => vec![tokens::ISSUER],
        some => some.iter().map(String::as_str).collect(),
    };
    asked["status"] = match identify(call, &token, &wanted) {
        Ok((user, audiences)) => json!({"authenticated": true, "user": user, "audiences": audiences}),
        Err(why) => json!({"user": {}, "error": why}),
    };
    Ok(asked)
}

/// Returns the user and the requested audiences that match the token, or the reason for its
/// rejection.
fn identify(call: &Call, token: &str, wanted: &[&str]) -> Result<(Value, Vec<String>), String> {
    const INVALID: &str = "invalid bearer token";
    if tokens::has_token_format(token) {
        return match tokens::identify(
            &call.core.store,
            &call.core.keys,
            call.core.config.clock.now(),
            token,
            wanted,
        ) {
            Ok((user, audiences)) => Ok((user.user_info(), audiences)),
            Err(Rejected::OtherAudience(of)) => {
                let shown = |list: Vec<String>| json!(list).to_string().replace("\",\"", "\" \"");
                let wanted = wanted.iter().map(ToString::to_string).collect();
                Err(format!(
                    "[{INVALID}, token audiences {} is invalid for the target audiences {}]",
                    shown(of),
                    shown(wanted)
                ))
            }
            Err(Rejected::Invalid) => Err(INVALID.to_owned()),
        };
    }
    let authenticator =
        Authenticator { store: &call.core.store, keys: &call.core.keys, now: call.core.config.clock.now() };
    match authenticator.bootstrap_token(token) {
        Some(user) => Ok((user.user_info(), wanted.iter().map(ToString::to_string).collect())),
        None => Err(INVALID.to_owned()),
    }
}
