//! MachineClass, and the Secrets that classes refer to: neither may vanish while something needs it.
//!
//! A class keeps our finalizer for as long as a Machine names it, a Secret for as long as a class refers to it; without
//! them an instance could not be deleted any more. Who deletes one is told, once, what it is kept for.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::constants::reasons;

use crate::facts::{ClassFacts, SecretFacts};
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};

/// All facts for one decision about a class.
#[derive(Debug, Clone, Hash)]
pub struct ClassSnapshot {
    /// The class.
    pub class: Arc<ClassFacts>,
    /// The Machines that name it.
    pub users: Users,
}

/// All facts for one decision about a Secret.
#[derive(Debug, Clone, Hash)]
pub struct SecretSnapshot {
    /// The Secret.
    pub secret: Arc<SecretFacts>,
    /// The classes that refer to it.
    pub users: Users,
}

/// What would be left without it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Users {
    /// How many there are.
    pub count: usize,
    /// The name of one of them, always the same one while the others change.
    pub first: Option<String>,
    /// Whether it was said already that it is kept for them.
    pub told: bool,
}

/// One call for a class or a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Put our finalizer on it.
    AddFinalizer,
    /// Take our finalizer off it.
    RemoveFinalizer,
    /// Tell people, by an Event on it, that it is kept although it is to be deleted.
    Warn(String),
}

/// Decides what is done next for a class.
pub fn plan(s: &ClassSnapshot) -> Plan<Action> {
    let mend =
        "delete what uses it, or replace it by machines of another class; no new ones are made of this one";
    finalize(&s.users, s.class.has_finalizer, s.class.deleting_since, ["Machine", "machines"], mend)
}

/// Decides what is done next for a Secret.
pub fn plan_secret(s: &SecretSnapshot) -> Plan<Action> {
    let mend = "let what uses it refer to another Secret, or delete it";
    finalize(&s.users, s.secret.has_finalizer, s.secret.deleting_since, ["MachineClass", "classes"], mend)
}

fn finalize(
    users: &Users,
    has_finalizer: bool,
    deleting_since: Option<Timestamp>,
    by: [&'static str; 2],
    mend: &str,
) -> Plan<Action> {
    match (&users.first, has_finalizer) {
        // The API server refuses new finalizers on what is being deleted.
        (Some(_), false) if deleting_since.is_none() => {
            Plan::act(Action::AddFinalizer, Why::new(Reason::Writing("its finalizer"), Step::Nothing))
        }
        (None, true) => Plan::act(
            Action::RemoveFinalizer,
            Why::new(Reason::Writing("its finalizer to be removed: nothing uses it"), Step::Nothing),
        ),
        (Some(first), true) if deleting_since.is_some() => {
            let reason = McmReason::InUse { by, users: users.count, first: first.clone() };
            let message = format!("Deletion waits for {reason}. To have it go: {mend}.");
            let why = Why::new(reason, Step::Mend(mend.to_owned())).since(deleting_since);
            if users.told { Plan::idle(why) } else { Plan::act(Action::Warn(message), why) }
        }
        _ => Plan::idle(Why::settled()),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("add finalizer"),
            Self::RemoveFinalizer => f.write_str("remove finalizer"),
            Self::Warn(message) => write!(f, "warning {}: {message}", reasons::STILL_IN_USE),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    /// A class that is being deleted; `told` is whether its users were named before.
    fn check(users: &[&str], told: bool, expected: Expect) {
        let class = json!({
            "metadata": {
                "name": "c", "namespace": "ns", "uid": "uid-c", "deletionTimestamp": "2027-01-15T08:00:00Z",
                "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            },
            "providerSpec": {},
        });
        let class = serde_json::from_value(class).expect("a class");
        let users = Users { count: users.len(), first: users.first().map(ToString::to_string), told };
        let snapshot = ClassSnapshot { class: Arc::new(ClassFacts::parse(&class)), users };
        expected.assert_eq(&plan(&snapshot).to_string());
    }

    #[test]
    fn a_class_in_use_stays_and_says_once_for_whom() {
        check(
            &["m-1", "m-2"],
            false,
            expect![[r#"
            do    warning StillInUse: Deletion waits for 2 machines that use it; the first is m-1. To have it go: delete what uses it, or replace it by machines of another class; no new ones are made of this one.
            why   waits for 2 machines that use it; the first is m-1; since 2027-01-15T08:00:00Z; next: delete what uses it, or replace it by machines of another class; no new ones are made of this one
            wait  for a change
        "#]],
        );
        check(
            &["m-2"],
            true,
            expect![[r#"
            why   waits for Machine m-2, which uses it; since 2027-01-15T08:00:00Z; next: delete what uses it, or replace it by machines of another class; no new ones are made of this one
            wait  for a change
        "#]],
        );
        check(
            &[],
            true,
            expect![[r#"
            do    remove finalizer
            why   waits for its finalizer to be removed: nothing uses it
            wait  for a change
        "#]],
        );
    }
}
