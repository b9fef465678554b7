//! Load balancers: what a caller wants, and what a cloud shows.
//!
//! A balancer has a [`BalancerKey`] that the core chose (the UID of a Service or of a Cluster) and
//! an id that the cloud chose. Its options are the cloud's own: the caller passes them as text, and
//! the driver parses and validates them, as it does for the provider spec of an instance.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::identity::{NativeId, ProviderId};
use crate::instance::Address;

/// The key of a balancer, which the cloud stores as a label. A key is never reused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BalancerKey(String);

impl BalancerKey {
    /// Wraps an identity that always stays unique, such as the UID of a Service.
    pub fn new(unique: impl Into<String>) -> Self {
        Self(unique.into())
    }

    /// The text as it is stored in the cloud.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BalancerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything that a driver needs to create or update one balancer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BalancerSpec {
    /// The key that makes creation idempotent: at most one balancer ever has it.
    pub key: BalancerKey,
    /// The cloud's own id, if the caller knows it. A list may lack a balancer, for example a young
    /// one. So a driver looks for this id before it creates a balancer. Only clouds whose ids are
    /// never given out again use it.
    pub id: Option<String>,
    /// The native id that the caller recorded. A balancer that has it and another key belongs to
    /// the caller nevertheless. Only clouds that cannot change keys use it.
    pub native_id: Option<NativeId>,
    /// The name for the balancer, unless the options contain another one.
    pub name: String,
    /// The ports of the balancer, each once.
    pub listeners: Vec<Listener>,
    /// The instances behind the balancer. If the cloud has none of that id, or cannot reach one,
    /// the driver skips it and returns a [`SkippedTarget`].
    pub targets: Vec<BalancerTarget>,
    /// Options in the words of the cloud, by name, for example `algorithm-type`.
    pub options: BTreeMap<String, String>,
    /// The right to the name that the options choose.
    pub claim: NameClaim,
}

/// The right of a caller to the name that the options of a balancer choose. A driver whose options
/// do not choose a name ignores the claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NameClaim {
    /// The object that holds the name, if another one does. An existing balancer then keeps the
    /// name that it has, and no balancer is created.
    pub held_by: Option<String>,
    /// Whether the caller may adopt a balancer that has the name and no key.
    pub adopts: bool,
    /// The name of the caller by which a user lets it adopt a balancer with another key, as the
    /// value of the label [`Self::INVITATION`].
    pub invited_as: Option<String>,
    /// Only a balancer that was created before this moment is renamed; `None` for no limit. A
    /// creation without an answer may still take effect, under the name of the spec. As long as the
    /// balancer has that name, the cloud refuses a second one.
    pub renames_if_created_before: Option<Timestamp>,
    /// Whether a creation without an answer may still take effect. Then no other balancer is
    /// adopted: the caller would have two.
    pub has_open_creation: bool,
}

impl NameClaim {
    /// The label of a balancer with the name of the object that may adopt it.
    pub const INVITATION: &str = "machinist.dev/adopt";
}

impl Default for NameClaim {
    /// The name is free, and a balancer that has it may be adopted.
    fn default() -> Self {
        Self {
            held_by: None,
            adopts: true,
            invited_as: None,
            renames_if_created_before: None,
            has_open_creation: false,
        }
    }
}

/// One port of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// The transport protocol.
    pub protocol: TransportProtocol,
    /// The port on which the balancer listens.
    pub port: u16,
    /// The port of the targets, for example the node port of a Service.
    pub target_port: u16,
}

/// A transport protocol of a Service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl fmt::Display for TransportProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// One instance behind a balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BalancerTarget {
    /// The name of the Node, for messages.
    pub node: String,
    /// The instance.
    pub instance: ProviderId,
    /// The share of new connections, from 0 to [`Self::FULL_WEIGHT`]. With
    /// [`Self::DRAINING_WEIGHT`], the target keeps its connections and receives no new ones. A
    /// cloud without weights leaves out a draining target, and treats every other weight as full.
    pub weight: u8,
}

impl BalancerTarget {
    /// The weight of a target in service.
    pub const FULL_WEIGHT: u8 = 100;
    /// The weight of a target that receives no new connections.
    pub const DRAINING_WEIGHT: u8 = 0;
}

/// A balancer as the cloud shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Balancer {
    /// The cloud's own id.
    pub id: String,
    /// The cloud's internal id, if [`id`](Self::id) is a name that the cloud gives out again.
    pub native_id: Option<NativeId>,
    /// The key of the balancer; absent if another program created it.
    pub key: Option<BalancerKey>,
    /// The name of the balancer.
    pub name: String,
    /// Where clients reach the balancer, in the order in which a Service shows it.
    pub ingress: Vec<Ingress>,
    /// The ports on which the balancer listens.
    pub ports: Vec<u16>,
    /// The ports of the machine that runs the balancer, by the port on which the balancer listens.
    /// Empty for a cloud whose addresses clients reach directly.
    pub host_ports: BTreeMap<u16, u16>,
    /// The instances behind the balancer.
    pub targets: Vec<ProviderId>,
    /// Number of further targets that the balancer accepts; absent if the cloud has no limit.
    pub room: Option<usize>,
    /// When the balancer was created, by the clock of the cloud; absent if the cloud does not
    /// report it.
    pub created: Option<Timestamp>,
    /// Whether the cloud refuses to delete the balancer until a user removes its protection.
    pub is_protected: bool,
}

/// An address or a host name of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ingress {
    /// An IP address.
    Ip {
        /// The address.
        address: IpAddr,
        /// Whether the balancer replaces the client's address, so that traffic from inside the
        /// cluster must pass through the balancer, too (`ipMode: Proxy`).
        is_proxy: bool,
    },
    /// A host name, shown instead of the addresses.
    Hostname(String),
}

/// A reference to one balancer. A driver uses the id if it is given, then the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BalancerRef {
    /// The cloud's own id, if known.
    pub id: Option<String>,
    /// The key of the balancer.
    pub key: BalancerKey,
    /// The native id that the caller recorded; see [`BalancerSpec::native_id`].
    pub native_id: Option<NativeId>,
    /// Further facts of the caller about the balancer, for its deletion. `None` if only id and key
    /// count.
    pub trace: Option<BalancerTrace>,
}

/// The traces of a balancer that may have lost its key, because a user removed the label.
///
/// A balancer without a key is the one if it has the name and one of the addresses. A name alone
/// proves nothing: any program may have created a balancer of that name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BalancerTrace {
    /// The name of the balancer, unless the options contain another one; see
    /// [`BalancerSpec::name`].
    pub name: String,
    /// Options in the words of the cloud; see [`BalancerSpec::options`].
    pub options: BTreeMap<String, String>,
    /// The addresses under which the caller published the balancer.
    pub addresses: Vec<IpAddr>,
}

/// The result of a call that changes a cloud in several steps.
///
/// Clouds carry out changes as actions that take seconds. A driver never waits for an action: it
/// returns [`Progress::Working`], and the caller repeats the call later. Because the call compares
/// what is wanted with what exists, it continues where the earlier call ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Progress<T> {
    /// The cloud is as requested.
    Done(T),
    /// The cloud carries out a change. The text names it, for example `attach_to_network`.
    Working(String),
}

impl<T> Progress<T> {
    /// The result, if the call has ended.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Working(_) => None,
        }
    }
}

/// The result of a completed `ensure` of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ensured {
    /// The balancer.
    pub balancer: Balancer,
    /// Notes for users: the parts of the spec that the driver skipped, and hints.
    pub notes: Vec<BalancerNote>,
    /// The wanted targets that the balancer lacks.
    pub skipped: Vec<SkippedTarget>,
}

impl Ensured {
    /// A balancer that is exactly as requested.
    pub fn complete(balancer: Balancer) -> Self {
        Self { balancer, notes: Vec::new(), skipped: Vec::new() }
    }
}

/// A wanted target that the balancer lacks. The driver also returns a [`BalancerNote`] about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SkippedTarget {
    /// The name of the Node.
    pub node: String,
    /// The instance.
    pub instance: ProviderId,
    /// When another try may succeed.
    pub cause: SkipCause,
    /// Why the balancer lacks the target, for people.
    pub message: String,
}

/// Why a balancer lacks a target. The cause decides when the caller tries again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SkipCause {
    /// The cloud shows the instance with these addresses, with which the instance cannot be a
    /// target. `None`: the cloud does not show the instance.
    Shown(Option<Vec<Address>>),
    /// The balancer has no room for the target; see [`Balancer::room`].
    Full,
    /// The cloud rejected the target, and its data do not show why.
    Refused,
}

/// A part of a spec that the driver skipped, or a hint about it. It becomes an Event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BalancerNote {
    /// The reason of the Event, in CamelCase.
    pub reason: &'static str,
    /// The message of the Event.
    pub message: String,
}

impl BalancerNote {
    /// The reason of the note about a balancer that another program created and that now has the
    /// key of the spec. Unlike other notes, it is not a warning.
    pub const ADOPTED: &str = "AdoptedLoadBalancer";
    /// The reason of the note about a balancer that keeps its name, because another one has the
    /// wanted name.
    pub const NAME_TAKEN: &str = "LoadBalancerNameTaken";
}

/// How the deletion of a balancer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BalancerDeletion {
    /// The call deleted the balancer.
    Gone,
    /// No balancer has the key, so the call deleted nothing.
    Absent,
    /// A user protected the balancer against deletion. It stays, without its key.
    Retained,
}
