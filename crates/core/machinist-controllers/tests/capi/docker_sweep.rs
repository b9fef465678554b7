//! Kills the Docker provider at each of its calls of the engine, and starts it again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machinist_controllers::capi::{CoreApi, DockerOptions, Running, Serves};
use machinist_standin_docker::Engine;

use super::faulty::{Effect, Faulty};
use super::{World, condition};

/// Longest wait for a condition. After a death, an absence counts only when no call of the dead
/// process can still have an effect.
const MAX_SECONDS: u64 = 600;

/// The objects of a cluster with a control plane and a worker.
const OBJECTS: [(&str, &str); 3] =
    [("DockerMachine", "c-cp"), ("DockerMachine", "c-w"), ("DockerCluster", "c")];

/// A cluster whose provider dies once.
struct Life {
    world: World,
    engine: Engine,
    seen: Faulty,
    /// Absent only while the process is replaced.
    running: Option<Running>,
    deaths: usize,
    /// The death, for the messages of this test.
    what: String,
}

impl Life {
    async fn new(point: usize, effect: Effect) -> Self {
        let world = World::new().await;
        let engine = world.engine("a");
        let seen = Faulty::dies_at(&engine, &world.left, point, effect);
        let what = format!("death at call {point}, its effect: {effect:?}");
        let mut life = Self { world, engine, seen, running: None, deaths: 0, what };
        life.start();
        life
    }

    fn start(&mut self) {
        let options = DockerOptions::new(Arc::new(self.seen.clone()));
        self.running = Some(self.world.start(Serves::Docker(options), CoreApi::Beta2));
    }

    /// Replaces the dead process. Nothing of its memory remains.
    fn start_again(&mut self) {
        self.deaths += 1;
        self.running = None;
        self.world.left.store(usize::MAX, Ordering::Relaxed);
        self.seen = Faulty::new(&self.engine);
        self.start();
    }

    async fn until(&mut self, state: &str, is_reached: impl AsyncFn(&World) -> bool) {
        for _ in 0..MAX_SECONDS {
            if is_reached(&self.world).await {
                return;
            }
            self.world.core_round().await;
            let died = self.seen.clone();
            tokio::select! {
                () = super::pass(1) => {}
                () = died.died() => self.start_again(),
            }
        }
        panic!("{}: not {state} within {MAX_SECONDS} s", self.what);
    }

    async fn create(&mut self) {
        self.world.docker_cluster("c").await;
        self.world.machine("c", "c-cp", true).await;
        self.world.machine("c", "c-w", false).await;
        let is_ready = async |world: &World| {
            for (kind, name) in OBJECTS {
                if condition(&world.get(kind, name).await, "Ready").0 != "True" {
                    return false;
                }
            }
            true
        };
        self.until("ready", is_ready).await;
        let state = self.engine.state();
        let mut created = state.created.clone();
        created.sort();
        assert_eq!(created, ["c-cp", "c-w"], "{}", self.what);
        for (name, container) in &state.containers {
            assert_eq!(container.bootstraps, 1, "{}: bootstraps of {name}", self.what);
        }
        assert_eq!(state.balancers.len(), 1, "{}", self.what);
        assert!(state.deleted.is_empty(), "{}", self.what);
    }

    async fn delete(&mut self) {
        for (kind, name) in OBJECTS {
            self.world.delete(kind, name).await;
        }
        let is_deleted = async |world: &World| {
            for (kind, name) in OBJECTS {
                if !world.get(kind, name).await.is_null() {
                    return false;
                }
            }
            true
        };
        self.until("deleted", is_deleted).await;
        // A late call of the dead process must find nothing to do.
        super::pass(60).await;
        let state = self.engine.state();
        assert!(state.containers.is_empty(), "{}: {:?}", self.what, state.containers.keys());
        assert!(state.balancers.is_empty(), "{}", self.what);
        assert_eq!(state.created.len(), 2, "{}: {:?}", self.what, state.created);
        let mut deleted = state.deleted.clone();
        deleted.sort();
        assert_eq!(deleted, ["c-cp", "c-w"], "{}", self.what);
    }
}

/// Returns the number of lives with a death.
async fn deaths(effect: Effect) -> usize {
    for point in 0.. {
        let mut life = Life::new(point, effect).await;
        life.create().await;
        life.delete().await;
        if life.deaths == 0 {
            return point;
        }
        assert_eq!(life.deaths, 1, "{}", life.what);
    }
    unreachable!("a life has a finite number of calls")
}

/// Each machine needs at least: create, look, observe the start twice, bootstrap, observe it twice,
/// delete and look again. The load balancer needs one call more for each change of its targets.
const FEWEST_CALLS: usize = 20;

#[tokio::test(start_paused = true)]
async fn a_death_before_any_engine_call_duplicates_nothing() {
    let deaths = deaths(Effect::Never).await;
    assert!(FEWEST_CALLS < deaths, "only {deaths} calls");
}

#[tokio::test(start_paused = true)]
async fn a_death_after_any_engine_call_duplicates_nothing() {
    let deaths = deaths(Effect::Done).await;
    assert!(FEWEST_CALLS < deaths, "only {deaths} calls");
}

/// The engine carries out the last call of the dead process while the next process works.
#[tokio::test(start_paused = true)]
async fn a_late_effect_of_a_dead_process_duplicates_nothing() {
    let deaths = deaths(Effect::Late).await;
    assert!(FEWEST_CALLS < deaths, "only {deaths} calls");
}
