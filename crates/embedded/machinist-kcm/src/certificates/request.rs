//! Parses CertificateSigningRequests into the fields that the controllers need.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

/// Signer of the client certificates of kubelets.
pub(crate) const KUBELET_CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Prefix of the users of Nodes, and the group of these users.
pub(crate) const NODE_USER_PREFIX: &str = "system:node:";
pub(crate) const NODES_GROUP: &str = "system:nodes";

const DIGITAL_SIGNATURE: &str = "digital signature";
pub(crate) const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestFacts {
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) signer: String,
    /// The requester, as the server authenticated it.
    pub(crate) username: String,
    pub(crate) user_id: Option<String>,
    pub(crate) groups: BTreeSet<String>,
    pub(crate) extra: Option<BTreeMap<String, Vec<String>>>,
    pub(crate) expiration_seconds: Option<i32>,
    /// The requested certificate. The error says why it is not a kubelet's client certificate.
    /// Dropped once the request is settled.
    pub(crate) wish: Result<Wish, String>,
    pub(crate) state: State,
    /// Conditions as they were read; `None` means that the field is absent.
    pub(crate) conditions: Option<Vec<CertificateSigningRequestCondition>>,
}

/// A client certificate that a kubelet may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// User that the certificate identifies: `system:node:NAME`.
    pub(crate) user: String,
    pub(crate) usages: BTreeSet<String>,
    /// The PKCS#10 request in PEM.
    pub(crate) pem: String,
}

/// Progress of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No decision was made yet.
    Pending,
    /// The request is approved and not yet signed.
    Approved,
    /// The request is signed, denied or failed; nothing more happens to it.
    Settled,
}

impl RequestFacts {
    pub(crate) fn parse(request: CertificateSigningRequest) -> Self {
        let CertificateSigningRequest { metadata, spec, status } = request;
        let status = status.unwrap_or_default();
        let has = |kind: &str| status.conditions.iter().flatten().any(|condition| condition.type_ == kind);
        let is_issued = status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty());
        let state = match () {
            () if is_issued || has("Denied") || has("Failed") => State::Settled,
            () if has("Approved") => State::Approved,
            () => State::Pending,
        };
        let usages: BTreeSet<String> = spec.usages.unwrap_or_default().into_iter().collect();
        let wish = match state {
            State::Settled => Err("the request is settled".to_owned()),
            State::Pending | State::Approved => Wish::parse(&spec.request.0, usages),
        };
        Self {
            uid: metadata.uid.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|time| time.0),
            signer: spec.signer_name,
            username: spec.username.unwrap_or_default(),
            user_id: spec.uid,
            groups: spec.groups.unwrap_or_default().into_iter().collect(),
            extra: spec.extra,
            expiration_seconds: spec.expiration_seconds,
            wish,
            state,
            conditions: status.conditions,
        }
    }

    /// Returns the time of the last decision, or the creation time if there was none.
    pub(crate) fn last_touched(&self) -> Option<Timestamp> {
        let decided = self.conditions.iter().flatten();
        let decided = decided.filter_map(|condition| condition.last_update_time.as_ref().map(|time| time.0));
        decided.max().or(self.created)
    }
}

impl Wish {
    /// Parses a PEM request by the rules of the kubelet client signer.
    fn parse(pem: &[u8], usages: BTreeSet<String>) -> Result<Self, String> {
        let malformed = |part: &str| format!("spec.request: expected {part}");
        let text = std::str::from_utf8(pem).map_err(|_| malformed("PEM text"))?;
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| malformed("a PEM block"))?;
        let (_, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|_| malformed("a PKCS#10 certificate request"))?;

        let subject = &request.certification_request_info.subject;
        let texts = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).map_err(|_| malformed("a subject of plain text"))
        };
        let organizations = subject.iter_organization().map(texts).collect::<Result<Vec<_>, _>>()?;
        if organizations != [NODES_GROUP] {
            return Err(malformed("the subject's only organization to be system:nodes"));
        }
        let mut names = subject.iter_common_name().map(texts).collect::<Result<Vec<_>, _>>()?;
        let user = match (names.pop(), names.is_empty()) {
            (Some(user), true) if is_node_user(&user) => user,
            _ => return Err(malformed("the subject's only common name to be system:node:NAME")),
        };
        let names_others = |extension: &ParsedExtension<'_>| matches!(extension, ParsedExtension::SubjectAlternativeName(names) if !names.general_names.is_empty());
        if request.requested_extensions().into_iter().flatten().any(names_others) {
            return Err(malformed("no subject alternative names"));
        }
        let required = [CLIENT_AUTH, DIGITAL_SIGNATURE];
        let allowed = |usage: &String| required.contains(&usage.as_str()) || usage == KEY_ENCIPHERMENT;
        if !required.iter().all(|usage| usages.contains(*usage)) || !usages.iter().all(allowed) {
            return Err("spec.usages: expected client auth, digital signature and at most key encipherment"
                .to_owned());
        }
        Ok(Self { user, usages, pem: text.to_owned() })
    }
}

fn is_node_user(user: &str) -> bool {
    user.strip_prefix(NODE_USER_PREFIX).is_some_and(|name| !name.is_empty())
}
