//! Runs commands in a container. A command with output is attached: its streams are one upgraded
//! connection. A detached command outlives the connection and this process.

use http::StatusCode;
use hyper_util::rt::TokioIo;
use machinist_instance::ErrorKind;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Duration, sleep};

use super::call::{Call, Nature};
use super::failure::{Failure, NoAnswer, no_answer};
use super::frames::Frames;
use super::{Engine, within};

const START: &str = "/exec/-/start";

/// The engine records the exit code shortly after the streams end.
const EXIT_CODE_ATTEMPTS: usize = 50;
const EXIT_CODE_PAUSE: Duration = Duration::from_millis(20);

/// A command for a container.
pub(crate) struct Command<'a> {
    pub(crate) container: &'a str,
    pub(crate) argv: Vec<&'a str>,
    pub(crate) nature: Nature,
}

/// The standard input of a command.
pub(crate) enum Stdin<'a> {
    Empty,
    Bytes(&'a [u8]),
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) code: i64,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Output {
    /// The standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The standard error as text.
    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExecCreated {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExecState {
    #[serde(default)]
    running: bool,
    #[serde(default)]
    exit_code: Option<i64>,
}

impl Engine {
    /// Runs a command to its end.
    pub(crate) async fn run(&self, command: Command<'_>, stdin: Stdin<'_>) -> Result<Output, Failure> {
        within(command.nature, "POST /exec/-/start", self.run_unlimited(command, stdin)).await
    }

    async fn run_unlimited(&self, command: Command<'_>, stdin: Stdin<'_>) -> Result<Output, Failure> {
        let nature = command.nature;
        let broke = |error: std::io::Error| {
            no_answer(nature, "POST /exec/-/start", NoAnswer::Lost(format!("the stream broke: {error}")))
        };
        let (id, stream) = self.attach(command).await?;
        let (mut from, mut to) = tokio::io::split(stream);
        let writing = async {
            if let Stdin::Bytes(bytes) = stdin {
                // A command that ends early closes its input. Its exit code says why.
                let _ = to.write_all(bytes).await;
            }
            let _ = to.shutdown().await;
        };
        let reading = async {
            let mut frames = Frames::default();
            let mut buffer = vec![0; 16 * 1024];
            loop {
                match from.read(&mut buffer).await.map_err(broke)? {
                    0 => return Ok::<Frames, Failure>(frames),
                    count => frames.add(&buffer[..count]),
                }
            }
        };
        let ((), frames) = tokio::join!(writing, reading);
        let frames = frames?;
        let code = self.exit_code(&id, nature).await?;
        Ok(Output { code, stdout: frames.stdout, stderr: frames.stderr })
    }

    /// Starts a command whose input the caller writes and whose output the caller reads.
    pub(crate) async fn attach(
        &self,
        command: Command<'_>,
    ) -> Result<(String, TokioIo<hyper::upgrade::Upgraded>), Failure> {
        let nature = command.nature;
        let body = json!({
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false, "Cmd": command.argv,
        });
        let create = Call::act("/containers/-/exec", command.container).json(body).nature(nature);
        let ExecCreated { id } = self.json(create).await?;
        let start =
            Call::act(START, &id).json(json!({"Detach": false, "Tty": false})).nature(nature).upgraded();
        let answer = self.open(start).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let text =
                "POST /exec/-/start: expected an upgraded connection; check any proxy before the engine";
            return Err(Failure::new(ErrorKind::Unsupported, text));
        }
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| {
            let text = format!("the connection to the engine broke: {error}");
            no_answer(nature, "POST /exec/-/start", NoAnswer::Lost(text))
        })?;
        Ok((id, TokioIo::new(upgraded)))
    }

    /// Starts a command and does not wait for its end.
    pub(crate) async fn detach(&self, command: Command<'_>) -> Result<(), Failure> {
        let body = json!({
            "AttachStdin": false, "AttachStdout": false, "AttachStderr": false, "Tty": false,
            "Cmd": command.argv,
        });
        let create = Call::act("/containers/-/exec", command.container).json(body).nature(command.nature);
        let ExecCreated { id } = self.json(create).await?;
        let start = Call::act(START, &id).json(json!({"Detach": true, "Tty": false}));
        self.call(start.nature(command.nature)).await.map(drop)
    }

    /// The exit code of a command whose streams have ended.
    pub(crate) async fn exit_code(&self, id: &str, nature: Nature) -> Result<i64, Failure> {
        for _ in 0..EXIT_CODE_ATTEMPTS {
            let state: ExecState = self.json(Call::get("/exec/-/json", id)).await?;
            if let (false, Some(code)) = (state.running, state.exit_code) {
                return Ok(code);
            }
            sleep(EXIT_CODE_PAUSE).await;
        }
        let text = "the command closed its streams and still runs".to_owned();
        Err(no_answer(nature, "GET /exec/-/json", NoAnswer::Lost(text)))
    }
}
