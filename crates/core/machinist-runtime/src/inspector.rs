//! A handle that reads the state of a running process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinist_core::{Reason, Why};
use machinist_driver::Check;
use machinist_serve::{Sample, samples_of};

use crate::contract::Contract;
use crate::kinds::ContractKey as _;
use crate::measured::record_state;
use crate::passes::WhyRecord;
use crate::runtime::Runtime;
use crate::silence::SilentServer;
use crate::world::World;

/// A cloud that is asked for `why` must answer within this time. `machinist why` waits 2 s for the
/// whole answer.
const CLOUD_ANSWERS_WITHIN: Duration = Duration::from_millis(700);

/// A handle that reads the state of a running process.
pub struct Inspector<C: Contract> {
    runtime: Arc<Runtime<C>>,
}

impl<C: Contract> Clone for Inspector<C> {
    fn clone(&self) -> Self {
        Self { runtime: self.runtime.clone() }
    }
}

/// The last decision about a key, with the reason of the key that explains more.
fn shown<C: Contract>(
    world: &World<C>,
    key: &C::Key,
    record: &WhyRecord<C::Reason>,
    now: jiff::Timestamp,
) -> WhyRecord<C::Reason> {
    WhyRecord { why: key.why(world, record, now).clone(), ..record.clone() }
}

impl<C: Contract> Inspector<C> {
    pub(crate) fn of(runtime: Arc<Runtime<C>>) -> Self {
        Self { runtime }
    }

    /// The last decision about a key, and its reason.
    pub fn why(&self, key: &C::Key) -> Option<WhyRecord<C::Reason>> {
        let now = self.runtime.now();
        let world = self.runtime.lock();
        world.passes.whys.get(key).map(|record| shown(&world, key, record, now))
    }

    /// The last decisions about all keys.
    pub fn whys(&self) -> Vec<(C::Key, WhyRecord<C::Reason>)> {
        let now = self.runtime.now();
        let world = self.runtime.lock();
        let whys = world.passes.whys.iter();
        whys.map(|(key, record)| (key.clone(), shown(&world, key, record, now))).collect()
    }

    /// The reasons of all objects that are not up to date.
    pub fn waits(&self) -> BTreeMap<C::Key, Why<C::Reason>> {
        let now = self.runtime.now();
        let world = self.runtime.lock();
        let waiting = world.passes.whys.iter().filter(|(_, record)| record.why.reason != Reason::Settled);
        waiting.map(|(key, record)| (key.clone(), key.why(&world, record, now).clone())).collect()
    }

    /// Waits until a decision about a key differs from the previous one. Returns at once if that
    /// happened since the last call. Only one caller may wait at a time.
    pub async fn decided(&self) {
        self.runtime.decided.notified().await;
    }

    /// Whether all stores are complete.
    pub fn is_ready(&self) -> bool {
        self.runtime.is_synced(&self.runtime.lock().seen)
    }

    /// Why the process is not ready; `None` if it is ready.
    pub fn not_ready(&self) -> Option<String> {
        let world = self.runtime.lock();
        if self.runtime.is_synced(&world.seen) {
            return C::unready(&world.seen, &self.runtime.tools);
        }
        let feeds = self.runtime.feeds.iter().filter(|feed| !feed.is_synced(&world.seen));
        let missing: Vec<&str> = feeds.map(|feed| feed.resource()).collect();
        Some(format!("not all watched kinds have been listed yet: {} missing", missing.join(", ")))
    }

    /// The silent API servers.
    pub fn silent_servers(&self) -> Vec<SilentServer> {
        self.runtime.silent_servers(&self.runtime.lock())
    }

    /// The silent API servers on which decisions about a key depend.
    pub(crate) fn silent_servers_of(&self, key: &C::Key) -> Vec<SilentServer> {
        let mut silent = self.silent_servers();
        silent.retain(|server| key.depends_on(&server.cluster));
        silent
    }

    /// Asks the cloud of a key for an answer. Returns the sentence that it does not answer.
    pub(crate) async fn silent_cloud_of(&self, key: &C::Key) -> Option<String> {
        let Check { cloud, answer } = key.check_cloud(&self.runtime.tools)?;
        let why = match tokio::time::timeout(CLOUD_ANSWERS_WITHIN, answer).await {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => error.message,
            Err(_) => format!("no answer within {} ms", CLOUD_ANSWERS_WITHIN.as_millis()),
        };
        Some(format!("{cloud} does not answer: {why}"))
    }

    /// A hint for users about a process that is ready, if there is one.
    pub fn remark(&self) -> Option<String> {
        C::remark(&self.runtime.lock().seen)
    }

    /// The component name, as in Events.
    pub fn component(&self) -> &'static str {
        self.runtime.options.component
    }

    /// The namespace that the process serves.
    pub fn namespace(&self) -> &str {
        &self.runtime.options.namespace
    }

    /// Which loop of the process does not turn, if one does not.
    pub fn stall(&self) -> Option<String> {
        self.runtime.stall()
    }

    /// The effective configuration, if the process shows it.
    pub fn config(&self) -> Option<serde_json::Value> {
        let config = &*self.runtime.options.config;
        (!config.is_null()).then(|| config.clone())
    }

    /// All metrics of the process, by name with labels.
    pub fn metrics(&self) -> Vec<Sample> {
        samples_of(&self.metrics_text())
    }

    /// All metrics of the process, in the text format of Prometheus.
    pub fn metrics_text(&self) -> String {
        let runtime = &self.runtime;
        runtime.options.metrics.text_with(|metrics| record_state(runtime, metrics))
    }
}
