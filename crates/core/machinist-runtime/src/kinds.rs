//! The table of the kinds of a contract.
//!
//! [`keys!`](crate::keys) makes the queue key of a contract from one row per kind, and
//! [`kinds!`](crate::kinds) connects each key with its [`Kind`](crate::Kind), which answers all
//! questions of the runtime about the key. So a new kind is a row in each table and one `impl
//! Kind`, and no list of kinds can miss it.
//!
//! There are two tables, because the files of the kinds use the key.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use machinist_core::Why;
use machinist_driver::Check;
use machinist_kube::{Cluster, ObjectKey};

use crate::contract::Contract;
use crate::explanation::{ExplainError, Explanation};
use crate::key::QueueKey;
use crate::passes::WhyRecord;
use crate::runtime::Runtime;
use crate::world::World;

/// The queue key of a contract. [`kinds!`](crate::kinds) implements it: each function calls the
/// function of that name of the key's [`Kind`](crate::Kind).
pub trait ContractKey<C: Contract<Key = Self>>: QueueKey {
    /// All keys of the stored objects, of all kinds.
    fn all(seen: &C::Seen, tools: &C::Tools) -> Vec<Self>;

    /// Whether this process decides about the key. Other keys are not queued.
    fn is_decided(&self, tools: &C::Tools) -> bool;

    /// Whether a decision about the key does not wait for the target cluster.
    fn goes_on_without_target(&self, seen: &C::Seen) -> bool;

    /// Whether decisions about the key depend on the objects of that cluster.
    fn depends_on(&self, cluster: &Cluster) -> bool;

    /// Returns a check whether the cloud of the key answers.
    fn check_cloud(&self, tools: &C::Tools) -> Option<Check>;

    /// Returns the reason to show for the key.
    fn why<'w>(
        &self,
        world: &'w World<C>,
        record: &'w WhyRecord<C::Reason>,
        now: jiff::Timestamp,
    ) -> &'w Why<C::Reason>;

    /// Performs one pass over the key.
    fn pass<'a>(&'a self, runtime: &'a Arc<Runtime<C>>) -> BoxFuture<'a, ()>;

    /// Decides about the key without performing the actions.
    ///
    /// # Errors
    /// If the object does not exist or cannot be parsed, or if the kind is not explained.
    fn explain(&self, runtime: &Runtime<C>) -> Result<Explanation<C::Reason>, ExplainError<Self>>;
}

/// The identity of one object of a kind, within its kind.
pub trait KindId: Clone + Ord + fmt::Debug + Send + Sync + 'static {
    /// Whether the objects have no namespace.
    const IS_CLUSTER_SCOPED: bool;

    /// Returns the identity for a name in a path or a command. `namespace` is the namespace that
    /// the process serves.
    fn named(namespace: &str, name: &str) -> Self;

    /// The key of the object in the store; `None` if the kind has one key for all objects.
    fn object_key(&self) -> Option<ObjectKey>;

    /// Writes the part of the key after the kind, with the slash before it.
    ///
    /// # Errors
    /// If the formatter fails.
    fn write_after_kind(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// A process may serve all namespaces, so a name can be `NAMESPACE/NAME`.
impl KindId for ObjectKey {
    const IS_CLUSTER_SCOPED: bool = false;

    fn named(namespace: &str, name: &str) -> Self {
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        Self::new(namespace, name)
    }
    fn object_key(&self) -> Option<ObjectKey> {
        Some(self.clone())
    }
    fn write_after_kind(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{self}")
    }
}

/// The name of a cluster-scoped object, or the UID of any object.
impl KindId for String {
    const IS_CLUSTER_SCOPED: bool = true;

    fn named(_: &str, name: &str) -> Self {
        name.to_owned()
    }
    fn object_key(&self) -> Option<ObjectKey> {
        Some(ObjectKey::cluster_scoped(self))
    }
    fn write_after_kind(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{self}")
    }
}

/// One key for all objects.
impl KindId for () {
    const IS_CLUSTER_SCOPED: bool = true;

    fn named(_: &str, _: &str) -> Self {}
    fn object_key(&self) -> Option<ObjectKey> {
        None
    }
    fn write_after_kind(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Makes the queue key of a contract: one row per kind. Keys that are due at the same time are
/// handed out in the order of the rows. The text is the name of the kind in metrics and `why`. A
/// kind that counts many objects has a shortest time between two passes over a key, and so collects
/// several changes in one pass.
///
/// ```text
/// keys! {
///     /// An object to decide about.
///     pub enum Key {
///         /// A Machine.
///         Machine(id: ObjectKey) = "machine",
///         /// All routes: one key for all objects.
///         Routes = "routes" every Duration::from_secs(1),
///     }
/// }
/// ```
#[macro_export]
macro_rules! keys {
    (@id) => { &() };
    (@id $id:ident) => { $id };
    (@key $key:ident $variant:ident) => { |()| $key::$variant };
    (@key $key:ident $variant:ident $id:ident) => { $key::$variant };
    (@id_type) => { () };
    (@id_type $type:ty) => { $type };
    (@interval) => { ::std::time::Duration::ZERO };
    (@interval $interval:expr) => { $interval };
    (
        $(#[$meta:meta])*
        $visibility:vis enum $key:ident {
            $($(#[$row:meta])* $variant:ident $(($id:ident: $type:ty))? = $name:literal $(every $interval:expr)?,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        $visibility enum $key {
            $($(#[$row])* $variant $(($type))?,)+
        }

        impl $crate::QueueKey for $key {
            fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)+
                }
            }
            fn min_interval(&self) -> ::std::time::Duration {
                match self {
                    $(Self::$variant { .. } => $crate::keys!(@interval $($interval)?),)+
                }
            }
            fn is_cluster_scoped(&self) -> bool {
                match self {
                    $(Self::$variant { .. } => {
                        <$crate::keys!(@id_type $($type)?) as $crate::KindId>::IS_CLUSTER_SCOPED
                    })+
                }
            }
            fn named(kind: &str, namespace: &str, name: &str) -> Option<Self> {
                match kind {
                    $($name => {
                        let id = $crate::KindId::named(namespace, name);
                        Some($crate::keys!(@key $key $variant $($id)?)(id))
                    })+
                    _ => None,
                }
            }
        }

        impl ::std::fmt::Display for $key {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str($crate::QueueKey::kind(self))?;
                match self {
                    $(Self::$variant $(($id))? => {
                        $crate::KindId::write_after_kind($crate::keys!(@id $($id)?), f)
                    })+
                }
            }
        }
    };
}

/// Connects the keys of a contract with its kinds: one row per key, with the [`Kind`](crate::Kind)
/// that decides about it.
///
/// ```text
/// kinds! {
///     Key of Mcm {
///         Machine(id) => Machines,
///         Routes => RouteTables,
///     }
/// }
/// ```
#[macro_export]
macro_rules! kinds {
    ($key:ident of $contract:ty { $($variant:ident $(($id:ident))? => $kind:ty,)+ }) => {
        impl $crate::ContractKey<$contract> for $key {
            fn all(
                seen: &<$contract as $crate::Contract>::Seen,
                tools: &<$contract as $crate::Contract>::Tools,
            ) -> Vec<Self> {
                let mut keys = Vec::new();
                $(keys.extend(
                    <$kind as $crate::Kind<$contract>>::ids(seen, tools)
                        .into_iter()
                        .map($crate::keys!(@key $key $variant $($id)?)),
                );)+
                keys
            }
            fn is_decided(&self, tools: &<$contract as $crate::Contract>::Tools) -> bool {
                match self {
                    $(Self::$variant { .. } => <$kind as $crate::Kind<$contract>>::is_decided(tools),)+
                }
            }
            fn goes_on_without_target(&self, seen: &<$contract as $crate::Contract>::Seen) -> bool {
                match self {
                    $(Self::$variant $(($id))? => {
                        let id = $crate::keys!(@id $($id)?);
                        <$kind as $crate::Kind<$contract>>::goes_on_without_target(seen, id)
                    })+
                }
            }
            fn depends_on(&self, cluster: &$crate::Cluster) -> bool {
                match self {
                    $(Self::$variant { .. } => <$kind as $crate::Kind<$contract>>::depends_on(cluster),)+
                }
            }
            fn check_cloud(
                &self,
                tools: &<$contract as $crate::Contract>::Tools,
            ) -> Option<$crate::Check> {
                match self {
                    $(Self::$variant { .. } => <$kind as $crate::Kind<$contract>>::check_cloud(tools),)+
                }
            }
            fn why<'w>(
                &self,
                world: &'w $crate::World<$contract>,
                record: &'w $crate::WhyRecord<<$contract as $crate::Contract>::Reason>,
                now: ::jiff::Timestamp,
            ) -> &'w ::machinist_core::Why<<$contract as $crate::Contract>::Reason> {
                match self {
                    $(Self::$variant $(($id))? => {
                        let id = $crate::keys!(@id $($id)?);
                        <$kind as $crate::Kind<$contract>>::why(world, id, record, now)
                    })+
                }
            }
            fn pass<'a>(
                &'a self,
                runtime: &'a ::std::sync::Arc<$crate::Runtime<$contract>>,
            ) -> ::futures::future::BoxFuture<'a, ()> {
                match self {
                    $(Self::$variant $(($id))? => {
                        let id = $crate::keys!(@id $($id)?);
                        Box::pin($crate::pass::<$contract, $kind>(runtime, self, id))
                    })+
                }
            }
            fn explain(
                &self,
                runtime: &$crate::Runtime<$contract>,
            ) -> Result<
                $crate::Explanation<<$contract as $crate::Contract>::Reason>,
                $crate::ExplainError<Self>,
            > {
                match self {
                    $(Self::$variant $(($id))? => {
                        let id = $crate::keys!(@id $($id)?);
                        $crate::explain_one::<$contract, $kind>(runtime, self, id)
                    })+
                }
            }
        }
    };
}
