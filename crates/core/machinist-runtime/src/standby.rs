//! A process that waits for its Lease and already watches the objects that its metrics show.
//!
//! It has no workers, so it decides nothing. When the process leads, it starts with empty stores:
//! this one is dropped.

use std::sync::{Arc, Weak};

use machinist_kube::lease::Leadership;
use tokio::task::JoinSet;

use crate::contract::Contract;
use crate::measured::record_stores;
use crate::options::{Clients, Options};
use crate::runtime::Runtime;

/// The watches of a process that does not lead. They run until this value is dropped.
pub struct Observing<C: Contract> {
    _runtime: Arc<Runtime<C>>,
    _tasks: JoinSet<()>,
}

impl<C: Contract> Observing<C> {
    /// Starts the watches of these kinds, and adds what they show to the metrics of the options.
    pub fn start(
        clients: Clients,
        options: Options,
        tools: C::Tools,
        leadership: Leadership,
        resources: &[&str],
    ) -> Self {
        let metrics = options.metrics.clone();
        let runtime = Arc::new(Runtime::<C>::new(clients, options, tools, Some(leadership)));
        let mut tasks = JoinSet::new();
        for feed in runtime.feeds.iter().filter(|feed| resources.contains(&feed.resource())) {
            tasks.spawn(runtime.options.wrap.around(feed.watch(runtime.clone())));
        }
        let shown: Weak<Runtime<C>> = Arc::downgrade(&runtime);
        metrics.add_source(move |metrics| {
            if let Some(runtime) = shown.upgrade() {
                record_stores(&runtime, metrics);
            }
        });
        Self { _runtime: runtime, _tasks: tasks }
    }
}
