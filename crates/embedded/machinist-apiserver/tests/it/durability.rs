//! A server with a data folder: persistent state, rejected folders, and the state after a kill.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use machinist_apiserver::{Authorization, Config, Folder, Identity, Server, StorageError};
use serde_json::{Value, json};
use tower::Service as _;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn open(path: &Path) -> Result<Server, StorageError> {
    Server::open(Config::default(), Folder::open(path)?)
}

/// Returns the error for a folder that cannot be served.
fn refusal(path: &Path) -> String {
    let error = open(path).expect_err("refused");
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

async fn ask(server: &Server, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    let text = body.map(Value::to_string).unwrap_or_default();
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Full::from(text)).expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

async fn done(server: &Server, method: Method, path: &str, body: Option<Value>) -> Value {
    let (code, answer) = ask(server, method, path, body.as_ref()).await;
    assert!(code < 300, "{answer}");
    answer
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.t.dev"},
        "spec": {
            "group": "t.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
            }]
        }
    })
}

fn revision(object: &Value) -> u64 {
    let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).expect("a revision");
    text.parse().expect("a number")
}

/// Returns the lines of a watch that ends at once.
async fn watched(server: &Server, path: &str, from: u64) -> String {
    let uri = format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let request = Request::get(uri).body(Full::from("")).expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

#[tokio::test]
async fn a_restart_keeps_the_complete_state() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = open(folder.path()).expect("a new folder");
    let kept = done(&server, Method::POST, MAPS, Some(map("kept", json!({"a": "1"})))).await;
    done(
        &server,
        Method::POST,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        Some(definition()),
    )
    .await;
    let things = "/apis/t.dev/v1/namespaces/default/things";
    // Numbers that careless parsing and formatting changes, and more levels than a parser accepts
    // by default.
    let mut deep = json!({"x": 0.1});
    for _ in 0..100 {
        deep = json!({"d": deep});
    }
    let thing = json!({
        "apiVersion": "t.dev/v1", "kind": "Thing", "metadata": {"name": "t"},
        "numbers": [1.0e-7, 0.3, 2.220_446_049_250_313e-16, 9_007_199_254_740_993_u64, 1.797_693_134_862_315_7e308], "deep": deep,
    });
    let thing = done(&server, Method::POST, things, Some(thing)).await;
    done(&server, Method::POST, MAPS, Some(map("gone", json!({})))).await;
    done(&server, Method::DELETE, &format!("{MAPS}/gone"), None).await;
    let newest = server.revision();
    let ca = server.ca().expect("a CA").certificate_pem().to_owned();
    drop(server);

    let again = open(folder.path()).expect("our folder");
    assert_eq!(again.revision(), newest, "a start creates no revision, and a deletion does");
    assert_eq!(done(&again, Method::GET, &format!("{MAPS}/kept"), None).await, kept);
    assert_eq!(done(&again, Method::GET, &format!("{things}/t"), None).await, thing);
    assert_eq!(ask(&again, Method::GET, &format!("{MAPS}/gone"), None).await.0, 404);
    assert_eq!(again.ca().expect("a CA").certificate_pem(), ca);
    let next = done(&again, Method::POST, MAPS, Some(map("next", json!({})))).await;
    assert_eq!(revision(&next), newest + 1);

    let missed = watched(&again, MAPS, newest - 1).await;
    assert!(missed.contains("\"code\":410"), "old history is dropped: {missed}");
    let resumed = watched(&again, MAPS, newest).await;
    assert!(resumed.starts_with("{\"type\":\"ADDED\"") && resumed.contains("\"next\""), "{resumed}");
    assert_eq!(resumed.lines().count(), 1, "{resumed}");
}

#[tokio::test]
async fn a_folder_is_private_and_has_one_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("state");
    let server = open(&path).expect("a new folder");
    let refused = refusal(&path);
    assert!(refused.contains("is in use by another process"), "{refused}");
    let mode = |path: &Path| fs::metadata(path).expect("the file exists").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for file in fs::read_dir(&path).expect("a folder") {
        let file = file.expect("a file").path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(server);
    open(&path).expect("the folder is free again");
}

#[tokio::test]
async fn a_foreign_file_is_rejected_and_unchanged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("state.redb");
    fs::write(&file, "").expect("written");
    assert!(
        refusal(folder.path()).contains("state.redb is damaged: it is empty"),
        "{}",
        refusal(folder.path())
    );
    for content in ["not a database", &"x".repeat(100_000)] {
        fs::write(&file, content).expect("written");
        let refused = refusal(folder.path());
        assert!(
            refused.contains("state.redb holds something else than the state of an API server"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&file).expect("the file exists"), *content);
    }
    fs::remove_file(&file).expect("removed");
    drop(redb::Database::create(&file).expect("a database of another program"));
    let refused = refusal(folder.path());
    assert!(refused.contains("holds something else"), "{refused}");
}

#[tokio::test]
async fn a_missing_key_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    drop(open(folder.path()).expect("a new folder"));
    for file in ["ca.crt", "ca.key", "tokens.key"] {
        let path = folder.path().join(file);
        let text = fs::read(&path).expect("the file exists");
        fs::remove_file(&path).expect("removed");
        let refused = refusal(folder.path());
        assert!(refused.contains(&format!("{file} is missing: expected the ")), "{refused}");
        assert!(!path.exists(), "nothing is changed");
        fs::write(&path, text).expect("written");
    }
    open(folder.path()).expect("all files are back");
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_rejected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    drop(open(folder.path()).expect("a new folder"));
    let database = redb::Database::open(folder.path().join("state.redb")).expect("a database");
    let transaction = database.begin_write().expect("a transaction");
    let counters: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("counters");
    transaction.open_table(counters).expect("a table").insert("format", 7).expect("inserted");
    transaction.commit().expect("committed");
    drop(database);
    let refused = refusal(folder.path());
    for part in ["state.redb has format 7", "formats up to 1", "another folder"] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_rejected_or_read_correctly() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = open(folder.path()).expect("a new folder");
    for number in 0..20 {
        let data = json!({"text": "some text ".repeat(100)});
        done(&server, Method::POST, MAPS, Some(map(&format!("m{number}"), data))).await;
    }
    let before = done(&server, Method::GET, MAPS, None).await;
    drop(server);
    let file = folder.path().join("state.redb");
    let whole = fs::read(&file).expect("a file");
    let mut refused = 0;
    // Through the file in uneven steps, after the mark at its start, which identifies our files.
    for at in (16..whole.len().min(200_000)).step_by(997) {
        let mut damaged = whole.clone();
        for byte in &mut damaged[at..(at + 40).min(whole.len())] {
            *byte ^= 0x5A;
        }
        fs::write(&file, &damaged).expect("written");
        match open(folder.path()) {
            Ok(server) => assert_eq!(done(&server, Method::GET, MAPS, None).await, before, "damage at {at}"),
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains("state.redb is damaged"), "at {at}: {text}");
            }
        }
    }
    assert!(10 < refused, "{refused} of the damages were detected");
    fs::write(&file, &whole[..whole.len() / 2]).expect("written");
    assert!(open(folder.path()).is_err(), "a truncated file is rejected");
    fs::write(&file, &whole).expect("written");
    open(folder.path()).expect("the restored file can be read");
}

/// Environment variable that makes a child process the victim. Its value is the data folder.
const VICTIM: &str = "MACHINIST_KILL_TEST_FOLDER";
const KILLS: u32 = 500;
/// Number of concurrent writers, so that syncs are shared.
const WRITERS: u32 = 4;
/// Number of objects of each writer: 80 in total.
const OBJECTS: u32 = 20;

/// The process that is killed. Prints the objects that it finds, and each write before it is sent
/// and after it is answered.
#[test]
fn victim() {
    let Some(folder) = std::env::var_os(VICTIM) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = open(Path::new(&folder)).expect("the folder is readable after a kill");
        let list = done(&server, Method::GET, MAPS, None).await;
        let mut held = BTreeMap::new();
        let mut found = vec![server.revision().to_string()];
        for item in list["items"].as_array().expect("items") {
            let name = item.pointer("/metadata/name").and_then(Value::as_str).expect("a name");
            let (number, copy) = (&item["data"]["number"], &item["data"]["copy"]);
            let number = number.as_str().expect("a number");
            assert!(copy.as_str().is_some_and(|copy| copy.starts_with(number)), "a torn write: {item}");
            held.insert(name.to_owned(), number.to_owned());
            found.push(format!("{name}={number}"));
        }
        say(&format!("found {}", found.join(" ")));
        let writers = (0..WRITERS).map(|writer| {
            let (server, held) = (server.clone(), held.clone());
            tokio::spawn(async move { write_for_ever(&server, writer, held).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("writes are answered");
        }
    });
}

async fn write_for_ever(server: &Server, writer: u32, mut held: BTreeMap<String, String>) {
    // Different in each run, for different sizes and places.
    let mut number = server.revision();
    loop {
        for object in 0..OBJECTS {
            number += 1;
            let name = format!("w{writer}-{object}");
            let path = format!("{MAPS}/{name}");
            let text = number.to_string();
            let data = json!({"number": text, "copy": text.repeat(1 + usize::try_from(number % 300).unwrap_or_default())});
            let (begins, answer) = if !held.contains_key(&name) {
                say(&format!("asks {name} {text}"));
                held.insert(name.clone(), text.clone());
                (text, done(server, Method::POST, MAPS, Some(map(&name, data))).await)
            } else if number.is_multiple_of(7) {
                say(&format!("asks {name} -"));
                held.remove(&name);
                ("-".to_owned(), done(server, Method::DELETE, &path, None).await)
            } else {
                say(&format!("asks {name} {text}"));
                (text, done(server, Method::PATCH, &path, Some(json!({"data": data}))).await)
            };
            let revision = if begins == "-" { 0 } else { revision(&answer) };
            say(&format!("told {name} {begins} {revision}"));
        }
    }
}

/// Writes straight to the pipe, so that the line is out before anything else happens.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n# {line}\n").as_bytes())
        .and_then(|()| out.flush())
        .expect("the parent process reads the output");
}

fn start_victim(folder: &Path) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args(["--exact", "durability::victim", "--nocapture", "--test-threads=1"])
        .env(VICTIM, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program can be run")
}

/// The parent's knowledge about the victim's objects.
#[derive(Default)]
struct World {
    revision: u64,
    /// State after the last answered write.
    certain: BTreeMap<String, String>,
    /// Writes without an answer; `-` for a deletion.
    open: BTreeMap<String, String>,
    answered: u32,
    /// Number of unanswered writes that were kept, and that were lost.
    kept: u32,
    lost: u32,
}

impl World {
    fn hear(&mut self, line: &str) {
        let Some(said) = line.trim_end().strip_prefix("# ") else { return };
        let words: Vec<&str> = said.split(' ').collect();
        match words.as_slice() {
            ["found", revision, objects @ ..] => self.compare(revision.parse().expect("a number"), objects),
            ["asks", name, number] => {
                self.open.insert((*name).to_owned(), (*number).to_owned());
            }
            ["told", name, number, revision] => {
                self.open.remove(*name);
                self.note_certain(name, number);
                self.revision = self.revision.max(revision.parse().expect("a number"));
                self.answered += 1;
            }
            // The kill cut off the line.
            _ => {}
        }
    }

    fn note_certain(&mut self, name: &str, number: &str) {
        match number {
            "-" => self.certain.remove(name),
            number => self.certain.insert(name.to_owned(), number.to_owned()),
        };
    }

    fn compare(&mut self, revision: u64, objects: &[&str]) {
        assert!(self.revision <= revision, "the revision decreased from {} to {revision}", self.revision);
        self.revision = revision;
        let found: BTreeMap<String, String> = objects
            .iter()
            .filter_map(|o| o.split_once('='))
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .collect();
        for (name, number) in std::mem::take(&mut self.open) {
            let is_there = found.get(&name).map_or("-", String::as_str) == number;
            if is_there {
                self.note_certain(&name, &number);
                self.kept += 1;
            } else {
                self.lost += 1;
            }
        }
        assert_eq!(found, self.certain, "exactly the answered writes are present");
    }
}

#[test]
fn five_hundred_kills_lose_no_answered_write() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut world = World::default();
    let mut draw = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..KILLS {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        let mut victim = start_victim(folder.path());
        let mut lines = BufReader::new(victim.stdout.take().expect("a pipe")).lines();
        // The victim is killed after this many lines, and sometimes during its start.
        let mut left = draw % 40;
        let is_early = draw.is_multiple_of(8);
        while let Some(Ok(line)) = lines.next() {
            world.hear(&line);
            let is_starting = line.starts_with("running");
            if is_early && is_starting {
                (0..draw % 2_000_000).for_each(|_| std::hint::spin_loop());
                break;
            }
            let is_said = line.starts_with("# ");
            if is_said && left == 0 {
                break;
            }
            left = left.saturating_sub(u64::from(is_said));
        }
        victim.kill().expect("killed");
        for line in lines.map_while(Result::ok) {
            world.hear(&line);
        }
        let status = victim.wait().expect("the process ends");
        assert!(
            !status.success() && status.code().is_none(),
            "the process failed before it was killed: {status}"
        );
    }
    let World { answered, kept, lost, revision, .. } = world;
    println!(
        "{KILLS} kills, {answered} writes answered, revision {revision}; of the unanswered writes {kept} were kept, {lost} lost"
    );
    assert!(KILLS < answered && 0 < lost && 0 < kept);
}

#[tokio::test]
async fn a_restart_adds_missing_role_rules_and_keeps_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = || {
        let config = Config { authorization: Authorization::Rbac, ..Config::default() };
        Server::open(config, Folder::open(folder.path()).expect("a folder")).expect("a server")
    };
    let role = |name: &str| format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}");
    let own = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let server = open();
    let stripped = json!({"rules": [own]});
    let left_alone = json!({
        "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": [own],
    });
    done(&server, Method::PATCH, &role("system:basic-user"), Some(stripped)).await;
    done(&server, Method::PATCH, &role("system:discovery"), Some(left_alone)).await;
    drop(server);

    let server = open();
    let renewed = done(&server, Method::GET, &role("system:basic-user"), None).await;
    let groups: Vec<&Value> =
        renewed["rules"].as_array().expect("rules").iter().map(|rule| &rule["apiGroups"][0]).collect();
    assert_eq!(groups, ["", "authorization.k8s.io", "authentication.k8s.io"]);
    assert_eq!(done(&server, Method::GET, &role("system:discovery"), None).await["rules"], json!([own]));
    let revision = server.revision();
    drop(server);
    assert_eq!(open().revision(), revision, "roles that are up to date are not written");
}
