//! The steps of a creation: look for what exists, then make the root volume, the port and the
//! server.
//!
//! The port and the volume are made before the server, and Nova gives neither to two servers. So a
//! repeated creation cannot make a second server that works, also if the answer to the first one
//! was lost. No step waits: while Cinder fills a volume, the call ends with an error that says so,
//! and the next call continues.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use jiff::Timestamp;
use machinist_instance::{Error, ErrorKind, InstanceKey, InstanceSpec, Marks};
use tokio::time::Instant;

use crate::client::call::Service;
use crate::client::failure::{Failure, says_exhausted};
use crate::driver::{Account, Began, PROMISES, invalid, no_service, wrong_key};
use crate::model::{CreatedBody, FlavorRef, NamedObject, Port, PortBody, Server, Volume, VolumeBody};
use crate::parts::{permitted, port_text, volume_text};
use crate::request::{self, Creation, Resolved};
use crate::spec::{Named, Networks, RootDisk};
use crate::{reply, tag};

/// The servers that were created so recently that reads may not show them. A process that restarts
/// forgets them; the promise `visible_within` covers that.
#[derive(Default)]
pub(crate) struct Memory(Mutex<BTreeMap<InstanceKey, (Instant, Server)>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<InstanceKey, (Instant, Server)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: &InstanceKey, server: &Server) {
        self.lock().insert(key.clone(), (Instant::now(), server.clone()));
    }

    fn recent(&self, key: &InstanceKey) -> Option<Server> {
        let mut all = self.lock();
        all.retain(|_, (made, _)| made.elapsed() <= PROMISES.visible_within);
        all.get(key).map(|(_, server)| server.clone())
    }

    pub(crate) fn forget(&self, key: &InstanceKey) {
        self.lock().remove(key);
    }
}

/// A part that a server needs before it.
enum Part {
    /// The class needs none, or it does not exist yet.
    None,
    /// The part exists and is free.
    Ready(String),
    /// The server of the key uses it.
    Used(Box<Server>),
}

impl Account {
    /// Finds the server of a key, or creates it.
    pub(crate) async fn ensure_server(
        &self,
        creation: &Creation,
        spec: &InstanceSpec,
    ) -> Result<Server, Error> {
        let began = Began::now();
        let named = self.servers_named(&creation.name).await?;
        let (ours, others): (Vec<Server>, Vec<Server>) =
            named.into_iter().partition(|server| reply::is_of_key(server, &creation.key));
        if let Some(server) = reply::choose(ours, Some(&creation.key)) {
            return Ok(server);
        }
        if let Some(server) = adoptable(others, creation, spec.adopt_made_since) {
            return self.adopt(began, server, creation, spec).await;
        }
        if let Some(recent) = self.memory.recent(&creation.key) {
            return Ok(self.server(&recent.id).await?.unwrap_or(recent));
        }
        let mut made = Vec::new();
        let created = self.create(began, creation, spec.adopt_made_since, &mut made).await;
        // The parts exist also if the creation failed, so the caller must know of them.
        created.map_err(|error| if made.is_empty() { error } else { error.with_state(made.join(", ")) })
    }

    /// Creates the server and the parts that it needs. `made` gets a text for each part that
    /// exists.
    async fn create(
        &self,
        began: Began,
        creation: &Creation,
        since: Option<Timestamp>,
        made: &mut Vec<String>,
    ) -> Result<Server, Error> {
        let mut ids = Resolved::default();
        match self.own_volume(began, creation, since, made).await? {
            Part::None => {}
            Part::Ready(volume) => ids.volume = Some(volume),
            Part::Used(server) => return Ok(*server),
        }
        match self.own_port(began, creation, since, made).await? {
            Part::None => {}
            Part::Ready(port) => ids.port = Some(port),
            Part::Used(server) => return Ok(*server),
        }
        self.resolve(creation, &mut ids).await?;
        if let (RootDisk::Own { size, volume_type }, None) = (&creation.class.root_disk, &ids.volume) {
            let call = creation.volume(*size, volume_type, &ids.image);
            let volume: VolumeBody = self.post(began, &call).await?;
            made.push(volume_text(&volume.volume.id));
            ids.volume = Some(free_volume(&volume.volume)?);
        }
        if let (Networks::OwnPort { network, subnets }, None) = (&creation.class.network.networks, &ids.port)
        {
            let call = creation.port(network, subnets, &ids.groups);
            let port: PortBody = self.post(began, &call).await?;
            made.push(port_text(&port.port.id));
            self.tag_port(began, &port.port, creation).await?;
            ids.port = Some(port.port.id);
        }
        self.post_server(began, creation, &ids).await
    }

    async fn post_server(&self, began: Began, creation: &Creation, ids: &Resolved) -> Result<Server, Error> {
        let created: CreatedBody = self.post(began, &creation.server(ids)).await.map_err(|failure| {
            // The flavor may have been replaced by another one of that name.
            self.flavors().remove(&creation.class.flavor);
            conflict(failure)
        })?;
        let id = created.server.id;
        // The answer has no time of the creation. The server exists, so a failed read is not an
        // error.
        let shown = self.server(&id).await.ok().flatten();
        let server = shown.unwrap_or_else(|| requested(id, creation, ids, self.client.caller.cloud_time()));
        self.memory.keep(&creation.key, &server);
        Ok(server)
    }

    /// Looks for the root volume of the key, or for a volume that Gardener's provider made for it.
    async fn own_volume(
        &self,
        began: Began,
        creation: &Creation,
        since: Option<Timestamp>,
        made: &mut Vec<String>,
    ) -> Result<Part, Error> {
        if !matches!(creation.class.root_disk, RootDisk::Own { .. }) {
            return Ok(Part::None);
        }
        if !self.client.has_volumes().await? {
            return Err(no_service(Service::Volume, "providerSpec.spec.rootDiskType"));
        }
        let named = self.volumes(&request::volumes_named(&creation.name)).await?;
        if let Some(volume) = named.iter().find(|volume| reply::is_volume_of(volume, &creation.key)) {
            made.push(volume_text(&volume.id));
            return match reply::user_of(volume) {
                Some(user) => self.used_by(&volume_text(&volume.id), user, creation).await,
                None => free_volume(volume).map(Part::Ready),
            };
        }
        let is_left = |volume: &&Volume| {
            let has_marks = tag::marks(volume.metadata.keys().map(String::as_str), &creation.class.tags);
            reply::is_volume_of_go(volume, &creation.name)
                && has_marks == Marks::OfClass
                && volume.status == "available"
                && is_young(reply::volume_created(volume), since)
        };
        let Some(volume) = named.iter().find(is_left) else { return Ok(Part::None) };
        match self.change(began, &request::set_volume_key(&volume.id, &creation.key)).await {
            Ok(()) => {}
            // Without the key, no later call would find the volume.
            Err(failure) if failure.is_forbidden() => return Ok(Part::None),
            Err(failure) => return Err(failure.error),
        }
        made.push(volume_text(&volume.id));
        Ok(Part::Ready(volume.id.clone()))
    }

    /// Looks for the port of the key, or for a port that Gardener's provider made for it.
    async fn own_port(
        &self,
        began: Began,
        creation: &Creation,
        since: Option<Timestamp>,
        made: &mut Vec<String>,
    ) -> Result<Part, Error> {
        let Networks::OwnPort { network, .. } = &creation.class.network.networks else {
            return Ok(Part::None);
        };
        let named = self.ports("name", &creation.name).await?;
        let mut ours: Vec<&Port> =
            named.iter().filter(|port| reply::is_port_of(port, &creation.key)).collect();
        ours.sort_by_key(|port| (port.device_id.is_empty(), &port.id));
        if let Some(port) = ours.first() {
            made.push(port_text(&port.id));
            if !port.device_id.is_empty() {
                return self.used_by(&port_text(&port.id), &port.device_id, creation).await;
            }
            if !port.tags.contains(&tag::of_key(&creation.key)) {
                self.tag_port(began, port, creation).await?;
            }
            return Ok(Part::Ready(port.id.clone()));
        }
        let is_left = |port: &&Port| {
            let has_marks = tag::marks(port.tags.iter().map(String::as_str), &creation.class.tags);
            reply::is_port_of_go(port, &creation.name)
                && has_marks == Marks::OfClass
                && port.device_id.is_empty()
                && port.network_id == *network
                && is_young(port.created_at, since)
        };
        let Some(port) = named.iter().find(is_left) else { return Ok(Part::None) };
        // The description has the key also if the credential may not write tags.
        self.change(began, &request::set_port_description(&port.id, &creation.key)).await?;
        self.tag_port(began, port, creation).await?;
        made.push(port_text(&port.id));
        Ok(Part::Ready(port.id.clone()))
    }

    /// Writes the tags of a port. Without the permission, its description has the key.
    async fn tag_port(&self, began: Began, port: &Port, creation: &Creation) -> Result<(), Error> {
        let mut tags = port.tags.clone();
        tags.extend(creation.port_tags().into_iter().filter(|tag| !port.tags.contains(tag)));
        permitted(self.change(began, &request::set_port_tags(&port.id, &tags)).await)
    }

    /// The server that uses a part of the key. It was renamed, or an answer about it was lost.
    async fn used_by(&self, part: &str, user: &str, creation: &Creation) -> Result<Part, Error> {
        match self.server(user).await? {
            Some(server) if reply::is_of_key(&server, &creation.key) => Ok(Part::Used(Box::new(server))),
            Some(server) => {
                let why = wrong_key(&server, &creation.key).message;
                Err(Error::new(ErrorKind::Denied, format!("{part} is used by another server. {why}")))
            }
            None => {
                Err(Error::in_progress(format!("{part} is used by server {user}, which Nova does not show")))
            }
        }
    }

    /// Reads the ids of the objects that a class names. Nothing is created before all exist.
    async fn resolve(&self, creation: &Creation, ids: &mut Resolved) -> Result<(), Error> {
        let class = &creation.class;
        ids.flavor = self.flavor(&class.flavor).await?;
        let needs_image = !matches!((&class.root_disk, &ids.volume), (RootDisk::Own { .. }, Some(_)));
        ids.image = match &class.image {
            Named::Id(id) => id.clone(),
            Named::Name(_) if !needs_image => String::new(),
            Named::Name(name) => {
                let field = "providerSpec.spec.imageName";
                self.only_one(&request::images_named(name), "images", name, field).await?
            }
        };
        match (&class.network.networks, &ids.port) {
            (Networks::OfNova(networks), _) => {
                for network in networks {
                    ids.networks.push(self.network(&network.network).await?);
                }
            }
            (Networks::OwnPort { .. }, None) => {
                ids.groups = self.security_groups(&class.security_groups).await?;
            }
            // The groups of a port that exists are not changed.
            (Networks::OwnPort { .. }, Some(_)) => {}
        }
        Ok(())
    }

    /// The id of a flavor. A flavor that does not exist counts as used up, as in Gardener's
    /// provider: clouds withdraw flavors that they can no longer offer.
    async fn flavor(&self, name: &str) -> Result<String, Error> {
        let known = self.flavors().get(name).cloned();
        if let Some(id) = known {
            return Ok(id);
        }
        let all: Vec<NamedObject> = self.client.list(&request::flavors(), "flavors").await?;
        let same = all.iter().filter(|flavor| flavor.name == name).count();
        if 1 < same {
            let text = format!("a unique name, but {same} flavors are called {name}");
            return Err(invalid("providerSpec.spec.flavorName", &text));
        }
        *self.flavors() = all.into_iter().map(|flavor| (flavor.name, flavor.id)).collect();
        self.flavors().get(name).cloned().ok_or_else(|| {
            let text = format!(
                "providerSpec.spec.flavorName: expected the name of a flavor, but {name} does not exist"
            );
            Error::new(ErrorKind::Exhausted, text)
        })
    }

    /// The ids of security groups.
    async fn security_groups(&self, names: &[String]) -> Result<Vec<String>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let all: Vec<NamedObject> =
            self.client.list(&request::security_groups(names), "security_groups").await?;
        let only = |name: &String| {
            let same: Vec<&NamedObject> = all.iter().filter(|group| group.name == *name).collect();
            match same.as_slice() {
                [only] => Ok(only.id.clone()),
                found => {
                    let text = format!("names of one security group each, but {name} has {}", found.len());
                    Err(invalid("providerSpec.spec.securityGroups", &text))
                }
            }
        };
        names.iter().map(only).collect()
    }

    /// Stores the key at a server that another program created for the same purpose, and at its
    /// parts. A credential that may not write metadata keeps it without a key.
    async fn adopt(
        &self,
        began: Began,
        mut server: Server,
        creation: &Creation,
        spec: &InstanceSpec,
    ) -> Result<Server, Error> {
        // The parts come first: a repeated call does not look at them once the server has the key.
        self.claim_parts(began, &server, &creation.key).await?;
        let marks = request::marks_of(spec);
        match self.change(began, &request::set_server_metadata(&server.id, &marks)).await {
            Ok(()) => server.metadata.extend(marks),
            Err(failure) => permitted(Err(failure))?,
        }
        Ok(server)
    }
}

/// Finds a server that another program created for the same purpose: it has the marks of the class
/// and no key, and is young enough.
fn adoptable(mut named: Vec<Server>, creation: &Creation, since: Option<Timestamp>) -> Option<Server> {
    named.retain(|server| {
        reply::key(server).is_none()
            && !reply::is_deleting(server)
            && is_young(Some(server.created), since)
            && reply::marks(server, &creation.class.tags) == Marks::OfClass
    });
    reply::choose(named, None)
}

/// Whether an object was created for the same purpose, by its time. Without a time it was not.
fn is_young(created: Option<Timestamp>, since: Option<Timestamp>) -> bool {
    matches!((created, since), (Some(created), Some(since)) if since <= created)
}

/// The id of a volume from which a server can start.
///
/// # Errors
/// [`Error::in_progress`] while Cinder works on it.
fn free_volume(volume: &Volume) -> Result<String, Error> {
    let text = volume_text(&volume.id);
    match volume.status.as_str() {
        "available" => Ok(volume.id.clone()),
        status if status.starts_with("error") => {
            let text = format!("{text} is in the state {status}; Cinder has no backend or no space for it");
            Err(Error::instance_failed(ErrorKind::Exhausted, text))
        }
        "deleting" => Err(Error::instance_failed(ErrorKind::Unavailable, format!("{text} is deleted"))),
        status => Err(Error::in_progress(format!("{text} is in the state {status}"))),
    }
}

/// The error of a creation that Nova refused. If another request of the key got the port or the
/// volume, the next look finds its server. The other conflict is a name of the class that several
/// objects have.
fn conflict(failure: Failure) -> Error {
    let mut error = failure.error.clone();
    let is_conflict = failure.is(StatusCode::CONFLICT) && !says_exhausted(&error.message);
    let has_part = |text: &str| error.message.contains(text);
    if (is_conflict && has_part("in use")) || has_part("Invalid volume") {
        return Error::in_progress(error.message);
    }
    if is_conflict {
        error.kind = ErrorKind::InvalidSpec;
    }
    error
}

/// The server of a request that Nova has accepted, until Nova shows it.
fn requested(id: String, creation: &Creation, ids: &Resolved, created: Timestamp) -> Server {
    Server {
        id,
        name: creation.name.clone(),
        status: "BUILD".to_owned(),
        metadata: creation.metadata.clone(),
        created,
        addresses: BTreeMap::new(),
        flavor: Some(FlavorRef { id: Some(ids.flavor.clone()) }),
        fault: None,
        task_state: None,
        zone: Some(creation.class.zone.clone()),
    }
}
