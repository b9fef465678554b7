//! The workbench of a case: one open account, new keys and names, and the cleanup.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{
    BalancerKey, Credential, Error, ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, NodeName,
    Place, Power, Promises, ProviderId, Sighting, UserData,
};

use super::ending::{Ending, Played};
use super::subject::{Hook, LABEL_LETTERS, Subject, Trouble};
use crate::{Driver, Initializer};

/// A stand-in for a bootstrap token. No error message may contain it.
const CANARY: &str = "canary0123456789";

/// Attempts of the cleanup to delete one instance, in case the outcome of a deletion is unknown.
const SWEEPS: usize = 3;

/// Wait before a call is repeated that waits for work of the cloud.
const STEP: Duration = Duration::from_secs(2);

/// Number of times that a case checks whether a deletion has ended. The time of the subject passes
/// between the checks.
const LOOKS: usize = 20;

pub(crate) struct Bench<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) driver: Arc<dyn Driver>,
    case: &'static str,
    made: Mutex<BTreeMap<InstanceKey, InstanceRef>>,
    balancers: Mutex<BTreeSet<BalancerKey>>,
    routes: Mutex<BTreeSet<String>>,
}

impl<'a> Bench<'a> {
    pub(crate) fn open(subject: &'a dyn Subject, case: &'static str) -> Played<Self> {
        let (account, credential) = subject.account();
        let driver = subject
            .provider()
            .open(&account, &credential, &Place::WHOLE)
            .map_err(|error| Ending::Fail(format!("cannot open the account: {error}")))?;
        Ok(Self {
            subject,
            driver,
            case,
            made: Mutex::default(),
            balancers: Mutex::default(),
            routes: Mutex::default(),
        })
    }

    pub(crate) fn promises(&self) -> Promises {
        self.driver.promises()
    }

    /// The cluster name of this run.
    pub(crate) fn cluster(&self) -> String {
        format!("contract-{}", self.subject.run_id())
    }

    pub(crate) fn key(&self, which: &str) -> InstanceKey {
        let key = format!("{}-{}-{which}", self.subject.run_id(), self.case);
        InstanceKey::new(last_letters(&key, LABEL_LETTERS))
    }

    /// The key of a balancer. The cleanup deletes the balancer even if the case fails.
    pub(crate) fn balancer_key(&self, which: &str) -> BalancerKey {
        let key = BalancerKey::new(self.key(which).as_str());
        self.balancers.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        key
    }

    /// The keys of all balancers of the case.
    pub(crate) fn balancer_keys(&self) -> BTreeSet<BalancerKey> {
        self.balancers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The destination of a route. The cleanup deletes the route even if the case fails.
    pub(crate) fn destination(&self, number: u8) -> String {
        let destination = self.subject.pod_range(number);
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).insert(destination.clone());
        destination
    }

    /// The destinations of all routes of the case.
    pub(crate) fn destinations(&self) -> BTreeSet<String> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn name(&self, which: &str) -> NodeName {
        let name = format!("{}-{}-{which}", self.subject.run_id(), self.case.replace('_', "-"));
        NodeName::new(last_letters(&name, self.subject.longest_name())).expect("a case has a name")
    }

    /// Returns a valid spec. The cleanup deletes its instance even if the case fails.
    pub(crate) fn spec(&self, which: &str) -> InstanceSpec {
        let (key, name) = (self.key(which), self.name(which));
        let reference = InstanceRef { name: Some(name.clone()), ..by_key(&key) };
        self.lock().insert(key.clone(), reference);
        InstanceSpec {
            key,
            name,
            cluster: self.cluster(),
            provider_spec: self.subject.provider_spec(),
            user_data: UserData::new(format!("#!/bin/sh\n# {CANARY}\n")),
            tags: BTreeMap::from([("purpose".to_owned(), "contract".to_owned())]),
            annotations: BTreeMap::new(),
            adopt_made_since: None,
            last_known_state: None,
        }
    }

    /// Calls `ensure`, which must succeed. Repeats the call while the cloud works on a part.
    pub(crate) async fn ensure(&self, spec: &InstanceSpec) -> Played<Instance> {
        let mut ensured = self.driver.instances().ensure(spec).await;
        for _ in 0..LOOKS {
            if !ensured.as_ref().is_err_and(Error::is_in_progress) {
                break;
            }
            self.subject.wait(STEP).await;
            ensured = self.driver.instances().ensure(spec).await;
        }
        let instance = self.quiet(ensured, "ensure")?;
        if let Some(made) = self.lock().get_mut(&spec.key) {
            made.id = Some(instance.id.clone());
        }
        Ok(instance)
    }

    /// Calls `ensure`, which must fail with the expected kind.
    pub(crate) async fn ensure_fails(
        &self,
        spec: &InstanceSpec,
        expected: &str,
        is_expected: impl FnOnce(ErrorKind) -> bool,
    ) -> Played<Error> {
        let error = self.fails(self.driver.instances().ensure(spec).await, "ensure", expected)?;
        check(is_expected(error.kind), || format!("ensure: expected {expected}, got {error}"))?;
        Ok(error)
    }

    /// Checks that a result is an error whose message contains no secret.
    pub(crate) fn fails<T: Debug>(
        &self,
        result: Result<T, Error>,
        call: &str,
        expected: &str,
    ) -> Played<Error> {
        match result {
            Ok(value) => fail(format!("{call}: expected {expected}, got {value:?}")),
            Err(error) => {
                let has_user_data = error.message.contains(CANARY);
                check(!has_user_data, || format!("{call}: the error message contains user data"))?;
                Ok(error)
            }
        }
    }

    /// Opens the account of another credential.
    pub(crate) fn open_other(&self, credential: &Credential) -> Played<Arc<dyn Driver>> {
        let provider = self.subject.provider();
        provider
            .open(&provider.account(credential, &Place::WHOLE), credential, &Place::WHOLE)
            .map_err(|error| Ending::Fail(format!("cannot open the other account: {error}")))
    }

    pub(crate) async fn find(&self, which: &InstanceRef) -> Played<Sighting> {
        self.quiet(self.driver.instances().find(which).await, "find")
    }

    /// Creates an instance with the name of the spec and without a key, as another program would,
    /// and finds it. Skips the case if the cloud has no such instances.
    pub(crate) async fn made_by_others(&self, spec: &InstanceSpec, created: Timestamp) -> Played<Instance> {
        match self.subject.made_by_others(&spec.name, created).await {
            Hook::Arranged => {}
            Hook::Missing => {
                let text = "this cloud cannot create instances without a key";
                return Err(Ending::Skip(text.to_owned()));
            }
        }
        self.wait_until_visible().await;
        let found = present(self.find(&by_name(&spec.name)).await?, "find by name")?;
        check(found.key.is_none(), || format!("find by name: expected no key, got {:?}", found.key))?;
        Ok(found)
    }

    #[expect(clippy::disallowed_methods, reason = "the suite owns every instance that it deletes")]
    pub(crate) async fn try_delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        self.driver.instances().delete(which, owner).await
    }

    /// Calls `ensure`, and waits until the cloud has completed the instance. Some clouds change no
    /// tag before.
    pub(crate) async fn complete(&self, spec: &InstanceSpec) -> Played<Instance> {
        let made = self.ensure(spec).await?;
        let needs = self.subject.provider().needs_initialization(&spec.provider_spec);
        if let Some(calls) = self.driver.initialization().filter(|_| needs) {
            self.quiet(self.initialize(calls, &made.id, spec).await, "initialize")?;
        }
        Ok(made)
    }

    /// Calls `initialize`, and repeats the call while the cloud works.
    pub(crate) async fn initialize(
        &self,
        calls: &dyn Initializer,
        id: &ProviderId,
        spec: &InstanceSpec,
    ) -> Result<(), Error> {
        let mut done = calls.initialize(id, &spec.key, &spec.provider_spec).await;
        for _ in 0..LOOKS {
            if !done.as_ref().is_err_and(Error::is_in_progress) {
                break;
            }
            self.subject.wait(STEP).await;
            done = calls.initialize(id, &spec.key, &spec.provider_spec).await;
        }
        done
    }

    pub(crate) async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Played {
        self.quiet(self.try_delete(which, owner).await, "delete")
    }

    /// Injects trouble, or skips the case if the cloud cannot produce it.
    pub(crate) async fn inject(&self, trouble: Trouble) -> Played {
        match self.subject.inject(trouble).await {
            Hook::Arranged => Ok(()),
            Hook::Missing => Err(Ending::Skip(format!("this cloud cannot inject {trouble:?}"))),
        }
    }

    /// Waits until reads must show all instances that were created before.
    pub(crate) async fn wait_until_visible(&self) {
        self.subject.wait(self.promises().visible_within).await;
    }

    /// Waits until no earlier call can make another instance appear.
    pub(crate) async fn wait_until_settled(&self) {
        self.subject.wait(self.promises().absence_takes()).await;
    }

    /// Waits until an accepted deletion has ended.
    pub(crate) async fn wait_until_gone(&self, which: &InstanceRef) -> Played {
        for _ in 0..LOOKS {
            match self.find(which).await? {
                Sighting::Absent | Sighting::Ended => return Ok(()),
                Sighting::Present(_) => self.subject.wait(self.promises().call_bound).await,
                Sighting::Parts(_) => self.delete_parts(which).await?,
                Sighting::Foreign(foreign) => {
                    return fail(format!("find {which}: expected absent, got {foreign:?}"));
                }
            }
        }
        fail(format!("{which} still exists after {LOOKS} checks at intervals of one call bound"))
    }

    /// Deletes what is left of an instance when its deletion has ended.
    async fn sweep_parts(&self, which: &InstanceRef) -> Played {
        for _ in 0..LOOKS {
            match self.driver.instances().find(which).await {
                Ok(Sighting::Parts(_)) => self.delete_parts(which).await?,
                Ok(Sighting::Present(instance)) if instance.power == Power::Deleting => {
                    self.subject.wait(STEP).await;
                }
                Ok(_) | Err(_) => return Ok(()),
            }
        }
        fail(format!("parts of {which} still exist after {LOOKS} checks"))
    }

    /// Deletes the parts that a deletion has left. A part may be in use for some time.
    async fn delete_parts(&self, which: &InstanceRef) -> Played {
        let Some(key) = &which.key else {
            return fail(format!("find {which}: expected no parts without a key"));
        };
        match self.try_delete(which, key).await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Unavailable => {}
            Err(error) => return fail(format!("delete the parts of {which}: {error}")),
        }
        self.subject.wait(STEP).await;
        Ok(())
    }

    /// Checks the number of instances of a key after all calls have taken effect.
    pub(crate) async fn check_alive(&self, key: &InstanceKey, expected: usize) -> Played {
        self.wait_until_settled().await;
        let alive = match self.subject.truly_alive(key).await {
            Some(alive) => alive,
            None => {
                let scope = machinist_instance::Scope::Visible;
                let all = self.quiet(self.driver.instances().list(&scope).await, "list")?;
                all.iter().filter(|instance| instance.key.as_ref() == Some(key)).count()
            }
        };
        check(alive == expected, || format!("{alive} instances exist for {key}, expected {expected}"))
    }

    /// Deletes the instances of the case. The trouble has ended, so the deletion must succeed.
    pub(crate) async fn clean_up(&self) -> Played {
        let made = std::mem::take(&mut *self.lock());
        if !made.is_empty() {
            self.wait_until_settled().await;
        }
        for (key, which) in made {
            // The reference has the key too, because an `ensure` with unknown outcome returns no
            // id.
            let mut swept = Ok(());
            for _ in 0..SWEEPS {
                swept = self.try_delete(&which, &key).await;
                if swept.is_ok() {
                    break;
                }
            }
            match swept {
                Ok(()) => self.sweep_parts(&which).await?,
                // The name belongs to an instance of another key, which is deleted under that key.
                Err(error) if error.kind == ErrorKind::Denied => {}
                Err(error) => return fail(format!("cannot delete {which} after the case: {error}")),
            }
        }
        Ok(())
    }

    pub(crate) fn quiet<T>(&self, result: Result<T, Error>, call: &str) -> Played<T> {
        result.or_else(|error| fail(format!("{call}: expected success, got {error}")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<InstanceKey, InstanceRef>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shortens a text to that number of letters. The end of the text differs between instances, so the
/// beginning is cut.
fn last_letters(text: &str, letters: usize) -> &str {
    let kept = text.len().saturating_sub(letters);
    text[kept..].trim_start_matches(['-', '_'])
}

pub(crate) fn by_id(instance: &Instance) -> InstanceRef {
    InstanceRef { id: Some(instance.id.clone()), ..InstanceRef::default() }
}

pub(crate) fn by_key(key: &InstanceKey) -> InstanceRef {
    InstanceRef { key: Some(key.clone()), ..InstanceRef::default() }
}

pub(crate) fn by_name(name: &NodeName) -> InstanceRef {
    InstanceRef { name: Some(name.clone()), ..InstanceRef::default() }
}

pub(crate) fn present(sighting: Sighting, what: &str) -> Played<Instance> {
    match sighting {
        Sighting::Present(instance) => Ok(instance),
        other => fail(format!("{what}: expected the instance, got {other:?}")),
    }
}

pub(crate) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Played {
    if holds { Ok(()) } else { fail(otherwise()) }
}

pub(crate) fn fail<T>(how: impl Into<String>) -> Played<T> {
    Err(Ending::Fail(how.into()))
}
