//! The keys of the queue.

use std::fmt::{Debug, Display};
use std::time::Duration;

/// The key of one object, or of several objects that one pass decides about.
pub trait QueueKey: Clone + Ord + Debug + Display + Send + Sync + 'static {
    /// The name of the kind in metrics and `why`.
    fn kind(&self) -> &'static str;

    /// The shortest time between two passes over the key. A key that counts many objects uses it to
    /// collect several changes in one pass.
    fn min_interval(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the objects of the kind have no namespace.
    fn is_cluster_scoped(&self) -> bool {
        false
    }

    /// Returns the key for the path `/why/<kind>/<name>`. `namespace` is the namespace that the
    /// process serves.
    fn named(kind: &str, namespace: &str, name: &str) -> Option<Self>;
}
