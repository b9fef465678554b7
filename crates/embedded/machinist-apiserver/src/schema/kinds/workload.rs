//! Deployments, ReplicaSets, DaemonSets and StatefulSets, which create pods from a template.
//! Nothing here creates these pods. Drains read these kinds as the owners of pods, and clients
//! apply them.

use serde_json::{Value, json};

use crate::schema::crd::default;
use crate::schema::crd::schema::Schema;
use crate::schema::kinds::{Context, Part, Rules, notation, pod_template};
use crate::store::selector::Selector;
use crate::values::amount::{amount, at_most_all, not_negative, validate_amount};
use crate::values::meta;
use crate::values::object::{child_map, copy_meta, generation, metadata, set_meta};
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors};

/// Annotation that counts the templates of a DaemonSet, for clients older than the generation
/// field.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    Deployment,
    ReplicaSet,
    DaemonSet,
    StatefulSet,
}

impl Workload {
    /// Returns the name of the kind in errors. A ReplicaSet uses the name of the Deployment to
    /// which it usually belongs.
    fn word(self) -> &'static str {
        match self {
            Workload::Deployment | Workload::ReplicaSet => "deployment",
            Workload::DaemonSet => "daemonset",
            Workload::StatefulSet => "statefulset",
        }
    }

    /// Returns the name of the kind in the error about a deadline in the template.
    fn pod_owner(self) -> &'static str {
        match self {
            Workload::Deployment | Workload::ReplicaSet => "ReplicaSet",
            Workload::DaemonSet => "DaemonSet",
            Workload::StatefulSet => "StatefulSet",
        }
    }

    fn first_status(self) -> Value {
        match self {
            Workload::Deployment => json!({}),
            Workload::ReplicaSet => json!({"replicas": 0}),
            Workload::DaemonSet => json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0
            }),
            Workload::StatefulSet => json!({"replicas": 0, "availableReplicas": 0}),
        }
    }
}

impl Rules for Workload {
    fn fill_defaults(&self, object: &mut Value) {
        if let Some(spec) = object.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
            pod_template::fill_spec(spec);
        }
        let strategy = match self {
            Workload::Deployment => Some(("strategy", "DeploymentStrategy")),
            Workload::DaemonSet => Some(("updateStrategy", "DaemonSetUpdateStrategy")),
            Workload::StatefulSet => Some(("updateStrategy", "StatefulSetUpdateStrategy")),
            Workload::ReplicaSet => None,
        };
        if let Some((field, of)) = strategy
            && let Some(strategy) = object.get_mut("spec").and_then(|spec| spec.get_mut(field))
        {
            fill_strategy(strategy, notation::shared_schema(of));
        }
        if *self == Workload::DaemonSet
            && annotations(object).is_none_or(|annotations| annotations.get(TEMPLATE_GENERATION).is_none())
        {
            count_template(object, 0);
        }
        for claim in object
            .pointer_mut("/spec/volumeClaimTemplates")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            claim["kind"] = json!("PersistentVolumeClaim");
            claim["apiVersion"] = json!("v1");
        }
    }

    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        object["status"] = self.first_status();
        if *self == Workload::DaemonSet {
            count_template(object, 1);
        }
        Ok(())
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, _context: &Context<'_>) -> ApiResult<()> {
        match (self, part) {
            // Annotations are copied to the sets of a Deployment, so they count as part of its
            // spec.
            (Workload::Deployment, Part::Main) if annotations(new) != annotations(old) => {
                set_meta(new, "generation", Some(json!(generation(old) + 1)));
            }
            (Workload::Deployment, Part::Status) => copy_meta(new, old, "labels"),
            (Workload::DaemonSet, Part::Main) => {
                let counted = template_generation(old);
                let changed = new.pointer("/spec/template") != old.pointer("/spec/template");
                count_template(new, if changed { counted + 1 } else { counted });
            }
            _ => {}
        }
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            validate_status(*self, object, errors);
            return;
        }
        let spec = &object["spec"];
        for count in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
            not_negative(spec.get(count), &format!("spec.{count}"), errors);
        }
        validate_selector(*self, spec, errors);
        validate_template(*self, spec, errors);
        validate_strategy(*self, spec, errors);
        validate_deadline(spec, errors);
        let Some(old) = old else { return };
        match self {
            Workload::StatefulSet => {
                if frozen(spec) != frozen(&old["spec"]) {
                    errors.forbidden(
                        "spec",
                        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
                    );
                }
            }
            Workload::Deployment | Workload::ReplicaSet | Workload::DaemonSet => {
                if spec["selector"] != old["spec"]["selector"] {
                    errors.push_shown(
                        FieldErrorKind::Invalid,
                        "spec.selector",
                        Some(shown_selector(&spec["selector"])),
                        meta::IMMUTABLE,
                    );
                }
            }
        }
    }
}

/// Sets the default bounds of a rolling update, even if the object does not mention them.
fn fill_strategy(strategy: &mut Value, schema: &Schema) {
    if strategy["type"] == "RollingUpdate" {
        child_map(strategy, "rollingUpdate");
        default::fill(strategy, schema);
    }
}

fn annotations(object: &Value) -> Option<&Value> {
    metadata(object).and_then(|metadata| metadata.get("annotations"))
}

fn template_generation(object: &Value) -> i64 {
    let text = annotations(object)
        .and_then(|annotations| annotations.get(TEMPLATE_GENERATION))
        .and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn count_template(object: &mut Value, generation: i64) {
    let annotations = child_map(&mut object["metadata"], "annotations");
    annotations.insert(TEMPLATE_GENERATION.into(), json!(generation.to_string()));
}

fn validate_selector(workload: Workload, spec: &Value, errors: &mut FieldErrors) {
    let selector = spec.get("selector").filter(|selector| selector.is_object());
    let is_empty =
        selector.is_some_and(|selector| selector.as_object().is_some_and(|map| map.values().all(is_nothing)));
    match selector {
        None if workload == Workload::DaemonSet => {}
        None => errors.required("spec.selector", ""),
        Some(selector) => {
            validate_label_selector(selector, "spec.selector", errors);
            if is_empty {
                let why = format!("empty selector is invalid for {}", workload.word());
                errors.push_shown(
                    FieldErrorKind::Invalid,
                    "spec.selector",
                    Some(shown_selector(selector)),
                    why,
                );
            }
        }
    }
    // A missing selector selects nothing, and an empty selector selects everything.
    validate_match(spec, errors);
}

fn validate_template(workload: Workload, spec: &Value, errors: &mut FieldErrors) {
    pod_template::validate_containers(spec.pointer("/template/spec"), "spec.template.spec", errors);
    let of_pods = |key: &str| spec.pointer(&format!("/template/spec/{key}"));
    if let Some(policy) = of_pods("restartPolicy").filter(|policy| **policy != "Always") {
        errors.not_supported("spec.template.spec.restartPolicy", policy.clone(), &["Always".to_owned()]);
    }
    if of_pods("activeDeadlineSeconds").is_some() {
        let why = format!("activeDeadlineSeconds in {} is not Supported", workload.pod_owner());
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", why);
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Checks that the selector matches the pods of the template.
pub(crate) fn validate_match(spec: &Value, errors: &mut FieldErrors) {
    let template = spec.get("template").unwrap_or(&Value::Null);
    let finds = Selector::from_label_selector(spec.get("selector").filter(|selector| selector.is_object()))
        .is_some_and(|selector| selector.matches(template));
    if !finds {
        let labels = template.pointer("/metadata/labels").cloned().unwrap_or(Value::Null);
        errors.invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        );
    }
}

pub(crate) fn validate_label_selector(selector: &Value, place: &str, errors: &mut FieldErrors) {
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        for problem in meta::qualified_name_problems(key) {
            errors.invalid(format!("{place}.matchLabels"), json!(key), problem);
        }
        for problem in meta::label_value_problems(value.as_str().unwrap_or_default()) {
            errors.invalid(format!("{place}.matchLabels"), value.clone(), problem);
        }
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        let place = format!("{place}.matchExpressions[{index}]");
        let count = expression.get("values").and_then(Value::as_array).map_or(0, Vec::len);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if count == 0 => {
                errors.required(
                    format!("{place}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if 0 < count => {
                errors.forbidden(
                    format!("{place}.values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.invalid(format!("{place}.operator"), json!(other), "not a valid selector operator")
            }
        }
        let key = expression["key"].as_str().unwrap_or_default();
        for problem in meta::qualified_name_problems(key) {
            errors.invalid(format!("{place}.key"), json!(key), problem);
        }
    }
}

/// Formats a selector with the fields in the order of its type, as errors show it.
pub(crate) fn shown_selector(selector: &Value) -> String {
    if !selector.is_object() {
        return "null".to_owned();
    }
    let fields = ["matchLabels", "matchExpressions"]
        .iter()
        .filter_map(|key| Some(format!("\"{key}\":{}", selector.get(*key)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn validate_strategy(workload: Workload, spec: &Value, errors: &mut FieldErrors) {
    match workload {
        Workload::Deployment => validate_deployment_strategy(&spec["strategy"], errors),
        Workload::DaemonSet => validate_daemon_strategy(&spec["updateStrategy"], errors),
        Workload::StatefulSet => validate_stateful_strategy(spec, errors),
        Workload::ReplicaSet => {}
    }
}

fn validate_deployment_strategy(strategy: &Value, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" => {
            if rolling.is_some() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden("spec.strategy.rollingUpdate", why);
            }
        }
        "RollingUpdate" => {
            let Some(rolling) = rolling else { return };
            let place = |bound: &str| format!("spec.strategy.rollingUpdate.{bound}");
            for bound in ["maxUnavailable", "maxSurge"] {
                validate_amount(&rolling[bound], &place(bound), errors);
            }
            if amount(&rolling["maxUnavailable"]) == 0 && amount(&rolling["maxSurge"]) == 0 {
                errors.invalid(
                    place("maxUnavailable"),
                    rolling["maxUnavailable"].clone(),
                    "may not be 0 when `maxSurge` is 0",
                );
            }
            at_most_all(&rolling["maxUnavailable"], &place("maxUnavailable"), errors);
        }
        _ => errors.push_shown(
            FieldErrorKind::NotSupported,
            "spec.strategy",
            Some(shown_strategy(Workload::Deployment, strategy)),
            "supported values: \"Recreate\", \"RollingUpdate\"",
        ),
    }
}

fn validate_daemon_strategy(strategy: &Value, errors: &mut FieldErrors) {
    match strategy["type"].as_str().unwrap_or_default() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let place = |bound: &str| format!("spec.updateStrategy.rollingUpdate.{bound}");
            for bound in ["maxUnavailable", "maxSurge"] {
                validate_amount(&rolling[bound], &place(bound), errors);
            }
            for bound in ["maxUnavailable", "maxSurge"] {
                at_most_all(&rolling[bound], &place(bound), errors);
            }
            match (amount(&rolling["maxUnavailable"]) != 0, amount(&rolling["maxSurge"]) != 0) {
                (true, true) => errors.invalid(
                    place("maxSurge"),
                    rolling["maxSurge"].clone(),
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => {
                    errors.required(place("maxUnavailable"), "cannot be 0 when maxSurge is 0");
                }
                (true, false) | (false, true) => {}
            }
        }
        _ => errors.push_shown(
            FieldErrorKind::NotSupported,
            "spec.updateStrategy",
            Some(shown_strategy(Workload::DaemonSet, strategy)),
            "supported values: \"RollingUpdate\", \"OnDelete\"",
        ),
    }
}

fn validate_stateful_strategy(spec: &Value, errors: &mut FieldErrors) {
    let policy = spec["podManagementPolicy"].as_str().unwrap_or_default();
    if !matches!(policy, "OrderedReady" | "Parallel") {
        errors.invalid("spec.podManagementPolicy", json!(policy), "must be 'OrderedReady' or 'Parallel'");
    }
    let strategy = &spec["updateStrategy"];
    match strategy["type"].as_str().unwrap_or_default() {
        "RollingUpdate" => not_negative(
            strategy.pointer("/rollingUpdate/partition"),
            "spec.updateStrategy.rollingUpdate.partition",
            errors,
        ),
        "OnDelete" => {
            if let Some(rolling) = strategy.get("rollingUpdate") {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                errors.invalid("spec.updateStrategy.rollingUpdate", rolling.clone(), why);
            }
        }
        _ => errors.push_shown(
            FieldErrorKind::Invalid,
            "spec.updateStrategy",
            Some(shown_strategy(Workload::StatefulSet, strategy)),
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
    for when in ["whenDeleted", "whenScaled"] {
        let policy = spec.pointer(&format!("/persistentVolumeClaimRetentionPolicy/{when}"));
        if let Some(policy) = policy.filter(|policy| !matches!(policy.as_str(), Some("Retain" | "Delete"))) {
            errors.not_supported(
                format!("spec.persistentVolumeClaimRetentionPolicy.{when}"),
                policy.clone(),
                &["Delete", "Retain"].map(str::to_owned),
            );
        }
    }
}

fn validate_deadline(spec: &Value, errors: &mut FieldErrors) {
    let Some(deadline) = spec.get("progressDeadlineSeconds") else { return };
    not_negative(Some(deadline), "spec.progressDeadlineSeconds", errors);
    if deadline.as_i64() <= Some(spec["minReadySeconds"].as_i64().unwrap_or_default()) {
        errors.invalid(
            "spec.progressDeadlineSeconds",
            deadline.clone(),
            "must be greater than minReadySeconds",
        );
    }
}

/// Returns the fields of a StatefulSet's spec that never change.
fn frozen(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        for free in [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ] {
            map.remove(free);
        }
    }
    spec
}

fn validate_status(workload: Workload, object: &Value, errors: &mut FieldErrors) {
    let counts = object.get("status").and_then(Value::as_object);
    for (count, value) in counts.into_iter().flatten() {
        not_negative(Some(value), &format!("status.{count}"), errors);
    }
    let parts: &[&str] = match workload {
        Workload::Deployment => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        Workload::ReplicaSet => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        Workload::StatefulSet => {
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"]
        }
        Workload::DaemonSet => return,
    };
    let of_ready = match workload {
        Workload::StatefulSet => "cannot be greater than status.readyReplicas",
        Workload::Deployment | Workload::ReplicaSet | Workload::DaemonSet => {
            "cannot be greater than readyReplicas"
        }
    };
    let count = |field: &str| object["status"][field].as_i64().unwrap_or_default();
    for part in parts.iter().filter(|part| count("replicas") < count(part)) {
        errors.invalid(
            format!("status.{part}"),
            json!(count(part)),
            "cannot be greater than status.replicas",
        );
    }
    if count("readyReplicas") < count("availableReplicas") {
        errors.invalid("status.availableReplicas", json!(count("availableReplicas")), of_ready);
    }
}

/// Formats a strategy of an unknown type as errors show it: with the names of its internal type.
fn shown_strategy(workload: Workload, strategy: &Value) -> String {
    let bounds: &[(&str, &str)] = match workload {
        Workload::Deployment | Workload::DaemonSet => {
            &[("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")]
        }
        Workload::StatefulSet | Workload::ReplicaSet => {
            &[("Partition", "partition"), ("MaxUnavailable", "maxUnavailable")]
        }
    };
    let rolling = strategy.get("rollingUpdate").map_or("null".to_owned(), |rolling| {
        let bounds = bounds.iter().map(|(shown, field)| format!("\"{shown}\":{}", rolling[*field]));
        format!("{{{}}}", bounds.collect::<Vec<_>>().join(","))
    });
    format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", strategy["type"])
}

/// Formats a label selector as text, as a Scale shows it.
pub(crate) fn selector_text(selector: &Value) -> String {
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let equal =
        equal.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let others = expressions.map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        (key, text)
    });
    let mut parts: Vec<(&str, String)> = equal.chain(others).collect();
    parts.sort_by(|a, b| a.0.cmp(b.0));
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}
