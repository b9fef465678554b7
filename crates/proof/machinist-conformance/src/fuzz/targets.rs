//! The fuzz targets, one function each.

use std::sync::OnceLock;

use http::{Method, header};
use serde_json::{Value, json};

use super::subject::{Asked, DEFINITIONS, Subject, THINGS, escaped, in_runtime};
use machinist_apiserver::Authorization;

/// Maximum number of requests in one input; each takes milliseconds.
const MAX_REQUESTS: usize = 16;

/// Objects for patches and requests, by the resource's plural.
const HELD: [(&str, &str, &str); 10] = [
    (
        "configmaps",
        "/api/v1/namespaces/default/configmaps",
        r#"{"metadata": {"name": "m0", "labels": {"a": "b"}}, "data": {"a": "b"}}"#,
    ),
    (
        "secrets",
        "/api/v1/namespaces/default/secrets",
        r#"{"metadata": {"name": "m0"}, "type": "Opaque", "data": {"a": "Yg=="}}"#,
    ),
    (
        "nodes",
        "/api/v1/nodes",
        r#"{"metadata": {"name": "m0"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "Hostname", "address": "h"}]}}"#,
    ),
    (
        "pods",
        "/api/v1/namespaces/default/pods",
        r#"{"metadata": {"name": "m0", "labels": {"a": "b"}}, "spec": {"nodeName": "m0",
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "E", "value": "1"}]}]}}"#,
    ),
    (
        "serviceaccounts",
        "/api/v1/namespaces/default/serviceaccounts",
        r#"{"metadata": {"name": "m0"}, "secrets": [{"name": "s"}]}"#,
    ),
    (
        "leases",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        r#"{"metadata": {"name": "m0"}, "spec": {"holderIdentity": "me"}}"#,
    ),
    (
        "poddisruptionbudgets",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        r#"{"metadata": {"name": "m0"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}"#,
    ),
    (
        "clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        r#"{"metadata": {"name": "m0"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}"#,
    ),
    (
        DEFINED,
        THINGS,
        r#"{"apiVersion": "t.dev/v1", "kind": "Thing", "metadata": {"name": "m0"}, "spec": {"replicas": 1, "free": {"a": 1},
            "list": [{"name": "a", "size": 1}], "tags": ["x"], "labels": {"a": "b"}}}"#,
    ),
    (
        "customresourcedefinitions",
        DEFINITIONS,
        r#"{"metadata": {"name": "m0.t.dev"}, "spec": {"group": "t.dev", "scope": "Namespaced",
            "names": {"plural": "m0", "kind": "M", "singular": "m", "listKind": "MList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#,
    ),
];

/// Plural of the kind with a definition made by the test.
const DEFINED: &str = "things";

async fn hold(subject: &Subject, wanted: impl Fn(&str) -> bool) {
    for (plural, collection, object) in HELD {
        if wanted(plural) {
            if plural == DEFINED {
                let is_defined = subject.define(thing()).await;
                assert!(is_defined, "the server accepts the test's definition");
            }
            let object = serde_json::from_str(object).expect("an object");
            subject.hold(collection, &object).await;
        }
    }
}

/// Version of a definition whose objects have fields of every type.
fn thing() -> Value {
    let text = json!({"type": "string", "maxLength": 20});
    let item = json!({"type": "object", "required": ["name"],
        "properties": {"name": text, "size": {"type": "integer", "default": 1, "maximum": 9}}});
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.replicas < 100"}], "properties": {
        "replicas": {"type": "integer", "default": 1}, "class": text,
        "either": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "labels": {"type": "object", "additionalProperties": text},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item}
    }});
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
        "additionalPrinterColumns": [{"name": "Class", "type": "string", "jsonPath": ".spec.class"}]
    })
}

/// Plays requests in the format of an `.http` file: `VERB PATH?QUERY`, headers, an empty line and
/// the body. A line `###` separates requests. A request with credentials runs as their user, any
/// other request as the administrator.
pub(super) fn request(data: &[u8]) {
    let text = data;
    let presents = |name: &[u8]| text.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name));
    let authorization = if presents(b"authorization:") || presents(b"impersonate-") {
        Authorization::Rbac
    } else {
        Authorization::AlwaysAllow
    };
    in_runtime(async {
        let subject = Subject::new(authorization);
        hold(&subject, |plural| presents(plural.as_bytes()) || presents(b"m0")).await;
        for one in split(text, b"\n###\n").take(MAX_REQUESTS) {
            if let Some(asked) = read_request(one) {
                subject.ask(asked).await;
            }
        }
        subject.is_well().await;
    });
}

fn read_request(text: &[u8]) -> Option<Asked> {
    let (head, body) = split_once(text, b"\n\n").unwrap_or((text, b""));
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let (method, uri) = first.split_once(' ')?;
    let mut asked = Asked::new(Method::from_bytes(method.as_bytes()).ok()?, uri.trim());
    for line in lines {
        let Some((name, value)) = split_once(line, b":") else { continue };
        let name = header::HeaderName::from_bytes(name);
        let value = header::HeaderValue::from_bytes(value.trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            asked.headers.append(name, value);
        }
    }
    asked.body = body.to_vec();
    Some(asked)
}

/// Reads a line `PLURAL MEDIA-TYPE` and the body of an object of that kind. The object is posted,
/// read, put and deleted. `PLURAL/SUBRESOURCE` posts the body to that subresource of an object.
pub(super) fn body(data: &[u8]) {
    let (what, media_type, body) = titled(data);
    let (plural, subresource) = what.split_once('/').unwrap_or((what, ""));
    in_runtime(async {
        let subject = Subject::new(Authorization::AlwaysAllow);
        let collection = collection(&subject, plural).await;
        if !subresource.is_empty() {
            hold(&subject, |held| held == plural).await;
            let place = format!("{collection}/m0/{subresource}");
            for method in [Method::POST, Method::PUT] {
                subject.ask(Asked::new(method, &*place).body(media_type, body)).await;
            }
            subject.is_well().await;
            return;
        }
        let strict = format!("{collection}?fieldValidation=Strict&dryRun=All");
        subject.ask(Asked::new(Method::POST, strict).body(media_type, body)).await;
        let made = subject.ask(Asked::new(Method::POST, &*collection).body(media_type, body)).await;
        let made = made.filter(|made| made.is_success()).map(|made| made.value()).unwrap_or_default();
        subject.ask(Asked::new(Method::GET, &*collection).shown_as_table()).await;
        if let Some(name) = made.pointer("/metadata/name").and_then(Value::as_str) {
            let place = format!("{collection}/{}", escaped(name.as_bytes()));
            subject.ask(Asked::new(Method::PUT, &*place).json(&made)).await;
            subject.ask(Asked::new(Method::PUT, format!("{place}/status")).json(&made)).await;
            subject.ask(Asked::new(Method::PUT, &*place).body(media_type, body)).await;
            subject.ask(Asked::new(Method::GET, &*place).shown_as_table()).await;
            subject.ask(Asked::new(Method::DELETE, &*place).body(media_type, body)).await;
            subject.ask(Asked::new(Method::DELETE, &*place)).await;
        }
        subject.is_well().await;
    });
}

/// Reads a line `PLURAL[/SUBRESOURCE] MEDIA-TYPE [QUERY]` and a patch. The patch is applied twice
/// to an existing object.
pub(super) fn patch(data: &[u8]) {
    let (what, rest, body) = titled(data);
    let (media_type, query) = rest.split_once(' ').unwrap_or((rest, "fieldManager=f&force=true"));
    let (plural, subresource) = what.split_once('/').unwrap_or((what, ""));
    let chosen = HELD.iter().find(|(held, ..)| *held == plural).unwrap_or(&HELD[data.len() % HELD.len()]);
    in_runtime(async {
        let subject = Subject::new(Authorization::AlwaysAllow);
        hold(&subject, |plural| plural == chosen.0).await;
        let mut place = chosen.1.to_owned();
        place += if chosen.0 == "customresourcedefinitions" { "/m0.t.dev" } else { "/m0" };
        if !subresource.is_empty() {
            place = format!("{place}/{subresource}");
        }
        for _ in 0..2 {
            subject.ask(Asked::new(Method::PATCH, format!("{place}?{query}")).body(media_type, body)).await;
        }
        subject.ask(Asked::new(Method::GET, chosen.1).shown_as_table()).await;
        subject.ask(Asked::new(Method::GET, chosen.1)).await;
        subject.is_well().await;
    });
}

/// Reads a label selector, a field selector and a plural, one per line.
pub(super) fn selector(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let (labels, fields) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let plural = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let chosen = HELD.iter().find(|(held, ..)| *held == plural).unwrap_or(&HELD[data.len() % 4]);
    in_runtime(async {
        let subject = Subject::new(Authorization::AlwaysAllow);
        hold(&subject, |plural| plural == chosen.0).await;
        let query = format!("labelSelector={}&fieldSelector={}", escaped(labels), escaped(fields));
        subject.ask(Asked::new(Method::GET, format!("{}?{query}", chosen.1))).await;
        subject.ask(Asked::new(Method::GET, format!("{}?watch=1&timeoutSeconds=1&{query}", chosen.1))).await;
        subject.ask(Asked::new(Method::DELETE, format!("{}?{query}", chosen.1))).await;
        subject.is_well().await;
    });
}

/// Reads a continue token. The same bytes are also tried as the content of a token.
pub(super) fn continue_token(data: &[u8]) {
    use base64::Engine as _;
    let content = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(data);
    in_runtime(async {
        let subject = Subject::new(Authorization::AlwaysAllow);
        for token in [data, content.as_bytes()] {
            for limit in ["", "&limit=1"] {
                let query = format!("continue={}{limit}", escaped(token));
                subject.ask(Asked::new(Method::GET, format!("/api/v1/namespaces?{query}"))).await;
                let inside = format!("/api/v1/namespaces/default/serviceaccounts?{query}");
                subject.ask(Asked::new(Method::GET, inside)).await;
            }
        }
        subject.is_well().await;
    });
}

/// Reads the schema of a definition and an object for it, each as JSON, separated by a line `---`.
pub(super) fn schema(data: &[u8]) {
    let (schema, object) = split_once(data, b"\n---\n").unwrap_or((data, b"{}"));
    let Some(schema) = read(schema) else { return };
    in_runtime(async {
        let subject = Subject::new(Authorization::AlwaysAllow);
        let version = json!({"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}});
        if subject.define(version).await {
            for path in ["/openapi/v3/apis/t.dev/v1", "/apis/t.dev/v1"] {
                subject.ask(Asked::new(Method::GET, path)).await;
            }
            store(&subject, read(object).unwrap_or_default()).await;
        }
        subject.is_well().await;
    });
}

/// Reads a rule and a value for it as JSON, separated by a line `---`.
pub(super) fn rule(data: &[u8]) {
    let (rule, value) = split_once(data, b"\n---\n").unwrap_or((data, b"{}"));
    let (Ok(rule), Some(value)) = (std::str::from_utf8(rule), read(value)) else { return };
    in_runtime(async {
        let mut about = schema_of(&value, 0);
        about["x-kubernetes-validations"] = json!([{"rule": rule}, {"rule": "true", "messageExpression": rule}, {"rule": "self == oldSelf", "message": "m"}]);
        // The rule is also tried without a message expression, because an invalid expression makes
        // the server reject the whole definition.
        let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": [{"rule": rule}]});
        for about in [about, free] {
            let subject = Subject::new(Authorization::AlwaysAllow);
            let schema = json!({"type": "object", "properties": {"spec": about}});
            if subject.define(json!({"schema": {"openAPIV3Schema": schema}})).await {
                store(&subject, json!({"spec": value})).await;
            }
            subject.is_well().await;
        }
    });
}

/// Derives a schema that the value satisfies.
fn schema_of(value: &Value, depth: usize) -> Value {
    /// Deep enough for any rule that people write.
    const DEEPEST: usize = 16;
    match value {
        _ if DEEPEST < depth => json!({"x-kubernetes-preserve-unknown-fields": true, "type": "object"}),
        Value::Null => json!({"type": "string", "nullable": true}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string", "maxLength": 100}),
        Value::Array(items) => {
            let item =
                items.first().map_or_else(|| json!({"type": "string"}), |item| schema_of(item, depth + 1));
            json!({"type": "array", "items": item, "maxItems": 20})
        }
        Value::Object(map) => {
            let below: serde_json::Map<String, Value> =
                map.iter().map(|(key, value)| (key.clone(), schema_of(value, depth + 1))).collect();
            json!({"type": "object", "properties": below})
        }
    }
}

/// Reads the JSONPath of a column on one line, and the object for it.
pub(super) fn json_path(data: &[u8]) {
    let (path, object) = split_once(data, b"\n").unwrap_or((data, b"{}"));
    let Ok(path) = std::str::from_utf8(path) else { return };
    in_runtime(async {
        let object = read(object).unwrap_or_default();
        let any =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let columns: Vec<Value> = ["string", "integer", "number", "boolean", "date"]
            .iter()
            .map(|of| json!({"name": of, "type": of, "jsonPath": path}))
            .collect();
        let scale = json!({"specReplicasPath": path, "statusReplicasPath": path, "labelSelectorPath": path});
        for version in [
            json!({"schema": any, "additionalPrinterColumns": columns}),
            json!({"schema": any, "subresources": {"scale": scale}}),
            json!({"schema": any, "selectableFields": [{"jsonPath": path}]}),
        ] {
            let subject = Subject::new(Authorization::AlwaysAllow);
            if subject.define(version).await {
                store(&subject, object.clone()).await;
                for method in [Method::GET, Method::PUT] {
                    let scale = Asked::new(method, format!("{THINGS}/t0/scale"));
                    subject.ask(scale.json(&json!({"spec": {"replicas": 3}}))).await;
                }
            }
            subject.is_well().await;
        }
    });
}

/// Reads the query of a watch. The watch is opened, receives changes, and is closed.
pub(super) fn watch(data: &[u8]) {
    let query: String = data.iter().filter(|byte| **byte != b'\n').map(|byte| in_query(*byte)).collect();
    in_runtime(async {
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let subject = Subject::new(Authorization::AlwaysAllow);
        let map = |label: &str| json!({"metadata": {"name": "m0", "labels": {"a": label}}});
        subject.hold(MAPS, &map("b")).await;
        for compacted in [false, true] {
            let asked = Asked::new(Method::GET, format!("{MAPS}?watch=1&{query}"));
            let opened = subject.send(asked).await;
            for label in ["c", "b"] {
                let change = Asked::new(Method::PUT, format!("{MAPS}/m0")).json(&map(label));
                subject.ask(change).await;
            }
            if let Some(opened) = opened {
                subject.read(opened).await;
            }
            if !compacted {
                subject.server.compact();
            }
        }
        subject.is_well().await;
    });
}

/// Renders a byte for a query: unchanged, or escaped if a URI cannot contain it.
fn in_query(byte: u8) -> String {
    match byte {
        b'!'..=b'~'
            if !matches!(byte, b'"' | b'<' | b'>' | b'#' | b'`' | b'{' | b'}' | b'\\' | b'^' | b'|') =>
        {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    }
}

/// Sends an object of the defined kind through all operations.
async fn store(subject: &Subject, object: Value) {
    let mut object = if object.is_object() { object } else { json!({"spec": object}) };
    object["apiVersion"] = json!("t.dev/v1");
    object["kind"] = json!("Thing");
    object["metadata"] = json!({"name": "t0"});
    let place = format!("{THINGS}/t0");
    subject.ask(Asked::new(Method::POST, THINGS).json(&object)).await;
    for method in [Method::PUT, Method::PATCH] {
        let media_type =
            if method == Method::PUT { "application/json" } else { "application/merge-patch+json" };
        subject.ask(Asked::new(method, &*place).body(media_type, object.to_string())).await;
    }
    let apply = Asked::new(Method::PATCH, format!("{place}?fieldManager=f&force=true"));
    subject.ask(apply.body("application/apply-patch+yaml", object.to_string())).await;
    subject.ask(Asked::new(Method::PUT, format!("{place}/status")).json(&object)).await;
    subject.ask(Asked::new(Method::GET, THINGS).shown_as_table()).await;
    subject.ask(Asked::new(Method::GET, &*place)).await;
}

/// Splits the first line into two words, and returns the remaining text.
fn titled(data: &[u8]) -> (&str, &str, &[u8]) {
    let (title, body) = split_once(data, b"\n").unwrap_or((data, b""));
    let title = std::str::from_utf8(title).unwrap_or_default();
    let (what, rest) = title.split_once(' ').unwrap_or((title, "application/json"));
    (what, rest, body)
}

/// Path of the collection of a built-in kind; for any kind plural, of one of them.
async fn collection(subject: &Subject, plural: &str) -> String {
    static SERVED: OnceLock<Vec<(String, String)>> = OnceLock::new();
    if SERVED.get().is_none() {
        let mut served = discovered(subject, "/apis").await;
        served.extend(discovered(subject, "/api").await);
        // Another thread may have been first, with the same list.
        let _same = SERVED.set(served);
    }
    let all = SERVED.get().expect("it was just set");
    let found = all.iter().find(|(served, _)| served == plural);
    found.unwrap_or(&all[plural.len() % all.len()]).1.clone()
}

/// Plural and collection of every resource that aggregated discovery lists at `root`.
async fn discovered(subject: &Subject, root: &str) -> Vec<(String, String)> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let asked = Asked::new(Method::GET, root).header(http::header::ACCEPT, accept);
    let answered = subject.ask(asked).await.expect("a request").value();
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for group in list(&answered, "items") {
        let name = text(&group["metadata"], "name");
        let group_path = if name.is_empty() { root.to_owned() } else { format!("{root}/{name}") };
        for version in list(&group, "versions") {
            for resource in list(&version, "resources") {
                let namespace = match resource["scope"].as_str() {
                    Some("Namespaced") => "namespaces/default/",
                    _ => "",
                };
                let plural = text(&resource, "resource");
                let path = format!("{group_path}/{}/{namespace}{plural}", text(&version, "version"));
                found.push((plural, path));
            }
        }
    }
    assert!(!found.is_empty(), "discovery at {root} lists no resource");
    found
}

fn split_once<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|window| window == mark)?;
    Some((&text[..at], &text[at + mark.len()..]))
}

fn split<'a>(text: &'a [u8], mark: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match split_once(text, mark) {
            Some((one, more)) => {
                rest = Some(more);
                Some(one)
            }
            None => rest.take(),
        }
    })
}

/// Reads JSON up to the depth that the server itself accepts.
fn read(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok()
}
