//! The delays between a machine's attempts to join.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
/// A machine that cannot join sends the API server one request a minute.
const LONGEST: Duration = Duration::from_secs(60);

/// Doubles the delay from a second to a minute. No jitter: equal simulations must stay equal, and
/// this crate does not simulate thousands of machines that fail together.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(FIRST)
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}
