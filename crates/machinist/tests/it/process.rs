//! Runs the program, reads its output and stops it. A dropped process is killed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// Creates a command from a command line, split at spaces.
pub(crate) fn machinist(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(line.split_whitespace()).env_remove("KUBECONFIG");
    command
}

/// Result of a finished command.
pub(crate) struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("the program can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command, stops it after its "started" event, and returns the output until then.
    pub(crate) fn of_at_start(command: &mut Command) -> String {
        let mut process = Process::start(command);
        let said = process.lines_up_to("\"started\"");
        process.terminate().cleanly();
        said
    }

    /// Returns the last line of stdout as JSON.
    pub(crate) fn result(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// A running process of the program.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// A file, because a full pipe would block the process while the test does not read it.
    stderr: File,
}

/// Exit code and stderr of a stopped process.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub code: Option<i32>,
    pub stderr: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let stderr = tempfile::tempfile().expect("a temporary file");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().expect("a second handle"))
            .spawn()
            .expect("the program can be run");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        Self { child, stdout, stderr }
    }

    /// Returns the next line of stdout that contains `part`.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        let lines = self.lines_up_to(part);
        lines.lines().last().map(|line| format!("{line}\n")).expect("the line with the part")
    }

    /// Returns the lines of stdout up to the next line that contains `part`.
    pub(crate) fn lines_up_to(&mut self, part: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).expect("output is text") == 0 {
                let stopped = self.stopped();
                panic!("the process ended without a line with {part:?}\n{seen}{stopped:?}");
            }
            seen.push_str(&line);
            if line.contains(part) {
                return seen;
            }
        }
    }

    /// Sends SIGTERM and waits until the process has stopped.
    pub(crate) fn terminate(mut self) -> Stopped {
        self.ask_to_stop();
        self.stopped()
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_stop(&mut self) {
        self.send("-TERM");
    }

    /// Sends a signal, in the format of `kill`.
    pub(crate) fn send(&mut self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill can be run");
        assert!(sent.success(), "the process had already ended");
    }

    /// Waits until the process ends.
    pub(crate) fn wait(mut self) -> Stopped {
        // A full pipe would block the process.
        std::io::copy(&mut self.stdout, &mut std::io::sink()).expect("stdout can be read");
        self.stopped()
    }

    fn stopped(&mut self) -> Stopped {
        let code = self.child.wait().expect("the process ends").code();
        let mut stderr = String::new();
        self.stderr.rewind().expect("a file can be read again");
        self.stderr.read_to_string(&mut stderr).expect("output is text");
        Stopped { code, stderr }
    }
}

impl Stopped {
    /// Asserts exit code 0 and returns stderr.
    pub(crate) fn cleanly(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stderr
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `machinist up` after its "started" event.
pub(crate) struct Up {
    pub process: Process,
    pub api_server: String,
    pub kubeconfig: PathBuf,
    pub cloud: String,
    /// Data directory with kubeconfig, CA and ledger.
    pub folder: tempfile::TempDir,
}

impl Up {
    pub(crate) fn start(manifest: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = machinist("up -o json --data-dir");
        command.arg(folder.path());
        // `up` reads the manifest before its "started" event, so the file may be deleted after it.
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        if let Some(text) = manifest {
            std::fs::write(&file, text).expect("written");
            command.arg("--manifest").arg(file.path());
        }
        let mut process = Process::start(&mut command);
        let started: Value = serde_json::from_str(&process.line_with("started")).expect("one JSON object");
        let text = |field: &str| started[field].as_str().expect(field).to_owned();
        Self {
            process,
            api_server: text("apiServer"),
            kubeconfig: text("kubeconfig").into(),
            cloud: text("cloud"),
            folder,
        }
    }

    pub(crate) async fn client(&self) -> kube::Client {
        client(&self.kubeconfig).await
    }

    /// Calls the cloud's own API.
    pub(crate) fn cloud(&self, method: &str, path: &str, body: &str) -> Value {
        call(&self.cloud, method, path, body)
    }
}

pub(crate) async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
}

/// Sends one plain HTTP request. Its answer must be a success.
pub(crate) fn call(url: &str, method: &str, path: &str, body: &str) -> Value {
    let (status, text) = send(url, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {text}");
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Reads from an HTTP server, and returns the status and the text.
pub(crate) fn answer(url: &str, path: &str) -> (u16, String) {
    send(url, "GET", path, "")
}

fn send(url: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    try_send(url, method, path, body).expect("an answer")
}

/// Reads from an HTTP server that may just be starting; an error if it does not answer.
pub(crate) fn try_answer(url: &str, path: &str) -> std::io::Result<(u16, String)> {
    try_send(url, "GET", path, "")
}

fn try_send(url: &str, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let address = url.strip_prefix("http://").expect("plain HTTP");
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.expect("a status"), body.to_owned()))
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
