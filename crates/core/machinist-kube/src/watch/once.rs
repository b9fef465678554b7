//! A single list without a watch. Like a watch, it parses the items one by one.

use std::marker::PhantomData;

use kube::Resource;
use kube::api::{Api, ListParams};
use serde::de::{DeserializeOwned, Error as _};
use tokio::time::Instant;

use super::wire::{Page, Reader};
use crate::store::Relist;

/// Lists the objects that `params` select. An object that cannot be parsed is logged, and its key
/// is in [`Relist::unreadable`]. The other objects are not affected.
///
/// # Errors
/// Fails if the API server does not answer, or answers with an error, with anything else than a
/// list, or with a part of a list: an absence in it would prove nothing.
pub async fn list_once<K, F>(
    api: Api<K>,
    params: &ListParams,
    parse: impl Fn(K) -> F,
) -> Result<Relist<F>, kube::Error>
where
    K: Resource + DeserializeOwned,
{
    let reader = Reader { parse, kind: PhantomData };
    let request =
        kube::core::Request::new(api.resource_url()).list(params).map_err(kube::Error::BuildRequest)?;
    let sent = Instant::now();
    let text = api.into_client().request_text(request).await?;
    let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    let refused = |text| kube::Error::SerdeError(serde_json::Error::custom(text));
    let resource_version = page.resource_version().map_err(refused)?;
    if page.next_page().is_some() {
        let text = "the list is only a part: it has a continue token, and no limit was sent";
        return Err(refused(text.to_owned()));
    }
    let mut list = Relist { items: Vec::new(), unreadable: Vec::new(), resource_version, sent };
    for raw in page.items.iter().flatten() {
        match reader.read(raw) {
            Ok(item) => list.items.push(item),
            Err(unparsed) => {
                let place = unparsed.place.map(|(key, _, object)| (key, object));
                let shown = place.as_ref().map(|(key, _)| key.to_string()).unwrap_or_default();
                tracing::warn!(
                    object = shown,
                    error = unparsed.error,
                    "Skipped an object that cannot be parsed"
                );
                list.unreadable.extend(place);
            }
        }
    }
    Ok(list)
}
