//! A container engine in memory: containers, load balancers and bootstraps. Tests and benchmarks
//! use it instead of Docker.
//!
//! The engine is a driver, and so has no HTTP API: `machinist-driver-docker` is tested with a real
//! engine. A container counts as started at the second look, and a bootstrap as ended at the
//! second look after its start. Calls take no time, unless the engine has a [`Speed`].

mod speed;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::{Balancers, Bootstrap, Check, Driver, Instances, Provider};
use machinist_instance::{
    AccountId, Address, AddressKind, Balancer, BalancerDeletion, BalancerRef, BalancerSpec, Boot,
    BootTrouble, BootstrapCause, BootstrapData, BootstrapFailure, BootstrapFormat, BootstrapState,
    BootstrapStatus, CreateGuarantee, Credential, Ensured, Error, ErrorKind, Foreign, Ingress, Instance,
    InstanceKey, InstanceRef, InstanceSpec, KeyTag, NativeId, Place, Power, Progress, Promises, ProviderId,
    Readiness, RecordedId, Scope, Sighting, UserData,
};
use serde_json::Value;

pub use self::speed::Speed;
use self::speed::{Pace, Work};

/// The engine, as a provider and as its only account. Clones share their state, which therefore
/// outlives a process under test.
#[derive(Clone)]
pub struct Engine {
    address: &'static str,
    pace: Option<Arc<Pace>>,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    state: Arc<Mutex<EngineState>>,
}

/// The content of the engine, what it was asked, and its faults.
#[derive(Default)]
pub struct EngineState {
    /// The containers by name.
    pub containers: BTreeMap<String, Container>,
    /// Targets and their weights, by the name of the balancer.
    pub balancers: BTreeMap<String, (BalancerSpec, Vec<(String, u8)>)>,
    /// Names of the containers in the order of their creation.
    pub created: Vec<String>,
    /// Names of the containers in the order of their deletion.
    pub deleted: Vec<String>,
    /// Whether each creation fails.
    pub fails_to_create: bool,
    /// Whether the engine takes a container of the right name as the caller's own without its key.
    /// No driver does so: simulations show with it that the key is necessary.
    pub ignores_keys: bool,
    /// Whether each deletion of a container fails.
    pub fails_to_delete: bool,
    /// Whether each bootstrap fails.
    pub bootstrap_fails: bool,
    /// Whether the engine accepts requests and answers none of those that only check that.
    pub hangs: bool,
    /// The problem of each container on its way to a Node.
    pub trouble_of_all: Option<BootTrouble>,
    /// Parts of the user data that each bootstrap skips.
    pub skips: Vec<String>,
    /// Whether the network has dynamic addresses, which a restart deals out in another order.
    pub deals_out_addresses: bool,
    /// How often the address of the balancers has changed.
    pub moves: u8,
    /// Number of calls of any kind.
    pub calls: usize,
}

/// One container.
#[derive(Clone)]
pub struct Container {
    /// The container as the driver shows it.
    pub instance: Instance,
    /// The image.
    pub image: String,
    /// Number of looks at its start.
    pub looks: u32,
    /// Number of bootstraps that were started.
    pub bootstraps: u32,
    /// Number of looks at its bootstrap since the start.
    pub progress: u32,
    /// Format of the data of the last bootstrap.
    pub format: Option<BootstrapFormat>,
}

impl Engine {
    /// Creates an engine without containers. Its calls take no time, and its containers are old
    /// from the beginning.
    pub fn new(address: &'static str) -> Self {
        Self { address, pace: None, now: Arc::new(|| Timestamp::UNIX_EPOCH), state: Arc::default() }
    }

    /// Returns the engine with a clock, which dates its new containers.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// Creates an engine without containers, with this speed.
    pub fn with_speed(address: &'static str, speed: Speed) -> Self {
        Self { pace: Some(Arc::new(Pace::new(speed))), ..Self::new(address) }
    }

    /// Returns the state. No call is answered while the caller has it.
    pub fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and waits until the engine has performed it.
    async fn called(&self, work: Work) -> MutexGuard<'_, EngineState> {
        if let Some(pace) = &self.pace {
            pace.perform(work).await;
        }
        let mut state = self.state();
        state.calls += 1;
        state
    }
}

impl Provider for Engine {
    fn name(&self) -> &str {
        "docker"
    }
    fn validate(&self, _: &Value) -> Result<(), Error> {
        Ok(())
    }
    fn account(&self, _: &Credential, _: &Place) -> AccountId {
        AccountId::of([b"docker", self.address.as_bytes()])
    }
    fn parse_id(&self, text: &str) -> RecordedId {
        match ProviderId::parse(text) {
            Err(_) => RecordedId::Unset,
            Ok(id) if text.starts_with("docker:////") => RecordedId::Ours(id),
            Ok(_) => RecordedId::NotOurs { expected: "docker:////CONTAINER".to_owned() },
        }
    }
    fn check(&self) -> Option<Check> {
        let hangs = self.state().hangs;
        let answer = async move { if hangs { std::future::pending().await } else { Ok(()) } };
        Some(Check { cloud: format!("the engine at {}", self.address), answer: Box::pin(answer) })
    }
    fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
        Ok(Arc::new(self.clone()))
    }
}

impl Driver for Engine {
    fn instances(&self) -> &dyn Instances {
        self
    }
    fn balancers(&self) -> Option<&dyn Balancers> {
        Some(self)
    }
    fn bootstrap(&self) -> Option<&dyn Bootstrap> {
        Some(self)
    }
    fn promises(&self) -> Promises {
        Promises {
            visible_within: Duration::ZERO,
            call_bound: Duration::from_secs(30),
            calls_outlive_process: true,
            create: CreateGuarantee::UniqueName,
            rate: None,
            keys: KeyTag::Fixed,
        }
    }
}

impl EngineState {
    /// Restarts the engine, and its containers with it. The first container gets its address first:
    /// if the network has dynamic addresses, all addresses move on by one container.
    pub fn restart(&mut self) {
        if !self.deals_out_addresses {
            return;
        }
        let mut addresses: Vec<Vec<Address>> =
            self.containers.values().map(|container| container.instance.addresses.clone()).collect();
        if !addresses.is_empty() {
            addresses.rotate_left(1);
        }
        for (container, addresses) in self.containers.values_mut().zip(addresses) {
            container.instance.addresses = addresses;
        }
    }

    /// As the driver: by the recorded id, unless the container contradicts it and there is one with
    /// the key.
    fn find(&self, which: &InstanceRef) -> Option<&Container> {
        let is_recorded = |container: &&Container| {
            which.native_id.is_some() && container.instance.native_id == which.native_id
        };
        let Some(recorded) = self.containers.values().find(is_recorded) else {
            return self.find_by_name_or_key(which);
        };
        let has_key = |container: &&Container| which.key.is_some() && container.instance.key == which.key;
        let own = self.find_by_name_or_key(which).filter(has_key);
        own.filter(|_| !is_owned(&recorded.instance, which)).or(Some(recorded))
    }

    fn find_by_name_or_key(&self, which: &InstanceRef) -> Option<&Container> {
        let name = which.id.as_ref().and_then(|id| id.as_str().strip_prefix("docker:////"));
        match name {
            Some(name) => self.containers.get(name),
            None => {
                let by_key = self.containers.values().find(|container| container.instance.key == which.key);
                by_key.or_else(|| self.containers.get(which.name.as_ref()?.as_str()))
            }
        }
    }

    fn owned(&mut self, which: &InstanceRef) -> Result<&mut Container, Error> {
        let name = self.find(which).map(|container| container.instance.name.as_str().to_owned());
        let ignores_keys = self.ignores_keys;
        let found = name.and_then(|name| self.containers.get_mut(&name));
        match found {
            Some(found) if !ignores_keys && which.key.is_some() && !is_owned(&found.instance, which) => {
                Err(Error::new(ErrorKind::Denied, "the container has another key or none"))
            }
            Some(found) => Ok(found),
            None => Err(Error::new(ErrorKind::Unavailable, "no such container")),
        }
    }

    /// As the driver: bootstrap data runs as root, so a recorded id does not suffice.
    fn created_by_us(&mut self, which: &InstanceRef) -> Result<&mut Container, Error> {
        let ignores_keys = self.ignores_keys;
        let container = self.owned(which)?;
        let is_ours = container.instance.key.is_some() && container.instance.key == which.key;
        if ignores_keys || is_ours {
            Ok(container)
        } else {
            Err(Error::new(ErrorKind::Denied, "the container has another key or none"))
        }
    }
}

/// Returns the address of a container in the network 172.18.0.0/16. The first ones belong to the
/// gateway and to load balancers.
fn address(number: usize) -> Ipv4Addr {
    let offset = u32::try_from(number).unwrap_or_default().saturating_add(10) % (1 << 16);
    Ipv4Addr::from_bits(Ipv4Addr::new(172, 18, 0, 0).to_bits() | offset)
}

/// Whether the driver can run user data, by its first line.
fn is_runnable(data: &UserData) -> bool {
    let text = String::from_utf8_lossy(data.expose());
    text.is_empty() || ["#!", "#cloud-config", "{"].iter().any(|start| text.trim_start().starts_with(start))
}

/// As the driver: a recorded id counts only for a container whose labels name the cluster.
fn is_owned(instance: &Instance, which: &InstanceRef) -> bool {
    let is_recorded = which.native_id.is_some() && instance.native_id == which.native_id;
    instance.key == which.key || (is_recorded && may_be_of(instance, which.cluster.as_deref()))
}

fn may_be_of(instance: &Instance, cluster: Option<&str>) -> bool {
    let of_upstream = instance.tags.get("io.x-k8s.kind.cluster").map(String::as_str);
    cluster.is_none() || instance.cluster.as_deref() == cluster || of_upstream == cluster
}

#[async_trait]
impl Instances for Engine {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let mut state = self.called(Work::Create).await;
        if state.fails_to_create {
            return Err(Error::new(ErrorKind::Unavailable, "the engine is busy"));
        }
        if let Some(found) =
            state.containers.values().find(|container| container.instance.key.as_ref() == Some(&spec.key))
        {
            return Ok(found.instance.clone());
        }
        // As the driver: a container with such user data would never join.
        if !is_runnable(&spec.user_data) {
            let text = "user data: expected #cloud-config, a script that begins with #!, or Ignition";
            return Err(Error::new(ErrorKind::InvalidSpec, text));
        }
        let name = spec.name.as_str().to_owned();
        if let Some(other) = state.containers.get(&name) {
            if state.ignores_keys {
                return Ok(other.instance.clone());
            }
            return Err(Error::new(ErrorKind::Denied, format!("container {name} has another key or none")));
        }
        let number = state.created.len() + 1;
        let instance = Instance {
            id: ProviderId::parse(&format!("docker:////{name}")).expect("the text is not empty"),
            native_id: NativeId::new(format!("id-{number}")),
            key: Some(spec.key.clone()),
            cluster: Some(spec.cluster.clone()),
            name: spec.name.clone(),
            power: Power::Running,
            addresses: vec![Address { kind: AddressKind::InternalIP, address: address(number).to_string() }],
            instance_type: None,
            zone: spec.provider_spec["failureDomain"].as_str().map(str::to_owned),
            region: None,
            tags: spec.tags.clone(),
            node_labels: BTreeMap::new(),
            created: (self.now)(),
        };
        let image = spec.provider_spec["image"].as_str().unwrap_or_default().to_owned();
        let container = Container {
            instance: instance.clone(),
            image,
            looks: 0,
            bootstraps: 0,
            progress: 0,
            format: None,
        };
        state.containers.insert(name.clone(), container);
        state.created.push(name);
        Ok(instance)
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let state = self.called(Work::Request).await;
        Ok(match state.find(which) {
            None => Sighting::Absent,
            Some(Container { instance, .. }) => match &instance.key {
                _ if state.ignores_keys || is_owned(instance, which) => Sighting::Present(instance.clone()),
                Some(key) => Sighting::Foreign(Foreign {
                    id: instance.id.clone(),
                    key: Some(key.clone()),
                    cluster: instance.cluster.clone(),
                    created: instance.created,
                }),
                // As the driver answers: no program can add the key later, so the name alone proves
                // nothing.
                None if which.id.is_none() || which.native_id.is_some() => Sighting::Absent,
                None if !may_be_of(instance, which.cluster.as_deref()) => Sighting::Absent,
                None => Sighting::Present(instance.clone()),
            },
        })
    }

    async fn list(&self, _: &Scope) -> Result<Vec<Instance>, Error> {
        Ok(self
            .called(Work::Request)
            .await
            .containers
            .values()
            .map(|container| container.instance.clone())
            .collect())
    }

    async fn delete(&self, which: &InstanceRef, _: &InstanceKey) -> Result<(), Error> {
        let mut state = self.called(Work::Delete).await;
        if state.fails_to_delete {
            return Err(Error::new(ErrorKind::Unavailable, "the engine is busy"));
        }
        let Some(found) = state.find(which).map(|container| container.instance.clone()) else {
            return Ok(());
        };
        if !is_owned(&found, which) {
            return Err(Error::new(ErrorKind::Denied, "another key"));
        }
        let name = found.name.as_str().to_owned();
        state.containers.remove(&name);
        state.deleted.push(name);
        Ok(())
    }
}

#[async_trait]
impl Balancers for Engine {
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        let mut state = self.called(Work::Exec).await;
        let targets = spec.targets.iter().map(|target| (target.node.clone(), target.weight)).collect();
        state.balancers.insert(spec.name.clone(), (spec.clone(), targets));
        Ok(Progress::Done(Ensured::complete(shown(spec, state.moves))))
    }
    async fn find(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error> {
        let state = self.called(Work::Request).await;
        let mut found = state.balancers.values().filter(|(spec, _)| spec.key == which.key);
        Ok(found.next().map(|(spec, _)| shown(spec, state.moves)))
    }
    async fn list(&self) -> Result<Vec<Balancer>, Error> {
        let state = self.called(Work::Request).await;
        Ok(state.balancers.values().map(|(spec, _)| shown(spec, state.moves)).collect())
    }
    async fn delete(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error> {
        self.called(Work::Delete).await.balancers.retain(|_, (spec, _)| spec.key != which.key);
        Ok(Progress::Done(BalancerDeletion::Gone))
    }
}

fn shown(spec: &BalancerSpec, moves: u8) -> Balancer {
    Balancer {
        id: spec.name.clone(),
        native_id: None,
        key: Some(spec.key.clone()),
        name: spec.name.clone(),
        ingress: vec![Ingress::Ip {
            address: IpAddr::V4(Ipv4Addr::new(172, 18, 0, 2 + moves)),
            is_proxy: false,
        }],
        ports: spec.listeners.iter().map(|listener| listener.port).collect(),
        host_ports: [(6443, 32770)].into(),
        targets: spec.targets.iter().map(|target| target.instance.clone()).collect(),
        room: None,
        created: None,
        is_protected: false,
    }
}

#[async_trait]
impl Bootstrap for Engine {
    async fn readiness(&self, which: &InstanceRef) -> Result<Readiness, Error> {
        let mut state = self.called(Work::Exec).await;
        let container = state.owned(which)?;
        container.looks += 1;
        Ok(match container.looks {
            1 => Readiness::Booting("systemd".to_owned()),
            _ => Readiness::Ready,
        })
    }
    async fn load_images(&self, which: &InstanceRef, _: &[String]) -> Result<Progress<()>, Error> {
        let mut state = self.called(Work::Exec).await;
        state.created_by_us(which)?;
        Ok(Progress::Done(()))
    }
    async fn start(&self, which: &InstanceRef, data: &BootstrapData) -> Result<(), Error> {
        let mut state = self.called(Work::Exec).await;
        let container = state.created_by_us(which)?;
        // As the driver: a bootstrap that was started before is not started again.
        if container.bootstraps == 0 {
            container.bootstraps = 1;
            container.format = Some(data.format);
        }
        Ok(())
    }
    async fn progress(&self, which: &InstanceRef) -> Result<BootstrapStatus, Error> {
        let mut state = self.called(Work::Exec).await;
        let (fails, ignored) = (state.bootstrap_fails, state.skips.clone());
        let container = state.owned(which)?;
        let started = 0 < container.bootstraps;
        container.progress += u32::from(started);
        let state = match (started, container.progress) {
            (false, _) => BootstrapState::NotStarted,
            (true, 1) => BootstrapState::Running { step: 3, steps: 17 },
            (true, _) if fails => BootstrapState::Failed(BootstrapFailure {
                cause: BootstrapCause::Exited { step: 3, steps: 17, code: 1 },
                kubeadm_started: true,
                stdout: String::new(),
                stderr: "no etcd".to_owned(),
            }),
            (true, _) => BootstrapState::Succeeded,
        };
        Ok(BootstrapStatus { state, ignored })
    }
    async fn boot(&self, which: &InstanceRef) -> Result<Boot, Error> {
        let state = self.called(Work::Exec).await;
        if state.find(which).is_none() {
            return Ok(Boot::Trouble(BootTrouble {
                cause: "the container no longer exists".to_owned(),
                output: Vec::new(),
                see: "docker ps --all".to_owned(),
                is_final: true,
            }));
        }
        Ok(state.trouble_of_all.clone().map_or(Boot::Working, Boot::Trouble))
    }
}
