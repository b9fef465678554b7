//! WATCH: an optional initial state, then events in commit order, bookmarks, and an end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::log::event::{Event, EventKind, watch_line};
use crate::schema::conversion::is_shown_as_stored;
use crate::schema::resource::Served;
use crate::schema::shape::{Shape, render};
use crate::schema::table::{self, Header, Include};
use crate::server::core::Core;
use crate::server::replica::ReplicaView;
use crate::server::response::Body;
use crate::server::verbs::Call;
use crate::server::verbs::get::{parse_revision, wait_for};
use crate::server::verbs::list::{interest, refuse_options, selector};
use crate::store::mvcc::{Compacted, Store};
use crate::store::selector::Selector;
use crate::store::watch::Feed;
use crate::values::clock::Clock;
use crate::values::object::{self, Object, to_bytes};
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Maximum duration of a watch. Beyond it, the end time would overflow.
const MAX_WATCH: Duration = Duration::from_secs(365 * 24 * 3600);

/// Start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The current state as ADDED events, then later events.
    State,
    /// Like `State`, with a bookmark after the initial events.
    StateAndMark,
    /// The events after this revision.
    After(u64),
}

pub(crate) async fn watch(call: &Call) -> ApiResult<Body> {
    let selector = selector(call)?;
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let (start, at_least) = start(call)?;
    let timeout = match call.query.number("timeoutSeconds")? {
        Some(seconds) if 0 < seconds => Duration::from_secs(seconds.unsigned_abs()).min(MAX_WATCH),
        Some(_) | None => call.core.config.watch_timeout,
    };
    if let Some(revision) = at_least {
        wait_for(&call.core, revision).await?;
    }
    let interest = interest(call, &selector);
    let store = &call.core.store;
    let collection = &call.served.resource.collection;
    // A lagging replica does not know newer events: its watches are as late as its state.
    let view = call.view.clone();
    let stale_state_allowed = call.query.text("resourceVersion") == "0";
    let mut lines = LineRenderer {
        served: call.served.clone(),
        shape: call.shape,
        clock: call.core.config.clock.clone(),
        header: Header::Shown,
    };
    let mut first: VecDeque<Bytes> = VecDeque::new();
    let from = match start {
        Start::After(revision) => revision,
        Start::State | Start::StateAndMark => {
            let lagging = view.as_ref().filter(|_| stale_state_allowed).and_then(ReplicaView::limit);
            let at = lagging.map(|at| at.max(store.compacted()));
            match store.slice_covered(collection, &interest, None, at) {
                Err(Compacted { oldest }) => return Ok(ended(too_old(0, oldest))),
                Ok(slice) => {
                    let wanted = slice.items.iter().filter(|(_, object)| selector.selects(object));
                    for (_, object) in wanted {
                        first.push_back(lines.event(EventKind::Added, object));
                    }
                    if start == Start::StateAndMark && bookmarks {
                        first.push_back(lines.bookmark(slice.revision, Mark::InitialEventsEnd));
                    }
                    slice.revision
                }
            }
        }
    };
    let feed = match store.watch(collection, interest, from) {
        Ok(feed) => feed,
        Err(Compacted { oldest }) => return Ok(ended(too_old(from, oldest))),
    };
    let now = Instant::now();
    let stream = Watch {
        open: Open { core: call.core.clone(), collection: collection.clone(), id: feed.id() },
        feed,
        first,
        lines,
        selector,
        view,
        after: from,
        ends: now + timeout,
        bookmark_every: call.core.config.bookmark_interval.filter(|_| bookmarks),
        next_bookmark: now,
    };
    Ok(stream.into_body())
}

/// Returns the watch's start, and the revision that the store must reach first.
fn start(call: &Call) -> ApiResult<(Start, Option<u64>)> {
    let query = &call.query;
    let (revision, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    let asked = query.switch("sendInitialEvents");
    let mut errors = FieldErrors::default();
    if asked.is_none() {
        if !matching.is_empty() {
            errors.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
    } else if matching != "NotOlderThan" {
        errors.forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    if !matching.is_empty() && matching != "NotOlderThan" {
        errors.not_supported("resourceVersionMatch", json!(matching), &["NotOlderThan".to_owned()]);
    }
    refuse_options(&errors)?;
    if query.has("continue") {
        return Err(ApiError::bad_request("continue is not supported for watch"));
    }
    let parsed = match revision {
        "" | "0" => None,
        text => Some(parse_revision(text)?),
    };
    let with_state = asked.unwrap_or_default();
    Ok(match (asked.is_none(), with_state, parsed) {
        (true, _, None) => (Start::State, None),
        (true, _, Some(revision)) => (Start::After(revision), None),
        (false, true, revision) => (Start::StateAndMark, revision),
        (false, false, None) => (Start::After(call.core.store.revision()), None),
        (false, false, Some(revision)) => (Start::After(revision), None),
    })
}

fn too_old(asked: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}

/// Creates a watch that contains only an error, with HTTP 200. A watcher that gets a 410 as HTTP
/// code retries without end.
fn ended(error: ApiError) -> Body {
    let line = watch_line("ERROR", &to_bytes(&error.status()));
    http_body_util::Full::new(line).map_err(|never| match never {}).boxed_unsync()
}

/// Kind of a bookmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Progress,
    InitialEventsEnd,
}

/// Renders events for one watcher.
struct LineRenderer {
    served: Served,
    shape: Shape,
    clock: Arc<dyn Clock>,
    /// Of a watcher's tables, only the first has column definitions.
    header: Header,
}

impl LineRenderer {
    fn event(&mut self, kind: EventKind, object: &Object) -> Bytes {
        watch_line(kind.as_str(), &self.shown(object))
    }

    /// Like `event`, with the line that all plain watchers of an event share.
    fn shared_event(&mut self, kind: EventKind, event: &Event) -> Bytes {
        if self.shape == Shape::Full && is_shown_as_stored(&self.served) {
            return event.line(kind);
        }
        self.event(kind, &event.object())
    }

    fn shown(&mut self, object: &Object) -> Bytes {
        match self.shape {
            Shape::Table(include) => to_bytes(&self.table(&object.whole(), include)),
            Shape::Full | Shape::Metadata => render(object, &self.served, self.shape, self.clock.now()),
        }
    }

    fn table(&mut self, object: &Value, include: Include) -> Value {
        let header = std::mem::replace(&mut self.header, Header::Omitted);
        table::of_one(object, &self.served, header, include, self.clock.now())
    }

    fn bookmark(&mut self, revision: u64, mark: Mark) -> Bytes {
        let (api_version, kind) = match self.shape {
            Shape::Full | Shape::Table(_) => (self.served.api_version(), self.served.resource.kind.clone()),
            Shape::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned()),
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": revision.to_string()}});
        if mark == Mark::InitialEventsEnd {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        if let Shape::Table(include) = self.shape {
            object = self.table(&object, include);
        }
        watch_line("BOOKMARK", &to_bytes(&object))
    }
}

/// Registration in the store. Dropping it always unregisters the watch.
struct Open {
    core: Arc<Core>,
    collection: Arc<str>,
    id: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.core.store.unwatch(&self.collection, self.id);
    }
}

struct Watch {
    open: Open,
    feed: Feed,
    first: VecDeque<Bytes>,
    lines: LineRenderer,
    selector: Selector,
    /// The lagging replica that serves this watch.
    view: Option<ReplicaView>,
    /// Revision up to which everything has been delivered.
    after: u64,
    ends: Instant,
    bookmark_every: Option<Duration>,
    next_bookmark: Instant,
}

impl Watch {
    fn into_body(mut self) -> Body {
        if let Some(every) = self.bookmark_every {
            self.next_bookmark = Instant::now() + every;
        }
        let frames = stream::unfold(self, |mut watch| async move {
            let line = watch.next_line().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), watch))
        });
        StreamBody::new(frames).map_err(|never| match never {}).boxed_unsync()
    }

    /// Returns the next line, or `None` at the end of the stream.
    async fn next_line(&mut self) -> Option<Bytes> {
        if let Some(line) = self.first.pop_front() {
            return Some(line);
        }
        loop {
            // A watch ends on time even if events are pending. The client resumes it.
            if self.ends <= Instant::now() {
                return None;
            }
            let wake = self.ends.min(self.bookmark_every.map_or(self.ends, |_| self.next_bookmark));
            // Events take precedence over timers, so that the order at one instant is
            // deterministic.
            let event = tokio::select! {
                biased;
                event = self.feed.next() => event?,
                () = tokio::time::sleep_until(wake) => match self.progress() {
                    Some(line) => return Some(line),
                    None => continue,
                },
            };
            // Its start may be a revision that the server has not reached, for example after a
            // restore. Until then, kube-apiserver sends nothing.
            if event.revision <= self.after {
                continue;
            }
            if let Some(view) = &self.view {
                let until = self.ends;
                let seen = tokio::time::timeout_at(until, view.reaches(event.revision)).await;
                if seen.is_err() {
                    return None;
                }
            }
            self.after = event.revision;
            if let Some(line) = self.line(&event) {
                return Some(line);
            }
        }
    }

    /// Returns a bookmark if everything so far has been delivered.
    fn progress(&mut self) -> Option<Bytes> {
        let every = self.bookmark_every?;
        if Instant::now() < self.next_bookmark {
            return None;
        }
        self.next_bookmark = Instant::now() + every;
        let store: &Store = &self.open.core.store;
        let revision = store.revision_if_drained(&self.feed)?;
        if self.view.as_ref().and_then(ReplicaView::limit).is_some() {
            return None;
        }
        (self.after <= revision).then(|| self.lines.bookmark(revision, Mark::Progress))
    }

    /// Renders an event for this watch: entering and leaving its selector are ADDED and DELETED.
    fn line(&mut self, event: &Event) -> Option<Bytes> {
        let matched = event.old().is_some_and(|old| self.selector.selects(&old));
        let matches = !event.deleted && self.selector.selects(&event.object());
        let kind = match (matched, matches) {
            (false, false) => return None,
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
        };
        if kind == EventKind::Deleted && !event.deleted {
            // The object left the selector. It is shown as it last matched, with the revision at
            // which it left.
            let left = event.old().map(|old| with_revision(&old, event.revision))?;
            return Some(self.lines.event(kind, &left));
        }
        Some(self.lines.shared_event(kind, event))
    }
}

fn with_revision(object: &Object, revision: u64) -> Arc<Object> {
    let mut value = object.whole();
    object::set_meta(&mut value, "resourceVersion", Some(json!(revision.to_string())));
    Object::new(value, revision)
}
