//! Decides who may read a path: the API server knows the users and their permissions.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use machinist_serve::Rejection;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::decisions::{Decision, Decisions, Question};
use super::rejection;

/// Maximum length of a path in bytes. The paths of this port are shorter.
const MAX_PATH_LEN: usize = 1024;
/// Maximum number of clients about which the API server is asked at the same time.
const MAX_IN_FLIGHT: usize = 8;
/// Time for the decision about one client, with all requests to the API server.
const DECIDED_WITHIN: Duration = Duration::from_secs(5);
/// Members of this group may read everything.
const MASTERS: &str = "system:masters";
/// A user of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// Asks the API server about users and permissions.
pub(crate) struct Reviews {
    authentication: kube::Client,
    authorization: kube::Client,
    decisions: Decisions,
    in_flight: Semaphore,
}

impl Reviews {
    /// Uses these clients for TokenReviews and for SubjectAccessReviews.
    pub(crate) fn new(authentication: kube::Client, authorization: kube::Client) -> Self {
        let in_flight = Semaphore::new(MAX_IN_FLIGHT);
        Self { authentication, authorization, decisions: Decisions::default(), in_flight }
    }

    /// Returns the client of the cluster that knows the users.
    pub(super) fn client(&self) -> kube::Client {
        self.authentication.clone()
    }

    /// Decides whether a client may read a path.
    pub(super) async fn admit(
        &self,
        caller: Option<&Caller>,
        token: Option<&str>,
        path: &str,
    ) -> Result<(), Rejection> {
        if MAX_PATH_LEN < path.len() {
            let message = format!("414 URI Too Long: expected a path of at most {MAX_PATH_LEN} bytes");
            return Err(rejection(StatusCode::URI_TOO_LONG, message));
        }
        let credential = match (caller, token) {
            (Some(caller), _) => format!("user\0{}\0{}", caller.name, caller.groups.join("\0")),
            (None, Some(token)) => format!("token\0{token}"),
            (None, None) => {
                let message = "401 Unauthorized: expected a bearer token or a client certificate";
                return Err(rejection(StatusCode::UNAUTHORIZED, message));
            }
        };
        let question: Question = Sha256::digest(format!("{path}\0{credential}")).into();
        if let Some(known) = self.decisions.recall(&question) {
            return known.answer(path);
        }
        let decide = self.decide(caller, token.unwrap_or_default(), path);
        let decided = within_limits(&self.in_flight, decide).await?;
        self.decisions.remember(question, decided.clone());
        decided.answer(path)
    }

    async fn decide(
        &self,
        caller: Option<&Caller>,
        token: &str,
        path: &str,
    ) -> Result<Decision, kube::Error> {
        let caller = match caller {
            Some(caller) => Some(caller.clone()),
            None => self.authenticate(token).await?,
        };
        let Some(caller) = caller else { return Ok(Decision::NoUser) };
        if caller.groups.iter().any(|group| group == MASTERS) {
            return Ok(Decision::Allowed);
        }
        let user = caller.name.clone();
        let is_allowed = self.authorize(caller, path).await?;
        Ok(if is_allowed { Decision::Allowed } else { Decision::Forbidden { user } })
    }

    async fn authenticate(&self, token: &str) -> Result<Option<Caller>, kube::Error> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.authentication.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.map(|user| Caller {
            name: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra,
        }))
    }

    async fn authorize(&self, caller: Caller, path: &str) -> Result<bool, kube::Error> {
        let Caller { name, uid, groups, extra } = caller;
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            user: Some(name),
            uid,
            groups: Some(groups),
            extra,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.authorization.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// Waits for a decision of the API server, for a limited time and among a limited number. Clients
/// without a permission can ask, so they must not hold connections or memory.
async fn within_limits<T>(
    in_flight: &Semaphore,
    decide: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Rejection> {
    let Ok(_permit) = in_flight.try_acquire() else {
        let message = "429 Too Many Requests: the permissions of other clients are being checked";
        return Err(rejection(StatusCode::TOO_MANY_REQUESTS, message));
    };
    let reason = match tokio::time::timeout(DECIDED_WITHIN, decide).await {
        Ok(Ok(decided)) => return Ok(decided),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", DECIDED_WITHIN.as_secs()),
    };
    tracing::warn!(reason, "Cannot check the permissions of a client of the HTTP port");
    let message = "permissions cannot be checked: the API server rejects the review or does not answer";
    Err(rejection(StatusCode::INTERNAL_SERVER_ERROR, message))
}

/// Returns the user of a verified client certificate: its common name, and its organizations as
/// groups.
pub(super) fn caller_of(certificate: &[u8]) -> Option<Caller> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok().map(str::to_owned));
    let groups = groups.chain(["system:authenticated".to_owned()]).collect();
    Some(Caller { name, uid: None, groups, extra: None })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_long_path_is_refused_without_a_review() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = kube::Client::try_from(config).expect("a client");
        let reviews = Reviews::new(client.clone(), client);
        let path = format!("/{}", "a".repeat(MAX_PATH_LEN));
        let refused = reviews.admit(None, Some("token"), &path).await.expect_err("too long");
        assert_eq!(refused.status, StatusCode::URI_TOO_LONG);
        assert!(refused.message.len() < 100, "{}", refused.message);
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_in_flight_are_limited_and_end() {
        let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let silent: Vec<_> = (0..MAX_IN_FLIGHT)
            .map(|_| {
                let in_flight = in_flight.clone();
                tokio::spawn(async move { within_limits::<()>(&in_flight, std::future::pending()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let began = Instant::now();
        let refused = within_limits(&in_flight, async { Ok(()) }).await.expect_err("above the limit");
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(began.elapsed(), Duration::ZERO, "refused at once");
        for review in silent {
            let refused = review.await.expect("no panic").expect_err("no answer");
            assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(began.elapsed(), DECIDED_WITHIN);
        assert_eq!(within_limits(&in_flight, async { Ok(7) }).await, Ok(7), "the places are free again");
    }
}
