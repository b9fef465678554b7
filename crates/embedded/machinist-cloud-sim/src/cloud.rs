//! [`Cloud`]: the handle through which a client calls the cloud. Functions to inspect and operate
//! the cloud are in `operator`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;
use machinist_instance::ProviderId;
use tokio::sync::oneshot;

use crate::books::{Books, user_data};
use crate::clock::later;
use crate::journal::{Journal, Line, OpenError};
use crate::{
    CallOutcome, CallRecord, Caller, Clock, CloudRefusal, Code, Fault, Faults, IncomingCall, Kept,
    LedgerCommit, Reply, Request, Settings,
};

/// A handle of a cloud. Clones share the same cloud.
#[derive(Clone)]
pub struct Cloud(pub(crate) Arc<CloudInner>);

pub(crate) struct CloudInner {
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    books: Mutex<Books>,
}

/// A call that ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The request was not sent: nothing was done.
    #[error("cannot reach the cloud: {0}")]
    NotSent(String),
    /// The request was sent: the caller cannot know whether it took effect.
    #[error("the cloud did not answer: {0}")]
    Lost(String),
}

impl Cloud {
    /// Creates a cloud in memory, which ends with its last handle.
    pub fn in_memory(settings: Settings, clock: Clock) -> Self {
        Self::build(settings, clock, None, None, Vec::new())
    }

    /// Opens a cloud that keeps its ledger and disks in a folder, so they outlive the process.
    ///
    /// # Errors
    /// When the folder cannot be used, or another process uses it.
    pub fn open(folder: &Path, settings: Settings, clock: Clock) -> Result<Self, OpenError> {
        let (journal, lines) = Journal::open(folder)?;
        Ok(Self::build(settings, clock, Some(journal), Some(folder.to_owned()), lines))
    }

    /// Opens a cloud from a folder that [`Kept::read`] has read and locked.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn resume(kept: Kept, settings: Settings, clock: Clock) -> Result<Self, OpenError> {
        let Kept { folder, found } = kept;
        let (journal, lines) = found.begin()?;
        Ok(Self::build(settings, clock, Some(journal), Some(folder), lines))
    }

    fn build(
        settings: Settings,
        clock: Clock,
        journal: Option<Journal>,
        folder: Option<PathBuf>,
        lines: Vec<Line>,
    ) -> Self {
        let mut books = Books::new(settings, journal, folder);
        for line in lines {
            books.apply(&line.commit, line.user_data);
        }
        let now = clock.now();
        let cloud = Self(Arc::new(CloudInner { clock, faults: Faults::default(), books: Mutex::new(books) }));
        let deletions: Vec<Timestamp> =
            cloud.lock().state.existing().filter_map(|entry| Some(entry.deletion?.gone_at)).collect();
        for gone_at in deletions.into_iter().filter(|gone_at| now < *gone_at) {
            cloud.commit_end_at(gone_at);
        }
        cloud
    }

    /// Makes one call.
    ///
    /// # Errors
    /// [`NoAnswer`] when there was no answer; a refusal is an answer.
    pub async fn call(
        &self,
        caller: impl Into<Caller<'_>>,
        request: Request,
    ) -> Result<Result<Reply, CloudRefusal>, NoAnswer> {
        let Caller { token, region } = caller.into();
        let (answer, answered) = oneshot::channel();
        // On its own task: the call continues when its caller dies or stops waiting.
        let (token, region) = (token.map(str::to_owned), region.map(str::to_owned));
        tokio::spawn(self.clone().serve(token, region, request, answer));
        answered.await.map_err(|_| NoAnswer::Lost("the connection was reset".to_owned()))
    }

    async fn serve(
        self,
        token: Option<String>,
        region: Option<String>,
        request: Request,
        answer: oneshot::Sender<Result<Reply, CloudRefusal>>,
    ) {
        let caller = Caller { token: token.as_deref(), region: region.as_deref() };
        let (call, settings, admitted) = self.arrive(caller, &request);
        let fault = if admitted.is_ok() { self.fault_of(&call) } else { None };
        let delay = match &fault {
            Some(Fault::Delay { by }) => settings.latency + *by,
            _ => settings.latency,
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Err(refusal) = admitted {
            self.record(call, CallOutcome::Refused(refusal.code), None);
            let _ = answer.send(Err(refusal));
            return;
        }
        // The caller may have stopped waiting before the answer is dropped or sent; both are fine.
        match &fault {
            Some(Fault::Reset) => {
                drop(answer);
                self.record(call, CallOutcome::Lost, fault);
            }
            Some(Fault::LateEffect { by }) => {
                drop(answer);
                tokio::time::sleep(*by).await;
                let _ = self.perform(caller, call, request, fault);
            }
            Some(Fault::Refuse { code, retry_after_seconds }) => {
                let refusal = CloudRefusal {
                    code: *code,
                    message: "injected before any effect".to_owned(),
                    retry_after_seconds: *retry_after_seconds,
                };
                self.record(call, CallOutcome::Refused(*code), fault.clone());
                let _ = answer.send(Err(refusal));
            }
            Some(Fault::EffectThenError) => {
                let _ = self.perform(caller, call, request, fault);
                let message = "injected after the effect";
                let _ = answer.send(Err(CloudRefusal::new(Code::InternalError, message)));
            }
            Some(Fault::EffectThenSilence) => {
                let _ = self.perform(caller, call, request, fault);
                tokio::time::sleep(settings.call_bound).await;
                drop(answer);
            }
            Some(
                Fault::Delay { .. }
                | Fault::HideNew { .. }
                | Fault::NotFound
                | Fault::Linger { .. }
                | Fault::ClaimGone
                | Fault::Dies { .. }
                | Fault::NeverBoots
                | Fault::BootsLate { .. },
            )
            | None => {
                let reply = self.perform(caller, call, request, fault);
                let _ = answer.send(reply);
            }
        }
    }

    fn arrive(
        &self,
        caller: Caller<'_>,
        request: &Request,
    ) -> (IncomingCall, Settings, Result<(), CloudRefusal>) {
        let operation = request.operation();
        let mut books = self.lock();
        let now = self.0.clock.now();
        let mut which = request.which();
        let Books { state, settings, .. } = &mut *books;
        state.count_call(&which, settings.reach_of(caller), operation, now);
        // A rule may name an instance that the call identifies by its id only.
        if let Some(entry) = which.id.as_ref().and_then(|id| books.state.by_id(id)) {
            which.name.get_or_insert_with(|| entry.name.clone());
            which.key = which.key.or_else(|| entry.key.clone());
        }
        let call = IncomingCall { number: books.calls.begin(operation), operation, which, arrived: now };
        let admitted = books.admit(caller.token, now);
        (call, books.settings.clone(), admitted)
    }

    fn fault_of(&self, call: &IncomingCall) -> Option<Fault> {
        let schedule = self.lock().schedule.clone();
        let drawn = || schedule.as_ref()?.decide(call).filter(|fault| fault.fits(call.operation));
        self.0.faults.take(call).or_else(drawn)
    }

    fn perform(
        &self,
        caller: Caller<'_>,
        call: IncomingCall,
        request: Request,
        fault: Option<Fault>,
    ) -> Result<Reply, CloudRefusal> {
        let mut books = self.lock();
        let now = self.0.clock.now();
        books.commit_ended(now);
        let decided =
            books.authorise(caller.token).and_then(|()| books.decide(caller, &request, now, fault.as_ref()));
        let done = decided.and_then(|effect| {
            books.carry_out(&effect, user_data(&request))?;
            let reply = books.reply(caller, &request, &effect, now);
            Ok((effect, reply))
        });
        drop(books);
        let (outcome, reply) = match done {
            Err(refusal) => (CallOutcome::Refused(refusal.code), Err(refusal)),
            Ok((effect, reply)) => {
                self.schedule_consequences(effect.commit, fault.as_ref());
                (effect.outcome, Ok(reply))
            }
        };
        self.record(call, outcome, fault);
        reply
    }

    /// Schedules what follows from a commit: the end of a deletion, or an early death.
    fn schedule_consequences(&self, commit: Option<LedgerCommit>, fault: Option<&Fault>) {
        match (commit, fault) {
            (Some(LedgerCommit::DeletionBegun { deletion, .. }), _) => self.commit_end_at(deletion.gone_at),
            (Some(LedgerCommit::Made { entry }), Some(Fault::Dies { after })) => {
                self.kill_at(entry.id, later(entry.created, *after));
            }
            _ => {}
        }
    }

    fn record(&self, call: IncomingCall, outcome: CallOutcome, fault: Option<Fault>) {
        let record = CallRecord {
            number: call.number,
            operation: call.operation,
            which: call.which,
            arrived: call.arrived,
            decided: self.0.clock.now(),
            outcome,
            fault,
        };
        let schedule = {
            let mut books = self.lock();
            books.calls.end(record.clone());
            books.schedule.clone()
        };
        if let Some(schedule) = schedule {
            schedule.decided(&record);
        }
    }

    /// Commits the end of a deletion at its time. Outside a runtime (a ledger opened for reading)
    /// no task waits: the ledger judges by the clock, and the next call makes the commit.
    fn commit_end_at(&self, moment: Timestamp) {
        let (cloud, clock) = (Arc::downgrade(&self.0), self.0.clock.clone());
        spawn(async move {
            clock.sleep_until(moment).await;
            if let Some(cloud) = Self::upgrade(&cloud) {
                let now = cloud.0.clock.now();
                cloud.lock().commit_ended(now);
            }
        });
    }

    fn kill_at(&self, id: ProviderId, moment: Timestamp) {
        let (cloud, clock) = (Arc::downgrade(&self.0), self.0.clock.clone());
        spawn(async move {
            clock.sleep_until(moment).await;
            if let Some(cloud) = Self::upgrade(&cloud) {
                // The instance may have been deleted before.
                let _ = cloud.kill(&id);
            }
        });
    }

    fn upgrade(inner: &Weak<CloudInner>) -> Option<Self> {
        inner.upgrade().map(Self)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(task);
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("alive", &self.alive()).finish_non_exhaustive()
    }
}
