//! Requests by mail: each is sent at most once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use machinist_controllers::capi::{CapiOptions, CoreApi, Key, MailOptions, Running, Serves, explain};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_instance::{Error, ErrorKind};
use machinist_kube::ObjectKey;
use machinist_mailer::{Attempt, Envelope, Mailer};
use serde_json::{Value, json};

use super::{NAMESPACE, World, burns, condition, pass};

/// The promise of the mail service.
pub(super) const SHOWN_WITHIN: Duration = Duration::from_secs(1800);

/// A mail service in memory. It outlives the provider.
#[derive(Clone, Default)]
pub(super) struct Post {
    /// The accepted mails, by Message-Id, each with the number of times it was accepted.
    pub(super) accepted: Arc<Mutex<BTreeMap<String, (usize, Envelope)>>>,
    fault: Arc<Mutex<Fault>>,
    pub(super) calls: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Fault {
    #[default]
    None,
    /// Rejects each mail.
    Rejects,
    /// Accepts no mail, and asks for five minutes of silence.
    Throttles,
    /// Cannot be reached.
    CannotBeReached,
    /// Accepts the mail and then fails.
    FailsAfterwards,
    /// Accepts the mail and then fails. Look-ups do not show the mail yet.
    FailsAfterwardsAndHides,
    /// Accepts the mail. Look-ups do not show it yet.
    AcceptsAndHides,
    /// Fails before it accepts the mail, without saying so.
    FailsBefore,
    /// Fails without saying whether it accepted the mail, and permits no look-up.
    CannotBeAsked,
    /// Accepts the mail. Before the answer arrives, the clock of the provider steps ten minutes
    /// ahead. Look-ups do not show the mail yet.
    AcceptsAndHidesInAStep,
}

impl Post {
    pub(super) fn fails_with(&self, fault: Fault) {
        *self.fault.lock().expect("no panic") = fault;
    }

    fn fault(&self) -> Fault {
        *self.fault.lock().expect("no panic")
    }

    /// The number of times that each mail was accepted.
    pub(super) fn times(&self) -> Vec<usize> {
        self.accepted.lock().expect("no panic").values().map(|(times, _)| *times).collect()
    }

    fn accept(&self, mail: &Envelope) {
        let mut accepted = self.accepted.lock().expect("no panic");
        accepted.entry(mail.message_id.clone()).or_insert((0, mail.clone())).0 += 1;
    }

    /// Accepts a mail of an earlier provider.
    pub(super) fn has(&self, message_id: &str) {
        self.accept(&Envelope {
            message_id: message_id.to_owned(),
            requester: "dev@example.com".to_owned(),
            recipients: vec!["ops@example.com".to_owned()],
            subject: String::new(),
            text: String::new(),
            uid: String::new(),
            purpose: "create",
        });
    }
}

/// The mail service as one process sees it: it crashes at some call.
struct Client {
    post: Post,
    ahead: Arc<AtomicI64>,
    left: Arc<AtomicUsize>,
    after: bool,
}

impl Mailer for Client {
    fn send<'a>(&'a self, mail: &'a Envelope) -> Attempt<'a, ()> {
        Box::pin(async move {
            self.post.calls.fetch_add(1, Ordering::Relaxed);
            let dies = burns(&self.left);
            if dies && !self.after {
                std::future::pending::<()>().await;
            }
            let unknown = || Err(Error::new(ErrorKind::Ambiguous, "503"));
            let answer = match self.post.fault() {
                Fault::None | Fault::AcceptsAndHides => {
                    self.post.accept(mail);
                    Ok(())
                }
                Fault::Rejects => Err(Error::new(ErrorKind::InvalidSpec, "to: not a mail address")),
                Fault::Throttles => {
                    let retry_after = Some(Duration::from_secs(300));
                    Err(Error::new(ErrorKind::Throttled { retry_after }, "429"))
                }
                Fault::CannotBeReached => Err(Error::new(ErrorKind::Unavailable, "cannot connect")),
                Fault::FailsAfterwards | Fault::FailsAfterwardsAndHides => {
                    self.post.accept(mail);
                    unknown()
                }
                Fault::FailsBefore | Fault::CannotBeAsked => unknown(),
                Fault::AcceptsAndHidesInAStep => {
                    self.post.accept(mail);
                    self.ahead.store(600, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    Ok(())
                }
            };
            if dies { std::future::pending().await } else { answer }
        })
    }

    fn look_up<'a>(&'a self, message_id: &'a str) -> Attempt<'a, bool> {
        Box::pin(async move {
            if burns(&self.left) {
                std::future::pending::<()>().await;
            }
            if self.post.fault() == Fault::CannotBeAsked {
                return Err(Error::new(ErrorKind::Denied, "a sending key cannot read events"));
            }
            let is_shown = !matches!(
                self.post.fault(),
                Fault::FailsAfterwardsAndHides | Fault::AcceptsAndHides | Fault::AcceptsAndHidesInAStep
            );
            Ok(is_shown && self.post.accepted.lock().expect("no panic").contains_key(message_id))
        })
    }

    fn shown_within(&self) -> Duration {
        SHOWN_WITHIN
    }
}

fn spec_of_request() -> Value {
    json!({
        "priority": "Urgent", "request": "A small one.", "requester": "dev@example.com",
        "fulfilment": "Assume",
    })
}

impl World {
    pub(super) fn mailgun(&self, post: &Post, process: &str) -> Running {
        self.start(self.mailgun_options(post, process), CoreApi::Beta2)
    }

    pub(super) fn mailgun_options(&self, post: &Post, process: &str) -> Serves {
        let (ahead, left) = (self.ahead.clone(), self.left.clone());
        let mailer = Client { post: post.clone(), ahead, left, after: self.after };
        let options = MailOptions {
            mailer: Arc::new(mailer),
            domain: "mail.example.com".to_owned(),
            service: "a".to_owned(),
            recipient: "ops@example.com".to_owned(),
            recipient_domains: vec!["example.com".to_owned(), "example.org".to_owned()],
            credential: "a".to_owned(),
            process: process.to_owned(),
        };
        Serves::Mailgun(options)
    }

    /// Creates a Cluster with its request.
    pub(super) async fn request(&self, name: &str) {
        self.create("MailgunCluster", name, spec_of_request()).await;
        self.cluster(name, "MailgunCluster").await;
        self.core_round().await;
    }

    pub(super) async fn mail_of(&self, name: &str) -> Value {
        self.get("MailgunCluster", name).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_once_and_fulfilled() {
    let (world, post) = (World::new().await, Post::default());
    let _running = world.mailgun(&post, "one");
    world
        .create("MailgunCluster", "alone", json!({"priority": "Urgent", "request": "x", "requester": "a@b"}))
        .await;
    world.request("hello").await;
    world.run_for(60).await;
    assert_eq!(post.times(), [1], "without an owner no mail is sent");
    let object = world.mail_of("hello").await;
    assert_eq!(condition(&object, "Ready").0, "True", "{object}");
    assert_eq!(object["status"]["initialization"]["provisioned"], true);
    assert_eq!(object["spec"]["messageID"], object["status"]["messageID"]);
    let accepted = post.accepted.lock().expect("no panic");
    let (_, mail) = accepted.values().next().expect("a mail");
    assert_eq!(mail.subject, "[Urgent] New Cluster hello requested");
    assert_eq!(mail.text, "Hello! One cluster please.\n\nA small one.\n");
    assert_eq!(
        (mail.requester.as_str(), mail.recipients.as_slice()),
        ("dev@example.com", &["ops@example.com".to_owned()][..])
    );
    assert!(mail.message_id.starts_with("machinist.mailguncluster.default.hello."), "{}", mail.message_id);
}

#[tokio::test(start_paused = true)]
async fn an_explanation_needs_no_controller_and_sends_nothing() {
    let (world, post) = (World::new().await, Post::default());
    world.request("hello").await;
    let clients = Clients { control: world.user.clone(), target: world.user.clone() };
    let process = ProcessOptions { clock: world.clock.clone(), ..ProcessOptions::new(NAMESPACE, "why") };
    let options = CapiOptions::new(world.mailgun_options(&post, "why"), CoreApi::Beta2);
    let before = world.mail_of("hello").await;
    let key = Key::MailgunCluster(ObjectKey::new(NAMESPACE, "hello"));
    let explained = explain(clients, process, options, &key).await.expect("the request exists");
    assert!(!explained.actions.is_empty(), "{}", explained.why);
    assert_eq!(world.mail_of("hello").await, before, "an explanation writes nothing");
    assert_eq!(post.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_mail_is_sent_after_a_correction() {
    let (world, post) = (World::new().await, Post::default());
    post.fails_with(Fault::Rejects);
    let _running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(600).await;
    assert_eq!(post.calls.load(Ordering::Relaxed), 1, "the same mail would be rejected again");
    let object = world.mail_of("hello").await;
    assert_eq!(condition(&object, "RequestSent").1, "Rejected", "{object}");
    let events = world.events("Rejected").await;
    assert!(matches!(&events[..], [event] if event.starts_with("MailgunCluster hello: ")), "{events:?}");
    post.fails_with(Fault::None);
    let correction = json!({"spec": {"recipients": ["human@example.com"]}});
    world.merge("MailgunCluster", "hello", correction).await;
    world.run_for(30).await;
    assert_eq!(post.times(), [1]);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_service_is_asked_until_it_answers() {
    let (world, post) = (World::new().await, Post::default());
    post.fails_with(Fault::CannotBeReached);
    let _running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(600).await;
    let object = world.mail_of("hello").await;
    assert_eq!(condition(&object, "RequestSent"), ("False".to_owned(), "Unavailable".to_owned()), "{object}");
    let status = |path: &&String| path.ends_with("/hello/status");
    let writes = world.writes.lock().expect("no panic").iter().filter(status).count();
    assert!(writes <= 3, "{writes} writes of a state that does not change");
    assert_eq!(world.events("Unavailable").await.len(), 1, "one Event, although the state lasts");
    post.fails_with(Fault::None);
    world.run_for(600).await;
    assert_eq!(post.times(), [1]);
    assert_eq!(condition(&world.mail_of("hello").await, "RequestSent").1, "Sent");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_looked_up() {
    for (fault, calls) in [(Fault::FailsAfterwards, 1), (Fault::FailsBefore, 2)] {
        let (world, post) = (World::new().await, Post::default());
        post.fails_with(fault);
        let _running = world.mailgun(&post, "one");
        world.request("hello").await;
        world.run_for(5).await;
        post.fails_with(Fault::None);
        world.run_for(2400).await;
        assert_eq!(post.times(), [1]);
        assert_eq!(post.calls.load(Ordering::Relaxed), calls);
        assert_eq!(condition(&world.mail_of("hello").await, "RequestSent").1, "Sent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_decides_if_the_service_cannot_be_asked() {
    let (world, post) = (World::new().await, Post::default());
    post.fails_with(Fault::CannotBeAsked);
    let running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(900).await;
    assert_eq!(post.calls.load(Ordering::Relaxed), 1, "never sent again without a decision");
    let why = running.inspector().whys();
    assert!(why.iter().any(|(_, record)| record.why.reason.code() == "MailOnHold"), "{why:?}");
    post.fails_with(Fault::None);
    world
        .merge(
            "MailgunCluster",
            "hello",
            json!({"metadata": {"annotations": {"machinist.dev/resend": "yes"}}}),
        )
        .await;
    world.run_for(10).await;
    assert_eq!(post.times(), [1]);
    let object = world.mail_of("hello").await;
    assert!(object["metadata"]["annotations"]["machinist.dev/resend"].is_null(), "{object}");
}

/// Two processes without leader election.
#[tokio::test(start_paused = true)]
async fn two_processes_send_one_mail() {
    let (world, post) = (World::new().await, Post::default());
    let _one = world.mailgun(&post, "one");
    let _two = world.mailgun(&post, "two");
    for name in ["a", "b", "c", "d"] {
        world.request(name).await;
    }
    world.run_for(900).await;
    assert_eq!(post.times(), [1, 1, 1, 1]);
}

/// A backup keeps spec and annotations, but neither status nor UID.
#[tokio::test(start_paused = true)]
async fn a_restored_request_is_not_sent_again() {
    let (world, post) = (World::new().await, Post::default());
    let running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(10).await;
    drop(running);
    let old = world.mail_of("hello").await;
    for keeps_annotations in [true, false] {
        world.delete("MailgunCluster", "hello").await;
        let mut metadata = json!({"name": "hello"});
        if keeps_annotations {
            metadata["annotations"] = old["metadata"]["annotations"].clone();
        }
        world.create_with("MailgunCluster", metadata, old["spec"].clone()).await;
        let running = world.mailgun(&post, "two");
        world.run_for(3000).await;
        drop(running);
        assert_eq!(post.times(), [1]);
        let object = world.mail_of("hello").await;
        assert_eq!(condition(&object, "Ready").0, "True", "{object}");
    }
}

/// The store was restored to a moment before the intent. The object keeps its UID, so its mail has
/// the same Message-Id.
#[tokio::test(start_paused = true)]
async fn a_mail_from_before_a_restore_is_not_sent_again() {
    let (world, post) = (World::new().await, Post::default());
    world.request("hello").await;
    let uid = world.mail_of("hello").await["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let message_id = format!("machinist.mailguncluster.default.hello.{uid}.create@mail.example.com");
    post.has(&message_id);
    pass(60).await;
    let _running = world.mailgun(&post, "one");
    world.request("other").await;
    world.run_for(60).await;
    assert_eq!((post.times(), post.calls.load(Ordering::Relaxed)), (vec![1, 1], 1));
    let object = world.mail_of("hello").await;
    assert_eq!(condition(&object, "RequestSent").1, "Sent", "{object}");
    assert_eq!(object["spec"]["messageID"], message_id);
    assert_eq!(object["status"]["messageID"], message_id);
}

/// The process sent the mail and then saw the deletion of the object. A restore of the store brings
/// the object back in the state from before the intent, or from an earlier attempt. The mail
/// service shows the mail only after minutes.
#[tokio::test(start_paused = true)]
async fn a_restored_object_sends_no_second_mail_of_the_process() {
    for fault in [Fault::AcceptsAndHides, Fault::FailsAfterwardsAndHides] {
        for earlier_attempt in [false, true] {
            let (world, post) = (World::new().await, Post::default());
            let _running = world.mailgun(&post, "one");
            pass(10).await;
            post.fails_with(if earlier_attempt { Fault::FailsBefore } else { fault });
            world.create("MailgunCluster", "hello", spec_of_request()).await;
            let mut backup = world.mail_of("hello").await;
            if earlier_attempt {
                world.cluster("hello", "MailgunCluster").await;
                world.run_for(60).await;
                backup = world.mail_of("hello").await;
                let known = backup["metadata"]["annotations"].to_string();
                assert!(known.contains("Unknown"), "{backup}");
                // The first attempt was not accepted, so the second one follows.
                post.fails_with(fault);
                world.run_for(2200).await;
            } else {
                world.cluster("hello", "MailgunCluster").await;
                world.run_for(5).await;
            }
            assert_eq!(post.times(), [1], "earlier attempt: {earlier_attempt}");
            world.delete("MailgunCluster", "hello").await;
            world.run_for(20).await;
            world.server.load(backup).expect("the object is restored");
            world.run_for(600).await;
            post.fails_with(Fault::None);
            world.run_for(2500).await;
            assert_eq!(post.times(), [1], "earlier attempt: {earlier_attempt}");
            let object = world.mail_of("hello").await;
            assert_eq!(condition(&object, "RequestSent").1, "Sent", "{object}");
        }
    }
}

/// The mail is accepted, and the clock steps ahead before the process records that. The mail
/// service shows the mail only after minutes. An acceptance has no moment that a step could make
/// wrong, so only another process has to look the mail up.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_sends_no_second_mail() {
    for restarts in [false, true] {
        let (world, post) = (World::new().await, Post::default());
        post.fails_with(Fault::AcceptsAndHidesInAStep);
        world.request("hello").await;
        let mut running = world.mailgun(&post, "one");
        for _ in 0..600 {
            if !post.times().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(post.times().len(), 1, "the mail is sent");
        if restarts {
            drop(running);
            running = world.mailgun(&post, "two");
        }
        world.run_for(240).await;
        let object = world.mail_of("hello").await;
        let is_unknown = object["metadata"]["annotations"]["machinist.dev/sent-at"].is_null();
        assert_eq!(is_unknown, restarts, "{object}");
        post.fails_with(Fault::None);
        world.run_for(600).await;
        drop(running);
        assert_eq!((post.times(), post.calls.load(Ordering::Relaxed)), (vec![1], 1), "{restarts}");
        assert_eq!(condition(&world.mail_of("hello").await, "RequestSent").1, "Sent");
    }
}

/// Crashes the process at each request and call in turn, and starts it again.
#[tokio::test(start_paused = true)]
async fn no_mail_is_sent_twice_after_a_crash_at_any_point() {
    let mut points = 0;
    for after in [false, true] {
        for point in 0.. {
            let (mut world, post) = (World::new().await, Post::default());
            world.after = after;
            world.request("m").await;
            world.left.store(point, Ordering::Relaxed);
            let first = world.mailgun(&post, "first");
            pass(60).await;
            drop(first);
            let is_complete = 0 < world.left.load(Ordering::Relaxed);
            world.left.store(usize::MAX, Ordering::Relaxed);
            let _second = world.mailgun(&post, "second");
            pass(3000).await;
            assert_eq!(post.times(), [1], "crash at {point}, after the effect: {after}");
            let object = world.mail_of("m").await;
            assert_eq!(condition(&object, "RequestSent").1, "Sent", "crash at {point}: {object}");
            points += 1;
            if is_complete {
                break;
            }
        }
    }
    assert!(8 < points, "expected more than 8 crash points, got {points}");
}
