//! The parts of an instance in addition to its server: a port, a root volume, and further servers
//! of the same key. They exist before the server, and after it.
//!
//! A part belongs to a key if it carries the key. The parts of a server that Gardener's provider
//! made carry none: they get the key before the server is deleted. A part that is left without a
//! key and without a server is not touched, because another cluster may use the same name and
//! marks.

use http::StatusCode;
use machinist_instance::{Error, ErrorKind, InstanceKey, InstanceRef};

use crate::client::failure::Failure;
use crate::driver::{Account, Began, wrong_key};
use crate::model::{Port, Server, Volume};
use crate::{reply, request, tag};

/// The instance whose parts are looked for.
pub(crate) struct PartsOf<'a> {
    key: &'a InstanceKey,
    name: Option<&'a str>,
    /// Whether an id of the instance was recorded. Otherwise the caller has searched the servers of
    /// the name already.
    is_recorded: bool,
}

impl<'a> PartsOf<'a> {
    pub(crate) fn of(which: &'a InstanceRef, key: &'a InstanceKey) -> Self {
        let name = which.name.as_ref().map(|name| name.as_str());
        Self { key, name, is_recorded: which.id.is_some() }
    }

    fn has_port(&self, port: &Port) -> bool {
        reply::is_port_of(port, self.key)
    }
}

/// The parts that exist.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    servers: Vec<Server>,
    ports: Vec<Port>,
    volumes: Vec<Volume>,
}

impl Parts {
    /// A text for each part.
    pub(crate) fn texts(&self) -> Vec<String> {
        let servers = self.servers.iter().map(|server| format!("server {}", server.id));
        let ports = self.ports.iter().map(|port| port_text(&port.id));
        let volumes = self.volumes.iter().map(|volume| volume_text(&volume.id));
        servers.chain(ports).chain(volumes).collect()
    }

    /// The servers that use the parts.
    pub(crate) fn users(&self) -> Vec<String> {
        let of_ports = self.ports.iter().map(|port| port.device_id.as_str());
        let of_volumes = self.volumes.iter().filter_map(reply::user_of);
        let mut users: Vec<String> =
            of_ports.chain(of_volumes).filter(|user| !user.is_empty()).map(str::to_owned).collect();
        users.sort();
        users.dedup();
        users
    }
}

pub(crate) fn port_text(id: &str) -> String {
    format!("port {id}")
}

pub(crate) fn volume_text(id: &str) -> String {
    format!("volume {id}")
}

impl Account {
    /// Finds the parts of an instance that the cloud does not show.
    pub(crate) async fn parts(&self, of: &PartsOf<'_>) -> Result<Parts, Error> {
        let mut parts = Parts::default();
        if let (Some(name), true) = (of.name, of.is_recorded) {
            parts.servers = self.servers_named(name).await?;
            parts.servers.retain(|server| reply::is_of_key(server, of.key));
        }
        let mut ports = self.ports("tags", &tag::of_key(of.key)).await?;
        // A port whose tags were not written has the key in its description.
        if let Some(name) = of.name {
            ports.extend(self.ports("name", name).await?);
        }
        ports.retain(|port| of.has_port(port));
        parts.ports = without_doubles(ports, |port| &port.id);
        if self.client.has_volumes().await? {
            parts.volumes = self.volumes(&request::volumes_of_key(of.key)).await?;
            parts.volumes.retain(|volume| reply::is_volume_of(volume, of.key));
        }
        Ok(parts)
    }

    pub(crate) async fn ports(&self, by: &str, value: &str) -> Result<Vec<Port>, Error> {
        Ok(self.client.list(&request::ports(by, value), "ports").await?)
    }

    pub(crate) async fn volumes(&self, call: &crate::client::call::Call) -> Result<Vec<Volume>, Error> {
        Ok(self.client.list(call, "volumes").await?)
    }

    /// Deletes the parts of an instance that the cloud does not show. A part that is in use stays,
    /// and is looked at again. One part that cannot be deleted does not keep the others.
    pub(crate) async fn delete_parts(
        &self,
        began: Began,
        parts: &Parts,
        owner: &InstanceKey,
    ) -> Result<(), Error> {
        let mut first = Ok(());
        for server in &parts.servers {
            first = first.and(self.delete_server(began, server).await);
        }
        for port in &parts.ports {
            first = first.and(self.delete_port(began, port, owner).await);
        }
        for volume in &parts.volumes {
            first = first.and(self.delete_volume(began, volume, owner).await);
        }
        first
    }

    /// Requests the deletion of a server that no Machine has, and of its port. No later
    /// call asks for the port when the server is gone. A cloud that protects ports in use keeps it.
    pub(crate) async fn delete_orphan(
        &self,
        began: Began,
        server: &Server,
        owner: &InstanceKey,
    ) -> Result<(), Error> {
        self.delete_server(began, server).await?;
        for port in self.ports("device_id", &server.id).await? {
            if reply::is_port_of(&port, owner)
                && let Err(error) = deleted(self.change(began, &request::delete_port(&port.id)).await)
            {
                tracing::warn!(port = port.id, %error, "The port of a deleted server stays. Delete it yourself");
            }
        }
        Ok(())
    }

    async fn delete_port(&self, began: Began, port: &Port, owner: &InstanceKey) -> Result<(), Error> {
        if let Some(user) = self.server(&port.device_id).await? {
            // The server was renamed, or was created from a request whose answer was lost.
            if reply::is_of_key(&user, owner) {
                return self.delete_server(began, &user).await;
            }
            return Err(in_use(&port_text(&port.id), &wrong_key(&user, owner)));
        }
        deleted(self.change(began, &request::delete_port(&port.id)).await)
    }

    /// The server to which a volume is attached.
    async fn user(&self, volume: &Volume) -> Result<Option<Server>, Error> {
        match reply::user_of(volume) {
            Some(user) => self.server(user).await,
            None => Ok(None),
        }
    }

    async fn delete_volume(&self, began: Began, volume: &Volume, owner: &InstanceKey) -> Result<(), Error> {
        match volume.status.as_str() {
            "available" | "error" => deleted(self.change(began, &request::delete_volume(&volume.id)).await),
            "error_deleting" => {
                let text = format!("Cinder could not delete volume {}; ask its operator", volume.id);
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            "in-use" => match self.user(volume).await? {
                Some(user) if !reply::is_of_key(&user, owner) => {
                    Err(in_use(&volume_text(&volume.id), &wrong_key(&user, owner)))
                }
                Some(_) | None => Ok(()),
            },
            // It is created, detached or deleted. Cinder would refuse the request.
            _ => Ok(()),
        }
    }

    /// Stores a key at the parts of a server that Gardener's provider made. They are found by it
    /// when the server is gone. A credential that may not write tags leaves them as they are.
    pub(crate) async fn claim_parts(
        &self,
        began: Began,
        server: &Server,
        key: &InstanceKey,
    ) -> Result<(), Error> {
        for port in self.ports("device_id", &server.id).await? {
            if reply::is_port_of_go(&port, &server.name) {
                // The description has the key also if the credential may not write tags.
                permitted(self.change(began, &request::set_port_description(&port.id, key)).await)?;
                let tags: Vec<String> = port.tags.iter().cloned().chain([tag::of_key(key)]).collect();
                permitted(self.change(began, &request::set_port_tags(&port.id, &tags)).await)?;
            }
        }
        if !self.client.has_volumes().await? {
            return Ok(());
        }
        for volume in self.volumes(&request::volumes_named(&server.name)).await? {
            let is_attached = reply::user_of(&volume) == Some(server.id.as_str());
            if is_attached && reply::is_volume_of_go(&volume, &server.name) {
                permitted(self.change(began, &request::set_volume_key(&volume.id, key)).await)?;
            }
        }
        Ok(())
    }

    /// Changes the key of all parts.
    pub(crate) async fn rekey_parts(
        &self,
        began: Began,
        name: &str,
        from: &InstanceKey,
        to: &InstanceKey,
    ) -> Result<(), Error> {
        let parts = self.parts(&PartsOf { key: from, name: Some(name), is_recorded: false }).await?;
        for port in &parts.ports {
            let others = port.tags.iter().filter(|tag| !tag::is_key(tag)).cloned();
            let tags: Vec<String> = others.chain([tag::of_key(to)]).collect();
            self.change(began, &request::set_port_description(&port.id, to)).await?;
            self.change(began, &request::set_port_tags(&port.id, &tags)).await?;
        }
        for volume in &parts.volumes {
            self.change(began, &request::set_volume_key(&volume.id, to)).await?;
        }
        Ok(())
    }
}

/// The result of a deletion. An absent part is deleted.
fn deleted(result: Result<(), Failure>) -> Result<(), Error> {
    match result {
        Ok(()) => Ok(()),
        Err(failure) if failure.is_absence() => Ok(()),
        // The state changed since the part was read, for example because it is still detached.
        // Neutron also protects a port that Nova has not released yet.
        Err(mut failure)
            if [StatusCode::BAD_REQUEST, StatusCode::CONFLICT, StatusCode::FORBIDDEN]
                .into_iter()
                .any(|status| failure.is(status)) =>
        {
            failure.error.kind = ErrorKind::Unavailable;
            Err(failure.error)
        }
        Err(failure) => Err(failure.error),
    }
}

/// The result of a request for which a credential may lack the permission.
pub(crate) fn permitted(result: Result<(), Failure>) -> Result<(), Error> {
    match result {
        Err(failure) if failure.is_forbidden() => {
            tracing::warn!(error = %failure.error, "The key was not stored: the credential may not write it");
            Ok(())
        }
        other => Ok(other?),
    }
}

fn in_use(part: &str, why: &Error) -> Error {
    Error::new(ErrorKind::Denied, format!("{part} is used by another server. {}", why.message))
}

fn without_doubles<T>(mut all: Vec<T>, id: impl Fn(&T) -> &String) -> Vec<T> {
    all.sort_by(|a, b| id(a).cmp(id(b)));
    all.dedup_by(|a, b| id(a) == id(b));
    all
}
