//! The provider, its accounts, and the calls for instances. Only this file awaits requests.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{ListParams, ObjectMeta, PatchParams};
use kube::{Api, Client, Resource};
use machinist_driver::{Driver, Initializer, Instances, Provider, may_change};
use machinist_instance::{
    AccountId, CreateGuarantee, Credential, Error, ErrorKind, Instance, InstanceKey, InstanceRef,
    InstanceSpec, KeyTag, Marks, Place, Power, Promises, ProviderId, RecordedId, Scope, Sighting,
};
use machinist_kube::clock::Skew;
use machinist_kube::{ClientOptions, GuardedPatch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::kubeconfig::{self, Login};
use crate::label::{self, CLUSTER, KEY, PROVIDER};
use crate::options::{ClusterConnector, LocalOptions, OverTcp, client_options};
use crate::reply::{self, PartOf};
use crate::request::{self, Creation};
use crate::spec::{self, ProviderSpec};
use crate::{failure, id, name};

/// No request that changes something begins later than this after the start of its call.
const CHANGES_WITHIN: Duration = Duration::from_secs(30);
/// An API server ends a request after this time (`--request-timeout`), also one whose client has
/// given up.
const REQUEST_TIMEOUT_OF_SERVER: Duration = Duration::from_secs(60);

/// The promises of an API server.
pub const PROMISES: Promises = Promises {
    // Reads without a resourceVersion come from the quorum of etcd.
    visible_within: Duration::ZERO,
    call_bound: CHANGES_WITHIN.saturating_add(REQUEST_TIMEOUT_OF_SERVER),
    calls_outlive_process: true,
    create: CreateGuarantee::UniqueName,
    rate: None,
    keys: KeyTag::Rekeyable,
};

/// Pods as machines. A class names this provider `local`.
///
/// ```
/// use machinist_driver::Provider;
/// use machinist_driver_local::{LocalOptions, LocalProvider};
/// use machinist_instance::{Place, ProviderId};
/// use serde_json::json;
///
/// let options = LocalOptions { namespace: "shoot--a--b".to_owned(), control: None };
/// let local = LocalProvider::new(options);
/// let id = ProviderId::parse("machine-w-1")?;
/// assert!(local.serves("local"));
/// assert_eq!(local.parse_id("machine-w-1").ours(), Some(&id));
///
/// // The place is the namespace of the pods.
/// let place = |spec| local.place(&spec).map_err(|error| error.message);
/// assert_eq!(place(json!({"namespace": "pods"})), Ok(Place::new("pods")));
/// assert_eq!(place(json!({})), Ok(Place::new("shoot--a--b")));
/// # Ok::<(), machinist_instance::IdentityError>(())
/// ```
#[derive(Clone)]
pub struct LocalProvider {
    options: Arc<LocalOptions>,
    connector: Arc<dyn ClusterConnector>,
}

impl LocalProvider {
    /// Connects over TCP. Nothing is sent.
    pub fn new(options: LocalOptions) -> Self {
        Self { options: Arc::new(options), connector: Arc::new(OverTcp) }
    }

    /// Makes the clients for the kubeconfigs of Secrets in another way.
    #[must_use]
    pub fn connecting(self, connector: Arc<dyn ClusterConnector>) -> Self {
        Self { connector, ..self }
    }

    /// The namespace of a place. The whole cloud means the namespace of the options.
    fn namespace<'a>(&'a self, place: &'a Place) -> &'a str {
        if *place == Place::WHOLE { &self.options.namespace } else { place.as_str() }
    }
}

impl Provider for LocalProvider {
    fn name(&self) -> &str {
        "local"
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        validate(provider_spec)
    }

    fn fields_without_effect(&self, provider_spec: &Value) -> Vec<String> {
        spec::fields_without_effect(provider_spec)
    }

    fn place(&self, provider_spec: &Value) -> Result<Place, Error> {
        let namespace = spec::namespace(provider_spec)?;
        Ok(Place::new(namespace.unwrap_or_else(|| self.options.namespace.clone())))
    }

    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        let control = || self.options.control.as_ref().map(|control| format!("control {}", control.address));
        let server = kubeconfig::address(credential).or_else(control).unwrap_or_default();
        AccountId::of(["local", server.as_str(), self.namespace(place)].map(str::as_bytes))
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        id::parse(text)
    }

    fn marks_of(&self, instance: &Instance, _: &Value) -> Marks {
        label::marks(&instance.tags, instance.id.as_str())
    }

    /// An API server accepts a pod before a host has its image. So every pod is watched until it
    /// runs or has failed, as Go's provider does.
    fn needs_initialization(&self, _: &Value) -> bool {
        true
    }

    fn open(&self, _: &AccountId, credential: &Credential, place: &Place) -> Result<Arc<dyn Driver>, Error> {
        let options = client_options();
        Ok(Arc::new(Account {
            login: Login::parse(credential)?,
            namespace: self.namespace(place).to_owned(),
            provider: self.clone(),
            client: OnceCell::new(),
            skew: options.skew.clone(),
            client_options: options,
        }))
    }
}

/// Parses and validates a `providerSpec`.
///
/// # Errors
/// `InvalidSpec`, with the field, the expected and the found value.
pub fn validate(provider_spec: &Value) -> Result<(), Error> {
    ProviderSpec::parse(provider_spec).map(drop)
}

/// One namespace of one API server.
struct Account {
    login: Login,
    namespace: String,
    provider: LocalProvider,
    client: OnceCell<Client>,
    client_options: ClientOptions,
    skew: Skew,
}

impl Driver for Account {
    fn instances(&self) -> &dyn Instances {
        self
    }

    fn initialization(&self) -> Option<&dyn Initializer> {
        Some(self)
    }

    fn promises(&self) -> Promises {
        let control = self.provider.options.control.as_ref();
        let ends_with_process = control.is_some_and(|control| control.ends_with_process);
        let is_elsewhere = matches!(self.login, Login::Kubeconfig(_));
        Promises { calls_outlive_process: is_elsewhere || !ends_with_process, ..PROMISES }
    }

    fn clock_skew(&self) -> Option<SignedDuration> {
        self.skew.likely(self.client_options.clock.now())
    }
}

/// The beginning of a driver call.
#[derive(Debug, Clone, Copy)]
struct Began(Instant);

impl Began {
    fn now() -> Self {
        Self(Instant::now())
    }

    /// Checks whether the call may still change something.
    fn may_send(self) -> Result<(), Error> {
        may_change()?;
        if CHANGES_WITHIN < self.0.elapsed() {
            let text = format!("not sent: the call began more than {} s ago", CHANGES_WITHIN.as_secs());
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        Ok(())
    }
}

/// A kind of the objects that an instance consists of.
trait Kind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned
{
    /// The kind in messages.
    const WORD: &str;
}

impl Kind for Pod {
    const WORD: &str = "pod";
}

impl Kind for Service {
    const WORD: &str = "Service";
}

impl Kind for Secret {
    const WORD: &str = "Secret";
}

/// The parts of an instance without its pod: their metadata.
#[derive(Default)]
struct Parts {
    services: Vec<ObjectMeta>,
    secrets: Vec<ObjectMeta>,
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.services.is_empty() && self.secrets.is_empty()
    }

    /// A text for each part.
    fn texts(&self) -> Vec<String> {
        let services = self.services.iter().map(text::<Service>);
        services.chain(self.secrets.iter().map(text::<Secret>)).collect()
    }
}

fn text<K: Kind>(metadata: &ObjectMeta) -> String {
    format!("{} {}", K::WORD, metadata.name.as_deref().unwrap_or_default())
}

impl Account {
    async fn client(&self) -> Result<&Client, Error> {
        self.client
            .get_or_try_init(async || match self.login.config().await? {
                Some(config) => self.provider.connector.connect(config, &self.client_options),
                None => {
                    let control = self.provider.options.control.as_ref();
                    let missing = || {
                        let text = "kubeconfig: expected an entry of the Secret, because this process has no \
                                    control cluster";
                        Error::new(ErrorKind::Denied, text)
                    };
                    control.map(|control| control.client.clone()).ok_or_else(missing)
                }
            })
            .await
    }

    async fn api<K: Kind>(&self) -> Result<Api<K>, Error> {
        Ok(Api::namespaced(self.client().await?.clone(), &self.namespace))
    }

    async fn pod(&self, name: &str) -> Result<Option<Pod>, Error> {
        failure::optional(self.api::<Pod>().await?.get(name).await, name)
    }

    /// Reads a pod that must exist, because its id was recorded.
    async fn existing(&self, id: &ProviderId) -> Result<Pod, Error> {
        let found = self.pod(id::pod(id)?).await?;
        found.ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("the pod {id} does not exist")))
    }

    /// Reads the metadata of one object, without its content.
    async fn metadata<K: Kind>(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let found = failure::optional(self.api::<K>().await?.get_metadata(name).await, name)?;
        Ok(found.map(|found| found.metadata))
    }

    async fn pods(&self, selector: &str) -> Result<Vec<Pod>, Error> {
        let listed = self.api::<Pod>().await?.list(&ListParams::default().labels(selector)).await;
        let mut pods = listed.map_err(|error| failure::of_read(&error))?.items;
        pods.retain(reply::is_machine);
        Ok(pods)
    }

    /// Reads the metadata of all objects of a key, without their content.
    async fn of_key<K: Kind>(&self, key: &InstanceKey) -> Result<Vec<ObjectMeta>, Error> {
        let selector = ListParams::default().labels(&format!("{KEY}={key}"));
        let listed = self.api::<K>().await?.list_metadata(&selector).await;
        let listed = listed.map_err(|error| failure::of_read(&error))?;
        Ok(listed.items.into_iter().map(|object| object.metadata).collect())
    }

    async fn parts(&self, key: &InstanceKey) -> Result<Parts, Error> {
        if !is_selectable(key) {
            return Ok(Parts::default());
        }
        Ok(Parts { services: self.of_key::<Service>(key).await?, secrets: self.of_key::<Secret>(key).await? })
    }

    /// Finds a pod by its key, else by the name of its Machine.
    async fn lookup(&self, key: Option<&InstanceKey>, name: Option<&str>) -> Result<Option<Pod>, Error> {
        if let Some(key) = key.filter(|key| is_selectable(key)) {
            let found = self.pods(&format!("{KEY}={key}")).await?;
            // A pod that is not deleted is the instance.
            if let Some(pod) =
                found.into_iter().min_by_key(|pod| (reply::is_deleting(pod), reply::created(pod)))
            {
                return Ok(Some(pod));
            }
        }
        match name {
            Some(name) => self.pod(&name::of_machine(name)).await,
            None => Ok(None),
        }
    }

    async fn create<K: Kind>(&self, began: Began, object: &K) -> Result<Result<K, kube::Error>, Error> {
        let api = self.api::<K>().await?;
        began.may_send()?;
        Ok(api.create(&request::creation(), object).await)
    }

    async fn patch<K: Kind>(
        &self,
        began: Began,
        name: &str,
        patch: GuardedPatch,
    ) -> Result<Result<K, kube::Error>, Error> {
        let api = self.api::<K>().await?;
        began.may_send()?;
        Ok(api.patch(name, &PatchParams::default(), &patch.into_kube()).await)
    }

    /// Deletes an object in the state in which it was read. An absent one is deleted.
    async fn remove<K: Kind>(&self, began: Began, metadata: &ObjectMeta) -> Result<(), Error> {
        let api = self.api::<K>().await?;
        began.may_send()?;
        let name = metadata.name.as_deref().unwrap_or_default();
        match api.delete(name, &request::deletion(metadata)).await {
            Err(error) if !failure::is_absence(&error, name) => Err(self.of_write(&error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn of_write(&self, error: &kube::Error) -> Error {
        failure::of_write(error, &self.namespace)
    }

    /// Creates the pod, or returns the pod that was created for the key.
    async fn ensure_pod(&self, began: Began, creation: &Creation, spec: &InstanceSpec) -> Result<Pod, Error> {
        let error = match self.create(began, &creation.pod()).await? {
            Ok(pod) => return Ok(pod),
            Err(error) => error,
        };
        if failure::is_already_exists(&error) {
            return self.made_before(began, creation, spec).await;
        }
        let error = self.of_write(&error);
        // An API server checks quotas and policies before it looks for the name.
        let is_refusal =
            matches!(error.kind, ErrorKind::Exhausted | ErrorKind::Denied | ErrorKind::InvalidSpec);
        let existing =
            if is_refusal { self.pod(&creation.pod_name()).await.unwrap_or_default() } else { None };
        let is_ours = |pod: &Pod| reply::is_of_key(&pod.metadata, &creation.key) && !reply::is_deleting(pod);
        existing.filter(is_ours).ok_or(error)
    }

    /// Compares the owner of the pod that has the name.
    async fn made_before(
        &self,
        began: Began,
        creation: &Creation,
        spec: &InstanceSpec,
    ) -> Result<Pod, Error> {
        let name = creation.pod_name();
        let Some(pod) = self.pod(&name).await? else {
            return Err(Error::in_progress(format!("pod {name} was deleted at this moment")));
        };
        let is_ours = reply::is_of_key(&pod.metadata, &creation.key);
        if !is_ours && !is_adoptable(&pod, spec) {
            return Err(reply::wrong_key(Pod::WORD, &pod.metadata, &creation.key));
        }
        if reply::is_deleting(&pod) {
            return Err(Error::in_progress(format!("pod {name} is deleted; its name is free after that")));
        }
        if is_ours {
            return Ok(pod);
        }
        match self.patch(began, &name, creation.adoption(&pod)).await? {
            Ok(adopted) => Ok(adopted),
            Err(error) if failure::is_forbidden(&error) => {
                tracing::warn!(pod = name, %error, "Adopted a pod without its key: pods may not be patched");
                Ok(pod)
            }
            Err(error) => Err(self.of_write(&error)),
        }
    }

    /// Creates an object that the pod owns, unless it exists. An object of an earlier pod of the
    /// key is replaced: the garbage collector would delete it soon.
    async fn ensure_part<K: Kind>(
        &self,
        began: Began,
        key: &InstanceKey,
        pod: &Pod,
        part: &K,
    ) -> Result<(), Error> {
        let name = part.meta().name.as_deref().unwrap_or_default();
        for _ in 0..2 {
            match self.create(began, part).await? {
                Ok(_) => return Ok(()),
                Err(error) if !failure::is_already_exists(&error) => return Err(self.of_write(&error)),
                Err(_) => {}
            }
            let Some(found) = self.metadata::<K>(name).await? else { continue };
            match reply::part_of(&found, pod, key) {
                PartOf::ThisPod => return Ok(()),
                PartOf::EarlierPod => self.remove::<K>(began, &found).await?,
                PartOf::Another => return Err(reply::wrong_key(K::WORD, &found, key)),
            }
        }
        Err(Error::in_progress(format!("{} {name} of an earlier pod is deleted", K::WORD)))
    }

    /// Whether the Secret of a pod exists, which is created last.
    async fn has_secret(&self, pod: &Pod, key: &InstanceKey) -> Result<bool, Error> {
        let secret = self.metadata::<Secret>(&name::secret_of(reply::pod_name(pod))).await?;
        Ok(secret.is_some_and(|secret| reply::part_of(&secret, pod, key) == PartOf::ThisPod))
    }

    /// Creates the Service and the Secret of a pod.
    async fn complete(&self, began: Began, creation: &Creation, pod: &Pod) -> Result<(), Error> {
        // A pod that has started has read its Secret.
        let has_started = reply::power(pod) != Power::Pending;
        if has_started || self.has_secret(pod, &creation.key).await? {
            return Ok(());
        }
        self.ensure_part(began, &creation.key, pod, &creation.service(pod)).await?;
        self.ensure_part(began, &creation.key, pod, &creation.secret(pod)).await
    }

    /// Whether a pod of the key is only a part of its instance, because a creation has not created
    /// its Secret.
    async fn is_half_made(&self, pod: &Pod, key: &InstanceKey) -> Result<bool, Error> {
        let may_be = reply::is_of_key(&pod.metadata, key) && reply::power(pod) == Power::Pending;
        Ok(may_be && !self.has_secret(pod, key).await?)
    }

    /// Looks for parts that are left of an instance whose pod does not exist.
    async fn left(&self, key: Option<&InstanceKey>) -> Result<Sighting, Error> {
        let Some(key) = key else { return Ok(Sighting::Absent) };
        let parts = self.parts(key).await?;
        Ok(if parts.is_empty() { Sighting::Absent } else { Sighting::Parts(parts.texts()) })
    }

    async fn delete_parts(&self, began: Began, parts: &Parts) -> Result<(), Error> {
        let mut first = Ok(());
        for service in &parts.services {
            first = first.and(self.remove::<Service>(began, service).await);
        }
        for secret in &parts.secrets {
            first = first.and(self.remove::<Secret>(began, secret).await);
        }
        first
    }

    async fn rekey_parts<K: Kind>(
        &self,
        began: Began,
        parts: &[ObjectMeta],
        to: &InstanceKey,
    ) -> Result<(), Error> {
        for part in parts {
            let name = part.name.as_deref().unwrap_or_default();
            match self.patch::<K>(began, name, request::rekey(part, to)).await? {
                Err(error) if !failure::is_absence(&error, name) => return Err(self.of_write(&error)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Instances for Account {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let began = Began::now();
        let creation = Creation::of(spec, &self.namespace, &self.provider.options.namespace)?;
        let pod = self.ensure_pod(began, &creation, spec).await?;
        // The pod exists also if the rest fails, so the caller must know of it.
        let completed = self.complete(began, &creation, &pod).await;
        completed.map_err(|error| error.with_state(text::<Pod>(&pod.metadata)))?;
        reply::instance(&pod)
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let (key, name) = (which.key.as_ref(), which.name.as_ref().map(|name| name.as_str()));
        if let Some(id) = &which.id {
            let Some(pod) = self.pod(id::pod(id)?).await? else { return self.left(key).await };
            return Ok(Sighting::of(which, reply::instance(&pod)?));
        }
        let Some(pod) = self.lookup(key, name).await? else { return self.left(key).await };
        let Some(key) = key else { return Ok(Sighting::Present(reply::instance(&pod)?)) };
        if self.is_half_made(&pod, key).await? {
            return Ok(Sighting::Parts(vec![text::<Pod>(&pod.metadata)]));
        }
        if !reply::is_of_key(&pod.metadata, key) {
            // Another owner has the name by now, and parts of ours may be left.
            let parts = self.parts(key).await?;
            if !parts.is_empty() {
                return Ok(Sighting::Parts(parts.texts()));
            }
        }
        Ok(Sighting::of(which, reply::instance(&pod)?))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let pods = match scope {
            Scope::Ours(cluster) => {
                // No pod has a label with another text.
                if label::check_value(CLUSTER, cluster).is_err() {
                    return Ok(Vec::new());
                }
                self.pods(&format!("{CLUSTER}={cluster}")).await?
            }
            Scope::Visible => self.pods(&format!("{}={}", PROVIDER.0, PROVIDER.1)).await?,
        };
        pods.iter().map(reply::instance).collect()
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let began = Began::now();
        let name = which.name.as_ref().map(|name| name.as_str());
        let found = match &which.id {
            Some(id) => self.pod(id::pod(id)?).await?,
            None => self.lookup(Some(owner), name).await?,
        };
        let Some(pod) = found else {
            // A call without a name is about an orphan. The parts of its key may belong to a living
            // Machine by now, and the garbage collector deletes the parts of the orphan.
            let is_orphan = which.id.is_some() && name.is_none();
            return if is_orphan {
                Ok(())
            } else {
                self.delete_parts(began, &self.parts(owner).await?).await
            };
        };
        let may_delete = match reply::key(&pod.metadata) {
            Some(key) => key == owner.as_str(),
            None => which.may_lack_key && which.id.is_some(),
        };
        if !may_delete {
            let parts = if which.id.is_some() { Parts::default() } else { self.parts(owner).await? };
            return if parts.is_empty() {
                Err(reply::wrong_key(Pod::WORD, &pod.metadata, owner))
            } else {
                self.delete_parts(began, &parts).await
            };
        }
        // The Service and the Secret stay until the pod has ended.
        if reply::is_deleting(&pod) { Ok(()) } else { self.remove::<Pod>(began, &pod.metadata).await }
    }

    async fn rekey(&self, id: &ProviderId, from: &InstanceKey, to: &InstanceKey) -> Result<(), Error> {
        let began = Began::now();
        label::check_value("the key of the instance", to.as_str())?;
        let pod = self.existing(id).await?;
        if !reply::is_of_key(&pod.metadata, to) {
            if !reply::is_of_key(&pod.metadata, from) {
                return Err(reply::wrong_key(Pod::WORD, &pod.metadata, from));
            }
            let patched = self.patch::<Pod>(began, id.as_str(), request::rekey(&pod.metadata, to)).await?;
            patched.map_err(|error| self.of_write(&error))?;
        }
        let mut parts = self.parts(from).await?;
        let is_of_pod = |part: &ObjectMeta| reply::part_of(part, &pod, from) == PartOf::ThisPod;
        parts.services.retain(is_of_pod);
        parts.secrets.retain(is_of_pod);
        self.rekey_parts::<Service>(began, &parts.services, to).await?;
        self.rekey_parts::<Secret>(began, &parts.secrets, to).await
    }
}

#[async_trait]
impl Initializer for Account {
    async fn initialize(&self, id: &ProviderId, owner: &InstanceKey, _: &Value) -> Result<(), Error> {
        let pod = self.existing(id).await?;
        let is_ours = match reply::key(&pod.metadata) {
            Some(key) => key == owner.as_str(),
            None => reply::marks(&pod) == Marks::OfClass,
        };
        if !is_ours {
            return Err(reply::wrong_key(Pod::WORD, &pod.metadata, owner));
        }
        match reply::power(&pod) {
            Power::Running => Ok(()),
            Power::Pending | Power::Changing | Power::Stopped => {
                Err(Error::in_progress(format!("pod {id} does not run: {}", reply::hindrance(&pod))))
            }
            Power::Failed => {
                let text = format!("pod {id} has failed: {}", reply::hindrance(&pod));
                Err(Error::instance_failed(ErrorKind::Unavailable, text))
            }
            Power::Deleting => Err(Error::new(ErrorKind::Unavailable, format!("pod {id} is deleted"))),
        }
    }
}

/// Whether a key can be the value of a label. An object with another key does not exist.
fn is_selectable(key: &InstanceKey) -> bool {
    label::check_value(KEY, key.as_str()).is_ok()
}

/// Whether another program created a pod for the same purpose: it has the name, the marks and no
/// key, and is young enough.
fn is_adoptable(pod: &Pod, spec: &InstanceSpec) -> bool {
    spec.adopt_made_since.is_some_and(|since| since <= reply::created(pod))
        && reply::key(&pod.metadata).is_none()
        && reply::marks(pod) == Marks::OfClass
}
