//! A driver call that has begun: whether the call may still change the cloud.
//!
//! The process may be paused during a call, for example by SIGSTOP or by the host of a virtual
//! machine. An answer that arrived during the pause lets the driver continue with the next request,
//! although another process may lead by then. So the runtime checks lease and time before each
//! request that changes something, and not only when the call begins.

use std::time::Duration;

use machinist_core::READ_WITHIN;
use machinist_driver::Fence;
use machinist_kube::{Leadership, Moment, SharedClock};

/// The start and the limits of a call.
pub(crate) struct Begun {
    leadership: Option<Leadership>,
    clock: SharedClock,
    at: Moment,
    bound: Duration,
    /// When the object of the call was last read, if the call depends on that.
    read: Option<Moment>,
}

impl Begun {
    /// A call that begins now.
    pub(crate) fn now(leadership: Option<Leadership>, clock: SharedClock, bound: Duration) -> Self {
        Self { leadership, at: Moment::now(Some(&clock)), clock, bound, read: None }
    }

    /// A call whose object was read at that moment.
    pub(crate) fn after_read(self, read: Moment) -> Self {
        Self { read: Some(read), ..self }
    }

    pub(crate) fn fence(self) -> Fence {
        Fence::new(move || self.may_change())
    }

    fn may_change(&self) -> Result<(), &'static str> {
        if self.at.is_older_than(self.bound, &self.clock) {
            return Err("the time of the call has passed");
        }
        // The process may have been suspended between the read and the start of the call.
        let last = READ_WITHIN.saturating_add(self.bound);
        if self.read.is_some_and(|read| read.is_older_than(last, &self.clock)) {
            return Err("the object of the call was read too long ago");
        }
        if !self.leadership.as_ref().is_none_or(Leadership::may_continue) {
            return Err("the lease was not renewed within its renew deadline");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use jiff::Timestamp;
    use machinist_driver::may_change;
    use machinist_instance::ErrorKind;
    use machinist_kube::{Clock, TokioClock};
    use tokio::time::advance;

    use super::*;

    const BOUND: Duration = Duration::from_secs(60);

    fn epoch() -> Timestamp {
        "2027-01-15T08:00:00Z".parse().expect("a time")
    }

    struct Hand(Mutex<Timestamp>);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            *self.0.lock().expect("no panic")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_call_changes_nothing_after_its_bound() {
        let clock = Arc::new(TokioClock::starting_at(epoch()));
        let begun = Begun::now(Some(Leadership::unopposed()), clock, BOUND);
        let call = async {
            advance(BOUND - Duration::from_millis(1)).await;
            assert_eq!(may_change(), Ok(()));
            advance(Duration::from_millis(1)).await;
            may_change()
        };
        let error = begun.fence().around(call).await.expect_err("too late");
        assert_eq!(error.kind, ErrorKind::Unavailable, "the request is not sent, and has no effect");
        assert_eq!(may_change(), Ok(()), "the fence ends with the call");
    }

    /// A paused virtual machine: the monotonic clock stands still.
    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_reveals_a_pause_too() {
        let clock = Arc::new(Hand(Mutex::new(epoch())));
        let begun = Begun::now(None, clock.clone(), BOUND);
        assert_eq!(begun.may_change(), Ok(()));
        *clock.0.lock().expect("no panic") = epoch() + BOUND;
        assert_eq!(begun.may_change(), Err("the time of the call has passed"));
        *clock.0.lock().expect("no panic") = epoch() - BOUND;
        assert_eq!(begun.may_change(), Ok(()), "a correction backwards is not a pause");
    }

    /// The process was suspended after it had read the object, and another one decided meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_call_for_an_old_reading_changes_nothing() {
        let clock: SharedClock = Arc::new(TokioClock::starting_at(epoch()));
        let read = Moment::now(Some(&clock));
        advance(READ_WITHIN + BOUND).await;
        let begun = Begun::now(None, clock.clone(), BOUND);
        assert_eq!(begun.may_change(), Ok(()), "a call that needs no reading");
        let begun = begun.after_read(read);
        assert_eq!(begun.may_change(), Err("the object of the call was read too long ago"));
    }
}
