//! Signals that ask the program to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Stream of Ctrl-C and SIGTERM. While a value of this type exists, these signals do not kill the
/// process.
pub(crate) struct Requests {
    interrupt: Signal,
    terminate: Signal,
}

impl Requests {
    /// Starts to listen for signals.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal. Signals since the last call count.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns a future that completes at the first Ctrl-C or SIGTERM.
///
/// From this call on, these signals no longer kill the process. The caller must keep polling the
/// future and stop soon after it completes, or signals have no effect.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub(crate) fn requested() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut requests = Requests::listen()?;
    Ok(async move { requests.next().await })
}
