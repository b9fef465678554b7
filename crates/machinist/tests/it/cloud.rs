//! Tests of the cloud controller manager as a process, with the stand-in for Hetzner Cloud.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::process::{Ended, Process, Up, call, free_port, machinist};
use crate::processes::{PATIENCE, apply, until};

const TOKEN: &str = "token-of-the-project";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A cluster without machines, and the stand-in.
struct World {
    up: Up,
    client: Client,
    endpoint: String,
    _standin: Process,
}

impl World {
    async fn new() -> Self {
        let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
        let client = up.client().await;
        let mut standin =
            Process::start(&mut machinist(&format!("stand-in hcloud --listen 127.0.0.1:0 --token {TOKEN}")));
        let line = standin.line_with("Stand-in for Hetzner Cloud at ");
        let endpoint = line.trim().rsplit(' ').next().expect("its URL").to_owned();
        Self { up, client, endpoint, _standin: standin }
    }

    /// Registers a Node that waits for its initialisation.
    async fn node(&self, name: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(node).expect("a Node");
        nodes.create(&PostParams::default(), &node).await.expect("accepted");
    }

    /// Creates a Service of the type LoadBalancer.
    async fn service(&self, name: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        let service = serde_json::from_value(service).expect("a Service");
        services.create(&PostParams::default(), &service).await.expect("accepted");
    }

    /// Creates a server in the cloud.
    fn server(&self, name: &str) {
        let (base, _) = self.endpoint.rsplit_once("/v1").expect("the URL ends in the version");
        let body = json!({"project": "default", "name": name}).to_string();
        call(base, "POST", "/_control/servers", &body);
    }

    /// Starts a cloud controller manager with all permissions.
    fn controller(&self, port: u16, flags: &str) -> Process {
        self.controller_with(port, flags, "")
    }

    /// Starts a cloud controller manager with this address for plain metrics, if it is not empty.
    fn controller_with(&self, port: u16, flags: &str, metrics: &str) -> Process {
        self.controller_of(&self.up.kubeconfig, port, flags, metrics)
    }

    fn controller_of(&self, kubeconfig: &Path, port: u16, flags: &str, metrics: &str) -> Process {
        Process::start(&mut self.command(kubeconfig, port, flags, metrics))
    }

    fn command(&self, kubeconfig: &Path, port: u16, flags: &str, metrics: &str) -> Command {
        let mut command = machinist(&format!(
            "cloud-controller-manager --cloud-provider hcloud --bind-address 127.0.0.1 --secure-port {port} \
             --configure-cloud-routes=false {flags} --kubeconfig"
        ));
        command.arg(kubeconfig).env("HCLOUD_TOKEN", TOKEN).env("HCLOUD_ENDPOINT", &self.endpoint);
        command.env("HCLOUD_METRICS_ENABLED", if metrics.is_empty() { "false" } else { "true" });
        command.env("HCLOUD_METRICS_ADDRESS", metrics);
        command
    }

    /// Returns a token of a new ServiceAccount.
    async fn token(&self, account: &str) -> String {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
        apply(&self.client, accounts, body).await;
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let request = http::Request::post(format!("{accounts}/{account}/token"));
        let request = request.header("content-type", "application/json").body(body.to_string().into_bytes());
        let answer: Value = self.client.request(request.expect("a request")).await.expect("a token");
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Grants rules to a ServiceAccount in the whole cluster.
    async fn grant(&self, account: &str, rules: Value) {
        let group = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": account}, "rules": rules,
        });
        apply(&self.client, &format!("{group}/clusterroles"), role).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
        });
        apply(&self.client, &format!("{group}/clusterrolebindings"), binding).await;
    }

    async fn allow_metrics(&self, account: &str) {
        self.grant(account, json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])).await;
    }

    /// Writes a kubeconfig with a token.
    fn kubeconfig_with(&self, token: &str) -> PathBuf {
        let file = self.up.folder.path().join("with-token");
        let ca = self.up.folder.path().join("ca.crt");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": self.up.api_server, "certificate-authority": ca}}],
            "users": [{"name": "a", "user": {"token": token}}],
        });
        std::fs::write(&file, text.to_string()).expect("written");
        file
    }

    /// Waits until a Node is initialised.
    async fn until_initialized(&self, name: &str) {
        let has_no_taint = |node: Option<&Node>| {
            let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_ref());
            node.is_some()
                && taints.is_none_or(|taints| taints.iter().all(|taint| taint.key != UNINITIALIZED))
        };
        until(Api::<Node>::all(self.client.clone()), name, has_no_taint).await;
    }

    /// Runs `machinist why`.
    fn why(&self, line: &str) -> Ended {
        Ended::of(machinist(&format!("why {line}")).env("KUBECONFIG", &self.up.kubeconfig))
    }
}

const NO_CONTROLLER: &str = "--controller http://127.0.0.1:1";

#[tokio::test]
async fn nodes_and_services_are_explained_without_a_controller() {
    let world = World::new().await;
    world.node("a").await;
    world.service("web").await;

    let answered = world.why(&format!("node/a {NO_CONTROLLER}"));
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    let expected =
        "node/a: the decision needs an answer of the cloud; only a running cloud controller manager has";
    assert!(answered.stdout.starts_with(expected), "{}", answered.stdout);
    assert!(
        answered.stdout.contains("known     from the API server; no controller answers"),
        "{}",
        answered.stdout
    );

    let answered = world.why(&format!("svc/web -o json {NO_CONTROLLER}"));
    let answer: Value = serde_json::from_str(&answered.stdout).expect("one JSON object");
    assert_eq!(answer["object"], "service/default/web");
    assert_eq!(answer["reason"], "Writing", "{answer:#}");
    assert_eq!(answer["page"], "docs/src/stuck.md#writing", "{answer:#}");
    assert_eq!(answer["actions"][0], "service: add finalizer", "{answer:#}");
    assert_eq!(answer["source"]["who"], "api");

    for (line, expected) in [
        ("node/absent", "error: node/absent not found; check the name and the cluster\n"),
        ("service/web -n other", "error: service/other/web not found; check the name and the namespace\n"),
    ] {
        let answered = world.why(&format!("{line} {NO_CONTROLLER}"));
        assert_eq!((answered.code, answered.stderr.as_str()), (Some(1), expected), "{line}");
    }
    let answered = world.why("pod/a");
    assert_eq!(answered.code, Some(2), "{}", answered.stderr);
    assert!(answered.stderr.contains("node/NAME, service/NAME"), "{}", answered.stderr);
}

#[tokio::test]
async fn a_running_controller_explains_nodes_and_services() {
    let world = World::new().await;
    world.server("a");
    world.node("a").await;
    let port = free_port();
    let paths = "--authorization-always-allow-paths /readyz,/why/*";
    let controller = world.controller(port, paths);
    world.until_initialized("a").await;
    let answered = world.why(&format!("node/a -o json --controller https://127.0.0.1:{port}"));
    let answer: Value = serde_json::from_str(&answered.stdout).expect("one JSON object");
    assert_eq!(answer["source"]["component"], "cloud-controller-manager", "{answer:#}");
    assert_eq!(answer["fromApi"]["reason"], "CloudUnknown", "{answer:#}");
    controller.terminate().cleanly();
}

/// The excluded paths are open, every other path needs a permission.
#[tokio::test]
async fn metrics_need_a_permission() {
    let world = World::new().await;
    let (port, plain) = (free_port(), free_port());
    let (may, may_not) = (world.token("scraper").await, world.token("stranger").await);
    world.allow_metrics("scraper").await;
    world.server("a");
    world.node("a").await;
    let controller = world.controller_with(port, "", &format!("127.0.0.1:{plain}"));
    world.until_initialized("a").await;

    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(port, path, None).await, Ok("OK".to_owned()), "{path}");
    }
    let text = get(port, "/metrics", Some(&may)).await.expect("allowed");
    let has = |line: &str| assert!(text.lines().any(|shown| shown.starts_with(line)), "{line} in\n{text}");
    has(r#"running_managed_controllers{name="cloud-node-controller",manager="cloud-controller-manager"} 1"#);
    has(r#"leader_election_master_status{name="cloud-controller-manager"} 1"#);
    has("node_controller_cloud_provider_taint_removal_delay_seconds_count 1");
    has(r#"hcloud_api_requests_total{api_endpoint="/servers",code="200",method="get"}"#);
    has("machinist_ccm_api_budget_remaining ");
    has("rest_client_requests_total{code=\"200\"");
    assert_eq!(get(port, "/metrics", None).await, Err(401));
    assert_eq!(get(port, "/metrics", Some("wrong")).await, Err(401));
    assert_eq!(get(port, "/metrics", Some(&may_not)).await, Err(403));
    assert_eq!(get(port, "/why/node/a", Some(&may)).await, Err(403), "only /metrics is granted");

    let open = call(&format!("http://127.0.0.1:{plain}"), "GET", "/metrics", "");
    assert!(open.as_str().is_some_and(|text| text.contains("machinist_ccm_tainted_nodes 0")), "{open}");
    let answered = world.why(&format!("node/a --controller https://127.0.0.1:{port}"));
    assert!(answered.stdout.contains("known     from the API server"), "{}", answered.stdout);
    let log = controller.terminate().cleanly();
    assert!(!log.contains("A permission is missing"), "the administrator lacks nothing\n{log}");
}

/// A cloud without load balancers has no controller for them, and the process is healthy.
#[tokio::test]
async fn a_process_without_load_balancers_is_ready() {
    let world = World::new().await;
    world.server("a");
    world.node("a").await;
    let port = free_port();
    let paths = "--authorization-always-allow-paths /readyz,/metrics";
    let mut command = world.command(&world.up.kubeconfig, port, paths, "");
    let controller = Process::start(command.env("HCLOUD_LOAD_BALANCERS_ENABLED", "false"));
    world.until_initialized("a").await;
    assert_eq!(get(port, "/readyz", None).await, Ok("OK".to_owned()));
    let text = get(port, "/metrics", None).await.expect("open");
    let running = |name: &str, runs: u8| {
        let manager = "cloud-controller-manager";
        format!("running_managed_controllers{{name=\"{name}\",manager=\"{manager}\"}} {runs}")
    };
    for (name, runs) in [("service-lb-controller", 0), ("cloud-node-controller", 1)] {
        assert!(text.contains(&running(name, runs)), "{name}\n{text}");
    }
    controller.terminate().cleanly();
}

/// Missing permissions are named at the start, and the process works on.
#[tokio::test]
async fn missing_permissions_are_reported_at_the_start() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes", "services", "configmaps"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["nodes/status", "services/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    ]);
    let token = world.token("controller").await;
    world.grant("controller", rules).await;
    let kubeconfig = world.kubeconfig_with(&token);
    let port = free_port();
    world.server("a");
    world.node("a").await;
    let controller =
        world.controller_of(&kubeconfig, port, "--authorization-always-allow-paths /metrics", "");
    world.until_initialized("a").await;
    let text = get(port, "/metrics", None).await.expect("excluded");
    let expected = r#"machinist_permission_missing{group="",resource="nodes",verb="delete"} 1"#;
    assert!(text.contains(expected), "{text}");
    let log = controller.terminate().cleanly();
    assert!(log.contains("Nodes of deleted servers stay"), "{log}");
}

/// The self-signed certificate of an installation without flags, at a forwarded port.
#[tokio::test]
async fn why_asks_a_loopback_port_with_a_token_alone() {
    let world = World::new().await;
    let token = world.token("reader").await;
    world.grant("reader", json!([{"nonResourceURLs": ["/why/*"], "verbs": ["get"]}])).await;
    world.server("a");
    world.node("a").await;
    let port = free_port();
    let controller = world.controller(port, "");
    world.until_initialized("a").await;
    let file = world.up.folder.path().join("token");
    std::fs::write(&file, &token).expect("written");
    let with_token = format!("node/a -o json --controller-token-file {}", file.display());

    let answered = world.why(&format!("{with_token} --controller https://127.0.0.1:{port}"));
    let answer: Value = serde_json::from_str(&answered.stdout).expect("one JSON object");
    assert_eq!(answer["source"]["component"], "cloud-controller-manager", "{answer:#}");

    // This CA has not signed the certificate of the controller.
    let ca = world.up.folder.path().join("ca.crt");
    let answered = world
        .why(&format!("{with_token} --controller https://127.0.0.1:{port} --controller-ca {}", ca.display()));
    let answer: Value = serde_json::from_str(&answered.stdout).expect("one JSON object");
    let problem = answer["controllers"][0]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("certificate"), "{answer:#}");

    let answered = world.why(&format!("{with_token} --controller https://192.0.2.1:1"));
    assert_eq!(answered.code, Some(2), "{}", answered.stderr);
    assert!(answered.stderr.contains("--controller-ca"), "{}", answered.stderr);
    assert!(!answered.stderr.contains(&token), "no message has the token");
    controller.terminate().cleanly();
}

/// A process that waits for its Lease is ready, and reports what it waits for.
#[tokio::test]
async fn a_standby_is_ready_and_is_measured() {
    let world = World::new().await;
    let (first, second) = (free_port(), free_port());
    let paths = "--authorization-always-allow-paths /readyz,/why/*,/serves";
    world.server("a");
    world.node("a").await;
    let leader = world.controller(first, paths);
    world.until_initialized("a").await;

    let plain = format!("127.0.0.1:{}", free_port());
    let standby = world.controller_with(second, paths, &plain);
    let (_, ready) = until_answer(second, "/readyz", |status, _| status == 200).await;
    assert_eq!(ready, "OK: another process leads, and this one waits for its lease");
    let (status, why) = ask(second, "/why/node/a", None).await.expect("an answer");
    assert_eq!((status, why.as_str()), (503, "another process leads, and this one waits for its lease"));
    let serves: Value =
        serde_json::from_str(&get(second, "/serves", None).await.expect("open")).expect("JSON");
    assert_eq!(serves["component"], "cloud-controller-manager");
    let metrics = call(&format!("http://{plain}"), "GET", "/metrics", "");
    let metrics = metrics.as_str().expect("text");
    assert!(
        metrics.contains("leader_election_master_status{name=\"cloud-controller-manager\"} 0"),
        "{metrics}"
    );
    assert!(metrics.contains("rest_client_requests_total{code=\"200\""), "{metrics}");

    let answered = world.why(&format!("node/a -o json --controller https://127.0.0.1:{second}"));
    let answer: Value = serde_json::from_str(&answered.stdout).expect("one JSON object");
    let problem = answer["controllers"][0]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("it is not the leader"), "{answer:#}");
    standby.terminate().cleanly();
    leader.terminate().cleanly();
}

/// A process that cannot read its Lease is not ready, and the metrics name the reason.
#[tokio::test]
async fn a_process_without_access_to_its_lease_is_not_ready() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes", "services", "configmaps"], "verbs": ["get", "list", "watch"]},
    ]);
    let token = world.token("controller").await;
    world.grant("controller", rules).await;
    let kubeconfig = world.kubeconfig_with(&token);
    let port = free_port();
    let paths = "--authorization-always-allow-paths /readyz,/metrics";
    let controller = world.controller_of(&kubeconfig, port, paths, "");
    let is_refused = |_, text: &str| text.contains("rest_client_requests_total{code=\"403\"");
    let (_, metrics) = until_answer(port, "/metrics", is_refused).await;
    let expected =
        r#"machinist_permission_missing{group="coordination.k8s.io",resource="leases",verb="get"} 1"#;
    assert!(metrics.contains(expected), "{metrics}");
    let (status, text) = ask(port, "/readyz", None).await.expect("an answer");
    assert_eq!((status, text.as_str()), (503, "this process is waiting for its lease"));
    controller.terminate().cleanly();
}

/// Asks a controller until its answer is as expected.
async fn until_answer(port: u16, path: &str, is_expected: impl Fn(u16, &str) -> bool) -> (u16, String) {
    let mut again = tokio::time::interval(Duration::from_millis(50));
    let answered = async {
        loop {
            again.tick().await;
            if let Ok((status, body)) = ask(port, path, None).await
                && is_expected(status, &body)
            {
                return (status, body);
            }
        }
    };
    let answered = tokio::time::timeout(PATIENCE, answered).await;
    answered.unwrap_or_else(|_| panic!("{path} is not as expected after {PATIENCE:?}"))
}

/// The flags of the cloud controller manager turn on TLS and permissions; the log is JSON if asked.
#[tokio::test]
async fn the_manager_of_machines_has_a_port_with_tls_and_a_json_log() {
    let world = World::new().await;
    let (may, may_not) = (world.token("scraper").await, world.token("stranger").await);
    world.allow_metrics("scraper").await;
    let port = free_port();
    let certificates = world.up.folder.path().join("certificates");
    let manager = Process::start(&mut machinist(&format!(
        "machine-controller-manager --target-kubeconfig {} --namespace kube-system --address 127.0.0.1 --port {port} \
         --cert-dir {} --logging-format=json --cloud-provider=aws --delete-migrated-machine-class",
        world.up.kubeconfig.display(),
        certificates.display()
    )));
    let serves = async {
        let mut again = tokio::time::interval(Duration::from_millis(100));
        loop {
            again.tick().await;
            if ask(port, "/metrics", Some(&may)).await.is_ok_and(|(status, _)| status == 200) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, serves).await.expect("the process serves");
    assert_eq!(get(port, "/healthz", None).await, Ok("OK".to_owned()));
    assert_eq!(get(port, "/metrics", None).await, Err(401));
    assert_eq!(get(port, "/metrics", Some(&may_not)).await, Err(403));
    assert_eq!(get(port, "/configz", Some(&may)).await, Err(403), "only /metrics is granted");
    let text = get(port, "/metrics", Some(&may)).await.expect("allowed");
    assert!(text.contains("mcm_machine_set_items_total"), "{text}");
    let log = manager.terminate().cleanly();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let warnings: Vec<&str> =
        lines.iter().filter(|line| line["level"] == "warn").filter_map(|line| line["msg"].as_str()).collect();
    let is_told = |text: &str| warnings.iter().any(|warning| warning.starts_with(text));
    assert!(is_told("these flags have no effect: --cloud-provider; --help says why"), "{warnings:?}");
    assert!(is_told("--delete-migrated-machine-class is deprecated"), "{warnings:?}");
}

/// Sends a GET to the port of a controller. Returns the body, or the status of another answer.
async fn get(port: u16, path: &str, token: Option<&str>) -> Result<String, u16> {
    let (status, body) = ask(port, path, token).await.expect("an answer");
    if status == 200 { Ok(body) } else { Err(status) }
}

/// Sends a GET to the port of a controller. Returns status and body.
async fn ask(port: u16, path: &str, token: Option<&str>) -> Result<(u16, String), kube::Error> {
    let url = format!("https://127.0.0.1:{port}");
    let mut config = kube::Config::new(url.parse().expect("a URL"));
    config.accept_invalid_certs = true;
    // 503 is an answer that tests expect.
    config.default_retry = false;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let client = Client::try_from(config).expect("a client");
    let request = http::Request::get(path).body(kube::client::Body::empty()).expect("a request");
    let answer = client.send(request).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.expect("a body");
    Ok((status, String::from_utf8(body.to_vec()).expect("text")))
}
