//! The drawn points.

use std::collections::BTreeSet;

use crate::requests::Program;

/// Event numbers and the controller to kill at each, in order.
#[derive(Debug)]
pub(super) struct Points {
    /// Event numbers, the next one last.
    left: Vec<(u32, Program)>,
    reached: u32,
}

impl Points {
    /// Draws `count` different events of the first `events`. The same seed draws the same points.
    pub(super) fn draw(seed: u64, count: u32, events: u32) -> Self {
        let mut draw = SplitMix64(seed);
        let mut numbers = BTreeSet::new();
        while numbers.len() < count.min(events) as usize {
            numbers.insert(draw.below(events));
        }
        let victims = [Program::MachineController, Program::Manager];
        let left =
            numbers.into_iter().rev().map(|number| (number, victims[draw.below(2) as usize])).collect();
        Self { left, reached: 0 }
    }

    /// The controller to kill at this event. If a kill was not possible at its event, the point is
    /// due at the next event.
    pub(super) fn due(&self, event: u32) -> Option<Program> {
        self.left.last().filter(|(number, _)| *number <= event).map(|(_, victim)| *victim)
    }

    /// Marks the due point as done.
    pub(super) fn done(&mut self) {
        self.reached += u32::from(self.left.pop().is_some());
    }

    /// The number of points done.
    pub(super) fn reached(&self) -> u32 {
        self.reached
    }
}

/// A well mixed sequence from a counter, which is enough here.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; its bias is negligible here.
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_different_ordered_and_the_same_for_the_same_seed() {
        let draw = |seed| {
            let mut points = Points::draw(seed, 20, 282);
            let mut numbers = Vec::new();
            for event in 0..282 {
                if let Some(victim) = points.due(event) {
                    numbers.push((event, victim));
                    points.done();
                }
            }
            assert_eq!(points.reached(), 20);
            numbers
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn an_unused_point_is_due_at_the_next_event() {
        let mut points = Points::draw(1, 1, 1);
        assert!(points.due(0).is_some() && points.due(5).is_some());
        points.done();
        assert_eq!(points.due(6), None);
    }
}
