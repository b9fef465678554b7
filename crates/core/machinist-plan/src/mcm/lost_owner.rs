//! A Machine that names a MachineSet which does not exist. The garbage collector deletes the
//! Machine, and with it the instance, so users must know at once. It happens after a restore with
//! old UIDs.
//!
//! Two watches are not in step: a Machine may be shown before its set. So the API server is asked
//! before anything is reported.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;

use crate::mcm::facts::MachineFacts;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};

/// All facts for one decision about a Machine whose set is unknown.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The Machine, which is not being deleted.
    pub machine: Arc<MachineFacts>,
    /// Name of the set that the Machine names as its controlling owner.
    pub set: String,
    /// UID of that set.
    pub set_uid: String,
    /// The last look at the API server for this set.
    pub look: Option<OwnerRead>,
}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { machine, set, set_uid, look } = self;
        (machine, set, set_uid, look).hash(state);
    }
}

/// A look at the API server for the set of a Machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerRead {
    /// UID of the set that was looked for.
    pub set_uid: String,
    /// When the look began.
    pub started: Timestamp,
    /// Whether a set with that UID exists.
    pub exists: bool,
    /// Whether the Event was emitted.
    pub is_emitted: bool,
}

/// One call for a Machine whose set is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Looks for the set at the API server.
    LookForOwner,
    /// Emits an Event.
    Warn(String),
}

/// Decides the next action for a Machine whose set is unknown.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let look = s.look.as_ref().filter(|look| look.set_uid == s.set_uid);
    let Some(look) = look else {
        let next = Step::Expect("the Machine is reported if its owner does not exist");
        return Plan::act(Action::LookForOwner, Why::new(Reason::Looking("the owner of the Machine"), next));
    };
    if look.exists {
        return Plan::idle(Why::up_to_date());
    }
    let why = why(s.set.clone()).since(Some(look.started));
    if look.is_emitted {
        return Plan::idle(why);
    }
    let message = format!(
        "Machine {} names the owner MachineSet {} with UID {}, which does not exist. The garbage collector deletes \
         the Machine and with it the instance. Remove metadata.ownerReferences now if the Machine is needed",
        s.machine.name, s.set, s.set_uid
    );
    Plan::act(Action::Warn(message), why)
}

/// Returns why a Machine without its owner is in danger.
pub fn why(set: String) -> Why {
    let fix = "remove metadata.ownerReferences of the Machine before the garbage collector deletes it";
    Why::new(McmReason::OwnerUnknown { set }, Step::Fix(fix.to_owned()))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookForOwner => f.write_str("machineset: look for the owner"),
            Self::Warn(message) => write!(f, "warning OwnerMissing: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use machinist_api::Machine;
    use serde_json::json;

    use super::*;
    use crate::testing::at;

    #[test]
    fn a_missing_owner_is_reported_once_the_api_server_confirms_it() {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": {"name": "m", "uid": "uid-m"}, "spec": {"class": {"kind": "MachineClass", "name": "c"}},
        }))
        .expect("a Machine");
        let mut s = Snapshot {
            machine: Arc::new(MachineFacts::parse(&machine)),
            set: "w-1".to_owned(),
            set_uid: "old".to_owned(),
            look: None,
        };
        let actions = |s: &Snapshot| plan(s).actions;
        assert_eq!(actions(&s), [Action::LookForOwner]);
        let look = |exists, is_emitted| {
            Some(OwnerRead { set_uid: "old".to_owned(), started: at(0), exists, is_emitted })
        };
        s.look = look(true, false);
        assert_eq!(actions(&s), []);
        s.look = look(false, false);
        assert!(
            matches!(actions(&s).as_slice(), [Action::Warn(text)] if text.contains("MachineSet w-1 with UID old"))
        );
        s.look = look(false, true);
        assert_eq!(actions(&s), []);
        assert_eq!(plan(&s).why.reason.to_string(), "owner MachineSet w-1 not found");
        s.set_uid = "new".to_owned();
        assert_eq!(actions(&s), [Action::LookForOwner], "the look was for another owner");
    }
}
