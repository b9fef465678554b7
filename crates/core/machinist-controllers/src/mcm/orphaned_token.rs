//! Connects bootstrap tokens without a Machine with the work loop. The rules are in
//! `machinist_plan::mcm::orphaned_token`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::facts::{MachineFacts, TokenFacts};
use machinist_plan::mcm::orphaned_token::{Action, OwnerLook, Snapshot};
use machinist_runtime::{Kind, Observed, Stop, refresh};

use super::contract::{Mcm, Runtime, World, Write};
use super::key::Key;
use super::machine::secret_key;
use super::options::Tools;
use super::reference::object_key;
use super::seen::{BY_OWNER, Seen, TokenEntry};

/// Bootstrap tokens whose Machine is gone.
pub(crate) struct OrphanedTokens;

impl Kind<Mcm> for OrphanedTokens {
    /// The id of the token.
    type Id = String;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<String> {
        let tokens = seen.tokens.iter().map(|(_, token)| &token.facts.facts);
        tokens.filter(|token| is_left(seen, token)).map(|token| token.id.clone()).collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.decides_nodes()
    }

    fn observe(runtime: &Runtime, world: &World, id: &String) -> Observed<Snapshot> {
        let token = world.seen.tokens.get(&secret_key(id)).map(|token| &token.facts.facts);
        let Some(token) = token.filter(|token| is_left(&world.seen, token)) else { return Observed::Gone };
        Observed::Ready(Snapshot {
            now: runtime.now(),
            token: token.clone(),
            installation: (runtime.tools.machine().cluster.clone(), runtime.options.namespace.clone()),
            namespace_uid: world.seen.memory.namespace_uid.clone().flatten(),
            look: world.seen.memory.token_looks.get(&token.uid).cloned(),
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.orphaned_token)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let TokenFacts { id, uid, .. } = &s.token;
        match action {
            Action::LookForMachine(name) => {
                let started = runtime.now();
                let key = object_key(&runtime.options.namespace, &name);
                let found = refresh::<Mcm, MachineFacts>(runtime, &key).await;
                let found = found.map_err(|error| Stop::Unanswered(error.to_string()))?;
                let exists = found.is_some();
                let mut world = runtime.lock();
                if world.seen.tokens.get(&secret_key(id)).is_some_and(|token| token.uid == *uid) {
                    world.seen.memory.token_looks.insert(uid.clone(), OwnerLook { started, exists });
                }
                drop(world);
                runtime.queue.wake(Key::Token(id.clone()));
                Ok(())
            }
            Action::Delete => {
                let charged = [Key::Token(id.clone())];
                let write = Write { runtime, charged: &charged, key: secret_key(id) };
                write.delete::<TokenEntry>(uid).await?;
                tracing::info!(token = id, "Deleted the bootstrap token of a Machine that is gone");
                Ok(())
            }
        }
    }

    fn takes_away(action: &Action) -> bool {
        *action == Action::Delete
    }

    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Whether a token was created for a Machine that is not in the store.
fn is_left(seen: &Seen, token: &TokenFacts) -> bool {
    token.mark.is_some() && token.machine_uid.as_ref().is_some_and(|uid| !seen.has_machine(uid))
}

/// Returns the keys of the tokens of a Machine that is gone.
pub(super) fn left_by(seen: &Seen, machine_uid: &str) -> Vec<Key> {
    let tokens = seen.tokens.by_index(BY_OWNER, machine_uid);
    tokens.map(|(_, token)| Key::Token(token.facts.facts.id.clone())).collect()
}
