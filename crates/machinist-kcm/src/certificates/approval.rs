//! Which requests are approved without asking a person.
//!
//! kube-controller-manager asks the API server whether the requester may `create certificatesigningrequests/nodeclient` or
//! `/selfnodeclient`; the roles that grant this are by convention bound to the groups named here, which are what decides
//! on a server without such roles too.

use super::request::{KUBELET_CLIENT_SIGNER, NODES_GROUP, RequestFacts, State};

const BOOTSTRAP_USER_PREFIX: &str = "system:bootstrap:";
const BOOTSTRAP_GROUP: &str = "system:bootstrappers";

/// Why a request is approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grounds {
    /// A bootstrap token may be turned into the identity of any Node.
    Joining,
    /// A Node may renew its own certificate.
    Renewal,
}

impl Grounds {
    /// The words of the condition.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Joining => {
                "Auto approving the kubelet client certificate of a node that joins with a bootstrap token."
            }
            Self::Renewal => "Auto approving the renewal of a kubelet client certificate by its own node.",
        }
    }
}

/// Why the request is to be approved; `None`: that is up to somebody else.
pub(crate) fn grounds(request: &RequestFacts) -> Option<Grounds> {
    let is_for_us = request.state == State::Pending && request.signer == KUBELET_CLIENT_SIGNER;
    let wish = request.wish.as_ref().ok().filter(|_| is_for_us)?;
    let is_bootstrapper =
        request.username.starts_with(BOOTSTRAP_USER_PREFIX) && request.groups.contains(BOOTSTRAP_GROUP);
    let is_the_node_itself = request.username == wish.user && request.groups.contains(NODES_GROUP);
    match (is_bootstrapper, is_the_node_itself) {
        (true, _) => Some(Grounds::Joining),
        (false, true) => Some(Grounds::Renewal),
        (false, false) => None,
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

    fn grounds_of(request: CertificateSigningRequest) -> Option<Grounds> {
        grounds(&RequestFacts::parse(request))
    }

    #[test]
    fn a_bootstrap_token_gets_the_identity_of_a_node() {
        assert_eq!(grounds_of(joining()), Some(Grounds::Joining));
    }

    #[test]
    fn a_node_renews_its_own_identity_and_no_other() {
        let node = ("system:node:a", "system:nodes");
        assert_eq!(grounds_of(request("system:node:a", "system:nodes", node)), Some(Grounds::Renewal));
        assert_eq!(grounds_of(request("system:node:b", "system:nodes", node)), None);
    }

    #[test]
    fn nobody_else_gets_one_without_a_person() {
        let strangers = [
            ("admin", "system:masters"),
            ("system:bootstrap:abcdef", "others"),
            ("x", "system:bootstrappers"),
        ];
        for stranger in strangers {
            assert_eq!(grounds_of(request("system:node:a", "system:nodes", stranger)), None, "{stranger:?}");
        }
    }

    #[test]
    fn only_identities_of_nodes_are_given() {
        for (user, organization) in
            [("system:node:a", "system:masters"), ("admin", "system:nodes"), ("system:node:", "system:nodes")]
        {
            assert_eq!(grounds_of(request(user, organization, BOOTSTRAPPER)), None, "{user} {organization}");
        }
    }

    #[test]
    fn a_second_name_is_refused() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.subject_alt_names = vec![SanType::DnsName("a.example".try_into().expect("a name"))];
        assert_eq!(grounds_of(with_params(&params, BOOTSTRAPPER)), None);
    }

    #[test]
    fn the_usages_are_those_of_a_client() {
        let with = |usages: &[&str]| {
            let mut request = joining();
            request.spec.usages = Some(usages.iter().map(|usage| (*usage).to_owned()).collect());
            grounds_of(request)
        };
        assert_eq!(with(&["client auth", "digital signature"]), Some(Grounds::Joining));
        assert_eq!(with(&["client auth", "key encipherment"]), None);
        assert_eq!(with(&["client auth", "digital signature", "server auth"]), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn another_signer_a_settled_request_and_nonsense_are_left_alone() {
        let mut other = joining();
        other.spec.signer_name = "kubernetes.io/kube-apiserver-client".to_owned();
        assert_eq!(grounds_of(other), None);

        let mut nonsense = joining();
        nonsense.spec.request = ByteString(b"-----BEGIN CERTIFICATE REQUEST-----".to_vec());
        assert_eq!(grounds_of(nonsense), None);

        let mut approved = joining();
        let condition = serde_json::json!({ "conditions": [{ "type": "Denied", "status": "True" }] });
        approved.status = Some(serde_json::from_value(condition).expect("a status"));
        assert_eq!(grounds_of(approved), None);
    }
}
