//! Follows an engine, and starts containers again that ended with it.
//!
//! After a restart, an engine starts most containers itself, but not those whose start failed at
//! that moment. A container that ran when the engine was last seen, and that is Exited at the next
//! answer, ended with the engine, so it is started again. A container that ends while the engine
//! answers is left to its controller. The state of the engine comes from its stream of events. Only
//! an engine whose stream is silent is asked whether it still answers.
//!
//! A process that keeps which containers run ([`EngineNews::Running`]) also starts those again that
//! ended while it was down.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use machinist_instance::{Error, Scope};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::driver::DockerProvider;
use crate::engine::call::{Call, Nature};
use crate::engine::failure::{Failure, NoAnswer, no_answer};
use crate::engine::within;
use crate::label;
use crate::model::Summary;
use crate::reply::Seen;
use crate::request;

/// Time between two attempts to reach an engine that does not answer.
const REACH_EVERY: Duration = Duration::from_secs(1);
/// An engine that was silent for this time is asked whether it still answers.
const ASK_AFTER: Duration = Duration::from_secs(10);
/// Time between two attempts to start a container.
const START_EVERY: Duration = Duration::from_secs(5);
/// Number of attempts to start a container.
const MAX_STARTS: u32 = 24;
/// Maximum length of an event. A longer line of the stream is skipped.
const MAX_LINE_LEN: usize = 1024 * 1024;

/// A change of an engine, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineNews {
    /// The engine no longer answers.
    Silent(String),
    /// The containers that run, or that ended with the engine: names by id. Each change is
    /// reported.
    Running(BTreeMap<String, String>),
    /// The engine answers again, or started what had ended with it before this process began.
    Back {
        /// Names of the containers that were started again.
        started: Vec<String>,
    },
    /// A container ended while the engine answers, and is not started again.
    Ended {
        /// Name of the container.
        container: String,
    },
    /// A container that ended with the engine cannot be started.
    NotStarted {
        /// Name of the container.
        container: String,
        /// The answer of the engine.
        message: String,
    },
}

/// Containers that run, or that ended with the engine.
#[derive(Debug, Default)]
struct Ran {
    /// Names by id.
    containers: BTreeMap<String, String>,
    /// The containers in the last news.
    reported: Option<BTreeMap<String, String>>,
}

impl Ran {
    fn report_change(&mut self, report: &mut impl FnMut(EngineNews)) {
        if self.reported.as_ref() != Some(&self.containers) {
            self.reported = Some(self.containers.clone());
            report(EngineNews::Running(self.containers.clone()));
        }
    }
}

/// Containers to start again.
#[derive(Debug, Default)]
struct Ended {
    /// Names by id.
    containers: BTreeMap<String, String>,
    attempts: u32,
}

/// An event of a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    #[serde(default)]
    action: String,
    #[serde(default)]
    actor: Actor,
}

#[derive(Debug, Default, Deserialize)]
struct Actor {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(rename = "Attributes", default)]
    attributes: BTreeMap<String, String>,
}

impl DockerProvider {
    /// Starts the containers of the scope that are Exited and that ran when an earlier process last
    /// saw the engine. Returns their names. [`Self::follow`] tries those again that cannot be
    /// started.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub async fn resume(&self, scope: &Scope, ran: &BTreeMap<String, String>) -> Result<Vec<String>, Error> {
        let mut started = Vec::new();
        for seen in self.owned(scope).await? {
            let has_ended = seen.status == "exited" && ran.contains_key(&seen.id);
            if has_ended && self.engine.call(request::start(&seen.id)).await.is_ok() {
                started.push(seen.name);
            }
        }
        Ok(started)
    }

    /// Follows the engine without end, and starts the containers of the scope again that ended with
    /// it. `ran` are the containers that ran when an earlier process last saw the engine.
    pub async fn follow(
        &self,
        scope: &Scope,
        ran: BTreeMap<String, String>,
        mut report: impl FnMut(EngineNews) + Send,
    ) -> Infallible {
        let mut ran = Ran { containers: ran, reported: None };
        let mut was_silent = false;
        loop {
            let ended = self.follow_while_it_answers(scope, &mut ran, &mut was_silent, &mut report).await;
            if !was_silent {
                was_silent = true;
                report(EngineNews::Silent(ended.error.message));
            }
            sleep(REACH_EVERY).await;
        }
    }

    /// Returns why the engine is no longer followed.
    async fn follow_while_it_answers(
        &self,
        scope: &Scope,
        ran: &mut Ran,
        was_silent: &mut bool,
        report: &mut (impl FnMut(EngineNews) + Send),
    ) -> Failure {
        // The stream begins before the list, so that no event is missed.
        let label = "GET /events";
        let mut stream = match within(Nature::Reads, label, self.engine.open(events(scope))).await {
            Ok(answer) => Lines::of(answer.into_body()),
            Err(failure) => return failure,
        };
        let listed = match self.owned(scope).await {
            Ok(listed) => listed,
            Err(failure) => return failure,
        };
        let mut ended = Ended::default();
        for seen in &listed {
            if seen.status == "exited" && ran.containers.contains_key(&seen.id) {
                ended.containers.insert(seen.id.clone(), seen.name.clone());
            }
        }
        let runs = |seen: &&Seen| matches!(seen.status.as_str(), "running" | "restarting" | "paused");
        let running = listed.iter().filter(runs).map(|seen| (seen.id.clone(), seen.name.clone()));
        ran.containers = running.chain(ended.containers.clone()).collect();
        ran.report_change(report);
        let has_ended = !ended.containers.is_empty();
        let is_back = std::mem::take(was_silent);
        if is_back || has_ended {
            let started = self.start_again(&mut ended, report).await;
            if is_back || !started.is_empty() {
                report(EngineNews::Back { started });
            }
        }
        let mut again_at = Instant::now() + START_EVERY;
        loop {
            tokio::select! {
                line = timeout(ASK_AFTER, stream.next()) => match line {
                    Ok(Ok(line)) => {
                        let container = self.take_in(&line, ran, &mut ended).await;
                        ran.report_change(report);
                        container.into_iter().for_each(|container| report(EngineNews::Ended { container }));
                    }
                    Ok(Err(failure)) => return failure,
                    // Nothing happened for a while, or the connection broke without a sign.
                    Err(_) => if let Err(failure) = self.ask().await {
                        return failure;
                    },
                },
                () = sleep_until(again_at), if !ended.containers.is_empty() => {
                    self.start_again(&mut ended, report).await;
                    again_at = Instant::now() + START_EVERY;
                }
            }
        }
    }

    /// Asks an engine that was silent whether it still answers.
    async fn ask(&self) -> Result<(), Failure> {
        match timeout(ASK_AFTER, self.engine.call(Call::ping())).await {
            Ok(answered) => answered.map(drop),
            Err(_) => {
                let text = format!("no answer within {} s", ASK_AFTER.as_secs());
                Err(no_answer(Nature::Reads, "GET /_ping", NoAnswer::Slow(text)))
            }
        }
    }

    /// Starts containers. Returns the names of those that run now.
    async fn start_again(
        &self,
        ended: &mut Ended,
        report: &mut (impl FnMut(EngineNews) + Send),
    ) -> Vec<String> {
        let mut started = Vec::new();
        ended.attempts += 1;
        for (id, name) in ended.containers.clone() {
            match self.engine.call(request::start(&id)).await {
                Ok(_) => {
                    started.push(name);
                    ended.containers.remove(&id);
                }
                Err(failure) if failure.is_absence() => {
                    ended.containers.remove(&id);
                }
                Err(failure) if MAX_STARTS <= ended.attempts => {
                    ended.containers.remove(&id);
                    report(EngineNews::NotStarted { container: name, message: failure.error.message });
                }
                Err(_) => {}
            }
        }
        started
    }

    /// Returns the name of a container that ended.
    async fn take_in(&self, line: &[u8], ran: &mut Ran, ended: &mut Ended) -> Option<String> {
        let Event { action, actor: Actor { id, attributes } } = serde_json::from_slice(line).ok()?;
        match action.as_str() {
            "start" => {
                let name = attributes.get("name").cloned().unwrap_or_else(|| id.clone());
                ended.containers.remove(&id);
                ran.containers.insert(id, name);
                None
            }
            "die" | "destroy" => {
                // An engine that ends may report the end of its containers, and then answers no
                // request.
                if self.engine.call(Call::ping()).await.is_err() {
                    return None;
                }
                ended.containers.remove(&id);
                ran.containers.remove(&id)
            }
            _ => None,
        }
    }

    /// The containers of the scope that have a key of this driver.
    async fn owned(&self, scope: &Scope) -> Result<Vec<Seen>, Failure> {
        let call = match scope {
            Scope::Ours(cluster) => request::list(&[(label::OWNER, ""), (label::CLUSTER, cluster)]),
            Scope::Visible => request::list(&[(label::OWNER, "")]),
        };
        let listed: Vec<Summary> = self.engine.json(call).await?;
        // Another engine at the address has none of the containers.
        self.engine.confirm().await?;
        Ok(listed.into_iter().map(Seen::from).collect())
    }
}

fn events(scope: &Scope) -> Call {
    let mut labels = vec![label::OWNER.to_owned()];
    match scope {
        Scope::Ours(cluster) => labels.push(format!("{}={cluster}", label::CLUSTER)),
        Scope::Visible => {}
    }
    let filters = json!({
        "type": ["container"], "event": ["start", "die", "destroy"], "label": labels,
    });
    Call::list("/events").with("filters", &filters.to_string())
}

/// The lines of a stream.
struct Lines {
    body: Incoming,
    read: Vec<u8>,
}

impl Lines {
    fn of(body: Incoming) -> Self {
        Self { body, read: Vec::new() }
    }

    /// Returns the next line. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the stream ended.
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.read.drain(..=end).collect();
                line.pop();
                return Ok(line);
            }
            match self.body.frame().await {
                Some(Ok(frame)) if self.read.len() < MAX_LINE_LEN => {
                    self.read.extend(frame.into_data().unwrap_or_default());
                }
                Some(_) | None => {
                    let text = "the engine ended the stream of its events";
                    return Err(Failure::new(machinist_instance::ErrorKind::Unavailable, text));
                }
            }
        }
    }
}
