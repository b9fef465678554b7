//! Tests of `machinist up --cloud docker` that need no engine: errors before anything is created.
//! The target `up_docker` has the tests with an engine.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::process::{Ended, machinist};

/// An engine without images and containers, which refuses every change.
struct EmptyEngine {
    address: String,
    /// Method and path of each request.
    requests: Arc<Mutex<Vec<String>>>,
}

impl EmptyEngine {
    fn start(id: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("tcp://{}", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        // The thread ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let request = answer(stream, id);
                seen.lock().expect("no panic").extend(request);
            }
        });
        Self { address, requests }
    }

    fn changes(&self) -> Vec<String> {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|request| !request.starts_with("GET ")).cloned().collect()
    }

    fn up(&self, flags: &str) -> Command {
        let mut command = machinist(&format!("up --cloud docker {flags}"));
        command.env("DOCKER_HOST", &self.address);
        command
    }
}

fn answer(mut stream: TcpStream, id: &str) -> Option<String> {
    let mut buffer = [0; 4096];
    let mut head = String::new();
    while !head.contains("\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if 0 < count => head.push_str(&String::from_utf8_lossy(&buffer[..count])),
            _ => return None,
        }
    }
    let request: Vec<&str> = head.split_whitespace().take(2).collect();
    let path = request.get(1).copied().unwrap_or_default();
    let (status, body) = match path {
        "/version" => (200, "{\"ApiVersion\": \"1.41\"}".to_owned()),
        _ if path.ends_with("/info") => (200, format!("{{\"ID\": \"{id}\"}}")),
        _ if path.contains("/containers/json") => (200, "[]".to_owned()),
        _ if path.contains("/images/") => (404, "{\"message\": \"No such image: a:1\"}".to_owned()),
        _ => (404, "{\"message\": \"No such container: a\"}".to_owned()),
    };
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).ok()?;
    Some(request.join(" "))
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn without_an_engine_the_error_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = machinist("up --cloud docker --data-dir");
    command.arg(folder.path()).env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    let ended = Ended::of(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    for part in ["--cloud docker: ", "unix:///nonexistent/docker.sock", "Start Docker, or set DOCKER_HOST"] {
        assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
    }
    assert_eq!(entries(folder.path()), 0, "nothing was written");
}

#[test]
fn a_wrong_engine_address_is_a_wrong_flag() {
    let mut command = machinist("up --cloud docker");
    let ended = Ended::of(command.env("DOCKER_HOST", "ssh://host"));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("DOCKER_HOST: ") && ended.stderr.contains("unix:///PATH"),
        "{}",
        ended.stderr
    );
}

#[test]
fn flags_of_docker_need_the_cloud_docker() {
    for flag in ["--node-image a:1", "--docker-privileges caps", "--docker-no-pull"] {
        let ended = Ended::of(&mut machinist(&format!("up {flag}")));
        let name = flag.split(' ').next().expect("a flag");
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let expected = format!("{name}: expected only with --cloud docker");
        assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    }
}

#[test]
fn without_the_image_nothing_is_created_on_the_engine() {
    let engine = EmptyEngine::start("engine-a");
    let ended = Ended::of(&mut engine.up("--docker-no-pull --node-image a:1"));
    assert_eq!(ended.code, Some(1));
    for part in ["--node-image a:1: ", "Nothing was created", "cargo xtask node-image --import"] {
        assert!(ended.stderr.contains(part), "expected {part:?} in {}", ended.stderr);
    }
    let deletions = engine.changes();
    assert!(deletions.iter().all(|request| request.starts_with("DELETE ")), "{deletions:?}");
}

#[test]
fn a_directory_belongs_to_one_engine_and_one_cloud() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = EmptyEngine::start("engine-a");
    let up = |engine: &EmptyEngine, flags: &str| {
        Ended::of(
            engine.up(&format!("--docker-no-pull --node-image a:1 {flags} --data-dir")).arg(folder.path()),
        )
    };
    up(&first, "");
    let kept = folder.path().join("docker/cluster.json");
    let name = std::fs::read_to_string(&kept).expect("the name is kept before anything is created");
    up(&first, "");
    assert_eq!(std::fs::read_to_string(&kept).expect("kept"), name, "the next start has the same name");

    let other = up(&EmptyEngine::start("engine-b"), "");
    assert_eq!(other.code, Some(1));
    for part in ["expected the engine engine-a", "engine-b answers", "Set DOCKER_HOST"] {
        assert!(other.stderr.contains(part), "expected {part:?} in {}", other.stderr);
    }
    let ended = Ended::of(machinist("up --data-dir").arg(folder.path()));
    let expected = "expected a directory of `machinist up --cloud sim`, but this one has the instances of `--cloud docker`";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}
