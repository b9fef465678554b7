//! API servers that do not answer: the keys that wait for them, and the requests that notice their
//! return.
//!
//! A key whose request has no answer is decided again after a pause that doubles. After a long
//! outage that pause is long, too. So the runtime asks a server for its version while keys wait for
//! it, and the first answer wakes all of them. Without such keys it sends nothing.

use std::sync::Arc;
use std::time::Duration;

use machinist_kube::{Cluster, is_answer};
use tokio::time::{Instant, timeout};

use crate::contract::Contract;
use crate::runtime::Runtime;

/// The interval of the requests to a server for which keys wait.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A server that does not answer within this time is still away.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

impl<C: Contract> Runtime<C> {
    /// Asks the servers for which keys wait, in an endless loop.
    pub(crate) async fn tend_outages(self: Arc<Self>) {
        let Self { clients, .. } = &*self;
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            tokio::join!(
                self.ask_server(Cluster::Control, &clients.control),
                self.ask_server(Cluster::Target, &clients.target)
            );
        }
    }

    async fn ask_server(&self, cluster: Cluster, client: &kube::Client) {
        if !self.world.lock().outages.is_awaited(&cluster) {
            return;
        }
        let is_answer = match timeout(ANSWERS_WITHIN, client.apiserver_version()).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => is_answer(&error),
            Err(_) => false,
        };
        if !is_answer {
            return;
        }
        let keys = self.world.lock().outages.take(&cluster);
        tracing::info!(%cluster, keys = keys.len(), "The API server answers again");
        let now = Instant::now();
        keys.into_iter().for_each(|(key, delay)| self.queue.wake_at(key, now + delay));
    }
}
