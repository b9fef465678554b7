//! Impersonation (`kubectl --as`): the caller must be allowed to send each of the `Impersonate-*`
//! headers.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use crate::access::authz::Authorizer;
use crate::access::authz::attributes::{AskedVerb, Attributes};
use crate::access::authz::decision::refusal;
use crate::values::identity::{AUTHENTICATED, Identity, UNAUTHENTICATED, account_groups};
use crate::values::query::percent_decode;
use crate::values::status::{ApiError, ApiResult};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const ACCOUNT: &str = "system:serviceaccount:";

/// Returns the impersonated user, or `None` without such headers. `asked` describes the request
/// itself.
pub(crate) fn impersonated(
    authorizer: Authorizer<'_>,
    caller: &Identity,
    headers: &HeaderMap,
    asked: &Attributes,
) -> ApiResult<Option<Identity>> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let may_be_user = authorizer.decide(caller, &user(&wanted.user));
    if !may_be_user.allowed {
        // kube-apiserver then checks a permission that is limited to this request, and its error
        // names that permission.
        let verb = format!("impersonate-on:{}:{}", mode(&wanted.user), asked.verb).into();
        return Err(refusal(caller, &Attributes { verb, ..asked.clone() }, &may_be_user.reason));
    }
    for group in &wanted.groups {
        authorizer.authorize(caller, &impersonate("", "groups", "", group))?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            authorizer.authorize(caller, &impersonate("authentication.k8s.io", "userextras", key, value))?;
        }
    }
    if !wanted.uid.is_empty() {
        authorizer.authorize(caller, &impersonate("authentication.k8s.io", "uids", "", &wanted.uid))?;
    }
    Ok(Some(completed(wanted)))
}

fn wanted(headers: &HeaderMap) -> ApiResult<Option<Identity>> {
    let first = |name: &str| match headers.get(name) {
        Some(value) => text(name, value),
        None => Ok(String::new()),
    };
    let groups: ApiResult<Vec<String>> =
        headers.get_all(GROUP).iter().map(|value| text(GROUP, value)).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let key = percent_decode(key).unwrap_or_else(|| key.to_owned()).to_lowercase();
        extra.entry(key).or_default().push(text(name.as_str(), value)?);
    }
    let wanted = Identity { user: first(USER)?, uid: first(UID)?, groups: groups?, extra };
    let asks_for_more = !wanted.groups.is_empty() || !wanted.uid.is_empty() || !wanted.extra.is_empty();
    match (wanted.user.is_empty(), asks_for_more) {
        (false, _) => Ok(Some(wanted)),
        (true, false) => Ok(None),
        (true, true) => {
            Err(ApiError::bad_request("requested groups, a uid or extra without impersonating a user name"))
        }
    }
}

/// Returns a header's text, which may be any UTF-8. A header that is not UTF-8 is rejected. If it
/// were ignored, the request would run as the caller.
fn text(name: &str, value: &HeaderValue) -> ApiResult<String> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ApiError::bad_request(format!("the header {name} is not UTF-8")))
}

fn impersonate(group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
    Attributes {
        verb: AskedVerb::Other("impersonate".into()),
        group: group.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        name: name.into(),
        ..Attributes::default()
    }
}

fn user(user: &str) -> Attributes {
    match user.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) => {
            Attributes { namespace: namespace.into(), ..impersonate("", "serviceaccounts", "", name) }
        }
        None => impersonate("", "users", "", user),
    }
}

fn mode(user: &str) -> &'static str {
    match user {
        _ if user.starts_with(ACCOUNT) => "serviceaccount",
        _ if user.starts_with("system:node:") => "arbitrary-node",
        _ => "user-info",
    }
}

/// Adds the default groups of a user: the groups of a ServiceAccount if no group is named, and the
/// group of authenticated or unauthenticated users.
fn completed(mut wanted: Identity) -> Identity {
    if wanted.groups.is_empty()
        && let Some((namespace, _)) = wanted.user.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'))
    {
        wanted.groups = account_groups(namespace);
    }
    let has = |groups: &[String], group: &str| groups.iter().any(|held| held == group);
    let is_anonymous = wanted.user == "system:anonymous" || has(&wanted.groups, UNAUTHENTICATED);
    let group = if is_anonymous { UNAUTHENTICATED } else { AUTHENTICATED };
    if !has(&wanted.groups, group) {
        wanted.groups.push(group.to_owned());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &[u8])]) -> ApiResult<Option<Identity>> {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("the header value is valid");
        let mut map = HeaderMap::new();
        for (name, bytes) in headers {
            map.append(*name, value(bytes));
        }
        wanted(&map)
    }

    #[test]
    fn names_may_contain_any_utf8() {
        let named = [
            (USER, "jürgen".as_bytes()),
            (GROUP, "Müßiggänger".as_bytes()),
            ("impersonate-extra-scopes", "größe".as_bytes()),
        ];
        let wanted = of(&named).expect("the headers are valid").expect("a user is impersonated");
        assert_eq!((wanted.user.as_str(), wanted.groups), ("jürgen", vec!["Müßiggänger".to_owned()]));
        assert_eq!(wanted.extra["scopes"], ["größe"]);
    }

    #[test]
    fn a_header_that_is_not_utf8_is_rejected() {
        for name in [USER, GROUP, UID, "impersonate-extra-scopes"] {
            let mut headers = vec![(name, [0xff].as_slice())];
            assert_eq!(of(&headers).map_err(|e| e.code()), Err(400), "{name} alone");
            headers.push((USER, b"bob"));
            assert_eq!(of(&headers).map_err(|e| e.code()), Err(400), "{name}");
        }
    }
}
