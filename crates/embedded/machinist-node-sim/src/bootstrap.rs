//! Obtains a client certificate with a bootstrap token.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use machinist_kube::{Delta, WatchOptions, run_watch};
use tokio::sync::mpsc;

use crate::connect::{code, describe};
use crate::identity::{NodeIdentity, SigningRequest};

/// The signer of the certificates that kubelets present to the API server.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// After this long without an answer, the machine files the request again. If the request exists,
/// that changes nothing; if the token has expired meanwhile, the server's error shows it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the machine has no certificate yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The request could not be filed.
    #[error("cannot file a CertificateSigningRequest with the bootstrap token: {0}")]
    Filing(String),
    /// No controller or person answered the request.
    #[error("CertificateSigningRequest {0} has no certificate after {PATIENCE:?}")]
    NoAnswer(String),
    /// The request was refused, so the machine must not repeat it with the same key.
    #[error("CertificateSigningRequest {name} was refused: {reason}")]
    Refused {
        name: String,
        /// Condition type and message of the refusal.
        reason: String,
    },
    /// The watch failed and cannot be restarted.
    #[error("cannot watch the CertificateSigningRequest: {0}")]
    Watch(String),
}

/// The decision on the request.
enum Answer {
    Issued(String),
    Refused(String),
}

/// Files the request unless it exists, and waits for its certificate.
pub(crate) async fn certificate(
    client: kube::Client,
    request: &SigningRequest,
) -> Result<NodeIdentity, Trouble> {
    let api: Api<CertificateSigningRequest> = Api::all(client);
    match api.create(&PostParams::default(), &object(request)).await {
        Ok(_) => {}
        // The name is derived from the key, so a request of this name is from an earlier attempt.
        Err(error) if code(&error) == Some(409) => {}
        Err(error) => return Err(Trouble::Filing(describe(&error))),
    }
    let answer = tokio::time::timeout(PATIENCE, answer(api, &request.name))
        .await
        .map_err(|_| Trouble::NoAnswer(request.name.clone()))??;
    match answer {
        Answer::Issued(certificate_pem) => {
            Ok(NodeIdentity { certificate_pem, key_pem: request.key_pem.clone() })
        }
        Answer::Refused(reason) => Err(Trouble::Refused { name: request.name.clone(), reason }),
    }
}

async fn answer(api: Api<CertificateSigningRequest>, name: &str) -> Result<Answer, Trouble> {
    let (sender, mut answers) = mpsc::unbounded_channel();
    let options =
        WatchOptions { field_selector: Some(format!("metadata.name={name}")), ..WatchOptions::default() };
    let sink = move |delta: Delta<Option<Answer>>| {
        let entries = match delta {
            Delta::Upsert(_, entry) => vec![entry],
            Delta::Relist(relist) => relist.items.into_iter().map(|(_, entry)| entry).collect(),
            Delta::Delete { .. }
            | Delta::Unreadable { .. }
            | Delta::Bookmark(_)
            | Delta::ListedOnce(_)
            | Delta::RelistPart(_)
            | Delta::Fetched(..)
            | Delta::Absent { .. } => Vec::new(),
        };
        for entry in entries {
            // The receiver may already have its answer and be dropped.
            let _ = sender.send(entry.facts);
        }
    };
    let watch = run_watch(api, options, read, sink);
    tokio::pin!(watch);
    loop {
        tokio::select! {
            biased;
            Some(facts) = answers.recv() => {
                if let Some(answer) = std::sync::Arc::into_inner(facts).flatten() {
                    return Ok(answer);
                }
            }
            fatal = &mut watch => return Err(Trouble::Watch(fatal.to_string())),
        }
    }
}

fn read(request: CertificateSigningRequest) -> Option<Answer> {
    let status = request.status?;
    let refusal = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(refusal) = refusal {
        let why = refusal.message.or(refusal.reason).unwrap_or_else(|| "no reason given".to_owned());
        return Some(Answer::Refused(format!("{}: {why}", refusal.type_)));
    }
    let pem = String::from_utf8(status.certificate?.0).ok()?;
    (!pem.is_empty()).then_some(Answer::Issued(pem))
}

fn object(request: &SigningRequest) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta { name: Some(request.name.clone()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.request_pem.clone().into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(["digital signature", "client auth"].map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}
