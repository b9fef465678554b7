//! Single rules about requests by mail, from Cluster API's tutorial.

use std::sync::atomic::Ordering;

use machinist_controllers::capi::{CapiOptions, Key};
use machinist_kube::ObjectKey;
use serde_json::json;

use super::mail::{Fault, Post};
use super::mini_core::{machine_metadata, machine_spec};
use super::{NAMESPACE, World, condition, pass};

fn key(name: &str) -> Key {
    Key::MailgunCluster(ObjectKey::new(NAMESPACE, name))
}

/// A request that is deleted early is forgotten without an error and without a mail.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_deleted_early_sends_nothing() {
    let (world, post) = (World::new().await, Post::default());
    let running = world.mailgun(&post, "one");
    let spec = json!({"priority": "Urgent", "request": "x", "requester": "dev@example.com"});
    world.create("MailgunCluster", "short", spec).await;
    world.delete("MailgunCluster", "short").await;
    pass(60).await;
    assert!(running.is_ready() && running.inspector().why(&key("short")).is_none());
    assert!(post.times().is_empty());
}

/// An owner that is not found is waited for, and its arrival sends the mail.
#[tokio::test(start_paused = true)]
async fn a_missing_owner_is_waited_for() {
    let (world, post) = (World::new().await, Post::default());
    let running = world.mailgun(&post, "one");
    let metadata = json!({"name": "hello", "ownerReferences": [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "hello", "uid": "c"},
    ]});
    let spec = json!({"priority": "Urgent", "request": "x", "requester": "dev@example.com"});
    world.create_with("MailgunCluster", metadata, spec).await;
    pass(60).await;
    let why = running.inspector().why(&key("hello")).expect("a reason");
    assert_eq!(why.why.reason.code(), "OwnerMissing");
    assert!(post.times().is_empty());
    world.cluster("hello", "MailgunCluster").await;
    pass(5).await;
    assert_eq!(post.times(), [1]);
}

/// A request without recipients goes to the recipient of the process.
#[tokio::test(start_paused = true)]
async fn a_request_may_have_its_own_recipients() {
    let (world, post) = (World::new().await, Post::default());
    let _running = world.mailgun(&post, "one");
    world.request("hello").await;
    let spec = json!({
        "priority": "BusinessCritical", "request": "x", "requester": "dev@example.com",
        "recipients": ["a@example.com", "b@example.com"],
    });
    world.create("MailgunCluster", "own", spec).await;
    world.cluster("own", "MailgunCluster").await;
    world.run_for(30).await;
    let accepted = post.accepted.lock().expect("no panic");
    let mut recipients: Vec<&[String]> =
        accepted.values().map(|(_, mail)| mail.recipients.as_slice()).collect();
    recipients.sort_unstable();
    assert_eq!(recipients, [&["a@example.com", "b@example.com"][..], &["ops@example.com"][..]]);
}

/// The Message-Id is recorded before the call, and the success after it. A mail service that
/// throttles is not asked before the time that it names.
#[tokio::test(start_paused = true)]
async fn a_throttled_mail_is_sent_later() {
    let (world, post) = (World::new().await, Post::default());
    post.fails_with(Fault::Throttles);
    let _running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(290).await;
    assert_eq!(post.calls.load(Ordering::Relaxed), 1);
    let object = world.mail_of("hello").await;
    let annotations = &object["metadata"]["annotations"];
    assert_eq!(condition(&object, "RequestSent"), ("False".to_owned(), "Throttled".to_owned()));
    assert!(object["spec"]["messageID"].is_string(), "{object}");
    assert!(annotations["machinist.dev/sent-at"].is_null(), "{object}");
    post.fails_with(Fault::None);
    pass(30).await;
    assert_eq!(post.times(), [1]);
    let object = world.mail_of("hello").await;
    assert!(object["metadata"]["annotations"]["machinist.dev/sent-at"].is_string(), "{object}");
}

/// Passes without a change, restarts and a changed text send no second mail.
#[tokio::test(start_paused = true)]
async fn a_stored_message_id_sends_no_second_mail() {
    let (world, post) = (World::new().await, Post::default());
    let running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(10).await;
    world.merge("MailgunCluster", "hello", json!({"spec": {"request": "Another text."}})).await;
    pass(4000).await;
    drop(running);
    let _second = world.mailgun(&post, "two");
    pass(4000).await;
    assert_eq!((post.times(), post.calls.load(Ordering::Relaxed)), (vec![1], 1));
}

/// The annotations of the original have no effect on the copy.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_sent_request_is_sent_without_its_message_id() {
    let (world, post) = (World::new().await, Post::default());
    let _running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(10).await;
    let original = world.mail_of("hello").await;
    let metadata = json!({"name": "copy", "annotations": original["metadata"]["annotations"]});
    let mut spec = original["spec"].clone();
    world.cluster("copy", "MailgunCluster").await;
    world.create_with("MailgunCluster", metadata.clone(), spec.clone()).await;
    world.run_for(30).await;
    let object = world.mail_of("copy").await;
    assert_eq!(condition(&object, "RequestSent"), ("False".to_owned(), "Rejected".to_owned()), "{object}");
    assert_eq!(post.times(), [1]);

    let message_id = spec.as_object_mut().and_then(|spec| spec.remove("messageID"));
    world.delete("MailgunCluster", "copy").await;
    world.create_with("MailgunCluster", metadata, spec).await;
    world.run_for(30).await;
    let object = world.mail_of("copy").await;
    assert_eq!(condition(&object, "RequestSent").1, "Sent", "{object}");
    assert_eq!(post.times(), [1, 1]);
    assert_ne!(Some(&object["spec"]["messageID"]), message_id.as_ref());
}

/// A machine is requested once its infrastructure and its bootstrap data are there. The mail does
/// not contain the data. A person fills in the provider id.
#[tokio::test(start_paused = true)]
async fn a_machine_is_requested_and_fulfilled() {
    let (world, post) = (World::new().await, Post::default());
    let _running = world.mailgun(&post, "one");
    world.request("c").await;
    let metadata = machine_metadata("c", "c-m", false);
    let request = json!({"priority": "Urgent", "request": "Two processors.", "requester": "dev@example.com"});
    world.create_with("MailgunMachine", metadata.clone(), request).await;
    let mut spec = machine_spec("c", "c-m");
    spec["infrastructureRef"]["kind"] = json!("MailgunMachine");
    spec["bootstrap"] = json!({});
    world.create_with("Machine", metadata, spec).await;
    world.run_for(60).await;
    assert_eq!(post.times(), [1], "only the cluster is requested");
    world.bootstrap_data("c-m", json!({"value": "token: abcdef.0123456789abcdef"})).await;
    world.merge("Machine", "c-m", json!({"spec": {"bootstrap": {"dataSecretName": "c-m"}}})).await;
    world.run_for(30).await;
    assert_eq!(post.times(), [1, 1]);
    let mail = {
        let accepted = post.accepted.lock().expect("no panic");
        let found = accepted.values().find(|(_, mail)| mail.subject.contains("Machine"));
        found.expect("a mail").1.clone()
    };
    assert_eq!(mail.subject, "[Urgent] New Machine c-m for Cluster c requested");
    assert!(mail.text.contains("Two processors.") && mail.text.contains("v1.33.0"), "{}", mail.text);
    assert!(!mail.text.contains("abcdef"), "{}", mail.text);
    let machine = world.get("MailgunMachine", "c-m").await;
    assert_eq!(condition(&machine, "Fulfilled").1, "WaitingForFulfilment");
    world.merge("MailgunMachine", "c-m", json!({"spec": {"providerID": "metal://7"}})).await;
    world.run_for(5).await;
    let machine = world.get("MailgunMachine", "c-m").await;
    assert_eq!(machine["status"]["initialization"]["provisioned"], true, "{machine}");
    assert_eq!(world.get("Machine", "c-m").await["spec"]["providerID"], "metal://7");
}

/// A paused request, and a request without the label, send no mail.
#[tokio::test(start_paused = true)]
async fn a_paused_or_unlabelled_request_sends_nothing() {
    let (world, post) = (World::new().await, Post::default());
    let serves = world.mailgun_options(&post, "one");
    let core = machinist_controllers::capi::CoreApi::Beta2;
    let options = CapiOptions { watch_filter: Some("ours".to_owned()), ..CapiOptions::new(serves, core) };
    let _running = world.start_in("", options);
    world.request("hello").await;
    world.run_for(30).await;
    assert!(post.times().is_empty(), "no label");
    world.merge("Cluster", "hello", json!({"spec": {"paused": true}})).await;
    let labels = json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "ours"}}});
    world.merge("MailgunCluster", "hello", labels).await;
    world.run_for(30).await;
    assert!(post.times().is_empty(), "paused");
    let paused = condition(&world.mail_of("hello").await, "Paused");
    assert_eq!(paused, ("True".to_owned(), "Paused".to_owned()));
    world.merge("Cluster", "hello", json!({"spec": {"paused": false}})).await;
    world.run_for(10).await;
    assert_eq!(post.times(), [1]);
}

/// The store was restored to a moment before the intent, and the mail service shows the mail only
/// after half an hour. One look at the start is not enough.
#[tokio::test(start_paused = true)]
async fn a_restored_request_whose_mail_is_shown_late_is_not_resent() {
    let (world, post) = (World::new().await, Post::default());
    world.request("hello").await;
    let uid = world.mail_of("hello").await["metadata"]["uid"].as_str().expect("a UID").to_owned();
    post.has(&format!("machinist.mailguncluster.default.hello.{uid}.create@mail.example.com"));
    post.fails_with(Fault::FailsAfterwardsAndHides);
    pass(60).await;
    let _running = world.mailgun(&post, "one");
    world.run_for(1700).await;
    assert_eq!((post.times(), post.calls.load(Ordering::Relaxed)), (vec![1], 0));
    post.fails_with(Fault::None);
    world.run_for(600).await;
    assert_eq!((post.times(), post.calls.load(Ordering::Relaxed)), (vec![1], 0));
    assert_eq!(condition(&world.mail_of("hello").await, "RequestSent").1, "Sent");
}

/// A mail to a domain that is not permitted is never sent. It is sent after a correction.
#[tokio::test(start_paused = true)]
async fn a_recipient_of_another_domain_gets_no_mail() {
    let (world, post) = (World::new().await, Post::default());
    let _running = world.mailgun(&post, "one");
    let spec = json!({
        "priority": "Urgent", "request": "x", "requester": "dev@example.com",
        "recipients": ["a@example.com", "b@elsewhere.net"],
    });
    world.create("MailgunCluster", "own", spec).await;
    world.cluster("own", "MailgunCluster").await;
    world.run_for(60).await;
    let object = world.mail_of("own").await;
    assert_eq!(condition(&object, "RequestSent"), ("False".to_owned(), "Rejected".to_owned()), "{object}");
    assert!(object["status"].to_string().contains("spec.recipients[1]"), "{object}");
    assert_eq!(post.calls.load(Ordering::Relaxed), 0);
    let corrected = json!({"spec": {"recipients": ["a@example.com", "b@example.org"]}});
    world.merge("MailgunCluster", "own", corrected).await;
    world.run_for(60).await;
    assert_eq!(post.times(), [1]);
}

/// A mail service that shows an accepted mail only after half an hour gets no second mail.
#[tokio::test(start_paused = true)]
async fn a_mail_that_is_shown_late_is_not_sent_again() {
    let (world, post) = (World::new().await, Post::default());
    post.fails_with(Fault::FailsAfterwardsAndHides);
    let _running = world.mailgun(&post, "one");
    world.request("hello").await;
    world.run_for(1700).await;
    assert_eq!(condition(&world.mail_of("hello").await, "RequestSent").1, "Uncertain");
    post.fails_with(Fault::None);
    world.run_for(600).await;
    assert_eq!((post.times(), post.calls.load(Ordering::Relaxed)), (vec![1], 1));
    assert_eq!(condition(&world.mail_of("hello").await, "RequestSent").1, "Sent");
}
