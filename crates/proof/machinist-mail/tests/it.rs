//! Runs the Mail controller against the embedded API server. The process crashes at every request
//! and in every call.

#![expect(clippy::expect_used, reason = "a failing test reports the reason")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::client::Body;
use machinist_apiserver::{Config, Identity, Server};
use machinist_instance::{Error, ErrorKind};
use machinist_kube::{ClientOptions, ObjectKey, TokioClock, layer_client};
use machinist_mail::{Key, Letters, Mail, Mails};
use machinist_runtime::{Clients, Contract, Options, Running, decide, read_all, runtime_without_workers};
use serde_json::json;
use tower::{BoxError, Service};

const EPOCH: i64 = 1_800_000_000;

struct World {
    server: Server,
    mails: Api<Mail>,
    /// The same objects, as untyped JSON that a client writes.
    letters: Api<DynamicObject>,
    sent: Arc<Mutex<Vec<String>>>,
    /// The number of requests and calls before the process crashes.
    left: Arc<AtomicUsize>,
}

/// A service that simulates a crash at the last request, before or after its effect.
#[derive(Clone)]
struct Fuse<S> {
    inner: S,
    left: Arc<AtomicUsize>,
    after: bool,
}

fn burns(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
}

impl<S, B> Service<Request<Body>> for Fuse<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut inner, left, after) = (self.inner.clone(), self.left.clone(), self.after);
        Box::pin(async move {
            let dies = burns(&left);
            if dies && !after {
                std::future::pending::<()>().await;
            }
            std::future::poll_fn(|context| inner.poll_ready(context)).await.map_err(Into::into)?;
            let answer = inner.call(request).await.map_err(Into::into);
            if dies { std::future::pending().await } else { answer }
        })
    }
}

impl World {
    async fn new() -> Self {
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a valid time");
        let clock = machinist_apiserver::TokioClock::starting_at(epoch);
        let server = Server::new(Config { clock: Arc::new(clock), ..Config::default() });
        let user = kube::Client::new(server.service_as(Identity::admin()), "default");
        let object = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "mails.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Mail", "plural": "mails", "singular": "mail"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": object, "status": object}}},
                }],
            },
        });
        let crd: CustomResourceDefinition = serde_json::from_value(crd).expect("a valid definition");
        Api::all(user.clone()).create(&PostParams::default(), &crd).await.expect("the CRD is accepted");
        let mails = Api::namespaced(user.clone(), "default");
        let letters = Api::namespaced_with(user, "default", &ApiResource::erase::<Mail>(&()));
        Self { server, mails, letters, sent: Arc::default(), left: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    fn start(&self, after: bool) -> Running<Mails> {
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a valid time");
        let clock = Arc::new(TokioClock::starting_at(epoch));
        let mut options = ClientOptions::new("mail");
        options.clock = clock.clone();
        let inner = self.server.service_as(Identity::admin());
        let client = layer_client(Fuse { inner, left: self.left.clone(), after }, &options);
        let (sent, left) = (self.sent.clone(), self.left.clone());
        let post: machinist_mail::Post = Arc::new(move |to: String| {
            let (sent, left) = (sent.clone(), left.clone());
            Box::pin(async move {
                if to == "unknown@" {
                    return Err(Error::new(ErrorKind::Denied, "no such recipient"));
                }
                let dies = burns(&left);
                if !dies || after {
                    sent.lock().expect("no thread panicked with the lock").push(to);
                }
                if dies { std::future::pending().await } else { Ok(()) }
            })
        });
        let clients = Clients { control: client.clone(), target: client };
        Running::start(clients, Options { clock, ..Options::new("default", "mail") }, post, None)
    }

    async fn write(&self, name: &str, to: &str) {
        let mail = json!({
            "apiVersion": "example.com/v1", "kind": "Mail", "metadata": {"name": name}, "spec": {"to": to},
        });
        let mail = serde_json::from_value(mail).expect("a valid Mail");
        self.letters.create(&PostParams::default(), &mail).await.expect("the API server accepts the object");
    }

    async fn state(&self, name: &str) -> Option<String> {
        self.mails.get(name).await.expect("the Mail exists").status.and_then(|status| status.state)
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_sent_once_and_why_shows_the_result() {
    let world = World::new().await;
    let running = world.start(false);
    world.write("good", "a@").await;
    world.write("bad", "unknown@").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (world.state("good").await.as_deref(), world.state("bad").await.as_deref()),
        (Some("Sent"), Some("Failed"))
    );
    assert_eq!(*world.sent.lock().expect("no thread panicked with the lock"), ["a@"]);
    let why = |name: &str| {
        let key = Key(ObjectKey::new("default", name));
        running.inspector().why(&key).expect("the controller decided about the Mail").why.to_string()
    };
    assert!(why("good").starts_with("up to date"), "{}", why("good"));
    assert!(why("bad").contains("the post office rejected the letter"), "{}", why("bad"));
}

#[tokio::test(start_paused = true)]
async fn explain_works_without_a_controller() {
    let world = World::new().await;
    world.write("new", "a@").await;
    let never: machinist_mail::Post = Arc::new(|_| unreachable!("explain must not send a letter"));
    let client = kube::Client::new(world.server.service_as(Identity::admin()), "default");
    let clients = Clients { control: client.clone(), target: client };
    let runtime = runtime_without_workers::<Mails>(clients, Options::new("default", "why"), never);
    read_all(&runtime).await.expect("the API server answers");
    let key = Mails::key_named("mail", "default", "new").expect("a valid kind name");
    let explained = decide::<Mails, Letters>(&runtime, &key, &key.0).expect("the Mail exists");
    assert!(explained.why.to_string().contains("the letter is sent at most once"), "{}", explained.why);
    assert_eq!(explained.actions.len(), 1, "{:?}", explained.actions);
    assert_eq!(world.state("new").await, None, "explain must not write");
}

/// Crashes the process at each request and call in turn, and starts it again.
#[tokio::test(start_paused = true)]
async fn no_letter_is_sent_twice_after_a_crash_at_any_point() {
    let mut sent_at = Vec::new();
    for after in [false, true] {
        let mut point = 0;
        loop {
            let world = World::new().await;
            world.write("m", "a@").await;
            world.left.store(point, Ordering::Relaxed);
            let first = world.start(after);
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(first);
            if 0 < world.left.load(Ordering::Relaxed) {
                // The process finished all its work before the crash, so the sweep is complete.
                assert_eq!(world.state("m").await.as_deref(), Some("Sent"));
                break;
            }
            world.left.store(usize::MAX, Ordering::Relaxed);
            let _second = world.start(after);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let sent = world.sent.lock().expect("no thread panicked with the lock").len();
            let state = world.state("m").await.expect("the Mail has a final state");
            assert!(sent <= 1, "sent {sent} times after a crash at {point} (after the effect: {after})");
            let is_true = match state.as_str() {
                "Sent" => sent == 1,
                state => state == "Unknown",
            };
            assert!(is_true, "{state} but sent {sent} times, crash at {point} (after the effect: {after})");
            sent_at.push(sent);
            point += 1;
        }
        assert!(3 < point, "expected more than 3 crash points, got {point}")
    }
    assert!(
        sent_at.contains(&0) && sent_at.contains(&1),
        "expected crashes before and after the call, got {sent_at:?}"
    );
}
