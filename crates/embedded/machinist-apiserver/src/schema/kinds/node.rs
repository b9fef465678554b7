//! Nodes: the taint of a new Node, and the rules for updates.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::key::Key;
use crate::values::object::child_map;
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors, Target};

/// Taint that the TaintNodesByCondition admission sets on every new Node. The node lifecycle
/// controller removes it.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(crate) struct Nodes;

impl Rules for Nodes {
    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_node(object, None)?;
        let taints = child_map(object, "spec").entry("taints").or_insert_with(|| json!([]));
        if let Some(taints) = taints.as_array_mut() {
            let held = taints.iter().any(|t| t["key"] == NOT_READY && t["effect"] == "NoSchedule");
            if !held {
                taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            }
        }
        Ok(())
    }

    fn on_update(&self, new: &mut Value, old: &Value, _part: Part, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_node(new, Some(old))
    }

    fn admit_delete(&self, object: &Target<'_>, _key: &Key, context: &Context<'_>) -> ApiResult<()> {
        context.admission.admit_node_delete(object.name)
    }

    fn fill_defaults(&self, object: &mut Value) {
        allocate_capacity(object);
        list_pod_ranges(object);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        validate_taints(object, errors);
        validate_addresses(object, errors);
        validate_pod_ranges(object, errors);
        let Some(old) = old else { return };
        // An update checks the whole Node and then the change, so a wrong taint is reported twice.
        validate_taints(object, errors);
        let text = |object: &Value, path: &str| {
            object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let before = text(old, "/spec/providerID");
        if !before.is_empty() && before != text(object, "/spec/providerID") {
            errors.forbidden(
                "spec.providerID",
                "node updates may not change providerID except from \"\" to valid",
            );
        }
        let cidrs = |object: &Value| object.pointer("/spec/podCIDRs").cloned();
        if cidrs(old).is_some() && cidrs(old) != cidrs(object) {
            errors
                .forbidden("spec.podCIDRs", "node updates may not change podCIDR except from \"\" to valid");
        }
    }
}

/// Sets `allocatable` to `capacity` if it is missing.
fn allocate_capacity(object: &mut Value) {
    let status = child_map(object, "status");
    if let (None, Some(capacity)) = (status.get("allocatable"), status.get("capacity").cloned()) {
        status.insert("allocatable".into(), capacity);
    }
}

/// Makes `podCIDR` the first entry of `podCIDRs`. If that list begins with another range, `podCIDR`
/// becomes its only entry.
fn list_pod_ranges(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let one = spec.get("podCIDR").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = spec.get("podCIDRs").and_then(|list| list.get(0)).and_then(Value::as_str);
    match first {
        Some(first) if one.is_empty() => {
            let first = json!(first);
            spec.insert("podCIDR".into(), first);
        }
        Some(first) if first == one => {}
        Some(_) | None if one.is_empty() => {}
        Some(_) | None => {
            spec.insert("podCIDRs".into(), json!([one]));
        }
    }
}

fn validate_pod_ranges(object: &Value, errors: &mut FieldErrors) {
    let Some(ranges) = object.pointer("/spec/podCIDRs").and_then(Value::as_array) else { return };
    let of_range = |range: &Value| -> Option<IpAddr> {
        let (address, length) = range.as_str()?.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        length.parse::<u8>().ok().filter(|length| *length <= longest).map(|_| address)
    };
    let families: Vec<Option<bool>> =
        ranges.iter().map(|range| of_range(range).map(|ip| ip.is_ipv4())).collect();
    for (index, _) in families.iter().enumerate().filter(|(_, family)| family.is_none()) {
        errors.invalid(
            format!("spec.podCIDRs[{index}]"),
            ranges[index].clone(),
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        );
    }
    let one_of_each =
        families.len() == 2 && families[0].is_some() && families[1].is_some() && families[0] != families[1];
    if 1 < families.len() && !one_of_each {
        let why = "may specify no more than one CIDR for each IP family";
        errors.invalid("spec.podCIDRs", Value::Array(ranges.clone()), why);
    }
}

fn validate_taints(object: &Value, errors: &mut FieldErrors) {
    let Some(taints) = object.pointer("/spec/taints").and_then(Value::as_array) else { return };
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut seen = HashSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let place = format!("metadata.taints[{index}]");
        let key = taint["key"].as_str().unwrap_or_default();
        for problem in crate::values::meta::qualified_name_problems(key) {
            errors.invalid(format!("{place}.key"), json!(key), problem);
        }
        let effect = taint["effect"].as_str().unwrap_or_default();
        if effect.is_empty() {
            errors.required(format!("{place}.effect"), "");
        } else if !effects.contains(&effect) {
            errors.not_supported(format!("{place}.effect"), json!(effect), &effects.map(str::to_owned));
        }
        if !seen.insert((key, effect)) {
            errors.push_shown(
                FieldErrorKind::Duplicate,
                place,
                Some(shown_taint(taint)),
                "taints must be unique by key and effect pair",
            );
        }
    }
}

/// Formats a taint with the names and order of its internal type, as errors show it.
fn shown_taint(taint: &Value) -> String {
    let text = |key: &str| json!(taint.get(key).and_then(Value::as_str).unwrap_or_default());
    let added = taint.get("timeAdded").cloned().unwrap_or(Value::Null);
    format!(
        "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}",
        text("key"),
        text("value"),
        text("effect")
    )
}

fn validate_addresses(object: &Value, errors: &mut FieldErrors) {
    let Some(addresses) = object.pointer("/status/addresses").and_then(Value::as_array) else { return };
    let mut seen = HashSet::new();
    for (index, address) in addresses.iter().enumerate() {
        if !seen.insert(address.to_string()) {
            errors.duplicate(format!("status.addresses[{index}]"), address.clone());
        }
    }
}
