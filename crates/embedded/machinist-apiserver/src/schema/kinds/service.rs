//! Services: their addresses and ports, and the rules for updates. This server carries no traffic,
//! and a cloud controller provides load balancers.

pub(crate) mod addresses;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::meta::{NameRule, label_value_problems, name_problems, qualified_name_problems};
use crate::values::object::{child_map, meta_str};
use crate::values::status::{ApiError, ApiResult, FieldErrorKind, FieldErrors};

/// How long a client stays with a pod, unless the Service sets its own time.
const AFFINITY_SECONDS: i64 = 10_800;
/// Address of a headless Service.
const HEADLESS: &str = "None";

pub(crate) struct Services;

impl Rules for Services {
    fn fill_defaults(&self, object: &mut Value) {
        let spec = child_map(object, "spec");
        match spec.get("sessionAffinity").and_then(Value::as_str) {
            Some("None") => {
                spec.remove("sessionAffinityConfig");
            }
            Some("ClientIP") => {
                let config = spec.entry("sessionAffinityConfig").or_insert_with(|| json!({}));
                if config.pointer("/clientIP/timeoutSeconds").is_none() {
                    *config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                }
            }
            Some(_) | None => {}
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let number = port.get("port").cloned().unwrap_or_else(|| json!(0));
            if port.get("targetPort").is_none_or(|target| *target == 0 || *target == "") {
                port["targetPort"] = number;
            }
        }
        let of = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_reached_from_outside = matches!(of.as_str(), "NodePort" | "LoadBalancer")
            || (of == "ClusterIP" && spec.get("externalIPs").is_some());
        if is_reached_from_outside {
            spec.entry("externalTrafficPolicy").or_insert(json!("Cluster"));
        }
        if of != "ExternalName" {
            spec.entry("internalTrafficPolicy").or_insert(json!("Cluster"));
        }
        if of == "LoadBalancer" {
            spec.entry("allocateLoadBalancerNodePorts").or_insert(json!(true));
            let ingress = object.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
            for point in ingress.into_iter().flatten().filter(|point| point.get("ip").is_some()) {
                child_entry(point, "ipMode", json!("VIP"));
            }
        }
    }

    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        object["status"] = json!({"loadBalancer": {}});
        admit_given(object, context)?;
        allocate(object, context)
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, context: &Context<'_>) -> ApiResult<()> {
        if part == Part::Status {
            return Ok(());
        }
        let spec = child_map(new, "spec");
        keep_allocated(spec, &old["spec"]);
        drop_unneeded(spec, &old["spec"]);
        if spec.get("type").is_none_or(|of| of != "LoadBalancer") {
            child_map(new, "status").insert("loadBalancer".into(), json!({}));
        }
        allocate(new, context)
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            validate_ingress(object, errors);
            return;
        }
        let spec = &object["spec"];
        let of = text(spec, "type");
        if spec["ports"].as_array().is_none_or(Vec::is_empty)
            && of != "ExternalName"
            && text(spec, "clusterIP") != HEADLESS
        {
            errors.required("spec.ports", "");
        }
        if of == "ExternalName" {
            validate_external_name(spec, errors);
        }
        validate_ports(spec, errors);
        for (key, value) in spec["selector"].as_object().into_iter().flatten() {
            for problem in qualified_name_problems(key) {
                errors.invalid("spec.selector", json!(key), problem);
            }
            for problem in label_value_problems(value.as_str().unwrap_or_default()) {
                errors.invalid("spec.selector", value.clone(), problem);
            }
        }
        for (field, known) in [
            ("sessionAffinity", &["ClientIP", "None"][..]),
            ("type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
            ("externalTrafficPolicy", &["Cluster", "Local"]),
            ("internalTrafficPolicy", &["Cluster", "Local"]),
        ] {
            errors.check_one_of(&format!("spec.{field}"), spec.get(field), known);
        }
        validate_addresses(spec, errors);
        if let Some(old) = old.map(|old| &old["spec"]) {
            validate_update(spec, old, errors);
        }
    }
}

fn text<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn child_entry(object: &mut Value, field: &str, default: Value) {
    if object.get(field).is_none() {
        object[field] = default;
    }
}

/// Checks that the address and ports that a new Service names are free.
fn admit_given(object: &Value, context: &Context<'_>) -> ApiResult<()> {
    let spec = &object["spec"];
    let mut errors = FieldErrors::default();
    let address = text(spec, "clusterIP");
    if !matches!(address, "" | HEADLESS) && addresses::taken_addresses(context).contains(address) {
        let why = format!("failed to allocate IP {address}: provided IP is already allocated");
        errors.invalid("spec.clusterIPs", json!([address]), why);
    }
    let ports = spec["ports"].as_array().into_iter().flatten().enumerate();
    let named: Vec<_> = ports.filter_map(|(index, port)| Some((index, port.get("nodePort")?))).collect();
    if !named.is_empty() {
        let taken = addresses::taken_node_ports(context);
        for (index, number) in named.into_iter().filter(|(_, number)| taken.contains(&number.to_string())) {
            let place = format!("spec.ports[{index}].nodePort");
            errors.invalid(place, number.clone(), "provided port is already allocated");
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("", "Service", meta_str(object, "name"), &errors))
}

/// Allocates the addresses and ports that a Service needs and lacks.
fn allocate(object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
    let uid = meta_str(object, "uid").to_owned();
    let spec = child_map(object, "spec");
    let of = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !matches!(of.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        return Ok(());
    }
    // A headless Service without a selector may have endpoints of both families.
    let is_headless = spec.get("clusterIP").and_then(Value::as_str) == Some(HEADLESS);
    let (families, policy) = if is_headless && !spec.contains_key("selector") {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    } else {
        (json!(["IPv4"]), "SingleStack")
    };
    spec.entry("ipFamilies").or_insert(families);
    spec.entry("ipFamilyPolicy").or_insert(json!(policy));
    match spec.get("clusterIP").and_then(Value::as_str).filter(|address| !address.is_empty()) {
        Some(address) => {
            let address = json!([address]);
            spec.entry("clusterIPs").or_insert(address);
        }
        None => {
            let Some(address) = addresses::allocate_address(context, &uid) else {
                return Err(ApiError::internal("failed to allocate a serviceIP: range is full"));
            };
            spec.insert("clusterIP".into(), json!(address));
            spec.insert("clusterIPs".into(), json!([address]));
        }
    }
    let wants_node_ports = of == "NodePort"
        || (of == "LoadBalancer" && spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)));
    if wants_node_ports {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for (index, port) in
            ports.into_iter().flatten().enumerate().filter(|(_, port)| port.get("nodePort").is_none())
        {
            let Some(number) = addresses::allocate_node_port(context, &uid, index) else {
                return Err(ApiError::internal("failed to allocate a nodePort: range is full"));
            };
            port["nodePort"] = json!(number);
        }
    }
    Ok(())
}

/// An update that omits allocated fields (cluster IP, node ports) keeps them if the Service type
/// still needs them.
fn keep_allocated(spec: &mut Map<String, Value>, old: &Value) {
    let needs_address = |of: &str| matches!(of, "ClusterIP" | "NodePort" | "LoadBalancer");
    let of = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !needs_address(&of) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            let is_as_before = spec.get(field) == old.get(field);
            if is_as_before && needs_address(text(old, "type")) {
                spec.remove(field);
            }
        }
        return;
    }
    if needs_address(text(old, "type")) {
        if spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty() {
            for field in ["clusterIP", "clusterIPs"] {
                if let (false, Some(given)) = (spec.contains_key(field), old.get(field)) {
                    spec.insert(field.into(), given.clone());
                }
            }
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if let (false, Some(given)) = (spec.contains_key(field), old.get(field)) {
                spec.insert(field.into(), given.clone());
            }
        }
    }
    let on_nodes = |of: &str| matches!(of, "NodePort" | "LoadBalancer");
    let before = old["ports"].as_array().cloned().unwrap_or_default();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same =
            before.iter().find(|was| was["port"] == port["port"] && was["protocol"] == port["protocol"]);
        let given = same.and_then(|was| was.get("nodePort")).cloned();
        if on_nodes(&of) && on_nodes(text(old, "type")) {
            if let (None, Some(given)) = (port.get("nodePort"), given) {
                port["nodePort"] = given;
            }
        } else if !on_nodes(&of) && given.is_some() && port.get("nodePort") == given.as_ref() {
            crate::values::object::drop_field(port, "nodePort");
        }
    }
}

/// Removes fields that only the old type used, if the update repeats their old values.
fn drop_unneeded(spec: &mut Map<String, Value>, old: &Value) {
    let is_outside = |of: &str, spec: &Map<String, Value>| {
        matches!(of, "NodePort" | "LoadBalancer") || (of == "ClusterIP" && spec.contains_key("externalIPs"))
    };
    let of = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let of_balancer = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];
    let unneeded =
        of_balancer.into_iter().filter(|_| of != "LoadBalancer" && text(old, "type") == "LoadBalancer");
    let unneeded: Vec<&str> = unneeded
        .chain((!is_outside(&of, spec)).then_some("externalTrafficPolicy"))
        .chain((of == "ExternalName").then_some("internalTrafficPolicy"))
        .collect();
    for field in unneeded {
        if spec.get(field) == old.get(field) {
            spec.remove(field);
        }
    }
}

fn validate_external_name(spec: &Value, errors: &mut FieldErrors) {
    let address = text(spec, "clusterIP");
    if !address.is_empty() && address != HEADLESS {
        errors.forbidden("spec.clusterIPs", "may not be set when `type` is 'ExternalName'");
    }
    let name = text(spec, "externalName").trim_end_matches('.');
    if name.is_empty() {
        errors.required("spec.externalName", "");
        return;
    }
    for problem in name_problems(name, NameRule::Subdomain) {
        errors.invalid("spec.externalName", json!(name), problem);
    }
}

fn validate_ports(spec: &Value, errors: &mut FieldErrors) {
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut names, mut numbers, mut on_nodes) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (index, port) in ports.iter().enumerate() {
        let place = format!("spec.ports[{index}]");
        let name = text(port, "name");
        if name.is_empty() {
            if 1 < ports.len() {
                errors.required(format!("{place}.name"), "");
            }
        } else {
            for problem in name_problems(name, NameRule::Label) {
                errors.invalid(format!("{place}.name"), json!(name), problem);
            }
            if !names.insert(name) {
                errors.duplicate(format!("{place}.name"), json!(name));
            }
        }
        validate_port_number(&port["port"], &format!("{place}.port"), errors);
        let protocol = text(port, "protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            errors.not_supported(
                format!("{place}.protocol"),
                json!(protocol),
                &["SCTP", "TCP", "UDP"].map(str::to_owned),
            );
        }
        match &port["targetPort"] {
            Value::String(name) => {
                for problem in port_name_problems(name) {
                    errors.invalid(format!("{place}.targetPort"), json!(name), problem);
                }
            }
            number => validate_port_number(number, &format!("{place}.targetPort"), errors),
        }
        let on_node = port.get("nodePort");
        if let (Some(_), "ClusterIP") = (on_node, text(spec, "type")) {
            errors.forbidden(format!("{place}.nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        if let Some(number) = on_node {
            if number.as_i64().is_some_and(|number| !addresses::is_node_port(number)) {
                errors.invalid(
                    format!("{place}.nodePort"),
                    number.clone(),
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                );
            }
            if !on_nodes.insert((protocol, number.to_string())) {
                errors.duplicate(format!("{place}.nodePort"), number.clone());
            }
        }
        if !numbers.insert((protocol, port["port"].to_string())) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port["port"]
            );
            errors.push_shown(FieldErrorKind::Duplicate, place, Some(shown), "");
        }
    }
}

fn validate_port_number(port: &Value, place: &str, errors: &mut FieldErrors) {
    if !port.as_i64().is_some_and(|port| (1..=65_535).contains(&port)) {
        errors.invalid(place, port.clone(), "must be between 1 and 65535, inclusive");
    }
}

/// Returns the problems of a port name, which must follow RFC 6335.
fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if 15 < name.len() {
        problems.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

fn validate_addresses(spec: &Value, errors: &mut FieldErrors) {
    let addresses = spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    for (index, address) in addresses.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address == HEADLESS {
            continue;
        }
        match address.parse::<Ipv4Addr>() {
            Err(_) => errors.invalid(
                format!("spec.clusterIPs[{index}]"),
                json!(address),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            Ok(known) if !addresses::in_network(known) => errors.invalid(
                "spec.clusterIPs",
                json!(addresses),
                format!(
                    "failed to allocate IP {address}: the provided network does not match the current range"
                ),
            ),
            Ok(_) => {}
        }
    }
}

fn validate_update(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    let first =
        |spec: &Value| spec.pointer("/clusterIPs/0").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (now, before) = (first(spec), first(old));
    let stays_inside = |spec: &Value| text(spec, "type") != "ExternalName";
    if stays_inside(spec) && stays_inside(old) && !before.is_empty() && now != before {
        errors.invalid("spec.clusterIPs[0]", spec["clusterIPs"].clone(), "may not change once set");
    }
}

fn validate_ingress(object: &Value, errors: &mut FieldErrors) {
    let points = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    for (index, point) in points.into_iter().flatten().enumerate() {
        let place = format!("status.loadBalancer.ingress[{index}]");
        let Some(address) = point.get("ip").and_then(Value::as_str) else { continue };
        if address.parse::<IpAddr>().is_err() {
            errors.invalid(
                format!("{place}.ip"),
                json!(address),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            );
        }
        if point.get("ipMode").is_none() {
            errors.required(format!("{place}.ipMode"), "must be specified when `ip` is set");
        }
    }
}

/// Returns the Service under which pods find the API server.
pub(crate) fn of_api_server() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": addresses::OF_API_SERVER, "clusterIPs": [addresses::OF_API_SERVER],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    })
}
