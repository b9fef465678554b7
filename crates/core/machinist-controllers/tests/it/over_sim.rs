//! Providers over the simulated cloud, some of whose calls are replaced.

use machinist_driver::Instances;
use machinist_instance::{Promises, RecordedId};

use super::*;

/// A provider that answers like the simulated cloud, except for the calls that it defines itself.
pub(super) trait OverSim: Send + Sync {
    fn sim(&self) -> &SimProvider;

    fn name(&self) -> &str {
        self.sim().name()
    }
    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        self.sim().validate(provider_spec)
    }
    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        self.sim().account(credential, place)
    }
    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        self.sim().open(account, credential, place)
    }
}

/// Makes it a provider for the processes.
pub(super) struct Over<P>(pub(super) P);

impl<P: OverSim> Provider for Over<P> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        self.0.validate(provider_spec)
    }
    fn parse_id(&self, text: &str) -> RecordedId {
        self.0.sim().parse_id(text)
    }
    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        self.0.account(credential, place)
    }
    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        self.0.open(account, credential, place)
    }
}

/// The provider of a cloud. The function replaces the calls for instances of each account that is
/// opened.
pub(super) fn provider<I: Instances + 'static>(
    cloud: &Cloud,
    replace: impl Fn(Arc<dyn Driver>) -> I + Send + Sync + 'static,
) -> Arc<dyn Provider> {
    Arc::new(Over(Replaced { sim: SimProvider::in_process(cloud.clone()), replace }))
}

struct Replaced<F> {
    sim: SimProvider,
    replace: F,
}

impl<I: Instances + 'static, F: Fn(Arc<dyn Driver>) -> I + Send + Sync> OverSim for Replaced<F> {
    fn sim(&self) -> &SimProvider {
        &self.sim
    }
    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        let driver = self.sim.open(account, credential, place)?;
        Ok(Arc::new(Account { instances: (self.replace)(driver.clone()), driver }))
    }
}

struct Account<I> {
    driver: Arc<dyn Driver>,
    instances: I,
}

impl<I: Instances> Driver for Account<I> {
    fn instances(&self) -> &dyn Instances {
        &self.instances
    }
    fn promises(&self) -> Promises {
        self.driver.promises()
    }
}
