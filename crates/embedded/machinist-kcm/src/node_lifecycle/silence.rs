//! Measures for how long each Node has been silent.
//!
//! A Node gives a sign of life by renewing its Lease, or by posting its status. Clocks differ, so
//! only changes of these timestamps count, and the time when we saw them: the silence of a Node is
//! the time since its last sign of life on our own monotonic clock. Time in which this process
//! could not listen (because it was stopped or starved) does not count. Otherwise one pause of this
//! process would declare every Node lost.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The last sign of life of each Node, by name.
#[derive(Debug)]
pub(crate) struct Silence {
    period: Duration,
    /// Total time of listening, up to the last tick.
    listened: Duration,
    last_tick: Instant,
    nodes: BTreeMap<String, Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    lease: Option<Timestamp>,
    heartbeat: Option<Timestamp>,
    /// Time of the last sign of life, on the scale of `listened`.
    at: Duration,
}

impl Silence {
    /// Starts listening. [`Silence::tick`] must be called once a period.
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, listened: Duration::ZERO, last_tick: Instant::now(), nodes: BTreeMap::new() }
    }

    /// Records that this process is still listening.
    pub(crate) fn tick(&mut self) {
        self.listened = self.listened_now();
        self.last_tick = Instant::now();
    }

    /// Records the renew time of a Node's Lease.
    pub(crate) fn hear_lease(&mut self, node: &str, renewed: Option<Timestamp>) {
        let now = self.listened_now();
        let heard = self.heard(node, now);
        if heard.lease != renewed {
            (heard.lease, heard.at) = (renewed, now);
        }
    }

    /// Records the heartbeat in a Node's status.
    pub(crate) fn hear_status(&mut self, node: &str, heartbeat: Option<Timestamp>) {
        let now = self.listened_now();
        let heard = self.heard(node, now);
        if heard.heartbeat != heartbeat {
            (heard.heartbeat, heard.at) = (heartbeat, now);
        }
    }

    /// Forgets a deleted Node; a new Node of the same name starts with no silence.
    pub(crate) fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Returns for how long the Node has been silent; zero for a Node without any record.
    pub(crate) fn of(&mut self, node: &str) -> Duration {
        let now = self.listened_now();
        now.saturating_sub(self.heard(node, now).at)
    }

    fn heard(&mut self, node: &str, now: Duration) -> &mut Heard {
        self.nodes.entry(node.to_owned()).or_insert_with(|| Heard { at: now, ..Heard::default() })
    }

    fn listened_now(&self) -> Duration {
        // One late tick is normal. Any longer delay is time in which this process could not listen.
        self.listened + self.last_tick.elapsed().min(self.period * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const PERIOD: Duration = Duration::from_secs(5);

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp::from_second(seconds).expect("a valid second"))
    }

    async fn listen_for(silence: &mut Silence, seconds: u64) {
        for _ in 0..seconds / PERIOD.as_secs() {
            advance(PERIOD).await;
            silence.tick();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_change_is_a_sign_of_life() {
        let mut silence = Silence::new(PERIOD);
        silence.hear_lease("a", at(0));
        listen_for(&mut silence, 30).await;
        silence.hear_lease("a", at(0));
        silence.hear_status("a", None);
        assert_eq!(silence.of("a").as_secs(), 30);
        silence.hear_lease("a", at(30));
        assert_eq!(silence.of("a").as_secs(), 0);
        listen_for(&mut silence, 10).await;
        silence.hear_status("a", at(40));
        assert_eq!(silence.of("a").as_secs(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_listening_does_not_count() {
        let mut silence = Silence::new(PERIOD);
        silence.hear_lease("a", at(0));
        advance(Duration::from_secs(3600)).await;
        assert_eq!(silence.of("a").as_secs(), 10);
        silence.tick();
        assert_eq!(silence.of("a").as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_node_starts_with_no_silence() {
        let mut silence = Silence::new(PERIOD);
        listen_for(&mut silence, 100).await;
        assert_eq!(silence.of("a").as_secs(), 0);
        listen_for(&mut silence, 20).await;
        assert_eq!(silence.of("a").as_secs(), 20);
        silence.forget("a");
        assert_eq!(silence.of("a").as_secs(), 0);
    }
}
