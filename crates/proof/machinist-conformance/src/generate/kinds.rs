//! Tables of kinds and fields for generated sequences, with valid, invalid and boundary values for
//! each field.

/// One kind in generated sequences.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    /// Path of the collection.
    pub(super) collection: &'static str,
    /// Prefix of each name. Names of cluster-scoped objects contain the sequence's namespace, so
    /// that sequences do not collide.
    pub(super) prefix: &'static str,
    /// The smallest valid body, as JSON.
    pub(super) base: &'static str,
    pub(super) fields: &'static [Field],
    /// Fields of the `/status` subresource. Empty if the kind has none.
    pub(super) status: &'static [Field],
    pub(super) has_scale: bool,
    /// Field selectors. The server rejects some of them.
    pub(super) selectors: &'static [&'static str],
}

impl Kind {
    pub(super) fn is_cluster_scoped(&self) -> bool {
        !self.prefix.is_empty()
    }
}

/// One place in a body, and values for it.
#[derive(Debug)]
pub(super) struct Field {
    /// Path in the body, such as `spec/replicas`.
    pub(super) at: &'static str,
    /// A JSON array of values that the server accepts.
    pub(super) good: &'static str,
    /// A JSON array of values that the server rejects or treats specially.
    pub(super) odd: &'static str,
}

const fn field(at: &'static str, good: &'static str, odd: &'static str) -> Field {
    Field { at, good, odd }
}

/// Metadata fields of every object.
pub(super) const METADATA: &[Field] = &[
    field("metadata/labels/app", r#"["x", "y", "z"]"#, r#"["no value!", 5, "${fill.64}"]"#),
    field("metadata/labels/tier", r#"["front", "back", ""]"#, r#"[true]"#),
    field(
        "metadata/labels",
        r#"[{"app": "x"}, {"app": "y", "tier": "front"}]"#,
        r#"[{}, "x", {"no key!": "v"}, {"a/b/c": "v"}]"#,
    ),
    field("metadata/annotations/note", r#"["one", "two", ""]"#, r#"[1, "${fill.300}"]"#),
    field("metadata/annotations", r#"[{"note": "all"}, {}]"#, r#"[[], {"no key!": "v"}]"#),
    field(
        "metadata/finalizers",
        r#"[["t.dev/f"], ["t.dev/f", "t.dev/g"], []]"#,
        r#"[["plain"], ["t.dev/f", "t.dev/f"], "t.dev/f"]"#,
    ),
    field(
        "metadata/ownerReferences",
        r#"[[{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o-1"}], []]"#,
        r#"[[{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": ""}],
            [{"apiVersion": "v1", "kind": "A", "name": "o", "uid": "o-1", "controller": true},
             {"apiVersion": "v1", "kind": "A", "name": "p", "uid": "o-2", "controller": true}],
            [{"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "o-1"}]]"#,
    ),
    field("metadata/uid", "[]", r#"["other", ""]"#),
    field("metadata/name", "[]", r#"["other"]"#),
    field("metadata/namespace", "[]", r#"["other", ""]"#),
    field("metadata/generation", "[]", "[0]"),
    field("metadata/creationTimestamp", "[]", r#"[null, "2001-01-01T00:00:00Z"]"#),
    field("metadata/selfLink", "[]", r#"["/somewhere"]"#),
    field("metadata/generateName", "[]", r#"["h-"]"#),
    field("metadata/managedFields", "[]", r#"[[], [{}]]"#),
    field("unknown", "[]", r#"["x", {"a": 1}]"#),
];

pub(super) const KINDS: &[Kind] = &[MACHINE, GAUGE, CONFIG_MAP, SECRET, NODE, POD, BUDGET, LEASE];

const MACHINE: Kind = Kind {
    plural: "machines",
    kind: "Machine",
    api_version: "t.dev/v1",
    collection: "/apis/t.dev/v1/namespaces/${ns}/machines",
    prefix: "",
    base: "{}",
    fields: &[
        field("spec/replicas", "[0, 1, 5, 100]", r#"[-1, 101, 1.5, "3", 1.0, 9007199254740993, true]"#),
        field("spec/class", r#"["a", "a-b", "${fill.20}"]"#, r#"["", "UPPER", "${fill.21}", "é", 5]"#),
        field("spec/mode", r#"["auto", "manual"]"#, r#"["other", "", 1]"#),
        field("spec/ratio", "[0.5, 2, -1.25]", r#"["x", 1e20, 0]"#),
        field("spec/paused", "[true, false]", r#"["true", 0]"#),
        field("spec/surge", r#"[1, "50%", 0]"#, "[1.5, true]"),
        field("spec/note", r#"["n", ""]"#, "[null, 3]"),
        field("spec/free", r#"[{"a": 1}, {"a": {"b": [1, 2]}, "c": null}, {}]"#, r#"["x", []]"#),
        field("spec/free/a", r#"[1, "x", [], {"b": 1}]"#, "[1.0, 1e3]"),
        field("spec/tags", r#"[["a"], ["a", "b"], ["b", "c"], []]"#, r#"[["a", "a"], [1], "a"]"#),
        field(
            "spec/disks",
            r#"[[{"name": "a"}], [{"name": "a", "size": 5}, {"name": "b"}], [{"name": "c", "size": 1}], []]"#,
            r#"[[{"name": "a"}, {"name": "a"}], [{"size": 1}], [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}],
                [{"name": "a", "other": 1}], [null], {}]"#,
        ),
        field("spec/labels/k", r#"["v", ""]"#, "[1]"),
        field("spec/labels", r#"[{"k": "v", "l": "w"}, {}]"#, r#"[{"k": 1}, []]"#),
        field(
            "spec/template",
            r#"[{"image": "i"}, {"image": "j", "port": 80}]"#,
            r#"[{}, {"port": 80}, {"image": "i", "port": 2147483648}, "x"]"#,
        ),
        field("spec/template/port", "[1, 443]", r#"["http", -2147483649]"#),
        field("spec/unknown", "[]", r#"["x", 1]"#),
        field("spec", "[{}]", r#"["x", []]"#),
        field("status/phase", r#"["Running"]"#, "[1]"),
    ],
    status: &[
        field("status/phase", r#"["Pending", "Running", ""]"#, "[]"),
        field("status/replicas", "[0, 1, 3]", "[]"),
        field("status/selector", r#"["app=x"]"#, "[]"),
        field("status/free", r#"[{"z": 1}, {}]"#, "[]"),
        field("status/unknown", "[]", "[1]"),
        field("status", "[{}]", r#"["x"]"#),
        field("spec/replicas", "[2]", "[-1]"),
    ],
    has_scale: true,
    selectors: &[
        "metadata.name=a",
        "metadata.name!=b",
        "metadata.namespace=${ns}",
        "spec.class=a",
        "status.phase=x",
    ],
};

const GAUGE: Kind = Kind {
    plural: "gauges",
    kind: "Gauge",
    api_version: "r.dev/v1",
    collection: "/apis/r.dev/v1/namespaces/${ns}/gauges",
    prefix: "",
    base: r#"{"spec": {"max": 10}}"#,
    fields: &[
        field("spec/max", "[10, 20, 49, 1000]", r#"[1001, -1, "x"]"#),
        field("spec/min", "[0, 5, 9]", r#"[11, "x"]"#),
        field("spec/locked", r#"["no", "yes"]"#, r#"["${fill.11}"]"#),
        field("spec/once", r#"["first"]"#, r#"["second", ""]"#),
        field("spec/name", r#"["abc"]"#, r#"["A", ""]"#),
        field("spec/grows", "[0, 1, 5]", "[-1]"),
        field("spec/ratio", "[0.5, 1]", "[1.5, 2]"),
        field("spec/when", r#"["2001-01-01T00:00:00Z"]"#, r#"["1999-01-01T00:00:00Z", "yesterday"]"#),
        field("spec/wait", r#"["5m", "59m59s"]"#, r#"["1h", "soon"]"#),
        field("spec/surge", r#"[1, "50%"]"#, r#"[10, "50"]"#),
        field(
            "spec/disks",
            r#"[[{"name": "a"}], [{"name": "a", "size": 5}, {"name": "b", "size": 2}], []]"#,
            r#"[[{"name": "a", "size": 0}], [{"name": "a"}, {"name": "a"}]]"#,
        ),
        field(
            "spec/tags",
            r#"[["a"], ["a", "a"], []]"#,
            r#"[["forbidden"], ["a", "forbidden", "forbidden"]]"#,
        ),
        field("spec/labels", r#"[{"k": ""}, {"k": "v"}]"#, r#"[{"k": "w"}, {"k": "${fill.11}"}]"#),
        field("spec/odd-name", "[1]", "[0]"),
        field(
            "spec/pair",
            r#"[{"first-one": "a", "namespace": "a"}]"#,
            r#"[{"first-one": "a", "namespace": "b"}, {"first-one": "a"}]"#,
        ),
        field("spec/address", r#"["10.0.0.1", ""]"#, r#"["::1", "10.0.0.256"]"#),
        field("spec/memory", r#"["5Mi", "1M"]"#, r#"["1Gi", "x"]"#),
        field("spec/old", "[1]", r#"["x"]"#),
    ],
    status: &[field("status/level", "[1, 5, 10]", r#"[11, 0, "x"]"#), field("status", "[{}]", "[null]")],
    has_scale: false,
    selectors: &["metadata.name=b", "spec.max=10"],
};

const CONFIG_MAP: Kind = Kind {
    plural: "configmaps",
    kind: "ConfigMap",
    api_version: "v1",
    collection: "/api/v1/namespaces/${ns}/configmaps",
    prefix: "",
    base: "{}",
    fields: &[
        field("data/k", r#"["v", "w", ""]"#, "[1, true, {}]"),
        field("data/l", r#"["v"]"#, "[1]"),
        field(
            "data",
            r#"[{"k": "v", "l": "w"}, {}]"#,
            r#"[{"no key!": "v"}, [], {"..": "v"}, {"${fill.254}": "v"}]"#,
        ),
        field("binaryData/b", r#"["eA==", ""]"#, r#"["%", "?"]"#),
        field("binaryData/k", "[]", r#"["eA=="]"#),
        field("immutable", "[false]", r#"[true, "true"]"#),
    ],
    status: &[],
    has_scale: false,
    selectors: &["metadata.name=a", "data.k=v"],
};

const SECRET: Kind = Kind {
    plural: "secrets",
    kind: "Secret",
    api_version: "v1",
    collection: "/api/v1/namespaces/${ns}/secrets",
    prefix: "",
    base: "{}",
    fields: &[
        field("data/k", r#"["eA==", "eQ==", ""]"#, r#"["%", 1]"#),
        field("data", r#"[{"k": "eA==", "l": "eQ=="}, {}]"#, r#"[{"no key!": "eA=="}]"#),
        field("stringData/k", r#"["plain", ""]"#, "[1]"),
        field("stringData/l", r#"["text"]"#, "[{}]"),
        field(
            "type",
            r#"["Opaque"]"#,
            r#"["t.dev/other", "kubernetes.io/basic-auth", "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", ""]"#,
        ),
        field("immutable", "[false]", "[true]"),
    ],
    status: &[],
    has_scale: false,
    selectors: &["type=Opaque", "type!=Opaque", "metadata.name=b"],
};

const NODE: Kind = Kind {
    plural: "nodes",
    kind: "Node",
    api_version: "v1",
    collection: "/api/v1/nodes",
    prefix: "${ns}-",
    base: r#"{"metadata": {"labels": {"sequence": "${ns}"}}}"#,
    fields: &[
        field("spec/unschedulable", "[true, false]", r#"["true"]"#),
        field(
            "spec/taints",
            r#"[[{"key": "a", "effect": "NoSchedule"}], [{"key": "b", "value": "v", "effect": "NoExecute"}], []]"#,
            r#"[[{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "v", "effect": "NoSchedule"}], [{"key": "a"}],
                [{"key": "a", "effect": "Sometimes"}], [{"key": "no key!", "effect": "NoSchedule"}], [{"effect": "NoSchedule"}]]"#,
        ),
        field("spec/providerID", r#"["sim:///1"]"#, r#"["sim:///2", ""]"#),
        field("spec/podCIDR", r#"["10.0.0.0/24"]"#, r#"["10.0.0.0", "10.1.0.0/24"]"#),
        field("spec/podCIDRs", r#"[["10.0.0.0/24"]]"#, r#"[["10.0.0.0/24", "10.1.0.0/24"], ["x"]]"#),
        field("status/phase", r#"["Running"]"#, r#"["Odd"]"#),
    ],
    status: &[
        field(
            "status/conditions",
            r#"[[{"type": "Ready", "status": "True"}], [{"type": "Ready", "status": "False", "reason": "R", "message": "m"}, {"type": "DiskPressure", "status": "False"}], []]"#,
            r#"[[{"type": "Ready"}], [{"status": "True"}], "x"]"#,
        ),
        field(
            "status/addresses",
            r#"[[{"type": "InternalIP", "address": "10.0.0.1"}], [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.2"}]]"#,
            r#"[[{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.1"}]]"#,
        ),
        field(
            "status/capacity",
            r#"[{"cpu": "4", "memory": "1Gi"}, {"cpu": "1500m"}, {"cpu": 2}]"#,
            r#"[{"cpu": "x"}, {"cpu": "-1"}]"#,
        ),
        field("status/allocatable", r#"[{"cpu": "3900m"}]"#, r#"[{"no name!": "1"}]"#),
        field("status/phase", r#"["Running"]"#, "[1]"),
        field("status/nodeInfo/kubeletVersion", r#"["v1.36.3"]"#, "[1]"),
        field("spec/unschedulable", "[true]", "[]"),
    ],
    has_scale: false,
    selectors: &[
        "metadata.name=${ns}-a",
        "spec.unschedulable=true",
        "spec.unschedulable=false",
        "status.phase=x",
    ],
};

const POD: Kind = Kind {
    plural: "pods",
    kind: "Pod",
    api_version: "v1",
    collection: "/api/v1/namespaces/${ns}/pods",
    prefix: "",
    // Without the token volume, because its name is random.
    base: r#"{"spec": {"serviceAccountName": "default", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}]}}"#,
    fields: &[
        field(
            "spec/containers",
            r#"[[{"name": "c", "image": "j"}], [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]]"#,
            r#"[[{"name": "c"}], [{"name": "d", "image": "i"}], "x"]"#,
        ),
        field("spec/nodeName", r#"["node-1"]"#, r#"["node-2"]"#),
        field("spec/restartPolicy", r#"["Never", "Always"]"#, "[1]"),
        field("spec/terminationGracePeriodSeconds", "[1, 30]", r#"["x"]"#),
        field(
            "spec/tolerations",
            r#"[[{"key": "a", "operator": "Exists"}], [{"key": "a", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}]]"#,
            r#"["x"]"#,
        ),
        field("spec/nodeSelector", r#"[{"a": "b"}]"#, r#"[{"a": 1}]"#),
        field("status/phase", r#"["Running"]"#, "[1]"),
    ],
    status: &[
        field("status/phase", r#"["Pending", "Running", "Succeeded", "Failed"]"#, "[1]"),
        field(
            "status/conditions",
            r#"[[{"type": "Ready", "status": "True"}], [{"type": "Ready", "status": "False", "reason": "R"}, {"type": "Initialized", "status": "True"}], []]"#,
            r#"[[{"type": "Ready"}], "x"]"#,
        ),
        field("status/podIP", r#"["10.0.0.1"]"#, r#"["x"]"#),
        field("status/message", r#"["m"]"#, "[1]"),
        field("metadata/labels/app", r#"["x", "y"]"#, "[]"),
        field("spec/nodeName", "[]", r#"["node-2"]"#),
    ],
    has_scale: false,
    selectors: &[
        "spec.nodeName=node-1",
        "spec.nodeName=",
        "status.phase=Running",
        "status.phase!=Running",
        "spec.restartPolicy=Always",
        "spec.image=i",
    ],
};

const BUDGET: Kind = Kind {
    plural: "poddisruptionbudgets",
    kind: "PodDisruptionBudget",
    api_version: "policy/v1",
    collection: "/apis/policy/v1/namespaces/${ns}/poddisruptionbudgets",
    prefix: "",
    base: r#"{"spec": {"selector": {"matchLabels": {"app": "x"}}}}"#,
    fields: &[
        field("spec/minAvailable", r#"[1, 0, "50%", "100%"]"#, r#"[-1, "150%", "x", 1.5, true]"#),
        field("spec/maxUnavailable", r#"[1, "25%"]"#, r#"[-1, "x%"]"#),
        field("spec/selector/matchLabels/app", r#"["x", "y"]"#, r#"["no value!"]"#),
        field(
            "spec/selector/matchExpressions",
            r#"[[{"key": "tier", "operator": "Exists"}], [{"key": "app", "operator": "In", "values": ["x", "y"]}]]"#,
            r#"[[{"key": "app", "operator": "In"}], [{"key": "app", "operator": "Odd"}]]"#,
        ),
        field("spec/unhealthyPodEvictionPolicy", r#"["IfHealthyBudget", "AlwaysAllow"]"#, r#"["Odd"]"#),
        field("status/disruptionsAllowed", "[1]", "[-1]"),
    ],
    status: &[
        field("status/disruptionsAllowed", "[0, 1, 2]", r#"[-1, "x"]"#),
        field("status/currentHealthy", "[1, 2]", "[-1]"),
        field("status/desiredHealthy", "[1]", "[-1]"),
        field("status/expectedPods", "[2]", "[-1]"),
        field("status/observedGeneration", "[1, 2]", "[-1]"),
        field("spec/minAvailable", "[2]", "[]"),
    ],
    has_scale: false,
    selectors: &["metadata.name=a", "spec.minAvailable=1"],
};

const LEASE: Kind = Kind {
    plural: "leases",
    kind: "Lease",
    api_version: "coordination.k8s.io/v1",
    collection: "/apis/coordination.k8s.io/v1/namespaces/${ns}/leases",
    prefix: "",
    base: "{}",
    fields: &[
        field("spec/holderIdentity", r#"["me", "you"]"#, r#"["", 1]"#),
        field("spec/leaseDurationSeconds", "[1, 15]", r#"[0, -1, "15"]"#),
        field("spec/acquireTime", r#"["2001-01-01T00:00:00.000000Z"]"#, r#"["2001-01-01T00:00:00Z", "x"]"#),
        field(
            "spec/renewTime",
            r#"["2001-01-01T00:00:00.123456Z", "2001-01-01T00:00:10.000000Z"]"#,
            r#"[5]"#,
        ),
        field("spec/leaseTransitions", "[0, 3]", "[-1]"),
        field("spec", "[{}]", r#"["x"]"#),
    ],
    status: &[],
    has_scale: false,
    selectors: &["metadata.name=a", "spec.holderIdentity=me"],
};
