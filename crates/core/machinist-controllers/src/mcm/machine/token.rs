//! Bootstrap tokens: chooses the token of a Machine, and creates its Secret.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinist_core::orphan::NAMESPACE_TAG;
use machinist_kube::ObjectKey;
use machinist_plan::facts::{ACCOUNT, KEY_SCOPE, PLACE};
use machinist_plan::mcm::facts::{
    CreationIntent, MachineFacts, NODE_MARK, NodeMark, TOKEN_NAMESPACE, TOKEN_OWNER, TOKEN_TYPE, Token,
    token_description,
};
use machinist_runtime::Stop;

use crate::mcm::contract::{Runtime, Write};
use crate::mcm::key::Key;
use crate::mcm::reference::object_key;
use crate::mcm::seen::{Seen, TokenEntry};

/// Number of characters in the secret part of a bootstrap token.
const TOKEN_SECRET_LENGTH: usize = 16;

/// Returns the key of the Secret of the token with this id.
pub(crate) fn secret_key(id: &str) -> ObjectKey {
    object_key(TOKEN_NAMESPACE, &format!("bootstrap-token-{id}"))
}

/// Returns the bootstrap token of a Machine, or a free id for a new one.
pub(crate) fn token(seen: &Seen, machine: &MachineFacts) -> Token {
    Token::choose(machine, |id| seen.tokens.get(&secret_key(id)).map(|entry| &entry.facts.facts))
}

/// Creates the Secret of a token with a new random secret part. `intent` says where the instance
/// will be created.
pub(super) async fn create(
    runtime: &Arc<Runtime>,
    charged: &[Key],
    machine: &MachineFacts,
    id: &str,
    expires: Timestamp,
    intent: CreationIntent,
) -> Result<(), Stop> {
    let options = runtime.tools.machine();
    let expiration = Timestamp::from_second(expires.as_second()).unwrap_or(expires).to_string();
    let CreationIntent { account, place, key_scope } = intent;
    let account = account.map(|account| (ACCOUNT.to_owned(), account.as_str().to_owned()));
    let place = place.map(|place| (PLACE.to_owned(), place.as_str().to_owned()));
    let key_scope = key_scope.map(|scope| (KEY_SCOPE.to_owned(), scope.as_str().to_owned()));
    let intent = account.into_iter().chain(place).chain(key_scope);
    let owner = (TOKEN_OWNER.to_owned(), machine.uid.clone());
    let namespace = runtime.lock().seen.memory.namespace_uid.clone().flatten();
    let namespace = namespace.map(|uid| (NAMESPACE_TAG.to_owned(), uid));
    let mark = (NODE_MARK.to_owned(), NodeMark::of(machine, &options.cluster).to_string());
    let entries = [
        ("description", token_description(&machine.name)),
        ("token-id", id.to_owned()),
        ("token-secret", token_secret(runtime)),
        ("expiration", expiration),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", options.token_groups.clone()),
    ];
    // A real API server rejects an empty list of groups, but accepts an absent one.
    let data = entries.into_iter().filter(|(key, value)| *key != "auth-extra-groups" || !value.is_empty());
    let key = secret_key(id);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            annotations: Some([owner, mark].into_iter().chain(intent).chain(namespace).collect()),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        data: Some(data.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()),
        ..Secret::default()
    };
    let write = Write { runtime, charged, key };
    // If the Secret existed already, the store will show its owner.
    write.create::<TokenEntry>(&secret).await.map(|_| ())
}

fn token_secret(runtime: &Runtime) -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    // Bytes from 252 upwards would make the first characters more likely than the others.
    const FAIR: u8 = 252;
    let mut secret = String::with_capacity(TOKEN_SECRET_LENGTH);
    while secret.len() < TOKEN_SECRET_LENGTH {
        let mut bytes = [0; TOKEN_SECRET_LENGTH];
        (runtime.tools.machine().entropy)(&mut bytes);
        let fair = bytes.into_iter().filter(|byte| *byte < FAIR);
        secret.extend(fair.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])));
    }
    secret.truncate(TOKEN_SECRET_LENGTH);
    secret
}
