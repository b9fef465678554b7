//! Carries out requests, as the services of the cloud do.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Port, Request, Server, State, Volume, refusal};

/// Status, body, and the token of a login.
type Answer = (u16, Value, Option<String>);

/// A refusal: status, name of the error, text.
type Refused = (u16, &'static str, String);

const REGIONS: [&str; 2] = ["eu-nl-1", "eu-de-2"];

impl State {
    /// Does what a request says.
    pub(crate) fn act(&mut self, request: &Request) -> Answer {
        self.end_due();
        // The URL of Keystone may have any path before its version.
        if request.action().ends_with("/v3/auth/tokens") {
            return self.log_in(&request.body);
        }
        let now = self.now();
        let project = self.tokens.get(&request.token).filter(|(_, expires)| now < *expires);
        let Some(project) = project.map(|(project, _)| project.clone()) else {
            let text = "The request you have made requires authentication.";
            return (401, json!({"error": {"code": 401, "title": "Unauthorized", "message": text}}), None);
        };
        match self.route(request, &project) {
            Ok((status, body)) => (status, body, None),
            Err((status, name, text)) => (status, refusal(status, name, &text), None),
        }
    }

    fn log_in(&mut self, body: &Value) -> Answer {
        self.logins.push(body.clone());
        let identity = &body["auth"]["identity"];
        let user = identity["password"]["user"]["name"].as_str();
        let user = user.or_else(|| identity["application_credential"]["id"].as_str());
        let user = user.or_else(|| identity["application_credential"]["name"].as_str());
        let Some(project) = self.users.get(user.unwrap_or_default()).cloned() else {
            let text = "The request you have made requires authentication.";
            return (401, json!({"error": {"code": 401, "title": "Unauthorized", "message": text}}), None);
        };
        let (token, now) = (self.id(), self.now());
        let expires = now.checked_add(self.settings.token).expect("a time");
        self.tokens.insert(token.clone(), (project, expires));
        let endpoint = |path: &str| {
            let of = |region: &str, interface: &str| {
                let url = format!("http://{interface}/{region}{path}");
                json!({"interface": interface, "region": region, "region_id": region, "url": url})
            };
            let all = REGIONS.iter().flat_map(|region| [of(region, "internal"), of(region, "public")]);
            all.collect::<Value>()
        };
        let mut catalog = vec![
            json!({"type": "compute", "endpoints": endpoint("/compute/v2.1")}),
            json!({"type": "network", "endpoints": endpoint("/network/")}),
        ];
        if self.settings.has_volumes {
            catalog.push(json!({"type": "volumev3", "endpoints": endpoint("/volume/v3/project")}));
        }
        let times = (now.to_string(), expires.to_string());
        let body = json!({"token": {"issued_at": times.0, "expires_at": times.1, "catalog": catalog}});
        (201, body, Some(token))
    }

    fn route(&mut self, request: &Request, project: &str) -> Result<(u16, Value), Refused> {
        let id = request.path.split('/').nth(2).unwrap_or_default();
        let is_here = |p: &str, r: &str| p == project && r == request.region;
        match request.action().as_str() {
            "GET /servers/detail" => Ok((200, self.list_servers(request, project))),
            "GET /servers/ID" => {
                let server = self.visible_server(id, &is_here)?;
                Ok((200, json!({"server": show_server(server)})))
            }
            "POST /servers" => self.create_server(request, project),
            "DELETE /servers/ID" => {
                let deletion = self.settings.deletion;
                self.visible_server(id, &is_here)?.deleted_at.get_or_insert(Instant::now() + deletion);
                Ok((204, Value::Null))
            }
            "POST /servers/ID/metadata" => {
                self.check_tagging()?;
                let server = self.visible_server(id, &is_here)?;
                server.metadata.extend(texts(&request.body["metadata"]));
                Ok((200, json!({"metadata": server.metadata})))
            }
            "GET /flavors/detail" => {
                Ok((200, json!({"flavors": [{"id": "f1", "name": "m1.xmedium", "ram": 4096, "vcpus": 2}]})))
            }
            "GET /images" => Ok((200, json!({"images": named("image", request)}))),
            "GET /networks" => Ok((200, json!({"networks": named("network", request)}))),
            "GET /security-groups" => Ok((200, json!({"security_groups": named("group", request)}))),
            "GET /ports" => Ok((200, self.list_ports(request, &is_here))),
            "POST /ports" => self.create_port(request, project),
            "PUT /ports/ID" => self.change_port(request, id, &is_here),
            "PUT /ports/ID/tags" => {
                self.check_tagging()?;
                let tags: Vec<String> =
                    serde_json::from_value(request.body["tags"].clone()).expect("a list of texts");
                if tags.iter().any(|tag| 60 < tag.len() || tag.contains([',', '/'])) {
                    return Err((400, "HTTPBadRequest", "Invalid input for tags".to_owned()));
                }
                self.port(id, &is_here)?.tags.clone_from(&tags);
                Ok((200, json!({"tags": tags})))
            }
            "DELETE /ports/ID" => {
                self.port(id, &is_here)?;
                self.ports.retain(|port| port.id != id);
                Ok((204, Value::Null))
            }
            "GET /volumes/detail" => Ok((200, self.list_volumes(request, &is_here))),
            "POST /volumes" => self.create_volume(request, project),
            "POST /volumes/ID/metadata" => {
                self.check_tagging()?;
                let volume = self.volume(id, &is_here)?;
                volume.metadata.extend(texts(&request.body["metadata"]));
                Ok((200, json!({"metadata": volume.metadata})))
            }
            "DELETE /volumes/ID" => {
                let after = self.settings.volume;
                let volume = self.volume(id, &is_here)?;
                if !["available", "error"].contains(&volume.status(Instant::now())) {
                    let text = "Invalid volume: Volume status must be available or error or …";
                    return Err((400, "badRequest", text.to_owned()));
                }
                (volume.deleted_at, volume.state) = (Some(Instant::now() + after), None);
                Ok((202, Value::Null))
            }
            other => Err((404, "itemNotFound", format!("no route for {other}"))),
        }
    }

    fn check_tagging(&self) -> Result<(), Refused> {
        if self.settings.may_tag {
            return Ok(());
        }
        Err((403, "forbidden", "Policy doesn't allow this action to be performed.".to_owned()))
    }

    fn visible_server(
        &mut self,
        id: &str,
        is_here: &dyn Fn(&str, &str) -> bool,
    ) -> Result<&mut Server, Refused> {
        let now = Instant::now();
        let found = self.servers.iter_mut().find(|server| {
            server.id == id && is_here(&server.project, &server.region) && server.visible_at <= now
        });
        found.ok_or_else(|| (404, "itemNotFound", format!("Instance {id} could not be found.")))
    }

    fn port(&mut self, id: &str, is_here: &dyn Fn(&str, &str) -> bool) -> Result<&mut Port, Refused> {
        let found = self.ports.iter_mut().find(|port| port.id == id && is_here(&port.project, &port.region));
        found.ok_or_else(|| (404, "PortNotFound", format!("Port {id} could not be found.")))
    }

    fn volume(&mut self, id: &str, is_here: &dyn Fn(&str, &str) -> bool) -> Result<&mut Volume, Refused> {
        let mut found = self.volumes.iter_mut();
        let found = found.find(|volume| volume.id == id && is_here(&volume.project, &volume.region));
        found.ok_or_else(|| (404, "itemNotFound", format!("Volume {id} could not be found.")))
    }

    /// One page of a list, with a link to the next page that names a host without a route.
    fn page(&self, name: &str, request: &Request, all: Vec<Value>) -> Value {
        let after = request.parameter("marker");
        let start = after.map_or(0, |marker| {
            all.iter().position(|one| one["id"] == marker).map_or(all.len(), |index| index + 1)
        });
        let page: Vec<Value> = all.iter().skip(start).take(self.settings.page).cloned().collect();
        let mut body = json!({name: page});
        if start + page.len() < all.len() {
            let last = page.last().expect("not empty")["id"].as_str().expect("text").to_owned();
            let href = format!("http://internal/{name}/detail?limit=1&marker={last}");
            body[format!("{name}_links")] = json!([{"rel": "next", "href": href}]);
        }
        body
    }

    fn list_servers(&self, request: &Request, project: &str) -> Value {
        let now = Instant::now();
        let pattern = request.parameter("name").map(|name| name.replace('\\', ""));
        let has_name = |server: &Server| match &pattern {
            None => true,
            Some(pattern) => match pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) {
                Some(exact) => server.name == exact,
                None => server.name.contains(pattern),
            },
        };
        let shown = self.servers.iter().filter(|server| {
            let is_here = server.project == project && server.region == request.region;
            is_here && server.visible_at <= now && has_name(server)
        });
        self.page("servers", request, shown.map(show_server).collect())
    }

    fn create_server(&mut self, request: &Request, project: &str) -> Result<(u16, Value), Refused> {
        let body = &request.body["server"];
        if self.settings.quota.is_some_and(|quota| quota <= self.servers.len()) {
            let text = "Quota exceeded for instances: Requested 1, but already used 1 of 0 instances";
            return Err((403, "forbidden", text.to_owned()));
        }
        let user_data = body["user_data"].as_str().unwrap_or_default();
        if 65_535 < user_data.len() {
            let text =
                format!("Invalid input for field/attribute user_data. Value: {user_data}. It is too long");
            return Err((400, "badRequest", text));
        }
        let metadata = texts(&body["metadata"]);
        let is_legal = |letter: char| letter.is_ascii_alphanumeric() || "-_:. ".contains(letter);
        if let Some(name) = metadata.keys().find(|name| !name.chars().all(is_legal)) {
            return Err((400, "badRequest", format!("Invalid input for field/attribute {name}")));
        }
        let port = body["networks"][0]["port"].as_str();
        let volume = body["block_device_mapping_v2"][0]["uuid"]
            .as_str()
            .filter(|_| body["block_device_mapping_v2"][0]["source_type"] == "volume");
        let now = Instant::now();
        if let Some(port) = self.ports.iter().find(|one| Some(one.id.as_str()) == port)
            && !port.device.is_empty()
        {
            return Err((409, "conflictingRequest", format!("Port {} is still in use.", port.id)));
        }
        if let Some(volume) = self.volumes.iter().find(|one| Some(one.id.as_str()) == volume)
            && volume.status(now) != "available"
        {
            return Err((400, "badRequest", format!("Invalid volume: {} is not available", volume.id)));
        }
        let id = self.id();
        for one in self.ports.iter_mut().filter(|one| Some(one.id.as_str()) == port) {
            one.device.clone_from(&id);
        }
        for one in self.volumes.iter_mut().filter(|one| Some(one.id.as_str()) == volume) {
            one.server.clone_from(&id);
        }
        let networks = body["networks"].as_array().cloned().unwrap_or_default();
        // An entry with a port needs no other port, even if the entry also names the network.
        let without_port = networks.iter().filter(|network| network["port"].is_null());
        for network in without_port.filter_map(|network| network["uuid"].as_str()) {
            let port = self.new_port(project, &request.region, "", network);
            let last = self.ports.iter_mut().find(|one| one.id == port).expect("it exists");
            (last.device, last.is_of_nova) = (id.clone(), true);
        }
        let name = body["name"].as_str().expect("a name");
        self.new_server(&id, project, &request.region, name, metadata);
        Ok((202, json!({"server": {"id": id, "links": [], "adminPass": "secret"}})))
    }

    /// Adds a server, as Nova does.
    pub(crate) fn new_server(
        &mut self,
        id: &str,
        project: &str,
        region: &str,
        name: &str,
        metadata: BTreeMap<String, String>,
    ) {
        let now = Instant::now();
        let server = Server {
            id: id.to_owned(),
            project: project.to_owned(),
            region: region.to_owned(),
            name: name.to_owned(),
            metadata,
            created: self.now(),
            visible_at: now + self.settings.lag,
            built_at: now + self.settings.build,
            fault: self.settings.fault,
            deleted_at: None,
        };
        self.servers.push(server);
    }

    /// Adds a port, and returns its id.
    pub(crate) fn new_port(&mut self, project: &str, region: &str, name: &str, network: &str) -> String {
        let (id, created) = (self.id(), self.now());
        self.ports.push(Port {
            id: id.clone(),
            project: project.to_owned(),
            region: region.to_owned(),
            name: name.to_owned(),
            network: network.to_owned(),
            device: String::new(),
            tags: Vec::new(),
            description: String::new(),
            pairs: Vec::new(),
            revision: 1,
            created,
            is_of_nova: false,
        });
        id
    }

    /// Adds a volume that is filled already, and returns its id.
    pub(crate) fn new_volume(
        &mut self,
        project: &str,
        region: &str,
        name: &str,
        metadata: BTreeMap<String, String>,
    ) -> String {
        let id = self.id();
        self.volumes.push(Volume {
            id: id.clone(),
            project: project.to_owned(),
            region: region.to_owned(),
            name: name.to_owned(),
            metadata,
            server: String::new(),
            busy_until: Instant::now(),
            is_detached: false,
            deleted_at: None,
            state: None,
        });
        id
    }

    fn list_ports(&self, request: &Request, is_here: &dyn Fn(&str, &str) -> bool) -> Value {
        let has = |port: &&Port| {
            is_here(&port.project, &port.region)
                && request.parameter("name").is_none_or(|name| port.name == name)
                && request.parameter("device_id").is_none_or(|device| port.device == device)
                && request.parameter("tags").is_none_or(|tag| port.tags.iter().any(|one| one == tag))
        };
        self.page("ports", request, self.ports.iter().filter(has).map(show_port).collect())
    }

    fn create_port(&mut self, request: &Request, project: &str) -> Result<(u16, Value), Refused> {
        let body = &request.body["port"];
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        if text("network_id") == "none" {
            return Err((404, "NetworkNotFound", "Network none could not be found.".to_owned()));
        }
        let id = self.new_port(project, &request.region, text("name"), text("network_id"));
        let port = self.ports.iter_mut().find(|port| port.id == id).expect("it exists");
        port.description = text("description").to_owned();
        port.pairs = body["allowed_address_pairs"].as_array().cloned().unwrap_or_default();
        Ok((201, json!({"port": show_port(port)})))
    }

    fn change_port(
        &mut self,
        request: &Request,
        id: &str,
        is_here: &dyn Fn(&str, &str) -> bool,
    ) -> Result<(u16, Value), Refused> {
        let port = self.port(id, is_here)?;
        let has_revision = request.if_match == format!("revision_number={}", port.revision);
        if !request.if_match.is_empty() && !has_revision {
            let text = "Constrained to another revision";
            return Err((412, "RevisionNumberConstraintFailed", text.to_owned()));
        }
        let body = &request.body["port"];
        if let Some(pairs) = body["allowed_address_pairs"].as_array() {
            port.pairs.clone_from(pairs);
        }
        if let Some(description) = body["description"].as_str() {
            description.clone_into(&mut port.description);
        }
        port.revision += 1;
        Ok((200, json!({"port": show_port(port)})))
    }

    fn list_volumes(&self, request: &Request, is_here: &dyn Fn(&str, &str) -> bool) -> Value {
        let wanted = request
            .parameter("metadata")
            .map(|filter| texts(&serde_json::from_str::<Value>(filter).expect("a literal of Python")));
        let has = |volume: &&Volume| {
            is_here(&volume.project, &volume.region)
                && request.parameter("name").is_none_or(|name| volume.name == name)
                && wanted.iter().flatten().all(|(name, value)| volume.metadata.get(name) == Some(value))
        };
        self.page(
            "volumes",
            request,
            self.volumes.iter().filter(has).map(|volume| self.show_volume(volume)).collect(),
        )
    }

    fn create_volume(&mut self, request: &Request, project: &str) -> Result<(u16, Value), Refused> {
        let body = &request.body["volume"];
        let name = body["name"].as_str().expect("a name");
        let id = self.new_volume(project, &request.region, name, texts(&body["metadata"]));
        let filled = Instant::now() + self.settings.volume;
        let volume = self.volumes.iter_mut().find(|volume| volume.id == id).expect("it exists");
        volume.busy_until = filled;
        let volume = self.volumes.iter().find(|volume| volume.id == id).expect("it exists");
        Ok((202, json!({"volume": self.show_volume(volume)})))
    }

    fn show_volume(&self, volume: &Volume) -> Value {
        let attached = Some(&volume.server).filter(|server| !server.is_empty());
        let attachments: Value = attached.iter().map(|server| json!({"server_id": server})).collect();
        let created = self.now().strftime("%Y-%m-%dT%H:%M:%S.000000").to_string();
        json!({
            "id": volume.id, "name": volume.name, "status": volume.status(Instant::now()),
            "metadata": volume.metadata, "attachments": attachments, "created_at": created,
        })
    }
}

fn show_server(server: &Server) -> Value {
    let now = Instant::now();
    let is_built = server.built_at <= now;
    let status = match server.fault {
        _ if !is_built => "BUILD",
        Some(_) => "ERROR",
        None => "ACTIVE",
    };
    let mut shown = json!({
        "id": server.id, "name": server.name, "status": status, "metadata": server.metadata,
        "created": server.created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "addresses": {}, "flavor": {"id": "f1", "links": []},
        "OS-EXT-STS:task_state": server.deleted_at.map(|_| "deleting"),
        "OS-EXT-AZ:availability_zone": "eu-nl-1b",
    });
    if is_built && let Some(fault) = server.fault {
        shown["fault"] = json!({"code": 500, "message": fault, "created": "2026-01-01T00:00:00Z"});
    }
    if is_built && server.fault.is_none() {
        shown["addresses"] = json!({"net": [{"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}]});
    }
    shown
}

fn show_port(port: &Port) -> Value {
    json!({
        "id": port.id, "name": port.name, "network_id": port.network, "device_id": port.device,
        "tags": port.tags, "description": port.description, "allowed_address_pairs": port.pairs,
        "revision_number": port.revision, "created_at": port.created.to_string(),
        "fixed_ips": [], "mac_address": "fa:16:3e:00:00:01",
    })
}

/// One object for each name that the query asks for. Two have a name that begins with `two`, and
/// none has a name that begins with `no`.
fn named(kind: &str, request: &Request) -> Value {
    let names = request.query.iter().filter(|(name, _)| name == "name").map(|(_, value)| value);
    let objects = names.flat_map(|name| {
        let count = if name.starts_with("two") { 2 } else { usize::from(!name.starts_with("no")) };
        (0..count).map(move |number| json!({"id": format!("{kind}-{number}-{name}"), "name": name}))
    });
    objects.collect()
}

/// The texts of an object.
fn texts(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned())).collect()
}
