//! Events: commits at API servers and entries in the ledger, in the order in which they are read.

use std::fmt;

use anyhow::Result;
use machinist_cloud_sim::LedgerCommit;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::requests::{AnsweredRequest, AuditLog, Program};

/// A change that a controller caused.
#[derive(Debug)]
pub(super) enum Event {
    /// A commit at an API server.
    Api(AnsweredRequest),
    /// An entry in the ledger.
    Ledger(LedgerCommit),
}

impl Event {
    /// Whether points are drawn from events of this kind: changes that persist after a crash.
    pub(super) fn counts(&self) -> bool {
        match self {
            Self::Api(request) => request.is_controllers_write() && request.is_commit(),
            Self::Ledger(_) => true,
        }
    }

    /// The controller that caused the event. The cloud acts on requests of the machine controller.
    pub(super) fn author(&self) -> Program {
        match self {
            Self::Api(request) => request.program,
            Self::Ledger(_) => Program::MachineController,
        }
    }

    /// Whether the event is a POST of a Machine, successful or not.
    pub(super) fn posts_machine(&self) -> bool {
        matches!(self, Self::Api(request) if request.verb == "create" && request.resource == "machines")
    }

    pub(super) fn makes_machine(&self) -> bool {
        matches!(self, Self::Api(request) if request.makes_machine())
    }

    pub(super) fn deletes_machine(&self) -> bool {
        matches!(self, Self::Api(request)
            if request.verb == "delete" && request.resource == "machines" && request.is_commit())
    }

    /// Whether the event is an eviction that the API server accepted.
    pub(super) fn evicts_pod(&self) -> bool {
        matches!(self, Self::Api(request)
            if request.resource == "pods/eviction"
                && request.program == Program::MachineController
                && request.is_commit())
    }

    /// Whether a controller asks to delete a pod without an eviction.
    pub(super) fn deletes_pod(&self) -> bool {
        matches!(self, Self::Api(request)
            if request.verb.starts_with("delete")
                && request.resource == "pods"
                && request.is_controllers())
    }

    pub(super) fn makes_instance(&self) -> bool {
        matches!(self, Self::Ledger(LedgerCommit::Made { .. }))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(request) => write!(f, "{request}"),
            Self::Ledger(LedgerCommit::Made { entry }) => {
                write!(f, "ledger: {} made for {}", entry.id, entry.name)
            }
            Self::Ledger(LedgerCommit::Adopted { id, .. }) => write!(f, "ledger: {id} adopted"),
            Self::Ledger(LedgerCommit::Rekeyed { id, .. }) => write!(f, "ledger: {id} rekeyed"),
            Self::Ledger(LedgerCommit::Stopped { id, .. }) => write!(f, "ledger: {id} stopped"),
            Self::Ledger(LedgerCommit::Started { id, .. }) => write!(f, "ledger: {id} started"),
            Self::Ledger(LedgerCommit::DeletionBegun { id, .. }) => {
                write!(f, "ledger: deletion of {id} begun")
            }
            Self::Ledger(LedgerCommit::Gone { id, .. }) => write!(f, "ledger: {id} gone"),
        }
    }
}

/// The sources of events.
pub(super) struct Sources {
    pub(super) logs: Vec<AuditLog>,
    pub(super) ledger: UnboundedReceiver<Result<LedgerCommit>>,
}

impl Sources {
    /// The events since the last call.
    pub(super) fn take(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Ok(commit) = self.ledger.try_recv() {
            events.push(Event::Ledger(commit?));
        }
        for log in &mut self.logs {
            events.extend(log.take()?.into_iter().map(Event::Api));
        }
        Ok(events)
    }
}
