//! Handles CertificateSigningRequests of kubelets: approves those whose requester has the
//! permission, signs approved ones, and deletes old ones.
//!
//! Deliberately absent: the other built-in signers. Other clients and servers get their
//! certificates elsewhere.

pub(crate) mod approval;
pub(crate) mod request;
pub(crate) mod signing;

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use machinist_kube::{GuardedPatch, KeyQueue, ObjectKey, SharedClock, WriteOutcome};
use serde_json::{Value, json};

use crate::view::{OVERDUE_AFTER, View};
use crate::work::{Controller, Next};
use approval::Grounds;
use request::{KUBELET_CLIENT_SIGNER, RequestFacts, State, Wish};
use signing::CaPair;

/// Retention of requests, so that people can see their result: one hour for settled ones, one day
/// for all others.
const SETTLED_KEPT_FOR: SignedDuration = SignedDuration::from_hours(1);
const PENDING_KEPT_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Interval at which the permission of a requester is checked again: a role binding may be created
/// after the request.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);

const CONDITIONS: [&str; 2] = ["status", "conditions"];

pub(crate) struct Certificates {
    client: Client,
    clock: SharedClock,
    /// `None` means that another signer is responsible.
    ca: Option<CaPair>,
    longest_life: Duration,
    queue: KeyQueue<ObjectKey>,
    requests: Arc<View<RequestFacts>>,
}

/// Returns a queue that is woken for each changed request.
pub(crate) fn listen(requests: &mut View<RequestFacts>, seed: u64) -> KeyQueue<ObjectKey> {
    let queue = KeyQueue::new(|_| Duration::ZERO, seed);
    let on_request = queue.clone();
    requests.listen(move |change| on_request.wake(change.key.clone()));
    queue
}

impl Controller for Certificates {
    type Key = ObjectKey;

    const NAME: &'static str = "certificates";

    fn queue(&self) -> &KeyQueue<ObjectKey> {
        &self.queue
    }

    async fn pass(&self, key: &ObjectKey) -> Next {
        if self.requests.lacks_own_write(key) {
            return Next::In(OVERDUE_AFTER);
        }
        let (request, resource_version) = {
            let store = self.requests.store();
            let Some(entry) = store.get(key) else { return Next::Idle };
            (entry.facts.clone(), entry.resource_version)
        };
        match (approval::grounds(&request), self.to_sign(&request)) {
            ([], Some(ca)) => self.sign(key, &request, ca).await,
            ([], None) => self.clear_up(key, &request, resource_version).await,
            (candidates, _) => {
                for grounds in candidates {
                    match self.is_allowed(&request, *grounds).await {
                        Ok(true) => return self.approve(key, &request, *grounds).await,
                        Ok(false) => {}
                        Err(error) => {
                            return Next::after_failed_read("check the permissions of a requester", &error);
                        }
                    }
                }
                // A user may still approve the request, or grant the permission.
                let asked_again = Next::In(ASK_AGAIN_AFTER);
                self.clear_up(key, &request, resource_version).await.sooner(asked_again)
            }
        }
    }
}

impl Certificates {
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        ca: Option<CaPair>,
        longest_life: Duration,
        queue: KeyQueue<ObjectKey>,
        requests: Arc<View<RequestFacts>>,
    ) -> Self {
        Self { client, clock, ca, longest_life, queue, requests }
    }

    /// Returns the authority to sign the request with, if this controller has to sign it.
    fn to_sign(&self, request: &RequestFacts) -> Option<&CaPair> {
        let is_ours = request.state == State::Approved && request.signer == KUBELET_CLIENT_SIGNER;
        self.ca.as_ref().filter(|_| is_ours)
    }

    /// Checks with a SubjectAccessReview whether the requester may have a certificate on these
    /// grounds.
    async fn is_allowed(&self, request: &RequestFacts, grounds: Grounds) -> Result<bool, kube::Error> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &grounds.review(request)).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, key: &ObjectKey, request: &RequestFacts, grounds: Grounds) -> Next {
        tracing::info!(request = %key, requester = request.username, ?grounds, "Approving a certificate request");
        let patch = self.with_condition(request, "Approved", "AutoApproved", grounds.message());
        let patch = kube::api::Patch::<Value>::Json(patch.build());
        let result =
            self.api().patch_subresource("approval", &key.name, &PatchParams::default(), &patch).await;
        self.end_write(key, "approve a certificate request", result)
    }

    async fn sign(&self, key: &ObjectKey, request: &RequestFacts, ca: &CaPair) -> Next {
        let patch = match self.certificate(request, ca) {
            Ok(pem) => {
                tracing::info!(request = %key, "Signing a certificate request");
                let certificate = json!(ByteString(pem.into_bytes()));
                GuardedPatch::new(&request.uid)
                    .test(&["status", "certificate"], None)
                    .add(&["status", "certificate"], certificate)
            }
            Err(why) => {
                tracing::warn!(request = %key, reason = why, "Rejecting a certificate request");
                self.with_condition(request, "Failed", "SignerValidationFailure", &why)
            }
        };
        let result = self.api().patch_status(&key.name, &PatchParams::default(), &patch.into_kube()).await;
        self.end_write(key, "sign a certificate request", result)
    }

    fn certificate(&self, request: &RequestFacts, ca: &CaPair) -> Result<String, String> {
        let wish: &Wish = request.wish.as_ref().map_err(Clone::clone)?;
        let life = signing::life(request.expiration_seconds, self.longest_life);
        ca.sign(wish, &request.uid, self.clock.now(), life).map_err(|error| error.to_string())
    }

    async fn clear_up(&self, key: &ObjectKey, request: &RequestFacts, resource_version: u64) -> Next {
        let kept_for = match request.state {
            State::Settled => SETTLED_KEPT_FOR,
            State::Pending | State::Approved => PENDING_KEPT_FOR,
        };
        let Some(touched) = request.last_touched() else { return Next::Idle };
        let left = kept_for - self.clock.now().duration_since(touched);
        if left.is_positive() {
            return Next::In(left.unsigned_abs());
        }
        let preconditions = Some(Preconditions {
            uid: Some(request.uid.clone()),
            resource_version: Some(resource_version.to_string()),
        });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let result = self.api().delete(&key.name, &params).await;
        Next::after_write("delete an old certificate request", WriteOutcome::of(&result))
    }

    /// Returns a patch that adds a condition and fails if the conditions changed after they were
    /// read.
    fn with_condition(
        &self,
        request: &RequestFacts,
        kind: &str,
        reason: &str,
        message: &str,
    ) -> GuardedPatch {
        let now = Some(Time(self.clock.now()));
        let condition = CertificateSigningRequestCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: now.clone(),
            last_transition_time: now,
        };
        let read = request.conditions.as_ref();
        let conditions: Vec<_> = read.into_iter().flatten().chain([&condition]).collect();
        GuardedPatch::new(&request.uid)
            .test(&CONDITIONS, read.map(|conditions| json!(conditions)).as_ref())
            .add(&CONDITIONS, json!(conditions))
    }

    fn end_write(
        &self,
        key: &ObjectKey,
        what: &str,
        result: Result<CertificateSigningRequest, kube::Error>,
    ) -> Next {
        if let Ok(written) = &result {
            self.requests.note_written(key.clone(), written.metadata.resource_version.as_deref());
        }
        Next::after_write(what, WriteOutcome::of(&result))
    }

    fn api(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.client.clone())
    }
}
