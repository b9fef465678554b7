//! The provider and its accounts. Only this file awaits calls of the cloud.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use machinist_cloud_sim::{Caller, Cloud, NoAnswer, Reply, Request};
use machinist_driver::{Driver, Initializer, Instances, Provider, Volumes};
use machinist_instance::{
    AccountId, CallRate, CreateGuarantee, Credential, Error, Instance, InstanceKey, InstanceRef,
    InstanceSpec, KeyScope, KeyTag, Marks, Place, Promises, ProviderId, RecordedId, Scope, Sighting,
    VolumeSource,
};
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::reply::Nature;
use crate::spec::ProviderSpec;
use crate::transport::Transport;
use crate::{id, reply, request, spec};

/// The credential's entry that holds the cloud's token. Without it, calls carry no token.
const TOKEN_ENTRY: &str = "token";

/// The default promises of a simulated cloud. The driver assumes them for a cloud in another
/// process.
pub const PROMISES: Promises = Promises {
    visible_within: Duration::from_secs(2),
    call_bound: Duration::from_secs(1),
    calls_outlive_process: true,
    create: CreateGuarantee::NativeKey,
    rate: None,
    keys: KeyTag::Rekeyable,
};

/// Name of the CSI driver of a simulated cloud. Volumes of other CSI drivers are of another cloud.
pub const CSI_DRIVER: &str = "csi.sim.machinist.dev";

/// The default scheme of a simulated cloud's ids.
const SCHEME: &str = "sim";

/// The simulated cloud as a provider. A class names it `sim`, or uses a name added with
/// [`Self::also_serving`].
#[derive(Clone)]
pub struct SimProvider {
    transport: Arc<dyn Transport>,
    promises: Promises,
    other_names: Vec<String>,
    scheme: String,
}

impl SimProvider {
    /// Uses a cloud in this process. Promises and id scheme come from its settings at the time
    /// of this call.
    pub fn in_process(cloud: Cloud) -> Self {
        let settings = cloud.settings();
        let promises =
            Promises { visible_within: settings.visible_within, call_bound: settings.call_bound, ..PROMISES };
        // The burst is a tenth of the limit, and the steady rate is the rest, so that no hour has
        // more calls than the limit.
        let rate = settings.calls_per_hour.map(|calls| {
            let burst = calls.get() / 10;
            CallRate { per_hour: calls.get() - burst, burst: burst.max(1) }
        });
        Self::over(Arc::new(cloud), Promises { rate, ..promises }).with_scheme(settings.scheme)
    }

    /// Uses a cloud in another process.
    pub fn at(endpoint: Endpoint) -> Self {
        Self::over(Arc::new(endpoint), PROMISES)
    }

    /// Uses a cloud behind any transport, with ids of the scheme `sim`.
    pub fn over(transport: Arc<dyn Transport>, promises: Promises) -> Self {
        Self { transport, promises, other_names: Vec::new(), scheme: SCHEME.to_owned() }
    }

    /// Sets the scheme of the cloud's ids; an empty scheme means that ids have none.
    #[must_use]
    pub fn with_scheme(self, scheme: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), ..self }
    }

    /// Adds a provider name for the same cloud, for classes that were written for another program.
    #[must_use]
    pub fn also_serving(mut self, name: impl Into<String>) -> Self {
        self.other_names.push(name.into());
        self
    }
}

impl Provider for SimProvider {
    fn name(&self) -> &str {
        "sim"
    }

    fn serves(&self, provider: &str) -> bool {
        provider.eq_ignore_ascii_case(self.name())
            || self.other_names.iter().any(|name| provider.eq_ignore_ascii_case(name))
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        ProviderSpec::parse(provider_spec).map(drop)
    }

    fn needs_initialization(&self, provider_spec: &Value) -> bool {
        ProviderSpec::parse(provider_spec).is_ok_and(|spec| spec.initialize)
    }

    fn place(&self, provider_spec: &Value) -> Result<Place, Error> {
        spec::place(provider_spec)
    }

    fn key_scope(&self, provider_spec: &Value) -> KeyScope {
        spec::key_scope(provider_spec)
    }

    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        let token = credential.text(TOKEN_ENTRY).unwrap_or_default();
        let account = [self.name(), self.transport.endpoint(), token];
        let region = Some(region_of(place)).filter(|region| !region.is_empty());
        AccountId::of(account.into_iter().chain(region).map(str::as_bytes))
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        id::parse(&self.scheme, text)
    }

    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        id::is_same(a, b)
    }

    /// The provider of machine-controller-manager for this cloud sets no tags, so nothing
    /// distinguishes its instances from the instances of other programs.
    fn marks_of(&self, _: &Instance, _: &Value) -> Marks {
        Marks::OfClass
    }

    fn open(
        &self,
        _account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        Ok(Arc::new(SimAccount {
            transport: self.transport.clone(),
            promises: self.promises,
            token: credential.text(TOKEN_ENTRY).map(str::to_owned),
            region: region_of(place).to_owned(),
        }))
    }
}

/// Returns the region of a place; empty for the default region.
fn region_of(place: &Place) -> &str {
    match place.as_str() {
        spec::DEFAULT_REGION => "",
        region => region,
    }
}

struct SimAccount {
    transport: Arc<dyn Transport>,
    promises: Promises,
    token: Option<String>,
    region: String,
}

impl SimAccount {
    /// Makes one attempt. It times out after the cloud's call bound, when no effect can
    /// follow.
    async fn call(&self, nature: Nature, request: Request) -> Result<Reply, Error> {
        let bound = self.promises.call_bound;
        let caller = Caller { token: self.token.as_deref(), region: Some(&self.region) };
        let answer = tokio::time::timeout(bound, self.transport.call(caller, request))
            .await
            .unwrap_or_else(|_| Err(NoAnswer::Lost(format!("no answer within {} s", bound.as_secs()))));
        match answer {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(refusal)) => Err(reply::refused(nature, refusal)),
            Err(lost) => Err(reply::no_answer(nature, lost)),
        }
    }
}

impl Driver for SimAccount {
    fn instances(&self) -> &dyn Instances {
        self
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn initialization(&self) -> Option<&dyn Initializer> {
        Some(self)
    }

    fn promises(&self) -> Promises {
        self.promises
    }

    fn clock_skew(&self) -> Option<SignedDuration> {
        self.transport.clock_skew()
    }
}

impl Volumes for SimAccount {
    fn volume_id(&self, source: &VolumeSource) -> Option<String> {
        (source.plugin == CSI_DRIVER && !source.id.is_empty()).then(|| source.id.clone())
    }
}

#[async_trait]
impl Initializer for SimAccount {
    async fn initialize(&self, id: &ProviderId, owner: &InstanceKey, _: &Value) -> Result<(), Error> {
        let request = Request::Initialize { id: id.clone(), owner: owner.clone() };
        self.call(Nature::Changes, request).await.map(drop)
    }
}

#[async_trait]
impl Instances for SimAccount {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let provider_spec = ProviderSpec::parse(&spec.provider_spec)?;
        let answer = self.call(Nature::Changes, request::ensure(spec, provider_spec)).await?;
        reply::instance(answer)
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let answer = self.call(Nature::Reads, Request::Find(which.clone())).await?;
        reply::found(answer).map(|found| Sighting::of(which, found))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let answer = self.call(Nature::Reads, request::list(scope)).await?;
        reply::instances(answer)
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        self.call(Nature::Changes, request::delete(which, owner)).await.map(drop)
    }

    async fn rekey(&self, id: &ProviderId, from: &InstanceKey, to: &InstanceKey) -> Result<(), Error> {
        let request = Request::Rekey { id: id.clone(), from: from.clone(), to: to.clone() };
        self.call(Nature::Changes, request).await.map(drop)
    }
}
