//! What was asked of an API server, as the server itself recorded it.
//!
//! Counting at the server is the point: a client counts what it believes to have sent, and misses what a library beneath it repeats.

mod audit_log;
mod tally;

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use machinist_apiserver::{AuditRecord, Subscription};

pub use self::audit_log::AuditLog;
pub use self::tally::{PerMachine, Row, Tally};
pub(crate) use self::tally::{per, round};

/// The User-Agent of the machine controller, up to its version.
pub const MACHINE_CONTROLLER: &str = "machinist-machine-controller";
/// The User-Agent of the manager, up to its version.
pub const MANAGER: &str = "machinist-machine-controller-manager";

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The machine controller.
    MachineController,
    /// The manager.
    Manager,
    /// Anybody else: us, Kubernetes' own controllers, nodes.
    Other,
}

impl Program {
    /// By what it calls itself.
    pub fn of_user_agent(user_agent: &str) -> Self {
        match user_agent.split_once('/').map_or(user_agent, |(name, _version)| name) {
            MACHINE_CONTROLLER => Self::MachineController,
            MANAGER => Self::Manager,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MachineController => "machine controller",
            Self::Manager => "manager",
            Self::Other => "others",
        })
    }
}

/// One answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who asked.
    pub program: Program,
    /// When the server received it, where the server records that.
    pub received: Option<Timestamp>,
    /// get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// `machines`, or `machines/status` for a subresource.
    pub resource: String,
    /// The object's name; empty for lists.
    pub name: String,
    /// The HTTP status.
    pub code: u16,
    /// The server named fields that it found wrong.
    pub has_causes: bool,
}

impl Request {
    /// Whether it asked to change something, whatever came of it.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it changed something, as far as its code tells.
    pub fn is_commit(&self) -> bool {
        self.is_write() && (200..300).contains(&self.code)
    }

    /// Events are counted apart: they are for people, and dropped when there are too many.
    pub fn is_about_events(&self) -> bool {
        self.resource == "events"
    }

    /// Leases are renewed by the clock, not for machines.
    pub fn is_about_leases(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether it failed because somebody had written before: 409, or a failed `test` of a JSON patch, which is a 422 without causes.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 || (self.code == 422 && !self.has_causes)
    }

    /// Whether it made a Machine.
    pub fn makes_machine(&self) -> bool {
        self.verb == "create" && self.resource == "machines" && self.is_commit()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} -> {} by the {}", self.verb, self.resource, self.name, self.code, self.program)
    }
}

impl From<&AuditRecord> for Request {
    fn from(record: &AuditRecord) -> Self {
        Self {
            program: Program::of_user_agent(&record.user_agent),
            received: None,
            verb: record.verb.to_owned(),
            resource: with_subresource(&record.resource, &record.subresource),
            name: record.name.clone(),
            code: record.code,
            // It records no causes, so here every 422 counts as a conflict: too many rather than too few.
            has_causes: false,
        }
    }
}

fn with_subresource(resource: &str, subresource: &str) -> String {
    if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") }
}

/// Where requests are read from.
#[derive(Debug)]
pub enum Requests {
    /// The audit hook of the embedded server.
    Embedded(Subscription<Arc<AuditRecord>>),
    /// The audit log of kube-apiserver. A watch appears in it when it ends.
    Real(AuditLog),
}

impl Requests {
    /// What was answered since the last time.
    ///
    /// # Errors
    /// When an audit log cannot be read.
    pub fn take(&mut self) -> Result<Vec<Request>> {
        match self {
            Self::Embedded(records) => {
                Ok(records.drain().iter().map(|record| Request::from(record.as_ref())).collect())
            }
            Self::Real(log) => log.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart_by_their_whole_name() {
        assert_eq!(Program::of_user_agent("machinist-machine-controller/0.1.0"), Program::MachineController);
        assert_eq!(Program::of_user_agent("machinist-machine-controller-manager/0.1.0"), Program::Manager);
        assert_eq!(Program::of_user_agent("kube-controller-manager/v1.36.3 (linux/amd64)"), Program::Other);
        assert_eq!(Program::of_user_agent(""), Program::Other);
    }
}
