//! Decides what a request does: a pure function from the state, the settings and the time to at
//! most one commit.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{InstanceKey, InstanceRef, NodeName, ProviderId};

use crate::clock::later;
use crate::state::{Reach, Sight, State};
use crate::{
    CallOutcome, CloudRefusal, Code, CreateRequest, DeleteRequest, Deletion, Fault, Foreigner, IdStyle,
    LedgerCommit, LedgerEntry, Settings,
};

/// The result of a request: at most one commit, and the subject of the answer.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) outcome: CallOutcome,
    pub(crate) commit: Option<LedgerCommit>,
    /// The instance that the answer is about.
    pub(crate) about: Option<ProviderId>,
}

impl Effect {
    fn none(outcome: CallOutcome, about: Option<ProviderId>) -> Self {
        Self { outcome, commit: None, about }
    }

    fn commit(outcome: CallOutcome, commit: LedgerCommit) -> Self {
        Self { outcome, about: Some(commit.id().clone()), commit: Some(commit) }
    }
}

/// The input of a decision.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) state: &'a State,
    pub(crate) settings: &'a Settings,
    pub(crate) reach: Reach<'a>,
    pub(crate) now: Timestamp,
    pub(crate) fault: Option<&'a Fault>,
}

/// Creates an instance unless one was ever made for that key, or in that zone for that key.
pub(crate) fn ensure(facts: Facts<'_>, request: &CreateRequest) -> Result<Effect, CloudRefusal> {
    let Facts { state, settings, now, .. } = facts;
    let mut reach = facts.reach;
    if settings.keys_per_zone {
        let by_key = InstanceRef { key: Some(request.key.clone()), ..InstanceRef::default() };
        if let Some(shown) = state.locate(&by_key, reach, now, Sight::Lagging) {
            return Ok(Effect::none(CallOutcome::Found, Some(shown.id.clone())));
        }
        reach.zone = Some(request.zone.as_deref().unwrap_or(&settings.zone));
    }
    if let Some(made) = state.by_key(&request.key, reach) {
        return if made.key.as_ref() != Some(&request.key) {
            let message = format!("{} was made for this key and was given another one", made.id);
            Err(CloudRefusal::new(Code::Foreign, message))
        } else if made.is_alive_at(now) {
            Ok(Effect::none(CallOutcome::Found, Some(made.id.clone())))
        } else {
            // A late repetition of a call must not recreate an instance that was deleted in
            // between.
            Err(CloudRefusal::new(
                Code::KeySpent,
                format!("{} was made for this key and is deleted", made.id),
            ))
        };
    }
    // An instance of another program is adopted in each zone.
    let same_name = state.by_name(&request.name, facts.reach, now);
    match same_name.filter(|found| found.key.is_none() || reach.has(found)) {
        Some(same_name) => adopt(facts, request, same_name),
        None => create(facts, request),
    }
}

fn adopt(facts: Facts<'_>, request: &CreateRequest, found: &LedgerEntry) -> Result<Effect, CloudRefusal> {
    let LedgerEntry { id, name, created, .. } = found;
    match (&found.key, request.adopt_made_since) {
        (None, Some(since)) if since <= *created => Ok(Effect::commit(
            CallOutcome::Adopted,
            LedgerCommit::Adopted {
                id: id.clone(),
                key: request.key.clone(),
                cluster: request.cluster.clone(),
                at: facts.now,
            },
        )),
        (None, _) => {
            Err(CloudRefusal::new(Code::Foreign, format!("{id} has the name {name} and was made by others")))
        }
        (Some(other), _) => {
            Err(CloudRefusal::new(Code::Foreign, format!("{id} has the name {name} and key {other}")))
        }
    }
}

fn create(facts: Facts<'_>, request: &CreateRequest) -> Result<Effect, CloudRefusal> {
    let Facts { state, settings, reach, now, fault } = facts;
    let zone = request.zone.clone().unwrap_or_else(|| settings.zone.clone());
    let called = reach.region.unwrap_or(&settings.region);
    let region = request.region.clone().unwrap_or_else(|| called.to_owned());
    if reach.region.is_some_and(|called| called != region) {
        let message = format!("region {region:?}: expected {called:?}, the region of this endpoint");
        return Err(CloudRefusal::new(Code::InvalidParameter, message));
    }
    if let Some(quota) = settings.quota
        && quota <= state.existing().filter(|entry| entry.is_alive_at(now)).count()
    {
        let message = format!("quota of {quota} instances is used up");
        return Err(CloudRefusal::new(Code::QuotaExceeded, message));
    }
    if settings.stockouts.iter().any(|stockout| stockout.hits(&request.instance_type, &zone)) {
        let message = format!("no {} left in {zone}", request.instance_type);
        return Err(CloudRefusal::new(Code::OutOfStock, message));
    }
    let boot = request.boot_seconds.map_or(settings.boot, Duration::from_secs);
    let running_at = later(now, boot);
    let hidden = match fault {
        Some(Fault::HideNew { span }) => *span,
        _ => settings.lag,
    };
    let boots_at = match fault {
        Some(Fault::NeverBoots) => None,
        Some(Fault::BootsLate { by }) => Some(later(running_at, *by)),
        _ => Some(running_at),
    };
    let serial = state.next_serial();
    let entry = LedgerEntry {
        serial,
        id: new_id(settings, serial, &request.name, state),
        key: Some(request.key.clone()),
        name: request.name.clone(),
        cluster: Some(request.cluster.clone()),
        project: reach.project.unwrap_or_default().to_owned(),
        instance_type: request.instance_type.clone(),
        region,
        zone,
        image: request.image.clone(),
        tags: request.tags.clone(),
        created: now,
        visible_at: later(now, hidden),
        running_at,
        boots_at,
        stopped: false,
        deletion: None,
        deleted: None,
        calls: Default::default(),
    };
    Ok(Effect::commit(CallOutcome::Made, LedgerCommit::Made { entry: Box::new(entry) }))
}

/// Loads an instance that the cluster under test did not make.
pub(crate) fn load(facts: Facts<'_>, foreigner: &Foreigner) -> Result<Effect, CloudRefusal> {
    let Facts { state, settings, .. } = facts;
    let serial = state.next_serial();
    let id = foreigner.id.clone().unwrap_or_else(|| new_id(settings, serial, &foreigner.name, state));
    let of_project = Reach { project: Some(&foreigner.project), ..Reach::default() };
    let taken = state.by_id(&id).is_some()
        || foreigner.key.as_ref().is_some_and(|key| state.by_key(key, of_project).is_some());
    if taken {
        return Err(CloudRefusal::new(Code::WrongState, format!("{id} or its key is already used")));
    }
    let entry = LedgerEntry {
        serial,
        id,
        key: foreigner.key.clone(),
        name: foreigner.name.clone(),
        cluster: None,
        project: foreigner.project.clone(),
        instance_type: foreigner.instance_type.clone(),
        region: settings.region.clone(),
        zone: settings.zone.clone(),
        image: None,
        tags: Default::default(),
        created: foreigner.created,
        visible_at: foreigner.created,
        running_at: foreigner.created,
        boots_at: Some(foreigner.created),
        stopped: false,
        deletion: None,
        deleted: None,
        calls: Default::default(),
    };
    Ok(Effect::commit(CallOutcome::Made, LedgerCommit::Made { entry: Box::new(entry) }))
}

fn new_id(settings: &Settings, serial: u64, name: &NodeName, state: &State) -> ProviderId {
    let spelled = |identity: &str| {
        let text = match settings.scheme.as_str() {
            "" => identity.to_owned(),
            scheme => format!("{scheme}:///{identity}"),
        };
        ProviderId::parse(&text).ok()
    };
    let by_name = (settings.ids == IdStyle::ByName)
        .then(|| spelled(name.as_str()))
        .flatten()
        // An id is never reused, so a second instance of the same name gets a number.
        .filter(|id| state.by_id(id).is_none());
    by_name.unwrap_or_else(|| spelled(&format!("i-{serial}")).expect("a number is not empty"))
}

/// Looks up an instance, with the cloud's lag.
pub(crate) fn find(facts: Facts<'_>, which: &InstanceRef) -> Effect {
    let found = match facts.fault {
        Some(Fault::NotFound) => None,
        _ => facts.state.locate(which, facts.reach, facts.now, Sight::Lagging),
    };
    match found {
        Some(entry) => Effect::none(CallOutcome::Found, Some(entry.id.clone())),
        None => Effect::none(CallOutcome::Absent, None),
    }
}

/// Begins a deletion. A lookup by id finds the instance at once. A lookup by key or name has the
/// cloud's lag, so the deletion may miss an instance that reads do not show yet.
pub(crate) fn delete(facts: Facts<'_>, request: &DeleteRequest) -> Result<Effect, CloudRefusal> {
    let Facts { state, settings, reach, now, fault } = facts;
    let sight = if request.which.id.is_some() { Sight::Exact } else { Sight::Lagging };
    let Some(entry) = state.locate(&request.which, reach, now, sight) else {
        return Ok(Effect::none(CallOutcome::Absent, None));
    };
    check_owner(entry, request)?;
    if entry.deletion.is_some() {
        return Ok(Effect::none(CallOutcome::AlreadyDeleting, Some(entry.id.clone())));
    }
    let takes = match fault {
        Some(Fault::ClaimGone) => return Ok(Effect::none(CallOutcome::Absent, None)),
        Some(Fault::Linger { span }) => *span,
        _ => settings.delete,
    };
    let deletion = Deletion { asked: now, gone_at: later(now, takes) };
    Ok(Effect::commit(
        CallOutcome::DeletionBegun,
        LedgerCommit::DeletionBegun { id: entry.id.clone(), deletion },
    ))
}

/// Refuses the deletion of an instance of another owner. An instance without a key is deleted only
/// by its id, and if the caller says that it is its own.
fn check_owner(entry: &LedgerEntry, request: &DeleteRequest) -> Result<(), CloudRefusal> {
    let DeleteRequest { which, owner } = request;
    match &entry.key {
        Some(key) if key == owner => Ok(()),
        Some(other) => {
            Err(CloudRefusal::new(Code::Foreign, format!("{} was made for key {other}", entry.id)))
        }
        None if which.may_lack_key && which.id.is_some() => Ok(()),
        None => Err(CloudRefusal::new(Code::Foreign, format!("{} has no key", entry.id))),
    }
}

/// Changes an instance that must exist.
pub(crate) fn change(
    facts: Facts<'_>,
    id: &ProviderId,
    commit: impl FnOnce(&LedgerEntry) -> Result<Option<LedgerCommit>, CloudRefusal>,
) -> Result<Effect, CloudRefusal> {
    let entry = existing(facts, id)?;
    let commit = commit(entry)?;
    Ok(Effect { outcome: CallOutcome::Done, commit, about: Some(id.clone()) })
}

/// Completes an instance that the owner may change.
pub(crate) fn initialize(
    facts: Facts<'_>,
    id: &ProviderId,
    owner: &InstanceKey,
) -> Result<Effect, CloudRefusal> {
    change(facts, id, |entry| match &entry.key {
        Some(key) if key != owner => Err(CloudRefusal::new(Code::Foreign, format!("{id} carries key {key}"))),
        Some(_) | None => Ok(None),
    })
}

/// Gives an instance another key if it carries the expected key.
pub(crate) fn rekey(
    facts: Facts<'_>,
    id: &ProviderId,
    from: &InstanceKey,
    to: &InstanceKey,
) -> Result<Effect, CloudRefusal> {
    change(facts, id, |entry| match &entry.key {
        Some(key) if key == to => Ok(None),
        Some(key) if key == from => {
            Ok(Some(LedgerCommit::Rekeyed { id: id.clone(), key: to.clone(), at: facts.now }))
        }
        Some(other) => Err(CloudRefusal::new(Code::Foreign, format!("{id} carries key {other}"))),
        None => Err(CloudRefusal::new(Code::Foreign, format!("{id} carries no key"))),
    })
}

/// Checks that a commit of another API fits the ledger.
pub(crate) fn outside(facts: Facts<'_>, commit: LedgerCommit) -> Result<Effect, CloudRefusal> {
    if let LedgerCommit::Made { entry } = &commit {
        let is_taken = facts.state.by_id(&entry.id).is_some()
            || facts.state.ever().any(|other| other.serial == entry.serial);
        if is_taken {
            let message = format!("{} or its serial number is already used", entry.id);
            return Err(CloudRefusal::new(Code::WrongState, message));
        }
    } else {
        existing(facts, commit.id())?;
    }
    Ok(Effect::commit(CallOutcome::Done, commit))
}

/// The instance of that id, if it exists.
pub(crate) fn existing<'a>(facts: Facts<'a>, id: &ProviderId) -> Result<&'a LedgerEntry, CloudRefusal> {
    facts
        .state
        .by_id(id)
        .filter(|entry| facts.reach.has(entry) && entry.is_alive_at(facts.now))
        .ok_or_else(|| CloudRefusal::new(Code::NotFound, format!("instance {id} not found")))
}

/// Powers an instance off.
pub(crate) fn stop(facts: Facts<'_>, id: &ProviderId) -> Result<Effect, CloudRefusal> {
    let at = facts.now;
    change(facts, id, |entry| {
        refuse_if_deleting(entry)?;
        Ok((!entry.stopped).then(|| LedgerCommit::Stopped { id: id.clone(), at }))
    })
}

/// Powers an instance on again.
pub(crate) fn start(facts: Facts<'_>, id: &ProviderId) -> Result<Effect, CloudRefusal> {
    let (at, running_at) = (facts.now, later(facts.now, facts.settings.boot));
    change(facts, id, |entry| {
        refuse_if_deleting(entry)?;
        Ok(entry.stopped.then(|| LedgerCommit::Started { id: id.clone(), at, running_at }))
    })
}

fn refuse_if_deleting(entry: &LedgerEntry) -> Result<(), CloudRefusal> {
    match entry.deletion {
        Some(_) => Err(CloudRefusal::new(Code::WrongState, format!("{} is being deleted", entry.id))),
        None => Ok(()),
    }
}
