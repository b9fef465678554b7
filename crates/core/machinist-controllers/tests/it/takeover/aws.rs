//! Gardener's provider for AWS: `fixtures/go-aws`, 26 situations with their objects and instances.
//!
//! The instances are in the small EC2 of the driver's own tests. It has no volumes: EC2 deletes
//! them with the instance, and so it does with network interfaces. A request of a creation says so,
//! and a test compares that request with Go's.

use k8s_openapi::ByteString;
use machinist_driver_aws::{AwsOptions, AwsProvider, Endpoint, Http, PROMISES};
use machinist_driver_http::pipe::Pipes;
use tokio::time::Instant;

use super::*;

#[path = "../../../../../drivers/machinist-driver-aws/tests/it/fake/mod.rs"]
#[expect(dead_code, reason = "the tests of the driver use the rest")]
mod fake;

use fake::{Fake, FaultKind, Interface, Machine as Ec2Instance, Parameters, Request, Settings, server};

const ACCOUNT: &str = "123456789012";
const REGION: &str = "eu-west-1";
/// The access key in the Secrets of the fixtures.
const ACCESS_KEY: &str = "redacted";
/// Parts of the tags by which Go finds the instances of a class.
const MARKS: [&str; 2] = ["kubernetes.io/cluster/", "kubernetes.io/role/"];
/// Begins the tags that only our driver writes.
const OURS: &str = "machinist.dev/";

impl Counterpart for Fake {
    fn provider(&self) -> Arc<dyn Provider> {
        let fake = self.clone();
        let transport = Http::over(Pipes(move |far| Ok(server::serve(fake.clone(), far))));
        let endpoint = Endpoint::parse("http://cloud").ok();
        let options = AwsOptions { ec2: endpoint.clone(), sts: endpoint, ..AwsOptions::default() };
        let clock = self.clone();
        Arc::new(AwsProvider::over(Arc::new(transport), options).with_clock(move || clock.now()))
    }

    fn instances(&self) -> Vec<Shown> {
        let now = Instant::now();
        let shown = |instance: &Ec2Instance| Shown {
            id: instance.id.clone(),
            machine: instance.tags.get("Name").cloned().unwrap_or_default(),
            is_alive: instance.state(now) != "terminated",
            is_marked: MARKS.iter().all(|mark| instance.tags.keys().any(|key| key.starts_with(mark))),
            marks: instance.tags.clone(),
            node: instance.private_dns_name.clone(),
            // The cloud controller manager writes the zone.
            node_id: format!("aws:///{REGION}a/{}", instance.id),
        };
        self.lock().instances.iter().map(shown).collect()
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }
}

fn instance(shown: &Value) -> Ec2Instance {
    let tag = |tag: &Value| (text(&tag["Key"]), text(&tag["Value"]));
    let state = text(&shown["State"]["Name"]);
    let now = Instant::now();
    Ec2Instance {
        id: text(&shown["InstanceId"]),
        account: ACCOUNT.to_owned(),
        region: REGION.to_owned(),
        zone: "a".to_owned(),
        tags: list(&shown["Tags"]).into_iter().map(tag).collect(),
        token: text(&shown["ClientToken"]),
        launched: text(&shown["LaunchTime"]).parse().expect("a time"),
        visible_at: now,
        terminated_at: (state == "terminated").then_some(now),
        is_stopped: state == "stopped",
        private_dns_name: text(&shown["PrivateDnsName"]),
        interfaces: list(&shown["NetworkInterfaces"]).into_iter().map(interface).collect(),
    }
}

fn interface(shown: &Value) -> Interface {
    let number = |name: &str| {
        let number = shown["Attachment"][name].as_i64().unwrap_or_default();
        i32::try_from(number).expect("a small number")
    };
    Interface {
        id: text(&shown["NetworkInterfaceId"]),
        card: number("NetworkCardIndex"),
        device: number("DeviceIndex"),
        of_type: text(&shown["InterfaceType"]),
        has_check: shown["SourceDestCheck"].as_bool().expect("a check"),
        prefixes: list(&shown["Ipv6Prefixes"]).len(),
    }
}

/// A cloud without instances.
fn empty(left: &Left) -> Fake {
    let fake = Fake::new(Settings::default());
    let mut state = fake.lock();
    state.epoch = left.moment();
    state.access_keys.insert(ACCESS_KEY.to_owned(), ACCOUNT.to_owned());
    drop(state);
    fake
}

/// The cloud with everything that the fixture shows.
fn account(left: &Left) -> Fake {
    let fake = empty(left);
    fake.lock().instances = left.cloud("instances").into_iter().map(instance).collect();
    fake
}

/// The Machines have an instance, and keep it.
const KEPT: [&str; 8] = [
    "create-answer-lost",
    "creating",
    "creating-adopted",
    "orphan",
    "orphan-swept",
    "pending",
    "running",
    "running-0.62.1",
];

/// The creation was refused, or Go was killed during it. Refusals that the recording caused have
/// ended, such as a shortage of instances.
const BEGUN: [&str; 6] =
    ["ambient-credential", "create-exhausted", "create-throttled", "creating-killed", "fields-a", "fields-b"];

/// Go was deleting the Machine. The permission that it lacked once has been given.
const DELETING: [&str; 6] = [
    "deletion-finalizer",
    "deletion-node-object",
    "draining",
    "draining-0.62.1",
    "vm-deletion",
    "vm-deletion-failing",
];

/// Nothing is left to do.
const DELETED: [&str; 3] = ["deleted", "deleted-0.62.1", "deleted-pending"];

/// Other situations, and the state that their Machines reach which Go did not delete.
const OTHERS: [(&str, End); 3] = [
    // The subnet or the image of the class does not exist.
    ("create-refused", End::Refused("InvalidArgument")),
    // Go's sweep has terminated the instance of a living Machine. EC2 still shows its end, which
    // proves that the account is the same.
    ("id-with-zone-swept", End::Replaced),
    // A new instance gets the name of a Node that is left, so its Machine fails.
    ("stale-node", End::Replaced),
];

impl After<Fake> {
    /// Edits the subnet of the class, as a user may.
    async fn move_class(&self, subnet: &str) {
        let classes: Api<MachineClass> = Api::default_namespaced(self.user.clone());
        let class = classes.list(&ListParams::default()).await.expect("a list").items.remove(0);
        let mut class = serde_json::to_value(class).expect("JSON");
        class["providerSpec"]["networkInterfaces"][0]["subnetID"] = json!(subnet);
        let name = text(&class["metadata"]["name"]);
        let patch = Patch::Merge(json!({"providerSpec": class["providerSpec"]}));
        classes.patch(&name, &PatchParams::default(), &patch).await.expect("accepted");
    }
}

/// Plays a situation, and returns the mistakes and the cloud.
async fn play(name: &str, end: End) -> (Vec<String>, Fake) {
    let left = Left::read("aws", name);
    let fake = account(&left);
    let mut wrong = taken_over(left, fake.clone(), end).await;
    let requests = sent(&fake);
    // Go's provider took a key from its environment once.
    let of_others = requests.iter().filter(|request| request.access_key != ACCESS_KEY);
    wrong.extend(of_others.map(|request| format!("{} has the key {}", request.action, request.access_key)));
    (wrong.into_iter().map(|wrong| format!("{name}: {wrong}")).collect(), fake)
}

fn sent(fake: &Fake) -> Vec<Request> {
    fake.lock().requests.clone()
}

async fn assert_taken_over(names: &[&str], end: End) {
    let mut all = Vec::new();
    for name in names {
        all.extend(play(name, end).await.0);
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

/// The names of all situations.
fn situations() -> BTreeSet<String> {
    let others = OTHERS.iter().map(|(name, _)| name);
    let all = KEPT.iter().chain(&BEGUN).chain(&DELETING).chain(&DELETED).chain(others);
    all.map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_situation_of_aws_is_played() {
    assert_eq!(situations(), names("aws"));
}

#[tokio::test(start_paused = true)]
async fn machines_keep_the_instances_that_go_created() {
    assert_taken_over(&KEPT, End::Run).await;
}

/// Packets of pods must pass the interfaces, also the interfaces of an instance that Go did not
/// complete.
#[tokio::test(start_paused = true)]
async fn creations_that_go_began_are_continued() {
    let mut all = Vec::new();
    for name in BEGUN {
        let (wrong, fake) = play(name, End::Run).await;
        all.extend(wrong);
        for instance in &fake.lock().instances {
            let with_check: Vec<&str> = instance
                .interfaces
                .iter()
                .filter(|interface| interface.has_check)
                .map(|interface| interface.of_type.as_str())
                .collect();
            let prefixes: usize = instance.interfaces.iter().map(|interface| interface.prefixes).sum();
            // One class has a second interface, which carries no packets of pods, and a prefix.
            let expected: (&[&str], usize) = if name == "fields-a" { (&["efa-only"], 1) } else { (&[], 0) };
            if (with_check.as_slice(), prefixes) != expected {
                all.push(format!("{name}: checks {with_check:?}, {prefixes} prefixes"));
            }
        }
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn deletions_that_go_began_are_completed() {
    assert_taken_over(&DELETING, End::Run).await;
}

/// EC2 recognises a client token in one zone. A user moves the class to another zone after a
/// request whose answer is lost, while reads do not show its instance.
#[tokio::test(start_paused = true)]
async fn a_class_that_moves_to_another_zone_doubles_no_instance() {
    for is_killed in [false, true] {
        let left = Left::read("aws", "create-throttled");
        let fake = account(&left);
        fake.lock().settings.lag = PROMISES.visible_within;
        // The process waits so long after the first request that only its memory, or the record
        // of the Machine, shows the subnet of the second one.
        let refusal =
            FaultKind::Refuse { status: 500, code: "InsufficientInstanceCapacity", retry_after: None };
        fake.inject("RunInstances", refusal);
        fake.inject("RunInstances", FaultKind::EffectThenSilence);
        let after = After::of(left, fake.clone()).await;
        let mut processes = after.start();
        while fake.count("RunInstances") < 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        after.move_class("subnet-2").await;
        if is_killed {
            drop(processes);
            processes = after.start();
        }
        let made = after.work(End::Run).await;
        let machines = after.machines().await;
        let zones: Vec<String> = fake.lock().instances.iter().map(|instance| instance.zone.clone()).collect();
        assert_eq!((zones, made.len(), machines.len()), (vec!["a".to_owned()], 1, 1), "{is_killed}");
        assert_eq!(wrong_phase(&machines[0], End::Run), None);
        assert_eq!(fake.count("RunInstances"), 2, "the instance was found");
        drop(processes);
    }
}

/// Go gives up until its process restarts.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_aws_refuses_is_tried_again() {
    let left = Left::read("aws", "vm-deletion-failing");
    let fake = account(&left);
    // More refusals than attempts.
    for _ in 0..1000 {
        let kind = FaultKind::Refuse { status: 403, code: "UnauthorizedOperation", retry_after: None };
        fake.inject("TerminateInstances", kind);
    }
    let after = After::of(left, fake.clone()).await;
    let _processes = after.start();
    after.work(End::Run).await;
    let machines = after.machines().await;
    assert!(machines.iter().all(|machine| said(machine).contains("UnauthorizedOperation")), "{machines:#?}");
    assert_eq!((machines.len(), after.is_alive("i-195d1af472b13ecbc")), (1, true));
    fake.lock().faults.clear();
    assert_eq!(after.wrong_after_deletion().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn after_a_complete_deletion_the_cloud_is_only_read() {
    for name in DELETED {
        let (wrong, fake) = play(name, End::Run).await;
        assert!(wrong.is_empty(), "{wrong:#?}");
        let actions = fake.actions();
        assert!(actions.iter().all(|action| action.starts_with("Describe")), "{name}: {actions:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_that_aws_refuses_stays_refused() {
    let (name, end) = OTHERS[0];
    assert_taken_over(&[name], end).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_instance_go_swept_is_replaced() {
    let (name, end) = OTHERS[1];
    assert_taken_over(&[name], end).await;
}

/// After about an hour, EC2 no longer shows a terminated instance, and no other instance of Go is
/// left that would prove that the account is the same.
#[tokio::test(start_paused = true)]
async fn a_swept_instance_that_ec2_has_forgotten_is_in_doubt() {
    let left = Left::read("aws", OTHERS[1].0);
    let fake = account(&left);
    fake.lock().instances.clear();
    let wrong = taken_over(left, fake, End::ReplacedInDoubt).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Go created eleven instances in six seconds.
#[tokio::test(start_paused = true)]
async fn a_stale_node_costs_one_instance() {
    let (name, end) = OTHERS[2];
    let (wrong, fake) = play(name, end).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(fake.count("RunInstances"), 2, "{:?}", fake.actions());
}

/// The code is Go's code, which the cluster autoscaler reads.
#[tokio::test(start_paused = true)]
async fn a_shortage_that_lasts_keeps_its_code() {
    let left = Left::read("aws", "create-exhausted");
    let fake = account(&left);
    fake.lock().settings.has_stock = false;
    let wrong = taken_over(left, fake, End::Refused("ResourceExhausted")).await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Go's sweep terminates three of them. Ours cannot know whose they are.
#[tokio::test(start_paused = true)]
async fn instances_of_go_without_a_machine_are_reported() {
    let left = Left::read("aws", "orphan");
    let notes = left.0["notes"].clone();
    let fake = account(&left);
    let after = After::of(left, fake).await;
    let _processes = after.start();
    tokio::time::sleep(LONG).await;
    let messages = after.orphans().await;
    for (note, is_expected) in [
        ("noMachine", true),
        ("noName", true),
        ("secondOfMachine", true),
        ("noRole", false),
        ("living", false),
    ] {
        let id = text(&notes[note]);
        let id = native(&id);
        let is_reported = messages.iter().any(|message| message.contains(id));
        assert_eq!(is_reported, is_expected, "{note}: {messages:#?}");
    }
    assert_eq!(after.lost_of_others().await, [""; 0]);
}

/// The tags that a creation gives to the instance, its volumes or its interfaces.
fn tags(parameters: &Parameters, specification: usize) -> BTreeMap<String, String> {
    let tag = |number: usize| {
        let name = format!("TagSpecification.{specification}.Tag.{number}");
        Some((parameters.get(&format!("{name}.Key"))?.clone(), parameters[&format!("{name}.Value")].clone()))
    };
    (1..).map_while(tag).collect()
}

/// The user data of a creation, without the bootstrap token.
fn user_data(parameters: &Parameters) -> String {
    let data: ByteString = parse(json!(parameters["UserData"]));
    let text = String::from_utf8(data.0).expect("text");
    let is_token = |line: &&str| line.contains("bootstrap-token");
    text.lines().filter(|line| !is_token(line)).map(|line| format!("{line}\n")).collect()
}

/// The other fields. The token of the client is random in Go, and the UID of the Machine in ours.
/// The recording left out the version of the API.
fn fields(parameters: &Parameters) -> Parameters {
    let mut fields = parameters.clone();
    fields.retain(|name, _| !name.starts_with("TagSpecification.") || name.ends_with(".ResourceType"));
    fields.retain(|name, _| !["ClientToken", "UserData", "Version"].contains(&name.as_str()));
    fields
}

/// Both programs create an instance for the same Machine, because Go's creation was refused.
#[tokio::test(start_paused = true)]
async fn a_creation_is_the_request_that_go_sends() {
    for name in ["ambient-credential", "create-exhausted", "create-throttled", "fields-a", "fields-b"] {
        let left = Left::read("aws", name);
        let of_go: Vec<Value> = left.requests().into_iter().cloned().collect();
        let of_go = of_go.iter().find(|request| request["action"] == "RunInstances").expect("a creation");
        let of_go = texts(&of_go["parameters"]);
        let fake = account(&left);
        let after = After::of(left, fake.clone()).await;
        let _processes = after.start();
        after.work(End::Run).await;
        let sent = sent(&fake);
        let creations: Vec<&Request> = sent.iter().filter(|one| one.action == "RunInstances").collect();
        let [ours] = creations.as_slice() else { panic!("{name}: one creation: {creations:#?}") };
        let ours = &ours.parameters;
        assert_eq!(fields(ours), fields(&of_go), "{name}");
        assert_eq!(user_data(ours), user_data(&of_go), "{name}");
        for specification in 1..=3 {
            let mut tags_of_ours = tags(ours, specification);
            tags_of_ours.retain(|key, _| !key.starts_with(OURS));
            assert_eq!(tags_of_ours, tags(&of_go, specification), "{name}");
        }
    }
}

/// The part of a text between two others.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.split_once(begin)?.1.split_once(end).map(|(between, _)| between)
}

/// The cloud before Go sent the recorded requests: without the instances that they create, and
/// with those that they terminate.
fn before_requests(left: &Left) -> Fake {
    let fake = empty(left);
    let requests = left.requests();
    let of = |action: &'static str| requests.iter().filter(move |request| request["action"] == action);
    let created: Vec<&Value> = of("RunInstances").map(|one| &one["parameters"]["ClientToken"]).collect();
    let terminated: Vec<&Value> =
        of("TerminateInstances").map(|one| &one["parameters"]["InstanceId.1"]).collect();
    for shown in left.cloud("instances") {
        if created.contains(&&shown["ClientToken"]) {
            continue;
        }
        let mut instance = instance(shown);
        if terminated.contains(&&shown["InstanceId"]) {
            instance.terminated_at = None;
        }
        fake.lock().instances.push(instance);
    }
    fake
}

/// Gives a new instance the ids of the recorded one, which later requests name.
fn rename(fake: &Fake, token: &str, recorded: &Value) {
    let mut state = fake.lock();
    let instance = state.instances.iter_mut().find(|instance| instance.token == token).expect("created");
    instance.id = text(&recorded["instanceId"]);
    for (interface, recorded) in instance.interfaces.iter_mut().zip(list(&recorded["networkInterfaces"])) {
        interface.id = text(&recorded["networkInterfaceId"]);
    }
}

/// Sends the recorded requests of Go, and returns the answers that differ from the recorded ones.
fn different_answers(left: &Left) -> Vec<String> {
    let fake = before_requests(left);
    let mut wrong = Vec::new();
    for recorded in left.requests() {
        // The recording refused these itself.
        let is_refused =
            !recorded["injectedFault"].is_null() && 300 <= recorded["status"].as_u64().unwrap_or(0);
        if is_refused {
            continue;
        }
        let request = Request {
            action: text(&recorded["action"]),
            parameters: texts(&recorded["parameters"]),
            region: REGION.to_owned(),
            access_key: ACCESS_KEY.to_owned(),
        };
        let answer = fake.lock().act(&request);
        let (status, body) = match &answer {
            Ok(body) => (200, body.as_str()),
            Err((status, code)) => (*status, *code),
        };
        // A lost answer has no status.
        if recorded["status"].as_u64().is_some_and(|expected| expected != u64::from(status)) {
            wrong.push(format!("{recorded}: {status} {body}"));
        }
        let shown = list(&recorded["answer"]["instances"]);
        match request.action.as_str() {
            "RunInstances" if !shown.is_empty() => {
                rename(&fake, &request.parameters["ClientToken"], shown[0]);
            }
            "DescribeInstances" => {
                let items = body.split("<instancesSet>").skip(1);
                let ids: BTreeSet<&str> =
                    items.filter_map(|item| between(item, "<instanceId>", "</instanceId>")).collect();
                let expected: BTreeSet<&str> =
                    shown.iter().filter_map(|shown| shown["instanceId"].as_str()).collect();
                if ids != expected {
                    wrong.push(format!("{recorded}: {ids:?}"));
                }
            }
            _ => {}
        }
    }
    wrong
}

/// So the counterpart of these tests understands all that Go sends.
#[tokio::test(start_paused = true)]
async fn recorded_requests_have_their_recorded_answers() {
    let mut all = Vec::new();
    for name in situations() {
        let left = Left::read("aws", &name);
        all.extend(different_answers(&left).into_iter().map(|wrong| format!("{name}: {wrong}")));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}
