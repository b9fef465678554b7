//! Suspends the tasks of a process: while the gate is closed, none of them is polled. Timers and
//! answers wake them, and they continue when the gate opens, as after SIGSTOP and SIGCONT.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use machinist_controllers::{Task, Wrap};

use super::fuse::Fuse;

/// Stops and continues the tasks behind it. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    fuse: Option<Arc<Fuse>>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    /// An open gate that stays closed forever once the tasks behind it have blown the fuse.
    pub fn with_fuse(fuse: Arc<Fuse>) -> Self {
        Self { fuse: Some(fuse), ..Self::default() }
    }

    /// Stops all tasks.
    pub fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Whether the tasks are stopped.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Lets all tasks continue.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_closed = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Puts each task of a process behind this gate.
    pub fn wrap(&self) -> Wrap {
        let gate = self.clone();
        Wrap::with(move |task| Box::pin(Gated { gate: gate.clone(), task }))
    }

    /// Puts one task behind this gate.
    pub fn around(&self, task: impl Future<Output = ()> + Send + 'static) -> Task {
        Box::pin(Gated { gate: self.clone(), task: Box::pin(task) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Gated {
    gate: Gate,
    task: Task,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.gate.lock();
            if state.is_closed {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        if self.gate.fuse.as_ref().is_some_and(|fuse| !fuse.holds_poll()) {
            return Poll::Pending;
        }
        self.task.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_suspended_task_continues_where_it_stopped() {
        let (gate, count) = (Gate::default(), Arc::new(AtomicU32::new(0)));
        let counter = count.clone();
        tokio::spawn(gate.around(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }));
        tokio::time::sleep(Duration::from_millis(2500)).await;
        gate.close();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        gate.open();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        // The timer that ended meanwhile fires once, and the next one begins then.
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }
}
