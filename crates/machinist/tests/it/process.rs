//! Running the program, reading what it prints, ending it. A process that is forgotten is killed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// A command line of the program, split at spaces.
pub(crate) fn machinist(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(line.split_whitespace()).env_remove("KUBECONFIG");
    command
}

/// What a command that ends by itself came to.
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

    /// Runs a command that is asked to stop as soon as it says where it can be reached; what it said up to then.
    pub(crate) fn of_at_start(command: &mut Command) -> String {
        let mut process = Process::start(command);
        let said = process.lines_up_to("\"started\"");
        process.terminate().cleanly();
        said
    }

    /// The last line of stdout as JSON.
    pub(crate) fn result(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// A running process of the program.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// A file, as nobody empties a pipe while the test looks elsewhere, and a full one would stop the process.
    stderr: File,
}

/// How a process ended.
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

    /// The next line of stdout that holds `part`.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        let lines = self.lines_up_to(part);
        lines.lines().last().map(|line| format!("{line}\n")).expect("the line with the part")
    }

    /// The lines of stdout up to the next one that holds `part`.
    pub(crate) fn lines_up_to(&mut self, part: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).expect("output is text") == 0 {
                let stopped = self.stopped();
                panic!("it ended without a line with {part:?}\n{seen}{stopped:?}");
            }
            seen.push_str(&line);
            if line.contains(part) {
                return seen;
            }
        }
    }

    /// Asks it to stop as a service manager does, and waits until it has.
    pub(crate) fn terminate(mut self) -> Stopped {
        self.ask_to_stop();
        self.stopped()
    }

    /// Asks it to stop as a service manager does.
    pub(crate) fn ask_to_stop(&mut self) {
        self.send("-TERM");
    }

    /// Sends a signal, named as `kill` takes it.
    pub(crate) fn send(&mut self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill can be run");
        assert!(sent.success(), "the process had ended before");
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(mut self) -> Stopped {
        // A full pipe would stop it.
        std::io::copy(&mut self.stdout, &mut std::io::sink()).expect("it can be read");
        self.stopped()
    }

    fn stopped(&mut self) -> Stopped {
        let code = self.child.wait().expect("it ends").code();
        let mut stderr = String::new();
        self.stderr.rewind().expect("a file can be read again");
        self.stderr.read_to_string(&mut stderr).expect("output is text");
        Stopped { code, stderr }
    }
}

impl Stopped {
    /// Fails unless it ended as it should when asked to; its words.
    pub(crate) fn cleanly(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stderr
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `machinist up`, once it says where it can be reached.
pub(crate) struct Up {
    pub process: Process,
    pub api_server: String,
    pub kubeconfig: PathBuf,
    pub cloud: String,
    /// Kubeconfig, CA and ledger lie here.
    pub folder: tempfile::TempDir,
}

impl Up {
    pub(crate) fn start(manifest: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = machinist("up -o json --data-dir");
        command.arg(folder.path());
        // Read before it says where it can be reached.
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

/// One HTTP request, as plain as it gets.
pub(crate) fn call(url: &str, method: &str, path: &str, body: &str) -> Value {
    let address = url.strip_prefix("http://").expect("plain HTTP");
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 "), "{method} {path}: {answer}");
    serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()))
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
