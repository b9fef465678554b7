//! Rolling update: how many Machines each set of a deployment should have next.
//!
//! Two bounds hold at every step: never more Machines than `replicas + maxSurge`, those on their way out included, and never
//! fewer available than `replicas - maxUnavailable`. They are computed from what is certain: a set that was told to have fewer
//! Machines has fewer, also while the Machines are still there, and a set that is being deleted has none to count on.
//!
//! A failed Machine that is preserved keeps its place in its set and is the last to go, also after those that are available. So
//! as many fewer need be available as are kept: otherwise a rollout could wait for days for the promise to end.
//!
//! While a Machine is updated in place, and in a deployment that wants such updates, sets are scaled and nothing is rolled: those
//! updates are not built yet, and a rollout would delete what another program is updating.
//!
//! Growth waits for the Machines of other sets to be gone, because users set `maxSurge: 0` where there is no room for one more
//! instance. It does not wait for Machines of the same set: a plain scale-up is not held up by a slow drain.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::constants::annotations;

use super::machine_deployment::{Owned, number};
use super::machine_set::{is_available, is_chosen, is_live};
use crate::Why;
use crate::facts::{MachineDeploymentFacts, MachineFacts};
use crate::why::{McmReason, Reason, Step};

/// What the sets of a deployment should have next, and why not more.
#[derive(Debug)]
pub struct Sizes {
    /// For each set, in order, the replicas it should have.
    pub replicas: Vec<u32>,
    /// What the rollout waits for.
    pub why: Why,
}

/// Decides the sizes. `new` is the index of the set with the deployment's template; only a deployment that rests may lack it.
pub fn sizes(
    now: Timestamp,
    deployment: &MachineDeploymentFacts,
    sets: &[Owned],
    new: Option<usize>,
) -> Sizes {
    let kept = sets.iter().map(|owned| kept(now, owned)).collect();
    let all = Sets { deployment, sets, told: sets.iter().map(told).collect(), kept };
    let active: Vec<usize> = (0..sets.len()).filter(|index| 0 < all.told[*index]).collect();
    let rests = rests(deployment, sets);
    let only = match (active.as_slice(), new) {
        ([], Some(new)) => Some(new),
        ([], None) => sets.len().checked_sub(1),
        // A deployment that rests is still scaled, whichever template it has by now.
        ([only], _) if rests || Some(*only) == new => Some(*only),
        ([_, ..], _) => None,
    };
    match (only, new) {
        (Some(only), _) => all.alone(only),
        (None, _) if all.is_scaled() => {
            let why = Why::new(Reason::Writing("its sets to be scaled"), Step::Expect("the rollout goes on"));
            Sizes { replicas: all.proportionally(new), why }
        }
        (None, Some(new)) if !rests => all.roll(new),
        (None, _) => Sizes { replicas: all.told.clone(), why: all.settling() },
    }
}

/// Whether a deployment takes no step of a rollout: it is scaled at most.
pub(crate) fn rests(deployment: &MachineDeploymentFacts, sets: &[Owned]) -> bool {
    deployment.spec.is_paused() || deployment.is_in_place() || updating_in_place(sets).is_some()
}

/// The first Machine whose instance is being updated without being replaced, or failed to be. One that is being deleted is not.
pub(crate) fn updating_in_place(sets: &[Owned]) -> Option<&MachineFacts> {
    let staying = sets.iter().filter(|owned| owned.set.deleting_since.is_none());
    let mut machines = staying.flat_map(|owned| &owned.machines);
    machines.find(|machine| is_live(machine) && machine.is_updating_in_place()).map(Arc::as_ref)
}

/// The replicas that a set was told to have; none when it is being deleted.
pub(crate) fn told(owned: &Owned) -> u32 {
    if owned.set.deleting_since.is_some() { 0 } else { owned.set.replicas() }
}

struct Sets<'s> {
    deployment: &'s MachineDeploymentFacts,
    sets: &'s [Owned],
    told: Vec<u32>,
    /// For each set, how many Machines are preserved and not available.
    kept: Vec<u32>,
}

impl Sets<'_> {
    /// The most Machines that may exist.
    fn most(&self) -> u32 {
        self.deployment.replicas().saturating_add(self.deployment.max_surge())
    }

    /// The fewest Machines that must be available.
    fn fewest(&self) -> u32 {
        self.places().saturating_sub(total(self.kept.iter().copied()))
    }

    /// The fewest Machines that the sets must be told to have, available or not.
    fn places(&self) -> u32 {
        self.deployment.replicas().saturating_sub(self.deployment.max_unavailable())
    }

    /// Machines of a set that are, or will be, there: what it was told or what it has, whichever is more.
    fn present(&self, index: usize) -> u32 {
        self.told[index].max(number(self.sets[index].machines.len()))
    }

    fn present_in_all(&self) -> u32 {
        total((0..self.sets.len()).map(|index| self.present(index)))
    }

    /// How many Machines may be added.
    fn room(&self) -> u32 {
        self.most().saturating_sub(self.present_in_all())
    }

    /// Available Machines of a set that stay when it has that many replicas: its others go first, save those that are kept.
    fn certain(&self, index: usize, replicas: u32) -> u32 {
        if self.sets[index].set.deleting_since.is_some() {
            0
        } else {
            available(&self.sets[index]).min(replicas.saturating_sub(self.kept[index]))
        }
    }

    /// How many of that many replicas go before any that is available.
    fn harmless(&self, index: usize, replicas: u32) -> u32 {
        replicas.saturating_sub(self.certain(index, replicas)).saturating_sub(self.kept[index])
    }

    /// One set holds, or will hold, all Machines: it gets what is wanted, as far as what others left behind leaves room.
    fn alone(&self, only: usize) -> Sizes {
        let wanted = self.deployment.replicas();
        let others = (0..self.sets.len()).filter(|index| *index != only);
        let leftovers = total(others.map(|index| self.present(index)));
        let most = self.most().saturating_sub(leftovers);
        let mut replicas = self.told.clone();
        replicas[only] = wanted.min(most.max(self.told[only]));
        let why = if replicas[only] < wanted { self.surge_bound(only) } else { self.settling() };
        Sizes { replicas, why }
    }

    /// Whether the deployment's replicas changed since its sets were last sized.
    fn is_scaled(&self) -> bool {
        let differs = |owned: &Owned| {
            let desired: Option<u32> =
                owned.set.annotation(annotations::DESIRED_REPLICAS).and_then(|text| text.parse().ok());
            desired.is_some_and(|desired| desired != self.deployment.replicas())
        };
        self.sets.iter().zip(&self.told).any(|(owned, told)| 0 < *told && differs(owned))
    }

    /// Scaling in the middle of a rollout: growth goes to the new set, shrinking is shared by size.
    fn proportionally(&self, new: Option<usize>) -> Vec<u32> {
        let wanted = self.deployment.replicas();
        let allowed = if wanted == 0 { 0 } else { self.most() };
        let now = total(self.told.iter().copied());
        if now <= allowed {
            let mut replicas = self.told.clone();
            let staying = |index: &usize| self.sets[*index].set.deleting_since.is_none();
            if let Some(grows) = new.or_else(|| (0..self.sets.len()).rfind(staying)) {
                // What is there already, on its way out included, leaves less room.
                replicas[grows] +=
                    (allowed - now).min(self.room()).min(wanted.saturating_sub(replicas[grows]));
            }
            return replicas;
        }
        let surplus = now - allowed;
        let mut order: Vec<usize> = (0..self.sets.len()).collect();
        order.sort_by_key(|index| (Reverse(self.told[*index]), self.sets[*index].set.created, *index));
        let mut shrinking = Shrinking::new(self);
        let mut rest = surplus;
        // What the autoscaler chose is taken from its own set, or another Machine would be deleted for it.
        for index in &order {
            rest -= shrinking.cut(*index, self.chosen(*index).min(rest));
        }
        for index in &order {
            let share = shrinking.replicas[*index].saturating_sub(self.fair(*index, allowed));
            rest -= shrinking.cut(*index, share.min(rest));
        }
        // What rounding left over, or what had to stay available, is taken where it can be.
        for index in order {
            rest -= shrinking.cut(index, rest);
        }
        shrinking.replicas
    }

    /// The part of what is allowed that a set has by the size it had when the deployment was last sized; rounded to the nearest.
    fn fair(&self, index: usize, allowed: u32) -> u32 {
        let told = self.told[index];
        let annotated = self.sets[index].set.annotation(annotations::MAX_REPLICAS);
        let in_status = || u32::try_from(self.deployment.status.as_ref()?.replicas).ok();
        let before =
            annotated.and_then(|text| text.parse().ok()).or_else(in_status).filter(|before| 0 < *before);
        let Some(before) = before.map(u128::from) else { return told };
        let doubled = 2 * u128::from(told) * u128::from(allowed) + before;
        u32::try_from(doubled / (2 * before)).unwrap_or(told)
    }

    /// How many Machines of a set the autoscaler chose to be deleted.
    fn chosen(&self, index: usize) -> u32 {
        let machines = self.sets[index].machines.iter();
        number(machines.filter(|machine| is_live(machine) && is_chosen(machine)).count())
    }

    fn roll(&self, new: usize) -> Sizes {
        let wanted = self.deployment.replicas();
        let mut next = self.told.clone();
        next[new] = if self.told[new] < wanted {
            self.told[new] + self.room().min(wanted - self.told[new])
        } else {
            wanted
        };
        // Of the new set counts what it has and keeps.
        let new_told = self.told[new].min(next[new]);
        let new_certain = self.certain(new, new_told);
        let mut old: Vec<usize> =
            (0..self.sets.len()).filter(|index| *index != new && 0 < self.told[*index]).collect();
        old.sort_by_key(|index| (self.sets[*index].set.created, *index));
        let certain = |index: usize| self.certain(index, self.told[index]);
        let old_told = total(old.iter().map(|index| self.told[*index]));
        let old_certain = total(old.iter().map(|index| certain(*index)));

        // Machines that are not available go first: they cost nothing. As many stay as the new set lacks, so that a new template
        // that never works does not empty the old sets.
        let new_lacks = new_told - new_certain;
        let mut may_go =
            old_told.saturating_add(new_told).saturating_sub(self.places()).saturating_sub(new_lacks);
        for index in &old {
            let goes = self.harmless(*index, self.told[*index]).min(may_go);
            next[*index] -= goes;
            may_go -= goes;
        }
        let mut spare = old_certain.saturating_add(new_certain).saturating_sub(self.fewest()).min(may_go);
        for index in &old {
            let goes = certain(*index).min(next[*index]).min(spare);
            next[*index] -= goes;
            spare -= goes;
            may_go -= goes;
            // Those that are kept go last, and are not missed.
            if goes == certain(*index) {
                let goes = next[*index].min(self.kept[*index]).min(may_go);
                next[*index] -= goes;
                may_go -= goes;
            }
        }
        let why = if next == self.told { self.blocked(new) } else { self.rolling(new) };
        Sizes { replicas: next, why }
    }

    fn rolling(&self, new: usize) -> Why {
        let reason = McmReason::RollingOut {
            updated: available(&self.sets[new]),
            desired: self.deployment.replicas(),
        };
        Why::new(reason, Step::Expect("new Machines become Running, then old ones go"))
    }

    /// Nothing may change now: which bound holds, and which Machine is waited for.
    fn blocked(&self, new: usize) -> Why {
        let wants_more = self.told[new] < self.deployment.replicas();
        if wants_more && self.room() == 0 {
            return self.surge_bound(new);
        }
        let available = total((0..self.sets.len()).map(|index| self.certain(index, self.told[index])));
        let waiting_for = pending(&self.sets[new]).or_else(|| self.sets.iter().find_map(pending));
        let reason = McmReason::UnavailableBound { available, fewest: self.fewest(), waiting_for };
        Why::new(reason, Step::Expect("an old Machine goes once a new one is Running"))
    }

    fn surge_bound(&self, growing: usize) -> Why {
        let leaving = self.leaving().next().map(|machine| machine.to_owned());
        let waiting_for = leaving.or_else(|| pending(&self.sets[growing]));
        let reason =
            McmReason::SurgeBound { machines: self.present_in_all(), most: self.most(), waiting_for };
        Why::new(reason, Step::Expect("an old Machine goes once a new one is Running"))
    }

    /// The sizes are right: what is missing until the Machines are, too.
    fn settling(&self) -> Why {
        let desired = self.deployment.replicas();
        let available = total(self.sets.iter().map(available));
        if available < desired {
            let first = self.sets.iter().find_map(pending);
            let reason = McmReason::MachinesPending { available, desired, first };
            return Why::new(reason, Step::Expect("its Machines become Running"));
        }
        let leaving = number(self.leaving().count());
        if 0 < leaving || desired < available {
            let left = leaving.max(available.saturating_sub(desired));
            let first = self.leaving().next().map(str::to_owned);
            return Why::new(
                McmReason::MachinesLeaving { left, first },
                Step::Expect("they are drained and deleted"),
            );
        }
        Why::settled()
    }

    /// Names of the Machines on their way out.
    fn leaving(&self) -> impl Iterator<Item = &str> {
        let machines = self.sets.iter().flat_map(|owned| &owned.machines);
        machines.filter(|machine| !is_live(machine)).map(|machine| machine.name.as_str())
    }
}

/// Sets that lose replicas, while enough Machines stay available.
struct Shrinking<'s> {
    sets: &'s Sets<'s>,
    replicas: Vec<u32>,
    /// How many available Machines may still go.
    spare: u32,
}

impl<'s> Shrinking<'s> {
    fn new(sets: &'s Sets<'s>) -> Self {
        let available = total((0..sets.sets.len()).map(|index| sets.certain(index, sets.told[index])));
        Self { sets, replicas: sets.told.clone(), spare: available.saturating_sub(sets.fewest()) }
    }

    /// Takes up to `wanted` replicas from a set, and says how many.
    fn cut(&mut self, index: usize, wanted: u32) -> u32 {
        let now = self.replicas[index];
        let certain = self.sets.certain(index, now);
        let harmless = self.sets.harmless(index, now);
        // Once all that are available may go, so may those that are kept.
        let most = if certain <= self.spare { now } else { harmless.saturating_add(self.spare) };
        let cut = wanted.min(most);
        self.spare -= cut.saturating_sub(harmless).min(certain);
        self.replicas[index] -= cut;
        cut
    }
}

/// A sum of counts. Each fits, but a set may claim any: then there are as many as can be counted.
fn total(counts: impl Iterator<Item = u32>) -> u32 {
    counts.fold(0, u32::saturating_add)
}

fn available(owned: &Owned) -> u32 {
    number(owned.machines.iter().filter(|machine| is_available(machine)).count())
}

/// How many Machines of a set are preserved and not available. Those of a set that is deleted go with it.
fn kept(now: Timestamp, owned: &Owned) -> u32 {
    let is_kept = |machine: &&Arc<MachineFacts>| {
        is_live(machine) && !is_available(machine) && machine.preserved(now).is_some()
    };
    match owned.set.deleting_since {
        Some(_) => 0,
        None => number(owned.machines.iter().filter(is_kept).count()),
    }
}

/// The first Machine of a set that is not available and not on its way out.
fn pending(owned: &Owned) -> Option<String> {
    let waits = owned.machines.iter().find(|machine| is_live(machine) && !is_available(machine));
    waits.map(|machine| machine.name.clone())
}

#[cfg(test)]
mod tests;
