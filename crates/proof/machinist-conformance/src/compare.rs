//! Compares our answers with the answers of a real server.
//!
//! The [ledger](crate::ledger) lists each known difference with the values of both
//! servers. Any other difference is a fault.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::ledger::DivergenceLedger;
use crate::run::Transcript;

/// One place at which the two answers to a step differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Id of the step.
    pub step: String,
    /// Place in the answer, as a JSON pointer: `/code`, `/headers/warning`, `/body/message`.
    pub pointer: String,
    /// Value in the real server's answer, if present.
    pub real: Option<Value>,
    /// Value in our answer, if present.
    pub ours: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (real, ours) = (shown(self.real.as_ref()), shown(self.ours.as_ref()));
        write!(f, "step {}, at {}: real {real}, ours {ours}", self.step, self.pointer)
    }
}

/// Result of comparing the answers to one case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// Number of compared answers.
    pub answers: usize,
    /// Differences that the ledger does not explain.
    pub differences: Vec<Difference>,
    /// Steps with a difference that the ledger explains.
    pub explained: Vec<String>,
    /// DivergenceLedger entries of this case that are no longer true.
    pub stale: Vec<String>,
}

impl Comparison {
    /// Reports whether every difference is in the ledger and every ledger entry is true.
    pub fn is_explained(&self) -> bool {
        self.differences.is_empty() && self.stale.is_empty()
    }

    /// Counts the steps with different answers.
    pub(crate) fn unequal_steps(&self) -> usize {
        let differ = self.differences.iter().map(|difference| &difference.step);
        differ.chain(&self.explained).collect::<BTreeSet<_>>().len()
    }

    /// Reports whether both servers answer `step` equally; without a step, all steps.
    pub fn is_equal(&self, step: Option<&str>) -> bool {
        let is_meant = |answered: &str| step.is_none_or(|step| step == answered);
        self.stale.is_empty()
            && !self.differences.iter().any(|difference| is_meant(&difference.step))
            && !self.explained.iter().any(|explained| is_meant(explained))
    }
}

/// Compares our answers with the real ones and sets aside the differences that the ledger lists for
/// the case.
pub fn compare(real: &Transcript, ours: &Transcript, ledger: &DivergenceLedger) -> Comparison {
    let (mut real_answers, mut our_answers) = (real.answers().to_vec(), ours.answers().to_vec());
    let mut comparison = Comparison { answers: real_answers.len(), ..Comparison::default() };
    // Backwards, so that removing items at the end of a list does not move others.
    let places: Vec<_> = ledger.places_of(real.case()).collect();
    for (entry, place) in places.into_iter().rev() {
        let of = |answers: &[Value]| answers.iter().position(|answer| answer["step"] == *place.step);
        let (Some(in_real), Some(in_ours)) = (of(&real_answers), of(&our_answers)) else {
            comparison.stale.push(format!("{entry}: step {:?} has no answer", place.step));
            continue;
        };
        let real = take(&mut real_answers[in_real], &place.pointer);
        let ours = take(&mut our_answers[in_ours], &place.pointer);
        if real == place.real && ours == place.ours && real != ours {
            comparison.explained.push(place.step.clone());
        } else {
            comparison.stale.push(format!(
                "{entry}: at {}{} the real server answers {}, we answer {}",
                place.step,
                place.pointer,
                shown(real.as_ref()),
                shown(ours.as_ref()),
            ));
        }
    }
    for index in 0..real_answers.len().max(our_answers.len()) {
        let (real, ours) = (real_answers.get(index), our_answers.get(index));
        let step = real.or(ours).and_then(|answer| answer["step"].as_str()).unwrap_or_default();
        find(step, String::new(), real, ours, &mut comparison.differences);
    }
    comparison
}

/// Removes the value at `pointer`, so that it is not compared again.
fn take(answer: &mut Value, pointer: &str) -> Option<Value> {
    let (above, key) = pointer.rsplit_once('/')?;
    match answer.pointer_mut(above)? {
        Value::Object(map) => map.remove(&key.replace("~1", "/").replace("~0", "~")),
        Value::Array(items) => {
            let index: usize = key.parse().ok()?;
            // An item in the middle is only emptied. Otherwise all following items would differ.
            if index + 1 == items.len() { items.pop() } else { items.get_mut(index).map(Value::take) }
        }
        _ => None,
    }
}

/// Collects every place at which two values differ. Pointers start with `at`.
pub(crate) fn find(
    step: &str,
    at: String,
    real: Option<&Value>,
    ours: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    if real == ours {
        return;
    }
    match (real, ours) {
        (Some(Value::Object(real)), Some(Value::Object(ours))) => {
            let missing = ours.keys().filter(|key| !real.contains_key(*key));
            for key in real.keys().chain(missing) {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                find(step, at, real.get(key), ours.get(key), found);
            }
        }
        (Some(Value::Array(real)), Some(Value::Array(ours))) => {
            for index in 0..real.len().max(ours.len()) {
                find(step, format!("{at}/{index}"), real.get(index), ours.get(index), found);
            }
        }
        _ => found.push(Difference {
            step: step.to_owned(),
            pointer: at,
            real: real.cloned(),
            ours: ours.cloned(),
        }),
    }
}

/// Renders a value on one line for people. Long values are truncated.
pub(crate) fn shown(value: Option<&Value>) -> String {
    const LONGEST: usize = 400;
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn transcript(message: &str, extra: Value) -> Transcript {
        let answer = json!({"step": "one", "code": 400, "body": {"message": message, "extra": extra}});
        Transcript::of("a-case", "v1", vec![answer])
    }

    fn ledger() -> DivergenceLedger {
        DivergenceLedger::parse(
            "- {id: words, reason: r, misleads: no client, review: 2030-01-01, at: [\
             {case: a-case, step: one, pointer: /body/message, real: theirs, ours: ours}]}",
        )
        .expect("a ledger")
    }

    #[test]
    fn a_difference_is_named_with_its_place() {
        let found = compare(
            &transcript("x", json!([1, 2])),
            &transcript("x", json!([1])),
            &DivergenceLedger::default(),
        );
        assert_eq!(
            found.differences,
            [Difference {
                step: "one".into(),
                pointer: "/body/extra/1".into(),
                real: Some(json!(2)),
                ours: None
            }]
        );
        assert!(!found.is_explained());
    }

    #[test]
    fn a_difference_in_the_ledger_is_explained_but_not_equal() {
        let found = compare(&transcript("theirs", json!(1)), &transcript("ours", json!(1)), &ledger());
        assert!(found.is_explained() && !found.is_equal(None) && found.is_equal(Some("two")), "{found:?}");
    }

    #[test]
    fn an_outdated_ledger_entry_is_stale() {
        for (real, ours) in [("ours", "ours"), ("theirs", "other"), ("changed", "ours")] {
            let found = compare(&transcript(real, json!(1)), &transcript(ours, json!(1)), &ledger());
            assert_eq!(found.stale.len(), 1, "{real} and {ours}: {found:?}");
            assert!(!found.is_explained());
        }
    }
}
