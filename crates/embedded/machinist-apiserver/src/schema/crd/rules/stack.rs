//! A separate stack for work that recurses as deeply as a text nests. A text may be hostile, and a
//! worker's stack is small.

use std::io;
use std::thread;

/// Bytes of a separate stack. The system provides only the part that is used.
const BYTES: usize = 256 << 20;

/// Does the work on a separate stack. Returns its result, or the panic with which it ended.
///
/// # Errors
/// If no thread can be started.
pub(super) fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<thread::Result<T>> {
    thread::scope(|scope| Ok(thread::Builder::new().stack_size(BYTES).spawn_scoped(scope, work)?.join()))
}
