//! The requests to an API server, as the server itself recorded them.
//!
//! The server counts exactly: a client counts what it tried to send, and misses retries of the
//! libraries beneath it.

mod audit_log;
mod counts;
mod tally;

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use machinist_apiserver::{AuditRecord, Subscription};

pub(crate) use self::audit_log::AuditLog;
pub(crate) use self::counts::Counts;
pub(crate) use self::tally::{PerMachine, RequestTally, per, round};

/// User-Agent of the machine controller, up to its version.
pub(crate) const MACHINE_CONTROLLER: &str = "machinist-machine-controller";
/// User-Agent of the manager, up to its version.
pub(crate) const MANAGER: &str = "machinist-machine-controller-manager";

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    MachineController,
    Manager,
    /// Any other sender: this benchmark, Kubernetes' own controllers, nodes.
    Other,
}

impl Program {
    /// The sender with that User-Agent.
    pub(crate) fn of_user_agent(user_agent: &str) -> Self {
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
pub(crate) struct AnsweredRequest {
    pub(crate) program: Program,
    /// When the server received the request, if the server records that.
    pub(crate) received: Option<Timestamp>,
    /// get, list, watch, create, update, patch, delete, deletecollection.
    pub(crate) verb: String,
    /// `machines`, or `machines/status` for a subresource.
    pub(crate) resource: String,
    /// Name of the object; empty for lists.
    pub(crate) name: String,
    pub(crate) code: u16,
    /// Whether the server's error named invalid fields.
    pub(crate) has_causes: bool,
}

impl AnsweredRequest {
    /// Whether one of the two controllers sent the request.
    pub(crate) fn is_controllers(&self) -> bool {
        self.program != Program::Other
    }

    /// Whether the request tried to change something, successful or not.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the request changed something, judged by its status code.
    pub(crate) fn is_commit(&self) -> bool {
        self.is_write() && (200..300).contains(&self.code)
    }

    /// Whether the request is about Events, which are counted separately: they are for people, and
    /// dropped when there are too many.
    pub(crate) fn is_about_events(&self) -> bool {
        self.resource == "events"
    }

    /// Whether the request is about Leases, which are renewed at intervals, independent of the
    /// number of machines.
    pub(crate) fn is_about_leases(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether one of the two controllers tried to change an object other than an Event or a Lease.
    pub(crate) fn is_controllers_write(&self) -> bool {
        self.is_controllers() && self.is_write() && !self.is_about_events() && !self.is_about_leases()
    }

    /// Whether the request failed because of an earlier write: 409, or a failed `test` of a JSON
    /// patch, which is a 422 without causes.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code == 409 || (self.code == 422 && !self.has_causes)
    }

    /// Whether the request created a Machine.
    pub(crate) fn makes_machine(&self) -> bool {
        self.verb == "create" && self.resource == "machines" && self.is_commit()
    }
}

impl fmt::Display for AnsweredRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} -> {} by the {}", self.verb, self.resource, self.name, self.code, self.program)
    }
}

impl From<&AuditRecord> for AnsweredRequest {
    fn from(record: &AuditRecord) -> Self {
        Self {
            program: Program::of_user_agent(&record.user_agent),
            received: None,
            verb: record.verb.to_string(),
            resource: with_subresource(&record.resource, &record.subresource),
            name: record.name.clone(),
            code: record.code,
            // The audit hook records no causes, so every 422 counts as a conflict here: too many
            // rather than too few.
            has_causes: false,
        }
    }
}

fn with_subresource(resource: &str, subresource: &str) -> String {
    if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") }
}

/// A source of requests.
#[derive(Debug)]
pub(crate) enum Requests {
    /// The audit hook of the embedded server.
    Embedded(Subscription<Arc<AuditRecord>>),
    /// The audit log of kube-apiserver, which contains a watch only after the watch has ended.
    Real(AuditLog),
}

impl Requests {
    /// The requests answered since the last call.
    ///
    /// # Errors
    /// When an audit log cannot be read.
    pub(crate) fn take(&mut self) -> Result<Vec<AnsweredRequest>> {
        match self {
            Self::Embedded(records) => {
                Ok(records.drain().iter().map(|record| AnsweredRequest::from(record.as_ref())).collect())
            }
            Self::Real(log) => log.take(),
        }
    }
}

#[cfg(test)]
impl AnsweredRequest {
    /// A request about an object whose name is `x`.
    pub(crate) fn test(program: Program, verb: &str, resource: &str, code: u16) -> Self {
        let (verb, resource, name) = (verb.to_owned(), resource.to_owned(), "x".to_owned());
        Self { program, received: None, verb, resource, name, code, has_causes: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_recognised_by_their_whole_name() {
        assert_eq!(Program::of_user_agent("machinist-machine-controller/0.1.0"), Program::MachineController);
        assert_eq!(Program::of_user_agent("machinist-machine-controller-manager/0.1.0"), Program::Manager);
        assert_eq!(Program::of_user_agent("kube-controller-manager/v1.36.3 (linux/amd64)"), Program::Other);
        assert_eq!(Program::of_user_agent(""), Program::Other);
    }
}
