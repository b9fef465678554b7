//! Performs the changes of balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use async_trait::async_trait;
use machinist_driver::Balancers;
use machinist_instance::{
    Balancer, BalancerDeletion, BalancerKey, BalancerNote, BalancerRef, BalancerSpec, BalancerTrace, Ensured,
    Error, ErrorKind, NameClaim, Progress,
};
use serde_json::json;

use super::SERVICE_UID;
use super::converge::Created;
use super::existing::{BALANCERS, Existing, is_about_settings};
use super::settings::{Certificates, PREFIX, Protocol, Settings};
use super::show::{self, BalancerView};
use super::step::{Step, note};
use super::targets::Scope;
use super::wanted::Wanted;
use crate::action::{End, Patience};
use crate::client::call::Call;
use crate::client::failure::{Code, Failure};
use crate::driver::Account;
use crate::label;
use crate::model::{Action, Id, LoadBalancer};

const BALANCER: &str = "/load_balancers/-";
const CERTIFICATES: &str = "/certificates";

/// The command of a creation, for callers.
const CREATION: &str = "create_load_balancer";

/// The command, for callers, while an adoption waits for the end of an earlier creation.
const ADOPTION: &str = "adopt_load_balancer (waiting until no earlier creation can still take effect)";

/// The command of a deletion, for callers.
const DELETION: &str = "delete_load_balancer";

/// The certificate authority of the cloud issues untrusted certificates for this label.
const STAGING: (&str, &str) = ("HC-Use-Staging-CA", "true");

#[async_trait]
impl Balancers for Account {
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        label::check_value("key", spec.key.as_str())?;
        let mut patience = Patience::default();
        let wanted = match self.wanted(spec).await {
            Ok(wanted) => wanted,
            Err(error) if error.kind == ErrorKind::InvalidSpec => {
                let shown = self.balancer_by_key(&spec.key).await?.ok_or_else(|| error.clone())?;
                return self.follow_nodes(spec, shown, error, &mut patience).await;
            }
            Err(error) => return Err(error),
        };
        let shown = match self.existing_balancer(&wanted, &wanted.name).await? {
            Some(Existing::Ours(shown)) => *shown,
            // The balancer of the earlier creation would have the key, too.
            Some(Existing::Adoptable(shown))
                if wanted.claim.has_open_creation && shown.name != wanted.first_name =>
            {
                return Ok(Progress::Working(ADOPTION.to_owned()));
            }
            Some(Existing::Adoptable(shown)) => {
                self.unreported().insert(wanted.key.clone(), (shown.id, Some(adoption(&shown))));
                *shown
            }
            None => match self.create(&wanted, &mut patience).await? {
                Created::Shown(shown) => *shown,
                Created::Pending => return Ok(Progress::Working(CREATION.to_owned())),
            },
        };
        let id = shown.id;
        match self.converge(shown, &wanted, Scope::Everything, &mut patience).await {
            Err(error) if is_about_settings(error.kind) => {
                let shown = self.reread(id).await?;
                // The adoption of another program's load balancer has failed, so its targets stay.
                if show::key(&shown) != Some(wanted.key.as_str()) {
                    return Err(error);
                }
                self.follow_nodes(spec, shown, error, &mut patience).await
            }
            other => other,
        }
    }

    async fn foresee(&self, spec: &BalancerSpec) -> Result<Vec<String>, Error> {
        label::check_value("key", spec.key.as_str())?;
        let settings = Settings::parse(&spec.options, &self.options.balancer_defaults, &spec.key)?;
        let network = self.network().await?;
        let certificates = self.existing_certificates(&settings, &spec.key).await?;
        let mut changes = Vec::new();
        if certificates.is_none()
            && let Certificates::Managed { name, .. } = &settings.certificates
            && settings.protocol == Protocol::Https
        {
            changes.push(format!("create_certificate {name}"));
        }
        let wanted = self.wanted_with(spec, settings, network, certificates.as_deref())?;
        let mut notes = wanted.notes.clone();
        match self.existing_balancer(&wanted, &wanted.name).await? {
            Some(existing) => {
                let is_adopted = matches!(existing, Existing::Adoptable(_));
                let (Existing::Ours(shown) | Existing::Adoptable(shown)) = existing;
                changes
                    .extend(is_adopted.then(|| format!("adopt_load_balancer {} ({})", shown.name, shown.id)));
                let plan = self.foreseen(&shown, &wanted).await;
                changes.extend(plan.steps.iter().map(ToString::to_string));
                changes.extend(plan.targets.turns.iter().map(ToString::to_string));
                notes.extend(plan.targets.skipped.iter().map(note));
            }
            None => changes.push(format!("{CREATION} {}", wanted.name)),
        }
        changes.extend(notes.iter().map(|note| format!("warning {}: {}", note.reason, note.message)));
        Ok(changes)
    }

    async fn find(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error> {
        let found = self.balancer(which).await?;
        Ok(found.map(|shown| show::balancer(self.balancer_view(), shown)))
    }

    async fn list(&self) -> Result<Vec<Balancer>, Error> {
        let all: Vec<LoadBalancer> = self.client.list(&Call::list(BALANCERS), "load_balancers").await?;
        Ok(all.into_iter().map(|shown| show::balancer(self.balancer_view(), shown)).collect())
    }

    async fn delete(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error> {
        let shown = match self.balancer(which).await? {
            Some(shown) => match show::key(&shown) {
                Some(key) if key == which.key.as_str() => shown,
                // An earlier call removed the key.
                None if shown.protection.delete => return Ok(Progress::Done(BalancerDeletion::Retained)),
                key => return Err(wrong_key(&shown, &which.key, key)),
            },
            None => match self.traced(which).await? {
                Some(shown) if shown.protection.delete => {
                    return Ok(Progress::Done(BalancerDeletion::Retained));
                }
                Some(shown) => shown,
                None => return Ok(Progress::Done(BalancerDeletion::Absent)),
            },
        };
        if shown.protection.delete {
            return self.retain(&shown).await;
        }
        match self.client.call(Call::delete(BALANCER, shown.id)).await {
            Ok(mut answer) => self.deletion(answer.take("action")?).await,
            Err(failure) if failure.is_absence() => Ok(Progress::Done(BalancerDeletion::Gone)),
            Err(failure) if failure.is_busy() => Ok(Progress::Working(DELETION.to_owned())),
            // A user protected the balancer after it was read.
            Err(failure) if failure.is(Code::Protected) => self.retain(&shown).await,
            Err(failure) => Err(failure.error),
        }
    }
}

impl Account {
    /// The wanted state of a spec, after a managed certificate was created.
    async fn wanted(&self, spec: &BalancerSpec) -> Result<Wanted, Error> {
        let settings = Settings::parse(&spec.options, &self.options.balancer_defaults, &spec.key)?;
        let network = self.network().await?;
        let certificates = self.certificates(&settings, &spec.key).await?;
        self.wanted_with(spec, settings, network, certificates.as_deref())
    }

    fn wanted_with(
        &self,
        spec: &BalancerSpec,
        settings: Settings,
        network: Option<i64>,
        certificates: Option<&[i64]>,
    ) -> Result<Wanted, Error> {
        let mut wanted = Wanted::new(spec, settings, network, certificates)?;
        wanted.keeps_ip_targets |= self.may_have_unknown_robots();
        Ok(wanted)
    }

    fn balancer_view(&self) -> BalancerView<'static> {
        BalancerView::of_defaults(&self.options.balancer_defaults)
    }

    /// Finds a balancer by id, and then by key, because a balancer may have been recreated.
    async fn balancer(&self, which: &BalancerRef) -> Result<Option<LoadBalancer>, Error> {
        if let Some(id) = &which.id {
            let id = id.parse().map_err(|_| {
                Error::new(ErrorKind::InvalidSpec, format!("balancer id {id:?}: expected a number"))
            })?;
            if let Some(shown) = self.balancer_by_id(id).await? {
                return Ok(Some(shown));
            }
        }
        self.balancer_by_key(&which.key).await
    }

    /// Finds a balancer whose label a user has removed. A balancer that has only the name of its
    /// creation is reported, because that name is made of the key. A name that a user chose proves
    /// nothing: any program may have created a balancer of that name, and the object may never have
    /// had one. So the deletion does not wait for a balancer with a chosen name.
    async fn traced(&self, which: &BalancerRef) -> Result<Option<LoadBalancer>, Error> {
        let Some(trace) = &which.trace else { return Ok(None) };
        let mut named = None;
        for name in names(trace) {
            let shown = self.balancer_by_name(name).await?.filter(|shown| show::key(shown).is_none());
            let Some(shown) = shown else { continue };
            if show::addresses(&shown).any(|address| trace.addresses.contains(&address)) {
                return Ok(Some(shown));
            }
            if name == trace.name {
                named = Some(shown);
            }
        }
        match named {
            // A protected balancer is kept anyway.
            Some(shown) if !shown.protection.delete => Err(without_key(&shown, &which.key)),
            Some(shown) => Ok(Some(shown)),
            None => Ok(None),
        }
    }

    async fn balancer_by_name(&self, name: &str) -> Result<Option<LoadBalancer>, Failure> {
        let call = Call::list(BALANCERS).with("name", name);
        let found: Vec<LoadBalancer> = self.client.list(&call, "load_balancers").await?;
        Ok(found.into_iter().find(|shown| shown.name == name))
    }

    pub(in crate::balancer) async fn balancer_by_id(&self, id: i64) -> Result<Option<LoadBalancer>, Failure> {
        self.client.find(Call::get(BALANCER, id), "load_balancer").await
    }

    async fn balancer_by_key(&self, key: &BalancerKey) -> Result<Option<LoadBalancer>, Error> {
        if !label::is_segment(key.as_str()) {
            return Ok(None);
        }
        let call = Call::list(BALANCERS).with("label_selector", &label::selector(SERVICE_UID, key.as_str()));
        let found: Vec<LoadBalancer> = self.client.list(&call, "load_balancers").await?;
        if let [_, _, ..] = found.as_slice() {
            let ids: Vec<String> = found.iter().map(|shown| shown.id.to_string()).collect();
            let text = format!(
                "load balancers {} have the label {SERVICE_UID}={key}: expected one; remove the label from \
                 the others",
                ids.join(", ")
            );
            return Err(Error::by_driver(text));
        }
        Ok(found.into_iter().next())
    }

    /// Finds the balancer of the key, or one of that name that may be adopted. A balancer with
    /// another key is adopted only if its label invites the object: the object of that key may
    /// belong to another cluster of the project, of which this process knows nothing.
    pub(in crate::balancer) async fn existing_balancer(
        &self,
        wanted: &Wanted,
        name: &str,
    ) -> Result<Option<Existing>, Error> {
        if let Some(shown) = self.balancer_by_key(&wanted.key).await? {
            return Ok(Some(Existing::Ours(Box::new(shown))));
        }
        if let Some(shown) = self.unlisted_balancer(wanted).await? {
            return Ok(Some(Existing::Ours(Box::new(shown))));
        }
        if let Some(holder) = &wanted.claim.held_by {
            return Err(held(&wanted.name, holder));
        }
        let Some(shown) = self.balancer_by_name(name).await? else { return Ok(None) };
        let claim = &wanted.claim;
        let invited = shown.labels.get(NameClaim::INVITATION);
        match show::key(&shown) {
            Some(key) if key == wanted.key.as_str() => Ok(Some(Existing::Ours(Box::new(shown)))),
            Some(key) if invited.is_none() || invited != claim.invited_as.as_ref() => {
                let mut error = wrong_key(&shown, &wanted.key, Some(key));
                error.message.push_str(&by_invitation(claim));
                Err(error)
            }
            // The first name is made of the key, so no other program chose it.
            None if !claim.adopts && name != wanted.first_name => Err(may_not_adopt(&shown)),
            Some(_) | None => Ok(Some(Existing::Adoptable(Box::new(shown)))),
        }
    }

    /// Finds the balancer of the key by an id that is known, although a list lacked it.
    async fn unlisted_balancer(&self, wanted: &Wanted) -> Result<Option<LoadBalancer>, Error> {
        let unreported = self.unreported().get(&wanted.key).map(|(id, _)| *id);
        let ids: BTreeSet<i64> = wanted.id.into_iter().chain(unreported).collect();
        for id in ids {
            let shown = self.balancer_by_id(id).await?;
            let shown = shown.filter(|shown| show::key(shown) == Some(wanted.key.as_str()));
            if shown.is_some() {
                return Ok(shown);
            }
        }
        Ok(None)
    }

    /// The balancers that were created or adopted and are not reported yet, by their keys.
    pub(in crate::balancer) fn unreported(
        &self,
    ) -> MutexGuard<'_, BTreeMap<BalancerKey, (i64, Option<BalancerNote>)>> {
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows an accepted deletion. Older versions of the API delete at once and answer without an
    /// action.
    async fn deletion(&self, action: Option<Action>) -> Result<Progress<BalancerDeletion>, Error> {
        let gone = Progress::Done(BalancerDeletion::Gone);
        let Some(action) = action else { return Ok(gone) };
        match self.client.follow(action, &mut Patience::default()).await {
            Ok(End::Success) => Ok(gone),
            Ok(End::Pending) => Ok(Progress::Working(DELETION.to_owned())),
            // The cloud may forget the action together with the balancer.
            Err(failure) if failure.is_absence() => Ok(gone),
            Err(failure) => Err(failure.error),
        }
    }

    /// Keeps a protected balancer, and removes the label of its Service.
    async fn retain(&self, shown: &LoadBalancer) -> Result<Progress<BalancerDeletion>, Error> {
        let mut labels = shown.labels.clone();
        labels.remove(SERVICE_UID);
        let update = Step::Update { name: shown.name.clone(), labels };
        match self.client.call(update.call(shown.id)).await {
            Ok(_) => Ok(Progress::Done(BalancerDeletion::Retained)),
            Err(failure) if failure.is_absence() => Ok(Progress::Done(BalancerDeletion::Gone)),
            Err(failure) if failure.is_busy() => Ok(Progress::Working(update.command().to_owned())),
            Err(failure) => Err(failure.error),
        }
    }

    /// The ids of the certificates of HTTPS services, after a managed certificate was created.
    async fn certificates(&self, settings: &Settings, key: &BalancerKey) -> Result<Option<Vec<i64>>, Error> {
        let existing = self.existing_certificates(settings, key).await?;
        let Certificates::Managed { name, domains, is_staging } = &settings.certificates else {
            return Ok(existing);
        };
        if existing.is_some() || settings.protocol != Protocol::Https {
            return Ok(existing);
        }
        let mut labels = json!({ SERVICE_UID: key.as_str() });
        if *is_staging {
            labels[STAGING.0] = json!(STAGING.1);
        }
        let body = json!({ "name": name, "type": "managed", "domain_names": domains, "labels": labels });
        match self.client.call(Call::create(CERTIFICATES, body)).await {
            Ok(mut answer) => Ok(Some(vec![answer.take::<Id>("certificate")?.id])),
            // A user created the certificate, or another Service shares it.
            Err(failure) if failure.is(Code::UniquenessError) => {
                Ok(Some(vec![self.certificate_by_name(name).await?]))
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// The ids of the certificates of HTTPS services that exist. Certificates given by id need no
    /// call.
    async fn existing_certificates(
        &self,
        settings: &Settings,
        key: &BalancerKey,
    ) -> Result<Option<Vec<i64>>, Error> {
        if settings.protocol != Protocol::Https {
            return Ok(None);
        }
        match &settings.certificates {
            Certificates::Unset => Ok(None),
            Certificates::Uploaded(certificates) => {
                let mut ids = Vec::new();
                for certificate in certificates {
                    ids.push(match certificate.parse() {
                        Ok(id) => id,
                        Err(_) => self.certificate_by_name(certificate).await?,
                    });
                }
                Ok(Some(ids))
            }
            Certificates::Managed { .. } => {
                let call = Call::list(CERTIFICATES)
                    .with("label_selector", &label::selector(SERVICE_UID, key.as_str()));
                let found: Vec<Id> = self.client.list(&call, "certificates").await?;
                Ok(found.first().map(|certificate| vec![certificate.id]))
            }
        }
    }

    async fn certificate_by_name(&self, name: &str) -> Result<i64, Error> {
        let call = Call::list(CERTIFICATES).with("name", name);
        let found: Vec<Id> = self.client.list(&call, "certificates").await?;
        found.first().map(|certificate| certificate.id).ok_or_else(|| {
            let text = format!("{PREFIX}http-certificates: expected an existing certificate, got {name:?}");
            Error::by_driver(text)
        })
    }
}

/// The names that the balancer may have: the name at its creation, and the wanted name.
fn names(trace: &BalancerTrace) -> impl Iterator<Item = &str> {
    let wanted = trace.options.get("name").filter(|name| !name.is_empty() && **name != trace.name);
    std::iter::once(trace.name.as_str()).chain(wanted.map(String::as_str))
}

/// The note about an adoption.
fn adoption(shown: &LoadBalancer) -> BalancerNote {
    let text = format!("Adopted load balancer {} ({}), which another program created", shown.name, shown.id);
    BalancerNote { reason: BalancerNote::ADOPTED, message: text }
}

fn held(name: &str, holder: &str) -> Error {
    let text = format!("{holder} has the load balancer name {name}; choose another name");
    Error::by_driver(text)
}

fn may_not_adopt(shown: &LoadBalancer) -> Error {
    let text = format!(
        "load balancer {} ({}) exists already, and Services of this namespace may not adopt load balancers; \
         choose another name",
        shown.name, shown.id
    );
    Error::by_driver(text)
}

/// How a user has a balancer adopted that has the key of another object.
fn by_invitation(claim: &NameClaim) -> String {
    match &claim.invited_as {
        Some(name) => format!(
            "; to adopt the load balancer, give it the label {}={name}, and be sure that no cluster uses it",
            NameClaim::INVITATION
        ),
        None => {
            "; if no cluster still has that object, remove the label to adopt the load balancer".to_owned()
        }
    }
}

fn without_key(shown: &LoadBalancer, key: &BalancerKey) -> Error {
    let text = format!(
        "load balancer {} ({}) has the name of this one and no label {SERVICE_UID}; add the label \
         {SERVICE_UID}={key} to have it deleted, or give it another name to keep it",
        shown.name, shown.id
    );
    Error::by_driver(text)
}

fn wrong_key(shown: &LoadBalancer, expected: &BalancerKey, key: Option<&str>) -> Error {
    let key = key.unwrap_or("none");
    let text = format!(
        "load balancer {} ({}): expected the label {SERVICE_UID}={expected}, got {key}; it belongs to another \
         object",
        shown.name, shown.id
    );
    // The credential works, so the kind is not `Denied`: a user has to change the object.
    Error::by_driver(text)
}
