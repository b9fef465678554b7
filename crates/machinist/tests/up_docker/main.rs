//! Tests of `machinist up --cloud docker` with a Docker engine. `cargo xtask real --lane up-docker`
//! starts one and runs them.
//!
//! Without the variables that name an engine and an image, the tests are skipped.

#![expect(clippy::print_stdout, reason = "a test that is skipped says why, and the others their time")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Variables that name the engine and an image of Nodes, which the engine has.
const HOST_VARIABLE: &str = "MACHINIST_DOCKER_HOST";
const IMAGE_VARIABLE: &str = "MACHINIST_DOCKER_NODE_IMAGE";

/// Variable with the file that has the process id of the engine: only an engine that the tests
/// started is restarted.
const PID_FILE_VARIABLE: &str = "MACHINIST_DOCKER_PID_FILE";
/// Variable with the number of restarts of each kind.
const RESTARTS_VARIABLE: &str = "MACHINIST_DOCKER_RESTARTS";
/// Every cluster serves again within this time after the end of the engine.
const SERVES_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// `why` should answer within two seconds. The rest is for the start of a process on a busy
/// computer.
const SILENCE_TOLD_WITHIN: Duration = Duration::from_secs(5);
/// Time between two looks at an engine or a cluster that is away.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Workers of the quick start, and all its containers.
const WORKERS: usize = 2;
const CONTAINERS: usize = WORKERS + 1;

/// One test at a time: two clusters at once only make each other slow.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A real engine.
struct Engine {
    host: String,
    image: String,
    _turn: MutexGuard<'static, ()>,
}

impl Engine {
    fn open(test: &str) -> Option<Self> {
        let (Ok(host), Ok(image)) = (std::env::var(HOST_VARIABLE), std::env::var(IMAGE_VARIABLE)) else {
            println!(
                "SKIPPED {test}: {HOST_VARIABLE} and {IMAGE_VARIABLE} do not name an engine and an image"
            );
            return None;
        };
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { host, image, _turn })
    }

    /// Returns `machinist up` for this engine and a directory.
    fn up(&self, folder: &Path, flags: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["up", "--cloud", "docker", "--docker-privileges", "caps", "--docker-no-pull"]);
        command.args(["-o", "json", "--node-image", &self.image, "--data-dir"]).arg(folder);
        command.args(flags.split_whitespace()).env("DOCKER_HOST", &self.host).env_remove("KUBECONFIG");
        command
    }

    /// Runs `machinist up` to its end, which must be a success.
    fn until_success(&self, folder: &Path, state: &str) -> Ended {
        let output = self.up(folder, &format!("--until {state} --timeout 4m")).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "until {state}: {stdout}{stderr}");
        let lines = stdout.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line"));
        Ended { lines: lines.collect() }
    }

    /// Runs `machinist up` to its end, which must be the given result.
    fn until(&self, folder: &Path, state: &str) -> Ended {
        let ended = self.until_success(folder, state);
        assert_eq!(ended.result()["result"], state, "{:?}", ended.lines);
        println!("until {state}: {} s", ended.result()["seconds"]);
        ended
    }

    /// Runs `docker` and returns the words of its output.
    fn docker(&self, arguments: &[&str]) -> BTreeSet<String> {
        let output = Command::new("docker").args(["--host", &self.host]).args(arguments).output();
        let output = output.expect("the program docker");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// Returns the ids of all containers of a cluster.
    fn containers(&self, cluster: &str) -> BTreeSet<String> {
        let filter = format!("label=machinist.dev/cluster={cluster}");
        self.docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter])
    }

    fn answers(&self) -> bool {
        let status = Command::new("docker").args(["--host", &self.host, "version"]).output();
        status.is_ok_and(|output| output.status.success())
    }

    /// Ends the engine with this signal, and waits until its successor answers.
    async fn restart(&self, pid_file: &str, signal: &str) {
        let read =
            || std::fs::read_to_string(pid_file).map(|text| text.trim().to_owned()).unwrap_or_default();
        let before = read();
        let status = Command::new("kill").args(["-s", signal, &before]).status();
        assert!(status.expect("the program kill").success(), "process {before}");
        let began = Instant::now();
        while [String::new(), before.clone()].contains(&read()) || !self.answers() {
            assert!(began.elapsed() < SERVES_AGAIN_WITHIN, "the engine did not return");
            sleep(LOOK_EVERY).await;
        }
    }

    fn has_network(&self, cluster: &str) -> bool {
        self.docker(&["network", "ls", "--format", "{{.Name}}"]).contains(cluster)
    }

    fn assert_without_a_trace(&self, cluster: &str) {
        assert_eq!(self.containers(cluster), BTreeSet::new());
        assert!(!self.has_network(cluster), "the network {cluster} is left");
    }
}

/// The events of a run that ended.
struct Ended {
    lines: Vec<Value>,
}

impl Ended {
    fn result(&self) -> &Value {
        self.lines.last().expect("a result")
    }

    fn notes(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|line| line["event"] == "note").filter_map(|line| line["message"].as_str())
    }

    fn nodes_kubeconfig(&self) -> String {
        let started = self.lines.iter().find(|line| line["event"] == "started").expect("it has started");
        started["targetKubeconfig"].as_str().expect("a path").to_owned()
    }
}

/// A run whose events a test reads. The process is killed when the value is dropped.
struct Running {
    child: Child,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        Self { child, stdout: Some(stdout) }
    }

    /// Reads up to the event that contains the text.
    fn event_with(&mut self, part: &str) -> Value {
        let stdout = self.stdout.as_mut().expect("no thread reads the events");
        let line = stdout.map_while(Result::ok).find(|line| line.contains(part));
        serde_json::from_str(&line.unwrap_or_else(|| panic!("no event with {part:?}"))).expect("JSON")
    }

    /// Gives the further events to another reader.
    fn stdout_reader(&mut self) -> Lines<BufReader<ChildStdout>> {
        self.stdout.take().expect("no other thread reads the events")
    }

    /// Kills the process with SIGKILL.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cluster_of(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("docker/cluster.json")).expect("the name is kept");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    record["name"].as_str().expect("a name").to_owned()
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

#[tokio::test]
async fn a_cluster_is_ready_adopted_and_deleted_completely() {
    let Some(engine) = Engine::open("a_cluster_is_ready_adopted_and_deleted_completely") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let ready = engine.until(folder.path(), "ready");
    let cluster = cluster_of(folder.path());
    assert_eq!(
        (&ready.result()["running"], &ready.result()["nodesReady"]),
        (&json!(WORKERS), &json!(CONTAINERS))
    );
    let first = engine.containers(&cluster);
    assert_eq!(first.len(), CONTAINERS);
    let nodes = Api::<Node>::all(client(&ready.nodes_kubeconfig()).await).list(&ListParams::default()).await;
    assert_eq!(nodes.expect("the containers outlive `up`").items.len(), CONTAINERS);

    engine.until(folder.path(), "ready");
    assert_eq!(engine.containers(&cluster), first, "the next start continues with the same containers");

    let gone = engine.until(folder.path(), "gone");
    assert_eq!((&gone.result()["machines"], &gone.result()["instancesAlive"]), (&json!(0), &json!(0)));
    engine.assert_without_a_trace(&cluster);

    let again = engine.until(folder.path(), "ready");
    assert_eq!(again.result()["running"], WORKERS, "the quick start is applied again");
    assert!(engine.containers(&cluster).is_disjoint(&first));
    engine.until(folder.path(), "gone");
    engine.assert_without_a_trace(&cluster);
}

#[tokio::test]
async fn a_killed_run_doubles_nothing() {
    let Some(engine) = Engine::open("a_killed_run_doubles_nothing") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut early = Running::start(engine.up(folder.path(), ""));
    early.event_with("waits for kubeadm init");
    early.kill();

    let mut late = Running::start(engine.up(folder.path(), ""));
    let started = late.event_with("\"started\"");
    let cluster = cluster_of(folder.path());
    late.event_with("MachineDeployment workers");
    let control = client(started["kubeconfig"].as_str().expect("a path")).await;
    let deployments = api(&control, "MachineDeployment").await;
    let patch = Patch::Merge(json!({"spec": {"replicas": WORKERS + 1}}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
    late.event_with("\"Pending\"");
    late.kill();

    let ready = engine.until(folder.path(), "ready");
    assert_eq!(ready.result()["running"], WORKERS + 1);
    assert_eq!(engine.containers(&cluster).len(), CONTAINERS + 1);
    engine.until(folder.path(), "gone");
    engine.assert_without_a_trace(&cluster);
}

#[tokio::test]
async fn a_lost_cluster_is_named_and_another_one_is_untouched() {
    let Some(engine) = Engine::open("a_lost_cluster_is_named_and_another_one_is_untouched") else { return };
    let [lost, kept] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    engine.until(lost.path(), "ready");
    let lost_cluster = cluster_of(lost.path());
    let containers = engine.containers(&lost_cluster);
    lost.close().expect("removed");

    let ready = engine.until(kept.path(), "ready");
    let (expected, start) = (format!("3 containers of the cluster {lost_cluster}"), "delete them: ");
    let remark = ready.notes().find(|note| note.contains(&expected)).expect("the lost cluster is named");
    let (_, cleanup) = remark.split_once(start).expect("with a command");
    engine.until(kept.path(), "gone");
    engine.assert_without_a_trace(&cluster_of(kept.path()));
    assert_eq!(engine.containers(&lost_cluster), containers, "the other cluster is untouched");

    let status = Command::new("sh").args(["-c", cleanup]).env("DOCKER_HOST", &engine.host).status();
    assert!(status.expect("a shell").success(), "{cleanup}");
    engine.assert_without_a_trace(&lost_cluster);
}

#[tokio::test]
async fn without_a_directory_nothing_is_left() {
    let Some(engine) = Engine::open("without_a_directory_nothing_is_left") else { return };
    let before = engine.docker(&["ps", "--all", "--quiet"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["up", "--cloud", "docker", "--docker-privileges", "caps", "--docker-no-pull"]);
    command.args(["--until", "ready", "--node-image", &engine.image]).env("DOCKER_HOST", &engine.host);
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["Ready: 2 of 2 machines Running, 3 Nodes ready", "kubectl --kubeconfig ", "kubeadm init"] {
        assert!(text.contains(part), "expected {part:?} in\n{text}");
    }
    assert_eq!(engine.docker(&["ps", "--all", "--quiet"]), before);
    let networks = engine.docker(&["network", "ls", "--format", "{{.Name}}"]);
    assert!(!networks.iter().any(|name| name.starts_with("machinist-")), "{networks:?}");
}

/// A cluster is deleted in any state. A control plane that was killed starts again; a control plane
/// that was deleted, or whose API server is silent, does not return.
#[tokio::test]
async fn a_broken_cluster_is_deleted_completely() {
    let Some(engine) = Engine::open("a_broken_cluster_is_deleted_completely") else { return };
    let silence = "mv /etc/kubernetes/manifests/kube-apiserver.yaml /etc/kubernetes; sleep 3; for it in /proc/[0-9]*; do \
                   grep -qs '^kube-apiserver$' $it/comm && kill -KILL ${it#/proc/}; done; true";
    let ways: [(&[&str], &[&str], bool); 3] = [
        (&["kill"], &[], false),
        (&["rm", "--force", "--volumes"], &[], true),
        (&["exec"], &["sh", "-c", silence], true),
    ];
    for (verb, arguments, is_lost) in ways {
        let folder = tempfile::tempdir().expect("a folder");
        engine.until(folder.path(), "ready");
        let cluster = cluster_of(folder.path());
        let control_plane = format!("{cluster}-control-plane");
        engine.docker(&[verb, &[control_plane.as_str()], arguments].concat());
        let (began, gone) = (Instant::now(), engine.until_success(folder.path(), "gone"));
        engine.assert_without_a_trace(&cluster);
        println!("{verb:?} of the control plane: gone after {:.0} s", began.elapsed().as_secs_f64());
        let is_reported = gone.notes().any(|note| note.contains("cannot be deleted in order"));
        assert!(is_reported || !is_lost, "{verb:?}: {:?}", gone.lines);
    }
}

/// A stopped process, which continues when the value is dropped.
struct Suspended(String);

impl Suspended {
    fn stop(pid_file: &str) -> Self {
        let pid = std::fs::read_to_string(pid_file).expect("the process id of the engine");
        let stopped = Self(pid.trim().to_owned());
        stopped.send("STOP");
        stopped
    }

    fn send(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.0]).status();
        assert!(status.expect("the program kill").success(), "process {}", self.0);
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        self.send("CONT");
    }
}

/// While the engine hangs, `why` says that first. Then the run is killed while the engine creates a
/// container for it.
#[tokio::test]
async fn a_silent_engine_is_named_and_a_killed_run_leaves_nothing() {
    const NAME: &str = "a_silent_engine_is_named_and_a_killed_run_leaves_nothing";
    let Some(engine) = Engine::open(NAME) else { return };
    let Ok(pid_file) = std::env::var(PID_FILE_VARIABLE) else {
        println!("SKIPPED {NAME}: the engine was not started by these tests");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    engine.until(folder.path(), "ready");
    let cluster = cluster_of(folder.path());
    let mut running = Running::start(engine.up(folder.path(), ""));
    let started = running.event_with("\"started\"");
    let reader = running.stdout_reader();
    std::thread::spawn(move || reader.map_while(Result::ok).count());
    let kubeconfig = started["kubeconfig"].as_str().expect("a path");
    let control = client(kubeconfig).await;
    let machine = machine_names(&control).await.pop_first().expect("a Machine");
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["why", &format!("machine/{machine}"), "--kubeconfig", kubeconfig]);
        let began = Instant::now();
        let output = command.env("DOCKER_HOST", &engine.host).output().expect("it runs");
        (String::from_utf8_lossy(&output.stdout).into_owned(), began.elapsed())
    };
    let silent = "does not answer";
    let answer = ask().0;
    assert!(!answer.contains(silent), "{answer}");
    let stopped = Suspended::stop(&pid_file);
    let (answer, took) = ask();
    drop(stopped);
    println!("`why` named the silent engine after {:.1} s", took.as_secs_f64());
    let first = answer.lines().find(|line| line.contains("the engine at "));
    assert!(first.is_some_and(|line| line.contains(silent)), "{answer}");
    assert!(took < SILENCE_TOLD_WITHIN, "{took:?}");
    let began = Instant::now();
    while ask().0.contains(silent) {
        assert!(began.elapsed() < SERVES_AGAIN_WITHIN, "the engine answers again");
        sleep(LOOK_EVERY).await;
    }

    let deployments = api(&control, "MachineDeployment").await;
    let patch = Patch::Merge(json!({"spec": {"replicas": WORKERS + 2}}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
    let began = Instant::now();
    while machine_names(&control).await.len() == WORKERS {
        assert!(began.elapsed() < SERVES_AGAIN_WITHIN, "no Machine was created");
        sleep(LOOK_EVERY / 5).await;
    }
    // The engine now works on a container, or will in a moment.
    sleep(LOOK_EVERY).await;
    running.kill();
    let gone = engine.until(folder.path(), "gone");
    engine.assert_without_a_trace(&cluster);
    sleep(Duration::from_secs(5)).await;
    engine.assert_without_a_trace(&cluster);
    let waited = gone.notes().find(|note| note.contains("An earlier run was killed"));
    println!("after a kill: {}", waited.unwrap_or("the deletion took longer than calls of the killed run"));
}

/// Returns the number of Nodes that are Ready, and have renewed their Lease since that moment.
async fn nodes_ready_since(client: &Client, moment: Timestamp) -> usize {
    let params = ListParams::default();
    let within = Duration::from_secs(3);
    let nodes = tokio::time::timeout(within, Api::<Node>::all(client.clone()).list(&params)).await;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    let leases = tokio::time::timeout(within, leases.list(&params)).await;
    let (Ok(Ok(nodes)), Ok(Ok(leases))) = (nodes, leases) else { return 0 };
    let has_renewed = |name: &Option<String>| {
        let lease = leases.items.iter().find(|lease| lease.metadata.name == *name);
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref());
        renewed.is_some_and(|renewed| moment < renewed.0)
    };
    let is_ready = |node: &&Node| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
            && has_renewed(&node.metadata.name)
    };
    nodes.items.iter().filter(is_ready).count()
}

/// Returns the API of a machine kind.
async fn api(control: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", kind);
    let (resource, _) = kube::discovery::pinned_kind(control, &kind).await.expect("served");
    Api::namespaced_with(control.clone(), "default", &resource)
}

/// Returns the UIDs of the Machines.
async fn machines(control: &Client) -> BTreeSet<String> {
    let listed = api(control, "Machine").await.list(&ListParams::default()).await.expect("listed");
    listed.items.into_iter().filter_map(|machine| machine.metadata.uid).collect()
}

async fn machine_names(control: &Client) -> BTreeSet<String> {
    let listed = api(control, "Machine").await.list(&ListParams::default()).await.expect("listed");
    listed.items.into_iter().filter_map(|machine| machine.metadata.name).collect()
}

/// The containers keep their addresses, and every cluster serves again without help.
#[tokio::test]
async fn restarts_of_the_engine() {
    let Some(engine) = Engine::open("restarts_of_the_engine") else { return };
    let Ok(pid_file) = std::env::var(PID_FILE_VARIABLE) else {
        println!("SKIPPED restarts_of_the_engine: the engine was not started by these tests");
        return;
    };
    let times: u32 = std::env::var(RESTARTS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let folder = tempfile::tempdir().expect("a folder");
    let ready = engine.until(folder.path(), "ready");
    let cluster = cluster_of(folder.path());
    let containers = engine.containers(&cluster);
    let target = client(&ready.nodes_kubeconfig()).await;
    let mut running = Running::start(engine.up(folder.path(), ""));
    let started = running.event_with("\"started\"");
    // Reads the events, which the process waits for otherwise.
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (reader, kept) = (running.stdout_reader(), lines.clone());
    std::thread::spawn(move || {
        for line in reader.map_while(Result::ok) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    let control = client(started["kubeconfig"].as_str().expect("a path")).await;
    let before = machines(&control).await;
    assert_eq!(before.len(), WORKERS);
    for round in 1..=times {
        for signal in ["TERM", "KILL"] {
            let (began, moment) = (Instant::now(), now());
            engine.restart(&pid_file, signal).await;
            let answered = began.elapsed();
            until_ready(&target, moment, began, &lines).await;
            println!(
                "restart {round} with SIG{signal}: the engine answered after {:.1} s, {CONTAINERS} Nodes were Ready after {:.1} s; \
                 {} containers before and after",
                answered.as_secs_f64(),
                began.elapsed().as_secs_f64(),
                containers.len()
            );
            assert_eq!(engine.containers(&cluster), containers, "SIG{signal}");
            assert_eq!(machines(&control).await, before, "no Machine is replaced");
        }
    }
    // A reboot ends both.
    running.kill();
    let (began, moment) = (Instant::now(), now());
    engine.restart(&pid_file, "KILL").await;
    let again = engine.until(folder.path(), "ready");
    until_ready(&client(&again.nodes_kubeconfig()).await, moment, began, &lines).await;
    println!("restart without `up`: Ready after {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(engine.containers(&cluster), containers);
    engine.until(folder.path(), "gone");
    engine.assert_without_a_trace(&cluster);
}

async fn until_ready(target: &Client, moment: Timestamp, began: Instant, lines: &Mutex<Vec<String>>) {
    loop {
        let ready = nodes_ready_since(target, moment).await;
        if ready == CONTAINERS {
            return;
        }
        let printed = lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
        assert!(began.elapsed() < SERVES_AGAIN_WITHIN, "{ready} of {CONTAINERS} Nodes are Ready: {printed}");
        sleep(LOOK_EVERY).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the real engine and its Nodes have a real clock")]
fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).expect("a moment of this century")
}
