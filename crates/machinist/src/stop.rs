//! When somebody asks the program to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first Ctrl-C or SIGTERM. From the call on these signals no longer kill the process, so whoever waits must end
/// soon; without a wait in progress they would be lost, so make one and keep it.
///
/// # Errors
/// When signals cannot be listened to.
pub(crate) fn requested() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
