//! MachineClass, and the Secrets that classes refer to: neither may vanish while something needs it.
//!
//! A class keeps our finalizer for as long as a Machine names it, a Secret for as long as a class refers to it; without
//! them an instance could not be deleted any more.

use std::fmt;
use std::sync::Arc;

use crate::facts::{ClassFacts, SecretFacts};
use crate::why::{Reason, Step};
use crate::{Plan, Why};

/// All facts for one decision about a class.
#[derive(Debug, Clone)]
pub struct ClassSnapshot {
    /// The class.
    pub class: Arc<ClassFacts>,
    /// How many Machines name it.
    pub machines: usize,
}

/// All facts for one decision about a Secret.
#[derive(Debug, Clone)]
pub struct SecretSnapshot {
    /// The Secret.
    pub secret: Arc<SecretFacts>,
    /// How many classes refer to it.
    pub classes: usize,
}

/// One call for a class or a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Put our finalizer on it.
    AddFinalizer,
    /// Take our finalizer off it.
    RemoveFinalizer,
}

/// Decides what is done next for a class.
pub fn plan(s: &ClassSnapshot) -> Plan<Action> {
    finalize(s.class.has_finalizer, s.class.deleting_since.is_some(), s.machines)
}

/// Decides what is done next for a Secret.
pub fn plan_secret(s: &SecretSnapshot) -> Plan<Action> {
    finalize(s.secret.has_finalizer, s.secret.deleting_since.is_some(), s.classes)
}

fn finalize(has_finalizer: bool, is_deleting: bool, users: usize) -> Plan<Action> {
    match (users, has_finalizer) {
        // The API server refuses new finalizers on what is being deleted.
        (1.., false) if !is_deleting => {
            Plan::act(Action::AddFinalizer, Why::new(Reason::Acting("its finalizer"), Step::Nothing))
        }
        (0, true) => Plan::act(
            Action::RemoveFinalizer,
            Why::new(Reason::Acting("its finalizer to be removed: nothing uses it"), Step::Nothing),
        ),
        (users, true) if is_deleting => {
            let left = u32::try_from(users).unwrap_or(u32::MAX);
            Plan::idle(Why::new(
                Reason::MachinesLeaving { left, first: None },
                Step::Mend("delete what still uses it".to_owned()),
            ))
        }
        _ => Plan::idle(Why::settled()),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddFinalizer => "add finalizer",
            Self::RemoveFinalizer => "remove finalizer",
        })
    }
}
