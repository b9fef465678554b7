//! The driver with a counterpart that is another program: a `moto_server` at the URL of
//! `MACHINIST_AWS_ENDPOINT`, for example `http://127.0.0.1:5000`. Without the variable, the tests
//! print that they are skipped.
//!
//! moto decodes requests and writes answers from the API definitions of AWS. Unlike EC2, it checks
//! no signatures and shows every change at once. It has no client tokens, so `tokens` adds them.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use http::Request;
use jiff::Timestamp;
use machinist_driver::contract::{Hook, Subject, Trouble, run};
use machinist_driver::{Driver, Provider};
use machinist_driver_aws::{AwsOptions, AwsProvider, Endpoint, Http, Transport as _};
use machinist_instance::{
    AccountId, Credential, Instance, InstanceKey, InstanceSpec, NodeName, Place, Power, ProviderId, Scope,
    Sighting,
};
use serde_json::{Value, json};

use crate::cloud::{ACCESS_KEY, MARKS, REGION, by_id, by_key, class, credential, found, instance_spec};
use crate::fake::WORKLOAD_TOKEN;
use crate::tokens::Tokens;

/// The cases that fail, because the trait has one name for a Machine and its Node.
const KNOWN: [&str; 1] = [
    // An instance gets its name from EC2, and the contract expects the name of the spec.
    "ensure_creates_the_instance_of_the_spec",
];

struct Moto {
    endpoint: String,
    provider: AwsProvider,
    class: Value,
}

impl Moto {
    /// Prepares a class whose objects exist. `None` without the variable.
    async fn prepare() -> Option<Self> {
        let Ok(endpoint) = std::env::var("MACHINIST_AWS_ENDPOINT") else {
            println!("skipped: MACHINIST_AWS_ENDPOINT is not set");
            return None;
        };
        let url = Endpoint::parse(&endpoint).expect("MACHINIST_AWS_ENDPOINT is a URL");
        let region = Some(REGION.to_owned());
        let options = AwsOptions { ec2: Some(url.clone()), sts: Some(url), region, ..AwsOptions::default() };
        let mut moto = Self { endpoint, provider: provider(options), class: class() };
        moto.ask(
            "iam",
            "Action=CreateInstanceProfile&Version=2010-05-08&InstanceProfileName=shoot--foo--bar-nodes",
        )
        .await;
        let subnet = moto.first_of("DescribeSubnets", "subnetId").await;
        let group = moto.first_of("DescribeSecurityGroups", "groupId").await;
        moto.class["networkInterfaces"] = json!([{"subnetID": subnet, "securityGroupIDs": [group]}]);
        Some(moto)
    }

    /// Sends a request with the scope of a signature, but without a signature.
    async fn ask(&self, service: &str, form: &str) -> String {
        let scope = format!("{ACCESS_KEY}/20260101/{REGION}/{service}/aws4_request");
        let request = Request::post(format!("{}/", self.endpoint.trim_end_matches('/')))
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

    /// The first text of an element in a list.
    async fn first_of(&self, action: &str, element: &str) -> String {
        let answer = self.ask("ec2", &format!("Action={action}&Version=2016-11-15")).await;
        text_of(&answer, element).expect("the account has a default network")
    }

    fn driver(&self) -> Arc<dyn Driver> {
        let (account, credential) = self.account();
        self.provider.open(&account, &credential, &Place::WHOLE).expect("a credential")
    }
}

fn text_of(answer: &str, element: &str) -> Option<String> {
    let (_, rest) = answer.split_once(&format!("<{element}>"))?;
    Some(rest.split_once('<')?.0.to_owned())
}

fn provider(options: AwsOptions) -> AwsProvider {
    AwsProvider::over(Arc::new(Tokens::new()), options)
}

/// A text that no other run against the counterpart uses.
#[expect(clippy::disallowed_methods, reason = "the counterpart has the clock of the computer")]
fn run_id() -> String {
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
        class["region"] = json!("us-east-1");
        Some(class)
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

    fn volumes(&self) -> Vec<machinist_instance::VolumeSource> {
        let volume = |id: &str| machinist_instance::VolumeSource {
            plugin: "ebs.csi.aws.com".to_owned(),
            id: id.to_owned(),
        };
        vec![volume("vol-1"), volume("vol-2")]
    }

    fn run_id(&self) -> String {
        run_id()
    }

    #[expect(clippy::disallowed_methods, reason = "the counterpart has the clock of the computer")]
    fn now(&self) -> Timestamp {
        // Creation times of instances have no fractions of a second.
        Timestamp::from_second(Timestamp::now().as_second()).expect("a valid second")
    }

    async fn wait(&self, _: Duration) {
        // moto shows every change at once.
    }

    async fn arrange(&self, _: Trouble) -> Hook {
        Hook::Missing
    }

    async fn calm(&self) {}

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
        let answer = self.ask("ec2", &form).await;
        let id = text_of(&answer, "instanceId").unwrap_or_else(|| panic!("{answer}"));
        let launched = text_of(&answer, "launchTime").and_then(|time| time.parse::<Timestamp>().ok());
        if launched.is_some_and(|launched| launched.as_second() == created.as_second()) {
            return Hook::Arranged;
        }
        // Another second has begun, and moto cannot create an instance in the past.
        self.ask("ec2", &format!("Action=TerminateInstances&Version=2016-11-15&InstanceId.1={id}")).await;
        Hook::Missing
    }

    async fn truly_alive(&self, _: &InstanceKey) -> Option<usize> {
        None
    }
}

#[tokio::test]
async fn the_driver_keeps_the_contract_with_moto() {
    let Some(moto) = Moto::prepare().await else { return };
    let report = run(&moto).await;
    println!("{report}");
    let failed: Vec<&str> = report.failed().map(|(name, _)| name).collect();
    assert_eq!(failed, KNOWN, "\n{report}");
}

/// Creates, finds, lists and deletes twenty instances.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test deletes what it created")]
async fn twenty_instances_live_and_end_on_moto() {
    let Some(moto) = Moto::prepare().await else { return };
    let driver = moto.driver();
    let cluster = format!("twenty-{}", run_id());
    let specs: Vec<InstanceSpec> = (0..20)
        .map(|number| {
            let spec = instance_spec(&format!("{cluster}-{number}"), moto.provider_spec());
            InstanceSpec { cluster: cluster.clone(), ..spec }
        })
        .collect();
    let made: Vec<Instance> =
        try_join_all(specs.iter().map(|spec| driver.instances().ensure(spec))).await.expect("created");
    let ids: BTreeSet<&ProviderId> = made.iter().map(|instance| &instance.id).collect();
    assert_eq!(ids.len(), 20);
    for (spec, instance) in specs.iter().zip(&made) {
        let again = driver.instances().ensure(spec).await.expect("the same");
        assert_eq!(again.id, instance.id);
        assert!(again.name.as_str().ends_with(".compute.internal"), "{}", again.name);
        assert_eq!(found(&*driver, &by_key(&spec.key)).await.power, Power::Running);
        let initializer = driver.initialization().expect("a driver with initialization");
        let class = moto.uninitialized_spec().expect("a class");
        initializer.initialize(&instance.id, &spec.key, &class).await.expect("initialized");
    }
    let ours = Scope::Ours(cluster);
    assert_eq!(driver.instances().list(&ours).await.expect("a list").len(), 20);
    for (spec, instance) in specs.iter().zip(&made) {
        driver.instances().delete(&by_id(&instance.id), &spec.key).await.expect("deleted");
    }
    for instance in &made {
        assert_eq!(driver.instances().find(&by_id(&instance.id)).await, Ok(Sighting::Absent));
    }
    assert!(driver.instances().list(&ours).await.expect("a list").is_empty());
}

#[tokio::test]
async fn a_workload_gets_keys_from_moto() {
    let Some(moto) = Moto::prepare().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, WORKLOAD_TOKEN).expect("written");
    let url = Endpoint::parse(&moto.endpoint).ok();
    let token_folder = folder.path().to_owned();
    let provider = provider(AwsOptions { ec2: url.clone(), sts: url, token_folder, ..AwsOptions::default() });
    let entries = [
        ("workloadIdentityTokenFile", file.to_str().expect("UTF-8")),
        ("roleARN", "arn:aws:iam::123456789012:role/machines"),
    ];
    let entries = entries.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let (credential, place) = (Credential::new(entries.into()), Place::new(REGION));
    let account = provider.account(&credential, &place);
    let driver = provider.open(&account, &credential, &place).expect("a credential");
    driver.instances().list(&Scope::Visible).await.expect("a list with temporary keys");
}
