//! The provider, its accounts, and the calls for instances. Besides `engine`, `image` and
//! `network`, only the files named `driver` await calls of the engine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use machinist_driver::{Balancers, Bootstrap, Check, Driver, Instances, Provider};
use machinist_instance::{
    AccountId, CreateGuarantee, Credential, Error, ErrorKind, Instance, InstanceKey, InstanceRef,
    InstanceSpec, KeyTag, NativeId, NodeName, Place, Promises, RecordedId, Scope, Sighting,
};
use serde_json::Value;

use crate::bootstrap::{Bundle, Machine, Start, redact, translate_user_data};
use crate::engine::call::{Call, Nature};
use crate::engine::failure::Failure;
use crate::engine::{ATTEMPT_WITHIN, Connector, Engine};
use crate::image::Images;
use crate::model::{Container, Created, Info, Summary};
use crate::options::{DockerOptions, Privileges};
use crate::reply::{self, Seen};
use crate::request::Cgroups;
use crate::spec::ProviderSpec;
use crate::{addresses, id, label, network, request};

/// Time limit of one call, which consists of several requests.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// How long user data may run. A Machine that does not join is replaced much earlier.
const USER_DATA_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The promises of an engine.
pub const PROMISES: Promises = Promises {
    // The engine shows a container as soon as it has answered.
    visible_within: Duration::from_secs(1),
    // The last request begins before the time limit of the call.
    call_bound: CALL_WITHIN.saturating_add(ATTEMPT_WITHIN),
    calls_outlive_process: true,
    create: CreateGuarantee::UniqueName,
    rate: None,
    keys: KeyTag::Fixed,
};

/// Limits a call of the driver to [`CALL_WITHIN`], so that the engine has carried out or forgotten
/// its last request within the promised time.
pub(crate) async fn bounded<T>(
    nature: Nature,
    what: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(CALL_WITHIN, call).await.unwrap_or_else(|_| {
        let kind = match nature {
            Nature::Reads => ErrorKind::Unavailable,
            Nature::Changes => ErrorKind::Ambiguous,
        };
        let text = format!("{what}: the engine did not complete the call within {} s", CALL_WITHIN.as_secs());
        Err(Error::new(kind, text))
    })
}

/// Docker as a provider. A class names it `docker`.
///
/// ```
/// use machinist_driver::Provider;
/// use machinist_driver_docker::{DockerOptions, DockerProvider};
/// use machinist_instance::{Credential, Place};
///
/// let docker = DockerProvider::new(DockerOptions::default());
/// assert!(docker.parse_id("docker:////c1-w-1").ours().is_some());
///
/// // The socket needs no credential.
/// let nothing = Credential::default();
/// assert!(docker.open(&docker.account(&nothing, &Place::WHOLE), &nothing, &Place::WHOLE).is_ok());
/// ```
#[derive(Clone)]
pub struct DockerProvider {
    pub(crate) options: Arc<DockerOptions>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) images: Arc<Images>,
}

impl DockerProvider {
    /// Uses the engine of the options. Nothing is sent.
    pub fn new(options: DockerOptions) -> Self {
        let engine = Engine::new(options.engine.clone(), options.engine_id.clone());
        Self::of(options, engine)
    }

    /// Uses connections of another kind than those to the address of the options.
    pub fn over(connector: Arc<dyn Connector>, options: DockerOptions) -> Self {
        let engine = Engine::over(connector, options.engine.clone(), options.engine_id.clone());
        Self::of(options, engine)
    }

    fn of(options: DockerOptions, engine: Engine) -> Self {
        let engine = Arc::new(engine);
        let images = Arc::new(Images::new(engine.clone()));
        Self { options: Arc::new(options), engine, images }
    }

    /// Uses the engine that now answers at the address of the options. Its id names the account, so
    /// another engine at the same address is another account.
    ///
    /// # Errors
    /// If the engine does not answer, or has no id.
    pub async fn connect(options: DockerOptions) -> Result<Self, Error> {
        let engine_id = match options.engine_id {
            Some(id) => id,
            None => Engine::new(options.engine.clone(), None).id().await?,
        };
        Ok(Self::new(DockerOptions { engine_id: Some(engine_id), ..options }))
    }
}

impl Provider for DockerProvider {
    fn name(&self) -> &str {
        "docker"
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        ProviderSpec::parse(provider_spec).map(drop)
    }

    /// An engine has one account. The credential is not used.
    fn account(&self, _: &Credential, _: &Place) -> AccountId {
        let engine = self.options.engine_id.clone().unwrap_or_else(|| self.engine.address().to_string());
        AccountId::of([self.name(), &engine].map(str::as_bytes))
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        id::parse(text)
    }

    fn check(&self) -> Option<Check> {
        let engine = self.engine.clone();
        let cloud = format!("the engine at {}", engine.address());
        let answer = async move {
            match engine.call(Call::ping()).await {
                // A refusal is an answer.
                Err(failure) if !failure.is_answered() => Err(failure.error),
                Ok(_) | Err(_) => Ok(()),
            }
        };
        Some(Check { cloud, answer: Box::pin(answer) })
    }

    fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
        Ok(Arc::new(Account {
            engine: self.engine.clone(),
            images: self.images.clone(),
            options: self.options.clone(),
        }))
    }
}

/// One engine.
pub(crate) struct Account {
    pub(crate) engine: Arc<Engine>,
    pub(crate) images: Arc<Images>,
    pub(crate) options: Arc<DockerOptions>,
}

impl Driver for Account {
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
        PROMISES
    }
}

impl Account {
    /// Finds a container by the strongest given identity. Load balancers are not instances.
    /// An absence counts only if the engine is still the same one.
    pub(crate) async fn lookup(&self, which: &InstanceRef) -> Result<Option<Seen>, Error> {
        let found = self.lookup_here(which).await?;
        let is_own =
            |seen: &Seen| which.key.as_ref().is_none_or(|key| seen.is_owned_by(key.as_str(), which.into()));
        if !found.as_ref().is_some_and(is_own) {
            self.engine.confirm().await?;
            if let Some(id) = &which.native_id {
                self.images.forget(id.as_str());
            }
        }
        Ok(found)
    }

    async fn lookup_here(&self, which: &InstanceRef) -> Result<Option<Seen>, Error> {
        let recorded = match &which.native_id {
            Some(native_id) => self.by_native_id(native_id).await?,
            None => None,
        };
        let Some(recorded) = recorded else { return self.lookup_by_name_or_key(which).await };
        let is_own = match &which.key {
            Some(key) => recorded.is_owned_by(key.as_str(), which.into()),
            None => true,
        };
        if is_own {
            return Ok(Some(recorded));
        }
        // A user may have recorded the container of another cluster. It does not hide our own.
        let own = self.lookup_by_name_or_key(which).await?;
        let has_key = |seen: &Seen| which.key.as_ref().is_some_and(|key| seen.key() == Some(key.as_str()));
        Ok(own.filter(has_key).or(Some(recorded)))
    }

    async fn lookup_by_name_or_key(&self, which: &InstanceRef) -> Result<Option<Seen>, Error> {
        // A user may rename a container, so a container of that name may be another one.
        let named = match &which.id {
            Some(id) => self.by_name(id::container(id)?).await?,
            None => None,
        };
        let has_key = |seen: &Seen| which.key.as_ref().is_none_or(|key| seen.key() == Some(key.as_str()));
        if named.as_ref().is_some_and(has_key) {
            return Ok(named);
        }
        if let Some(key) = &which.key
            && let Some(seen) = self.by_key(key).await?
        {
            return Ok(Some(seen));
        }
        match &which.name {
            Some(name) if which.id.is_none() => self.by_name(name.as_str()).await,
            Some(_) | None => Ok(named),
        }
    }

    async fn by_native_id(&self, id: &NativeId) -> Result<Option<Seen>, Error> {
        let found: Option<Container> = self.engine.find(request::inspect(id.as_str())).await?;
        let seen = found.map(Seen::from).filter(|seen| seen.id == id.as_str());
        Ok(seen.filter(|seen| !label::is_balancer(&seen.labels)))
    }

    async fn by_key(&self, key: &InstanceKey) -> Result<Option<Seen>, Error> {
        let found: Vec<Summary> = self.engine.json(request::list(&[(label::OWNER, key.as_str())])).await?;
        let mut instances =
            found.into_iter().map(Seen::from).filter(|seen| !label::is_balancer(&seen.labels));
        let Some(found) = instances.next() else { return Ok(None) };
        // A list lacks the network of a container on some engines.
        let details: Option<Container> = self.engine.find(request::inspect(&found.id)).await?;
        Ok(details.map(Seen::from))
    }

    /// The container of exactly that name: the engine also resolves beginnings of ids.
    pub(crate) async fn by_name(&self, name: &str) -> Result<Option<Seen>, Error> {
        let found: Option<Container> = self.engine.find(request::inspect(name)).await?;
        let seen = found.map(Seen::from).filter(|seen| seen.name == name);
        Ok(seen.filter(|seen| !label::is_balancer(&seen.labels)))
    }

    pub(crate) async fn inspect(&self, id: &str) -> Result<Container, Error> {
        Ok(self.engine.json(request::inspect(id)).await?)
    }

    async fn ensure_unlimited(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let provider_spec = ProviderSpec::parse(&spec.provider_spec)?;
        id::check_name(&spec.name)?;
        let cgroups = self.cgroups(&provider_spec).await?;
        let mut body = request::container(spec, &provider_spec, &self.options, cgroups)?;
        let bundle = bundle(spec, &provider_spec)?;
        if let Some(seen) = self.by_key(&spec.key).await? {
            return self.complete(seen, bundle.as_deref()).await;
        }
        self.engine.confirm().await?;
        let image = &provider_spec.image;
        let pulled = self.images.ensure(image, self.options.pulls_images).await;
        if !pulled.map_err(|error| without_container(image, error))? {
            return Err(Error::in_progress(format!(
                "the engine pulls image {image}; creation continues after that"
            )));
        }
        let network = request::network(&provider_spec, &self.options);
        let subnet = self.options.subnet_of(network);
        network::ensure(&self.engine, network, provider_spec.ip_family, subnet).await?;
        let reservation = addresses::choose(&self.engine, network, spec.name.as_str()).await?;
        reservation.fixed.write(&mut body, network);
        let created: Result<Created, Failure> =
            self.engine.json(request::create(spec.name.as_str(), body)).await;
        drop(reservation);
        let seen = match created {
            Ok(Created { id }) => Seen::from(self.inspect(&id).await.map_err(after_creation)?),
            Err(failure) if failure.is_conflict() => self.of_that_name(&spec.name, &spec.key).await?,
            // An object to which the spec refers does not exist, for example the network.
            Err(failure) if failure.is_absence() => {
                return Err(Error::new(ErrorKind::InvalidSpec, failure.error.message));
            }
            Err(failure) => return Err(failure.into()),
        };
        self.complete(seen, bundle.as_deref()).await
    }

    /// The version of the host's control groups, if the request depends on it.
    async fn cgroups(&self, spec: &ProviderSpec) -> Result<Cgroups, Error> {
        match request::privileges(spec, &self.options) {
            Privileges::Capabilities => {
                let Info { cgroup_version, .. } = self.engine.json(Call::list("/info")).await?;
                Ok(if cgroup_version == "1" { Cgroups::V1 } else { Cgroups::V2 })
            }
            Privileges::Full | Privileges::None => Ok(Cgroups::V2),
        }
    }

    /// Brings a created container to its first start. The user data is written before the start,
    /// so a container that was started has it.
    async fn complete(&self, seen: Seen, bundle: Option<&[u8]>) -> Result<Instance, Error> {
        if seen.status != "created" {
            return reply::instance(seen);
        }
        if let Some(bundle) = bundle {
            let put = Call::put("/containers/-/archive", &seen.id, bundle.to_vec()).with("path", "/");
            self.engine.call(put).await.map_err(|failure| after_creation(failure.into()))?;
        }
        match self.engine.call(request::start(&seen.id)).await {
            Ok(_) => reply::instance(self.inspect(&seen.id).await.map_err(after_creation)?.into()),
            Err(failure) if failure.is_answered() => {
                // The container would keep its name and ports without ever having run. Another call
                // may have started it meanwhile.
                match self.engine.call(request::remove_unless_running(&seen.id)).await {
                    Ok(_) => {}
                    Err(failure) if failure.is_absence() => {}
                    Err(failure) if failure.is_conflict() => {
                        return reply::instance(self.inspect(&seen.id).await.map_err(after_creation)?.into());
                    }
                    Err(failure) => return Err(after_creation(failure.into())),
                }
                let text = format!("container {} cannot start: {}", seen.name, failure.error.message);
                Err(Error::new(kind_of_failed_start(failure.error.kind), text))
            }
            Err(failure) => Err(after_creation(failure.into())),
        }
    }

    /// The container that has the name: our own, or an error that names its owner.
    async fn of_that_name(&self, name: &NodeName, key: &InstanceKey) -> Result<Seen, Error> {
        let found: Option<Container> = self.engine.find(request::inspect(name.as_str())).await?;
        let Some(seen) = found.map(Seen::from) else {
            let text = format!("container {name} is being removed; its name is still in use");
            return Err(Error::new(ErrorKind::Unavailable, text));
        };
        if seen.key() == Some(key.as_str()) && !label::is_balancer(&seen.labels) {
            return Ok(seen);
        }
        Err(wrong_key(&seen))
    }
}

/// The archive of the user data.
fn bundle(spec: &InstanceSpec, provider_spec: &ProviderSpec) -> Result<Option<Vec<u8>>, Error> {
    let machine = Machine { name: spec.name.to_string(), image_mode: provider_spec.image_mode };
    let script = translate_user_data(&spec.user_data, &machine)?;
    Ok(script.map(|script| Bundle::new(&script, USER_DATA_WITHIN, Start::AtBoot).archive()))
}

/// The error of a call after the container was created. An error that reports no effect would be
/// wrong: the container exists, and it may boot.
fn after_creation(error: Error) -> Error {
    Error { kind: ErrorKind::Ambiguous, ..error }
}

/// The engine undid the start, and the container was removed.
fn kind_of_failed_start(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::Ambiguous => ErrorKind::Unavailable,
        other => other,
    }
}

/// The container belongs to another object. The text has no key: a user who knows the key of
/// another object can copy it.
pub(crate) fn wrong_key(seen: &Seen) -> Error {
    let owner = match seen.key() {
        Some(_) => "has the key of another object",
        None => "was not created by this driver",
    };
    let text = format!("container {} {owner}: expected the key of this object", seen.name);
    Error::new(ErrorKind::Denied, text)
}

#[async_trait]
impl Instances for Account {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let what = format!("container {}", spec.name);
        bounded(Nature::Changes, &what, self.ensure_unlimited(spec)).await
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let found = bounded(Nature::Reads, &format!("finding container {which}"), self.lookup(which)).await?;
        reply::sighting(which, found)
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let call = match scope {
            Scope::Ours(cluster) => request::list(&[(label::CLUSTER, cluster)]),
            Scope::Visible => request::list(&[]),
        };
        let found: Vec<Summary> = self.engine.json(call).await?;
        // A container that the list lacks counts as absent, and another engine lists none of ours.
        self.engine.confirm().await?;
        let instances = found.into_iter().map(Seen::from).filter(|seen| !label::is_balancer(&seen.labels));
        instances.map(reply::instance).collect()
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let what = format!("deleting container {which}");
        bounded(Nature::Changes, &what, self.delete_unlimited(which, owner)).await
    }
}

impl Account {
    async fn delete_unlimited(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let Some(seen) = self.lookup(which).await? else { return Ok(()) };
        if !seen.is_owned_by(owner.as_str(), which.into()) {
            return Err(wrong_key(&seen));
        }
        if seen.is_deleting() {
            return Ok(());
        }
        let removed = self.engine.call(request::remove(&seen.id)).await;
        self.images.forget(&seen.id);
        match removed {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_absence() || failure.is_conflict() => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The end of the console of a container, without secrets.
    pub(crate) async fn console(&self, id: &str, lines: usize) -> Result<String, Error> {
        let call = Call::get("/containers/-/logs", id)
            .with("stdout", "true")
            .with("stderr", "true")
            .with("tail", &lines.to_string());
        let answer = self.engine.call(call).await?;
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        Ok(redact(&text, text.len(), crate::bootstrap::Cut::No))
    }
}

/// The error of a pull, or of the look for the image. Neither creates a container.
pub(crate) fn without_container(image: &str, error: Error) -> Error {
    let kind = if error.kind.may_have_effect() { ErrorKind::Unavailable } else { error.kind };
    if error.is_closed() || error.message.contains(image) {
        return Error { kind, ..error };
    }
    Error { kind, message: format!("image {image}: {}", error.message), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_within_the_promised_time() {
        let started = tokio::time::Instant::now();
        for (nature, kind) in
            [(Nature::Reads, ErrorKind::Unavailable), (Nature::Changes, ErrorKind::Ambiguous)]
        {
            let error = bounded(nature, "container a", std::future::pending::<Result<(), Error>>()).await;
            assert_eq!(error.expect_err("it never ends").kind, kind);
        }
        assert_eq!(started.elapsed(), CALL_WITHIN * 2);
        assert_eq!(PROMISES.call_bound, Duration::from_secs(80));
    }
}
