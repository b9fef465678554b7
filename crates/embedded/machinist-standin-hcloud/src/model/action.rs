//! Actions: changes that take time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    HcloudServer, LbAlgorithm, LbPrivateNet, LbTarget, Listed, NetworkRoute, PrivateNet, ServerStatus,
    Service, Subnet, TargetKind,
};

/// An action. Its effect is applied when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HcloudAction {
    /// Id of the action.
    pub id: i64,
    /// Project of the action.
    pub project: String,
    /// Name of the change, for example `add_route`.
    pub command: String,
    /// Status of the action.
    pub status: ActionStatus,
    /// When the action was requested.
    pub started: Timestamp,
    /// When the action ends; absent if a read or the operator ends it.
    pub ends_at: Option<Timestamp>,
    /// Number of reads that still show the action as running, if reads end it.
    pub polls_left: Option<u32>,
    /// When the action ended.
    pub finished: Option<Timestamp>,
    /// Resources that the action changes; the first one is locked until the action ends.
    pub resources: Vec<ResourceRef>,
    /// Why the action failed.
    pub error: Option<ActionError>,
    /// The error with which the action ends, if the operator made it fail.
    pub fails_with: Option<ActionError>,
    /// The change on success.
    pub(crate) effect: Effect,
}

impl HcloudAction {
    /// Whether the action locks that resource.
    pub(crate) fn locks(&self, kind: &str, id: i64) -> bool {
        self.status == ActionStatus::Running
            && self.resources.first().is_some_and(|first| first.kind == kind && first.id == id)
    }

    /// Progress in percent.
    pub fn progress_at(&self, now: Timestamp) -> u8 {
        if self.status != ActionStatus::Running {
            return 100;
        }
        let Some(ends_at) = self.ends_at else { return 0 };
        let whole = ends_at.duration_since(self.started).as_millis().max(1);
        let part = now.duration_since(self.started).as_millis().clamp(0, whole);
        u8::try_from(part * 99 / whole).unwrap_or(99)
    }
}

impl Listed for HcloudAction {
    fn id(&self) -> i64 {
        self.id
    }
    fn name(&self) -> &str {
        &self.command
    }
    fn created(&self) -> Timestamp {
        self.started
    }
    fn status(&self) -> Option<&'static str> {
        Some(self.status.as_str())
    }
}

/// The status of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionStatus {
    /// The change is in progress.
    Running,
    /// The change was made.
    Success,
    /// The change failed.
    Error,
}

impl ActionStatus {
    /// The word in replies and in the `status` filter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
        }
    }
}

/// A resource that an action changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRef {
    /// Id of the resource.
    pub id: i64,
    /// Sort of the resource, for example `server`.
    #[serde(rename = "type")]
    pub kind: String,
}

impl ResourceRef {
    pub(crate) fn new(kind: &str, id: i64) -> Self {
        Self { id, kind: kind.to_owned() }
    }
}

/// Why an action failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionError {
    /// The error code.
    pub code: String,
    /// The message.
    pub message: String,
}

/// The change of an action. It is applied when the action succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    None,
    /// The server gets that status. On failure it gets the other one.
    ServerStatus {
        server: i64,
        on_success: ServerStatus,
        on_error: ServerStatus,
    },
    DeleteServer {
        server: i64,
        before: ServerStatus,
    },
    AttachServer {
        server: i64,
        net: PrivateNet,
    },
    DetachServer {
        server: i64,
        network: i64,
    },
    ChangeServerType {
        server: i64,
        server_type: String,
        disk: Option<u32>,
    },
    ProtectServer {
        server: i64,
        protected: bool,
    },
    AddRoute {
        network: i64,
        route: NetworkRoute,
    },
    DeleteRoute {
        network: i64,
        route: NetworkRoute,
    },
    AddSubnet {
        network: i64,
        subnet: Subnet,
    },
    DeleteSubnet {
        network: i64,
        ip_range: String,
    },
    ChangeIpRange {
        network: i64,
        ip_range: String,
    },
    ProtectNetwork {
        network: i64,
        protected: bool,
    },
    LoadBalancer {
        load_balancer: i64,
        change: LbChange,
    },
    AssignFloatingIp {
        floating_ip: i64,
        server: Option<i64>,
    },
    IssueCertificate {
        certificate: i64,
    },
    DeleteLoadBalancer {
        load_balancer: i64,
    },
}

/// The change of an action on a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LbChange {
    None,
    /// Adds the service, or replaces the service with the same port.
    PutService(Box<Service>),
    DeleteService(u16),
    AddTarget(LbTarget),
    RemoveTarget(TargetKind),
    Attach(LbPrivateNet),
    Detach(i64),
    Algorithm(LbAlgorithm),
    Type(String),
    PublicInterface(bool),
    DnsPtr {
        ip: String,
        dns_ptr: Option<String>,
    },
    Protection(bool),
}

impl Effect {
    /// The attachment that the effect makes. Its address is reserved until then.
    pub(crate) fn reserves(&self) -> Option<(i64, &str)> {
        match self {
            Self::AttachServer { net, .. } => Some((net.network, &net.ip)),
            Self::LoadBalancer { change: LbChange::Attach(net), .. } => Some((net.network, &net.ip)),
            _ => None,
        }
    }

    /// Status of a server before its deletion was requested.
    pub(crate) fn deletion_of(server: &HcloudServer) -> Self {
        Self::DeleteServer { server: server.id, before: server.status }
    }
}
