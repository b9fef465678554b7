//! The API type Mail, its feed, and its actions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use machinist_core::{Answered, Plan};
use machinist_instance::{AccountId, Error, ErrorKind};
use machinist_kube::{Change, GuardedPatch, ObjectKey, Store};
use machinist_runtime::{
    Ask, Contract, Fed, Feed, Kind, Observed, QueueKey, Runtime, Stop, World, Write, feed, pass,
};
use serde::{Deserialize, Serialize};

use crate::plan::{self, Action, MailReason, SEND, Snapshot};

/// The longest duration of the call that sends a letter.
const BOUND: Duration = Duration::from_secs(10);

/// A letter, as a custom resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mail {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The recipient of the letter.
    pub spec: MailSpec,
    /// The state of the delivery; absent until the controller records the intent.
    pub status: Option<MailStatus>,
}

/// The spec of a Mail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MailSpec {
    /// The address of the recipient.
    pub to: String,
}

/// The status of a Mail.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MailStatus {
    /// One of `Sending`, `Sent`, `Failed` and `Unknown`.
    pub state: Option<String>,
}

impl Resource for Mail {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Mail".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "example.com".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "mails".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The contract with the single kind Mail.
pub struct Mails;

/// The queue key of a Mail: its namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub ObjectKey);

/// A function that sends a letter to a recipient.
pub type Post = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// The store and the memory of Mails.
pub struct Seen {
    mails: Store<Mail>,
    /// The memory about letters whose intent this process recorded, by UID.
    memory: BTreeMap<String, Memory>,
}

#[derive(Clone)]
struct Memory {
    may_send: bool,
    answered: Option<Answered<()>>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { mails: Store::new(&[]), memory: BTreeMap::new() }
    }
}

impl QueueKey for Key {
    fn kind(&self) -> &'static str {
        "mail"
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mail/{}", self.0)
    }
}

impl Contract for Mails {
    type Key = Key;
    type Seen = Seen;
    type Tools = Post;
    type Reason = MailReason;

    fn feeds(_: &Post) -> Vec<Box<dyn Feed<Self>>> {
        vec![feed::<Self, Mail>()]
    }
    fn keys(seen: &Seen, _: &Post) -> Vec<Key> {
        seen.mails.iter().map(|(key, _)| Key(key.clone())).collect()
    }
    fn pass<'a>(runtime: &'a Arc<Runtime<Self>>, key: &'a Key) -> BoxFuture<'a, ()> {
        Box::pin(pass::<Self, Letters>(runtime, key, &key.0))
    }
    fn forget_moments(seen: &mut Seen, _: jiff::Timestamp) {
        seen.memory.clear();
    }
    fn key_named(kind: &str, namespace: &str, name: &str) -> Option<Key> {
        (kind == "mail").then(|| Key(ObjectKey::new(namespace, name)))
    }
}

impl Fed<Mails> for Mail {
    type Object = Self;
    const RESOURCE: &'static str = "mails";

    fn api(runtime: &Runtime<Mails>, namespace: &str) -> Api<Self> {
        Api::namespaced(runtime.clients.control.clone(), namespace)
    }
    fn parse(object: &Self) -> Self {
        object.clone()
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.mails
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.mails
    }
    fn route(_: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key(change.key.clone()));
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.remove(uid);
    }
}

/// A letter, and the facts of one decision about it.
pub struct Letter(Arc<Mail>, Snapshot);

impl Hash for Letter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.metadata.resource_version, &self.1.answered).hash(state);
    }
}

/// The kind Mail, as the runtime serves it.
pub struct Letters;

impl Kind<Mails> for Letters {
    type Id = ObjectKey;
    type Snapshot = Letter;
    type Action = Action;

    fn observe(runtime: &Runtime<Mails>, world: &World<Mails>, id: &ObjectKey) -> Observed<Letter> {
        let Some(mail) = world.seen.mails.get(id) else { return Observed::Gone };
        let memory = world.seen.memory.get(&mail.uid);
        let snapshot = Snapshot {
            now: runtime.now(),
            state: mail.facts.status.as_ref().and_then(|status| status.state.clone()),
            may_send: memory.is_some_and(|memory| memory.may_send),
            in_flight: world.asks.of(&mail.uid),
            answered: memory.and_then(|memory| memory.answered.clone()),
        };
        Observed::Ready(Letter(mail.facts.clone(), snapshot))
    }

    fn plan(_: &Post, Letter(_, snapshot): &Letter) -> Plan<Action, MailReason> {
        plan::plan(snapshot)
    }

    async fn act(runtime: &Arc<Runtime<Mails>>, letter: &Letter, action: Action) -> Result<(), Stop> {
        let Letter(mail, snapshot) = letter;
        match action {
            Action::Intend => {
                set_state(runtime, mail, snapshot, "Sending").await?;
                let memory = Memory { may_send: true, answered: None };
                runtime.lock().seen.memory.insert(mail.uid().unwrap_or_default(), memory);
                Ok(())
            }
            Action::Send => send(runtime, mail),
            Action::Conclude(state) => set_state(runtime, mail, snapshot, state).await,
        }
    }

    fn reference(Letter(mail, _): &Letter) -> Option<ObjectReference> {
        Some(mail.object_ref(&()))
    }
}

fn key(mail: &Mail) -> ObjectKey {
    ObjectKey::new(mail.namespace().unwrap_or_default(), mail.name_any())
}

async fn set_state(runtime: &Runtime<Mails>, mail: &Mail, s: &Snapshot, state: &str) -> Result<(), Stop> {
    let was = s.state.as_ref().map(|state| serde_json::json!({ "state": state }));
    let patch = GuardedPatch::new(&mail.uid().unwrap_or_default())
        .test(&["status"], was.as_ref())
        .add(&["status"], serde_json::json!({ "state": state }));
    let key = key(mail);
    Write { runtime, charged: &[Key(key.clone())], key }.patch_status::<Mail>(patch).await
}

fn send(runtime: &Arc<Runtime<Mails>>, mail: &Mail) -> Result<(), Stop> {
    let (post, to, subject, id) =
        (runtime.tools.clone(), mail.spec.to.clone(), mail.uid().unwrap_or_default(), key(mail));
    let (wanted, answered) = (subject.clone(), subject.clone());
    let ask = Ask {
        account: runtime.accounts.limits(AccountId::of([b"post office".as_slice()]), 4, None),
        key: Key(id.clone()),
        subject,
        call: SEND,
        bound: BOUND,
        begins_by: None,
        still_wanted: Box::new(move |seen: &mut Seen| {
            let is_there = seen.mails.get(&id).is_some_and(|mail| mail.uid == wanted && !mail.deleting);
            // From now on the call may take effect, so it must not be repeated before its answer.
            match seen.memory.get_mut(&wanted).filter(|memory| is_there && memory.may_send) {
                Some(memory) => std::mem::replace(&mut memory.may_send, false),
                None => false,
            }
        }),
        remember: Box::new(move |seen: &mut Seen, answer: Answered<()>| {
            let had_no_effect = answer.answer.as_ref().is_err_and(|error| {
                matches!(error.kind, ErrorKind::Throttled { .. } | ErrorKind::Unavailable)
            });
            if let Some(memory) = seen.memory.get_mut(&answered) {
                *memory = Memory { may_send: had_no_effect, answered: Some(answer) };
            }
        }),
    };
    runtime.ask(ask, async move { post(to).await })
}
