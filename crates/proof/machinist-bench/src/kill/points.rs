//! The drawn points.

use std::collections::{BTreeSet, VecDeque};

use crate::requests::Program;

/// Event numbers and the controller to kill at each, in order.
#[derive(Debug)]
pub(super) struct Points {
    /// Numbers of events since the last done point for drawn distances, otherwise since the first
    /// event. The next point is first.
    left: VecDeque<(u32, Program)>,
    /// The event from which the next number counts.
    from: u32,
    counts_from: CountsFrom,
    count: u32,
    reached: u32,
}

/// The event from which the number of a point counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountsFrom {
    FirstEvent,
    LastPoint,
}

impl Points {
    /// Draws `count` different events of the first `events`. The same seed draws the same points.
    pub(super) fn draw(seed: u64, count: u32, events: u32) -> Self {
        let mut draw = Draw::new(seed);
        let mut numbers = BTreeSet::new();
        while numbers.len() < count.min(events) as usize {
            numbers.insert(draw.below(events));
        }
        let left = numbers.into_iter().rev().map(|number| (number, draw.victim()));
        let left = left.collect::<Vec<_>>().into_iter().rev().collect();
        Self { left, from: 0, counts_from: CountsFrom::FirstEvent, count, reached: 0 }
    }

    /// Draws `count` distances between points, each of at most `most` events: for work that is
    /// repeated until all points are reached.
    pub(super) fn apart(seed: u64, count: u32, most: u32) -> Self {
        let mut draw = Draw::new(seed);
        let left = (0..count).map(|_| (1 + draw.below(most), draw.victim())).collect();
        Self { left, from: 0, counts_from: CountsFrom::LastPoint, count, reached: 0 }
    }

    /// The controller to kill at this event. If a kill was not possible at its event, the point is
    /// due at the next event.
    pub(super) fn due(&self, event: u32) -> Option<Program> {
        self.left.front().filter(|(number, _)| self.from + number <= event).map(|(_, victim)| *victim)
    }

    /// Marks the due point as done at this event.
    pub(super) fn done(&mut self, event: u32) {
        self.reached += u32::from(self.left.pop_front().is_some());
        if self.counts_from == CountsFrom::LastPoint {
            self.from = event;
        }
    }

    /// The number of points done.
    pub(super) fn reached(&self) -> u32 {
        self.reached
    }

    /// The number of points that were asked for.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

/// A well mixed sequence from a counter (SplitMix64), which is enough here.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; its bias is negligible here.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or_default()
    }

    fn victim(&mut self) -> Program {
        [Program::MachineController, Program::Manager][self.below(2) as usize]
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
                    points.done(event);
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
        points.done(5);
        assert_eq!(points.due(6), None);
    }

    #[test]
    fn a_distance_counts_from_the_last_point() {
        let mut points = Points::apart(3, 2, 1);
        assert_eq!(points.due(0), None);
        assert!(points.due(1).is_some());
        points.done(9);
        assert_eq!(points.due(9), None);
        assert!(points.due(10).is_some());
    }
}
