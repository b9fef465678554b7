//! The calls for load balancers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use async_trait::async_trait;
use machinist_driver::Balancers;
use machinist_instance::{
    Balancer, BalancerDeletion, BalancerKey, BalancerNote, BalancerRef, BalancerSpec, Ensured, Error,
    ErrorKind, Ingress, NativeId, NodeName, Progress, RecordedId,
};
use serde_json::{Value, json};

use super::config::{self, ProxyConfig, Server};
use super::settings::{self, BalancerSettings};
use crate::addresses::{self, Fixed, Reservation};
use crate::archive::{self, Entry};
use crate::driver::{Account, bounded, without_container};
use crate::engine::call::{Call, Nature};
use crate::engine::failure::Failure;
use crate::engine::{Command, Stdin};
use crate::label::{self, Labels, OWNER};
use crate::model::{Container, Created, Summary};
use crate::reply::{self, Recorded, Seen};
use crate::spec::IpFamily;
use crate::{id, network, request};

const FOLDER: &str = "/usr/local/etc/haproxy";
const CONFIG: &str = "haproxy.cfg";
/// A configuration before its check.
const CANDIDATE: &str = "haproxy.cfg.new";
const CANDIDATE_PATH: &str = "/usr/local/etc/haproxy/haproxy.cfg.new";
/// A copy of the configuration that HAProxy has loaded.
const LOADED: &str = "haproxy.cfg.loaded";

/// Longest text of HAProxy in an error message.
const MAX_PROBLEM_LEN: usize = 1000;

#[async_trait]
impl Balancers for Account {
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        let what = format!("load balancer {}", spec.name);
        bounded(Nature::Changes, &what, self.ensure_balancer(spec)).await
    }

    async fn find(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error> {
        let find = self.find_balancer(which);
        bounded(Nature::Reads, &format!("finding {}", named(which)), find).await
    }

    async fn list(&self) -> Result<Vec<Balancer>, Error> {
        bounded(Nature::Reads, "listing load balancers", self.list_balancers()).await
    }

    async fn delete(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error> {
        let delete = self.delete_balancer(which);
        bounded(Nature::Changes, &format!("deleting {}", named(which)), delete).await
    }
}

/// The load balancer in a message. The key would let a reader copy it.
fn named(which: &BalancerRef) -> String {
    match &which.id {
        Some(name) => format!("load balancer {name}"),
        None => "the load balancer".to_owned(),
    }
}

impl Account {
    async fn ensure_balancer(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        let mut settings = BalancerSettings::parse(spec, &self.options)?;
        let name = NodeName::new(spec.name.clone())
            .ok_or_else(|| Error::new(ErrorKind::InvalidSpec, "name: expected text that is not empty"))?;
        id::check_name(&name)?;
        let mut notes: Vec<BalancerNote> = settings
            .unknown
            .iter()
            .map(|option| note("UnknownOption", format!("option {option} is unknown and has no effect")))
            .collect();
        let container = match self.found(spec).await? {
            Some(found) if !is_outdated(&found, spec) && !asks_for_another_address(&found, &settings) => {
                notes.extend(note_about_the_image(&found, &settings));
                found
            }
            outdated => {
                self.engine.confirm().await?;
                let image = &settings.image;
                let pulled = self.images.ensure(image, self.options.pulls_images).await;
                if !pulled.map_err(|error| without_container(image, error))? {
                    return Ok(Progress::Working(format!("pulling image {image}")));
                }
                if let Some(outdated) = outdated {
                    self.name_is_free(spec, &outdated).await?;
                    settings.keep(&outdated);
                    self.engine.call(request::remove(&outdated.id)).await?;
                }
                self.create_balancer(spec, &mut settings, &mut notes).await?
            }
        };
        let container = match container.state.status.as_str() {
            "running" => container,
            _ => self.start_balancer(container, spec, &mut settings, &mut notes).await?,
        };
        if container.state.status == "restarting" {
            let text =
                format!("load balancer {} ends again after each start; docker logs shows why", spec.name);
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        if container.state.status != "running" {
            let status = container.state.status;
            return Ok(Progress::Working(format!("starting the load balancer, which is {status}")));
        }
        let container = self.at_recorded_address(container, spec, &mut settings, &mut notes).await?;
        let config = self.wanted(spec, &settings, &mut notes).await?;
        let text = config.render(settings.template.as_deref())?;
        self.load_config(&container.id, &text).await?;
        let balancer = shown(container, Some(&text));
        Ok(Progress::Done(Ensured { balancer, notes, skipped: Vec::new() }))
    }

    async fn find_balancer(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error> {
        match self.found_by(which).await? {
            Some(container) => self.show(container).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list_balancers(&self) -> Result<Vec<Balancer>, Error> {
        let mut balancers = Vec::new();
        let call = request::list(&[(label::KIND_ROLE, label::BALANCER_ROLE)]);
        let summaries: Vec<Summary> = self.engine.json(call).await?;
        for summary in summaries {
            // A container that was removed meanwhile is left out.
            if let Some(container) = self.engine.find::<Container>(request::inspect(&summary.id)).await? {
                balancers.push(self.show(container).await?);
            }
        }
        Ok(balancers)
    }

    async fn delete_balancer(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error> {
        let Some(container) = self.found_by(which).await? else {
            self.engine.confirm().await?;
            return Ok(Progress::Done(BalancerDeletion::Absent));
        };
        let seen = Seen::from(container);
        let recorded =
            which.native_id.as_ref().filter(|_| is_named_by_its_cluster(&seen, which.id.as_deref()));
        let recorded = Recorded { id: recorded, cluster: None };
        if !seen.is_owned_by(which.key.as_str(), recorded) {
            return Err(other_key(&seen));
        }
        match self.engine.call(request::remove(&seen.id)).await {
            Ok(_) => Ok(Progress::Done(BalancerDeletion::Gone)),
            Err(failure) if failure.proves_absence() => Ok(Progress::Done(BalancerDeletion::Gone)),
            Err(failure) if failure.is_conflict() => {
                Ok(Progress::Working("the engine removes it".to_owned()))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Requires that no other container has the name of a balancer that is about to be replaced.
    async fn name_is_free(&self, spec: &BalancerSpec, outdated: &Container) -> Result<(), Error> {
        let named: Option<Container> = self.engine.find(request::inspect(&spec.name)).await?;
        match named.filter(|seen| seen.id != outdated.id) {
            Some(other) => Err(other_key(&Seen::from(other))),
            None => Ok(()),
        }
    }

    /// The container of a balancer: by key, then by name.
    async fn found(&self, spec: &BalancerSpec) -> Result<Option<Container>, Error> {
        if let Some(found) = self.by_balancer_key(&spec.key).await? {
            return Ok(Some(found));
        }
        let named: Option<Container> = self.engine.find(request::inspect(&spec.name)).await?;
        let name = NodeName::new(spec.name.clone());
        let Some(named) = named
            .filter(|container| name.as_ref().is_some_and(|name| request::is_named(&container.name, name)))
        else {
            return Ok(None);
        };
        let seen = Seen::from(named.clone());
        let cluster = spec.options.get(settings::CLUSTER).map_or("", String::as_str);
        let recorded = Recorded { id: spec.native_id.as_ref(), cluster: Some(cluster) };
        if label::is_balancer(&seen.labels) && seen.is_owned_by(spec.key.as_str(), recorded) {
            return Ok(Some(named));
        }
        Err(other_key(&seen))
    }

    /// The container of a balancer: by the recorded id, by key, then by name. A container of
    /// another object may have the name, if ours is gone.
    async fn found_by(&self, which: &BalancerRef) -> Result<Option<Container>, Error> {
        if let Some(id) = &which.native_id {
            let found: Option<Container> = self.engine.find(request::inspect(id.as_str())).await?;
            let is_it = |container: &Container| {
                container.id == id.as_str() && label::is_balancer(&container.config.labels)
            };
            if let Some(found) = found.filter(is_it) {
                return Ok(Some(found));
            }
        }
        if let Some(found) = self.by_balancer_key(&which.key).await? {
            return Ok(Some(found));
        }
        let Some(name) = &which.id else { return Ok(None) };
        let named: Option<Container> = self.engine.find(request::inspect(name)).await?;
        // Without a recorded id, the caller learns whose container it is. With one, a container
        // with the key of another object is not the recorded one; without a key, the id may be
        // wrong.
        let may_be_it = |container: &Container| {
            which.native_id.is_none() || label::get(&container.config.labels, OWNER).is_none()
        };
        Ok(named.filter(|container| {
            container.name.trim_start_matches('/') == name
                && label::is_balancer(&container.config.labels)
                && may_be_it(container)
        }))
    }

    async fn by_balancer_key(&self, key: &BalancerKey) -> Result<Option<Container>, Error> {
        let call = request::list(&[(OWNER, key.as_str()), (label::KIND_ROLE, label::BALANCER_ROLE)]);
        let found: Vec<Summary> = self.engine.json(call).await?;
        match found.as_slice() {
            [] => Ok(None),
            [only] => Ok(self.engine.find(request::inspect(&only.id)).await?),
            several => {
                let ids: Vec<&str> = several.iter().map(|container| container.id.as_str()).collect();
                let text = format!(
                    "expected one container with the key of this object, but {} have it",
                    ids.join(" and ")
                );
                Err(Error::new(ErrorKind::InvalidSpec, text))
            }
        }
    }

    /// Creates the container, which is not started.
    async fn create_balancer(
        &self,
        spec: &BalancerSpec,
        settings: &mut BalancerSettings,
        notes: &mut Vec<BalancerNote>,
    ) -> Result<Container, Error> {
        let subnet = self.options.subnet_of(&settings.network);
        network::ensure(&self.engine, &settings.network, settings.ip_family, subnet).await?;
        let reservation = self.fix_address(spec, settings).await?;
        let mut created = self.create_at(spec, settings).await;
        drop(reservation);
        if let Err(failure) = &created
            && settings.gives_up_address(failure, notes)
        {
            created = self.create_at(spec, settings).await;
        }
        let id = match created {
            Ok(Created { id }) => id,
            // Another call created it meanwhile.
            Err(failure) if failure.is_conflict() => {
                let found = self.found(spec).await?;
                return found.ok_or_else(|| failure.into());
            }
            Err(failure) if failure.is_absence() => {
                return Err(Error::new(ErrorKind::InvalidSpec, failure.error.message));
            }
            Err(failure) => return Err(failure.into()),
        };
        self.inspect(&id).await
    }

    /// Writes a configuration without servers, with which HAProxy starts in any case.
    async fn write_first_config(
        &self,
        container: &str,
        spec: &BalancerSpec,
        settings: &BalancerSettings,
    ) -> Result<(), Error> {
        let (listeners, ip_family) = (spec.listeners.clone(), settings.ip_family);
        let text = ProxyConfig { listeners, servers: Vec::new(), ip_family }.render(None)?;
        let files = [
            Entry::folder(FOLDER, 0o755),
            Entry::file(format!("{FOLDER}/{CONFIG}"), 0o644, text.as_str()),
            Entry::file(format!("{FOLDER}/{LOADED}"), 0o644, text),
        ];
        Ok(self.engine.call(put("/", container, archive::write(&files))).await.map(drop)?)
    }

    /// Chooses an address for a balancer that had none. Its clients know only this one.
    async fn fix_address(
        &self,
        spec: &BalancerSpec,
        settings: &mut BalancerSettings,
    ) -> Result<Reservation, Error> {
        if settings.ip.is_some() || settings.labels.contains_key(label::ADDRESS) {
            return Ok(Reservation::default());
        }
        let reservation = addresses::choose(&self.engine, &settings.network, &spec.name).await?;
        let is_wanted = |address: &&IpAddr| address.is_ipv6() == (settings.ip_family == IpFamily::Ipv6);
        settings.ip = reservation.fixed.0.iter().find(is_wanted).copied();
        Ok(reservation)
    }

    async fn create_at(&self, spec: &BalancerSpec, settings: &BalancerSettings) -> Result<Created, Failure> {
        self.engine.json(request::create(&spec.name, body(spec, settings))).await
    }

    /// Starts the container. Some engines notice only now that the network has no static addresses.
    async fn start_balancer(
        &self,
        container: Container,
        spec: &BalancerSpec,
        settings: &mut BalancerSettings,
        notes: &mut Vec<BalancerNote>,
    ) -> Result<Container, Error> {
        // A stopped container has a configuration that worked.
        if container.state.status != "exited" {
            self.write_first_config(&container.id, spec, settings).await?;
        }
        let id = match self.engine.call(request::start(&container.id)).await {
            Err(failure) if settings.gives_up_address(&failure, notes) => {
                self.engine.call(request::remove(&container.id)).await?;
                let again = self.create_balancer(spec, settings, notes).await?;
                self.write_first_config(&again.id, spec, settings).await?;
                self.engine.call(request::start(&again.id)).await?;
                again.id
            }
            Err(failure) => {
                let address = settings.ip.or_else(|| requested_address(&container));
                return Err(self.cannot_start(failure, spec, &settings.network, address).await);
            }
            Ok(_) => container.id,
        };
        self.inspect(&id).await
    }

    /// The reason why a load balancer cannot start. If another container has its address, the error
    /// names that container.
    async fn cannot_start(
        &self,
        failure: Failure,
        spec: &BalancerSpec,
        network: &str,
        address: Option<IpAddr>,
    ) -> Error {
        let is_taken = failure.error.message.contains("ddress already in use");
        let Some(address) = address.filter(|_| is_taken) else { return failure.into() };
        match network::holder(&self.engine, network, address).await {
            Ok(Some(holder)) => {
                let text = format!(
                    "load balancer {} cannot start: container {holder} has its address {address}. Stop that \
                     container, and start it again later",
                    spec.name
                );
                Error::new(ErrorKind::Unavailable, text)
            }
            Ok(None) | Err(_) => failure.into(),
        }
    }

    /// Gives a running balancer its recorded address back. The clients of the cluster know only
    /// that one. After a restart of the engine, another container may have it.
    async fn at_recorded_address(
        &self,
        container: Container,
        spec: &BalancerSpec,
        settings: &mut BalancerSettings,
        notes: &mut Vec<BalancerNote>,
    ) -> Result<Container, Error> {
        let ips = Seen::from(container.clone()).ips();
        let (Some(recorded), Some(current)) = (settings.ip, ips.first()) else { return Ok(container) };
        if ips.contains(&recorded) {
            return Ok(container);
        }
        let holder = network::holder(&self.engine, &settings.network, recorded).await?;
        let why = match holder {
            Some(holder) => format!("container {holder} has that address; stop it, and start it again later"),
            None if label::get(&container.config.labels, label::ADDRESS) == Some(label::DYNAMIC) => {
                "the network has no static addresses; create it with a subnet".to_owned()
            }
            // A container with an address outside of the subnets of the network would never start.
            None if !network::covers(&self.engine, &settings.network, recorded).await? => {
                format!("network {} has no subnet with that address", settings.network)
            }
            // A container that works is removed only once the image of its successor is there.
            None => match self.images.ensure(&settings.image, self.options.pulls_images).await {
                Ok(true) => {
                    settings.keep(&container);
                    self.engine.call(request::remove(&container.id)).await?;
                    let again = self.create_balancer(spec, settings, notes).await?;
                    return match again.state.status.as_str() {
                        "running" => Ok(again),
                        _ => self.start_balancer(again, spec, settings, notes).await,
                    };
                }
                Ok(false) => format!("the engine pulls image {} first", settings.image),
                Err(error) => without_container(&settings.image, error).message,
            },
        };
        let text = format!("the load balancer moved from {recorded} to {current}: {why}");
        notes.push(note("AddressMoved", text));
        Ok(container)
    }

    /// The wanted configuration: the running targets with an address.
    async fn wanted(
        &self,
        spec: &BalancerSpec,
        settings: &BalancerSettings,
        notes: &mut Vec<BalancerNote>,
    ) -> Result<ProxyConfig, Error> {
        let mut servers = Vec::new();
        for target in &spec.targets {
            let mut skip = |why: String| {
                notes.push(note("TargetSkipped", format!("Node {} is skipped: {why}", target.node)));
            };
            let recorded = id::parse(target.instance.as_str());
            let RecordedId::Ours(id) = recorded else {
                skip(format!("provider id {} is not an id of a container", target.instance));
                continue;
            };
            let name = id::container(&id)?;
            let Some(container) = self.by_name(name).await? else {
                skip(format!("container {name} does not exist"));
                continue;
            };
            if container.key().is_none() && !is_of_the_cluster(&container, &settings.labels) {
                skip(format!("container {name} was not created by this driver"));
                continue;
            }
            match (container.is_running(), container.ips().first()) {
                (true, Some(address)) => {
                    servers.push(Server { name: name.to_owned(), address: *address, weight: target.weight });
                }
                (true, None) => skip(format!("container {name} has no address")),
                (false, _) => skip(format!("container {name} is {}", container.status)),
            }
        }
        servers.sort();
        servers.dedup_by(|a, b| a.name == b.name);
        Ok(ProxyConfig { listeners: spec.listeners.clone(), servers, ip_family: settings.ip_family })
    }

    /// Loads a configuration, unless HAProxy has loaded it.
    async fn load_config(&self, container: &str, text: &str) -> Result<(), Error> {
        let files = self.config_files(container).await?;
        let has = |name: &str| files.get(name).is_some_and(|content| content == text);
        if has(CONFIG) && has(LOADED) {
            return Ok(());
        }
        if !has(CONFIG) {
            self.put_config(container, CANDIDATE, text).await?;
            let check = Command {
                container,
                argv: vec!["haproxy", "-c", "-f", CANDIDATE_PATH],
                nature: Nature::Changes,
            };
            let checked = self.engine.run(check, Stdin::Empty).await?;
            if checked.code != 0 {
                return Err(refused(&checked.errors()));
            }
            self.put_config(container, CONFIG, text).await?;
        }
        self.engine.call(Call::act("/containers/-/kill", container).with("signal", "HUP")).await?;
        self.put_config(container, LOADED, text).await?;
        Ok(())
    }

    async fn put_config(&self, container: &str, name: &str, text: &str) -> Result<(), Failure> {
        let tar = archive::write(&[Entry::file(name, 0o644, text)]);
        self.engine.call(put(FOLDER, container, tar)).await.map(drop)
    }

    /// The files in the folder of the configuration, by name.
    async fn config_files(&self, container: &str) -> Result<BTreeMap<String, String>, Error> {
        let call = Call::get("/containers/-/archive", container).with("path", FOLDER);
        let archive = match self.engine.call(call).await {
            Ok(answer) => answer.into_body(),
            Err(failure) if failure.is_absence() => return Ok(BTreeMap::new()),
            Err(failure) => return Err(failure.into()),
        };
        let files = archive::read(&archive).into_iter().map(|(path, content)| {
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            (name, String::from_utf8_lossy(&content).into_owned())
        });
        Ok(files.collect())
    }

    async fn show(&self, container: Container) -> Result<Balancer, Error> {
        let files = self.config_files(&container.id).await?;
        Ok(shown(container, files.get(CONFIG).map(String::as_str)))
    }
}

/// HAProxy refuses a configuration, or the container was stopped during the check.
fn refused(errors: &str) -> Error {
    if errors.is_empty() {
        let text = "the load balancer was stopped while HAProxy checked the configuration";
        return Error::new(ErrorKind::Unavailable, text);
    }
    let problem: String = errors.chars().take(MAX_PROBLEM_LEN).collect();
    Error::new(ErrorKind::InvalidSpec, format!("HAProxy refuses the configuration: {problem}"))
}

fn put(folder: &str, container: &str, tar: Vec<u8>) -> Call {
    Call::put("/containers/-/archive", container, tar).with("path", folder)
}

/// Whether the container cannot become the wanted balancer: published ports of a container never
/// change.
fn is_outdated(found: &Container, spec: &BalancerSpec) -> bool {
    // A container of another Docker provider records no ports. Another one would get another
    // address, which is in certificates and kubeconfigs.
    let ports = label::get(&found.config.labels, label::PORTS);
    let has_other_ports = ports.is_some_and(|ports| ports != settings::ports_text(spec));
    let has_other_name = found.name.trim_start_matches('/') != spec.name;
    has_other_ports || has_other_name
}

/// Whether a container that never started was created for another address than the recorded one.
/// It can never start if that address was wrong.
fn asks_for_another_address(found: &Container, settings: &BalancerSettings) -> bool {
    let is_other = |requested: IpAddr| settings.ip.is_some_and(|wanted| wanted != requested);
    found.state.status == "created" && requested_address(found).is_some_and(is_other)
}

/// The static address of a container. The engine knows it even if the container does not run.
fn requested_address(found: &Container) -> Option<IpAddr> {
    let networks = found.network_settings.networks.values();
    let requested = networks.filter_map(|network| network.requested.as_ref());
    requested
        .flat_map(|requested| [&requested.ipv4, &requested.ipv6])
        .find_map(|address| address.parse().ok())
}

/// Whether another Docker provider of Cluster API created the container for the control plane of
/// the cluster of the balancer.
fn is_of_the_cluster(container: &Seen, balancer: &Labels) -> bool {
    let cluster = label::get(balancer, label::KIND_CLUSTER);
    cluster.is_some()
        && label::get(&container.labels, label::KIND_CLUSTER) == cluster
        && label::get(&container.labels, label::KIND_ROLE) == Some(label::CONTROL_PLANE_ROLE)
}

/// Notes that the balancer has another image than the settings. A new default image does not
/// justify an interruption of all connections of a cluster.
fn note_about_the_image(found: &Container, settings: &BalancerSettings) -> Option<BalancerNote> {
    let (used, wanted) = (&found.config.image, &settings.image);
    let text = format!("the load balancer keeps image {used}; delete its container to use {wanted}");
    (used != wanted).then(|| note("ImageKept", text))
}

impl BalancerSettings {
    /// Gives up the static address if the network has none. Then the balancer gets a new address.
    fn gives_up_address(&mut self, failure: &Failure, notes: &mut Vec<BalancerNote>) -> bool {
        let is_dynamic = has_no_static_addresses(failure);
        let gives_up = self.ip.is_some() && (is_dynamic || is_outside(failure));
        if gives_up {
            self.ip = None;
            if is_dynamic {
                // Otherwise the next call would try it again.
                self.labels.insert(label::ADDRESS.to_owned(), label::DYNAMIC.to_owned());
            }
            let text = format!("the load balancer gets a new address: {}", failure.error.message);
            notes.push(note("StaticAddressRefused", text));
        }
        gives_up
    }

    /// Keeps the address and the ports of a container that is replaced.
    fn keep(&mut self, found: &Container) {
        for port in settings::ports(&found.config.labels) {
            if let Some(host_port) = reply::host_port(&found.network_settings, port) {
                self.host_ports.entry(port).or_insert(host_port);
            }
        }
        let current = || Seen::from(found.clone()).ips().first().copied();
        self.ip = self.ip.or_else(current).or_else(|| requested_address(found));
    }
}

/// Whether the network has no static addresses. An address that is in use is another case: clients
/// of the cluster know only this address, so the call is repeated until it is free.
fn has_no_static_addresses(failure: &Failure) -> bool {
    let says = |text: &str| failure.error.message.contains(text);
    says("IP address is supported only") || says("no configured subnet")
}

/// Whether no subnet of the network has the address, so that the balancer can never have it.
fn is_outside(failure: &Failure) -> bool {
    failure.error.message.contains("does not belong to any of this network's subnets")
}

/// The body of the request that creates a balancer.
fn body(spec: &BalancerSpec, settings: &BalancerSettings) -> Value {
    let mut bindings = BTreeMap::new();
    for listener in &spec.listeners {
        let host_port = settings.host_ports.get(&listener.port).map(u16::to_string).unwrap_or_default();
        let binding = json!([{"HostIp": settings.listen_address, "HostPort": host_port}]);
        bindings.insert(format!("{}/tcp", listener.port), binding);
    }
    let exposed: BTreeMap<&String, Value> = bindings.keys().map(|port| (port, json!({}))).collect();
    let mut body = json!({
        "Hostname": spec.name,
        "Image": settings.image,
        "Entrypoint": ["haproxy", "-W", "-db", "-f", format!("{FOLDER}/{CONFIG}")],
        "Cmd": [],
        "Labels": settings.labels,
        "ExposedPorts": exposed,
        // Without a stop signal of its own, the engine takes the signal for a reload as a stop and
        // no longer restarts the container.
        "StopSignal": "SIGTERM",
        "HostConfig": {
            "NetworkMode": settings.network,
            "PortBindings": bindings,
            "RestartPolicy": {"Name": "unless-stopped"},
            "CapDrop": ["ALL"],
            "CapAdd": ["NET_BIND_SERVICE"],
            "SecurityOpt": ["no-new-privileges"],
        },
        "NetworkingConfig": {"EndpointsConfig": {settings.network.as_str(): {}}},
    });
    Fixed(settings.ip.into_iter().collect()).write(&mut body, &settings.network);
    body
}

fn shown(container: Container, config: Option<&str>) -> Balancer {
    let ports = settings::ports(&container.config.labels);
    let host_ports = ports
        .iter()
        .filter_map(|port| Some((*port, reply::host_port(&container.network_settings, *port)?)))
        .collect();
    let seen = Seen::from(container);
    let ingress = seen.ips().into_iter().map(|address| Ingress::Ip { address, is_proxy: true }).collect();
    let targets = config.map(config::targets).unwrap_or_default();
    Balancer {
        key: seen.key().map(BalancerKey::new),
        name: seen.name.clone(),
        id: seen.name,
        native_id: NativeId::new(seen.id),
        ingress,
        ports,
        host_ports,
        targets: targets.iter().map(|name| id::of(name)).collect(),
        room: None,
        created: None,
        is_protected: false,
    }
}

/// Whether a container has the label and the name that a Docker provider of Cluster API gives to
/// the load balancer of a cluster, and that name is the expected one. A user may have recorded the
/// id of the load balancer of another cluster.
fn is_named_by_its_cluster(seen: &Seen, expected: Option<&str>) -> bool {
    let cluster = label::get(&seen.labels, label::KIND_CLUSTER);
    let name = cluster.map(|cluster| format!("{cluster}-lb"));
    name.as_deref() == Some(seen.name.as_str()) && name.as_deref() == expected
}

/// The container belongs to another object. The text has no key: a user who knows the key of
/// another object can copy it.
fn other_key(seen: &Seen) -> Error {
    let name = &seen.name;
    let text = match seen.key() {
        Some(_) => format!(
            "container {name} has the key of another object. It may be the load balancer of another cluster: \
             choose another name, or delete the container if no object has its label machinist.dev/owner-uid"
        ),
        // Its address is in certificates and kubeconfigs.
        None if label::get(&seen.labels, label::KIND_CLUSTER).is_some() => format!(
            "container {name} has no key. If another Docker provider of Cluster API created it for this cluster, \
             record its id, as the chapter about migration says, and do not delete it"
        ),
        None => format!(
            "container {name} was not created by this driver. Delete the container, or choose another name"
        ),
    };
    Error::new(ErrorKind::InvalidSpec, text)
}

fn note(reason: &'static str, message: String) -> BalancerNote {
    BalancerNote { reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::settings::tests::spec;
    use crate::options::DockerOptions;

    /// Returns a container that another Docker provider of Cluster API created.
    fn theirs(labels: Value) -> Container {
        let container = json!({
            "Id": "4f53cda18c2b", "Name": "/c1-lb", "Created": "2026-01-02T03:04:05Z",
            "State": {"Status": "running", "ExitCode": 0}, "Config": {"Image": "i", "Labels": labels},
            "HostConfig": {"NetworkMode": "kind"}, "NetworkSettings": {"Networks": {}, "Ports": null},
        });
        serde_json::from_value(container).expect("a container")
    }

    #[test]
    fn a_balancer_without_recorded_ports_is_kept() {
        let spec = spec(&[]);
        let role = "external-load-balancer";
        let labels = |ports: Option<&str>| {
            let mut labels = json!({"io.x-k8s.kind.cluster": "c1", "io.x-k8s.kind.role": role});
            if let Some(ports) = ports {
                labels["machinist.dev/ports"] = json!(ports);
            }
            labels
        };
        assert!(!is_outdated(&theirs(labels(None)), &spec), "its address is in certificates");
        assert!(!is_outdated(&theirs(labels(Some("6443"))), &spec));
        assert!(is_outdated(&theirs(labels(Some("443"))), &spec));
    }

    #[test]
    fn only_the_control_plane_of_the_same_cluster_is_balanced() {
        let balancer = Labels::from([(label::KIND_CLUSTER.to_owned(), "c1".to_owned())]);
        for (cluster, role, expected) in [
            ("c1", "control-plane", true),
            ("c1", "worker", false),
            ("c2", "control-plane", false),
            ("", "control-plane", false),
        ] {
            let labels = json!({"io.x-k8s.kind.cluster": cluster, "io.x-k8s.kind.role": role});
            let container = Seen::from(theirs(labels));
            assert_eq!(is_of_the_cluster(&container, &balancer), expected, "{cluster} {role}");
            assert!(!is_of_the_cluster(&container, &Labels::new()), "a balancer without a cluster");
        }
    }

    #[test]
    fn only_a_container_that_never_started_changes_its_address() {
        let container = |status: &str, address: &str| -> Container {
            let networks = json!({"kind": {"IPAddress": "", "IPAMConfig": {"IPv4Address": address}}});
            let container = json!({
                "Id": "a", "Name": "/c1-lb", "State": {"Status": status},
                "NetworkSettings": {"Networks": networks},
            });
            serde_json::from_value(container).expect("a container")
        };
        let wanted = BalancerSettings::parse(&spec(&[("ip", "172.18.0.9")]), &DockerOptions::default());
        let wanted = wanted.expect("valid");
        assert!(asks_for_another_address(&container("created", "1.2.3.4"), &wanted));
        for (status, address) in [("created", "172.18.0.9"), ("created", ""), ("running", "1.2.3.4")] {
            assert!(!asks_for_another_address(&container(status, address), &wanted), "{status} {address}");
        }

        let any = || BalancerSettings::parse(&spec(&[]), &DockerOptions::default()).expect("valid");
        let waiting = container("created", "172.18.0.9");
        assert!(!asks_for_another_address(&waiting, &any()), "it waits until its address is free");
        for status in ["created", "exited"] {
            let mut next = any();
            next.keep(&container(status, "172.18.0.9"));
            assert_eq!(next.ip.map(|ip| ip.to_string()).as_deref(), Some("172.18.0.9"), "{status}");
        }
    }

    #[test]
    fn a_balancer_has_few_privileges_and_recorded_ports() {
        let spec = spec(&[("host-port.6443", "32000"), ("cluster", "c1"), ("ip", "172.18.0.9")]);
        let settings = BalancerSettings::parse(&spec, &DockerOptions::default()).expect("valid");
        let body = body(&spec, &settings);
        let host = &body["HostConfig"];
        assert_eq!(host["PortBindings"]["6443/tcp"], json!([{"HostIp": "0.0.0.0", "HostPort": "32000"}]));
        assert_eq!((host.get("Privileged"), &host["CapDrop"]), (None, &json!(["ALL"])));
        let address = &body["NetworkingConfig"]["EndpointsConfig"]["kind"]["IPAMConfig"]["IPv4Address"];
        assert_eq!(address, "172.18.0.9");
        assert_eq!(body["StopSignal"], "SIGTERM");
    }
}
