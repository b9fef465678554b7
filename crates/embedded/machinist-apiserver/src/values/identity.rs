//! The identity of an authenticated client: user name, groups and extra attributes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Group of every authenticated user.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Key in `extra` that identifies the credential of a request.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Group of unauthenticated requests.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the user, for example `system:node:a`.
    pub user: String,
    /// Id that distinguishes users with the same name; empty if the credential has none.
    pub uid: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// Additional facts from the authenticator, such as the id of the credential.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Returns the groups of a ServiceAccount, without `system:authenticated`.
pub(crate) fn account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

impl Identity {
    /// Returns the identity of `user` in `groups` and in `system:authenticated`.
    pub fn new<G: Into<String>>(user: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Identity { user: user.into(), uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// Returns the identity of an unauthenticated request.
    pub(crate) fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Identity { user: "system:anonymous".into(), uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// Returns the JSON that reviews and signing requests show.
    pub(crate) fn user_info(&self) -> Value {
        let mut shown = json!({"username": self.user});
        if !self.uid.is_empty() {
            shown["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            shown["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            shown["extra"] = json!(self.extra);
        }
        shown
    }

    /// Returns the identity of the cluster's administrator.
    pub fn admin() -> Self {
        Identity::new("kubernetes-admin", ["system:masters"])
    }
}
