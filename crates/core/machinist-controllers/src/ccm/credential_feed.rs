//! The credential of the cloud account, as a feed.
//!
//! A cloud controller manager has one account. Its credential comes from outside of the cluster
//! (a file or the environment) and may be renewed while the process runs. Like a watched kind, it
//! must be known before the first decision, and each change wakes the keys that need it.

use std::sync::Arc;

use futures::future::BoxFuture;
use machinist_kube::ObjectKey;
use machinist_kube::barrier::{Expect, Settled};
use machinist_runtime::{Feed, Question};

use super::contract::{Ccm, Runtime};
use super::credential::Versioned;
use super::seen::Seen;

pub(super) struct CredentialFeed;

impl CredentialFeed {
    const RESOURCE: &'static str = "credentials";
}

impl Feed<Ccm> for CredentialFeed {
    fn resource(&self) -> &'static str {
        Self::RESOURCE
    }

    fn len(&self, seen: &Seen) -> usize {
        usize::from(seen.credential.is_some())
    }

    fn is_synced(&self, seen: &Seen) -> bool {
        seen.credential.is_some()
    }

    fn is_unreadable(&self, _: &Seen, _: &ObjectKey) -> bool {
        false
    }

    fn watch(&self, runtime: Arc<Runtime>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut source = runtime.tools.credential.clone();
            loop {
                let current = source.borrow_and_update().clone();
                if let Some(current) = current {
                    take_in(&runtime, current);
                }
                if source.changed().await.is_err() {
                    // The program reads no more credentials. The last one stays valid.
                    return std::future::pending().await;
                }
            }
        })
    }

    fn read_once<'a>(&'a self, runtime: &'a Runtime) -> BoxFuture<'a, Result<(), kube::Error>> {
        Box::pin(async move {
            let current = runtime.tools.credential.borrow().clone();
            runtime.lock().seen.credential = current;
            Ok(())
        })
    }

    /// Nothing is written to a credential, so there is no write to ask about.
    fn ask_about<'a>(&'a self, _: &'a Runtime, _: &'a Expect, _: Question) -> BoxFuture<'a, Option<Settled>> {
        Box::pin(std::future::ready(None))
    }
}

/// Stores a credential, and wakes every key: a new credential may end an outage.
fn take_in(runtime: &Runtime, current: Versioned) {
    let mut world = runtime.lock();
    let is_other = world.seen.credential.as_ref().is_none_or(|old| old.version != current.version);
    if is_other {
        world.seen.credential = Some(current);
        // The failures belong to the old credential, so the new one is tried at once.
        world.seen.memory.account.list_failed = None;
        world.seen.memory.routes.list_failed = None;
        world.seen.memory.drift.failed = None;
        runtime.note_synced(&world);
    }
}
