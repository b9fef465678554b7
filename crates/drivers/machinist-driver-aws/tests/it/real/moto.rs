//! moto behind the proxy: a class whose objects exist, the operator's functions of the proxy, and
//! the list of moto itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use machinist_driver::contract::{Hook, Subject, Trouble};
use machinist_driver::{Driver, Provider};
use machinist_driver_aws::{AwsOptions, AwsProvider, Endpoint, Http, PROMISES, Transport as _};
use machinist_instance::{
    AccountId, Credential, InstanceKey, InstanceSpec, NodeName, Place, ProviderId, VolumeSource,
};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::cloud::{ACCESS_KEY, MARKS, REGION, SECRET_KEY, class, credential, instance_spec, native};
use crate::subject::{FOREIGN_IDS, MALFORMED_IDS, action, other_spellings};

/// The second region of the contract.
const ELSEWHERE: &str = "us-east-1";

/// The proxy has one clock and one list of faults, so one test at a time uses it.
static TURN: Mutex<()> = Mutex::const_new(());

pub(super) struct Moto {
    /// The URL of the proxy.
    pub(super) endpoint: String,
    /// The URL of moto itself, whose list of instances is the truth.
    behind: String,
    provider: AwsProvider,
    class: Value,
    /// A subnet in another zone than the zone of the class.
    other_subnet: String,
    _turn: MutexGuard<'static, ()>,
}

impl Moto {
    /// Prepares a class whose objects exist. `None` without the variable.
    pub(super) async fn prepare() -> Option<Self> {
        let Ok(endpoint) = std::env::var("MACHINIST_AWS_ENDPOINT") else {
            println!("skipped: MACHINIST_AWS_ENDPOINT is not set");
            return None;
        };
        let turn = TURN.lock().await;
        let url = Endpoint::parse(&endpoint).expect("MACHINIST_AWS_ENDPOINT is a URL");
        let region = Some(REGION.to_owned());
        let options = AwsOptions { ec2: Some(url.clone()), sts: Some(url), region, ..AwsOptions::default() };
        let provider = provider(options);
        let (behind, other_subnet) = (String::new(), String::new());
        let mut moto = Self { endpoint, behind, provider, class: class(), other_subnet, _turn: turn };
        let described = moto.control("GET", "", Value::Null).await;
        moto.behind = described["backend"].as_str().expect("the proxy names its backend").to_owned();
        moto.clear_trouble().await;
        moto.ask(
            "iam",
            REGION,
            "Action=CreateInstanceProfile&Version=2010-05-08&InstanceProfileName=shoot--foo--bar-nodes",
        )
        .await;
        let subnet = moto.subnet("eu-west-1a").await;
        moto.other_subnet = moto.subnet("eu-west-1b").await;
        let group = moto.first_of("DescribeSecurityGroups", "groupId").await;
        moto.class["networkInterfaces"] = json!([{"subnetID": subnet, "securityGroupIDs": [group]}]);
        Some(moto)
    }

    /// Sends a request to moto itself, with the scope of a signature, but without a signature.
    async fn ask(&self, service: &str, region: &str, form: &str) -> String {
        let scope = format!("{ACCESS_KEY}/20260101/{region}/{service}/aws4_request");
        let request = Request::post(format!("{}/", self.behind))
            .header("content-type", "application/x-www-form-urlencoded")
            .header(
                "authorization",
                format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"),
            )
            .body(Bytes::from(form.to_owned()))
            .expect("a request");
        let answer = Http::plain().send(request).await.expect("an answer");
        String::from_utf8(answer.into_body().into()).expect("text")
    }

    /// The subnet of a zone. The default network has one in each.
    async fn subnet(&self, zone: &str) -> String {
        let action = format!("DescribeSubnets&Filter.1.Name=availability-zone&Filter.1.Value.1={zone}");
        self.first_of(&action, "subnetId").await
    }

    /// The first text of an element in a list.
    async fn first_of(&self, action: &str, element: &str) -> String {
        let answer = self.ask("ec2", REGION, &format!("Action={action}&Version=2016-11-15")).await;
        text_of(&answer, element).expect("the account has a default network")
    }

    /// Uses a function of the proxy's operator.
    pub(super) async fn control(&self, method: &str, path: &str, body: Value) -> Value {
        let url = format!("{}/_control{path}", self.endpoint.trim_end_matches('/'));
        let request = Request::builder().method(method).uri(url);
        let request = request.body(Bytes::from(body.to_string())).expect("a request");
        let answer = Http::plain().send(request).await.expect("an answer of the proxy");
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        assert!(answer.status().is_success(), "{method} {path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Lets the next requests of an action meet a fault.
    pub(super) async fn fault(&self, action: &str, times: u32, fault: Value) {
        self.control("POST", "/faults", json!({"action": action, "times": times, "fault": fault})).await;
    }

    /// Lets reads show new instances this much later.
    pub(super) async fn lag(&self, in_lists: Duration, by_id: Duration) {
        let lag = json!({"inListsSeconds": in_lists.as_secs(), "byIdSeconds": by_id.as_secs()});
        self.control("PUT", "/delay", lag).await;
    }

    /// A new driver of the account, without memory of earlier calls.
    pub(super) fn driver(&self) -> Arc<dyn Driver> {
        self.driver_of(&self.account().1)
    }

    pub(super) fn driver_of(&self, credential: &Credential) -> Arc<dyn Driver> {
        let account = self.provider.account(credential, &Place::WHOLE);
        self.provider.open(&account, credential, &Place::WHOLE).expect("a credential")
    }

    /// The spec of an instance that no other test of this run has.
    pub(super) fn spec(&self, name: &str) -> InstanceSpec {
        instance_spec(&format!("{}-{name}", run_id()), self.class.clone())
    }

    /// The class after a user has changed its subnet to one in another zone.
    pub(super) fn in_another_zone(&self) -> Value {
        let mut class = self.class.clone();
        class["networkInterfaces"][0]["subnetID"] = json!(self.other_subnet);
        class
    }

    /// Number of instances of a key in moto: those that are alive, or all that ever existed.
    pub(super) async fn count(&self, key: &InstanceKey, states: &[&str]) -> usize {
        let mut form = format!(
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Amachinist.dev%2Fkey\
             &Filter.1.Value.1={key}&Filter.2.Name=instance-state-name"
        );
        for (number, state) in (1..).zip(states) {
            form.push_str(&format!("&Filter.2.Value.{number}={state}"));
        }
        let mut all = 0;
        for region in [REGION, ELSEWHERE] {
            let answer = self.ask("ec2", region, &form).await;
            assert!(answer.contains("<reservationSet"), "{answer}");
            all += answer.matches("<instanceState>").count();
        }
        all
    }

    /// Number of instances of a key that are alive.
    pub(super) async fn alive(&self, key: &InstanceKey) -> usize {
        self.count(key, &["pending", "running", "shutting-down", "stopping", "stopped"]).await
    }

    /// Removes the tag with the key of an instance, as a user could.
    pub(super) async fn remove_key(&self, id: &ProviderId) {
        let form = format!(
            "Action=DeleteTags&Version=2016-11-15&ResourceId.1={}&Tag.1.Key=machinist.dev%2Fkey",
            native(id)
        );
        let answer = self.ask("ec2", REGION, &form).await;
        assert!(answer.contains("<DeleteTagsResponse"), "{answer}");
    }
}

fn text_of(answer: &str, element: &str) -> Option<String> {
    let (_, rest) = answer.split_once(&format!("<{element}>"))?;
    Some(rest.split_once('<')?.0.to_owned())
}

pub(super) fn provider(options: AwsOptions) -> AwsProvider {
    AwsProvider::over(Arc::new(Http::plain()), options)
}

/// A text that no other run against the counterpart uses.
#[expect(clippy::disallowed_methods, reason = "the counterpart has the clock of the computer")]
pub(super) fn run_id() -> String {
    static OF_PROCESS: OnceLock<String> = OnceLock::new();
    OF_PROCESS.get_or_init(|| format!("run-{:x}", Timestamp::now().as_millisecond())).clone()
}

#[async_trait]
impl Subject for Moto {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn account(&self) -> (AccountId, Credential) {
        let credential = credential(ACCESS_KEY);
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    fn another_account(&self) -> Option<Credential> {
        None
    }

    fn provider_spec(&self) -> Value {
        self.class.clone()
    }

    fn elsewhere(&self) -> Option<Value> {
        let mut class = self.class.clone();
        class["region"] = json!(ELSEWHERE);
        Some(class)
    }

    fn other_key_scope(&self) -> Option<Value> {
        Some(self.in_another_zone())
    }

    fn uninitialized_spec(&self) -> Option<Value> {
        let mut class = self.class.clone();
        class["srcAndDstChecksEnabled"] = json!(false);
        Some(class)
    }

    fn broken_spec(&self) -> (Value, &'static str) {
        let mut class = self.class.clone();
        class["machineType"] = json!(5);
        (class, "providerSpec.machineType")
    }

    fn volumes(&self) -> Vec<VolumeSource> {
        let volume = |id: &str| VolumeSource { plugin: "ebs.csi.aws.com".to_owned(), id: id.to_owned() };
        vec![volume("vol-1"), volume("vol-2")]
    }

    fn other_spellings(&self, id: &ProviderId) -> Vec<String> {
        other_spellings(id)
    }

    fn foreign_ids(&self) -> Vec<String> {
        FOREIGN_IDS.map(str::to_owned).into()
    }

    fn malformed_ids(&self) -> Vec<String> {
        MALFORMED_IDS.map(str::to_owned).into()
    }

    fn run_id(&self) -> String {
        run_id()
    }

    #[expect(clippy::disallowed_methods, reason = "the counterpart has the clock of the computer")]
    fn now(&self) -> Timestamp {
        // Creation times of instances have no fractions of a second.
        Timestamp::from_second(Timestamp::now().as_second()).expect("a valid second")
    }

    async fn wait(&self, span: Duration) {
        // Only the proxy lets time pass: moto shows every change at once.
        self.control("POST", "/advance", json!({"seconds": span.as_secs()})).await;
    }

    async fn inject(&self, trouble: Trouble) -> Hook {
        let refuse = |code: &str| json!({"kind": "refuse", "code": code});
        let all = |code: &str| json!({"action": "RunInstances", "fault": refuse(code)});
        match trouble {
            Trouble::ErrorAfterEffect(verb) => {
                self.fault(action(verb), 1, json!({"kind": "effectThenError"})).await;
            }
            // A broken connection is also a lost answer, and the driver does not wait for an
            // answer.
            Trouble::SilenceAfterEffect(verb) => {
                self.fault(action(verb), 1, json!({"kind": "effectThenClose"})).await;
            }
            Trouble::LateEffect(verb) => {
                let seconds = PROMISES.call_bound.as_secs() - 1;
                self.fault(action(verb), 1, json!({"kind": "closeThenEffect", "seconds": seconds})).await;
            }
            // Each call begins with a read.
            Trouble::Outage(_) => self.fault("DescribeInstances", 1, refuse("Unavailable")).await,
            Trouble::Throttled(verb) => {
                let mut fault = refuse("RequestLimitExceeded");
                fault["retryAfterSeconds"] = json!(5);
                self.fault(action(verb), 1, fault).await;
            }
            Trouble::SlowReads => self.lag(PROMISES.visible_within, PROMISES.visible_within).await,
            Trouble::RevokedCredential => {
                self.control("DELETE", &format!("/keys/{ACCESS_KEY}"), Value::Null).await;
            }
            Trouble::QuotaUsedUp => drop(self.control("POST", "/faults", all("InstanceLimitExceeded")).await),
            Trouble::StockUsedUp => {
                self.control("POST", "/faults", all("InsufficientInstanceCapacity")).await;
            }
            Trouble::SlowDeletion | Trouble::RefusedAfterParts => return Hook::Missing,
        }
        Hook::Arranged
    }

    async fn clear_trouble(&self) {
        self.control("DELETE", "/faults", Value::Null).await;
        self.control("DELETE", "/delay", Value::Null).await;
        let key = json!({"secretKey": SECRET_KEY});
        self.control("PUT", &format!("/keys/{ACCESS_KEY}"), key).await;
    }

    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook {
        let mut form = format!(
            "Action=RunInstances&Version=2016-11-15&MinCount=1&MaxCount=1&ImageId={}&InstanceType=m5.large\
             &TagSpecification.1.ResourceType=instance",
            self.class["ami"].as_str().expect("an image"),
        );
        for (number, (key, value)) in (1..).zip(MARKS.iter().chain([&("Name", name.as_str())])) {
            let tag = format!("TagSpecification.1.Tag.{number}");
            form.push_str(&format!("&{tag}.Key={}&{tag}.Value={value}", key.replace('/', "%2F")));
        }
        let answer = self.ask("ec2", REGION, &form).await;
        let id = text_of(&answer, "instanceId").unwrap_or_else(|| panic!("{answer}"));
        let launched = text_of(&answer, "launchTime").and_then(|time| time.parse::<Timestamp>().ok());
        if launched.is_some_and(|launched| launched.as_second() == created.as_second()) {
            return Hook::Arranged;
        }
        // Another second has begun, and moto cannot create an instance in the past.
        let form = format!("Action=TerminateInstances&Version=2016-11-15&InstanceId.1={id}");
        self.ask("ec2", REGION, &form).await;
        Hook::Missing
    }

    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize> {
        Some(self.alive(key).await)
    }

    async fn changing_requests(&self) -> Option<u64> {
        let described = self.control("GET", "", Value::Null).await;
        let requests = described["requests"].as_object().expect("numbers by action");
        let changes = requests.iter().filter(|(action, _)| !action.starts_with("Describe"));
        Some(changes.filter_map(|(_, number)| number.as_u64()).sum())
    }
}
