//! Columns of the built-in kinds, with the order and names of kube-apiserver.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{self, UNKNOWN};
use super::column::{definition, name_column};
use super::{service, volume, workload};
use crate::values::object::{is_deleting, labels, meta_str};

/// Columns and cells of a kind.
pub(super) struct Printer {
    pub(super) columns: &'static [Column],
    pub(super) cells: Cells,
}

/// Computes the cells of an object's row at the current time.
pub(super) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) of: &'static str,
    pub(super) description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub(super) priority: i64,
}

impl Printer {
    pub(super) fn columns(&self) -> Vec<Value> {
        let column = |c: &Column| match c.name {
            "Name" if c.priority == 0 => name_column(),
            // For an Event this is its own name, for an attachment the name of its driver.
            "Name" | "Attacher" => definition(c.name, c.of, "name", c.description, c.priority),
            name => definition(name, c.of, "", c.description, c.priority),
        };
        self.columns.iter().map(column).collect()
    }

    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.cells)(object, now)
    }
}

/// Returns the printer of the type with this name in `types/*.txt`.
pub(super) fn printer(type_name: &str) -> Printer {
    let (columns, cells): (&'static [Column], Cells) = match type_name {
        "Namespace" => (NAMESPACE, namespace),
        "Node" => (NODE, node),
        "Pod" => (POD, pod),
        "Secret" => (SECRET, secret),
        "ConfigMap" => (CONFIG_MAP, config_map),
        "Event" | "EventsEvent" => (EVENT, event),
        "Lease" => (LEASE, lease),
        "PodDisruptionBudget" => (DISRUPTION_BUDGET, disruption_budget),
        "CertificateSigningRequest" => (SIGNING_REQUEST, signing_request),
        "CustomResourceDefinition" => (DEFINITION, custom_resource_definition),
        "Role" | "ClusterRole" => (ROLE, role),
        "RoleBinding" | "ClusterRoleBinding" => (ROLE_BINDING, role_binding),
        "Service" => (service::COLUMNS, service::cells),
        "PersistentVolume" => (volume::VOLUME, volume::volume),
        "PersistentVolumeClaim" => (volume::CLAIM, volume::claim),
        "VolumeAttachment" => (volume::ATTACHMENT, volume::attachment),
        "Deployment" => (workload::DEPLOYMENT, workload::deployment),
        "ReplicaSet" => (workload::REPLICA_SET, workload::replica_set),
        "DaemonSet" => (workload::DAEMON_SET, workload::daemon_set),
        "StatefulSet" => (workload::STATEFUL_SET, workload::stateful_set),
        "Job" => (workload::JOB, workload::job),
        "PriorityClass" => (PRIORITY_CLASS, priority_class),
        _ => (PLAIN, plain),
    };
    Printer { columns, cells }
}

pub(super) const fn column(name: &'static str, description: &'static str) -> Column {
    Column { name, of: "string", description, priority: 0 }
}

pub(super) const fn number(name: &'static str, description: &'static str) -> Column {
    Column { name, of: "integer", description, priority: 0 }
}

pub(super) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, of: "string", description, priority: 1 }
}

pub(super) const NAME: Column = column("Name", "");
pub(super) const AGE: Column = column("Age", "Time since the object was created");

/// Text for an empty list or text.
pub(super) const NONE: &str = "<none>";

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    Some(text(object, pointer)).filter(|t| !t.is_empty()).unwrap_or(otherwise)
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Counts the entries of the map or list at `pointer`.
fn size(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    }
}

pub(super) fn name(object: &Value) -> Value {
    json!(meta_str(object, "name"))
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    json!(age::since(object.pointer("/metadata/creationTimestamp"), now))
}

const PLAIN: &[Column] = &[NAME, AGE];

fn plain(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

const ROLE: &[Column] = &[
    NAME,
    Column { name: "Created At", of: "date", description: "Time at which the role was created", priority: 0 },
];

fn role(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(meta_str(object, "creationTimestamp"))]
}

const ROLE_BINDING: &[Column] = &[
    NAME,
    column("Role", "Granted role"),
    AGE,
    wide("Users", "Users with the role"),
    wide("Groups", "Groups with the role"),
    wide("ServiceAccounts", "ServiceAccounts with the role"),
];

fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = list(object, "/subjects").iter().filter(|subject| subject["kind"] == kind);
        let names: Vec<String> = of_kind
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let [users, groups, accounts] = ["User", "Group", "ServiceAccount"].map(subjects);
    vec![name(object), json!(role), age(object, now), users, groups, accounts]
}

const NAMESPACE: &[Column] = &[NAME, column("Status", "Phase of the namespace"), AGE];

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(text(object, "/status/phase")), age(object, now)]
}

const NODE: &[Column] = &[
    NAME,
    column("Status", "Whether the node is ready and schedulable"),
    column("Roles", "Roles from the node's labels"),
    AGE,
    column("Version", "Version of the kubelet"),
    wide("Internal-IP", "First internal address"),
    wide("External-IP", "First external address"),
    wide("OS-Image", "Operating system"),
    wide("Kernel-Version", "Version of the kernel"),
    wide("Container-Runtime", "Container runtime and its version"),
];

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let address = |of: &str| {
        let found = list(object, "/status/addresses").iter().find(|a| a["type"] == of);
        found.map_or(NONE, |a| text_or(a, "/address", NONE)).to_owned()
    };
    vec![
        name(object),
        json!(node_status(object)),
        json!(node_roles(object)),
        age(object, now),
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(text_or(object, "/status/nodeInfo/osImage", UNKNOWN)),
        json!(node_kernel(object)),
        json!(text_or(object, "/status/nodeInfo/containerRuntimeVersion", UNKNOWN)),
    ]
}

fn node_status(object: &Value) -> String {
    let ready = list(object, "/status/conditions").iter().find(|c| c["type"] == "Ready");
    let mut words = vec![match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn node_kernel(object: &Value) -> String {
    let version = text_or(object, "/status/nodeInfo/kernelVersion", UNKNOWN);
    match text(object, "/status/nodeInfo/architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

fn node_roles(object: &Value) -> String {
    const PREFIX: &str = "node-role.kubernetes.io/";
    const LABEL: &str = "kubernetes.io/role";
    let mut roles = BTreeSet::new();
    for (key, value) in labels(object).into_iter().flatten() {
        match key.strip_prefix(PREFIX) {
            Some(role) => roles.insert(role),
            None if key == LABEL => roles.insert(value.as_str().unwrap_or_default()),
            None => false,
        };
    }
    roles.remove("");
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

const POD: &[Column] = &[
    NAME,
    column("Ready", "Ready containers and all containers"),
    column("Status", "State of the pod, or the reason why it does not run"),
    column("Restarts", "Number of container restarts, and time of the last one"),
    AGE,
    wide("IP", "Address of the pod"),
    wide("Node", "Node to which the pod is bound"),
    wide("Nominated Node", "Node on which other pods are preempted for the pod"),
    wide("Readiness Gates", "Passed readiness gates and all readiness gates"),
];

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let seen = PodState::of(object);
    let restarts = match &seen.restarted_at {
        Some(at) if seen.restarts != 0 => {
            format!("{} ({} ago)", seen.restarts, age::since(Some(&json!(at)), now))
        }
        _ => seen.restarts.to_string(),
    };
    let gates = list(object, "/spec/readinessGates");
    let open = gates.iter().filter(|gate| has_condition(object, text(gate, "/conditionType"))).count();
    vec![
        name(object),
        json!(format!("{}/{}", seen.ready, seen.containers)),
        json!(seen.reason),
        json!(restarts),
        age(object, now),
        json!(text_or(object, "/status/podIPs/0/ip", text_or(object, "/status/podIP", NONE))),
        json!(text_or(object, "/spec/nodeName", NONE)),
        json!(text_or(object, "/status/nominatedNodeName", NONE)),
        json!(if gates.is_empty() { NONE.to_owned() } else { format!("{open}/{}", gates.len()) }),
    ]
}

pub(super) fn has_condition(pod: &Value, of: &str) -> bool {
    list(pod, "/status/conditions").iter().any(|c| c["type"] == of && c["status"] == "True")
}

/// Returns the row condition of a finished pod.
pub(super) fn pod_row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// State of a pod for its row: container counts, and the most important reason.
struct PodState {
    ready: i64,
    containers: usize,
    restarts: i64,
    restarted_at: Option<String>,
    reason: String,
}

impl PodState {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let mut state = PodState {
            ready: 0,
            containers: size(pod, "/spec/containers"),
            restarts: 0,
            restarted_at: None,
            reason: text_or(pod, "/status/reason", phase).to_owned(),
        };
        let gated = list(pod, "/status/conditions")
            .iter()
            .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
        if gated {
            state.reason = "SchedulingGated".to_owned();
        }
        let initializing = state.look_at_init_containers(pod);
        if !initializing || has_condition(pod, "Initialized") {
            state.look_at_containers(pod);
        }
        let ended = matches!(phase, "Succeeded" | "Failed");
        if is_deleting(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if !ended {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    /// Reports whether an init container is still running. Sidecars (init containers that always
    /// restart) count as containers once they have started. Restarts of other init containers no
    /// longer count after they finish.
    fn look_at_init_containers(&mut self, pod: &Value) -> bool {
        let declared = list(pod, "/spec/initContainers");
        let is_sidecar = |status: &Value| {
            declared.iter().any(|c| c["name"] == status["name"] && c["restartPolicy"] == "Always")
        };
        self.containers += declared.iter().filter(|c| c["restartPolicy"] == "Always").count();
        let mut of_sidecars = (0, None);
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let sidecar = is_sidecar(status);
            if sidecar {
                of_sidecars.0 += count(status, "/restartCount");
                of_sidecars.1 = later(of_sidecars.1.take(), text(status, LAST_END));
            }
            let done = status
                .pointer("/state/terminated")
                .is_some_and(|t| t.is_object() && count(t, "/exitCode") == 0);
            if done {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += i64::from(status["ready"] == true);
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match status.pointer("/state/terminated").filter(|t| t.is_object()) {
                Some(terminated) => format!("Init:{}", end_reason(terminated)),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", declared.len()),
            };
            return true;
        }
        (self.restarts, self.restarted_at) = of_sidecars;
        false
    }

    fn look_at_containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            let terminated = status.pointer("/state/terminated").filter(|t| t.is_object());
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = terminated {
                self.reason = end_reason(terminated);
            } else if status["ready"] == true
                && status.pointer("/state/running").is_some_and(Value::is_object)
            {
                running = true;
                self.ready += 1;
            }
        }
        // A finished container does not finish the pod while another one runs.
        if self.reason == "Completed" && running {
            self.reason = if has_condition(pod, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts = self.restarts.saturating_add(count(status, "/restartCount"));
        self.restarted_at = later(self.restarted_at.take(), text(status, LAST_END));
    }
}

const LAST_END: &str = "/lastState/terminated/finishedAt";

/// Returns the later of two times in the format of stored objects.
fn later(known: Option<String>, other: &str) -> Option<String> {
    match known {
        Some(known) if other <= known.as_str() => Some(known),
        _ if other.is_empty() => None,
        _ => Some(other.to_owned()),
    }
}

fn end_reason(terminated: &Value) -> String {
    match (text(terminated, "/reason"), count(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", count(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

const SECRET: &[Column] =
    &[NAME, column("Type", "Purpose of the data"), column("Data", "Number of entries"), AGE];

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(text(object, "/type")), json!(size(object, "/data")), age(object, now)]
}

const CONFIG_MAP: &[Column] = &[NAME, column("Data", "Number of entries"), AGE];

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(size(object, "/data") + size(object, "/binaryData")), age(object, now)]
}

const EVENT: &[Column] = &[
    column("Last Seen", "Time since the last occurrence"),
    column("Type", "Normal or Warning"),
    column("Reason", "Reason in CamelCase"),
    column("Object", "Object of the event"),
    wide("Subobject", "Part of the object"),
    wide("Source", "Reporting component"),
    column("Message", "Description of the event"),
    wide("First Seen", "Time since the first occurrence"),
    wide("Count", "Number of occurrences"),
    wide("Name", "Name of the event"),
];

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let at =
        |pointer: &str| object.pointer(pointer).filter(|t| !t.is_null()).map(|at| age::since(Some(at), now));
    let first = at("/firstTimestamp").or_else(|| at("/eventTime")).unwrap_or_else(|| UNKNOWN.to_owned());
    let mut last = at("/lastTimestamp").unwrap_or_else(|| first.clone());
    let mut times = count(object, "/count").max(1);
    if object.pointer("/series").is_some_and(Value::is_object) {
        last = at("/series/lastObservedTime").unwrap_or_else(|| UNKNOWN.to_owned());
        times = count(object, "/series/count");
    }
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let about = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(object, "/reportingComponent", text(object, "/source/component"));
    let instance = text_or(object, "/reportingInstance", text(object, "/source/host"));
    let source = if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(about),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        json!(first),
        json!(times),
        name(object),
    ]
}

const LEASE: &[Column] = &[NAME, column("Holder", "Current holder of the lease"), AGE];

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(text(object, "/spec/holderIdentity")), age(object, now)]
}

const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    column("Min Available", "Minimum number of available pods"),
    column("Max Unavailable", "Maximum number of unavailable pods"),
    number("Allowed Disruptions", "Number of pods that may be evicted now"),
    AGE,
];

fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |pointer: &str| match object.pointer(pointer) {
        None | Some(Value::Null) => json!("N/A"),
        Some(Value::String(text)) => json!(text),
        Some(other) => json!(other.to_string()),
    };
    vec![
        name(object),
        bound("/spec/minAvailable"),
        bound("/spec/maxUnavailable"),
        json!(count(object, "/status/disruptionsAllowed")),
        age(object, now),
    ]
}

const SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    column("SignerName", "Name of the signer"),
    column("Requestor", "User that requests the certificate"),
    column("RequestedDuration", "Requested validity of the certificate"),
    column("Condition", "State of the request"),
];

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let duration = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let conditions = list(object, "/status/conditions");
    let has = |of: &str| conditions.iter().any(|c| c["type"] == of);
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    vec![
        name(object),
        age(object, now),
        json!(text_or(object, "/spec/signerName", NONE)),
        json!(text(object, "/spec/username")),
        json!(duration.map_or_else(|| NONE.to_owned(), age::human)),
        json!(condition),
    ]
}

const PRIORITY_CLASS: &[Column] = &[
    NAME,
    number("Value", "Priority of the pods; higher values come first"),
    Column {
        name: "Global-Default",
        of: "boolean",
        description: "Whether the class applies to pods without a class",
        priority: 0,
    },
    AGE,
    column("PreemptionPolicy", "Whether pods of lower priority are preempted"),
];

fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        json!(count(object, "/value")),
        json!(object["globalDefault"] == true),
        age(object, now),
        json!(text(object, "/preemptionPolicy")),
    ]
}

const DEFINITION: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        of: "date",
        description: "Time at which the definition was created",
        priority: 0,
    },
];

fn custom_resource_definition(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), object.pointer("/metadata/creationTimestamp").cloned().unwrap_or(Value::Null)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(type_name: &str, object: &Value) -> Vec<Value> {
        let now = "2026-01-01T01:00:00Z".parse().expect("a time");
        let printer = printer(type_name);
        let cells = printer.cells(object, now);
        assert_eq!(cells.len(), printer.columns.len());
        cells
    }

    #[test]
    fn a_pod_shows_why_it_does_not_run() {
        let check = |spec: Value, status: Value| {
            let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
            Value::Array(check("Pod", &pod)[1..4].to_vec())
        };
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        let running = json!({"name": "a", "ready": true, "state": {"running": {}}});
        assert_eq!(
            check(
                two.clone(),
                json!({"phase": "Running", "containerStatuses": [running, {"name": "b", "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}}}]})
            ),
            json!(["1/2", "CrashLoopBackOff", "3 (2m ago)"])
        );
        let with_init =
            json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
        assert_eq!(
            check(
                with_init,
                json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": {"running": {}}}]})
            ),
            json!(["0/1", "Init:1/2", "0"])
        );
        assert_eq!(
            check(two, json!({"phase": "Failed", "reason": "Evicted"})),
            json!(["0/2", "Evicted", "0"])
        );
    }

    #[test]
    fn an_empty_object_has_all_cells() {
        for kind in crate::schema::kinds::rows::BUILT_INS {
            check(kind.type_name, &json!({}));
        }
    }
}
