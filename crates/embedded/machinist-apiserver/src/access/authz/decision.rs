//! The answer of an authorizer, and the error of a request that it does not allow.

use crate::access::authz::attributes::Attributes;
use crate::values::identity::Identity;
use crate::values::status::{ApiError, Target};

/// A decision and its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    pub(crate) reason: String,
}

/// 403, in the words of kube-apiserver.
pub(crate) fn refusal(user: &Identity, asked: &Attributes, reason: &str) -> ApiError {
    let Attributes { verb, group, namespace, .. } = asked;
    if let Some(path) = &asked.path {
        let why =
            with_reason(format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", user.user), reason);
        return ApiError::new(403, "Forbidden", why).with_empty_details();
    }
    let place = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!(
        "User \"{}\" cannot {verb} resource \"{}\" in API group \"{group}\" {place}",
        user.user,
        asked.combined()
    );
    let target = Target { group, resource: &asked.resource, name: &asked.name };
    ApiError::forbidden(&target, &with_reason(why, reason))
}

fn with_reason(text: String, reason: &str) -> String {
    if reason.is_empty() { text } else { format!("{text}: {reason}") }
}
