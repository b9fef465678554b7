//! Letters against an embedded server, with a process that dies at every request and in every call.

#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

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
    /// The same, with everything that a client writes.
    letters: Api<DynamicObject>,
    sent: Arc<Mutex<Vec<String>>>,
    /// Requests and calls that may still be made before the process dies.
    left: Arc<AtomicUsize>,
}

/// Dies with the last request: before or after it took effect.
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
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a moment");
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
        let crd: CustomResourceDefinition = serde_json::from_value(crd).expect("a definition");
        Api::all(user.clone()).create(&PostParams::default(), &crd).await.expect("accepted");
        let mails = Api::namespaced(user.clone(), "default");
        let letters = Api::namespaced_with(user, "default", &ApiResource::erase::<Mail>(&()));
        Self { server, mails, letters, sent: Arc::default(), left: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    fn start(&self, after: bool) -> Running<Mails> {
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a moment");
        let clock = Arc::new(TokioClock::starting_at(epoch));
        let mut options = ClientOptions::new("mail");
        options.clock = clock.clone();
        let inner = self.server.service_as(Identity::admin());
        let client = layer_client(Fuse { inner, left: self.left.clone(), after }, &options);
        let (sent, left) = (self.sent.clone(), self.left.clone());
        let post: machinist_mail::Post = Arc::new(move |to: String| {
            let (sent, left) = (sent.clone(), left.clone());
            Box::pin(async move {
                if to == "nobody@" {
                    return Err(Error::new(ErrorKind::Denied, "no such recipient"));
                }
                let dies = burns(&left);
                if !dies || after {
                    sent.lock().expect("no panic").push(to);
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
        let mail = serde_json::from_value(mail).expect("a Mail");
        self.letters.create(&PostParams::default(), &mail).await.expect("accepted");
    }

    async fn state(&self, name: &str) -> Option<String> {
        self.mails.get(name).await.expect("it is there").status.and_then(|status| status.state)
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_sent_once_and_its_why_says_so() {
    let world = World::new().await;
    let running = world.start(false);
    world.write("good", "a@").await;
    world.write("bad", "nobody@").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (world.state("good").await.as_deref(), world.state("bad").await.as_deref()),
        (Some("Sent"), Some("Failed"))
    );
    assert_eq!(*world.sent.lock().expect("no panic"), ["a@"]);
    let why = |name: &str| {
        let key = Key(ObjectKey::new("default", name));
        running.inspector().why(&key).expect("it was decided about").why.to_string()
    };
    assert!(why("good").starts_with("up to date"), "{}", why("good"));
    assert!(why("bad").contains("the post office refused the letter"), "{}", why("bad"));
}

#[tokio::test(start_paused = true)]
async fn why_is_told_without_a_process() {
    let world = World::new().await;
    world.write("new", "a@").await;
    let never: machinist_mail::Post = Arc::new(|_| unreachable!("nothing is sent"));
    let client = kube::Client::new(world.server.service_as(Identity::admin()), "default");
    let clients = Clients { control: client.clone(), target: client };
    let runtime = runtime_without_workers::<Mails>(clients, Options::new("default", "why"), never);
    read_all(&runtime).await.expect("the server answers");
    let key = Mails::key_named("mail", "default", "new").expect("the name of a kind");
    let explained = decide::<Mails, Letters>(&runtime, &key, &key.0).expect("it is there");
    assert!(explained.why.to_string().contains("the letter is sent at most once"), "{}", explained.why);
    assert_eq!(explained.actions.len(), 1, "{:?}", explained.actions);
    assert_eq!(world.state("new").await, None, "nothing is written");
}

/// Dies at each request and call in turn, and is started again.
#[tokio::test(start_paused = true)]
async fn no_letter_is_sent_twice_wherever_the_process_dies() {
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
                // It had nothing left to do: the sweep is past the end.
                assert_eq!(world.state("m").await.as_deref(), Some("Sent"));
                break;
            }
            world.left.store(usize::MAX, Ordering::Relaxed);
            let _second = world.start(after);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let sent = world.sent.lock().expect("no panic").len();
            let state = world.state("m").await.expect("it has come to an end");
            assert!(sent <= 1, "sent {sent} times when it died at {point}, after: {after}");
            let is_true = match state.as_str() {
                "Sent" => sent == 1,
                state => state == "Unknown",
            };
            assert!(is_true, "{state} with {sent} sent, died at {point}, after: {after}");
            sent_at.push(sent);
            point += 1;
        }
        assert!(3 < point, "{point} points")
    }
    assert!(
        sent_at.contains(&0) && sent_at.contains(&1),
        "the sweep reaches both sides of the call: {sent_at:?}"
    );
}
