//! A provider over the simulated cloud whose calls for instances are replaced.

use machinist_driver::Instances;
use machinist_instance::{Promises, RecordedId};

use super::*;

/// The provider of a cloud. The function replaces the calls of each account that is opened.
pub(super) fn provider<I: Instances + 'static>(
    cloud: &Cloud,
    replace: impl Fn(Arc<dyn Driver>) -> I + Send + Sync + 'static,
) -> Arc<dyn Provider> {
    Arc::new(OverSim { sim: SimProvider::in_process(cloud.clone()), replace })
}

struct OverSim<F> {
    sim: SimProvider,
    replace: F,
}

impl<I: Instances + 'static, F: Fn(Arc<dyn Driver>) -> I + Send + Sync> Provider for OverSim<F> {
    fn name(&self) -> &str {
        self.sim.name()
    }
    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        self.sim.validate(provider_spec)
    }
    fn parse_id(&self, text: &str) -> RecordedId {
        self.sim.parse_id(text)
    }
    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        self.sim.account(credential, place)
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
