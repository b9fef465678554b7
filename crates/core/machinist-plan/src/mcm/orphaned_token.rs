//! A bootstrap token whose Machine is gone. The Machine's deletion removes its token, but a POST
//! with an unknown outcome may take effect later, a user may remove a finalizer, and a deletion
//! that is forced does not wait for a silent target cluster. The token would open the cluster until
//! it expires.
//!
//! Only a token with a mark of this installation is deleted, which also has the UID of the
//! namespace of its Machines: other installations and programs have tokens in the same namespace,
//! and another installation may have the same name. The store alone does not prove that the Machine
//! is gone, so the API server is asked for the Machine's name. A Machine of that name with another
//! UID may be a restored one, whose instance still boots with the token. Then the token stays until
//! it expires.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::plus;

use crate::mcm::facts::TokenFacts;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Longest age of a read of the Machine that a deletion may rest on.
const LOOK_LASTS: Duration = Duration::from_secs(10);
/// Wait after a read that showed a Machine of that name.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// All facts for one decision about a token without a Machine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The token.
    pub token: TokenFacts,
    /// The name of this installation's cluster, and the namespace of its Machines.
    pub installation: (String, String),
    /// The UID of that namespace, if this process knows it.
    pub namespace_uid: Option<String>,
    /// The last read of the Machine.
    pub look: Option<OwnerLook>,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision, except the moment and the settings.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, token, installation: _, namespace_uid, look } = self;
        (token, namespace_uid, look).hash(state);
    }
}

/// A quorum read of the Machine that a token names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerLook {
    /// When the read began.
    pub started: Timestamp,
    /// Whether a Machine of that name exists.
    pub exists: bool,
}

/// One call for a token without a Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reads the Machine of that name with quorum.
    LookForMachine(String),
    /// DELETEs the Secret of the token, by UID.
    Delete,
}

/// Decides the next action for a token without a Machine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let is_of_namespace = s.namespace_uid.is_some() && s.token.namespace_uid == s.namespace_uid;
    let is_ours = is_of_namespace
        && s.token.mark.as_ref().is_some_and(|mark| {
            (&mark.cluster, &mark.namespace) == (&s.installation.0, &s.installation.1)
                && s.token.machine_uid.as_ref() == Some(&mark.machine_uid)
        });
    let Some(machine) = s.token.machine_name().filter(|_| is_ours) else {
        let reason = Reason::Awaiting("the token belongs to another installation or program");
        return Plan::idle(Why::new(reason, Step::Expect("it expires, or its owner deletes it")));
    };
    let fresh = s.look.as_ref().filter(|look| s.now <= plus(look.started, LOOK_LASTS));
    match (fresh, &s.look) {
        (Some(OwnerLook { exists: false, .. }), _) => {
            let why = Reason::Writing("deleting the bootstrap token of a Machine that is gone");
            Plan::act(Action::Delete, Why::new(why, Step::Nothing))
        }
        (_, Some(look)) if look.exists && s.now < plus(look.started, LOOK_AGAIN) => {
            let reason = Reason::Awaiting("a Machine of the name in the token exists");
            let why = Why::new(reason, Step::Expect("the token expires"));
            Plan::until(plus(look.started, LOOK_AGAIN), why)
        }
        _ => {
            let reason = Reason::Looking("the Machine of a bootstrap token");
            let next = Step::Expect("the token is deleted if the Machine is gone");
            Plan::act(Action::LookForMachine(machine.to_owned()), Why::new(reason, next))
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookForMachine(name) => write!(f, "machine {name}: look for it at the API server"),
            Self::Delete => f.write_str("token: delete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;
    use crate::testing::at;

    fn snapshot(mark: &str, description: &str) -> Snapshot {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "bootstrap-token-abcdef", "uid": "uid-t", "annotations": {
                "machinist.dev/machine-uid": "uid-m", "machinist.dev/machine": mark,
                "machinist.dev/namespace-uid": "uid-ns",
            }},
        }))
        .expect("a Secret");
        let token = TokenFacts { description: description.to_owned(), ..TokenFacts::parse(&secret) };
        let installation = ("ours".to_owned(), "ns".to_owned());
        let namespace_uid = Some("uid-ns".to_owned());
        Snapshot { now: at(0), token, installation, namespace_uid, look: None }
    }

    fn of_machine(mark: &str) -> Snapshot {
        snapshot(mark, &crate::mcm::facts::token_description("m"))
    }

    #[test]
    fn a_token_is_deleted_after_its_machine_is_proven_gone() {
        let ours = || of_machine("ours/ns/uid-m");
        let look = |exists, second| Some(OwnerLook { started: at(second), exists });
        assert_eq!(plan(&ours()).actions, [Action::LookForMachine("m".to_owned())]);
        assert_eq!(plan(&Snapshot { look: look(false, -1), ..ours() }).actions, [Action::Delete]);
        let old = plan(&Snapshot { look: look(false, -11), ..ours() });
        assert_eq!(old.actions, [Action::LookForMachine("m".to_owned())], "it may have been restored");
        assert_eq!(plan(&Snapshot { look: look(true, -1), ..ours() }).actions, []);
    }

    #[test]
    fn a_token_of_another_namespace_of_that_name_is_left_alone() {
        for other in [None, Some("uid-another".to_owned())] {
            let look = Some(OwnerLook { started: at(-1), exists: false });
            let s = Snapshot { namespace_uid: other, look, ..of_machine("ours/ns/uid-m") };
            assert_eq!(plan(&s).actions, []);
        }
    }

    #[test]
    fn tokens_of_others_are_left_alone() {
        for mark in ["theirs/ns/uid-m", "ours/other/uid-m", "ours/ns/uid-other", "uid-m", ""] {
            assert_eq!(plan(&of_machine(mark)).actions, [], "{mark}");
        }
        assert_eq!(plan(&snapshot("ours/ns/uid-m", "a token of a user")).actions, []);
    }
}
