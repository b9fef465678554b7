//! Deletes bootstrap tokens when they expire. The server already rejects an expired token, so the
//! deletion only cleans up.
//!
//! The controller keeps the expiration of each token, never the token itself. It deletes at the
//! resourceVersion that it read, so a token with a meanwhile extended expiration stays.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use machinist_kube::{KeyQueue, ObjectKey, SharedClock, Skew, WriteOutcome};

use crate::view::View;
use crate::work::{Controller, Next};

/// Namespace in which the API server looks for bootstrap tokens.
pub(crate) const NAMESPACE: &str = "kube-system";

/// Selects bootstrap tokens among the Secrets.
pub(crate) const FIELD_SELECTOR: &str = "type=bootstrap.kubernetes.io/token";

/// If the clocks of server and process may differ by more than this, no token is deleted because of
/// its age.
const MAX_SKEW: Duration = Duration::from_secs(30);

/// Expiration of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TokenFacts {
    /// The token has no expiration.
    NeverExpires,
    ExpiresAt(Timestamp),
    /// The expiration is not a valid time. The server rejects such tokens, so the token counts as
    /// expired.
    Nonsense,
}

impl TokenFacts {
    pub(crate) fn parse(secret: Secret) -> Self {
        let data = secret.data.unwrap_or_default();
        match data.get("expiration").map(|bytes| std::str::from_utf8(&bytes.0)) {
            None | Some(Ok("")) => Self::NeverExpires,
            Some(Ok(text)) => text.parse().map_or(Self::Nonsense, Self::ExpiresAt),
            Some(Err(_)) => Self::Nonsense,
        }
    }

    /// Remaining lifetime of the token; `None` means unlimited.
    fn left(self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::NeverExpires => None,
            Self::Nonsense => Some(Duration::ZERO),
            Self::ExpiresAt(end) if end <= now => Some(Duration::ZERO),
            Self::ExpiresAt(end) => Some(end.duration_since(now).unsigned_abs()),
        }
    }
}

pub(crate) struct BootstrapTokens {
    client: Client,
    clock: SharedClock,
    skew: Skew,
    queue: KeyQueue<ObjectKey>,
    tokens: Arc<View<TokenFacts>>,
}

/// Returns a queue that is woken for each changed token.
pub(crate) fn listen(tokens: &mut View<TokenFacts>, seed: u64) -> KeyQueue<ObjectKey> {
    let queue = KeyQueue::new(|_| Duration::ZERO, seed);
    let on_token = queue.clone();
    tokens.listen(move |change| on_token.wake(change.key.clone()));
    queue
}

impl Controller for BootstrapTokens {
    type Key = ObjectKey;

    const NAME: &'static str = "bootstrap-tokens";

    fn queue(&self) -> &KeyQueue<ObjectKey> {
        &self.queue
    }

    async fn pass(&self, key: &ObjectKey) -> Next {
        let (facts, uid, resource_version) = {
            let store = self.tokens.store();
            let Some(entry) = store.get(key) else { return Next::Idle };
            (entry.facts.clone(), entry.uid.clone(), entry.resource_version)
        };
        let now = self.clock.now();
        let is_skewed = self.skew.at_most(now).is_some_and(|skew| MAX_SKEW < skew);
        match facts.left(now) {
            None => Next::Idle,
            Some(Duration::ZERO) if is_skewed => {
                Next::Failed("token not deleted: the clocks of the server and of this process may differ too much. Synchronize them".to_owned())
            }
            Some(Duration::ZERO) => {
                tracing::info!(secret = %key, "Deleting an expired bootstrap token");
                self.delete(key, uid, resource_version).await
            }
            Some(left) => Next::In(left),
        }
    }
}

impl BootstrapTokens {
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        skew: Skew,
        queue: KeyQueue<ObjectKey>,
        tokens: Arc<View<TokenFacts>>,
    ) -> Self {
        Self { client, clock, skew, queue, tokens }
    }

    async fn delete(&self, key: &ObjectKey, uid: String, resource_version: u64) -> Next {
        let preconditions =
            Some(Preconditions { uid: Some(uid), resource_version: Some(resource_version.to_string()) });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        // The response may contain the whole Secret. Only its success matters, and nothing of it is
        // kept.
        let result = secrets.delete(&key.name, &params).await;
        Next::after_write("delete an expired bootstrap token", WriteOutcome::of(&result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn token(expiration: Option<&[u8]>) -> TokenFacts {
        let data = expiration.map(|bytes| ("expiration".to_owned(), ByteString(bytes.to_vec())));
        TokenFacts::parse(Secret { data: Some(data.into_iter().collect()), ..Secret::default() })
    }

    fn left(expiration: Option<&[u8]>) -> Option<u64> {
        let now = "2030-01-01T00:00:00Z".parse().expect("a time");
        token(expiration).left(now).map(|left| left.as_secs())
    }

    #[test]
    fn a_token_is_good_until_its_expiration() {
        assert_eq!(left(Some(b"2030-01-01T00:00:10Z")), Some(10));
        assert_eq!(left(Some(b"2030-01-01T00:00:00Z")), Some(0));
        assert_eq!(left(Some(b"2029-12-31T23:00:00+01:00")), Some(0));
    }

    #[test]
    fn a_token_without_expiration_stays_an_invalid_one_is_expired() {
        assert_eq!(left(None), None);
        assert_eq!(left(Some(b"")), None);
        assert_eq!(left(Some(b"tomorrow")), Some(0));
        assert_eq!(left(Some(&[0xff])), Some(0));
    }
}
