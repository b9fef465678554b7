//! Repeatable random choices: the same seed gives the same choices.

use serde_json::Value;

use machinist_apiserver::{Ids, SeededIds};

pub(super) struct Dice(SeededIds);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(SeededIds::new(seed))
    }

    /// Draws a number below `end`, which must not be 0.
    pub(super) fn below(&self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a table fits into memory");
        usize::try_from(self.0.bits() % end).expect("it is below a usize")
    }

    /// Returns true in `percent` percent of all calls.
    pub(super) fn chance(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn among<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Draws one of the choices, each with the probability of its weight.
    pub(super) fn weighted<T: Copy>(&self, choices: &[(usize, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Draws one element of a JSON array, or `None` if the array is empty.
    pub(super) fn element(&self, array: &Value) -> Option<Value> {
        array.as_array().filter(|items| !items.is_empty()).map(|items| items[self.below(items.len())].clone())
    }
}
