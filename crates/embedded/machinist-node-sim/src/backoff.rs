//! How long a machine waits before it tries again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
/// A machine that cannot join costs the API server one request a minute.
const LONGEST: Duration = Duration::from_secs(60);

/// Doubles from a second to a minute. No jitter: equal simulations must stay equal, and thousands of machines that
/// fail together are not what this simulates.
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
