//! Decides which requests are approved without a user.
//!
//! As in kube-controller-manager, a SubjectAccessReview checks whether the requester may `create
//! certificatesigningrequests/nodeclient` or `/selfnodeclient`. The administrator of a cluster
//! binds the roles that grant this, and removes the bindings of untrusted requesters.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use super::request::{KUBELET_CLIENT_SIGNER, RequestFacts, State};

/// Why a request is approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grounds {
    /// The requester may ask for the identity of any Node, such as a bootstrap token.
    Joining,
    /// The requester may renew its own identity, such as a Node.
    Renewal,
}

impl Grounds {
    /// Returns the message of the `Approved` condition.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Joining => "Auto approving kubelet client certificate after SubjectAccessReview.",
            Self::Renewal => "Auto approving self kubelet client certificate after SubjectAccessReview.",
        }
    }

    /// Returns the subresource that the requester must be allowed to create, besides the request.
    fn subresource(self) -> &'static str {
        match self {
            Self::Joining => "nodeclient",
            Self::Renewal => "selfnodeclient",
        }
    }

    /// Builds the SubjectAccessReview that checks the requester on these grounds.
    pub(crate) fn review(self, request: &RequestFacts) -> SubjectAccessReview {
        let asked = ResourceAttributes {
            group: Some("certificates.k8s.io".to_owned()),
            version: Some("*".to_owned()),
            resource: Some("certificatesigningrequests".to_owned()),
            subresource: Some(self.subresource().to_owned()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(request.username.clone()),
            uid: request.user_id.clone(),
            groups: Some(request.groups.iter().cloned().collect()),
            extra: request.extra.clone(),
            resource_attributes: Some(asked),
            ..SubjectAccessReviewSpec::default()
        };
        SubjectAccessReview { spec, ..SubjectAccessReview::default() }
    }
}

/// Returns the grounds to check, in order. The list is empty if this controller does not decide
/// about the request.
pub(crate) fn grounds(request: &RequestFacts) -> &'static [Grounds] {
    let is_for_us = request.state == State::Pending && request.signer == KUBELET_CLIENT_SIGNER;
    match &request.wish {
        Ok(wish) if is_for_us && wish.user == request.username => &[Grounds::Renewal, Grounds::Joining],
        Ok(_) if is_for_us => &[Grounds::Joining],
        Ok(_) | Err(_) => &[],
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

    /// Builds a request by `requester` for a kubelet certificate of `user` in `organization`.
    pub(crate) fn request(
        user: &str,
        organization: &str,
        requester: (&str, &str),
    ) -> CertificateSigningRequest {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        with_params(&params, requester)
    }

    fn with_params(params: &CertificateParams, (username, group): (&str, &str)) -> CertificateSigningRequest {
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
        let spec = CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: KUBELET_CLIENT_SIGNER.to_owned(),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            username: Some(username.to_owned()),
            groups: Some(vec![group.to_owned(), "system:authenticated".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        };
        CertificateSigningRequest { spec, ..CertificateSigningRequest::default() }
    }

    pub(crate) const BOOTSTRAPPER: (&str, &str) = ("system:bootstrap:abcdef", "system:bootstrappers");

    fn joining() -> CertificateSigningRequest {
        request("system:node:a", "system:nodes", BOOTSTRAPPER)
    }

    fn grounds_of(request: CertificateSigningRequest) -> &'static [Grounds] {
        grounds(&RequestFacts::parse(request))
    }

    #[test]
    fn a_renewal_is_possible_only_for_the_own_identity() {
        let node = ("system:node:a", "system:nodes");
        let both = [Grounds::Renewal, Grounds::Joining];
        assert_eq!(grounds_of(request("system:node:a", "system:nodes", node)), both);
        assert_eq!(grounds_of(request("system:node:b", "system:nodes", node)), [Grounds::Joining]);
        assert_eq!(grounds_of(joining()), [Grounds::Joining]);
    }

    #[test]
    fn only_node_identities_are_approved() {
        for (user, organization) in
            [("system:node:a", "system:masters"), ("admin", "system:nodes"), ("system:node:", "system:nodes")]
        {
            assert_eq!(grounds_of(request(user, organization, BOOTSTRAPPER)), [], "{user} {organization}");
        }
    }

    #[test]
    fn a_second_name_is_rejected() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().expect("a name"))];
        assert_eq!(grounds_of(with_params(&params, BOOTSTRAPPER)), []);
    }

    #[test]
    fn only_client_usages_are_approved() {
        let with = |usages: &[&str]| {
            let mut request = joining();
            request.spec.usages = Some(usages.iter().map(|usage| (*usage).to_owned()).collect());
            grounds_of(request)
        };
        assert_eq!(with(&["client auth", "digital signature"]), [Grounds::Joining]);
        assert_eq!(with(&["client auth", "key encipherment"]), []);
        assert_eq!(with(&["client auth", "digital signature", "server auth"]), []);
        assert_eq!(with(&[]), []);
    }

    #[test]
    fn foreign_settled_and_malformed_requests_are_ignored() {
        let mut other = joining();
        other.spec.signer_name = "kubernetes.io/kube-apiserver-client".to_owned();
        assert_eq!(grounds_of(other), []);

        let mut nonsense = joining();
        nonsense.spec.request = ByteString(b"-----BEGIN CERTIFICATE REQUEST-----".to_vec());
        assert_eq!(grounds_of(nonsense), []);

        let mut approved = joining();
        let condition = serde_json::json!({ "conditions": [{ "type": "Denied", "status": "True" }] });
        approved.status = Some(serde_json::from_value(condition).expect("a status"));
        assert_eq!(grounds_of(approved), []);
    }
}
