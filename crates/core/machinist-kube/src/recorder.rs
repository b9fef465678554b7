//! Records Kubernetes Events, which `kubectl describe` shows.
//!
//! [`Recorder::record`] is immediate and never fails; a task sends the Events in the background.
//! The same message with the same reason on the same object is one Event with a growing count. Of
//! ten messages with one reason on one object, each has its own Event; further ones share one, as
//! in client-go. The task sends an Event again at growing intervals, so that a loop cannot flood
//! the API server. If there are too many Events, the recorder drops new ones. So no logic may
//! depend on an Event. Events contain no secrets.
//!
//! The name of an Event contains a hash of the object's UID, the reason, the first message and the
//! second of the first occurrence. So the API server answers a repeated POST with `AlreadyExists`
//! and stores no second Event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::SharedClock;
use crate::hash_of_parts::hash_of_parts;
use crate::lease::Leadership;
use crate::limiter::Limiter;
use crate::outcome::WriteOutcome;

/// Maximum number of Events in memory. Beyond that, the recorder drops new Events. Each Node of the
/// largest clusters that Kubernetes supports, 5,000, can have an Event at the same time.
const MAX_SERIES: usize = 8192;

/// A series without an occurrence for this long ends. The next occurrence starts a new Event.
const SERIES_ENDS_AFTER: Duration = Duration::from_secs(600);

/// Maximum number of messages with one reason on one object that have Events of their own, as in
/// client-go.
const MAX_MESSAGES: usize = 10;
/// Begin of the message of the Event that further messages share, as in client-go.
const COMBINED: &str = "(combined from similar events): ";

/// The first repetition is sent after this time. The time doubles with each further repetition.
const FIRST_REPEAT: Duration = Duration::from_secs(10);
const SLOWEST_REPEAT: Duration = Duration::from_secs(300);

/// Rate limit of requests for Events, for the whole process.
const EVENTS_PER_SECOND: f64 = 10.0;
const EVENT_BURST: u32 = 50;

/// The API server rejects longer messages and names.
const MAX_MESSAGE_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 253;

/// The `type` field of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// For information.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventType {
    /// The value of the `type` field in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Counters of a recorder, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderMetrics {
    /// Number of calls of [`Recorder::record`].
    pub recorded: u64,
    /// Number of requests that succeeded.
    pub sent: u64,
    /// Number of Events that were dropped because there were too many.
    pub dropped: u64,
    /// Number of requests that failed.
    pub failed: u64,
}

/// Records Events. A clone is another handle to the same recorder.
///
/// ```
/// use k8s_openapi::api::core::v1::ObjectReference;
/// use machinist_kube::recorder::{EventType, Recorder};
/// use machinist_kube::SystemClock;
///
/// let recorder = Recorder::new("machine-controller", "host-1", SystemClock::shared());
/// let machine = ObjectReference {
///     api_version: Some("machine.sapcloud.io/v1alpha1".to_owned()),
///     kind: Some("Machine".to_owned()),
///     namespace: Some("default".to_owned()),
///     name: Some("workers-1".to_owned()),
///     uid: Some("uid-1".to_owned()),
///     ..ObjectReference::default()
/// };
/// recorder.record(&machine, EventType::Normal, "MachineJoined", "The Node is ready");
/// // Only `run` sends Events, so nothing here waits for an API server.
/// assert_eq!((recorder.metrics().recorded, recorder.metrics().sent), (1, 0));
/// ```
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    component: String,
    instance: String,
    clock: SharedClock,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    series: BTreeMap<SeriesKey, Series>,
    /// Time at which each series has an Event to send, or ends.
    due: BTreeSet<(Instant, SeriesKey)>,
    metrics: RecorderMetrics,
}

/// UID of the object, reason of the Event, and hash of the message; 0 for further messages.
type SeriesKey = (String, String, u64);

/// A series outlives its Events by minutes, so it holds only what an Event is made from: an
/// [`Event`] takes more than a kilobyte.
struct Series {
    /// The source of the Events; if absent, the source of the recorder.
    component: Option<&'static str>,
    object: ObjectReference,
    kind: EventType,
    message: String,
    first_seen: Timestamp,
    last_seen: Timestamp,
    count: i32,
    /// The part of `count` that was sent to the server.
    sent_count: i32,
    repeat_after: Duration,
    /// The Event is not sent again before this time.
    next_send: Instant,
    due: Instant,
    last_recorded: Instant,
}

impl Recorder {
    /// Creates a recorder. Its Events name `component` as their source and `instance` (for example
    /// a pod) as the reporting instance. The recorder sends no Event before [`Recorder::run`] runs.
    pub fn new(component: impl Into<String>, instance: impl Into<String>, clock: SharedClock) -> Self {
        let shared = Shared {
            component: component.into(),
            instance: instance.into(),
            clock,
            state: Mutex::default(),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records one occurrence of an Event on an object. The `uid`, `name`, `kind` and `apiVersion`
    /// of the object should be set.
    pub fn record(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) {
        self.record_series(None, object, kind, reason, message);
    }

    /// Records an Event like [`Recorder::record`] whose source is another component: other programs
    /// name one of their parts, and users select Events by it.
    pub fn record_by(
        &self,
        component: &'static str,
        object: &ObjectReference,
        kind: EventType,
        reason: &str,
        message: &str,
    ) {
        self.record_series(Some(component), object, kind, reason, message);
    }

    fn record_series(
        &self,
        component: Option<&'static str>,
        object: &ObjectReference,
        kind: EventType,
        reason: &str,
        message: &str,
    ) {
        let mut key =
            (object.uid.clone().unwrap_or_default(), reason.to_owned(), hash_of_parts(&[message]).max(1));
        let (now, wall) = (Instant::now(), self.shared.clock.now());
        let mut state = self.lock();
        state.metrics.recorded += 1;
        let combined;
        let message = if state.has_room_for(&key) {
            message
        } else {
            key.2 = 0;
            combined = format!("{COMBINED}{message}");
            &combined
        };
        let goes_on =
            state.series.get(&key).is_some_and(|series| now < series.last_recorded + SERIES_ENDS_AFTER);
        let is_full = MAX_SERIES <= state.series.len() && !state.series.contains_key(&key);
        if goes_on {
            state.repeat(&key, kind, message, wall, now);
        } else if is_full {
            state.metrics.dropped += 1;
        } else {
            state.begin(key, Series { component, ..Series::new(object, kind, message, wall, now) });
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Sends the recorded Events. Runs until the future is dropped or aborted. With a `leadership`,
    /// each request passes the same check as other changes of the process. So a process that was
    /// suspended and has lost its Lease sends no Event.
    pub async fn run(self, client: Client, leadership: Option<Leadership>) {
        let limiter =
            Limiter::new(EVENTS_PER_SECOND, EVENT_BURST).expect("the rate of events is a positive number");
        loop {
            let changed = self.shared.changed.notified();
            match self.take_due() {
                Next::Send(occurrence, event) => {
                    limiter.acquire().await;
                    let fence = Fence { client: &client, leadership: leadership.as_ref() };
                    let outcome = fence.deliver(occurrence, &event).await;
                    self.lock().count_outcome(&event, &outcome);
                }
                Next::WaitUntil(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                Next::WaitForEvents => changed.await,
            }
        }
    }

    /// The current counters.
    pub fn metrics(&self) -> RecorderMetrics {
        self.lock().metrics
    }

    fn take_due(&self) -> Next {
        let now = Instant::now();
        let mut state = self.lock();
        while let Some((at, key)) = state.due.first().cloned() {
            if now < at {
                return Next::WaitUntil(at);
            }
            if let Some((occurrence, event)) = state.visit(&self.shared, &key, now) {
                return Next::Send(occurrence, Box::new(event));
            }
        }
        Next::WaitForEvents
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("component", &self.shared.component)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

enum Next {
    Send(Occurrence, Box<Event>),
    WaitUntil(Instant),
    WaitForEvents,
}

#[derive(Clone, Copy)]
enum Occurrence {
    First,
    Later,
}

impl Shared {
    fn event(
        &self,
        object: &ObjectReference,
        kind: EventType,
        (uid, reason, message): &SeriesKey,
        text: &str,
        first_seen: Timestamp,
    ) -> Event {
        let hash = hash_of_parts(&[uid, reason, &message.to_string(), &first_seen.as_second().to_string()]);
        let hash = format!(".{hash:016x}");
        let object_name = object.name.as_deref().unwrap_or_default();
        let name = format!("{}{hash}", shortened(object_name, MAX_NAME_BYTES - hash.len()));
        // The API server expects the Events of cluster-scoped objects in this namespace.
        let namespace = object.namespace.clone().filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            involved_object: object.clone(),
            type_: Some(kind.as_str().to_owned()),
            reason: Some(reason.clone()),
            message: Some(text.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

impl Series {
    fn new(object: &ObjectReference, kind: EventType, message: &str, wall: Timestamp, now: Instant) -> Self {
        Self {
            component: None,
            object: object.clone(),
            kind,
            message: shortened(message, MAX_MESSAGE_BYTES).to_owned(),
            first_seen: wall,
            last_seen: wall,
            count: 1,
            sent_count: 0,
            repeat_after: FIRST_REPEAT,
            next_send: now,
            due: now,
            last_recorded: now,
        }
    }

    /// The Event with its current times and count.
    fn current(&self, shared: &Shared, key: &SeriesKey) -> Event {
        let event = shared.event(&self.object, self.kind, key, &self.message, self.first_seen);
        let component = self.component.unwrap_or(&shared.component).to_owned();
        Event {
            first_timestamp: Some(Time(self.first_seen)),
            last_timestamp: Some(Time(self.last_seen)),
            count: Some(self.count),
            source: Some(EventSource { component: Some(component.clone()), host: None }),
            reporting_component: Some(component),
            ..event
        }
    }
}

impl State {
    /// Whether the message of the key may have an Event of its own.
    fn has_room_for(&self, key: &SeriesKey) -> bool {
        let first = || (key.0.clone(), key.1.clone(), 1);
        let is_similar = |other: &SeriesKey| (&other.0, &other.1) == (&key.0, &key.1);
        let similar = || self.series.range(first()..).take_while(|(other, _)| is_similar(other)).count();
        self.series.contains_key(key) || similar() < MAX_MESSAGES
    }

    fn begin(&mut self, key: SeriesKey, series: Series) {
        let due = series.due;
        if let Some(ended) = self.series.insert(key.clone(), series) {
            self.due.remove(&(ended.due, key.clone()));
        }
        self.due.insert((due, key));
    }

    fn repeat(&mut self, key: &SeriesKey, kind: EventType, message: &str, wall: Timestamp, now: Instant) {
        let Some(series) = self.series.get_mut(key) else { return };
        series.count = series.count.saturating_add(1);
        series.last_seen = wall;
        series.last_recorded = now;
        shortened(message, MAX_MESSAGE_BYTES).clone_into(&mut series.message);
        series.kind = kind;
        let at = series.next_send.max(now);
        self.reschedule(key, at);
    }

    /// Handles a due series. Returns the Event if it has new occurrences; otherwise reschedules or
    /// ends the series.
    fn visit(&mut self, shared: &Shared, key: &SeriesKey, now: Instant) -> Option<(Occurrence, Event)> {
        let series = self.series.get_mut(key)?;
        let ends_at = series.last_recorded + SERIES_ENDS_AFTER;
        let has_news = series.sent_count < series.count;
        if !has_news && ends_at <= now {
            self.due.remove(&(series.due, key.clone()));
            self.series.remove(key);
            return None;
        }
        let sent = has_news.then(|| {
            let occurrence = if series.sent_count == 0 { Occurrence::First } else { Occurrence::Later };
            series.next_send = now + series.repeat_after;
            series.repeat_after = (series.repeat_after * 2).min(SLOWEST_REPEAT);
            // Counts as sent from now on: a failed Event does not justify a queue of its own.
            series.sent_count = series.count;
            (occurrence, series.current(shared, key))
        });
        self.reschedule(key, ends_at.max(now + FIRST_REPEAT));
        sent
    }

    fn reschedule(&mut self, key: &SeriesKey, at: Instant) {
        let Some(series) = self.series.get_mut(key) else { return };
        self.due.remove(&(series.due, key.clone()));
        series.due = at;
        self.due.insert((at, key.clone()));
    }

    fn count_outcome(&mut self, event: &Event, outcome: &WriteOutcome) {
        match outcome {
            WriteOutcome::Done => self.metrics.sent += 1,
            outcome => {
                self.metrics.failed += 1;
                tracing::debug!(reason = event.reason, ?outcome, "Cannot send the Event");
            }
        }
    }
}

/// Sends Events while the process leads.
struct Fence<'a> {
    client: &'a Client,
    leadership: Option<&'a Leadership>,
}

/// The pause before the next check of a Lease that was not renewed in time.
const LEASE_AGAIN: Duration = Duration::from_secs(1);

impl Fence<'_> {
    /// POSTs the first occurrence and PATCHes later ones. If the Event already exists, a POST is
    /// replaced by a PATCH. If the Event does not exist, a PATCH is replaced by a POST.
    async fn deliver(&self, occurrence: Occurrence, event: &Event) -> WriteOutcome {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match occurrence {
            Occurrence::First => match self.post(&events, event).await {
                WriteOutcome::AlreadyExists => self.patch(&events, event).await,
                outcome => outcome,
            },
            // The API server deletes Events after some time.
            Occurrence::Later => match self.patch(&events, event).await {
                WriteOutcome::NotFound => self.post(&events, event).await,
                outcome => outcome,
            },
        }
    }

    async fn post(&self, events: &Api<Event>, event: &Event) -> WriteOutcome {
        self.pass().await;
        WriteOutcome::of(&events.create(&PostParams::default(), event).await)
    }

    async fn patch(&self, events: &Api<Event>, event: &Event) -> WriteOutcome {
        let change = serde_json::json!({
            "count": event.count,
            "type": event.type_,
            "message": event.message,
            "lastTimestamp": event.last_timestamp,
        });
        let name = event.metadata.name.as_deref().unwrap_or_default();
        self.pass().await;
        WriteOutcome::of(&events.patch(name, &PatchParams::default(), &Patch::Merge(change)).await)
    }

    /// Waits until the Lease was renewed in time. If it was lost, the process ends.
    async fn pass(&self) {
        while !self.leadership.is_none_or(Leadership::may_continue) {
            tokio::time::sleep(LEASE_AGAIN).await;
        }
    }
}

/// The longest prefix of `text` with at most `max` bytes.
fn shortened(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests;
