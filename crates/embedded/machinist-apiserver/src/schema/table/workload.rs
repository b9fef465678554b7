//! Columns of the kinds that create pods from a template.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::age;
use super::built_in::{
    AGE, Column, NAME, NONE, age as age_of, column, count, has_condition, list, name, number, text, wide,
};
use crate::schema::kinds::workload::selector_text;
use crate::values::object::is_deleting;

const CONTAINERS: Column = wide("Containers", "Names of the containers of the template");
const IMAGES: Column = wide("Images", "Images of the containers of the template");
const SELECTOR: Column = wide("Selector", "Labels of the workload's pods");

fn containers(object: &Value) -> [Value; 2] {
    let all = list(object, "/spec/template/spec/containers");
    let joined = |field: &str| json!(all.iter().map(|c| text(c, field)).collect::<Vec<_>>().join(","));
    [joined("/name"), joined("/image")]
}

fn selector(object: &Value) -> Value {
    let text = object.pointer("/spec/selector").map(selector_text).filter(|text| !text.is_empty());
    json!(text.unwrap_or_else(|| NONE.to_owned()))
}

/// Formats labels as a selector of exactly these labels.
pub(super) fn labels_text(labels: Option<&Value>) -> String {
    let pairs = labels.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

pub(super) const DEPLOYMENT: &[Column] = &[
    NAME,
    column("Ready", "Ready pods and desired pods"),
    column("Up-to-date", "Pods of the newest template"),
    column("Available", "Pods that have been ready for minReadySeconds"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object);
    vec![
        name(object),
        ready_of_wanted(object),
        json!(count(object, "/status/updatedReplicas")),
        json!(count(object, "/status/availableReplicas")),
        age_of(object, now),
        names,
        images,
        selector(object),
    ]
}

fn ready_of_wanted(object: &Value) -> Value {
    json!(format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas")))
}

pub(super) const REPLICA_SET: &[Column] = &[
    NAME,
    number("Desired", "Desired pods"),
    number("Current", "Existing pods"),
    number("Ready", "Ready pods"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object);
    vec![
        name(object),
        json!(count(object, "/spec/replicas")),
        json!(count(object, "/status/replicas")),
        json!(count(object, "/status/readyReplicas")),
        age_of(object, now),
        names,
        images,
        selector(object),
    ]
}

pub(super) const DAEMON_SET: &[Column] = &[
    NAME,
    number("Desired", "Nodes that should run the pod"),
    number("Current", "Nodes that should run the pod and do"),
    number("Ready", "Nodes with a ready pod"),
    number("Up-to-date", "Nodes with a pod of the newest template"),
    number("Available", "Nodes with a pod that has been ready for minReadySeconds"),
    column("Node Selector", "Labels of the nodes that run the pod"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = |field: &str| json!(count(object, &format!("/status/{field}")));
    let [names, images] = containers(object);
    vec![
        name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        json!(labels_text(object.pointer("/spec/template/spec/nodeSelector"))),
        age_of(object, now),
        names,
        images,
        selector(object),
    ]
}

pub(super) const STATEFUL_SET: &[Column] =
    &[NAME, column("Ready", "Ready pods and desired pods"), AGE, CONTAINERS, IMAGES];

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object);
    vec![name(object), ready_of_wanted(object), age_of(object, now), names, images]
}

pub(super) const JOB: &[Column] = &[
    NAME,
    column("Status", "State of the job"),
    column("Completions", "Succeeded pods and required pods"),
    column("Duration", "Time from the start to the end, or until now"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = count(object, "/status/succeeded");
    let parallelism = count(object, "/spec/parallelism");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if 1 < parallelism => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let [names, images] = containers(object);
    vec![
        name(object),
        json!(job_status(object)),
        json!(completions),
        json!(job_duration(object, now).map(age::human).unwrap_or_default()),
        age_of(object, now),
        names,
        images,
        selector(object),
    ]
}

fn job_status(object: &Value) -> &'static str {
    match () {
        () if has_condition(object, "Complete") => "Complete",
        () if has_condition(object, "Failed") => "Failed",
        () if is_deleting(object) => "Terminating",
        () if has_condition(object, "Suspended") => "Suspended",
        () if has_condition(object, "FailureTarget") => "FailureTarget",
        () if has_condition(object, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// Returns the seconds from the job's start to its end, or to now.
fn job_duration(object: &Value, now: Timestamp) -> Option<i64> {
    let at = |field: &str| text(object, &format!("/status/{field}")).parse::<Timestamp>().ok();
    let end = at("completionTime").unwrap_or(now);
    let took: SignedDuration = end.duration_since(at("startTime")?);
    Some(took.as_secs())
}
