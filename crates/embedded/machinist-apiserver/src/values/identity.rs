//! The identity of an authenticated client: user name, groups and extra attributes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Group of everyone who authenticated.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// What tells by which credential somebody came.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Group of everyone else.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// What tells two users of one name apart; empty where nothing does.
    pub uid: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The groups of a ServiceAccount, but for that of everyone.
pub(crate) fn account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

impl Identity {
    /// `user` in `groups`, and in the group of everyone who authenticated.
    pub fn new<G: Into<String>>(user: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Identity { user: user.into(), uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// Who did not say who they are.
    pub(crate) fn nobody() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Identity { user: "system:anonymous".into(), uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// As reviews and signing requests show it.
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

    /// The cluster's administrator.
    pub fn admin() -> Self {
        Identity::new("kubernetes-admin", ["system:masters"])
    }
}
