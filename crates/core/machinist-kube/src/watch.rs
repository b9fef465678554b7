//! Lists a kind, then watches it: the stream of deltas that feeds a store across all failures of
//! the connection.
//!
//! A watch can end, stall, break off in the middle of a line, start at a resourceVersion that the
//! API server no longer has, or be closed as soon as it is opened. [`run_watch`] continues after
//! each of these failures, never faster than its backoff. If events may be missing, [`run_watch`]
//! lists the kind again:
//!
//! | failure | reaction |
//! |---|---|
//! | the stream ends after a second or more | resumes at once from the last resourceVersion |
//! | the stream ends within a second | resumes after a backoff |
//! | no data arrives past the watch timeout | closes the watch and resumes after a backoff |
//! | data arrives after two silent minutes | ignores the data, and lists the kind again |
//! | 410, as the answer or within the stream | lists the kind again |
//! | other errors | resumes after a backoff; lists again after three error answers in a row |
//! | an object cannot be parsed | reports the object, emits [`Delta::Unreadable`] and continues |
//! | etcd is restored from a backup | lists the kind again |
//!
//! After a restore, an API server sends nothing to a watch that has seen a later resourceVersion,
//! until the server passes that version. So a watch that resumes after an outage first reads the
//! resourceVersion of the server. If that version is lower, the watch lists the kind again. It also
//! does so if the store asks for it, see [`WatchOptions::relist`].
//!
//! This module reads the stream without `kube::runtime::watcher`, because that watcher retries an
//! HTTP 410 forever, reopens a stream that closes at once without a pause, hides bookmarks, and
//! cannot distinguish an unreadable object from a broken stream.

mod objects;
mod once;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::AsyncBufRead;
use kube::api::{Api, ListParams, WatchParams};
use kube::core::Status;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::objects::{Listed, ObjectsOf, WatchedObjects};
pub use self::once::list_once;
use self::wire::{Event, Line, Page, Reader, identity, metadata_of, parse_rv, read_line, without_quotes};
use crate::backoff::{Backoff, Jitter};
use crate::clock::{Moment, SharedClock};
use crate::hash_of_parts::hash_of_parts;
use crate::store::{Delta, FRESH_FOR, ObjectKey};

/// Number of objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// The API server ends a watch after this time plus jitter. The jitter spreads the resumptions of
/// all clients.
const SERVER_TIMEOUT: Duration = Duration::from_secs(290);
const SERVER_TIMEOUT_SPREAD: f64 = 0.2;

/// A watch that lasts this long past its timeout without data counts as broken.
const IDLE_MARGIN: Duration = Duration::from_secs(10);

/// A watch request without an answer within this time counts as broken.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that ends sooner is resumed after a backoff. Without a pause, the watch could be
/// resumed thousands of times a minute.
const SHORT_STREAM: Duration = Duration::from_secs(1);

/// A stream that lasted this long resets the backoff.
const LASTING_STREAM: Duration = Duration::from_secs(30);

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30), spread: 0.5 };

/// Longest pause while short streams still deliver events: a longer pause would only make the store
/// older.
const PROGRESS_CAP: Duration = Duration::from_secs(2);
/// Longest pause while the server is unreachable: an attempt costs only one connection, and no
/// decision is possible until the server is back.
const NO_SERVER_CAP: Duration = Duration::from_secs(5);

/// After this many error answers in a row, the resourceVersion itself may be the cause. The watch
/// then lists the kind again.
const REFUSALS_BEFORE_RELIST: u32 = 3;

/// After this many expired continue tokens, the list is read without pages.
const EXPIRIES_BEFORE_UNPAGED: u32 = 2;

/// A note of a watch besides its deltas, for logs and metrics. Notes contain no content of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchNote {
    /// The whole kind was listed.
    Listed {
        /// Number of listed objects.
        objects: usize,
    },
    /// A watch was opened and stayed open for a second.
    Opened,
    /// An object cannot be parsed.
    Undecodable {
        /// Key of the object, if at least its metadata can be parsed.
        key: Option<ObjectKey>,
        /// The error, without texts of the object.
        error: String,
    },
    /// An attempt failed, and the watch tries again.
    Retrying {
        /// Pause before the next attempt.
        after: Duration,
        /// The error of the failed attempt.
        error: String,
        /// Whether the API server does not serve the kind in this version: it answered 404.
        kind_is_missing: bool,
        /// Whether the API server did what was asked as far as it could: it ended the stream, or no
        /// longer has the events.
        server_works: bool,
        /// Whether the API server answered, be it with an error. A status of 500 or more may come
        /// from a load balancer in front of it.
        server_answers: bool,
    },
}

/// The duration of a finished list or stream, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchTiming {
    /// A list of the whole kind.
    List {
        /// Number of listed objects.
        objects: usize,
        /// Time from the first request to the end of the last answer.
        took: Duration,
    },
    /// An open stream.
    Stream {
        /// Number of events, without bookmarks.
        events: u64,
        /// Time from the request to the end of the stream.
        lasted: Duration,
    },
}

impl WatchTiming {
    /// Whether the stream ended so soon that the next one waits for a pause.
    pub fn is_short(self) -> bool {
        matches!(self, Self::Stream { lasted, .. } if lasted < SHORT_STREAM)
    }
}

/// Selectors and observer of a watch.
#[derive(Clone, Default)]
pub struct WatchOptions {
    /// Restricts the watch by labels.
    pub label_selector: Option<String>,
    /// Restricts the watch by fields.
    pub field_selector: Option<String>,
    /// Seed of the jitter. Watches of several kinds may share one seed.
    pub seed: u64,
    /// The wall clock, which shows that the machine was suspended.
    pub clock: Option<SharedClock>,
    /// Signal after which the watch lists the kind again:
    /// [`Store::relist_signal`](crate::Store::relist_signal).
    pub relist: Option<Arc<Notify>>,
    /// Receives a note of each list, reconnect and unreadable object.
    pub observer: Option<Arc<dyn Fn(WatchNote) + Send + Sync>>,
    /// Receives the duration of each list and of each stream that was opened.
    pub timer: Option<Arc<dyn Fn(WatchTiming) + Send + Sync>>,
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

/// Permanent error of a watch: a retry would fail again.
#[derive(Debug, thiserror::Error)]
#[error("watch of {url} failed for good: the request is invalid; check its label and field selectors")]
pub struct WatchFatal {
    /// The path of the watched kind.
    pub url: String,
    /// The error of the API server or of the client.
    pub source: Box<kube::Error>,
}

/// Lists and watches one kind, and passes each delta to `sink` in order. The first delta is a
/// relist. Runs until the future is dropped or aborted, and returns only a permanent error.
pub async fn run_watch<K, F>(
    api: Api<K>,
    options: WatchOptions,
    parse: impl Fn(K) -> F + Send,
    sink: impl FnMut(Delta<F>) + Send,
) -> WatchFatal
where
    K: Resource + DeserializeOwned,
    F: Send + Sync,
{
    let url = api.resource_url().to_owned();
    let reader = Reader { parse, kind: std::marker::PhantomData };
    let mut objects = ObjectsOf { reader, listed: Vec::new(), sink };
    Watch::new(url, api.into_client(), options).run(&mut objects).await
}

struct Watch {
    request: kube::core::Request,
    client: Client,
    options: WatchOptions,
    jitter: Jitter,
    /// When the API server last sent data, on any stream.
    heard: Moment,
}

/// The position of the watch in the history of the kind.
enum Position {
    /// The kind must be listed: the position is unknown or not reliable.
    Unlisted,
    /// As [`Position::At`], before an outage. Etcd may have been restored in the meantime.
    Before(u64),
    /// All events up to this resourceVersion were passed to the sink.
    At(u64),
}

impl Position {
    /// The server was unreachable, or answered with an error.
    fn after_outage(self) -> Self {
        match self {
            Self::At(rv) => Self::Before(rv),
            position => position,
        }
    }
}

/// The end of one list or stream.
enum Ended {
    /// The server closed the stream.
    Closed,
    /// The server no longer has the events since our resourceVersion.
    Expired,
    /// Events since our resourceVersion may be missing.
    Doubted(&'static str),
    /// The server answered with an error.
    Refused(String),
    /// The server answered that the client may not do this, or not now: a status of 4xx.
    Denied(String),
    /// The server answered that it does not serve the kind.
    Missing(String),
    /// The server was unreachable, the connection broke, or the stream stalled.
    Broken(String),
    /// The request itself is invalid.
    Fatal(Box<kube::Error>),
}

/// An answered watch request.
struct Open<S> {
    /// The lines of the watch.
    answer: S,
    /// A watch that sends no data for this long counts as broken.
    silence: Duration,
}

/// An event that was passed on.
struct Passed {
    resource_version: u64,
    is_bookmark: bool,
}

impl Watch {
    fn new(url: String, client: Client, options: WatchOptions) -> Self {
        let jitter = Jitter::new(options.seed ^ hash_of_parts(&[&url]));
        let heard = Moment::now(options.clock.as_ref());
        Self { request: kube::core::Request::new(url), client, options, jitter, heard }
    }

    async fn run(&mut self, objects: &mut dyn WatchedObjects) -> WatchFatal {
        let mut position = Position::Unlisted;
        // Failures since the last stream that lasted, and the error answers in a row among them.
        let (mut failures, mut refusals) = (0_u32, 0_u32);
        let mut listed: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let (was_streaming, before) = match position {
                Position::Unlisted | Position::Before(_) => (false, 0),
                Position::At(rv) => (true, rv),
            };
            let ended = match position {
                Position::Unlisted => match self.list(objects).await {
                    Ok(list) => {
                        position = Position::At(list.resource_version);
                        listed = Some(Instant::now());
                        self.heard = Moment::now(self.options.clock.as_ref());
                        let number = objects.listed();
                        self.note(|| WatchNote::Listed { objects: number });
                        self.time(WatchTiming::List { objects: number, took: started.elapsed() });
                        objects.pass_list(list);
                        continue;
                    }
                    Err(ended) => ended,
                },
                Position::Before(rv) => match self.newest_version().await {
                    Ok(newest) => {
                        position = if newest < rv { Position::Unlisted } else { Position::At(rv) };
                        continue;
                    }
                    Err(ended) => ended,
                },
                Position::At(ref mut rv) => {
                    let relist = self.options.relist.clone();
                    tokio::select! {
                        biased;
                        () = notified(relist) => Ended::Doubted("the store asked for a list"),
                        ended = self.stream(rv, objects) => ended,
                    }
                }
            };
            let lived = started.elapsed();
            if was_streaming && LASTING_STREAM <= lived {
                (failures, refusals) = (0, 0);
            }
            let progressed = matches!(position, Position::At(rv) if before < rv);
            let mut cap = BACKOFF.cap;
            let kind_is_missing = matches!(ended, Ended::Missing(_));
            let server_works = matches!(ended, Ended::Closed | Ended::Expired | Ended::Doubted(_));
            let server_answers = server_works || matches!(ended, Ended::Denied(_) | Ended::Missing(_));
            if !server_works {
                position = position.after_outage();
            }
            let reason = match ended {
                Ended::Fatal(source) => return WatchFatal { url: self.request.url_path.clone(), source },
                Ended::Closed if SHORT_STREAM <= lived => {
                    refusals = 0;
                    continue;
                }
                Ended::Closed => "the server closed the stream at once".to_owned(),
                Ended::Expired | Ended::Doubted(_) => {
                    position = Position::Unlisted;
                    // The server usually no longer has the events after a long pause or an outage.
                    // Then list at once, but not repeatedly.
                    if listed.is_none_or(|at| LASTING_STREAM <= at.elapsed()) {
                        failures = 1;
                        continue;
                    }
                    match ended {
                        Ended::Doubted(reason) => reason.to_owned(),
                        _ => "the resourceVersion is too old".to_owned(),
                    }
                }
                Ended::Refused(reason) | Ended::Denied(reason) | Ended::Missing(reason) => {
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
            self.note(|| WatchNote::Retrying {
                after,
                error: reason,
                kind_is_missing,
                server_works,
                server_answers,
            });
            tokio::time::sleep(after).await;
        }
    }

    /// Lists the whole kind with quorum reads, page by page.
    async fn list(&self, objects: &mut dyn WatchedObjects) -> Result<Listed, Ended> {
        let mut expiries = 0;
        loop {
            let limit = (expiries < EXPIRIES_BEFORE_UNPAGED).then_some(PAGE_SIZE);
            let ended = match self.list_pages(limit, objects).await {
                Ok(list) => return Ok(list),
                Err(ended) => ended,
            };
            objects.drop_list();
            match ended {
                Ended::Expired if limit.is_some() => expiries += 1,
                // Without pages, no token can expire.
                Ended::Expired => return Err(Ended::Refused("the list has expired (410)".to_owned())),
                ended => return Err(ended),
            }
        }
    }

    async fn list_page(&self, params: &ListParams) -> Result<String, Ended> {
        let mut request = self.request.list(params).map_err(never_sent)?;
        request.extensions_mut().insert("list");
        self.client.request_text(request).await.map_err(ended_by)
    }

    async fn list_pages(
        &self,
        limit: Option<u32>,
        objects: &mut dyn WatchedObjects,
    ) -> Result<Listed, Ended> {
        let mut whole: Option<Listed> = None;
        let sent = Instant::now();
        let mut params = ListParams {
            label_selector: self.options.label_selector.clone(),
            field_selector: self.options.field_selector.clone(),
            limit,
            ..ListParams::default()
        };
        loop {
            let text = self.list_page(&params).await?;
            let (page, resource_version) = page_of(&text)?;
            let list = whole.get_or_insert(Listed { unreadable: Vec::new(), resource_version, sent });
            // All pages have one resourceVersion. If a server returns different ones, the oldest
            // version misses no event.
            list.resource_version = list.resource_version.min(resource_version);
            for raw in page.items.iter().flatten() {
                if let Err(unparsed) = objects.list(raw) {
                    let place = unparsed.place.clone();
                    list.unreadable.extend(place.map(|(key, _, object)| (key, object)));
                    self.note(|| unparsed.into_note());
                }
            }
            params.continue_token = page.next_page().map(str::to_owned);
            if params.continue_token.is_none()
                && let Some(list) = whole.take()
            {
                return Ok(list);
            }
        }
    }

    /// Reads the resourceVersion of the kind with a quorum read of one object.
    async fn newest_version(&self) -> Result<u64, Ended> {
        let params = ListParams {
            label_selector: self.options.label_selector.clone(),
            field_selector: self.options.field_selector.clone(),
            limit: Some(1),
            ..ListParams::default()
        };
        let text = self.list_page(&params).await?;
        page_of(&text).map(|(_, resource_version)| resource_version)
    }

    /// Watches from `rv` until the stream ends. Advances `rv` with each delta.
    async fn stream(&mut self, rv: &mut u64, objects: &mut dyn WatchedObjects) -> Ended {
        let server_timeout = self.jitter.stretch(SERVER_TIMEOUT, SERVER_TIMEOUT_SPREAD);
        let asked = Instant::now();
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
            Err(_) => return Ended::Broken("the server did not answer the watch request in time".to_owned()),
            Ok(Err(error)) => return ended_by(error),
            Ok(Ok(answer)) => answer,
        };
        let open = Open { answer, silence: server_timeout + IDLE_MARGIN };
        let mut events = 0;
        let ended = self.follow_open(open, rv, objects, &mut events).await;
        self.time(WatchTiming::Stream { events, lasted: asked.elapsed() });
        ended
    }

    /// Follows a stream, and says when it has stayed open.
    async fn follow_open(
        &mut self,
        open: Open<impl AsyncBufRead>,
        rv: &mut u64,
        objects: &mut dyn WatchedObjects,
        events: &mut u64,
    ) -> Ended {
        let opened = self.options.observer.clone();
        let mut follow = std::pin::pin!(self.follow(open, rv, objects, events));
        // A server that closes each stream at once answers each request, but shows nothing. So only
        // time proves that a watch is open. An event proves it too, but a kind may have none for
        // hours, and not every server sends bookmarks.
        if let Ok(ended) = timeout(SHORT_STREAM, &mut follow).await {
            return ended;
        }
        if let Some(observer) = opened {
            observer(WatchNote::Opened);
        }
        follow.await
    }

    /// Passes the events of an open watch on until the stream ends, and counts the events that are
    /// not bookmarks.
    async fn follow(
        &mut self,
        open: Open<impl AsyncBufRead>,
        rv: &mut u64,
        objects: &mut dyn WatchedObjects,
        events: &mut u64,
    ) -> Ended {
        let mut answer = std::pin::pin!(open.answer);
        let mut line = Vec::new();
        loop {
            line.clear();
            match timeout(open.silence, read_line(&mut answer, &mut line)).await {
                Err(_) => {
                    return Ended::Broken(
                        "no data arrived, and the server did not end the watch in time".to_owned(),
                    );
                }
                Ok(Err(error)) => return Ended::Broken(error.to_string()),
                Ok(Ok(Line::End)) => return Ended::Closed,
                Ok(Ok(Line::Whole)) => {}
            }
            // While the process was suspended, or the connection was stuck, the line may have
            // waited in a buffer. After a restore, it may be the first event past our
            // resourceVersion. A list shows the present state.
            let now = Moment::now(self.options.clock.as_ref());
            if FRESH_FOR < now.since(&self.heard) {
                return Ended::Doubted("data arrived after a long silence");
            }
            self.heard = now;
            match self.event(&line, objects) {
                Ok(Some(Passed { resource_version, is_bookmark })) => {
                    *rv = resource_version;
                    *events += u64::from(!is_bookmark);
                }
                Ok(None) => {}
                Err(ended) => return ended,
            }
        }
    }

    /// Parses one line of the stream, and passes it on. Returns nothing if there is nothing to pass
    /// on.
    fn event(&self, line: &[u8], objects: &mut dyn WatchedObjects) -> Result<Option<Passed>, Ended> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let event: Event<'_> = serde_json::from_slice(line).map_err(|error| {
            Ended::Broken(format!(
                "a line of the watch is not an event: {}",
                without_quotes(&error.to_string())
            ))
        })?;
        let passed = match event.kind {
            "ADDED" | "MODIFIED" => match objects.upsert(event.object) {
                Ok(resource_version) => Some(resource_version),
                Err(unparsed) => {
                    let place = unparsed.place.clone();
                    self.note(|| unparsed.into_note());
                    place.map(|(key, resource_version, object)| {
                        objects.unreadable(key, resource_version, object);
                        resource_version
                    })
                }
            },
            // The metadata identifies the deleted object, so the rest need not be readable.
            "DELETED" => {
                metadata_of(event.object).as_ref().and_then(identity).map(|(key, uid, resource_version)| {
                    objects.delete(key, uid, resource_version);
                    resource_version
                })
            }
            "BOOKMARK" => metadata_of(event.object)
                .and_then(|metadata| parse_rv(metadata.resource_version.as_deref()))
                .inspect(|resource_version| objects.bookmark(*resource_version)),
            "ERROR" => return Err(ended_by_error_event(event.object)),
            _ => None,
        };
        let is_bookmark = event.kind == "BOOKMARK";
        Ok(passed.map(|resource_version| Passed { resource_version, is_bookmark }))
    }

    fn time(&self, timing: WatchTiming) {
        if let Some(timer) = &self.options.timer {
            timer(timing);
        }
    }

    fn note(&self, note: impl FnOnce() -> WatchNote) {
        let Some(observer) = &self.options.observer else { return };
        observer(note());
    }
}

/// Waits for the signal; without a signal, until the caller drops the future.
async fn notified(signal: Option<Arc<Notify>>) {
    match signal {
        Some(signal) => signal.notified().await,
        None => std::future::pending().await,
    }
}

/// Parses a page of a list, and its resourceVersion.
fn page_of(text: &str) -> Result<(Page<'_>, u64), Ended> {
    let page: Page<'_> = serde_json::from_str(text).map_err(|error| {
        Ended::Refused(format!("the answer is not a list: {}", without_quotes(&error.to_string())))
    })?;
    let resource_version = page.resource_version().map_err(Ended::Refused)?;
    Ok((page, resource_version))
}

fn never_sent(error: kube::core::request::Error) -> Ended {
    Ended::Fatal(Box::new(kube::Error::BuildRequest(error)))
}

fn ended_by(error: kube::Error) -> Ended {
    match error {
        kube::Error::Api(status) if is_expired(&status) => Ended::Expired,
        kube::Error::Api(status) if status.code == 400 => Ended::Fatal(Box::new(kube::Error::Api(status))),
        // A status without a code may still have a reason.
        kube::Error::Api(status) if status.code == 404 || status.is_not_found() => {
            Ended::Missing(status.to_string())
        }
        kube::Error::Api(status) if (400..500).contains(&status.code) => Ended::Denied(status.to_string()),
        kube::Error::Api(status) => Ended::Refused(status.to_string()),
        error => Ended::Broken(error.to_string()),
    }
}

fn ended_by_error_event(object: &RawValue) -> Ended {
    match serde_json::from_str::<Status>(object.get()) {
        Ok(status) if is_expired(&status) => Ended::Expired,
        Ok(status) => Ended::Refused(status.to_string()),
        Err(_) => Ended::Refused("the watch sent an error event without a status".to_owned()),
    }
}

fn is_expired(status: &Status) -> bool {
    status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone")
}

#[cfg(test)]
mod tests;
