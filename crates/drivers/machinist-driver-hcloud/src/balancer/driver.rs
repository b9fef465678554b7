//! Performs the changes of balancers.

use std::collections::BTreeSet;

use async_trait::async_trait;
use machinist_driver::Balancers;
use machinist_instance::{
    Balancer, BalancerDeletion, BalancerKey, BalancerNote, BalancerRef, BalancerSpec, BalancerTrace, Ensured,
    Error, ErrorKind, Progress,
};
use serde_json::json;

use super::SERVICE_UID;
use super::create::{self, Targets};
use super::plan::{plan, unfinished};
use super::settings::{Certificates, PREFIX, Protocol, Settings};
use super::show::{self, View};
use super::step::{Refused, Step};
use super::wanted::Wanted;
use crate::action::{End, Patience};
use crate::client::call::Call;
use crate::client::failure::{Code, Failure};
use crate::driver::Account;
use crate::label;
use crate::model::{Action, Id, LoadBalancer};

const BALANCER: &str = "/load_balancers/-";
const BALANCERS: &str = "/load_balancers";
const CERTIFICATES: &str = "/certificates";

/// The command of a creation, for callers.
const CREATION: &str = "create_load_balancer";

/// The command of a deletion, for callers.
const DELETION: &str = "delete_load_balancer";

/// Number of plans during one call: network changes, services and targets, and one more to see
/// that no difference is left.
const MOST_PLANS: usize = 4;

/// Number of changes during one call. More would exceed the time of a call.
const MOST_CHANGES: usize = 20;

/// How a user has a balancer adopted that has the key of an object that does not exist any more.
const BY_INTENT: &str =
    "; if no cluster has that object any more, remove the label to adopt the load balancer";

/// The certificate authority of the cloud issues untrusted certificates for this label.
const STAGING: (&str, &str) = ("HC-Use-Staging-CA", "true");

/// The result of one step.
enum Performed {
    Done,
    Skipped(BalancerNote),
    Pending,
}

/// The result of a creation.
enum Created {
    Shown(Box<LoadBalancer>),
    Pending,
}

#[async_trait]
impl Balancers for Account {
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error> {
        label::check_value("key", spec.key.as_str())?;
        let settings = Settings::parse(&spec.options, &self.options.balancer_defaults, &spec.key)?;
        let network = self.network().await?;
        let certificates = self.certificates(&settings, &spec.key).await?;
        let wanted = Wanted::new(spec, settings, network, certificates.as_deref())?;
        let mut patience = Patience::default();
        let shown = match self.existing_balancer(&wanted, &wanted.name).await? {
            Some(shown) => shown,
            None => match self.create(&wanted, &mut patience).await? {
                Created::Shown(shown) => *shown,
                Created::Pending => return Ok(Progress::Working(CREATION.to_owned())),
            },
        };
        self.converge(shown, &wanted, &mut patience).await
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
        let wanted = Wanted::new(spec, settings, network, certificates.as_deref())?;
        let mut notes = wanted.notes.clone();
        match self.existing_balancer(&wanted, &wanted.name).await? {
            Some(shown) => {
                let plan = plan(&shown, &wanted, &BTreeSet::new());
                changes.extend(plan.steps.iter().map(ToString::to_string));
                notes.extend(plan.notes);
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
    fn balancer_view(&self) -> View<'static> {
        View::of_defaults(&self.options.balancer_defaults)
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

    /// Finds a balancer whose label a user has removed. One that has only the name stays, and the
    /// user decides: it may have been created for another purpose.
    async fn traced(&self, which: &BalancerRef) -> Result<Option<LoadBalancer>, Error> {
        let Some(trace) = &which.trace else { return Ok(None) };
        let mut named = None;
        for name in names(trace) {
            let shown = self.balancer_by_name(name).await?.filter(|shown| show::key(shown).is_none());
            if let Some(shown) = shown {
                if show::addresses(&shown).any(|address| trace.addresses.contains(&address)) {
                    return Ok(Some(shown));
                }
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

    async fn balancer_by_id(&self, id: i64) -> Result<Option<LoadBalancer>, Failure> {
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
            return Err(Error::new(ErrorKind::InvalidSpec, text));
        }
        Ok(found.into_iter().next())
    }

    /// Finds the balancer of the key, or one of that name that may be adopted. A balancer with
    /// another key is never adopted: its object may belong to another cluster of the project, of
    /// which this process knows nothing.
    async fn existing_balancer(&self, wanted: &Wanted, name: &str) -> Result<Option<LoadBalancer>, Error> {
        if let Some(shown) = self.balancer_by_key(&wanted.key).await? {
            return Ok(Some(shown));
        }
        let Some(shown) = self.balancer_by_name(name).await? else { return Ok(None) };
        match show::key(&shown) {
            Some(key) if key != wanted.key.as_str() => {
                let mut error = wrong_key(&shown, &wanted.key, Some(key));
                error.message.push_str(BY_INTENT);
                Err(error)
            }
            _ => Ok(Some(shown)),
        }
    }

    async fn create(&self, wanted: &Wanted, patience: &mut Patience) -> Result<Created, Error> {
        let mut created = self.client.call(create::create(wanted, Targets::Included)?).await;
        if let Err(failure) = &created
            && create::may_be_a_target(wanted, failure)
        {
            created = self.client.call(create::create(wanted, Targets::Later)?).await;
        }
        let mut answer = match created {
            Ok(answer) => answer,
            // Another call created it in the meantime, or the cloud rejects another unique field.
            Err(failure) if failure.is(Code::UniquenessError) => {
                let found = self.existing_balancer(wanted, &wanted.first_name).await?;
                return found.map(|shown| Created::Shown(Box::new(shown))).ok_or(failure.error);
            }
            Err(failure) if failure.is_absence() => {
                return Err(Error::new(ErrorKind::InvalidSpec, failure.error.message));
            }
            Err(failure) => return Err(failure.error),
        };
        let shown: LoadBalancer = answer.take("load_balancer")?;
        match self.client.follow(answer.take("action")?, patience).await? {
            End::Pending => Ok(Created::Pending),
            End::Success => self.reread(shown.id).await.map(|shown| Created::Shown(Box::new(shown))),
        }
    }

    async fn reread(&self, id: i64) -> Result<LoadBalancer, Error> {
        let shown = self.balancer_by_id(id).await?;
        let deleted = || {
            let text = format!("load balancer {id} was deleted while it was changed");
            Error::new(ErrorKind::Unavailable, text)
        };
        shown.ok_or_else(deleted)
    }

    /// Performs the differences until none is left, or until an action takes longer than a moment.
    async fn converge(
        &self,
        mut shown: LoadBalancer,
        wanted: &Wanted,
        patience: &mut Patience,
    ) -> Result<Progress<Ensured>, Error> {
        let mut notes = wanted.notes.clone();
        let mut skipped = BTreeSet::new();
        let mut earlier: Vec<Step> = Vec::new();
        let mut changes = 0;
        for _ in 0..MOST_PLANS {
            if let Some(command) = unfinished(&shown) {
                return Ok(Progress::Working(command.to_owned()));
            }
            let now = plan(&shown, wanted, &skipped);
            if now.steps.is_empty() {
                notes.extend(now.notes);
                return Ok(Progress::Done(ensured(shown, wanted, notes)));
            }
            if now.steps == earlier {
                notes.extend(now.notes);
                notes.push(without_effect(&now.steps));
                return Ok(Progress::Done(ensured(shown, wanted, notes)));
            }
            for step in &now.steps {
                if changes == MOST_CHANGES {
                    return Ok(Progress::Working(step.command().to_owned()));
                }
                changes += 1;
                match self.perform(shown.id, step, patience).await? {
                    Performed::Done => {}
                    Performed::Pending => return Ok(Progress::Working(step.command().to_owned())),
                    Performed::Skipped(note) => {
                        if let Step::AddTarget { target, .. } = step {
                            skipped.insert(target.server);
                        }
                        notes.push(note);
                    }
                }
            }
            shown = self.reread(shown.id).await?;
            earlier = now.steps;
        }
        Ok(Progress::Working("update_load_balancer".to_owned()))
    }

    async fn perform(&self, id: i64, step: &Step, patience: &mut Patience) -> Result<Performed, Error> {
        let performed = match self.client.call(step.call(id)).await {
            // An update is no action: the answer is the balancer.
            Ok(_) if matches!(step, Step::Update { .. }) => Ok(End::Success),
            Ok(mut answer) => self.client.follow(answer.take("action")?, patience).await,
            Err(failure) => Err(failure),
        };
        match performed {
            Ok(End::Success) => Ok(Performed::Done),
            Ok(End::Pending) => Ok(Performed::Pending),
            Err(failure) => match step.refused(failure) {
                Refused::AlreadyDone => Ok(Performed::Done),
                Refused::Busy => Ok(Performed::Pending),
                Refused::Skipped(note) => Ok(Performed::Skipped(note)),
                Refused::Fatal(failure) => Err(failure.error),
            },
        }
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
            Error::new(ErrorKind::InvalidSpec, text)
        })
    }
}

fn ensured(shown: LoadBalancer, wanted: &Wanted, mut notes: Vec<BalancerNote>) -> Ensured {
    notes.extend(show::deprecation(&shown));
    Ensured { balancer: show::balancer(View::of_settings(&wanted.settings), shown), notes }
}

/// The names that the balancer may have: that of its creation, and the wanted one.
fn names(trace: &BalancerTrace) -> impl Iterator<Item = &str> {
    let wanted = trace.options.get("name").filter(|name| !name.is_empty() && **name != trace.name);
    std::iter::once(trace.name.as_str()).chain(wanted.map(String::as_str))
}

/// The cloud accepted all steps and shows the same differences again. A repetition would not help,
/// so the next call waits for the next change or resync.
fn without_effect(steps: &[Step]) -> BalancerNote {
    let commands: Vec<&str> = steps.iter().map(Step::command).collect();
    BalancerNote {
        reason: "ChangeWithoutEffect",
        message: format!(
            "the cloud accepted {} but shows the old values; compare the annotations with the load balancer",
            commands.join(", ")
        ),
    }
}

fn without_key(shown: &LoadBalancer, key: &BalancerKey) -> Error {
    let text = format!(
        "load balancer {} ({}) has the name of this one and no label {SERVICE_UID}; add the label \
         {SERVICE_UID}={key} to have it deleted, or give it another name to keep it",
        shown.name, shown.id
    );
    Error::new(ErrorKind::InvalidSpec, text)
}

fn wrong_key(shown: &LoadBalancer, expected: &BalancerKey, key: Option<&str>) -> Error {
    let key = key.unwrap_or("none");
    let text = format!(
        "load balancer {} ({}): expected the label {SERVICE_UID}={expected}, got {key}; it belongs to another \
         object",
        shown.name, shown.id
    );
    // The credential works, so this is no `Denied`: a user has to change the object.
    Error::new(ErrorKind::InvalidSpec, text)
}
