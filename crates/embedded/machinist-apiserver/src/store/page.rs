//! Continue tokens: the start of a list's next page, and its revision.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::values::key::Key;
use crate::values::status::{ApiError, ApiResult};

/// Version mark of the encoding, the same as in kube-apiserver.
const VERSION: &str = "meta.k8s.io/v1";

/// Position within a list. Opaque to clients. A token from another server is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Continue {
    /// Revision of the first page. `None` continues at the current revision, after the first page's
    /// revision expired.
    pub(crate) revision: Option<u64>,
    /// Last key of the previous page.
    pub(crate) after: Key,
}

#[derive(Serialize, Deserialize)]
struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
}

impl Continue {
    pub(crate) fn encode(&self) -> String {
        let revision = self.revision.and_then(|r| i64::try_from(r).ok()).unwrap_or(-1);
        // The zero byte turns the last served key into the next possible key.
        let token = ContinueToken { v: VERSION.into(), rv: revision, start: format!("{}\0", self.after) };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("three plain fields serialise"))
    }

    pub(crate) fn decode(token: &str) -> ApiResult<Self> {
        let invalid = |why: &str| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes =
            URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|e| invalid(&e.to_string()))?;
        let token: ContinueToken = serde_json::from_slice(&bytes).map_err(|e| invalid(&e.to_string()))?;
        if token.v != VERSION {
            return Err(invalid(&format!("server does not recognize this encoded version \"{}\"", token.v)));
        }
        let Some(after) = token.start.strip_suffix('\0').filter(|s| !s.is_empty()) else {
            return Err(invalid("incorrect encoded start resourceVersion 0 (version meta.k8s.io/v1)"));
        };
        let revision = match token.rv {
            -1 => None,
            0 => return Err(invalid("incorrect encoded start resourceVersion 0 (version meta.k8s.io/v1)")),
            rv => Some(u64::try_from(rv).map_err(|_| invalid("negative resourceVersion"))?),
        };
        Ok(Continue { revision, after: Key::from_text(after) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_round_trips_and_garbage_is_rejected() {
        let token = Continue { revision: Some(7), after: Key::new("ns", "a") };
        assert_eq!(Continue::decode(&token.encode()).expect("own token"), token);
        for garbage in ["", "!", "e30", "bnVsbA"] {
            assert_eq!(Continue::decode(garbage).expect_err("garbage").code(), 400, "{garbage}");
        }
    }
}
