//! An engine with new_problems: a process that dies at one of its calls, and calls that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use machinist_driver::{Balancers, Bootstrap, Driver, Instances, Provider};
use machinist_instance::{
    AccountId, Balancer, BalancerDeletion, BalancerRef, BalancerSpec, Boot, BootstrapData, BootstrapStatus,
    Credential, Ensured, Error, ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, Place, Progress,
    Promises, Readiness, RecordedId, Scope, Sighting,
};
use machinist_standin_docker::Engine;
use serde_json::Value;
use tokio::sync::Notify;

use super::burns;

/// When a call of a process that dies has its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The process dies before it sends the call.
    Never,
    /// The process dies before it reads the answer.
    Done,
    /// The engine carries out the call after the next process has started.
    Late,
}

/// A late effect happens within the time that the engine promises.
const LATE: Duration = Duration::from_secs(10);

/// Longer than the wait before a failed call is repeated, shorter than the time that the engine
/// promises.
pub(super) const LATER: Duration = Duration::from_secs(25);

/// A trouble of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Trouble {
    #[default]
    None,
    /// The socket does not exist.
    NoSocket,
    /// The engine accepts each call, carries it out, and never answers.
    Silent,
    /// The engine carries each change out, and then answers that it failed.
    FailsAfterwards,
    /// The engine does not answer the next creation of a container, and carries it out [`LATER`].
    CreatesLater,
    /// The engine does not answer the next change of a load balancer, and carries it out [`LATER`].
    BalancesLater,
}

/// An engine as one process sees it.
#[derive(Clone)]
pub(super) struct Faulty {
    engine: Engine,
    /// The number of calls before the process dies.
    left: Arc<AtomicUsize>,
    effect: Effect,
    /// The number of API requests that the process may send. Its death sets it to zero.
    requests: Option<Arc<AtomicUsize>>,
    died: Arc<Notify>,
    trouble: Arc<Mutex<Trouble>>,
}

/// Whether a repeated call changes the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    Reads,
    /// The creation of a container.
    Creates,
    Changes,
}

impl Faulty {
    /// An engine with a trouble that a test sets.
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            left: Arc::new(AtomicUsize::new(usize::MAX)),
            effect: Effect::Never,
            requests: None,
            died: Arc::default(),
            trouble: Arc::default(),
        }
    }

    /// An engine for a process that dies at call number `point`, counted from 0.
    pub(super) fn dies_at(
        engine: &Engine,
        requests: &Arc<AtomicUsize>,
        point: usize,
        effect: Effect,
    ) -> Self {
        let left = Arc::new(AtomicUsize::new(point));
        Self { left, effect, requests: Some(requests.clone()), ..Self::new(engine) }
    }

    /// Returns once the process has reached its last call.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    pub(super) fn has(&self, trouble: Trouble) {
        *self.trouble.lock().expect("no thread panicked with the lock") = trouble;
    }

    async fn call<T, F>(&self, nature: Nature, work: impl FnOnce(Engine) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let trouble = self.trouble(nature);
        let work = work(self.engine.clone());
        if burns(&self.left) {
            return self.die(nature, work).await;
        }
        match (trouble, nature) {
            (Trouble::None, _) | (Trouble::FailsAfterwards, Nature::Reads) => work.await,
            (Trouble::CreatesLater | Trouble::BalancesLater, _) => {
                tokio::spawn(async move {
                    tokio::time::sleep(LATER).await;
                    work.await
                });
                Err(Error::new(ErrorKind::Ambiguous, "POST /containers/create: no answer within 20 s"))
            }
            (Trouble::NoSocket, _) => {
                let text = "no engine runs at unix:///var/run/docker.sock: not found. Start Docker, or \
                            correct DOCKER_HOST";
                Err(Error::closed(text))
            }
            (Trouble::Silent, _) => {
                let _ = work.await;
                std::future::pending().await
            }
            (Trouble::FailsAfterwards, Nature::Creates | Nature::Changes) => {
                let _ = work.await;
                Err(Error::new(ErrorKind::Ambiguous, "POST /containers/create: boom (status 500)"))
            }
        }
    }

    /// Returns the trouble of a call. The trouble of a single change ends with it.
    fn trouble(&self, nature: Nature) -> Trouble {
        let mut trouble = self.trouble.lock().expect("no thread panicked with the lock");
        match (*trouble, nature) {
            (Trouble::CreatesLater, Nature::Creates) | (Trouble::BalancesLater, Nature::Changes) => {
                std::mem::take(&mut *trouble)
            }
            (Trouble::CreatesLater | Trouble::BalancesLater, _) => Trouble::None,
            (found, _) => found,
        }
    }

    async fn die<T: Send + 'static>(
        &self,
        nature: Nature,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        if let Some(requests) = &self.requests {
            requests.store(0, Ordering::Relaxed);
        }
        match (self.effect, nature) {
            (Effect::Never, _) => {}
            (Effect::Done, _) => {
                let _ = work.await;
            }
            (Effect::Late, _) => {
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    work.await
                });
            }
        }
        self.died.notify_one();
        std::future::pending().await
    }
}

impl Provider for Faulty {
    fn name(&self) -> &str {
        self.engine.name()
    }
    fn validate(&self, spec: &Value) -> Result<(), Error> {
        self.engine.validate(spec)
    }
    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        self.engine.account(credential, place)
    }
    fn parse_id(&self, text: &str) -> RecordedId {
        self.engine.parse_id(text)
    }
    fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
        Ok(Arc::new(self.clone()))
    }
}

impl Driver for Faulty {
    fn instances(&self) -> &dyn Instances {
        self
    }
    fn balancers(&self) -> Option<&dyn Balancers> {
        Some(self)
    }
    fn bootstrap(&self) -> Option<&dyn Bootstrap> {
        Some(self)
    }
    fn promises(&self) -> Promises {
        self.engine.promises()
    }
}

#[async_trait]
impl Instances for Faulty {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let spec = spec.clone();
        self.call(Nature::Creates, |engine| async move { Instances::ensure(&engine, &spec).await }).await
    }
    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let which = which.clone();
        self.call(Nature::Reads, |engine| async move { Instances::find(&engine, &which).await }).await
    }
    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let scope = scope.clone();
        self.call(Nature::Reads, |engine| async move { Instances::list(&engine, &scope).await }).await
    }
    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let (which, owner) = (which.clone(), owner.clone());
        #[expect(clippy::disallowed_methods, reason = "the caller has a permit")]
        let delete = |engine: Engine| async move { Instances::delete(&engine, &which, &owner).await };
        self.call(Nature::Changes, delete).await
    }
}

#[async_trait]
impl Balancers for Faulty {
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        let spec = spec.clone();
        self.call(Nature::Changes, |engine| async move { Balancers::ensure(&engine, &spec).await }).await
    }
    async fn find(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error> {
        let which = which.clone();
        self.call(Nature::Reads, |engine| async move { Balancers::find(&engine, &which).await }).await
    }
    async fn list(&self) -> Result<Vec<Balancer>, Error> {
        self.call(Nature::Reads, |engine| async move { Balancers::list(&engine).await }).await
    }
    async fn delete(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error> {
        let which = which.clone();
        self.call(Nature::Changes, |engine| async move { Balancers::delete(&engine, &which).await }).await
    }
}

#[async_trait]
impl Bootstrap for Faulty {
    async fn readiness(&self, which: &InstanceRef) -> Result<Readiness, Error> {
        let which = which.clone();
        self.call(Nature::Reads, |engine| async move { engine.readiness(&which).await }).await
    }
    async fn load_images(&self, which: &InstanceRef, images: &[String]) -> Result<Progress<()>, Error> {
        let (which, images) = (which.clone(), images.to_vec());
        self.call(Nature::Changes, |engine| async move { engine.load_images(&which, &images).await }).await
    }
    async fn start(&self, which: &InstanceRef, data: &BootstrapData) -> Result<(), Error> {
        let (which, data) = (which.clone(), data.clone());
        let start = |engine: Engine| async move { Bootstrap::start(&engine, &which, &data).await };
        self.call(Nature::Changes, start).await
    }
    async fn progress(&self, which: &InstanceRef) -> Result<BootstrapStatus, Error> {
        let which = which.clone();
        self.call(Nature::Reads, |engine| async move { engine.progress(&which).await }).await
    }
    async fn boot(&self, which: &InstanceRef) -> Result<Boot, Error> {
        let which = which.clone();
        self.call(Nature::Reads, |engine| async move { engine.boot(&which).await }).await
    }
}
