//! The state behind the one lock, and the changes that time makes: actions end.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::effect;
use crate::error::ApiError;
use crate::fault::Faults;
use crate::limit::Buckets;
use crate::log::Log;
use crate::model::{ActionError, ActionStatus, Effect, HcloudAction, ResourceRef};
use crate::settings::{Busy, Settings};
use crate::store::Store;

pub(crate) struct Books {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) buckets: Buckets,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    /// Whether new actions never end.
    pub(crate) frozen: bool,
    /// Actions that will fail: the command (any if absent) and the error.
    pub(crate) failures: VecDeque<(Option<String>, ActionError)>,
    running: BTreeSet<i64>,
    draws: u64,
}

/// An action to begin.
pub(crate) struct NewAction<'a> {
    pub(crate) command: &'a str,
    /// The first resource is locked until the action ends.
    pub(crate) resources: Vec<ResourceRef>,
    pub(crate) takes: Duration,
    pub(crate) effect: Effect,
}

impl Books {
    pub(crate) fn new(settings: Settings, store: Store) -> Self {
        let running = running_in(&store);
        Self {
            settings,
            store,
            buckets: Buckets::default(),
            faults: Faults::default(),
            log: Log::default(),
            frozen: false,
            failures: VecDeque::new(),
            running,
            draws: 0,
        }
    }

    /// Begins an action. An action that takes no time has ended when this function returns.
    pub(crate) fn begin(&mut self, project: &str, action: NewAction<'_>, now: Timestamp) -> i64 {
        let id = self.store.next_id(self.settings.seed);
        let failure = self
            .failures
            .iter()
            .position(|(command, _)| command.as_deref().is_none_or(|wanted| wanted == action.command))
            .and_then(|index| self.failures.remove(index));
        let polls_left = self.settings.action_polls.filter(|_| !self.frozen);
        let ends_at = (!self.frozen && polls_left.is_none()).then(|| later(now, action.takes));
        self.store.put_action(HcloudAction {
            id,
            project: project.to_owned(),
            command: action.command.to_owned(),
            status: ActionStatus::Running,
            started: now,
            ends_at,
            polls_left,
            finished: None,
            resources: action.resources,
            error: None,
            fails_with: failure.map(|(_, error)| error),
            effect: action.effect,
        });
        self.running.insert(id);
        self.end_due(now);
        id
    }

    /// Ends the actions whose time has come, in the order of their ends.
    pub(crate) fn end_due(&mut self, now: Timestamp) {
        while let Some((ends_at, id)) = self.next_end().filter(|(ends_at, _)| *ends_at <= now) {
            self.end(id, ends_at);
        }
    }

    /// When the next action ends.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.next_end().map(|(ends_at, _)| ends_at)
    }

    fn next_end(&self) -> Option<(Timestamp, i64)> {
        let actions = &self.store.state().actions;
        self.running.iter().filter_map(|id| Some((actions.get(id)?.ends_at?, *id))).min()
    }

    fn end(&mut self, id: i64, at: Timestamp) {
        self.running.remove(&id);
        let Some(action) = self.store.edit_action(id) else { return };
        action.finished = Some(at);
        action.error = action.fails_with.take();
        action.status = if action.error.is_some() { ActionStatus::Error } else { ActionStatus::Success };
        let (status, effect) = (action.status, action.effect.clone());
        match status {
            ActionStatus::Success => effect::apply(&mut self.store, effect, at),
            ActionStatus::Error => effect::undo(&mut self.store, effect),
            ActionStatus::Running => {}
        }
    }

    /// Counts a read of an action, if reads end actions.
    pub(crate) fn poll(&mut self, id: i64, now: Timestamp) {
        let Some(action) = self.store.state().actions.get(&id) else { return };
        match action.polls_left {
            Some(0) if action.finished.is_none() => self.end(id, now),
            Some(left) if 0 < left => {
                if let Some(action) = self.store.edit_action(id) {
                    action.polls_left = Some(left - 1);
                }
            }
            Some(_) | None => {}
        }
    }

    /// Lets actions end that were begun while actions were frozen.
    pub(crate) fn thaw(&mut self, now: Timestamp) {
        self.frozen = false;
        let takes = self.settings.action;
        let polls_left = self.settings.action_polls;
        for id in self.running.clone() {
            let is_frozen = self
                .store
                .state()
                .actions
                .get(&id)
                .is_some_and(|action| action.ends_at.is_none() && action.polls_left.is_none());
            if let Some(action) = self.store.edit_action(id).filter(|_| is_frozen) {
                action.polls_left = polls_left;
                action.ends_at = polls_left.is_none().then(|| later(now, takes));
            }
        }
    }

    /// Fails if an action runs on the resource.
    pub(crate) fn ensure_idle(&self, kind: &str, id: i64) -> Result<(), ApiError> {
        if !self.is_busy(kind, id) {
            return Ok(());
        }
        Err(match self.settings.busy {
            Busy::Locked => ApiError::new("locked", format!("{kind} is locked: an action runs on it")),
            Busy::Conflict => ApiError::new("conflict", format!("{kind} was changed by another action")),
        })
    }

    pub(crate) fn is_busy(&self, kind: &str, id: i64) -> bool {
        let actions = &self.store.state().actions;
        self.running.iter().filter_map(|action| actions.get(action)).any(|action| action.locks(kind, id))
    }

    /// Forgets which actions run, after the objects were replaced.
    pub(crate) fn recount(&mut self) {
        self.running = running_in(&self.store);
    }

    /// The next number from 0 to 99 of a sequence that depends on the seed only (splitmix64).
    pub(crate) fn draw(&mut self) -> u8 {
        self.draws = self.draws.wrapping_add(1);
        let mut mixed =
            (self.draws ^ (u64::from(self.settings.seed) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u8::try_from((mixed ^ (mixed >> 31)) % 100).unwrap_or(0)
    }
}

fn running_in(store: &Store) -> BTreeSet<i64> {
    let actions = store.state().actions.values();
    actions.filter(|action| action.status == ActionStatus::Running).map(|action| action.id).collect()
}

/// `moment + by`; a time beyond the calendar counts as never.
pub(crate) fn later(moment: Timestamp, by: Duration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}
