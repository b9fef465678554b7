//! Functions for the operator: tests, scenarios and `/_control`. They need no token, have no rate
//! limit and no faults, and take effect at once.

use std::collections::BTreeMap;
use std::io;

use http::Method;
use machinist_instance::ProviderId;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::{Call, Failure, Query, handle};
use crate::model::{ActionError, HcloudServer, LabelMap, ServerStatus};
use crate::store::State;
use crate::{FaultRule, RequestRecord, Settings, Standin, effect};

/// Why a function of the operator failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ControlError(String);

/// A server that the operator creates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewServer {
    /// Project of the server.
    pub project: String,
    /// Name of the server.
    pub name: String,
    /// Name of the server type.
    #[serde(default = "default_type")]
    pub server_type: String,
    /// Name of the location.
    #[serde(default = "default_location")]
    pub location: String,
    /// User-defined labels.
    #[serde(default)]
    pub labels: LabelMap,
    /// Ids of networks to attach.
    #[serde(default)]
    pub networks: Vec<i64>,
}

fn default_type() -> String {
    "cx22".to_owned()
}

fn default_location() -> String {
    "fsn1".to_owned()
}

impl NewServer {
    /// A server of the type `cx22` in `fsn1`, without labels and networks.
    pub fn new(project: &str, name: &str) -> Self {
        Self {
            project: project.to_owned(),
            name: name.to_owned(),
            server_type: default_type(),
            location: default_location(),
            labels: LabelMap::new(),
            networks: Vec::new(),
        }
    }
}

/// Settings and faults.
impl Standin {
    /// The current settings.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Changes the settings, from the next request on.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.lock().settings);
    }

    /// Revokes a token. Returns whether it existed.
    pub fn revoke_token(&self, token: &str) -> bool {
        self.lock().settings.tokens.revoke(token)
    }

    /// Sets the size and the content of a project's rate limit.
    pub fn set_rate(&self, project: &str, limit: u32, remaining: u32) {
        self.turn(|books, now| books.buckets.set(project, limit, remaining, now));
    }

    /// Adds a fault rule, and returns its number.
    pub fn add_fault(&self, rule: FaultRule) -> u64 {
        self.lock().faults.add(rule)
    }

    /// Removes a fault rule; an unknown number is not an error.
    pub fn remove_fault(&self, number: u64) {
        self.lock().faults.remove(number);
    }

    /// Removes all fault rules.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// The fault rules by number; `times` and `skip` are what remains.
    pub fn faults(&self) -> BTreeMap<u64, FaultRule> {
        self.lock().faults.rules().clone()
    }

    /// Makes new actions never end, until [`Self::thaw_actions`].
    pub fn freeze_actions(&self) {
        self.lock().frozen = true;
    }

    /// Lets new actions end again. Frozen actions end after the usual time from now.
    pub fn thaw_actions(&self) {
        self.turn(|books, now| books.thaw(now));
    }

    /// Makes the next action fail: the next with that command, or the next of all.
    pub fn fail_next_action(&self, command: Option<&str>, code: &str, message: &str) {
        let error = ActionError { code: code.to_owned(), message: message.to_owned() };
        self.lock().failures.push_back((command.map(str::to_owned), error));
    }
}

/// Records.
impl Standin {
    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.lock().log.records()
    }

    /// Number of requests by method and path template, for example `GET /v1/servers/{id}`.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.lock().log.counters()
    }

    /// Forgets the recorded requests and the counters.
    pub fn clear_requests(&self) {
        self.lock().log.clear();
    }

    /// All objects of all projects.
    pub fn dump(&self) -> State {
        self.turn(|books, _| books.store.state().clone())
    }

    /// Replaces all objects by the objects of a dump. A server without a machine gets one without
    /// user data. A machine that was removed does not come back, so load dumps into new stand-ins.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn load(&self, state: State) -> io::Result<()> {
        self.replace_state(state)
    }

    /// Removes all objects, faults and records. Settings stay.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn reset(&self) -> io::Result<()> {
        {
            let mut books = self.lock();
            books.faults.clear();
            books.failures.clear();
            books.log.clear();
            books.frozen = false;
        }
        let last_id = self.lock().store.state().last_id;
        self.replace_state(State { last_id, ..State::default() })
    }

    /// Every server that ever existed, oldest first. No lag and no fault affects this list.
    pub fn servers_ever(&self) -> Vec<HcloudServer> {
        self.turn(|books, _| books.store.state().servers.values().cloned().collect())
    }

    /// The servers that exist now, in any status, of all projects, with a label of that key. No lag
    /// and no fault affects this list.
    pub fn truly_alive(&self, label_key: &str) -> Vec<HcloudServer> {
        let mut servers = self.servers_ever();
        servers.retain(|server| server.is_alive() && server.labels.contains_key(label_key));
        servers
    }

    /// A server by its id, deleted or not.
    pub fn server(&self, id: i64) -> Option<HcloudServer> {
        self.turn(|books, _| books.store.state().servers.get(&id).cloned())
    }

    /// The last lines that the machine of a server printed.
    pub fn console(&self, id: i64, lines: usize) -> Vec<String> {
        let id = ProviderId::parse(&format!("hcloud://{id}")).expect("not empty");
        self.machines().console(&id, lines)
    }
}

/// Changes of servers behind the back of the clients.
impl Standin {
    /// Creates a server as the API does, without user data. The machine never joins.
    ///
    /// # Errors
    /// When the API would refuse the request.
    pub fn create_server(&self, server: &NewServer) -> Result<HcloudServer, ControlError> {
        let NewServer { project, name, server_type, location, labels, networks } = server;
        let body = json!({
            "name": name, "server_type": server_type, "image": "ubuntu-24.04", "location": location,
            "labels": labels, "networks": networks,
        });
        let body = body.to_string();
        let created = self.turn(|books, now| {
            let mut call = Call {
                books,
                cloud: self.machines(),
                now,
                project,
                path: "/v1/servers",
                query: Query::default(),
                body: body.as_bytes(),
                fault: None,
            };
            let reply = handle(&mut call, &Method::POST, &["servers"]).map_err(|failure| match failure {
                Failure::Api(error) => ControlError(format!("{}: {}", error.code, error.message)),
                Failure::NoSuchPath => ControlError("the API has no servers".to_owned()),
            })?;
            let id = reply.body.as_ref().and_then(|body| body["server"]["id"].as_i64());
            id.ok_or_else(|| ControlError("the reply has no server".to_owned()))
        })?;
        self.server(created).ok_or_else(|| not_found(created))
    }

    /// Deletes a server at once.
    ///
    /// # Errors
    /// When no server has that id.
    pub fn delete_server(&self, id: i64) -> Result<(), ControlError> {
        self.turn(|books, now| {
            let servers = &books.store.state().servers;
            let is_alive = servers.get(&id).is_some_and(HcloudServer::is_alive);
            if !is_alive {
                return Err(not_found(id));
            }
            effect::delete_server(&mut books.store, id, now);
            Ok(())
        })
    }

    /// Changes any field of a server, for example its status, name, type, labels, addresses or
    /// project. A status other than `running` takes the power of its machine.
    ///
    /// # Errors
    /// When no server has that id.
    pub fn change_server(&self, id: i64, change: impl FnOnce(&mut HcloudServer)) -> Result<(), ControlError> {
        self.turn(|books, _| {
            let server = books.store.edit_server(id).filter(|server| server.is_alive());
            server.map(change).ok_or_else(|| not_found(id))
        })
    }

    /// Takes the power of a server at once.
    ///
    /// # Errors
    /// When no server has that id.
    pub fn power_off(&self, id: i64) -> Result<(), ControlError> {
        self.change_server(id, |server| server.status = ServerStatus::Off)
    }

    /// Gives a server power at once.
    ///
    /// # Errors
    /// When no server has that id.
    pub fn power_on(&self, id: i64) -> Result<(), ControlError> {
        self.change_server(id, |server| server.status = ServerStatus::Running)
    }

    /// Detaches a server from a network at once.
    ///
    /// # Errors
    /// When no server has that id.
    pub fn detach_server(&self, id: i64, network: i64) -> Result<(), ControlError> {
        self.change_server(id, |_| ())?;
        self.turn(|books, _| effect::detach_server(&mut books.store, id, network));
        Ok(())
    }

    /// Deletes all servers of a project at once, as when an account is closed.
    pub fn empty_project(&self, project: &str) {
        self.turn(|books, now| {
            let servers = books.store.state().servers.values();
            let ids: Vec<i64> = servers
                .filter(|server| server.is_alive() && server.project == project)
                .map(|server| server.id)
                .collect();
            for id in ids {
                effect::delete_server(&mut books.store, id, now);
            }
        });
    }
}

fn not_found(id: i64) -> ControlError {
    ControlError(format!("server {id} not found"))
}
