//! The connection of one life of the provider to the container engine, per driver call: crash
//! points, faults and history.
//!
//! Each call runs on its own task, so it takes effect even when its sender is dead or has timed
//! out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use machinist_driver::{Balancers, Bootstrap, Driver, Instances, Provider, may_change};
use machinist_instance::{
    AccountId, Balancer, BalancerDeletion, BalancerRef, BalancerSpec, Boot, BootstrapData, BootstrapStatus,
    Credential, Ensured, Error, ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, Place, Progress,
    Promises, Readiness, RecordedId, Scope, Sighting,
};
use machinist_standin_docker::Engine;
use serde_json::Value;
use tokio::sync::oneshot;

use super::outside::{By, Configured};
use crate::faults::LongKind;
use crate::faults::call::{Caller, Unreachable};
use crate::faults::crash::Life;
use crate::faults::plan::Fault;
use crate::history::RunHistory;
use crate::lab::Lab;

/// The driver waits so long for an answer of the engine.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The longest time that a call is late. With its time of travel it takes effect within the time
/// that the engine promises.
const LATEST: Duration = Duration::from_secs(19);

/// The call that configures a load balancer.
const ENSURE_BALANCER: &str = "ensure load balancer";

/// The connection of one life of the provider to the engine.
#[derive(Clone)]
pub struct EngineWire {
    caller: Caller,
    engine: Engine,
}

/// The effect of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    Reads,
    /// Creates a container or a load balancer.
    Creates,
    Changes,
}

/// The fault of one call.
#[derive(Debug, Clone, Copy)]
enum CallFault {
    /// Without effect: no engine listens.
    Closed,
    /// Without effect: the engine is busy.
    Busy,
    /// Without effect: no answer in time.
    Silent,
    /// With effect, and the answer is an error.
    FailsAfterwards,
    /// With effect, and no answer.
    AnswerLost,
    /// With a late effect, and the answer shows the effect.
    Late(Duration),
    /// With a late effect, and the connection breaks before it.
    LostAndLate(Duration),
}

/// Records the changes of the engine.
pub(super) fn record(history: &RunHistory, by: By, engine: &Engine, configured: Option<&Configured>) {
    history.outside(by, |outside, now| outside.take_engine(&engine.state(), configured, now));
}

impl EngineWire {
    /// Connects a life to the engine.
    pub fn new(life: Arc<Life>, lab: Arc<Lab>, engine: Engine) -> Self {
        Self { caller: Caller::new(life, lab), engine }
    }

    async fn call<T, F>(
        &self,
        nature: Nature,
        what: &'static str,
        which: &str,
        work: impl FnOnce(Engine) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let begun = self.caller.begin(&format!("{what} {which}")).await;
        if let Some(unreachable) = self.caller.unreachable().await {
            return Err(match unreachable {
                Unreachable::Refused => closed(),
                Unreachable::Unavailable => Error::new(ErrorKind::Unavailable, "the engine is busy"),
                Unreachable::Lost => unanswered(nature),
            });
        }
        if nature != Nature::Reads {
            // Connecting takes time, and another process may lead by now.
            may_change()?;
        }
        let lab = self.caller.lab();
        if nature == Nature::Creates && lab.plan.long(LongKind::NoStock).next().is_some() {
            let full = Error::new(ErrorKind::Exhausted, format!("{what}: no space left on device"));
            tokio::time::sleep(lab.plan.latency(self.caller.process())).await;
            self.caller.end(begun).await;
            return Err(full);
        }
        let trouble = self.trouble(nature, what);
        if let Some(trouble) = trouble {
            lab.history.note(format!("fault {trouble:?} for {what} {which}"));
        }
        let latency = lab.plan.latency(self.caller.process());
        let sent = lab.clock.time();
        let configured =
            || (what == ENSURE_BALANCER).then(|| Configured { balancer: which.to_owned(), sent });
        let answer = match trouble {
            Some(CallFault::Closed) => {
                tokio::time::sleep(latency).await;
                Err(closed())
            }
            Some(CallFault::Busy) => {
                tokio::time::sleep(latency).await;
                Err(Error::new(ErrorKind::Unavailable, format!("{what}: the engine is busy (status 503)")))
            }
            Some(CallFault::Silent) => {
                tokio::time::sleep(ANSWER_WITHIN).await;
                Err(unanswered(nature))
            }
            Some(CallFault::Late(by)) => self.deliver(nature, configured(), latency + by, work).await,
            Some(CallFault::FailsAfterwards) => {
                let _ = self.deliver(nature, configured(), latency, work).await;
                Err(Error::new(unknown(nature), format!("{what}: boom (status 500)")))
            }
            Some(CallFault::AnswerLost) => {
                let _ = self.deliver(nature, configured(), latency, work).await;
                tokio::time::sleep(ANSWER_WITHIN).await;
                Err(unanswered(nature))
            }
            Some(CallFault::LostAndLate(by)) => {
                drop(self.dispatch(configured(), latency + by, work));
                tokio::time::sleep(latency).await;
                Err(Error::new(unknown(nature), format!("{what}: connection reset by peer")))
            }
            None => self.deliver(nature, configured(), latency, work).await,
        };
        self.caller.end(begun).await;
        answer
    }

    /// Performs a call after a time, on a separate task.
    fn dispatch<T, F>(
        &self,
        configured: Option<Configured>,
        after: Duration,
        work: impl FnOnce(Engine) -> F,
    ) -> oneshot::Receiver<Result<T, Error>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (history, engine) = (self.caller.lab().history.clone(), self.engine.clone());
        let work = work(engine.clone());
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let result = work.await;
            record(&history, By::Provider, &engine, configured.as_ref());
            // The sender may have died or timed out.
            let _ = answer.send(result);
        });
        answered
    }

    /// Performs a call after its time of travel, and waits for the answer.
    async fn deliver<T, F>(
        &self,
        nature: Nature,
        configured: Option<Configured>,
        after: Duration,
        work: impl FnOnce(Engine) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        match tokio::time::timeout(ANSWER_WITHIN, self.dispatch(configured, after, work)).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(unanswered(nature)),
        }
    }

    fn trouble(&self, nature: Nature, what: &str) -> Option<CallFault> {
        let plan = &self.caller.lab().plan;
        let pick = |fault, end| plan.span(fault, what, Duration::ZERO..Duration::from_secs(end)).as_secs();
        if plan.strikes(Fault::D1, what) {
            return Some(match pick(Fault::D1, 3) {
                0 => CallFault::Closed,
                1 => CallFault::Busy,
                _ => CallFault::Silent,
            });
        }
        if nature == Nature::Reads {
            return None;
        }
        if plan.strikes(Fault::D2, what) {
            return Some(CallFault::FailsAfterwards);
        }
        if plan.strikes(Fault::D3, what) {
            let late = plan.span(Fault::D3, what, Duration::ZERO..LATEST);
            return Some(match pick(Fault::D3, 3) {
                0 => CallFault::AnswerLost,
                1 => CallFault::Late(late),
                _ => CallFault::LostAndLate(late),
            });
        }
        None
    }
}

fn closed() -> Error {
    Error::closed("no engine runs at unix:///var/run/docker.sock: not found")
}

fn unanswered(nature: Nature) -> Error {
    Error::new(unknown(nature), format!("no answer within {} s", ANSWER_WITHIN.as_secs()))
}

fn unknown(nature: Nature) -> ErrorKind {
    match nature {
        Nature::Reads => ErrorKind::Unavailable,
        Nature::Creates | Nature::Changes => ErrorKind::Ambiguous,
    }
}

impl Provider for EngineWire {
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

impl Driver for EngineWire {
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
impl Instances for EngineWire {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let (spec, name) = (spec.clone(), spec.name.to_string());
        let work = |engine: Engine| async move { Instances::ensure(&engine, &spec).await };
        self.call(Nature::Creates, "ensure", &name, work).await
    }
    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let (which, name) = (which.clone(), which.to_string());
        let work = |engine: Engine| async move { Instances::find(&engine, &which).await };
        self.call(Nature::Reads, "find", &name, work).await
    }
    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let scope = scope.clone();
        let work = |engine: Engine| async move { Instances::list(&engine, &scope).await };
        self.call(Nature::Reads, "list", "", work).await
    }
    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let (which, owner, name) = (which.clone(), owner.clone(), which.to_string());
        #[expect(clippy::disallowed_methods, reason = "the caller has a permit")]
        let work = |engine: Engine| async move { Instances::delete(&engine, &which, &owner).await };
        self.call(Nature::Changes, "delete", &name, work).await
    }
}

#[async_trait]
impl Balancers for EngineWire {
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        let (spec, name) = (spec.clone(), spec.name.clone());
        let work = |engine: Engine| async move { Balancers::ensure(&engine, &spec).await };
        self.call(Nature::Creates, ENSURE_BALANCER, &name, work).await
    }
    async fn find(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error> {
        let which = which.clone();
        let work = |engine: Engine| async move { Balancers::find(&engine, &which).await };
        self.call(Nature::Reads, "find load balancer", "", work).await
    }
    async fn list(&self) -> Result<Vec<Balancer>, Error> {
        let work = |engine: Engine| async move { Balancers::list(&engine).await };
        self.call(Nature::Reads, "list load balancers", "", work).await
    }
    async fn delete(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error> {
        let which = which.clone();
        let work = |engine: Engine| async move { Balancers::delete(&engine, &which).await };
        self.call(Nature::Changes, "delete load balancer", "", work).await
    }
}

#[async_trait]
impl Bootstrap for EngineWire {
    async fn readiness(&self, which: &InstanceRef) -> Result<Readiness, Error> {
        let (which, name) = (which.clone(), which.to_string());
        let work = |engine: Engine| async move { engine.readiness(&which).await };
        self.call(Nature::Reads, "readiness", &name, work).await
    }
    async fn load_images(&self, which: &InstanceRef, images: &[String]) -> Result<Progress<()>, Error> {
        let (which, images, name) = (which.clone(), images.to_vec(), which.to_string());
        let work = |engine: Engine| async move { engine.load_images(&which, &images).await };
        self.call(Nature::Changes, "load images", &name, work).await
    }
    async fn start(&self, which: &InstanceRef, data: &BootstrapData) -> Result<(), Error> {
        let (which, data, name) = (which.clone(), data.clone(), which.to_string());
        let work = |engine: Engine| async move { Bootstrap::start(&engine, &which, &data).await };
        self.call(Nature::Changes, "bootstrap", &name, work).await
    }
    async fn progress(&self, which: &InstanceRef) -> Result<BootstrapStatus, Error> {
        let (which, name) = (which.clone(), which.to_string());
        let work = |engine: Engine| async move { engine.progress(&which).await };
        self.call(Nature::Reads, "progress", &name, work).await
    }
    async fn boot(&self, which: &InstanceRef) -> Result<Boot, Error> {
        let (which, name) = (which.clone(), which.to_string());
        let work = |engine: Engine| async move { engine.boot(&which).await };
        self.call(Nature::Reads, "boot", &name, work).await
    }
}
