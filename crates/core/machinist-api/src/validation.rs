//! Validation rules that the CRDs do not contain.
//!
//! The rules are Go MCM's, which only logs violations. Here a violation is a value, so that a
//! controller can report it to users. Four rules are ours. An absent selector is an error (Go
//! panics), and so is an invalid duration (Go cannot read the object at all), a negative limit, and
//! a selector that does not select the Machines of its template: a set would release each Machine
//! that it creates, and create another one.
//!
//! Deliberately absent: an empty selector is not an error here; the controller rejects it with an
//! Event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinist_labels::{MAX_VALUE_LEN, Selector};

use crate::constants::labels::{MACHINE_TEMPLATE_HASH, NODE, SELECTED_FOR_UPDATE, UPDATE_RESULT};
use crate::duration::DurationText;
use crate::mcm::{
    InPlaceUpdateStrategy, Machine, MachineClass, MachineDeployment, MachineSet, MachineSpec,
    MachineTemplateSpec, OrchestrationType, RollingUpdateStrategy, Strategy, StrategyType,
};
use crate::scaled_value::{Rounding, scaled_value};

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.class.name`.
    pub field: String,
    /// The expected value.
    pub expected: String,
    /// The actual value, or `nothing`.
    pub got: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, got {}", self.field, self.expected, self.got)
    }
}

impl std::error::Error for FieldError {}

const NOTHING: &str = "nothing";

/// Labels that the controllers write on one Machine, independently of its template. A set that
/// selects them would release its Machines, and create others.
const OF_ONE_MACHINE: [&str; 3] = [NODE, SELECTED_FOR_UPDATE, UPDATE_RESULT];

/// Resources that every usable class must name.
const REQUIRED_CAPACITY: [&str; 3] = ["cpu", "gpu", "memory"];

/// Validates a Machine.
pub fn validate_machine(machine: &Machine) -> Vec<FieldError> {
    let mut found = Findings::default();
    if let Some(error) = machine.metadata.name.as_deref().and_then(machine_name_error) {
        found.errors.push(error);
    }
    check_spec(&mut found, "spec", &machine.spec);
    found.errors
}

/// Validates the name of a Machine. The Node has it as a label value, and usually as its own name.
/// With a longer name, the Machine gets an instance but its Node cannot be labelled.
pub fn machine_name_error(name: &str) -> Option<FieldError> {
    (MAX_VALUE_LEN < name.len()).then(|| FieldError {
        field: "metadata.name".to_owned(),
        expected: format!("at most {MAX_VALUE_LEN} characters, since it becomes the value of a label"),
        got: format!("{} characters", name.len()),
    })
}

/// Validates the durations of a Machine.
pub fn machine_duration_error(spec: &MachineSpec) -> Option<FieldError> {
    let mut found = Findings::default();
    check_durations(&mut found, "spec", spec);
    found.errors.into_iter().next()
}

/// Validates a MachineSet.
pub fn validate_machine_set(set: &MachineSet) -> Vec<FieldError> {
    let mut found = Findings::default();
    check_replicas(&mut found, set.spec.replicas());
    check_selector(&mut found, set.spec.selector.as_ref(), &set.spec.template, None);
    check_spec(&mut found, "spec.template.spec", &set.spec.template.spec);
    found.errors
}

/// Validates a MachineDeployment.
pub fn validate_machine_deployment(deployment: &MachineDeployment) -> Vec<FieldError> {
    let mut found = Findings::default();
    check_replicas(&mut found, deployment.spec.replicas());
    let (selector, template) = (deployment.spec.selector.as_ref(), &deployment.spec.template);
    check_selector(&mut found, selector, template, Some(MACHINE_TEMPLATE_HASH));
    check_strategy(&mut found, deployment.spec.strategy.as_ref());
    check_spec(&mut found, "spec.template.spec", &deployment.spec.template.spec);
    found.errors
}

/// Validates a MachineClass that a Machine uses. The driver validates `providerSpec`.
pub fn validate_machine_class(class: &MachineClass) -> Vec<FieldError> {
    let mut found = Findings::default();
    if class.provider_spec.is_null() {
        found.add("providerSpec", "an object", NOTHING);
    }
    if let Some(template) = &class.node_template {
        for resource in REQUIRED_CAPACITY {
            if !template.capacity.contains_key(resource) {
                found.add(&format!("nodeTemplate.capacity.{resource}"), "a quantity", NOTHING);
            }
        }
        found.require("nodeTemplate.instanceType", "an instance type", &template.instance_type);
        found.require("nodeTemplate.region", "a region", &template.region);
        found.require("nodeTemplate.zone", "a zone", &template.zone);
    }
    found.errors
}

#[derive(Default)]
struct Findings {
    errors: Vec<FieldError>,
}

impl Findings {
    fn add(&mut self, field: &str, expected: &str, got: impl Into<String>) {
        self.errors.push(FieldError {
            field: field.to_owned(),
            expected: expected.to_owned(),
            got: got.into(),
        });
    }

    fn require(&mut self, field: &str, expected: &str, text: &str) {
        if text.is_empty() {
            self.add(field, expected, NOTHING);
        }
    }
}

fn check_spec(found: &mut Findings, path: &str, spec: &MachineSpec) {
    found.require(&format!("{path}.class.kind"), "MachineClass", spec.class.kind());
    found.require(&format!("{path}.class.name"), "the name of a MachineClass", spec.class.name());
    check_durations(found, path, spec);
}

fn check_durations(found: &mut Findings, path: &str, spec: &MachineSpec) {
    let configuration = &spec.configuration;
    for (name, duration) in [
        ("drainTimeout", &configuration.drain_timeout),
        ("healthTimeout", &configuration.health_timeout),
        ("creationTimeout", &configuration.creation_timeout),
        ("inPlaceUpdateTimeout", &configuration.in_place_update_timeout),
        ("machinePreserveTimeout", &configuration.machine_preserve_timeout),
    ] {
        if let Some(DurationText::Invalid(text)) = duration {
            found.add(&format!("{path}.{name}"), "a duration such as 20m or 1h30m", format!("{text:?}"));
        }
    }
}

fn check_replicas(found: &mut Findings, replicas: i32) {
    if replicas < 0 {
        found.add("spec.replicas", "0 or more", replicas.to_string());
    }
}

/// Checks that a selector selects the labels of the template. The controller adds the label `added`
/// with a value that is not known yet.
fn check_selector(
    found: &mut Findings,
    selector: Option<&LabelSelector>,
    template: &MachineTemplateSpec,
    added: Option<&str>,
) {
    let Some(selector) = selector else {
        found.add("spec.selector", "a label selector", NOTHING);
        return;
    };
    for key in selected_keys(selector).filter(|key| OF_ONE_MACHINE.contains(key)) {
        let expected =
            format!("no requirement on the label {key}, which the controllers write on each Machine");
        found.add("spec.selector", &expected, "one");
    }
    for (key, wanted) in selector.match_labels.iter().flatten() {
        let got = template.metadata.labels.get(key);
        if got != Some(wanted) {
            found.add(
                "spec.selector.matchLabels",
                &format!("the template's label {key} to be {wanted:?}"),
                shown(got),
            );
        }
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("spec.selector.matchExpressions[{index}]");
        if !check_expression(found, &path, expression) {
            continue;
        }
        if added != Some(&*expression.key) {
            check_match(found, &path, expression, &template.metadata.labels);
        } else if expression.operator == "DoesNotExist" {
            let expected = format!("another key than {}, which the controller adds", expression.key);
            found.add(&path, &expected, "DoesNotExist");
        }
    }
}

fn selected_keys(selector: &LabelSelector) -> impl Iterator<Item = &str> {
    let exact = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    exact.chain(selector.match_expressions.iter().flatten().map(|expression| expression.key.as_str()))
}

fn shown(value: Option<&String>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| format!("{value:?}"))
}

/// Checks operator and values of an expression, and returns whether they are valid.
fn check_expression(found: &mut Findings, path: &str, expression: &LabelSelectorRequirement) -> bool {
    let has_values = expression.values.iter().flatten().next().is_some();
    match (expression.operator.as_str(), has_values) {
        ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => return true,
        ("In" | "NotIn", false) => found.add(&format!("{path}.values"), "at least one value", NOTHING),
        ("Exists" | "DoesNotExist", true) => {
            let values = expression.values.as_deref().unwrap_or_default().join(", ");
            found.add(
                &format!("{path}.values"),
                &format!("no values with the operator {}", expression.operator),
                values,
            );
        }
        (operator, _) => {
            let got = if operator.is_empty() { NOTHING.to_owned() } else { format!("{operator:?}") };
            found.add(&format!("{path}.operator"), "In, NotIn, Exists or DoesNotExist", got);
        }
    }
    false
}

/// Checks that an expression selects these labels.
fn check_match(
    found: &mut Findings,
    path: &str,
    expression: &LabelSelectorRequirement,
    labels: &BTreeMap<String, String>,
) {
    let LabelSelectorRequirement { key, operator, values } = expression;
    let values: BTreeSet<String> = values.iter().flatten().cloned().collect();
    let mut selector = Selector::default();
    selector.add_expression(key.clone(), operator, values.clone());
    if selector.selects(labels) {
        return;
    }
    let listed = values.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let wanted = match operator.as_str() {
        "In" => format!("to be one of {listed}"),
        "NotIn" => format!("to be none of {listed}"),
        "Exists" => "to exist".to_owned(),
        _ => "to be absent".to_owned(),
    };
    found.add(path, &format!("the template's label {key} {wanted}"), shown(labels.get(key)));
}

fn check_strategy(found: &mut Findings, strategy: Option<&Strategy>) {
    const EXPECTED: &str = "RollingUpdate, Recreate or InPlaceUpdate";
    let Some((strategy, type_)) = strategy.and_then(|strategy| Some((strategy, strategy.type_.as_ref()?)))
    else {
        found.add("spec.strategy.type", EXPECTED, NOTHING);
        return;
    };
    match type_ {
        StrategyType::Recreate => {}
        StrategyType::RollingUpdate => check_rolling_update(found, strategy.rolling_update.as_ref()),
        StrategyType::InPlaceUpdate => check_in_place_update(found, strategy.in_place_update.as_ref()),
        StrategyType::Other(text) => found.add("spec.strategy.type", EXPECTED, format!("{text:?}")),
    }
}

fn check_rolling_update(found: &mut Findings, bounds: Option<&RollingUpdateStrategy>) {
    const PATH: &str = "spec.strategy.rollingUpdate";
    let Some(bounds) = bounds else {
        found.add(PATH, "maxSurge and maxUnavailable", NOTHING);
        return;
    };
    check_bounds(found, PATH, bounds.max_unavailable.as_ref(), bounds.max_surge.as_ref());
}

fn check_in_place_update(found: &mut Findings, bounds: Option<&InPlaceUpdateStrategy>) {
    const PATH: &str = "spec.strategy.inPlaceUpdate";
    let Some(bounds) = bounds else {
        found.add(PATH, "maxSurge, maxUnavailable and orchestrationType", NOTHING);
        return;
    };
    check_bounds(found, PATH, bounds.max_unavailable.as_ref(), bounds.max_surge.as_ref());
    let got = match &bounds.orchestration_type {
        Some(OrchestrationType::Auto | OrchestrationType::Manual) => return,
        Some(OrchestrationType::Other(text)) => format!("{text:?}"),
        None => NOTHING.to_owned(),
    };
    found.add("spec.strategy.inPlaceUpdate.orchestrationType", "Auto or Manual", got);
}

fn check_bounds(
    found: &mut Findings,
    path: &str,
    max_unavailable: Option<&IntOrString>,
    max_surge: Option<&IntOrString>,
) {
    /// The total does not matter for whether a limit can be parsed.
    const TOTAL: i32 = 100;
    let bounds = [("maxUnavailable", max_unavailable, Rounding::Down), ("maxSurge", max_surge, Rounding::Up)];
    for (name, value, rounding) in bounds {
        let got = match value {
            Some(value) if scaled_value(value, TOTAL, rounding).is_some() => continue,
            Some(IntOrString::Int(count)) => count.to_string(),
            Some(IntOrString::String(text)) => format!("{text:?}"),
            None => NOTHING.to_owned(),
        };
        found.add(&format!("{path}.{name}"), "a number of 0 or more, or a percentage such as 25%", got);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told<K: serde::de::DeserializeOwned>(
        validate: fn(&K) -> Vec<FieldError>,
        object: Value,
    ) -> Vec<String> {
        let object = serde_json::from_value(object).expect("a readable object");
        validate(&object).iter().map(ToString::to_string).collect()
    }

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"name": "w"}},
            "spec": {"class": {"kind": "MachineClass", "name": "c"}},
        })
    }

    fn deployment(strategy: Value) -> Value {
        json!({"spec": {"selector": {"matchLabels": {"name": "w"}}, "template": template(), "strategy": strategy}})
    }

    #[test]
    fn a_machine_needs_a_class_and_readable_durations() {
        let good = json!({"spec": {"class": {"kind": "MachineClass", "name": "c"}, "drainTimeout": "5m"}});
        assert_eq!(told(validate_machine, good), [""; 0]);
        let bad = json!({"spec": {"class": {"kind": ""}, "healthTimeout": "10 minutes"}});
        assert_eq!(
            told(validate_machine, bad),
            [
                "spec.class.kind: expected MachineClass, got nothing",
                "spec.class.name: expected the name of a MachineClass, got nothing",
                "spec.healthTimeout: expected a duration such as 20m or 1h30m, got \"10 minutes\"",
            ]
        );
    }

    #[test]
    fn a_machine_name_must_be_a_label_value() {
        let named = |name: String| {
            let machine =
                json!({"metadata": {"name": name}, "spec": {"class": {"kind": "MachineClass", "name": "c"}}});
            told(validate_machine, machine)
        };
        assert_eq!(named("m".repeat(63)), [""; 0]);
        assert_eq!(
            named("m".repeat(64)),
            [
                "metadata.name: expected at most 63 characters, since it becomes the value of a label, got 64 characters"
            ]
        );
    }

    #[test]
    fn a_set_must_select_its_own_template() {
        let bad = json!({"spec": {
            "replicas": -1,
            "selector": {"matchLabels": {"name": "v", "tier": "a"}},
            "template": template(),
        }});
        assert_eq!(
            told(validate_machine_set, bad),
            [
                "spec.replicas: expected 0 or more, got -1",
                "spec.selector.matchLabels: expected the template's label name to be \"v\", got \"w\"",
                "spec.selector.matchLabels: expected the template's label tier to be \"a\", got nothing",
            ]
        );
        assert_eq!(
            told(validate_machine_set, json!({"spec": {}})),
            [
                "spec.selector: expected a label selector, got nothing",
                "spec.template.spec.class.kind: expected MachineClass, got nothing",
                "spec.template.spec.class.name: expected the name of a MachineClass, got nothing",
            ]
        );
    }

    #[test]
    fn expressions_must_select_the_template_too() {
        let told_of = |expressions: Value| {
            let set =
                json!({"spec": {"selector": {"matchExpressions": expressions}, "template": template()}});
            let mut whole = deployment(json!({"type": "Recreate"}));
            whole["spec"]["selector"]["matchExpressions"] = expressions.clone();
            let both = [told(validate_machine_set, set), told(validate_machine_deployment, whole)];
            assert_eq!(both[0], both[1], "{expressions}");
            both[0].clone()
        };
        let good = json!([
            {"key": "name", "operator": "In", "values": ["v", "w"]},
            {"key": "name", "operator": "NotIn", "values": ["v"]},
            {"key": "name", "operator": "Exists"},
            {"key": "tier", "operator": "DoesNotExist"},
        ]);
        assert_eq!(told_of(good), [""; 0]);
        let bad = json!([
            {"key": "name", "operator": "Maybe", "values": ["w"]},
            {"key": "name", "operator": "In"},
            {"key": "name", "operator": "Exists", "values": ["w"]},
            {"key": "name", "operator": "In", "values": ["u", "v"]},
            {"key": "tier", "operator": "Exists"},
        ]);
        assert_eq!(
            told_of(bad),
            [
                "spec.selector.matchExpressions[0].operator: expected In, NotIn, Exists or DoesNotExist, got \"Maybe\"",
                "spec.selector.matchExpressions[1].values: expected at least one value, got nothing",
                "spec.selector.matchExpressions[2].values: expected no values with the operator Exists, got w",
                "spec.selector.matchExpressions[3]: expected the template's label name to be one of u, v, got \"w\"",
                "spec.selector.matchExpressions[4]: expected the template's label tier to exist, got nothing",
            ]
        );
    }

    #[test]
    fn no_selector_may_depend_on_labels_of_one_machine() {
        let expected = |key: &str| {
            [format!(
                "spec.selector: expected no requirement on the label {key}, which the controllers write on each \
                 Machine, got one"
            )]
        };
        let mut object = deployment(json!({"type": "Recreate"}));
        object["spec"]["selector"]["matchLabels"]["node"] = "worker".into();
        object["spec"]["template"]["metadata"]["labels"]["node"] = "worker".into();
        assert_eq!(told(validate_machine_deployment, object.clone()), expected("node"));
        assert_eq!(told(validate_machine_set, object), expected("node"));
        let key = "node.machine.sapcloud.io/update-result";
        let absent = json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]});
        let set = json!({"spec": {"selector": absent, "template": template()}});
        assert_eq!(told(validate_machine_set, set), expected(key));
    }

    #[test]
    fn a_deployment_may_select_the_hash_that_its_sets_get() {
        let mut object = deployment(json!({"type": "Recreate"}));
        let exists = json!([{"key": "machine-template-hash", "operator": "Exists"}]);
        object["spec"]["selector"]["matchExpressions"] = exists.clone();
        assert_eq!(told(validate_machine_deployment, object), [""; 0]);
        let absent = json!([{"key": "machine-template-hash", "operator": "DoesNotExist"}]);
        let mut object = deployment(json!({"type": "Recreate"}));
        object["spec"]["selector"]["matchExpressions"] = absent;
        assert_eq!(
            told(validate_machine_deployment, object),
            [
                "spec.selector.matchExpressions[0]: expected another key than machine-template-hash, which the \
                 controller adds, got DoesNotExist"
            ]
        );
        let set = json!({"spec": {"selector": {"matchExpressions": exists}, "template": template()}});
        assert_eq!(
            told(validate_machine_set, set),
            [
                "spec.selector.matchExpressions[0]: expected the template's label machine-template-hash to exist, \
                 got nothing"
            ]
        );
    }

    #[test]
    fn a_deployment_needs_a_strategy_and_its_limits() {
        for (strategy, expected) in [
            (json!({"type": "Recreate"}), vec![]),
            (
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "10%"}}),
                vec![],
            ),
            (
                json!({"type": "InPlaceUpdate", "inPlaceUpdate":
                    {"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Manual"}}),
                vec![],
            ),
            (
                json!(null),
                vec!["spec.strategy.type: expected RollingUpdate, Recreate or InPlaceUpdate, got nothing"],
            ),
            (
                json!({"type": "Rolling"}),
                vec![
                    "spec.strategy.type: expected RollingUpdate, Recreate or InPlaceUpdate, got \"Rolling\"",
                ],
            ),
            (
                json!({"type": "RollingUpdate"}),
                vec!["spec.strategy.rollingUpdate: expected maxSurge and maxUnavailable, got nothing"],
            ),
            (
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "many"}}),
                vec![
                    "spec.strategy.rollingUpdate.maxUnavailable: expected a number of 0 or more, or a percentage \
                     such as 25%, got nothing",
                    "spec.strategy.rollingUpdate.maxSurge: expected a number of 0 or more, or a percentage such as \
                     25%, got \"many\"",
                ],
            ),
            (
                json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 0, "maxUnavailable": -1}}),
                vec![
                    "spec.strategy.inPlaceUpdate.maxUnavailable: expected a number of 0 or more, or a percentage \
                     such as 25%, got -1",
                    "spec.strategy.inPlaceUpdate.orchestrationType: expected Auto or Manual, got nothing",
                ],
            ),
        ] {
            assert_eq!(
                told(validate_machine_deployment, deployment(strategy.clone())),
                expected,
                "for {strategy}"
            );
        }
    }

    #[test]
    fn a_node_template_of_a_class_must_be_complete() {
        assert_eq!(told(validate_machine_class, json!({"providerSpec": {}})), [""; 0]);
        let bad = json!({"nodeTemplate": {"capacity": {"cpu": "2"}, "instanceType": "m", "region": "r"}});
        assert_eq!(
            told(validate_machine_class, bad),
            [
                "providerSpec: expected an object, got nothing",
                "nodeTemplate.capacity.gpu: expected a quantity, got nothing",
                "nodeTemplate.capacity.memory: expected a quantity, got nothing",
                "nodeTemplate.zone: expected a zone, got nothing",
            ]
        );
    }
}
