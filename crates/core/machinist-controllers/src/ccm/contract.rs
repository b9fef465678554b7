//! The cloud-controller-manager as a contract of the runtime.

use jiff::Timestamp;
use machinist_instance::ErrorKind;
use machinist_plan::ccm::CcmReason;
use machinist_plan::ccm::facts::{CloudNodeFacts, OwningMachineFacts, ServiceFacts};
use machinist_runtime::{Contract, Feed, feed};
use machinist_serve::Metrics;

use super::credential_feed::CredentialFeed;
use super::key::Key;
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
            feeds.push(feed::<Self, OwningMachineFacts>());
        }
        feeds
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
}
