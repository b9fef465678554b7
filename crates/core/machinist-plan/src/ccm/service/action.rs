//! The calls for one Service, as values.

use std::fmt;

use jiff::Timestamp;
use machinist_core::Call;
use machinist_instance::{BalancerRef, BalancerSpec, Ingress};

use super::answers::Inputs;
use crate::event::EventText;

/// Creates or updates a load balancer.
pub const ENSURE_BALANCER: Call = Call::change("ensure the load balancer");
/// Compares a wanted load balancer with the load balancer of the cloud.
pub const COMPARE_BALANCER: Call = Call::look("compare the load balancer");
/// Deletes a load balancer.
pub const DELETE_BALANCER: Call = Call::change("delete the load balancer");

/// One call for one Service.
#[derive(Debug)]
pub enum Action {
    /// Adds the finalizer and the record of today's account in one patch: the intent. The record is
    /// absent if the Service has one, or the credential opens no account.
    AddFinalizer(Option<String>),
    /// Asks the driver to create or update the load balancer.
    Ensure {
        /// The wanted load balancer.
        spec: Box<BalancerSpec>,
        /// Fingerprint of the spec, to store with the answer.
        inputs: Inputs,
    },
    /// Asks the driver for the changes that [`Self::Ensure`] would make. Only a dry run does so.
    Compare {
        /// The wanted load balancer.
        spec: Box<BalancerSpec>,
        /// Fingerprint of the spec, to store with the answer.
        inputs: Inputs,
    },
    /// Reports the answer to [`Self::Compare`].
    Foreseen(String),
    /// Asks the driver to delete the load balancer.
    Delete(BalancerRef),
    /// Replaces `status.loadBalancer.ingress`, guarded by the UID and the list as it was read.
    SetStatus(Vec<Ingress>),
    /// Records the load balancer and its account, so that it is known if another credential
    /// follows.
    Record(String),
    /// Records since when this program creates no load balancer for the Service.
    RecordWait(Timestamp),
    /// Removes that record, because the Service wants a load balancer again.
    ForgetWait,
    /// Removes the finalizer and that record, and clears `status.loadBalancer.ingress`, in one
    /// patch.
    Release,
    /// Removes the finalizer. The status belongs to the program of another class.
    HandOver,
    /// Emits an Event on the Service.
    Tell(EventText),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer(_) => f.write_str("service: add finalizer"),
            Self::Ensure { spec, .. } => write!(f, "driver: ensure {}", Outline(spec)),
            Self::Compare { spec, .. } => write!(f, "driver: compare {}", Outline(spec)),
            Self::Foreseen(changes) => write!(f, "driver: {changes}"),
            Self::Delete(which) => write!(f, "driver: delete balancer {}", which.key),
            Self::SetStatus(ingress) => {
                let all = ingress.iter().map(|ingress| match ingress {
                    Ingress::Ip { address, .. } => address.to_string(),
                    Ingress::Hostname(name) => name.clone(),
                });
                write!(f, "status: [{}]", all.collect::<Vec<_>>().join(" "))
            }
            Self::Record(record) => write!(f, "service: record {record}"),
            Self::RecordWait(_) => f.write_str("service: record the wait for earlier calls"),
            Self::ForgetWait => f.write_str("service: remove the record of the wait"),
            Self::Release => f.write_str("service: remove finalizer, clear status"),
            Self::HandOver => f.write_str("service: remove finalizer"),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

/// Key, ports and Nodes of a wanted load balancer.
struct Outline<'s>(&'s BalancerSpec);

impl fmt::Display for Outline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(spec) = self;
        let ports: Vec<_> = spec
            .listeners
            .iter()
            .map(|listener| format!("{}/{}", listener.port, listener.protocol))
            .collect();
        let nodes: Vec<_> = spec.targets.iter().map(|target| target.node.as_str()).collect();
        write!(f, "balancer {}, ports {}, ", spec.key, ports.join(" "))?;
        match nodes.len() {
            0..=MAX_NAMED => write!(f, "nodes [{}]", nodes.join(" ")),
            more => write!(f, "{more} nodes"),
        }
    }
}

/// Up to this number of Nodes, the log names each.
const MAX_NAMED: usize = 20;
