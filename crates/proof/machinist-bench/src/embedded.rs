//! Embedded API servers in this process, their clients, and the requests that they record.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use machinist_apiserver::{AuditRecord, Config, Identity, Server, Subscription};
use machinist_kube::{ClientOptions, SharedClock, SystemClock, TokioClock, layer_client};

/// An embedded API server, and the clock of its clients.
#[derive(Clone)]
pub(crate) struct EmbeddedServer {
    pub(crate) server: Server,
    pub(crate) clock: SharedClock,
}

/// The requests of one program, as the server records them.
pub(crate) struct RequestsOf {
    user_agent: &'static str,
    all: Subscription<Arc<AuditRecord>>,
}

impl EmbeddedServer {
    /// An empty server with the clock of the operating system.
    pub(crate) fn new() -> Self {
        Self { server: Server::new(Config::default()), clock: SystemClock::shared() }
    }

    /// An empty server. The clocks of server and clients follow tokio's clock, which can be paused.
    pub(crate) fn starting_at(start: Timestamp) -> Self {
        let clock = Arc::new(machinist_apiserver::TokioClock::starting_at(start));
        let server = Server::new(Config { clock, ..Config::default() });
        Self { server, clock: Arc::new(TokioClock::starting_at(start)) }
    }

    /// A client of the administrator.
    pub(crate) fn client(&self, user_agent: &str) -> Client {
        let mut options = ClientOptions::new(user_agent);
        options.clock = self.clock.clone();
        layer_client(self.server.service_as(Identity::admin()), &options)
    }

    /// Follows the requests of the program with this User-Agent.
    pub(crate) fn requests_of(&self, user_agent: &'static str) -> RequestsOf {
        RequestsOf { user_agent, all: self.server.audit() }
    }
}

impl RequestsOf {
    /// The requests since the last call.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<AuditRecord>> {
        let user_agent = self.user_agent;
        self.all.drain().into_iter().filter(move |request| request.user_agent == user_agent)
    }
}
