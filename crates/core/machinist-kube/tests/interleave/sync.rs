//! The locks, notices and clock that the queue and the barrier use, under loom's control.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Add;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::Condvar;
use loom::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Maximum number of interruptions of threads in one run. Two interruptions reveal almost all
/// concurrency errors, and each additional one multiplies the number of runs by about ten. A switch
/// at which a thread has to wait is not counted.
pub(crate) const PREEMPTIONS: usize = 2;

/// Runs the scenario in all orders of its threads, within the limit of interruptions.
pub(crate) fn in_every_order(scenario: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(PREEMPTIONS));
    model.check(move || {
        NOW.set(Duration::ZERO);
        SLEEPERS.take();
        scenario();
    });
}

/// tokio's `Notify`, with a switching point for loom before each of its operations.
#[derive(Default)]
pub(crate) struct Notify {
    notice: tokio::sync::Notify,
    turn: AtomicUsize,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.notice.notify_one();
    }

    pub(crate) async fn notified(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.notice.notified().await;
    }
}

/// Runs a future on this thread. loom's own `block_on` is not usable: its wakers are switching
/// points, and tokio clones wakers under a lock that loom does not know.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(parker.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = parker.woken.lock().expect("unpoisoned");
        while !*woken {
            woken = parker.changed.wait(woken).expect("unpoisoned");
        }
        *woken = false;
    }
}

/// Polls a future once and drops it, as `select!` does with a branch that did not complete.
pub(crate) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Parker::default()));
    match pin!(future).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().expect("unpoisoned") = true;
        self.changed.notify_one();
    }
}

thread_local! {
    // loom runs all threads of a model on one thread of the operating system.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static SLEEPERS: RefCell<Vec<(Instant, Waker)>> = const { RefCell::new(Vec::new()) };
}

/// A time of a clock that changes only in [`advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(NOW.get())
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

/// Advances the clock and wakes the sleepers that are due.
pub(crate) fn advance(duration: Duration) {
    NOW.set(NOW.get() + duration);
    let (due, later) = SLEEPERS.take().into_iter().partition(|(at, _)| *at <= Instant::now());
    SLEEPERS.set(later);
    let due: Vec<(Instant, Waker)> = due;
    due.into_iter().for_each(|(_, waker)| waker.wake());
}

pub(crate) fn sleep_until(at: Instant) -> impl Future<Output = ()> {
    Sleep(at)
}

struct Sleep(Instant);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 <= Instant::now() {
            return Poll::Ready(());
        }
        SLEEPERS.with_borrow_mut(|sleepers| sleepers.push((self.0, context.waker().clone())));
        Poll::Pending
    }
}
