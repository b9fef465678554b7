//! The newest knowledge about the instance of a Node, from the driver's last lookup and the
//! account's last list.

use jiff::Timestamp;
use machinist_core::{Answers, Found};
use machinist_instance::{AccountId, Error, Instance, InstanceRef, NodeName, Power, RecordedId, Sighting};

use super::snapshot::Snapshot;

/// The newest knowledge about the instance of a Node.
#[derive(Debug)]
pub(super) enum NewestSighting<'s> {
    /// The cloud showed the instance.
    Present {
        /// The instance.
        instance: &'s Instance,
        /// When the answer arrived.
        ended: Timestamp,
    },
    /// The instance exists and has the key of another object.
    Foreign {
        /// When the answer arrived.
        ended: Timestamp,
    },
    /// A lookup found nothing.
    Absent {
        /// When the answer arrived.
        ended: Timestamp,
    },
    /// A list lacked the instance, and no lookup has found it absent. This is only a hint.
    NotListed {
        /// When the list was answered.
        ended: Timestamp,
    },
    /// The lookup failed.
    Failed {
        /// The error of the driver.
        error: &'s Error,
        /// When the answer arrived.
        ended: Timestamp,
    },
    /// Nothing was asked yet.
    Unknown,
}

impl Snapshot {
    /// The reference by which the instance is looked up: by id, else by the name of the Node.
    /// `None` if the provider id belongs to another cloud or cannot be parsed.
    pub(super) fn which(&self) -> Option<InstanceRef> {
        match &self.recorded {
            RecordedId::Ours(id) => Some(InstanceRef { id: Some(id.clone()), ..InstanceRef::default() }),
            RecordedId::Unset => {
                Some(InstanceRef { name: NodeName::new(self.node.name.clone()), ..InstanceRef::default() })
            }
            RecordedId::NotOurs { .. } | RecordedId::Malformed { .. } => None,
        }
    }

    /// Returns the newest knowledge about the instance. Answers of another account do not count.
    pub(super) fn sight(&self) -> NewestSighting<'_> {
        let found = self.found();
        let listed = self.listed.as_ref();
        let listed =
            listed.filter(|listed| found.is_none_or(|found| found.answered.started < listed.started));
        if let Some(listed) = listed {
            if let Some(instance) = &listed.instance {
                return NewestSighting::Present { instance, ended: listed.ended };
            }
            // A list proves nothing, so an earlier lookup that found nothing still counts.
            let was_absent =
                found.is_some_and(|found| found.answered.answer.as_ref().is_ok_and(Sighting::is_absent));
            if !was_absent {
                return NewestSighting::NotListed { ended: listed.ended };
            }
        }
        let Some(found) = found else { return NewestSighting::Unknown };
        let ended = found.answered.ended;
        match &found.answered.answer {
            Ok(Sighting::Present(instance)) => NewestSighting::Present { instance, ended },
            Ok(Sighting::Foreign(_)) => NewestSighting::Foreign { ended },
            // A Node belongs to the instance itself.
            Ok(Sighting::Absent | Sighting::Ended | Sighting::Parts(_)) => NewestSighting::Absent { ended },
            Err(error) => NewestSighting::Failed { error, ended },
        }
    }

    /// Returns the last answer to the lookup that would be made now, in today's account.
    fn found(&self) -> Option<&Found> {
        let which = self.which();
        self.answers
            .find
            .as_deref()
            .filter(|found| Some(&found.by) == which.as_ref() && found.answered.account == self.account.id)
    }
}

/// Stores in the answers of a Node that a list of its account showed its instance by id. Absences
/// that were seen before the list no longer count. The controller calls this for each Node after
/// each list.
pub fn take_listed(answers: &mut Answers, account: &AccountId, started: Timestamp) {
    answers.shown_in = Some(account.clone());
    if answers.find.as_ref().is_none_or(|found| found.answered.started < started) {
        answers.absence = None;
    }
}

/// Returns when the first of several consecutive answers arrived that all showed the instance as
/// stopped. `before` is the result for the answers before this one.
pub fn take_power(before: Option<Timestamp>, power: Power, ended: Timestamp) -> Option<Timestamp> {
    match power {
        Power::Stopped => before.or(Some(ended)),
        Power::Pending | Power::Running | Power::Changing | Power::Failed | Power::Deleting => None,
    }
}
