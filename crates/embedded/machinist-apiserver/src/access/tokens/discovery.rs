//! OpenID discovery: the issuer's configuration and its public key, so that other parties can
//! verify tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::json;

use crate::access::keys::Keys;
use crate::access::tokens::ISSUER;
use crate::values::object::to_bytes;
use crate::values::status::{ApiError, ApiResult};

const KEYS: &str = "/openid/v1/jwks";

/// Returns the document at `path` with its media type, if it exists. `host` is the address that the
/// caller uses for this server.
pub(crate) fn document(path: &str, host: &str, keys: &Keys) -> Option<ApiResult<(&'static str, Bytes)>> {
    match path.trim_end_matches('/') {
        KEYS => Some(key_set(keys).map(|text| ("application/jwk-set+json", text))),
        "/.well-known/openid-configuration" => {
            let text = to_bytes(&json!({
                "issuer": ISSUER, "jwks_uri": format!("https://{host}{KEYS}"),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }));
            Some(Ok(("application/json", text)))
        }
        _ => None,
    }
}

fn key_set(keys: &Keys) -> ApiResult<Bytes> {
    let key = keys.token_key().map_err(|e| ApiError::internal(e.to_string()))?;
    let (x, y) = key.coordinates();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let shown = json!({
        "use": "sig", "kty": "EC", "kid": key.id(), "crv": "P-256", "alg": "ES256", "x": encode(x), "y": encode(y),
    });
    Ok(to_bytes(&json!({"keys": [shown]})))
}
