//! Lists: filters, order and pages.

use std::cmp::Ordering;

use machinist_labels::Selector;
use serde_json::{Value, json};

use super::call::{Call, Handled, Reply};
use crate::Fault;
use crate::error::ApiError;
use crate::model::Listed;
use crate::settings::LargePages;

const DEFAULT_PER_PAGE: usize = 25;
const MAX_PER_PAGE: usize = 50;

/// Filters, sorts and renders one page of a list.
pub(super) fn list<T: Listed>(
    call: &Call<'_>,
    name: &str,
    mut items: Vec<&T>,
    render: impl Fn(&T) -> Value,
) -> Handled {
    if let Some(wanted) = call.query.get("name") {
        items.retain(|item| item.name() == wanted);
    }
    if let Some(text) = call.query.get("label_selector") {
        let selector: Selector =
            text.parse().map_err(|_| ApiError::invalid("label_selector", "expected a label selector"))?;
        items.retain(|item| item.labels().is_some_and(|labels| selector.selects(labels)));
    }
    let statuses: Vec<&str> = call.query.all("status").collect();
    if !statuses.is_empty() {
        items.retain(|item| item.status().is_none_or(|status| statuses.contains(&status)));
    }
    let orders = call.query.all("sort").map(order_of).collect::<Result<Vec<_>, _>>()?;
    // The sort is stable, so equal objects stay in the order of their ids.
    items.sort_by(|a, b| {
        orders.iter().fold(Ordering::Equal, |so_far, order| so_far.then_with(|| order.compare(*a, *b)))
    });
    match call.fault {
        Some(Fault::EmptyList) => items.clear(),
        Some(Fault::Omit { id }) => items.retain(|item| item.id() != *id),
        _ => {}
    }
    page(call, name, &items, |item| render(item))
}

/// Renders one page of a fixed list that is already filtered.
pub(super) fn page<T>(call: &Call<'_>, name: &str, items: &[T], render: impl Fn(&T) -> Value) -> Handled {
    let number = |name: &str, default: usize| match call.query.get(name) {
        None => Ok(default),
        Some(text) => text
            .parse::<usize>()
            .ok()
            .filter(|number| 1 <= *number)
            .ok_or_else(|| ApiError::invalid(name, "expected a number of at least 1")),
    };
    let page = number("page", 1)?;
    let mut per_page = number("per_page", DEFAULT_PER_PAGE)?;
    if MAX_PER_PAGE < per_page {
        match call.books.settings.large_pages {
            LargePages::Clamp => per_page = MAX_PER_PAGE,
            LargePages::Reject => {
                return Err(ApiError::invalid("per_page", format!("expected at most {MAX_PER_PAGE}")));
            }
        }
    }
    let last_page = items.len().div_ceil(per_page).max(1);
    let skipped = (page - 1).saturating_mul(per_page);
    let is_omitted = call.fault == Some(&Fault::OmitAtPageBoundary) && 1 < page;
    let shown: Vec<Value> =
        items.iter().skip(skipped).take(per_page).skip(usize::from(is_omitted)).map(render).collect();
    let previous_page = (1 < page).then(|| page - 1);
    let next_page = (page < last_page).then(|| page + 1);
    let mut reply = Reply::ok(json!({
        name: shown,
        "meta": {"pagination": {
            "page": page, "per_page": per_page, "previous_page": previous_page, "next_page": next_page,
            "last_page": last_page, "total_entries": items.len(),
        }},
    }));
    let links = [("prev", previous_page), ("next", next_page), ("last", Some(last_page))];
    let links = links.iter().filter_map(|(relation, page)| Some(link(call, relation, (*page)?)));
    reply.link = Some(links.collect::<Vec<_>>().join(", "));
    Ok(reply)
}

fn link(call: &Call<'_>, relation: &str, page: usize) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let rest = call.query.without("page").map(|(name, value)| {
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        format!("&{}={}", encode(name), encode(value))
    });
    format!("<{}?page={page}{}>; rel=\"{relation}\"", call.path, rest.collect::<String>())
}

/// A field of the order, and its direction.
struct Order {
    field: Field,
    is_descending: bool,
}

enum Field {
    Id,
    Name,
    Created,
    Status,
}

fn order_of(text: &str) -> Result<Order, ApiError> {
    let (field, direction) = text.split_once(':').unwrap_or((text, "asc"));
    let field = match field {
        "id" => Field::Id,
        "name" | "command" => Field::Name,
        "created" | "started" => Field::Created,
        "status" => Field::Status,
        _ => return Err(ApiError::invalid("sort", "expected id, name, created or status")),
    };
    let is_descending = match direction {
        "asc" => false,
        "desc" => true,
        _ => return Err(ApiError::invalid("sort", "expected :asc or :desc")),
    };
    Ok(Order { field, is_descending })
}

impl Order {
    fn compare<T: Listed>(&self, a: &T, b: &T) -> Ordering {
        let order = match self.field {
            Field::Id => a.id().cmp(&b.id()),
            Field::Name => a.name().cmp(b.name()),
            Field::Created => a.created().cmp(&b.created()),
            Field::Status => a.status().cmp(&b.status()),
        };
        if self.is_descending { order.reverse() } else { order }
    }
}
