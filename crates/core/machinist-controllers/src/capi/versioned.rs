//! Cluster and Machine, in the version that the management cluster serves.
//!
//! Each version has its own stores, because it has its own URL. A process fills the stores of one
//! version, and the functions of [`super::seen`] read both.

use std::marker::PhantomData;
use std::sync::Arc;

use machinist_kube::Store;
use machinist_plan::capi::facts::{ClusterFacts, CoreMachineFacts};

/// Facts that were read in the version `V`.
#[derive(Debug)]
pub(crate) struct Core<V, F> {
    pub facts: Arc<F>,
    version: PhantomData<fn() -> V>,
}

impl<V, F> Core<V, F> {
    pub(crate) fn new(facts: F) -> Self {
        Self { facts: Arc::new(facts), version: PhantomData }
    }
}

/// The stores of one version.
#[derive(Debug)]
pub(crate) struct CoreStores<V> {
    pub clusters: Store<Core<V, ClusterFacts>>,
    pub machines: Store<Core<V, CoreMachineFacts>>,
}

impl<V> Default for CoreStores<V> {
    fn default() -> Self {
        Self { clusters: Store::new(&[]), machines: Store::new(&[]) }
    }
}
