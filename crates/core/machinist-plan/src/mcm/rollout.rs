//! Rollout: decides how many Machines each set of a deployment should have next.
//!
//! With the strategy `Recreate`, all sets but the new one are emptied first. The new set is created
//! and grows when no Machine of them is left, because two templates may not run side by side.
//!
//! In a rolling update, two bounds hold at every step. The total number of Machines, including
//! those being deleted, is at most `replicas + maxSurge`. The number of available Machines is at
//! least `replicas - maxUnavailable`. Both are computed from certain facts: after a set's replicas
//! were lowered, only the lower number counts, even while the Machines exist. Which of them remain
//! follows from the order in which the set deletes, which begins with their priority. A set that is
//! being deleted counts as empty.
//!
//! A preserved failed Machine keeps its place in its set and is deleted last, after available
//! Machines. So the required number of available Machines is reduced by the number of preserved
//! ones. Otherwise a rollout could wait for days until they expire.
//!
//! While a Machine is updated in place, a deployment with another strategy is only scaled, because
//! a rollout would delete Machines that a program on their Nodes is updating. The strategy
//! InPlaceUpdate has its own rules (`in_place`).
//!
//! Growth waits until Machines of other sets are deleted, because users set `maxSurge: 0` if there
//! is no capacity for another instance. Growth does not wait for Machines of the same set, so a
//! slow drain does not delay a plain scale-up.

mod in_place;

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::Phase;
use machinist_api::constants::annotations;

use super::deletion_order::{Place, is_marked, place, place_of_new};
use super::live::{is_available, is_chosen, is_live, number};
use super::machine_deployment::snapshot::Owned;
use crate::mcm::facts::{MachineDeploymentFacts, MachineFacts};
use crate::mcm::why::{McmReason, Reason, Step, Why};

/// The next sizes of a deployment's sets, and the reason.
#[derive(Debug)]
pub struct Sizes {
    /// The new replicas for each set, in order.
    pub replicas: Vec<u32>,
    /// The reason why the rollout waits, if it waits.
    pub why: Why,
}

/// The numbers of Machines that a deployment has and may have, as one of its sets sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The available Machines that stay for certain, and all available ones of the set in question.
    pub available: u32,
    /// The minimum number of available Machines.
    pub fewest: u32,
    /// The Machines of all sets, without those that are being deleted.
    pub live: u32,
    /// The maximum number of Machines.
    pub most: u32,
}

/// Returns what a set's surplus must leave, and how many Machines it may add. The Machines that
/// another set still has to delete do not count as available. `new` is the index of the set with
/// the deployment's template.
pub fn bounds(
    now: Timestamp,
    deployment: &MachineDeploymentFacts,
    sets: &[Owned],
    new: Option<usize>,
    index: usize,
) -> Bounds {
    let all = Sets::of(now, deployment, sets);
    let others = (0..sets.len()).filter(|other| *other != index);
    let staying = total(others.map(|other| all.certain(other, all.specified[other])));
    let own = sets.get(index).map_or(0, available);
    let live = total(sets.iter().map(live));
    // No available Machine has to stay while all Machines of old templates are deleted.
    let fewest = if is_recreating(deployment, sets, new) { 0 } else { all.fewest() };
    Bounds { available: staying.saturating_add(own), fewest, live, most: all.most() }
}

/// Decides the sizes. `new` is the index of the set with the deployment's template. Only a
/// deployment that rests, or that recreates its Machines, may lack it.
pub fn sizes(
    now: Timestamp,
    deployment: &MachineDeploymentFacts,
    sets: &[Owned],
    new: Option<usize>,
) -> Sizes {
    let all = Sets::of(now, deployment, sets);
    let active: Vec<usize> = (0..sets.len()).filter(|index| 0 < all.specified[*index]).collect();
    let rests = rests(deployment, sets);
    if is_recreating(deployment, sets, new) {
        return all.emptied(new);
    }
    if let Some(new) = new.filter(|_| deployment.is_in_place() && (!rests || all.is_scaled())) {
        return all.update_in_place(new);
    }
    let only = match (active.as_slice(), new) {
        ([], Some(new)) => Some(new),
        // A set that still has Machines, so that no Machine of another template is created.
        ([], None) => {
            (0..sets.len()).rfind(|index| !has_no_machines(&sets[*index])).or(sets.len().checked_sub(1))
        }
        // A resting deployment is still scaled, even if its template has changed.
        ([only], _) if rests || Some(*only) == new => Some(*only),
        ([_, ..], _) => None,
    };
    match (only, new) {
        (Some(only), _) => all.alone(only),
        (None, _) if all.is_scaled() => {
            let why =
                Why::new(Reason::Writing("scaling the MachineSets"), Step::Expect("the rollout continues"));
            Sizes { replicas: all.proportionally(new), why }
        }
        (None, Some(new)) if !rests => all.roll(new),
        (None, _) => Sizes { replicas: all.specified.clone(), why: all.settling() },
    }
}

/// Whether a deployment rests: it takes no rollout step and is only scaled.
pub(crate) fn rests(deployment: &MachineDeploymentFacts, sets: &[Owned]) -> bool {
    let is_updating = || !deployment.is_in_place() && updating_in_place(sets).is_some();
    deployment.spec.is_paused() || is_updating()
}

/// Whether Machines of old templates have to go before any of the deployment's template is created.
pub(crate) fn is_recreating(deployment: &MachineDeploymentFacts, sets: &[Owned], new: Option<usize>) -> bool {
    let mut others = sets.iter().enumerate().filter(|(index, _)| Some(*index) != new);
    let is_left = |owned: &Owned| 0 < specified(owned) || !has_no_machines(owned);
    deployment.recreates() && !rests(deployment, sets) && others.any(|(_, owned)| is_left(owned))
}

/// Returns the first Machine with a running or failed in-place update. Machines that are being
/// deleted do not count.
pub(crate) fn updating_in_place(sets: &[Owned]) -> Option<&MachineFacts> {
    let staying = sets.iter().filter(|owned| owned.set.deleting_since.is_none());
    let mut machines = staying.flat_map(|owned| &owned.machines);
    machines.find(|machine| is_live(machine) && machine.is_updating_in_place()).map(Arc::as_ref)
}

/// Returns the replicas in a set's spec; 0 if the set is being deleted.
pub(crate) fn specified(owned: &Owned) -> u32 {
    if owned.set.deleting_since.is_some() { 0 } else { owned.set.replicas() }
}

/// Returns the number of Machines of a set, without those that are being deleted.
fn live(owned: &Owned) -> u32 {
    let live = owned.machines.iter().filter(|machine| is_live(machine)).count();
    number(live).saturating_add(owned.unreadable)
}

/// Whether a set has no Machines.
pub(crate) fn has_no_machines(owned: &Owned) -> bool {
    owned.machines.is_empty() && owned.unreadable == 0
}

struct Sets<'s> {
    deployment: &'s MachineDeploymentFacts,
    sets: &'s [Owned],
    specified: Vec<u32>,
    now: Timestamp,
    /// For each set, the order in which it deletes its Machines. Most decisions need none, and it
    /// sorts all Machines of a set.
    orders: Vec<OnceCell<Order>>,
}

impl<'s> Sets<'s> {
    fn of(now: Timestamp, deployment: &'s MachineDeploymentFacts, sets: &'s [Owned]) -> Self {
        let orders = sets.iter().map(|_| OnceCell::new()).collect();
        Sets { deployment, sets, specified: sets.iter().map(specified).collect(), now, orders }
    }

    /// Returns the order in which a set deletes its Machines.
    fn order(&self, index: usize) -> &Order {
        self.orders[index].get_or_init(|| Order::of(self.now, &self.sets[index]))
    }

    /// Returns the maximum number of Machines.
    fn most(&self) -> u32 {
        self.deployment.replicas().saturating_add(self.deployment.max_surge())
    }

    /// Returns the minimum number of available Machines.
    fn fewest(&self) -> u32 {
        let kept = total((0..self.sets.len()).map(|index| self.order(index).kept));
        self.places().saturating_sub(kept)
    }

    /// Returns the minimum total of the sets' replicas, available or not.
    fn places(&self) -> u32 {
        self.deployment.replicas().saturating_sub(self.deployment.max_unavailable())
    }

    /// Returns how many Machines of a set exist or will exist: the maximum of its replicas and its
    /// Machines.
    fn present(&self, index: usize) -> u32 {
        self.specified[index].max(self.existing(index))
    }

    /// Returns how many Machines of a set exist, including those that are being deleted.
    fn existing(&self, index: usize) -> u32 {
        let owned = &self.sets[index];
        number(owned.machines.len()).saturating_add(owned.unreadable)
    }

    fn present_in_all(&self) -> u32 {
        total((0..self.sets.len()).map(|index| self.present(index)))
    }

    /// Returns how many Machines may be added.
    fn room(&self) -> u32 {
        self.most().saturating_sub(self.present_in_all())
    }

    /// Returns how many available Machines of a set remain with that many replicas, by the order in
    /// which the set deletes its Machines.
    fn certain(&self, index: usize, replicas: u32) -> u32 {
        self.order(index).certain(replicas)
    }

    /// Returns how many of that many replicas are deleted before any available or preserved
    /// Machine.
    fn harmless(&self, index: usize, replicas: u32) -> u32 {
        let order = self.order(index);
        let most = replicas.saturating_sub(order.certain(replicas)).saturating_sub(order.kept);
        order.cut_within(replicas, most, 0)
    }

    /// Sizes a deployment with one set for all Machines: the set gets the desired replicas, limited
    /// by leftovers of other sets.
    fn alone(&self, only: usize) -> Sizes {
        let wanted = self.deployment.replicas();
        let others = (0..self.sets.len()).filter(|index| *index != only);
        let leftovers = total(others.map(|index| self.present(index)));
        // With `Recreate`, no set grows while Machines of another template exist.
        let most = if self.deployment.recreates() && 0 < leftovers {
            self.specified[only]
        } else {
            self.most().saturating_sub(leftovers)
        };
        let mut replicas = self.specified.clone();
        replicas[only] = wanted.min(most.max(self.specified[only]));
        let why = if replicas[only] < wanted { self.surge_bound(only) } else { self.settling() };
        Sizes { replicas, why }
    }

    /// Empties all sets except the new one, which creates no Machine while the others have
    /// Machines.
    fn emptied(&self, new: Option<usize>) -> Sizes {
        let mut replicas = vec![0; self.sets.len()];
        if let Some(new) = new {
            let wanted = self.specified[new].min(self.deployment.replicas());
            replicas[new] = wanted.min(live(&self.sets[new]));
        }
        Sizes { replicas, why: self.why_emptied(new) }
    }

    fn why_emptied(&self, new: Option<usize>) -> Why {
        let old = || self.sets.iter().enumerate().filter(|(index, _)| Some(*index) != new);
        let machines = || old().flat_map(|(_, owned)| &owned.machines);
        let unreadable = total(old().map(|(_, owned)| owned.unreadable));
        let first = machines().next().map(|machine| machine.name.clone());
        let next = match &first {
            None if 0 < unreadable => Step::Fix(
                "correct the Machines that cannot be parsed; their MachineSets name them".to_owned(),
            ),
            _ => Step::Expect("the Machines of the new template are created after the old ones are gone"),
        };
        let left = number(machines().count()).saturating_add(unreadable);
        match left {
            0 => Why::new(Reason::Writing("scaling down the old MachineSets"), next),
            left => Why::new(McmReason::MachinesLeaving { left, first }, next),
        }
    }

    /// Whether the deployment's replicas have changed since its sets were last sized.
    fn is_scaled(&self) -> bool {
        let differs = |owned: &Owned| {
            let desired: Option<u32> =
                owned.set.annotation(annotations::DESIRED_REPLICAS).and_then(|text| text.parse().ok());
            desired.is_some_and(|desired| desired != self.deployment.replicas())
        };
        self.sets.iter().zip(&self.specified).any(|(owned, specified)| 0 < *specified && differs(owned))
    }

    /// Scales during a rollout: the new set grows, and all sets shrink in proportion to their size.
    fn proportionally(&self, new: Option<usize>) -> Vec<u32> {
        let wanted = self.deployment.replicas();
        let allowed = if wanted == 0 { 0 } else { self.most() };
        let now = total(self.specified.iter().copied());
        if now <= allowed {
            let mut replicas = self.specified.clone();
            let staying = |index: &usize| self.sets[*index].set.deleting_since.is_none();
            if let Some(grows) = new.or_else(|| (0..self.sets.len()).rfind(staying)) {
                // Existing Machines, including those being deleted, reduce the room.
                replicas[grows] +=
                    (allowed - now).min(self.room()).min(wanted.saturating_sub(replicas[grows]));
            }
            return replicas;
        }
        let surplus = now - allowed;
        let mut order: Vec<usize> = (0..self.sets.len()).collect();
        order.sort_by_key(|index| (Reverse(self.specified[*index]), self.sets[*index].set.created, *index));
        let mut shrinking = Shrinking::new(self);
        let mut rest = surplus;
        // A Machine that the autoscaler chose is taken from its own set; otherwise another Machine
        // would be deleted.
        for index in &order {
            rest -= shrinking.cut(*index, self.chosen(*index).min(rest));
        }
        for index in &order {
            let share = shrinking.replicas[*index].saturating_sub(self.fair(*index, allowed));
            rest -= shrinking.cut(*index, share.min(rest));
        }
        // The rest, from rounding or from Machines that had to stay available, is taken from any
        // set.
        for index in order {
            rest -= shrinking.cut(index, rest);
        }
        shrinking.replicas
    }

    /// Returns a set's share of `allowed`, in proportion to its share when the deployment was last
    /// sized; rounded to the nearest.
    fn fair(&self, index: usize, allowed: u32) -> u32 {
        let specified = self.specified[index];
        let annotated = self.sets[index].set.annotation(annotations::MAX_REPLICAS);
        let in_status = || u32::try_from(self.deployment.status.as_ref()?.replicas).ok();
        let before =
            annotated.and_then(|text| text.parse().ok()).or_else(in_status).filter(|before| 0 < *before);
        let Some(before) = before.map(u128::from) else { return specified };
        let doubled = 2 * u128::from(specified) * u128::from(allowed) + before;
        u32::try_from(doubled / (2 * before)).unwrap_or(specified)
    }

    /// Returns how many Machines of a set the autoscaler chose for deletion.
    fn chosen(&self, index: usize) -> u32 {
        let machines = self.sets[index].machines.iter();
        number(machines.filter(|machine| is_live(machine) && is_chosen(machine)).count())
    }

    fn roll(&self, new: usize) -> Sizes {
        let wanted = self.deployment.replicas();
        let mut next = self.specified.clone();
        next[new] = if self.specified[new] < wanted {
            self.specified[new] + self.room().min(wanted - self.specified[new])
        } else {
            wanted
        };
        // For the new set, the smaller of its current and its next replicas counts.
        let new_specified = self.specified[new].min(next[new]);
        let new_certain = self.certain(new, new_specified);
        let mut old: Vec<usize> =
            (0..self.sets.len()).filter(|index| *index != new && 0 < self.specified[*index]).collect();
        old.sort_by_key(|index| (self.sets[*index].set.created, *index));
        let certain = |index: usize| self.certain(index, self.specified[index]);
        let old_specified = total(old.iter().map(|index| self.specified[*index]));
        let old_certain = total(old.iter().map(|index| certain(*index)));

        // Sizes are lowered first where the set deletes unavailable Machines, because that costs no
        // availability. As many stay as the new set lacks, so that a broken new template does not
        // empty the old sets.
        let new_lacks = new_specified - new_certain;
        let mut may_go = old_specified
            .saturating_add(new_specified)
            .saturating_sub(self.places())
            .saturating_sub(new_lacks);
        for index in &old {
            let goes = self.harmless(*index, self.specified[*index]).min(may_go);
            next[*index] -= goes;
            may_go -= goes;
        }
        let mut spare = old_certain.saturating_add(new_certain).saturating_sub(self.fewest()).min(may_go);
        for index in &old {
            let goes = self.order(*index).cut_within(next[*index], may_go, spare);
            let before = self.certain(*index, next[*index]);
            next[*index] -= goes;
            spare -= before - self.certain(*index, next[*index]);
            may_go -= goes;
        }
        let why = if next == self.specified { self.blocked(new) } else { self.rolling(new) };
        Sizes { replicas: next, why }
    }

    fn rolling(&self, new: usize) -> Why {
        let reason = McmReason::RollingOut {
            updated: available(&self.sets[new]),
            desired: self.deployment.replicas(),
        };
        Why::new(reason, Step::Expect("old Machines are deleted after new ones become Running"))
    }

    /// Returns which bound blocks the rollout, and which Machine it waits for.
    fn blocked(&self, new: usize) -> Why {
        let wants_more = self.specified[new] < self.deployment.replicas();
        if wants_more && self.room() == 0 {
            return self.surge_bound(new);
        }
        let available = total((0..self.sets.len()).map(|index| self.certain(index, self.specified[index])));
        let waiting_for = pending(&self.sets[new]).or_else(|| self.sets.iter().find_map(pending));
        let reason = McmReason::UnavailableBound { available, fewest: self.fewest(), waiting_for };
        Why::new(reason, Step::Expect("an old Machine is deleted after a new one becomes Running"))
    }

    fn surge_bound(&self, growing: usize) -> Why {
        let leaving = self.leaving().next().map(|machine| machine.to_owned());
        let waiting_for = leaving.or_else(|| pending(&self.sets[growing]));
        let reason =
            McmReason::SurgeBound { machines: self.present_in_all(), most: self.most(), waiting_for };
        Why::new(reason, Step::Expect("an old Machine is deleted after a new one becomes Running"))
    }

    /// Returns the reason while all sizes are final and Machines are still pending or being
    /// deleted.
    fn settling(&self) -> Why {
        let desired = self.deployment.replicas();
        let available = total(self.sets.iter().map(available));
        if available < desired {
            let first = self.sets.iter().find_map(pending);
            let reason = McmReason::MachinesPending { available, desired, first };
            return Why::new(reason, Step::Expect("the Machines become Running"));
        }
        let leaving = number(self.leaving().count());
        if 0 < leaving || desired < available {
            let left = leaving.max(available.saturating_sub(desired));
            let first = self.leaving().next().map(str::to_owned);
            return Why::new(
                McmReason::MachinesLeaving { left, first },
                Step::Expect("the Machines are drained and deleted"),
            );
        }
        Why::up_to_date()
    }

    /// Returns the names of the Machines that are being deleted.
    fn leaving(&self) -> impl Iterator<Item = &str> {
        let machines = self.sets.iter().flat_map(|owned| &owned.machines);
        machines.filter(|machine| !is_live(machine)).map(|machine| machine.name.as_str())
    }
}

/// The Machines of a set in the order in which the set deletes them. The order begins with the
/// priority of a Machine, so an available Machine may precede an unavailable one.
struct Order {
    /// Groups of Machines in the order of their deletion: the number of Machines, and whether they
    /// are available.
    runs: Vec<(u32, bool)>,
    /// Number of preserved Machines that are not available. They are deleted last.
    kept: u32,
    /// Number of available Machines that were updated in place. The set never deletes them.
    staying: u32,
}

impl Order {
    /// Sorts the Machines of a set, and those that it is about to create. A set that is being
    /// deleted counts as empty.
    fn of(now: Timestamp, owned: &Owned) -> Self {
        let set = &owned.set;
        let mut order = Self { runs: Vec::new(), kept: 0, staying: 0 };
        if set.deleting_since.is_some() {
            return order;
        }
        let mut places: Vec<(Place<'_>, u32, bool)> = Vec::new();
        // The set deletes neither Machines that it cannot read nor those that were updated in
        // place.
        let mut unremovable = owned.unreadable;
        // The set deletes a marked Machine even if it is not surplus, and then creates another one.
        let staying = owned.machines.iter().filter(|machine| is_live(machine) && !is_marked(set, machine));
        for machine in staying {
            let is_available = is_available(machine);
            if machine.is_updated_in_place() {
                unremovable += 1;
                order.staying += u32::from(is_available);
                continue;
            }
            let preserved = machine.preserved(now);
            order.kept += u32::from(!is_available && preserved.is_some());
            let place = match (&machine.status.phase, preserved) {
                // The set replaces a failed Machine before or after it gets its new size.
                (Phase::Failed, None) => place(machine, None).max(place_of_new(set)),
                (_, preserved) => place(machine, preserved),
            };
            places.push((place, 1, is_available));
        }
        let missing = specified(owned).saturating_sub(number(places.len()).saturating_add(unremovable));
        if 0 < missing {
            places.push((place_of_new(set), missing, false));
        }
        places.sort();
        order.runs = places.into_iter().map(|(_, count, is_available)| (count, is_available)).collect();
        order
    }

    /// Returns how many available Machines remain with that many replicas.
    fn certain(&self, replicas: u32) -> u32 {
        let (mut left, mut available) = (replicas, self.staying);
        for (count, is_available) in self.runs.iter().rev() {
            let stays = left.min(*count);
            left -= stays;
            available += if *is_available { stays } else { 0 };
        }
        available.min(replicas)
    }

    /// Returns by how many, up to `most`, that many replicas can be lowered so that at most `spare`
    /// available Machines are deleted.
    fn cut_within(&self, replicas: u32, most: u32, spare: u32) -> u32 {
        let fewest = self.certain(replicas).saturating_sub(spare);
        let (mut fits, mut most) = (0, most.min(replicas));
        // The number that remains only falls with the size, so this search by halves ends.
        while fits < most {
            let middle = most - (most - fits) / 2;
            if fewest <= self.certain(replicas - middle) { fits = middle } else { most = middle - 1 }
        }
        fits
    }
}

/// Lowers replicas of sets while enough Machines stay available.
struct Shrinking<'s> {
    sets: &'s Sets<'s>,
    replicas: Vec<u32>,
    /// Number of available Machines that may still be deleted.
    spare: u32,
}

impl<'s> Shrinking<'s> {
    fn new(sets: &'s Sets<'s>) -> Self {
        let available = total((0..sets.sets.len()).map(|index| sets.certain(index, sets.specified[index])));
        Self { sets, replicas: sets.specified.clone(), spare: available.saturating_sub(sets.fewest()) }
    }

    /// Takes up to `wanted` replicas from a set, and returns how many.
    fn cut(&mut self, index: usize, wanted: u32) -> u32 {
        let now = self.replicas[index];
        let cut = self.sets.order(index).cut_within(now, wanted, self.spare);
        self.spare -= self.sets.certain(index, now) - self.sets.certain(index, now - cut);
        self.replicas[index] -= cut;
        cut
    }
}

/// Returns the sum of counts, saturated because a set's replicas may be any number.
fn total(counts: impl Iterator<Item = u32>) -> u32 {
    counts.fold(0, u32::saturating_add)
}

fn available(owned: &Owned) -> u32 {
    number(owned.machines.iter().filter(|machine| is_available(machine)).count())
}

/// Returns the first Machine of a set that is neither available nor being deleted.
fn pending(owned: &Owned) -> Option<String> {
    let waits = owned.machines.iter().find(|machine| is_live(machine) && !is_available(machine));
    waits.map(|machine| machine.name.clone())
}

#[cfg(test)]
mod tests;
