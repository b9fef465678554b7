//! The credential of a class: the keys of an IAM user, or the identity of a workload.
//!
//! | Entry | |
//! |---|---|
//! | `providerAccessKeyId`, `accessKeyID` | id of an access key |
//! | `providerSecretAccessKey`, `secretAccessKey` | its secret key |
//! | `workloadIdentityTokenFile` | path of a file with a token; wins over the keys |
//! | `roleARN` | the role of that workload |
//!
//! Of two spellings, the first one counts that is not empty. Deliberately absent: the environment,
//! profiles and the metadata service of an instance. A class without a credential never uses the
//! identity of the controller.

use std::fmt;
use std::path::PathBuf;

use machinist_instance::{Credential, Error, ErrorKind};

const ACCESS_KEY: [&str; 2] = ["providerAccessKeyId", "accessKeyID"];
const SECRET_KEY: [&str; 2] = ["providerSecretAccessKey", "secretAccessKey"];
const TOKEN_FILE: &str = "workloadIdentityTokenFile";
const ROLE: &str = "roleARN";
/// A spelling that is in examples of Gardener's provider, and that no program reads.
const MISSPELT: &str = "accessKeyId";

/// How an account signs its requests.
#[derive(Debug, Clone)]
pub(crate) enum Login {
    /// With the keys of a user.
    Keys(Keys),
    /// With keys that STS returns for a token.
    Workload(Workload),
}

/// The identity of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) role: String,
    /// The file is read at each exchange, because its token is renewed.
    pub(crate) token_file: PathBuf,
}

/// A key pair. `Debug` shows no secret, and the type has no comparison.
#[derive(Clone)]
pub(crate) struct Keys {
    access_key_id: String,
    secret_key: String,
    session_token: Option<String>,
}

impl Keys {
    pub(crate) fn new(access_key_id: String, secret_key: String, session_token: Option<String>) -> Self {
        Self { access_key_id, secret_key, session_token }
    }

    pub(crate) fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    /// Only signatures use the secret key.
    pub(crate) fn secret_key(&self) -> &str {
        &self.secret_key
    }

    /// Temporary keys have a token.
    pub(crate) fn session_token(&self) -> Option<&str> {
        self.session_token.as_deref()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Login {
    /// Reads a credential.
    ///
    /// # Errors
    /// `Denied` names the entry that is missing.
    pub(crate) fn parse(credential: &Credential) -> Result<Self, Error> {
        if let Some(file) = credential.text(TOKEN_FILE) {
            let file = set(file).ok_or_else(|| missing(TOKEN_FILE, "the path of a file with a token"))?;
            let role = credential.text(ROLE).and_then(set);
            let role = role.ok_or_else(|| missing(ROLE, "the ARN of an IAM role"))?;
            return Ok(Self::Workload(Workload { role: role.to_owned(), token_file: PathBuf::from(file) }));
        }
        let access = first(credential, ACCESS_KEY).ok_or_else(|| no_access_key(credential))?;
        let secret = first(credential, SECRET_KEY);
        let secret = secret.ok_or_else(|| missing(&SECRET_KEY.join(" or "), "a secret key"))?;
        Ok(Self::Keys(Keys::new(access.to_owned(), secret.to_owned(), None)))
    }
}

/// The parts of a credential that name its account: the account number of the role, or the id of
/// the access key. Renewed tokens of a role have the same name.
pub(crate) fn account(credential: &Credential) -> String {
    if credential.text(TOKEN_FILE).is_some() {
        let role = credential.text(ROLE).unwrap_or_default().trim();
        // arn:PARTITION:iam::ACCOUNT:role/NAME
        let number = role.split(':').nth(4).filter(|number| !number.is_empty());
        return format!("account {}", number.unwrap_or(role));
    }
    format!("key {}", first(credential, ACCESS_KEY).unwrap_or_default())
}

fn first<'a>(credential: &'a Credential, names: [&str; 2]) -> Option<&'a str> {
    names.iter().filter_map(|name| credential.text(name)).find_map(set)
}

fn set(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn no_access_key(credential: &Credential) -> Error {
    let names = ACCESS_KEY.join(" or ");
    if credential.text(MISSPELT).is_some() {
        let expected = format!("the id of an access key; the entry {MISSPELT} is not read, rename it");
        return missing(&names, &expected);
    }
    missing(&names, "the id of an access key")
}

fn missing(entry: &str, expected: &str) -> Error {
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

    fn keys(entries: &[(&str, &str)]) -> (String, String) {
        match Login::parse(&credential(entries)) {
            Ok(Login::Keys(keys)) => (keys.access_key_id().to_owned(), keys.secret_key().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_spellings_are_read_and_trimmed() {
        let expected = ("AKIA1".to_owned(), "s1".to_owned());
        assert_eq!(keys(&[("accessKeyID", "AKIA1\n"), ("secretAccessKey", " s1 ")]), expected);
        let both = [
            ("accessKeyID", "AKIA2"),
            ("secretAccessKey", "s2"),
            ("providerAccessKeyId", "AKIA1"),
            ("providerSecretAccessKey", "s1"),
        ];
        assert_eq!(keys(&both), expected);
    }

    /// Go takes the empty entry, and then the identity of its pod.
    #[test]
    fn a_9_an_empty_entry_never_means_ambient_keys() {
        let one_empty = [("providerAccessKeyId", ""), ("accessKeyID", "AKIA1"), ("secretAccessKey", "s1")];
        assert_eq!(keys(&one_empty), ("AKIA1".to_owned(), "s1".to_owned()));
        let all_empty = credential(&[("providerAccessKeyId", " "), ("secretAccessKey", "s1")]);
        let error = Login::parse(&all_empty).expect_err("no key");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert_eq!(error.message, "providerAccessKeyId or accessKeyID: expected the id of an access key");
    }

    #[test]
    fn a_10_a_misspelt_entry_is_named() {
        let misspelt = credential(&[("accessKeyId", "AKIA1"), ("secretAccessKey", "s1")]);
        let error = Login::parse(&misspelt).expect_err("misspelt");
        assert!(error.message.contains("the entry accessKeyId is not read"), "{error}");
    }

    #[test]
    fn a_workload_identity_wins_over_keys() {
        let entries = [
            ("accessKeyID", "AKIA1"),
            ("secretAccessKey", "s1"),
            ("workloadIdentityTokenFile", "/var/run/token"),
            ("roleARN", "arn:aws:iam::123456789012:role/x"),
            ("token", "ignored"),
            ("config", "ignored"),
        ];
        match Login::parse(&credential(&entries)) {
            Ok(Login::Workload(workload)) => assert_eq!(workload.token_file, PathBuf::from("/var/run/token")),
            other => panic!("{other:?}"),
        }
        let without_role = credential(&entries[..3]);
        let error = Login::parse(&without_role).expect_err("no role");
        assert_eq!(error.message, "roleARN: expected the ARN of an IAM role");
    }

    #[test]
    fn a_role_names_its_account_number() {
        let role = |role| credential(&[("workloadIdentityTokenFile", "/f"), ("roleARN", role)]);
        let one = account(&role("arn:aws:iam::123456789012:role/a"));
        assert_eq!(one, "account 123456789012");
        assert_eq!(one, account(&role("arn:aws:iam::123456789012:role/b")));
        assert_eq!(account(&credential(&[("accessKeyID", "AKIA1")])), "key AKIA1");
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let login = Login::parse(&credential(&[("accessKeyID", "AKIA1"), ("secretAccessKey", "canary")]));
        assert!(!format!("{login:?}").contains("canary"));
    }
}
