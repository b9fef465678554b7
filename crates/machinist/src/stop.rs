//! When the program is asked to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM. As long as this exists these signals no longer kill the process.
pub(crate) struct Requests {
    interrupt: Signal,
    terminate: Signal,
}

impl Requests {
    /// Listens from now on.
    ///
    /// # Errors
    /// When signals cannot be listened to.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Completes at the next one since the last call.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Completes at the first Ctrl-C or SIGTERM. From the call on these signals no longer kill the process, so whoever waits must end
/// soon; without a wait in progress they would be lost, so make one and keep it.
///
/// # Errors
/// When signals cannot be listened to.
pub(crate) fn requested() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut requests = Requests::listen()?;
    Ok(async move { requests.next().await })
}
