//! Where in its cloud the instance of a Machine is.
//!
//! An absence counts only in the place in which the instance was created. A class may name another
//! place tomorrow, so everything that was written before wins over the class.

use machinist_instance::Place;

/// Facts that name the place of a Machine's instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct PlaceFacts {
    /// The place that the recorded provider id contains.
    pub of_id: Option<Place>,
    /// The place that was recorded on the Machine together with the provider id.
    pub recorded: Option<Place>,
    /// The place of the first call of this process that may have created the instance.
    pub called: Option<Place>,
    /// The place in which the instance was to be created, as written before the first call.
    pub intended: Option<Place>,
    /// The place that the class names now; absent if it names none.
    pub of_class: Option<Place>,
}

impl PlaceFacts {
    /// Returns the place in which calls for the Machine are made; `None` if nothing names one.
    pub fn place(&self) -> Option<&Place> {
        self.known().or(self.of_class.as_ref())
    }

    /// Returns the place of the instance, and the place that the class names now, if these differ.
    pub(super) fn moved(&self) -> Option<(&Place, &Place)> {
        self.known().zip(self.of_class.as_ref()).filter(|(known, of_class)| known != of_class)
    }

    /// Returns the place that something other than the class names.
    fn known(&self) -> Option<&Place> {
        let known = [&self.of_id, &self.recorded, &self.called, &self.intended];
        known.into_iter().find_map(Option::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<Place> {
        Some(Place::new(text))
    }

    #[test]
    fn what_was_written_wins_over_the_class() {
        let mut facts = PlaceFacts { of_class: place("new"), ..PlaceFacts::default() };
        assert_eq!((facts.place().cloned(), facts.moved()), (place("new"), None));
        facts.intended = place("intended");
        assert_eq!(facts.place().cloned(), place("intended"));
        assert!(facts.moved().is_some());
        facts.called = place("called");
        assert_eq!(facts.place().cloned(), place("called"));
        facts.recorded = place("recorded");
        assert_eq!(facts.place().cloned(), place("recorded"));
        facts.of_id = place("new");
        assert_eq!((facts.place().cloned(), facts.moved()), (place("new"), None));
    }

    #[test]
    fn a_class_without_a_place_moves_nothing() {
        let facts = PlaceFacts { recorded: place("a"), ..PlaceFacts::default() };
        assert_eq!((facts.place().cloned(), facts.moved()), (place("a"), None));
    }
}
