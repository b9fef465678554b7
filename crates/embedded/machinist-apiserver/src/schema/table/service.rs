//! Columns of Services.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::UNKNOWN;
use super::built_in::{AGE, Column, NAME, NONE, age, column, count, list, name, text, text_or, wide};
use super::workload::labels_text;

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    column("Type", "Type of the service"),
    column("Cluster-IP", "Address inside the cluster"),
    column("External-IP", "Addresses outside the cluster"),
    column("Port(s)", "Ports and node ports"),
    AGE,
    wide("Selector", "Labels of the service's pods"),
];

pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, "/spec/type")),
        json!(text_or(object, "/spec/clusterIPs/0", NONE)),
        json!(external_addresses(object)),
        json!(ports(object)),
        age(object, now),
        json!(labels_text(object.pointer("/spec/selector"))),
    ]
}

fn external_addresses(object: &Value) -> String {
    let given: Vec<&str> = list(object, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    let all = match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" => given,
        "LoadBalancer" => {
            let points = list(object, "/status/loadBalancer/ingress").iter();
            let mut balanced: Vec<&str> =
                points.map(|point| text_or(point, "/ip", text(point, "/hostname"))).collect();
            balanced.sort_unstable();
            balanced.dedup();
            if balanced.is_empty() && given.is_empty() {
                return "<pending>".to_owned();
            }
            [balanced, given].concat()
        }
        "ExternalName" => return text(object, "/spec/externalName").to_owned(),
        _ => return UNKNOWN.to_owned(),
    };
    if all.is_empty() { NONE.to_owned() } else { all.join(",") }
}

fn ports(object: &Value) -> String {
    let ports = list(object, "/spec/ports").iter().map(|port| {
        let (number, protocol) = (count(port, "/port"), text(port, "/protocol"));
        match count(port, "/nodePort") {
            0 => format!("{number}/{protocol}"),
            on_node => format!("{number}:{on_node}/{protocol}"),
        }
    });
    let ports: Vec<String> = ports.collect();
    if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }
}
