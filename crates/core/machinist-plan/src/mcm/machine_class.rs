//! MachineClass and its Secrets: protects both from deletion while they are in use.
//!
//! A class keeps our finalizer while a Machine refers to it, and a Secret keeps it while a class
//! refers to it. Without them an instance could not be deleted. An object that cannot be parsed may
//! be a user, so the finalizer stays while there is one. Deleting a class or Secret in use
//! emits one `StillInUse` Event that names a user.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::constants::reasons;

use crate::mcm::facts::{ClassFacts, SecretFacts};
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};

/// All facts for one decision about a class.
#[derive(Debug, Clone, Hash)]
pub struct ClassSnapshot {
    /// The class to decide about.
    pub class: Arc<ClassFacts>,
    /// The Machines that refer to the class.
    pub users: Users,
    /// The result of the provider's check of the class.
    pub checked: Checked,
}

/// The result of the provider's check of a `providerSpec`, which makes no call to the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Checked {
    /// The first error: the field, and the expected value.
    pub error: Option<String>,
    /// The fields that have no effect, with their paths.
    pub without_effect: Vec<String>,
}

/// All facts for one decision about a Secret.
#[derive(Debug, Clone, Hash)]
pub struct SecretSnapshot {
    /// The Secret to decide about.
    pub secret: Arc<SecretFacts>,
    /// The classes that refer to the Secret.
    pub users: Users,
    /// Whether the process has the content. It forgets the content of a Secret without users.
    pub has_content: bool,
}

/// The objects that use a class or Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Users {
    /// Number of users.
    pub count: usize,
    /// Name of one user, which stays the same while other users change.
    pub first: Option<String>,
    /// An object that cannot be parsed and may be a user, if any.
    pub unreadable: Option<String>,
    /// Whether the Event about the users was already emitted.
    pub is_emitted: bool,
}

/// One call for a class or a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Adds our finalizer.
    AddFinalizer,
    /// Removes our finalizer.
    RemoveFinalizer,
    /// Emits an Event that the object is still in use and therefore not deleted yet.
    Warn(String),
    /// Reads the content of a Secret that has users again.
    ReadContent,
}

/// Decides the next actions for a class.
pub fn plan(s: &ClassSnapshot) -> Plan<Action> {
    let fix = "delete these machines, or replace them with machines of another class. This class creates no new machines";
    let users = ["Machine", "machines"];
    let mut plan = finalize(&s.users, s.class.has_finalizer, s.class.deleting_since, users, fix);
    if let Some(why) = about_fields(s).filter(|_| plan.why.reason == Reason::Settled) {
        plan.why = why;
    }
    plan
}

/// Whether the reason is about the finalizer or the deletion of the class. Other reasons are
/// remarks about its fields.
pub fn keeps_class(reason: &Reason) -> bool {
    use McmReason::{InUse, UserUnreadable};
    matches!(reason, Reason::Writing(_) | Reason::Contract(InUse { .. } | UserUnreadable { .. }))
}

/// Reports an error in the fields of the class, or fields that have no effect. Machines show an
/// error themselves; here the error shows before the first Machine exists.
fn about_fields(s: &ClassSnapshot) -> Option<Why> {
    if let Some(message) = s.class.invalid.as_ref().or(s.checked.error.as_ref()) {
        let reason = McmReason::ClassInvalid { class: s.class.name.clone(), message: message.clone() };
        return Some(Why::new(reason, Step::Fix("fix the MachineClass".to_owned())));
    }
    let fields = s.checked.without_effect.clone();
    let fix = "remove these fields, or correct their names".to_owned();
    (!fields.is_empty()).then(|| Why::new(McmReason::FieldsWithoutEffect { fields }, Step::Fix(fix)))
}

/// Decides the next actions for a Secret.
pub fn plan_secret(s: &SecretSnapshot) -> Plan<Action> {
    let fix = "change the classes to refer to another Secret, or delete them";
    let by = ["MachineClass", "classes"];
    let mut plan = finalize(&s.users, s.secret.has_finalizer, s.secret.deleting_since, by, fix);
    // The answer to the patch of the finalizer brings the content, too.
    let is_brought = plan.actions.contains(&Action::AddFinalizer);
    if s.users.first.is_some() && !s.has_content && !is_brought {
        plan.actions.push(Action::ReadContent);
    }
    plan
}

fn finalize(
    users: &Users,
    has_finalizer: bool,
    deleting_since: Option<Timestamp>,
    by: [&'static str; 2],
    fix: &str,
) -> Plan<Action> {
    match (&users.first, has_finalizer) {
        // The API server rejects new finalizers on an object that is being deleted.
        (Some(_), false) if deleting_since.is_none() => {
            Plan::act(Action::AddFinalizer, Why::new(Reason::Writing("adding the finalizer"), Step::Nothing))
        }
        (None, true) if let Some(name) = &users.unreadable => {
            let reason = McmReason::UserUnreadable { kind: by[0], name: name.clone() };
            let fix = format!("correct or delete {} {name}", by[0]);
            Plan::idle(Why::new(reason, Step::Fix(fix)).since(deleting_since))
        }
        (None, true) => Plan::act(
            Action::RemoveFinalizer,
            Why::new(Reason::Writing("removing the finalizer: no object uses it"), Step::Nothing),
        ),
        (Some(first), true) if deleting_since.is_some() => {
            let reason = McmReason::InUse { by, users: users.count, first: first.clone() };
            let message = format!("Deletion is blocked: {reason}. To unblock it: {fix}.");
            let why = Why::new(reason, Step::Fix(fix.to_owned())).since(deleting_since);
            if users.is_emitted { Plan::idle(why) } else { Plan::act(Action::Warn(message), why) }
        }
        _ => Plan::idle(Why::up_to_date()),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("add finalizer"),
            Self::RemoveFinalizer => f.write_str("remove finalizer"),
            Self::Warn(message) => write!(f, "warning {}: {message}", reasons::STILL_IN_USE),
            Self::ReadContent => f.write_str("read the content"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    /// Checks the plan for a class that is being deleted. `is_emitted` is whether the Event was
    /// already emitted.
    fn check(users: &[&str], is_emitted: bool, expected: Expect) {
        let first = users.first().map(ToString::to_string);
        check_users(Users { count: users.len(), first, unreadable: None, is_emitted }, expected);
    }

    fn check_users(users: Users, expected: Expect) {
        let class = json!({
            "metadata": {
                "name": "c", "namespace": "ns", "uid": "uid-c", "deletionTimestamp": "2027-01-15T08:00:00Z",
                "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            },
            "providerSpec": {},
        });
        let class = serde_json::from_value(class).expect("a class");
        let checked = Checked::default();
        let snapshot = ClassSnapshot { class: Arc::new(ClassFacts::parse(&class)), users, checked };
        expected.assert_eq(&plan(&snapshot).to_string());
    }

    #[test]
    fn a_machine_that_cannot_be_parsed_keeps_its_class() {
        check_users(
            Users { unreadable: Some("m-3".into()), ..Users::default() },
            expect![[r#"
            why   Machine m-3 may use it, and cannot be parsed; since 2027-01-15T08:00:00Z; next: correct or delete Machine m-3
            wait  for a change
        "#]],
        );
    }

    #[test]
    fn a_class_in_use_stays_and_names_a_user_once() {
        check(
            &["m-1", "m-2"],
            false,
            expect![[r#"
            do    warning StillInUse: Deletion is blocked: in use by 2 machines; the first is m-1. To unblock it: delete these machines, or replace them with machines of another class. This class creates no new machines.
            why   in use by 2 machines; the first is m-1; since 2027-01-15T08:00:00Z; next: delete these machines, or replace them with machines of another class. This class creates no new machines
            wait  for a change
        "#]],
        );
        check(
            &["m-2"],
            true,
            expect![[r#"
            why   in use by Machine m-2; since 2027-01-15T08:00:00Z; next: delete these machines, or replace them with machines of another class. This class creates no new machines
            wait  for a change
        "#]],
        );
        check(
            &[],
            true,
            expect![[r#"
            do    remove finalizer
            why   removing the finalizer: no object uses it
            wait  for a change
        "#]],
        );
    }

    #[test]
    fn t_54_a_class_has_our_finalizer_while_machines_use_it() {
        let planned = |has_finalizer: bool, is_deleting: bool, users: &[&str]| {
            let mut class =
                json!({"metadata": {"name": "c", "namespace": "ns", "uid": "uid-c"}, "providerSpec": {}});
            if has_finalizer {
                class["metadata"]["finalizers"] = json!(["machine.sapcloud.io/machine-controller-manager"]);
            }
            if is_deleting {
                class["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z".into();
            }
            let class = serde_json::from_value(class).expect("a class");
            let first = users.first().map(ToString::to_string);
            let users = Users { count: users.len(), first, is_emitted: true, ..Users::default() };
            let class = Arc::new(ClassFacts::parse(&class));
            let plan = plan(&ClassSnapshot { class, users, checked: Checked::default() });
            let actions = plan.actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            (actions, plan.why.reason.code())
        };
        let is = |actions: &str, reason: &'static str| (actions.to_owned(), reason);
        assert_eq!(planned(false, false, &["m"]), is("add finalizer", "Writing"));
        assert_eq!(planned(false, false, &[]), is("", "Settled"));
        assert_eq!(planned(true, true, &["m"]), is("", "InUse"));
        assert_eq!(planned(true, true, &[]), is("remove finalizer", "Writing"));
    }

    #[test]
    fn a_class_shows_its_errors_and_its_fields_without_effect() {
        let shown = |provider_spec: serde_json::Value, checked: Checked| {
            let class = json!({
                "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c"},
                "provider": "hcloud", "providerSpec": provider_spec,
            });
            let class = Arc::new(ClassFacts::parse(&serde_json::from_value(class).expect("a class")));
            let plan = plan(&ClassSnapshot { class, users: Users::default(), checked });
            (plan.why.reason.to_string(), keeps_class(&plan.why.reason))
        };
        let without_effect = vec!["providerSpec.tags".to_owned()];
        let remarks = Checked { error: None, without_effect: without_effect.clone() };
        let text = "the class has fields without effect: providerSpec.tags";
        assert_eq!(shown(json!({}), remarks), (text.to_owned(), false));
        let error = Some("providerSpec.zone: expected a zone".to_owned());
        let text = "MachineClass c is invalid: providerSpec.zone: expected a zone";
        assert_eq!(shown(json!({}), Checked { error, without_effect }), (text.to_owned(), false));
        assert_eq!(shown(json!({}), Checked::default()).0, Reason::Settled.to_string());
    }

    #[test]
    fn the_content_of_a_secret_is_read_again_only_if_needed() {
        let secret = |finalizers: &[&str], deleting: bool| {
            let mut secret = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "uid-s", "finalizers": finalizers}});
            if deleting {
                secret["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z".into();
            }
            Arc::new(SecretFacts::parse(&serde_json::from_value(secret).expect("a Secret")))
        };
        let ours = "machine.sapcloud.io/machine-controller";
        let reads = |secret: Arc<SecretFacts>, users: usize, has_content: bool| {
            let first = (0 < users).then(|| "c".to_owned());
            let users = Users { count: users, first, is_emitted: true, ..Users::default() };
            plan_secret(&SecretSnapshot { secret, users, has_content }).actions.contains(&Action::ReadContent)
        };
        assert!(reads(secret(&[ours], false), 1, false));
        assert!(reads(secret(&["other"], true), 1, false), "no finalizer can be added");
        assert!(!reads(secret(&[], false), 1, false), "the patch of the finalizer brings it");
        assert!(!reads(secret(&[ours], false), 1, true));
        assert!(!reads(secret(&[], false), 0, false));
    }
}
