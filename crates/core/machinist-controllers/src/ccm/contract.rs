//! The cloud-controller-manager as a contract of the runtime.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_instance::ErrorKind;
use machinist_kube::ObjectKey;
use machinist_plan::ccm::CcmReason;
use machinist_plan::facts::{CloudNodeFacts, MachineFacts, ServiceFacts};
use machinist_runtime::{Contract, Feed, feed, pass};
use machinist_serve::Metrics;

use super::credential::CredentialFeed;
use super::key::Key;
use super::kinds;
use super::measure;
use super::options::Tools;
use super::seen::{Seen, Settings};

/// The cloud-controller-manager.
pub struct Ccm;

/// The runtime of a process.
pub(crate) type Runtime = machinist_runtime::Runtime<Ccm>;
/// Everything that a process has observed.
pub(crate) type World = machinist_runtime::World<Ccm>;
/// One write of a process.
pub(crate) type Write<'a> = machinist_runtime::Write<'a, Ccm>;

impl Contract for Ccm {
    type Key = Key;
    type Seen = Seen;
    type Tools = Tools;
    type Reason = CcmReason;

    fn feeds(tools: &Tools) -> Vec<Box<dyn Feed<Self>>> {
        let controllers = tools.options.controllers;
        let mut feeds: Vec<Box<dyn Feed<Self>>> =
            vec![Box::new(CredentialFeed), feed::<Self, CloudNodeFacts>()];
        if controllers.service {
            feeds.push(feed::<Self, ServiceFacts>());
        }
        if controllers.node_lifecycle {
            feeds.push(feed::<Self, Settings>());
        }
        if tools.options.machines.is_some() {
            feeds.push(feed::<Self, MachineFacts>());
        }
        feeds
    }

    fn keys(seen: &Seen, tools: &Tools) -> Vec<Key> {
        let mut keys = vec![Key::Account, Key::NodeRemoval, Key::Backends, Key::BalancerDrift, Key::Routes];
        // The set of Nodes is computed only after a change, so its key is usually in no queue.
        let is_due = |key: &Key| *key != Key::Backends || seen.memory.are_backends_stale();
        keys.retain(|key| Self::decides_about(tools, key) && is_due(key));
        keys.extend(seen.nodes.iter().map(|(key, _)| Key::Node(key.name.clone())));
        keys.extend(seen.services.iter().map(|(key, _)| Key::Service(key.clone())));
        keys
    }

    fn decides_about(tools: &Tools, key: &Key) -> bool {
        let controllers = tools.options.controllers;
        match key {
            // The list of the account is also the proof that the credential is the right one.
            Key::Account => controllers.any(),
            Key::Node(_) => controllers.any_node(),
            Key::NodeRemoval => controllers.node_lifecycle,
            Key::Service(_) | Key::Backends | Key::BalancerDrift => controllers.service,
            Key::Routes => controllers.route,
        }
    }

    fn pass<'a>(runtime: &'a Arc<Runtime>, key: &'a Key) -> BoxFuture<'a, ()> {
        match key {
            Key::Account => Box::pin(pass::<Self, kinds::AccountLists>(runtime, key, &())),
            Key::Node(name) => Box::pin(pass::<Self, kinds::Nodes>(runtime, key, name)),
            Key::NodeRemoval => Box::pin(pass::<Self, kinds::NodeRemovals>(runtime, key, &())),
            Key::Service(id) => Box::pin(pass::<Self, kinds::Services>(runtime, key, id)),
            Key::BalancerDrift => Box::pin(pass::<Self, kinds::BalancerDrifts>(runtime, key, &())),
            Key::Routes => Box::pin(pass::<Self, kinds::RouteTables>(runtime, key, &())),
            Key::Backends => Box::pin(pass::<Self, kinds::BackendSets>(runtime, key, &())),
        }
    }

    fn forget_moments(seen: &mut Seen, _: Timestamp) {
        seen.memory.forget_moments();
    }

    fn measure(seen: &Seen, now: Timestamp, metrics: &Metrics) {
        measure::memory(seen, now, metrics);
    }

    fn unready(seen: &Seen, tools: &Tools) -> Option<String> {
        let account = &seen.memory.account;
        if account.opens_none {
            return Some(CcmReason::NoAccount.to_string());
        }
        if let Some(denied) = &account.denied {
            return Some(format!("the cloud rejects the credential: {denied}"));
        }
        // A list has no spec of a user, so the settings of the program are wrong.
        let lists = [&account.list_failed, &seen.memory.routes.list_failed].into_iter().flatten();
        let failed = lists.map(|failure| &failure.error).find(|error| error.kind == ErrorKind::InvalidSpec);
        if let Some(wrong) = failed.map(|error| &error.message).or(account.misconfigured.as_ref()) {
            return Some(format!("the settings of the program are wrong: {wrong}"));
        }
        account.unproven().filter(|_| tools.options.controllers.any())
    }

    fn remark(seen: &Seen) -> Option<String> {
        seen.memory.account.remark()
    }

    fn key_named(kind: &str, namespace: &str, name: &str) -> Option<Key> {
        match kind {
            "node" => Some(Key::Node(name.to_owned())),
            // Services have namespaces, and the process serves all of them: `NAMESPACE/NAME`.
            "service" => {
                let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
                Some(Key::Service(ObjectKey::new(namespace, name)))
            }
            "routes" => Some(Key::Routes),
            "noderemoval" => Some(Key::NodeRemoval),
            "account" => Some(Key::Account),
            _ => None,
        }
    }
}
