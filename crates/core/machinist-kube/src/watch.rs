//! List, then watch: the stream of deltas that feeds a store, whatever happens to the connection.
//!
//! A watch can end, stall, break off in the middle of a line, start in a past that the server has forgotten, or be
//! closed as soon as it is opened. [`run_watch`] goes on through all of it, never faster than its backoff, and lists the
//! kind anew whenever it cannot be sure to have missed nothing:
//!
//! | what happens | what follows |
//! |---|---|
//! | the stream ends after a while | resumed at once from the last resourceVersion |
//! | the stream ends within a second | resumed after a backoff |
//! | nothing arrives for longer than the server promised | taken as broken: resumed |
//! | 410, as the answer or within the stream | listed anew |
//! | other errors | resumed after a backoff; listed anew after three in a row that the server itself answered |
//! | an object cannot be read | reported, passed on as unreadable, skipped |
//!
//! It reads the stream itself instead of using `kube::runtime::watcher`, which retries an HTTP 410 for ever, reopens a
//! stream that closes at once without a pause, swallows bookmarks, and cannot tell an unreadable object from a broken
//! stream.

mod once;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams, WatchParams};
use kube::core::Status;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

pub use self::once::list_once;
use self::wire::{Event, Line, Page, Reader, identity, metadata_of, parse_rv, read_line, without_quotes};
use crate::backoff::{Backoff, Jitter};
use crate::stable_hash::stable_hash;
use crate::store::{Delta, ObjectKey, Relist};

/// Objects asked for in one page of a list.
const PAGE_SIZE: u32 = 500;

/// The server ends a watch after this long; every client resumes at a time of its own, so it is spread.
const SERVER_TIMEOUT: Duration = Duration::from_secs(290);
const SERVER_TIMEOUT_SPREAD: f64 = 0.2;

/// How long after the server should have ended a watch it is taken as broken.
const IDLE_MARGIN: Duration = Duration::from_secs(10);

/// A watch that is not even answered within this time is taken as broken.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that ends sooner is suspicious: resuming it without a pause could go on thousands of times a minute.
const SHORT_STREAM: Duration = Duration::from_secs(1);

/// A stream that lasted this long shows that the trouble is over.
const LASTING_STREAM: Duration = Duration::from_secs(30);

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30), spread: 0.5 };

/// While short streams still deliver something, waiting longer than this would only make the store older.
const PROGRESS_CAP: Duration = Duration::from_secs(2);
/// The longest pause while there is no server: to ask costs one connection, and nothing is decided until it is back.
const NO_SERVER_CAP: Duration = Duration::from_secs(5);

/// After this many refusals in a row to resume, the resourceVersion itself is doubted (after a restore of etcd it may
/// lie in the future), and the kind is listed anew.
const REFUSALS_BEFORE_RELIST: u32 = 3;

/// A list whose continue token expires this often is read without pages.
const EXPIRIES_BEFORE_UNPAGED: u32 = 2;

/// What a watch tells besides its deltas. It holds no content of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchNote {
    /// The kind was listed as a whole.
    Listed {
        /// How many objects there are.
        objects: usize,
    },
    /// A watch was opened.
    Opened,
    /// An object cannot be read.
    Undecodable {
        /// Its key, when at least its metadata can be read.
        key: Option<ObjectKey>,
        /// What is wrong with it, without the texts it contains.
        error: String,
    },
    /// Something failed; the next attempt is under way or due.
    Retrying {
        /// After how long.
        after: Duration,
        /// What failed.
        error: String,
    },
}

/// What to watch, and whom to tell about trouble.
#[derive(Clone, Default)]
pub struct WatchOptions {
    /// Restricts the watch by labels.
    pub label_selector: Option<String>,
    /// Restricts the watch by fields.
    pub field_selector: Option<String>,
    /// The seed of the jitter; watches of several kinds may share one.
    pub seed: u64,
    /// Told about lists, reconnects and unreadable objects, when set.
    pub observer: Option<Arc<dyn Fn(WatchNote) + Send + Sync>>,
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("label_selector", &self.label_selector)
            .field("field_selector", &self.field_selector)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Why a watch gave up: trying again could not help.
#[derive(Debug, thiserror::Error)]
#[error("watch of {url}: the server rejects the request itself; expected valid label and field selectors")]
pub struct WatchFatal {
    /// The path of the watched kind.
    pub url: String,
    /// The server's, or the client's, objection.
    pub source: Box<kube::Error>,
}

/// Lists and watches one kind, handing each delta to `sink` in order, the first being a relist. Runs until it is
/// dropped or aborted; it returns only when it cannot ever succeed.
pub async fn run_watch<K, F>(
    api: Api<K>,
    options: WatchOptions,
    parse: impl Fn(K) -> F + Send,
    sink: impl FnMut(Delta<F>) + Send,
) -> WatchFatal
where
    K: Resource + DeserializeOwned,
{
    let url = api.resource_url().to_owned();
    let jitter = Jitter::new(options.seed ^ stable_hash(&[&url]));
    let mut watch =
        Watch { request: kube::core::Request::new(url), client: api.into_client(), options, jitter };
    watch.run(&Reader { parse, kind: std::marker::PhantomData }, sink).await
}

struct Watch {
    request: kube::core::Request,
    client: Client,
    options: WatchOptions,
    jitter: Jitter,
}

/// Where the watch stands.
enum Position {
    /// Nothing is known, or not reliably.
    Unlisted,
    /// Everything up to this resourceVersion was handed on.
    At(u64),
}

/// How one stretch of watching ended.
enum Ended {
    /// The server closed the stream, or it stalled.
    Closed,
    /// The server has forgotten what happened since our resourceVersion.
    Expired,
    /// The server refused, or failed, to go on.
    Refused(String),
    /// There was no server, or the connection broke.
    Broken(String),
    /// The request itself is wrong.
    Fatal(Box<kube::Error>),
}

impl Watch {
    async fn run<K, F, P>(
        &mut self,
        reader: &Reader<K, P>,
        mut sink: impl FnMut(Delta<F>) + Send,
    ) -> WatchFatal
    where
        K: Resource + DeserializeOwned,
        P: Fn(K) -> F + Send,
    {
        let mut position = Position::Unlisted;
        // Failures since the last stream that lasted; among them, refusals in a row.
        let (mut failures, mut refusals) = (0_u32, 0_u32);
        let mut listed: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let (was_listing, before) = match position {
                Position::Unlisted => (true, 0),
                Position::At(rv) => (false, rv),
            };
            let ended = match position {
                Position::Unlisted => match self.list(reader).await {
                    Ok(list) => {
                        position = Position::At(list.resource_version);
                        listed = Some(Instant::now());
                        self.note(|| WatchNote::Listed { objects: list.items.len() });
                        sink(Delta::Relist(list));
                        continue;
                    }
                    Err(ended) => ended,
                },
                Position::At(ref mut rv) => self.stream(rv, reader, &mut sink).await,
            };
            let lived = started.elapsed();
            if !was_listing && LASTING_STREAM <= lived {
                (failures, refusals) = (0, 0);
            }
            let progressed = matches!(position, Position::At(rv) if before < rv);
            let mut cap = BACKOFF.cap;
            let reason = match ended {
                Ended::Fatal(source) => return WatchFatal { url: self.request.url_path.clone(), source },
                Ended::Closed if SHORT_STREAM <= lived => {
                    refusals = 0;
                    continue;
                }
                Ended::Closed => "the stream was closed at once".to_owned(),
                Ended::Expired => {
                    position = Position::Unlisted;
                    // The usual end of a long pause, or of an outage, after which a server has forgotten the past: listing at once is
                    // right, doing so again and again is not.
                    if listed.is_none_or(|at| LASTING_STREAM <= at.elapsed()) {
                        failures = 1;
                        continue;
                    }
                    "the resourceVersion is too old".to_owned()
                }
                Ended::Refused(reason) => {
                    refusals += 1;
                    if REFUSALS_BEFORE_RELIST <= refusals {
                        refusals = 0;
                        position = Position::Unlisted;
                    }
                    reason
                }
                Ended::Broken(reason) => {
                    cap = NO_SERVER_CAP;
                    reason
                }
            };
            if progressed {
                cap = PROGRESS_CAP;
            }
            let after = BACKOFF.delay(failures, &mut self.jitter).min(cap);
            failures = failures.saturating_add(1);
            self.note(|| WatchNote::Retrying { after, error: reason });
            tokio::time::sleep(after).await;
        }
    }

    /// Reads the whole kind from the quorum, page by page.
    async fn list<K, F, P>(&self, reader: &Reader<K, P>) -> Result<Relist<F>, Ended>
    where
        K: Resource + DeserializeOwned,
        P: Fn(K) -> F + Send,
    {
        let mut expiries = 0;
        loop {
            let limit = (expiries < EXPIRIES_BEFORE_UNPAGED).then_some(PAGE_SIZE);
            match self.list_pages(limit, reader).await {
                Err(Ended::Expired) if limit.is_some() => expiries += 1,
                // Without pages there is no token that could expire.
                Err(Ended::Expired) => return Err(Ended::Refused("the list has expired".to_owned())),
                result => return result,
            }
        }
    }

    async fn list_pages<K, F, P>(&self, limit: Option<u32>, reader: &Reader<K, P>) -> Result<Relist<F>, Ended>
    where
        K: Resource + DeserializeOwned,
        P: Fn(K) -> F + Send,
    {
        let mut whole: Option<Relist<F>> = None;
        let mut params = ListParams {
            label_selector: self.options.label_selector.clone(),
            field_selector: self.options.field_selector.clone(),
            limit,
            ..ListParams::default()
        };
        loop {
            let mut request = self.request.list(&params).map_err(never_sent)?;
            request.extensions_mut().insert("list");
            let text = self.client.request_text(request).await.map_err(ended_by)?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(|error| {
                Ended::Refused(format!("not a list: {}", without_quotes(&error.to_string())))
            })?;
            let resource_version = parse_rv(page.metadata.resource_version.as_deref())
                .ok_or_else(|| Ended::Refused("the list has no numeric resourceVersion".to_owned()))?;
            let list =
                whole.get_or_insert(Relist { items: Vec::new(), unreadable: Vec::new(), resource_version });
            // All pages are of one moment; should a server think otherwise, the oldest misses nothing.
            list.resource_version = list.resource_version.min(resource_version);
            for raw in page.items.iter().flatten() {
                match reader.read(raw) {
                    Ok((key, entry)) => list.items.push((key, entry)),
                    Err(unreadable) => {
                        list.unreadable.extend(unreadable.place.clone().map(|(key, _)| key));
                        self.note(|| unreadable.into_note());
                    }
                }
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none()
                && let Some(list) = whole.take()
            {
                return Ok(list);
            }
        }
    }

    /// Watches from `rv`, moving it along, until the stream ends.
    async fn stream<K, F, P>(
        &mut self,
        rv: &mut u64,
        reader: &Reader<K, P>,
        sink: &mut (impl FnMut(Delta<F>) + Send),
    ) -> Ended
    where
        K: Resource + DeserializeOwned,
        P: Fn(K) -> F + Send,
    {
        let server_timeout = self.jitter.stretch(SERVER_TIMEOUT, SERVER_TIMEOUT_SPREAD);
        let params = WatchParams {
            label_selector: self.options.label_selector.clone(),
            field_selector: self.options.field_selector.clone(),
            timeout: u32::try_from(server_timeout.as_secs()).ok(),
            bookmarks: true,
            send_initial_events: false,
        };
        let mut request = match self.request.watch(&params, &rv.to_string()).map_err(never_sent) {
            Ok(request) => request,
            Err(ended) => return ended,
        };
        request.extensions_mut().insert("watch");
        let answer = match timeout(OPEN_TIMEOUT, self.client.request_stream(request)).await {
            Err(_) => return Ended::Broken("no answer to the watch request".to_owned()),
            Ok(Err(error)) => return ended_by(error),
            Ok(Ok(answer)) => answer,
        };
        self.note(|| WatchNote::Opened);
        let mut answer = std::pin::pin!(answer);
        let mut line = Vec::new();
        loop {
            line.clear();
            match timeout(server_timeout + IDLE_MARGIN, read_line(&mut answer, &mut line)).await {
                Err(_) => {
                    return Ended::Broken("nothing arrived for longer than the server promised".to_owned());
                }
                Ok(Err(error)) => return Ended::Broken(error.to_string()),
                Ok(Ok(Line::End)) => return Ended::Closed,
                Ok(Ok(Line::Whole)) => {}
            }
            match self.event(&line, reader) {
                Ok(Some(delta)) => {
                    *rv = delta_rv(&delta).unwrap_or(*rv);
                    sink(delta);
                }
                Ok(None) => {}
                Err(ended) => return ended,
            }
        }
    }

    /// One line of the stream.
    fn event<K, F, P>(&self, line: &[u8], reader: &Reader<K, P>) -> Result<Option<Delta<F>>, Ended>
    where
        K: Resource + DeserializeOwned,
        P: Fn(K) -> F + Send,
    {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let event: Event<'_> = serde_json::from_slice(line).map_err(|error| {
            Ended::Broken(format!("not an event: {}", without_quotes(&error.to_string())))
        })?;
        let delta = match event.kind {
            "ADDED" | "MODIFIED" => match reader.read(event.object) {
                Ok((key, entry)) => Some(Delta::Upsert(key, entry)),
                Err(unreadable) => {
                    let delta = unreadable.place.clone();
                    self.note(|| unreadable.into_note());
                    delta.map(|(key, resource_version)| Delta::Unreadable { key, resource_version })
                }
            },
            // Who is gone is in the metadata: the rest need not be readable.
            "DELETED" => metadata_of(event.object).and_then(|metadata| {
                let (key, uid, resource_version) = identity(&metadata)?;
                Some(Delta::Delete { key, uid, resource_version })
            }),
            "BOOKMARK" => metadata_of(event.object)
                .and_then(|metadata| parse_rv(metadata.resource_version.as_deref()))
                .map(Delta::Bookmark),
            "ERROR" => return Err(ended_by_error_event(event.object)),
            _ => None,
        };
        Ok(delta)
    }

    fn note(&self, note: impl FnOnce() -> WatchNote) {
        let Some(observer) = &self.options.observer else { return };
        observer(note());
    }
}

fn delta_rv<F>(delta: &Delta<F>) -> Option<u64> {
    match delta {
        Delta::Upsert(_, entry) => Some(entry.resource_version),
        Delta::Delete { resource_version, .. } | Delta::Unreadable { resource_version, .. } => {
            Some(*resource_version)
        }
        Delta::Bookmark(resource_version) => Some(*resource_version),
        Delta::Relist(_) | Delta::RelistPart(_) | Delta::Fetched(..) | Delta::Absent { .. } => None,
    }
}

fn never_sent(error: kube::core::request::Error) -> Ended {
    Ended::Fatal(Box::new(kube::Error::BuildRequest(error)))
}

fn ended_by(error: kube::Error) -> Ended {
    match error {
        kube::Error::Api(status) if is_expired(&status) => Ended::Expired,
        kube::Error::Api(status) if status.code == 400 => Ended::Fatal(Box::new(kube::Error::Api(status))),
        kube::Error::Api(status) => Ended::Refused(status.to_string()),
        error => Ended::Broken(error.to_string()),
    }
}

fn ended_by_error_event(object: &RawValue) -> Ended {
    match serde_json::from_str::<Status>(object.get()) {
        Ok(status) if is_expired(&status) => Ended::Expired,
        Ok(status) => Ended::Refused(status.to_string()),
        Err(_) => Ended::Refused("an error event without a status".to_owned()),
    }
}

fn is_expired(status: &Status) -> bool {
    status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone")
}

#[cfg(test)]
mod tests;
