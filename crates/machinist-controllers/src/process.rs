//! The two processes of the machine API, put together: which kinds each watches and decides about.
//!
//! | | machine controller | manager |
//! |---|---|---|
//! | control cluster | Machines, sets (to find deployments), classes, Secrets | Machines, sets, deployments |
//! | target cluster | Nodes, pods, budgets, VolumeAttachments, bootstrap tokens | nothing yet |
//! | decides about | Machines, classes, Secrets, replacements | sets, deployments |
//!
//! Both may run in one program; they share nothing but the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use kube::Api;
use machinist_kube::KeyQueue;
use machinist_kube::lease::Leadership;
use machinist_kube::recorder::Recorder;
use machinist_kube::watch::WatchOptions;
use machinist_plan::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts,
    NodeFacts, PodFacts, TOKEN_NAMESPACE, TOKEN_TYPE,
};
use machinist_plan::{Reason, Why};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::act::{Accounts, Ends};
use crate::clock_steps::ClockSteps;
use crate::explain::{is_about_turns, may_await_turn};
use crate::feed::{Fed, feed};
use crate::mcm;
use crate::memory::WhyRecord;
use crate::panics;
use crate::reconcile::{Shared, work};
use crate::world::{SecretEntry, SharedWorld, TokenEntry, World};
use crate::{Key, MachineOptions, Options};

/// The clients of one process. Both may be of the same server.
#[derive(Clone)]
pub struct Clients {
    /// Where Machines live.
    pub control: kube::Client,
    /// Where Nodes live.
    pub target: kube::Client,
}

/// The process that makes, watches and deletes instances.
pub struct MachineController;

/// The process that keeps as many Machines as deployments ask for.
pub struct Manager;

/// A process that runs until it is dropped.
pub struct Running {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// A part of a process ended, which none ever does by itself: the program should end too.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a watch or worker of the {component} ended: {reason}")]
pub struct Ended {
    /// Which process.
    pub component: &'static str,
    /// What is known about it.
    pub reason: String,
}

impl MachineController {
    /// Starts it. `leadership` is absent where nobody else could act.
    pub fn start(
        clients: Clients,
        options: Options,
        machine: MachineOptions,
        leadership: Option<Leadership>,
    ) -> Running {
        let mut running = Running::new(clients, options, Some(machine), leadership, |world: &World| {
            world.machines.synced()
                && world.sets.synced()
                && world.classes.synced()
                && world.secrets.synced()
                && world.tokens.synced()
                && world.nodes.synced()
                && world.pods.synced()
                && world.budgets.synced()
                && world.attachments.synced()
        });
        let namespace = running.shared.options.namespace.clone();
        running.watch::<MachineFacts>(&namespace, WatchOptions::default());
        running.watch::<MachineSetFacts>(&namespace, WatchOptions::default());
        running.watch::<ClassFacts>(&namespace, WatchOptions::default());
        running.watch::<SecretEntry>(&namespace, WatchOptions::default());
        let tokens =
            WatchOptions { field_selector: Some(format!("type={TOKEN_TYPE}")), ..WatchOptions::default() };
        running.watch::<TokenEntry>(TOKEN_NAMESPACE, tokens);
        running.watch::<NodeFacts>("", WatchOptions::default());
        let target = running.shared.target.clone();
        running.watch_api::<PodFacts>(Api::all(target.clone()), WatchOptions::default());
        running.watch_api::<BudgetFacts>(Api::all(target), WatchOptions::default());
        running.watch::<AttachmentFacts>("", WatchOptions::default());
        running.work();
        running
    }
}

impl Manager {
    /// Starts it. `leadership` is absent where nobody else could act.
    pub fn start(clients: Clients, options: Options, leadership: Option<Leadership>) -> Running {
        let mut running = Running::new(clients, options, None, leadership, |world: &World| {
            world.machines.synced() && world.sets.synced() && world.deployments.synced()
        });
        let namespace = running.shared.options.namespace.clone();
        running.watch::<MachineFacts>(&namespace, WatchOptions::default());
        running.watch::<MachineSetFacts>(&namespace, WatchOptions::default());
        running.watch::<MachineDeploymentFacts>(&namespace, WatchOptions::default());
        running.work();
        running
    }
}

impl Running {
    fn new(
        clients: Clients,
        options: Options,
        machine: Option<MachineOptions>,
        leadership: Option<Leadership>,
        is_synced: fn(&World) -> bool,
    ) -> Self {
        panics::note_places();
        let queue = KeyQueue::new(mcm::min_interval, options.seed);
        let recorder = Recorder::new(options.component, options.instance.clone(), options.clock.clone());
        let shared = Arc::new(Shared {
            world: SharedWorld::new(),
            queue,
            machine,
            control: clients.control,
            target: clients.target,
            recorder,
            accounts: Accounts::default(),
            call_ends: Ends::default(),
            leadership,
            tasks: Mutex::new(JoinSet::new()),
            is_synced,
            started: Mutex::default(),
            clock_steps: ClockSteps::default(),
            decided: Notify::default(),
            options,
        });
        Self { shared, tasks: JoinSet::new() }
    }

    fn watch<F: Fed>(&mut self, namespace: &str, options: WatchOptions) {
        let api = F::api(&self.shared, namespace);
        self.watch_api::<F>(api, options);
    }

    fn watch_api<F: Fed>(&mut self, api: Api<F::Object>, options: WatchOptions) {
        self.tasks.spawn(feed::<F>(self.shared.clone(), api, options));
    }

    fn work(&mut self) {
        for _ in 0..self.shared.options.concurrency {
            self.tasks.spawn(work(self.shared.clone()));
        }
        self.tasks.spawn(self.shared.clone().tend_barrier());
        self.tasks.spawn(self.shared.clone().sweep());
        let recorder = self.shared.recorder.clone();
        let client = self.shared.control.clone();
        self.tasks.spawn(async move { recorder.run(client).await });
    }

    /// Waits until a part of it ends, which is always a fault.
    pub async fn ended(&mut self) -> Ended {
        let component = self.shared.options.component;
        let reason = match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => "it panicked".to_owned(),
            Some(_) => "it returned".to_owned(),
            None => "nothing was running".to_owned(),
        };
        Ended { component, reason }
    }

    /// Whether all stores are complete, so that it decides.
    pub fn is_ready(&self) -> bool {
        self.shared.started().is_some()
    }

    /// How many calls to the cloud are in flight or wait for their turn.
    pub fn calls_in_flight(&self) -> usize {
        self.shared.world.lock().asks.len()
    }

    /// Completes when no call to the cloud is in flight. Calls that wait for their turn end unmade once the process may not start
    /// calls any more.
    pub async fn calls_ended(&self) {
        self.shared.calls_ended().await;
    }

    /// Something that can be asked while it runs.
    pub fn inspector(&self) -> Inspector {
        Inspector { shared: self.shared.clone() }
    }
}

impl Drop for Running {
    /// Ends everything it started, as a crash would.
    fn drop(&mut self) {
        self.tasks.abort_all();
        self.shared.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).abort_all();
    }
}

/// Answers questions about a running process.
#[derive(Clone)]
pub struct Inspector {
    shared: Arc<Shared>,
}

impl Inspector {
    /// What was last decided about a key, and why.
    pub fn why(&self, key: &Key) -> Option<WhyRecord> {
        self.shared.world.lock().memory.whys.get(key).cloned()
    }

    /// Everything that was last decided, by key.
    pub fn whys(&self) -> Vec<(Key, WhyRecord)> {
        self.shared.world.lock().memory.whys.iter().map(|(key, why)| (key.clone(), why.clone())).collect()
    }

    /// What each object waits for; those that wait for nothing are left out.
    ///
    /// A Machine that waits for its turn to be replaced is told with what the decision about turns waits for, as
    /// [`explain`](crate::explain()) tells it.
    pub fn waits(&self) -> BTreeMap<Key, Why> {
        let now = self.shared.now();
        let world = self.shared.world.lock();
        let waiting = world.memory.whys.iter().filter(|(_, record)| record.why.reason != Reason::Settled);
        let first = waiting.map(|(key, record)| {
            let turn = || {
                let Key::Machine(id) = key else { return None };
                let machine = world.machines.get(id)?;
                let turn = world.memory.whys.get(&world.replacement_key(&machine.facts))?;
                is_about_turns(&turn.why).then_some(&turn.why)
            };
            let turn = may_await_turn(&record.why, now).then(turn).flatten();
            (key.clone(), turn.unwrap_or(&record.why).clone())
        });
        first.collect()
    }

    /// Waits until something is decided otherwise than before; returns at once if that happened since the last call. For one who
    /// waits at a time.
    pub async fn decided(&self) {
        self.shared.decided.notified().await;
    }

    /// Whether all stores are complete.
    pub fn is_ready(&self) -> bool {
        self.shared.started().is_some()
    }

    /// Which process this is.
    pub fn component(&self) -> &'static str {
        self.shared.options.component
    }

    /// The namespace it serves.
    pub fn namespace(&self) -> &str {
        &self.shared.options.namespace
    }

    /// Gauges and counters, by name and labels.
    pub fn metrics(&self) -> Vec<(String, f64)> {
        let world = self.shared.world.lock();
        let barrier = world.barrier.metrics();
        let queue = self.shared.queue.metrics();
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
        let number = |count: u64| count as f64;
        let count = |count: usize| number(u64::try_from(count).unwrap_or(u64::MAX));
        let (remembered_machines, remembered_owners) = world.memory.remembered();
        let counted = world.memory.counts.iter();
        let counted = counted.map(|((count, kind), total)| (count.metric(kind), number(*total)));
        let always = [
            ("machinist_store_machines", count(world.machines.len())),
            ("machinist_store_nodes", count(world.nodes.len())),
            ("machinist_store_pods", count(world.pods.len())),
            ("machinist_remembered_machines", count(remembered_machines)),
            ("machinist_remembered_owners", count(remembered_owners)),
            ("machinist_own_writes_open", count(barrier.open)),
            ("machinist_own_writes_unknown", count(barrier.unknown)),
            ("machinist_own_writes_total", number(barrier.opened)),
            ("machinist_own_writes_overdue_total", number(barrier.overdue)),
            ("machinist_queue_keys", count(self.shared.queue.len())),
            ("machinist_queue_passes_total", number(queue.handed_out)),
            ("machinist_queue_retries_total", number(queue.retries)),
            ("machinist_queue_keys_found_total", number(world.memory.keys_found)),
            ("machinist_cloud_accounts", count(self.shared.accounts.len())),
            ("machinist_cloud_calls_in_flight", count(world.asks.len())),
        ];
        always.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(counted).collect()
    }
}

impl Shared {
    /// Since when this process leads, in wall-clock time.
    pub(crate) fn leading_since(&self) -> Option<Timestamp> {
        let held = self.leadership.as_ref()?.held_since()?;
        self.now().checked_sub(Instant::now().duration_since(held)).ok()
    }
}
