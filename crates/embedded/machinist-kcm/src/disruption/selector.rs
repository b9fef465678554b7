//! Parses label selectors.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Selector for the Pods of a budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Selector {
    /// The budget has no selector, so it selects no Pod.
    Nothing,
    /// Selects Pods that meet all requirements; without requirements, every Pod.
    All(Vec<Requirement>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selector {
    /// Parses the selector of a budget. The error names the invalid expression.
    pub(crate) fn parse(selector: Option<&LabelSelector>) -> Result<Self, String> {
        let Some(selector) = selector else { return Ok(Self::Nothing) };
        let labels = selector.match_labels.iter().flatten();
        let equals = |(key, value): (&String, &String)| Requirement::In(key.clone(), [value.clone()].into());
        let mut requirements: Vec<Requirement> = labels.map(equals).collect();
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.clone();
            let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
            requirements.push(match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Requirement::In(key, values),
                ("NotIn", false) => Requirement::NotIn(key, values),
                ("Exists", true) => Requirement::Exists(key),
                ("DoesNotExist", true) => Requirement::DoesNotExist(key),
                (operator, _) => {
                    return Err(format!(
                        "spec.selector.matchExpressions of {key:?}: operator {operator:?} with {} values; expected In or \
                         NotIn with values, or Exists or DoesNotExist without",
                        values.len()
                    ));
                }
            });
        }
        Ok(Self::All(requirements))
    }

    /// Returns whether these labels are selected.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| requirement.is_met_by(labels)),
        }
    }
}

impl Requirement {
    fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: serde_json::Value, labels: &[(&str, &str)]) -> bool {
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Selector::parse(Some(&selector)).expect("a valid selector").selects(&labels)
    }

    #[test]
    fn no_selector_selects_nothing_and_an_empty_one_all() {
        assert!(!Selector::parse(None).expect("valid").selects(&BTreeMap::new()));
        assert!(selects(json!({}), &[]));
    }

    #[test]
    fn every_requirement_has_to_be_met() {
        let selector = json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "tier", "operator": "NotIn", "values": ["test"] },
                { "key": "zone", "operator": "Exists" },
                { "key": "old", "operator": "DoesNotExist" },
            ],
        });
        assert!(selects(selector.clone(), &[("app", "web"), ("zone", "a")]));
        assert!(!selects(selector.clone(), &[("app", "web")]));
        assert!(!selects(selector.clone(), &[("app", "db"), ("zone", "a")]));
        assert!(!selects(selector.clone(), &[("app", "web"), ("zone", "a"), ("tier", "test")]));
        assert!(!selects(selector, &[("app", "web"), ("zone", "a"), ("old", "")]));
    }

    #[test]
    fn an_unknown_operator_is_named() {
        let selector = json!({ "matchExpressions": [{ "key": "a", "operator": "Like", "values": ["b"] }] });
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        let error = Selector::parse(Some(&selector)).expect_err("no such operator");
        assert!(error.contains("Like"), "{error}");
    }
}
