//! The selectors of budgets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinist_labels::Selector;

/// Parses the selector of a budget. A budget without a selector selects no Pod. The error names the
/// invalid expression.
pub(crate) fn parse(selector: Option<&LabelSelector>) -> Result<Option<Selector>, String> {
    for expression in selector.iter().filter_map(|selector| selector.match_expressions.as_ref()).flatten() {
        let (operator, values) = (expression.operator.as_str(), expression.values.iter().flatten().count());
        match (operator, values) {
            ("In" | "NotIn", 1..) | ("Exists" | "DoesNotExist", 0) => {}
            (operator, values) => {
                return Err(format!(
                    "spec.selector.matchExpressions of {:?}: operator {operator:?} with {values} values; expected In or \
                     NotIn with values, or Exists or DoesNotExist without",
                    expression.key
                ));
            }
        }
    }
    Ok(selector.map(Selector::from))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    fn selects(selector: serde_json::Value, labels: &[(&str, &str)]) -> bool {
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        parse(Some(&selector)).expect("a valid selector").expect("present").selects(&labels)
    }

    #[test]
    fn no_selector_selects_nothing_and_an_empty_one_all() {
        assert_eq!(parse(None), Ok(None));
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
        let error = parse(Some(&selector)).expect_err("no such operator");
        assert!(error.contains("Like"), "{error}");
    }
}
