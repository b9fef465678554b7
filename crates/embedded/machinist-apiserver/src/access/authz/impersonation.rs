//! Acting as somebody else (`kubectl --as`): the `Impersonate-*` headers, each of which the real caller must be allowed to send.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use crate::access::authz::{Attributes, Authorizer, refusal};
use crate::values::identity::{AUTHENTICATED, Identity, UNAUTHENTICATED, account_groups};
use crate::values::query::percent_decode;
use crate::values::status::{ApiError, ApiResult};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const ACCOUNT: &str = "system:serviceaccount:";

/// Whom the headers name; `None` when they name nobody. `asked` is what the request itself asks for.
pub(crate) fn impersonated(
    authorizer: Authorizer<'_>,
    caller: &Identity,
    headers: &HeaderMap,
    asked: &Attributes,
) -> ApiResult<Option<Identity>> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let may_be_user = authorizer.decide(caller, &user(&wanted.user));
    if !may_be_user.allowed {
        // kube-apiserver then looks for a permission that is limited to what is asked, and tells of that one.
        let verb = format!("impersonate-on:{}:{}", mode(&wanted.user), asked.verb);
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

/// A header's text, of whatever letters. What cannot be read is refused: taken as absent, it would leave the caller who he is.
fn text(name: &str, value: &HeaderValue) -> ApiResult<String> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ApiError::bad_request(format!("the header {name} is not UTF-8")))
}

fn impersonate(group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
    Attributes {
        verb: "impersonate".into(),
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

/// With the groups that come with being somebody at all.
fn completed(mut wanted: Identity) -> Identity {
    if wanted.groups.is_empty()
        && let Some((namespace, _)) = wanted.user.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'))
    {
        wanted.groups = account_groups(namespace);
    }
    let has = |groups: &[String], group: &str| groups.iter().any(|it| it == group);
    let nobody = wanted.user == "system:anonymous" || has(&wanted.groups, UNAUTHENTICATED);
    let group = if nobody { UNAUTHENTICATED } else { AUTHENTICATED };
    if !has(&wanted.groups, group) {
        wanted.groups.push(group.to_owned());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &[u8])]) -> ApiResult<Option<Identity>> {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a value");
        let mut map = HeaderMap::new();
        for (name, bytes) in headers {
            map.append(*name, value(bytes));
        }
        wanted(&map)
    }

    #[test]
    fn names_are_of_whatever_letters() {
        let named = [
            (USER, "jürgen".as_bytes()),
            (GROUP, "Müßiggänger".as_bytes()),
            ("impersonate-extra-scopes", "größe".as_bytes()),
        ];
        let wanted = of(&named).expect("readable").expect("somebody");
        assert_eq!((wanted.user.as_str(), wanted.groups), ("jürgen", vec!["Müßiggänger".to_owned()]));
        assert_eq!(wanted.extra["scopes"], ["größe"]);
    }

    #[test]
    fn a_header_that_cannot_be_read_is_refused_and_never_taken_as_absent() {
        for name in [USER, GROUP, UID, "impersonate-extra-scopes"] {
            let mut headers = vec![(name, [0xff].as_slice())];
            assert_eq!(of(&headers).map_err(|e| e.code()), Err(400), "{name} alone");
            headers.push((USER, b"bob"));
            assert_eq!(of(&headers).map_err(|e| e.code()), Err(400), "{name}");
        }
    }
}
