//! The feed of a watched kind: its watch, its lists, and the questions about its writes.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::ListParams;
use machinist_kube::barrier::{Expect, Settled};
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_kube::{Cluster, Delta, ObjectKey, is_answer};
use tokio::time::Instant;

use crate::contract::Contract;
use crate::feed::{Fed, Feed, Question};
use crate::measurement::Measurement;
use crate::outcomes::ask_api;
use crate::runtime::Runtime;
use crate::take_in::{read_kind, take_in};
use crate::watch_log;

/// Creates the feed of a kind.
pub fn feed<C: Contract, F: Fed<C>>() -> Box<dyn Feed<C>> {
    Box::new(Of::<F>(PhantomData))
}

struct Of<F>(PhantomData<fn() -> F>);

impl<C: Contract, F: Fed<C>> Feed<C> for Of<F> {
    fn resource(&self) -> &'static str {
        F::RESOURCE
    }

    fn len(&self, seen: &C::Seen) -> usize {
        F::store(seen).len()
    }

    fn is_synced(&self, seen: &C::Seen) -> bool {
        F::store(seen).synced()
    }

    fn is_unreadable(&self, seen: &C::Seen, key: &ObjectKey) -> bool {
        F::store(seen).is_unreadable(key)
    }

    fn cluster(&self) -> Option<Cluster> {
        Some(F::cluster())
    }

    fn has_deadlines(&self) -> bool {
        F::HAS_DEADLINES
    }

    fn is_deferred(&self) -> bool {
        F::IS_DEFERRED
    }

    fn is_fresh(&self, seen: &C::Seen) -> bool {
        F::store(seen).is_fresh()
    }

    fn heard_at(&self, seen: &C::Seen) -> Option<Instant> {
        F::store(seen).heard_at()
    }

    fn version(&self, seen: &C::Seen) -> Option<u64> {
        Some(F::store(seen).observed_rv())
    }

    fn doubt(&self, seen: &mut C::Seen) {
        F::store_mut(seen).doubt();
    }

    fn watch(&self, runtime: Arc<Runtime<C>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if F::IS_DEFERRED {
                runtime.listed_first.wait().await;
            }
            let (api, mut options) = F::watched(&runtime);
            let log = watch_log::of::<F::Object>(F::RESOURCE);
            let noted = runtime.clone();
            options.observer.get_or_insert_with(|| {
                Arc::new(move |note| {
                    noted.note_watch(F::RESOURCE, &note);
                    log(note);
                })
            });
            let timed = runtime.clone();
            options.timer.get_or_insert_with(|| {
                Arc::new(move |timing| {
                    timed.note_measurement(&Measurement::Watch { resource: F::RESOURCE, timing });
                })
            });
            options.clock.get_or_insert_with(|| runtime.options.clock.clone());
            options.relist = Some(F::store(&runtime.world.lock().seen).relist_signal());
            let sink = |delta: Delta<F>| take_in(&runtime, delta);
            let fatal = run_watch(api, options, |object: F::Object| F::parse(&object), sink).await;
            tracing::error!(
                kind = F::RESOURCE,
                error = %fatal,
                cause = %fatal.source,
                "A watch failed permanently"
            );
        })
    }

    fn read_once<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, Result<(), kube::Error>> {
        Box::pin(read_kind::<C, F>(runtime))
    }

    fn is_answered<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let (api, WatchOptions { field_selector, label_selector, .. }) = F::watched(runtime);
            let params =
                ListParams { field_selector, label_selector, limit: Some(1), ..ListParams::default() };
            match api.list_metadata(&params).await {
                Ok(_) => true,
                Err(error) => is_answer(&error),
            }
        })
    }

    fn ask_about<'a>(
        &'a self,
        runtime: &'a Runtime<C>,
        expect: &'a Expect,
        question: Question,
    ) -> BoxFuture<'a, Option<Settled>> {
        Box::pin(ask_api::<C, F>(runtime, expect, question))
    }
}
