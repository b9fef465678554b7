//! LIST: consistent, paged, with selectors.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::schema::conversion::{in_version, is_shown_as_stored};
use crate::schema::shape::Shape;
use crate::schema::table::{self, Header};
use crate::server::verbs::get::{parse_revision, wait_for};
use crate::server::verbs::{Answer, Call};
use crate::store::mvcc::Compacted;
use crate::store::page::Continue;
use crate::store::selector::Selector;
use crate::store::watch::Interest;
use crate::values::object::{Object, to_bytes};
use crate::values::query::Query;
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// Required freshness of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The newest state.
    Latest,
    /// The replica's state, however old.
    Any,
    NotOlderThan(u64),
    Exact(u64),
}

pub(crate) async fn list(call: &Call) -> ApiResult<Answer> {
    check_list_options(&call.query)?;
    let selector = selector(call)?;
    let limit = usize::try_from(call.query.number("limit")?.unwrap_or_default()).unwrap_or_default();
    let page = match call.query.text("continue") {
        "" => None,
        token => Some(Continue::decode(token)?),
    };
    let freshness = freshness(&call.query, limit)?;
    if page.is_some() && !matches!(call.query.text("resourceVersion"), "" | "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let revision = match (&page, freshness) {
        // The token may come from before a restart that lost no data, or from a server with a newer
        // revision.
        (Some(page), _) => match page.revision {
            Some(revision) => {
                wait_for(&call.core, revision).await?;
                Some(revision)
            }
            None => None,
        },
        (None, Freshness::Latest) => None,
        (None, Freshness::Any) => {
            call.view.as_ref().and_then(|v| v.limit()).map(|at| at.max(call.core.store.compacted()))
        }
        (None, Freshness::NotOlderThan(revision)) => {
            wait_for(&call.core, revision).await?;
            None
        }
        (None, Freshness::Exact(revision)) => {
            wait_for(&call.core, revision).await?;
            Some(revision)
        }
    };
    // A replica's own state is served without paging, as kube-apiserver does from its cache.
    let limit = if freshness == Freshness::Any && page.is_none() { 0 } else { limit };
    let collection = &call.served.resource.collection;
    let interest = interest(call, &selector);
    let after = page.as_ref().map(|p| &p.after);
    let slice = match call.core.store.slice_covered(collection, &interest, after, revision) {
        Ok(slice) => slice,
        Err(Compacted { oldest }) => {
            return Err(expired(page.as_ref(), revision.unwrap_or_default(), oldest));
        }
    };
    let mut items = Vec::new();
    let mut more = None;
    let mut last = None;
    let mut rest = slice.items.into_iter();
    for (key, object) in rest.by_ref() {
        if !selector.selects(&object) {
            continue;
        }
        if limit != 0 && items.len() == limit {
            // This object is the first of the next page.
            more = last.take();
            break;
        }
        items.push(object);
        last = Some(key);
    }
    let mut metadata = Map::new();
    if call.served.is_custom() && call.shape == Shape::Full {
        metadata.insert("continue".into(), json!(""));
    }
    metadata.insert("resourceVersion".into(), json!(slice.revision.to_string()));
    if let Some(after) = more {
        let token = Continue { revision: Some(slice.revision), after };
        metadata.insert("continue".into(), json!(token.encode()));
        if selector.is_empty() {
            metadata.insert("remainingItemCount".into(), json!(rest.count() + 1));
        }
    }
    Ok(Answer::json(200, render_list(call, metadata, &items)))
}

/// `namespace/`, or empty for all namespaces.
pub(crate) fn prefix(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!("{namespace}/") }
}

pub(crate) fn selector(call: &Call) -> ApiResult<Selector> {
    Selector::parse(
        call.query.text("labelSelector"),
        call.query.text("fieldSelector"),
        &call.served.field_labels(),
    )
}

/// Returns the part of the selectors that the store evaluates.
pub(crate) fn interest(call: &Call, selector: &Selector) -> Interest {
    Interest {
        prefix: prefix(&call.path.namespace),
        name: selector.fixed("metadata.name").map(str::to_owned),
        node_name: selector.fixed("spec.nodeName").map(str::to_owned),
    }
}

/// Combines `resourceVersion` and `resourceVersionMatch`.
pub(crate) fn freshness(query: &Query, limit: usize) -> ApiResult<Freshness> {
    Ok(match (query.text("resourceVersion"), query.text("resourceVersionMatch")) {
        ("", _) => Freshness::Latest,
        ("0", _) => Freshness::Any,
        (text, "Exact") => Freshness::Exact(list_revision(text)?),
        (text, "") if limit != 0 => Freshness::Exact(list_revision(text)?),
        (text, _) => Freshness::NotOlderThan(list_revision(text)?),
    })
}

fn list_revision(text: &str) -> ApiResult<u64> {
    parse_revision(text)
        .map_err(|e| ApiError::bad_request(format!("invalid resource version: {}", e.message())))
}

/// Rejects invalid combinations of list options.
fn check_list_options(query: &Query) -> ApiResult<()> {
    let mut errors = FieldErrors::default();
    let (revision, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    if query.named("sendInitialEvents").is_some() {
        errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if !matching.is_empty() {
        if query.has("continue") {
            errors.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for continue");
        }
        if revision.is_empty() {
            errors.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        match matching {
            "NotOlderThan" => {}
            "Exact" => {
                if revision == "0" {
                    errors.forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    );
                }
            }
            other => errors.not_supported(
                "resourceVersionMatch",
                json!(other),
                &["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()],
            ),
        }
    }
    refuse_options(&errors)
}

pub(crate) fn refuse_options(errors: &FieldErrors) -> ApiResult<()> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)) }
}

fn expired(page: Option<&Continue>, asked: u64, oldest: u64) -> ApiError {
    match page {
        Some(page) => {
            let fresh = Continue { revision: None, after: page.after.clone() };
            ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            )
            .with_continue(fresh.encode())
        }
        None => {
            tracing::debug!(asked, oldest, "List at a compacted revision");
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
    }
}

fn render_list(call: &Call, metadata: Map<String, Value>, items: &[Arc<Object>]) -> Bytes {
    let (served, shape) = (&call.served, call.shape);
    let (api_version, kind) = match shape {
        Shape::Full => (served.api_version(), served.resource.list_kind.clone()),
        Shape::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned()),
        Shape::Table(include) => {
            let now = call.core.config.clock.now();
            let rows = items.iter().map(|item| table::row(&item.whole(), served, include, now)).collect();
            return to_bytes(&table::table(served, Header::Shown, metadata, rows));
        }
    };
    if shape == Shape::Metadata && items.is_empty() {
        // An empty list that is nil in Go.
        return to_bytes(
            &json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": null}),
        );
    }
    let head = to_bytes(&json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}));
    let mut text = Vec::from(&head[..head.len() - 1]);
    text.extend_from_slice(b",\"items\":[");
    for (index, item) in items.iter().enumerate() {
        if index != 0 {
            text.push(b',');
        }
        // Typed lists name the type of their items only in their own kind.
        if shape == Shape::Full && !served.is_custom() {
            text.push(b'{');
            text.extend_from_slice(&if is_shown_as_stored(served) {
                item.text_after_type()
            } else {
                Object::new(in_version(&item.whole(), served), item.revision()).text_after_type()
            });
        } else {
            text.extend_from_slice(&call.render(item));
        }
    }
    text.extend_from_slice(b"]}");
    text.into()
}
