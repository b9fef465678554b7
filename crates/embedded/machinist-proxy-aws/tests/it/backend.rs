//! The backend: instances in memory, without tokens, signatures and delays, as moto has them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use machinist_proxy_aws::{Backend, BackendError};
use tokio::sync::Semaphore;

/// A backend. Clones share the instances.
#[derive(Clone)]
pub(crate) struct Memory {
    state: Arc<Mutex<State>>,
    /// Each creation takes a permit before it is answered.
    pub(crate) gate: Arc<Semaphore>,
    /// Has a permit per creation that began.
    pub(crate) begun: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    /// The state of each instance. Its number is its id.
    instances: Vec<&'static str>,
    /// The error code with which the next creation is refused.
    refusal: Option<&'static str>,
    is_away: bool,
}

/// The keys that a workload gets, which expire at that time.
pub(crate) const TEMPORARY: (&str, &str, &str) = ("ASIA1", "temporary secret", "session");
pub(crate) const EXPIRES: &str = "2026-01-01T01:00:00Z";

impl Memory {
    pub(crate) fn new() -> Self {
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { state: Arc::default(), gate, begun: Arc::new(Semaphore::new(0)) }
    }

    /// Number of instances that ever existed.
    pub(crate) fn ever(&self) -> usize {
        self.state.lock().expect("not poisoned").instances.len()
    }

    pub(crate) fn set_state(&self, number: usize, state: &'static str) {
        self.state.lock().expect("not poisoned").instances[number] = state;
    }

    pub(crate) fn refuse_next_creation(&self, code: &'static str) {
        self.state.lock().expect("not poisoned").refusal = Some(code);
    }

    pub(crate) fn go_away(&self) {
        self.state.lock().expect("not poisoned").is_away = true;
    }

    fn act(&self, form: &[(String, String)]) -> Response<Bytes> {
        let mut state = self.state.lock().expect("not poisoned");
        let value =
            |name: &str| form.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        match value("Action").expect("an action") {
            "RunInstances" => {
                if let Some(code) = state.refusal.take() {
                    return refused(code);
                }
                state.instances.push("running");
                let set = shown(state.instances.len() - 1, "running");
                answer(format!(
                    "<RunInstancesResponse><reservationId>r</reservationId><instancesSet>{set}</instancesSet>\
                     </RunInstancesResponse>"
                ))
            }
            "DescribeInstances" => {
                let asked: Vec<&str> = form
                    .iter()
                    .filter(|(name, _)| {
                        name.starts_with("InstanceId.") || name.starts_with("Filter.1.Value.")
                    })
                    .map(|(_, value)| value.as_str())
                    .collect();
                if let Some(filter) = value("Filter.1.Name") {
                    assert_eq!(filter, "instance-id", "this backend knows one filter");
                }
                let instances = state.instances.iter().enumerate();
                let is_asked = |number: usize| asked.is_empty() || asked.contains(&id(number).as_str());
                let sets: String = instances
                    .filter(|(number, state)| is_asked(*number) && **state != "forgotten")
                    .map(|(number, state)| {
                        let set = shown(number, state);
                        format!(
                            "<item><reservationId>r</reservationId><instancesSet>{set}</instancesSet></item>"
                        )
                    })
                    .collect();
                if value("InstanceId.1").is_some() && sets.is_empty() {
                    return refused("InvalidInstanceID.NotFound");
                }
                answer(format!(
                    "<DescribeInstancesResponse><reservationSet>{sets}</reservationSet></DescribeInstancesResponse>"
                ))
            }
            // The zone is a part of the id, as in `subnet-a-1`.
            "DescribeSubnets" => match value("SubnetId.1").and_then(|id| id.split('-').nth(1)) {
                Some(zone) => answer(format!(
                    "<DescribeSubnetsResponse><subnetSet><item><availabilityZone>{zone}</availabilityZone>\
                     </item></subnetSet></DescribeSubnetsResponse>"
                )),
                None => refused("InvalidSubnetID.NotFound"),
            },
            "AssumeRoleWithWebIdentity" => {
                let (key, secret, token) = TEMPORARY;
                answer(format!(
                    "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>{key}</AccessKeyId>\
                     <SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>\
                     <Expiration>{EXPIRES}</Expiration></Credentials></AssumeRoleWithWebIdentityResponse>"
                ))
            }
            other => panic!("this backend has no {other}"),
        }
    }
}

/// The id of an instance.
pub(crate) fn id(number: usize) -> String {
    format!("i-{number}")
}

fn shown(number: usize, state: &str) -> String {
    format!(
        "<item><instanceId>{}</instanceId><instanceState><name>{state}</name></instanceState></item>",
        id(number)
    )
}

fn answer(body: String) -> Response<Bytes> {
    Response::new(body.into())
}

fn refused(code: &str) -> Response<Bytes> {
    let body = format!("<Response><Errors><Error><Code>{code}</Code></Error></Errors></Response>");
    Response::builder().status(400).body(body.into()).expect("a response")
}

impl Backend for Memory {
    fn url(&self) -> String {
        "http://backend".to_owned()
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, BackendError> {
        if self.state.lock().expect("not poisoned").is_away {
            return Err(BackendError("it is away".to_owned()));
        }
        let text = std::str::from_utf8(request.body()).expect("text");
        let decode = |text: &str| {
            percent_encoding::percent_decode_str(text).decode_utf8().expect("UTF-8").into_owned()
        };
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        let form: Vec<_> = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
        let answer = self.act(&form);
        if text.contains("Action=RunInstances") {
            self.begun.add_permits(1);
            self.gate.acquire().await.expect("open").forget();
        }
        Ok(answer)
    }
}
