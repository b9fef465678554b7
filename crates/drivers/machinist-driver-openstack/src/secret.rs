//! The credential of a class.
//!
//! | Entry | |
//! |---|---|
//! | `authURL` | base URL of Keystone |
//! | `username`, `password` | a user |
//! | `applicationCredentialID`, `applicationCredentialSecret` | an application credential; wins over a user |
//! | `applicationCredentialName`, `username`, `applicationCredentialSecret` | the same by name |
//! | `domainName` or `domainID` | the domain of the project, and of the user |
//! | `tenantName` or `tenantID` | the project |
//! | `userDomainName` or `userDomainID` | the domain of the user, if it is another one |
//! | `caCert` | the certificates that are trusted, instead of the system's certificates |
//! | `clientCert`, `clientKey` | the certificate of the client, and its key |
//! | `insecure` | `true`: the certificate of the server is not checked |
//!
//! A name wins over an id, because Gardener's provider uses only names. Deliberately absent: the
//! variables and files of OpenStack's clients. A class never uses the identity of the controller.

use std::fmt;

use machinist_driver_http::Endpoint;
use machinist_instance::{Credential, Error, ErrorKind};

use crate::spec::Named;

const AUTH_URL: &str = "authURL";
const USER: &str = "username";
const PASSWORD: &str = "password";
const APP_ID: &str = "applicationCredentialID";
const APP_NAME: &str = "applicationCredentialName";
const APP_SECRET: &str = "applicationCredentialSecret";

/// The versions of Keystone's API that may end the URL.
const VERSIONS: [&str; 2] = ["/v3", "/v2.0"];

/// How an account is opened.
pub(crate) struct Login {
    /// The base URL of Keystone, without a version.
    pub(crate) keystone: Endpoint,
    pub(crate) method: Method,
    pub(crate) tls: Tls,
}

/// How Keystone recognizes the caller. The type contains secrets, so it has no `Debug`.
#[derive(Clone, PartialEq)]
pub(crate) enum Method {
    Password {
        user: User,
        password: String,
        project: Named,
        /// The domain of the project.
        domain: Named,
    },
    ApplicationId {
        id: String,
        secret: String,
    },
    ApplicationName {
        name: String,
        user: User,
        secret: String,
    },
}

/// A user and its domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) domain: Named,
}

/// The settings of connections. `Debug` shows no key.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Tls {
    pub(crate) ca: Option<String>,
    /// A certificate and its key.
    pub(crate) client: Option<(String, String)>,
    pub(crate) is_insecure: bool,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("keystone", &self.keystone.to_string()).finish_non_exhaustive()
    }
}

impl Login {
    /// Reads a credential.
    ///
    /// # Errors
    /// `Denied` names the entry that is missing or wrong.
    pub(crate) fn parse(credential: &Credential) -> Result<Self, Error> {
        let url = set(credential, AUTH_URL).ok_or_else(|| wrong(AUTH_URL, "the URL of Keystone"))?;
        let keystone = Endpoint::parse(base(url)).map_err(|error| {
            let text = error.to_string();
            wrong(AUTH_URL, text.strip_prefix("expected ").unwrap_or(&text))
        })?;
        Ok(Self { keystone, method: method(credential)?, tls: tls(credential)? })
    }
}

/// The parts of a credential that name its account. They contain no secret. A new secret of the
/// same application credential or user gives the same parts.
pub(crate) fn account(credential: &Credential) -> Vec<String> {
    let entry = |name: &str| set(credential, name).unwrap_or_default().to_owned();
    let first = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| set(credential, name).map(|text| format!("{name} {text}")));
        found.unwrap_or_default()
    };
    let url = base(&entry(AUTH_URL)).to_owned();
    match method(credential) {
        Ok(Method::ApplicationId { id, .. }) => vec![url, format!("application {id}")],
        Ok(Method::ApplicationName { name, user, .. }) => {
            let domain = match user.domain {
                Named::Id(id) => format!("domainID {id}"),
                Named::Name(name) => format!("domainName {name}"),
            };
            vec![url, format!("application {name}"), user.name, domain]
        }
        Ok(Method::Password { .. }) | Err(_) => {
            vec![url, first(["domainName", "domainID"]), first(["tenantName", "tenantID"])]
        }
    }
}

/// The URL of Keystone without a version.
fn base(url: &str) -> &str {
    let url = url.trim().trim_end_matches('/');
    let unversioned = VERSIONS.iter().find_map(|version| url.strip_suffix(version));
    unversioned.unwrap_or(url).trim_end_matches('/')
}

fn method(credential: &Credential) -> Result<Method, Error> {
    let app_secret = || set(credential, APP_SECRET).map(str::to_owned);
    let no_secret = || wrong(APP_SECRET, "the secret of the application credential");
    if let Some(id) = set(credential, APP_ID) {
        let secret = app_secret().ok_or_else(no_secret)?;
        return Ok(Method::ApplicationId { id: id.to_owned(), secret });
    }
    let name = set(credential, USER).ok_or_else(|| {
        wrong(USER, "the name of a user, or an application credential in applicationCredentialID")
    })?;
    let domain = named(credential, "domainName", "domainID");
    let user_domain = named(credential, "userDomainName", "userDomainID").or_else(|| domain.clone());
    let no_domain = || wrong("domainName or domainID", "the domain of the project");
    let user = User { name: name.to_owned(), domain: user_domain.ok_or_else(no_domain)? };
    // The password is taken literally: a space may be a part of it.
    let password = credential.text(PASSWORD).filter(|password| !password.is_empty());
    match (set(credential, APP_NAME), password) {
        (Some(_), Some(_)) => Err(wrong(PASSWORD, "nothing, because applicationCredentialName is set")),
        (Some(name), None) => {
            let secret = app_secret().ok_or_else(no_secret)?;
            Ok(Method::ApplicationName { name: name.to_owned(), user, secret })
        }
        (None, None) => Err(wrong(PASSWORD, "the password of the user")),
        (None, Some(password)) => Ok(Method::Password {
            user,
            password: password.to_owned(),
            project: named(credential, "tenantName", "tenantID")
                .ok_or_else(|| wrong("tenantName or tenantID", "a project"))?,
            domain: domain.ok_or_else(no_domain)?,
        }),
    }
}

fn named(credential: &Credential, name: &str, id: &str) -> Option<Named> {
    let of_name = set(credential, name).map(|name| Named::Name(name.to_owned()));
    of_name.or_else(|| set(credential, id).map(|id| Named::Id(id.to_owned())))
}

fn tls(credential: &Credential) -> Result<Tls, Error> {
    let text = |name: &str| set(credential, name).map(str::to_owned);
    let client = match (text("clientCert"), text("clientKey")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(wrong("clientKey", "a key, because clientCert is set")),
        (None, Some(_)) => return Err(wrong("clientCert", "a certificate, because clientKey is set")),
    };
    let is_insecure = match set(credential, "insecure") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(wrong("insecure", "true or false")),
    };
    Ok(Tls { ca: text("caCert"), client, is_insecure })
}

fn set<'a>(credential: &'a Credential, name: &str) -> Option<&'a str> {
    credential.text(name).map(str::trim).filter(|text| !text.is_empty())
}

/// The error for an entry. Its value is never shown.
pub(crate) fn wrong(entry: &str, expected: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("{entry}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn credential(entries: &[(&str, &str)]) -> Credential {
        let entry = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        Credential::new(entries.iter().map(entry).collect::<BTreeMap<_, _>>())
    }

    const OF_GARDENER: [(&str, &str); 5] = [
        ("authURL", "https://keystone.example:5000/v3/\n"),
        ("username", "user"),
        ("password", " canary "),
        ("domainName", "Default"),
        ("tenantName", "project"),
    ];

    fn with(entries: &[(&str, &str)]) -> Credential {
        credential(&[&OF_GARDENER[..], entries].concat())
    }

    fn method_of(credential: &Credential) -> Method {
        Login::parse(credential).expect("valid").method
    }

    fn refusal(credential: &Credential) -> String {
        let error = Login::parse(credential).expect_err("wrong");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(!error.message.contains("canary"), "{error}");
        error.message
    }

    fn default_domain() -> Named {
        Named::Name("Default".to_owned())
    }

    #[test]
    fn a_password_is_taken_literally() {
        let login = Login::parse(&with(&[])).expect("valid");
        assert_eq!(login.keystone.to_string(), "https://keystone.example:5000");
        let Method::Password { user, password, project, domain } = login.method else {
            panic!("no password")
        };
        assert_eq!((user.name.as_str(), password.as_str()), ("user", " canary "));
        let project_name = Named::Name("project".to_owned());
        assert_eq!((user.domain, project, domain), (default_domain(), project_name, default_domain()));
    }

    /// Go's provider accepts these entries and then ignores or refuses them.
    #[test]
    fn o_4_ids_of_domains_and_projects_are_used() {
        let by_id = [("domainID", "d1"), ("tenantID", "p1"), ("userDomainID", "d2")];
        let credential = credential(&[&OF_GARDENER[..3], &by_id].concat());
        let Method::Password { user, project, domain, .. } = method_of(&credential) else {
            panic!("no password")
        };
        let id = |text: &str| Named::Id(text.to_owned());
        assert_eq!((user.domain, project, domain), (id("d2"), id("p1"), id("d1")));
        // Go uses the names of a Secret that has both.
        let Method::Password { project, domain, .. } = method_of(&with(&by_id)) else {
            panic!("no password")
        };
        assert_eq!((project, domain), (Named::Name("project".to_owned()), default_domain()));
    }

    #[test]
    fn o_4_an_application_credential_has_an_id_or_a_name() {
        let by_id = [("applicationCredentialID", "a1"), ("applicationCredentialSecret", "s1")];
        let expected = Method::ApplicationId { id: "a1".to_owned(), secret: "s1".to_owned() };
        assert!(method_of(&with(&by_id)) == expected, "it wins over the password");
        assert!(method_of(&credential(&[&OF_GARDENER[..1], &by_id].concat())) == expected);

        let by_name = [("applicationCredentialName", "a2"), ("applicationCredentialSecret", "s2")];
        let user = [OF_GARDENER[0], OF_GARDENER[1], OF_GARDENER[3]];
        let expected = Method::ApplicationName {
            name: "a2".to_owned(),
            user: User { name: "user".to_owned(), domain: default_domain() },
            secret: "s2".to_owned(),
        };
        assert!(method_of(&credential(&[&user[..], &by_name].concat())) == expected);
        let both = refusal(&with(&by_name));
        assert_eq!(both, "password: expected nothing, because applicationCredentialName is set");
    }

    #[test]
    fn a_wrong_entry_is_named() {
        let cases: [(&[(&str, &str)], &str); 7] = [
            (&[], "authURL: expected the URL of Keystone"),
            (&[("authURL", "keystone")], "authURL: expected http://HOST/PATH or https://HOST/PATH"),
            (&OF_GARDENER[..1], "username: expected"),
            (&OF_GARDENER[..3], "domainName or domainID: expected"),
            (&OF_GARDENER[..4], "tenantName or tenantID: expected a project"),
            (
                &[("authURL", "http://a"), ("username", "u"), ("domainName", "d"), ("tenantName", "p")],
                "password: expected",
            ),
            (&[("authURL", "http://a"), ("applicationCredentialID", "a")], "applicationCredentialSecret: "),
        ];
        for (entries, expected) in cases {
            let message = refusal(&credential(entries));
            assert!(message.starts_with(expected), "{message}");
        }
        assert_eq!(refusal(&with(&[("insecure", "True")])), "insecure: expected true or false");
        assert!(refusal(&with(&[("clientCert", "c")])).starts_with("clientKey: expected a key"));
    }

    #[test]
    fn an_account_is_named_without_its_secret() {
        let parts = account(&with(&[]));
        assert_eq!(parts, ["https://keystone.example:5000", "domainName Default", "tenantName project"]);
        let by_id = [("applicationCredentialID", "a1"), ("applicationCredentialSecret", "canary")];
        let parts = account(&with(&by_id));
        assert_eq!(parts, ["https://keystone.example:5000", "application a1"]);
        let login = Login::parse(&with(&by_id)).expect("valid");
        assert!(!format!("{login:?}").contains("canary"));
    }
}
