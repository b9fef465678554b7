//! Panics, each kept to the object that it happened about.
//!
//! A panic is a bug of ours. It must not keep other objects from being looked at, and whoever mends it needs the place. Only
//! the panic hook of the process knows that, so [`note_places`] puts one before the hook that was there; it notes the place for
//! the thread that panicked, where whoever catches the panic picks it up.
//!
//! Deliberately absent: messages of panics outside planners. Planners never see a secret; everything else might quote one.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use futures::FutureExt;

/// What is known of a panic.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panicked {
    /// The file and line.
    pub at: String,
    /// What was said. May quote anything that the code could see.
    pub message: String,
}

thread_local! {
    static LAST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Lets panics be caught with their place from here on.
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

/// Runs it to its end, or to its panic.
///
/// What a panic may leave half done is a cache behind a lock or a write whose charge stays open: both are mended by looking
/// again, so unwinding is safe here.
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| last())
}

/// The same for what waits.
pub(crate) async fn catch_async<T>(run: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(run).catch_unwind().await.map_err(|_| last())
}

/// A panic is caught in the same poll, and so by the same thread, that it happened in.
fn last() -> Panicked {
    let unknown = || Panicked { at: "a place that nobody noted".to_owned(), message: String::new() };
    LAST.with_borrow_mut(Option::take).unwrap_or_else(unknown)
}
