//! Which requests are approved without asking a person.
//!
//! As kube-controller-manager does, the API server is asked whether the requester may `create
//! certificatesigningrequests/nodeclient` or `/selfnodeclient`: who sets up a cluster binds the roles that grant this, and takes
//! the bindings away from whom he does not trust.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use super::request::{KUBELET_CLIENT_SIGNER, RequestFacts, State};

/// Why a request is approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grounds {
    /// Who may ask for the identity of any Node, such as a bootstrap token.
    Joining,
    /// Who may renew his own, such as a Node.
    Renewal,
}

impl Grounds {
    /// The words of the condition.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Joining => "Auto approving kubelet client certificate after SubjectAccessReview.",
            Self::Renewal => "Auto approving self kubelet client certificate after SubjectAccessReview.",
        }
    }

    /// What the requester must be allowed to create, besides the request.
    fn subresource(self) -> &'static str {
        match self {
            Self::Joining => "nodeclient",
            Self::Renewal => "selfnodeclient",
        }
    }

    /// The question whether the requester may have it on these grounds.
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

/// On which grounds the request may be approved, one after the other; on none, if that is up to somebody else.
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

    /// A request of a kubelet of `user` in `organization`, made by `requester`.
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
    fn who_asks_for_his_own_identity_may_be_allowed_that_alone() {
        let node = ("system:node:a", "system:nodes");
        let both = [Grounds::Renewal, Grounds::Joining];
        assert_eq!(grounds_of(request("system:node:a", "system:nodes", node)), both);
        assert_eq!(grounds_of(request("system:node:b", "system:nodes", node)), [Grounds::Joining]);
        assert_eq!(grounds_of(joining()), [Grounds::Joining]);
    }

    #[test]
    fn only_identities_of_nodes_are_given() {
        for (user, organization) in
            [("system:node:a", "system:masters"), ("admin", "system:nodes"), ("system:node:", "system:nodes")]
        {
            assert_eq!(grounds_of(request(user, organization, BOOTSTRAPPER)), [], "{user} {organization}");
        }
    }

    #[test]
    fn a_second_name_is_refused() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().expect("a name"))];
        assert_eq!(grounds_of(with_params(&params, BOOTSTRAPPER)), []);
    }

    #[test]
    fn the_usages_are_those_of_a_client() {
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
    fn another_signer_a_settled_request_and_nonsense_are_left_alone() {
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
