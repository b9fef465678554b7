//! Catches panics, so that a panic about one object does not affect other objects.
//!
//! A panic is a bug of this program. A developer needs its place to fix it, and only the panic hook
//! of the process knows the place. So [`note_places`] installs a hook before the existing one. The
//! hook stores the place for the panicking thread, and [`catch`] reads it there.
//!
//! Deliberately absent: messages of panics outside planners. Planners never see a secret. The
//! messages of other code might quote one.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use futures::FutureExt;

/// The place and message of a panic.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panicked {
    /// File and line of the panic.
    pub at: String,
    /// The panic message. It may quote any data that the code could read.
    pub message: String,
}

thread_local! {
    static LAST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Installs the hook that stores the place of each panic.
pub(crate) fn note_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let at = info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
            let message = info.payload_as_str().unwrap_or_default().to_owned();
            LAST.with_borrow_mut(|last| *last = Some(Panicked { at, message }));
            before(info);
        }));
    });
}

/// Runs the function and catches its panic.
///
/// Unwinding is safe here. A panic can leave only a cache behind a lock or a write with an open
/// charge unfinished. The next pass corrects both.
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| last())
}

/// Awaits the future and catches its panic.
pub(crate) async fn catch_async<T>(run: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(run).catch_unwind().await.map_err(|_| last())
}

/// The last panic of this thread. A panic is caught in the same poll, and so on the same thread.
fn last() -> Panicked {
    let unknown = || Panicked { at: "an unknown place".to_owned(), message: String::new() };
    LAST.with_borrow_mut(Option::take).unwrap_or_else(unknown)
}
