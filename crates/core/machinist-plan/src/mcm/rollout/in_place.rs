//! Sizes during an update in place.
//!
//! A Machine that was updated moves from its set to the new one, and both sizes follow it. So the
//! sizes of old sets only fall, and no Machine is deleted because of the rollout, with two
//! exceptions: the surplus that `maxSurge` created is deleted at the end, and a deployment that is
//! scaled down loses Machines of old templates first.
//!
//! The new set creates Machines only within `maxSurge`, and in place of Machines that are gone.

use machinist_api::constants::{conditions, labels};

use super::{Sets, Shrinking, Sizes, available, live, total};
use crate::mcm::live::{is_available, is_live};
use crate::mcm::machine_deployment::shows_stage;
use crate::mcm::why::{McmReason, Step, Why};

impl Sets<'_> {
    /// Decides the sizes during an update in place.
    pub(super) fn update_in_place(&self, new: usize) -> Sizes {
        let wanted = self.deployment.replicas();
        let mut next = self.specified.clone();
        let others = || (0..self.sets.len()).filter(|index| *index != new);
        for index in others().filter(|index| self.sets[*index].set.is_scale_up_disabled()) {
            // Machines that have moved or are gone are not replaced here.
            next[index] = next[index].min(live(&self.sets[index]));
        }
        let has_moved = self.sets[new].machines.iter().any(|m| is_live(m) && m.is_updated_in_place());
        let arrived = if has_moved { live(&self.sets[new]) } else { 0 };
        let counted = self.specified[new].max(arrived);
        let present = total(others().map(|index| self.existing(index).max(next[index])))
            .saturating_add(self.existing(new).max(counted));
        let room = self.most().saturating_sub(present);
        next[new] = match (wanted.checked_sub(counted), has_moved) {
            (Some(missing), _) => counted + room.min(missing),
            // The set deletes no Machine that has moved, until its size counts it.
            (None, true) => counted,
            (None, false) => wanted,
        };
        let is_filled = wanted <= self.specified[new] && wanted <= next[new];
        let old = total(others().map(|index| next[index]));
        let surplus = if is_filled { old } else { old.saturating_add(next[new]).saturating_sub(self.most()) };
        let mut shrinking = Shrinking::new(self);
        shrinking.replicas = next;
        let mut rest = surplus;
        let mut order: Vec<usize> = others().collect();
        order.sort_by_key(|index| (self.sets[*index].set.created, *index));
        for index in order {
            rest -= shrinking.cut(index, rest);
        }
        let why = self.why_in_place(new);
        Sizes { replicas: shrinking.replicas, why }
    }

    fn why_in_place(&self, new: usize) -> Why {
        let old = || (0..self.sets.len()).filter(|index| *index != new);
        let machines = || old().flat_map(|index| self.sets[index].machines.iter()).filter(|m| is_live(m));
        let (updated, desired) = (available(&self.sets[new]), self.deployment.replicas());
        if machines().next().is_none() {
            return self.settling();
        }
        let undergoing = machines().find(|machine| machine.undergoes_update());
        let waiting_for = undergoing.map(|machine| machine.name.clone());
        let hidden = machines().find(|machine| is_available(machine) && !shows_stage(machine));
        let next = match (&waiting_for, hidden, self.deployment.selects_for_update()) {
            (None, Some(hidden), true) => Step::Fix(format!(
                "if Machine {} gets no condition {} within a minute, check that its Node belongs to it and is \
                 managed; until then it may be in an update, so fewer others are selected",
                hidden.name,
                conditions::NODE_IN_PLACE_UPDATE
            )),
            (Some(_), _, _) => Step::Expect("the program on the Node reports the result of the update"),
            (None, None, true) => {
                Step::Expect("the next Machines are selected when enough others are available")
            }
            (None, _, false) => Step::Fix(format!(
                "select Nodes for the update with label {}=true",
                labels::SELECTED_FOR_UPDATE
            )),
        };
        Why::new(McmReason::UpdatingInPlace { updated, desired, waiting_for }, next)
    }
}
