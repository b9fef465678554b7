//! Relations between the answers to related requests, independent of the answers' content.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_apiserver::{Config, History, SeededIds, Server, TokioClock};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Act, MAPS, act, in_runtime, perform, send};

/// Returns whether a selector matches an object with this value of the label `l`.
type Takes = fn(Option<&str>) -> bool;

/// Selectors with the objects that they match.
const SELECTORS: [(&str, Takes); 3] = [
    ("labelSelector=l%3D1", |label| label == Some("1")),
    ("labelSelector=l%20notin%20(0)", |label| label != Some("0")),
    ("labelSelector=!l", |label| label.is_none()),
];

/// Starts a server with the paused clock, so that two servers show the same times.
fn server() -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    Server::new(Config {
        clock: Arc::new(TokioClock::starting_at(epoch)),
        ids: Arc::new(SeededIds::new(1)),
        history: History::Manual,
        ..Config::default()
    })
}

async fn list(server: &Server, query: &str) -> Value {
    let (code, list) = send(server, "GET", &format!("{MAPS}?{query}"), None).await;
    assert_eq!(code, 200, "{list}");
    list
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().expect("items")
}

fn revision(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a revision")
}

/// Returns the events from `revision` until now.
async fn watch(server: &Server, query: &str, revision: &str) -> Vec<Value> {
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={revision}&{query}");
    let (code, stream) = send(server, "GET", &path, None).await;
    assert_eq!(code, 200, "{stream}");
    match stream {
        Value::String(text) => {
            text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
        }
        // A single line is parsed as one value.
        event => vec![event],
    }
}

/// Removes random values.
fn without_uid(mut object: Value) -> Value {
    for place in ["/metadata", "/details"] {
        if let Some(map) = object.pointer_mut(place).and_then(Value::as_object_mut) {
            map.remove("uid");
        }
    }
    object
}

/// Generates one manager's configuration: some of its own keys.
fn configuration() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0_u8..3, 0_u8..3), 0..4)
}

async fn apply(server: &Server, manager: &str, configuration: &[(u8, u8)]) {
    let of = |format: fn(&str, u8) -> String| -> BTreeMap<String, String> {
        configuration.iter().map(|(key, value)| (format(manager, *key), value.to_string())).collect()
    };
    let finalizers: Vec<String> = of(|manager, key| format!("t.dev/{manager}{key}")).into_keys().collect();
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    // An empty map would be a field of its own with both managers as owners.
    if !finalizers.is_empty() {
        body["metadata"]["labels"] = json!(of(|manager, key| format!("{manager}{key}")));
        body["metadata"]["finalizers"] = json!(finalizers);
        body["data"] = json!(of(|manager, key| format!("{manager}-{key}")));
    }
    let path = format!("{MAPS}/m?fieldManager={manager}");
    let (code, answer) = super::send_as(server, "PATCH", &path, "apply-patch+yaml", Some(body)).await;
    assert!(matches!(code, 200 | 201), "{answer}");
}

/// Returns the object after both applies. Finalizers and owners are sorted, because the server
/// keeps them in the order of their arrival.
async fn applied(server: &Server) -> Value {
    let (code, mut object) = send(server, "GET", &format!("{MAPS}/m"), None).await;
    assert_eq!(code, 200, "{object}");
    for list in ["managedFields", "finalizers"] {
        if let Some(list) = object["metadata"][list].as_array_mut() {
            list.sort_by_key(Value::to_string);
        }
    }
    object["metadata"]["resourceVersion"] = Value::Null;
    without_uid(object)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn pages_add_up_to_the_list_despite_writes(
        before in prop::collection::vec(act(), 0..16),
        meanwhile in prop::collection::vec(act(), 4),
        limit in 1_usize..4,
        selector in prop_oneof![Just(""), Just("labelSelector=l%3D1"), Just("fieldSelector=metadata.name!%3Dm1")],
    ) {
        in_runtime(async {
            let server = server();
            for act in &before {
                perform(&server, act).await;
            }
            let whole = list(&server, selector).await;
            let mut paged = Vec::new();
            let mut token = String::new();
            let mut acts = meanwhile.iter();
            loop {
                let page = list(&server, &format!("{selector}&limit={limit}&continue={token}")).await;
                prop_assert_eq!(revision(&page), revision(&whole));
                prop_assert!(items(&page).len() <= limit);
                paged.extend_from_slice(items(&page));
                token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                if token.is_empty() {
                    break;
                }
                if let Some(act) = acts.next() {
                    perform(&server, act).await;
                }
            }
            prop_assert_eq!(&paged[..], items(&whole));
            Ok(())
        })?;
    }

    #[test]
    fn a_selective_watch_equals_the_filtered_full_watch(
        before in prop::collection::vec(act(), 0..8),
        after in prop::collection::vec(act(), 0..24),
    ) {
        in_runtime(async {
            let server = server();
            for act in &before {
                perform(&server, act).await;
            }
            let start = list(&server, "").await;
            for act in &after {
                perform(&server, act).await;
            }
            let whole = watch(&server, "", revision(&start)).await;
            for (query, takes) in SELECTORS {
                let takes = |object: &Value| takes(object["metadata"]["labels"]["l"].as_str());
                let mut held: BTreeMap<&str, Value> = BTreeMap::new();
                for object in items(&start) {
                    // A list names the type of its items only once.
                    let mut object_with_type = object.clone();
                    object_with_type["apiVersion"] = json!("v1");
                    object_with_type["kind"] = json!("ConfigMap");
                    held.insert(object["metadata"]["name"].as_str().expect("a name"), object_with_type);
                }
                let mut expected = Vec::new();
                for event in &whole {
                    let object = &event["object"];
                    let name = object["metadata"]["name"].as_str().expect("a name");
                    let is_deleted = event["type"] == "DELETED";
                    let before = if is_deleted { held.remove(name) } else { held.insert(name, object.clone()) };
                    let was = before.filter(|before| takes(before));
                    let is = !is_deleted && takes(object);
                    match (was, is) {
                        (None, false) => {}
                        (None, true) => expected.push(json!({"type": "ADDED", "object": object})),
                        (Some(_), true) => expected.push(json!({"type": "MODIFIED", "object": object})),
                        (Some(before), false) => {
                            // An object that leaves the selector is shown as last selected, with
                            // the revision at which it left.
                            let mut seen = before;
                            seen["metadata"]["resourceVersion"] = json!(revision(object));
                            expected.push(json!({"type": "DELETED", "object": seen}));
                        }
                    }
                }
                prop_assert_eq!(watch(&server, query, revision(&start)).await, expected, "{}", query);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_watch_resumes_after_any_event(acts in prop::collection::vec(act(), 1..16)) {
        in_runtime(async {
            let server = server();
            let start = list(&server, "").await;
            for act in &acts {
                perform(&server, act).await;
            }
            for query in ["", SELECTORS[0].0, SELECTORS[1].0] {
                let whole = watch(&server, query, revision(&start)).await;
                for (index, event) in whole.iter().enumerate() {
                    let rest = watch(&server, query, revision(&event["object"])).await;
                    prop_assert_eq!(&rest[..], &whole[index + 1..], "{} from {}", query, event);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_dry_run_predicts_a_write_and_changes_nothing(acts in prop::collection::vec(act(), 1..16)) {
        in_runtime(async {
            let (plain, rehearsed) = (server(), server());
            for act in &acts {
                let expected = perform(&plain, act).await;
                let foretold = super::perform_with(&rehearsed, act, "dryRun=All").await;
                let found = perform(&rehearsed, act).await;
                prop_assert_eq!(foretold.0, found.0, "{:?}: {}", act, foretold.1);
                for place in ["/data", "/metadata/labels", "/metadata/finalizers", "/reason", "/message"] {
                    prop_assert_eq!(foretold.1.pointer(place), found.1.pointer(place), "{:?}", act);
                }
                prop_assert_eq!(without_uid(found.1), without_uid(expected.1));
            }
            let lists = (list(&plain, "").await, list(&rehearsed, "").await);
            let stripped = |list: &Value| items(list).iter().cloned().map(without_uid).collect::<Vec<_>>();
            prop_assert_eq!(stripped(&lists.0), stripped(&lists.1));
            prop_assert_eq!(plain.revision(), rehearsed.revision());
            Ok(())
        })?;
    }

    #[test]
    fn managers_of_different_fields_may_apply_in_any_order(
        a in prop::collection::vec(configuration(), 1..3),
        b in prop::collection::vec(configuration(), 1..3),
    ) {
        in_runtime(async {
            let (first, second, mixed) = (server(), server(), server());
            let all = |manager: &'static str, them: &[Vec<(u8, u8)>]| -> Vec<(&'static str, Vec<(u8, u8)>)> {
                them.iter().map(|fields| (manager, fields.clone())).collect()
            };
            let (a, b) = (all("a", &a), all("b", &b));
            let mut alternating = Vec::new();
            for index in 0..a.len().max(b.len()) {
                alternating.extend(b.get(index).cloned());
                alternating.extend(a.get(index).cloned());
            }
            let orders = [(&first, [a.clone(), b.clone()].concat()), (&second, [b, a].concat()), (&mixed, alternating)];
            for (server, order) in &orders {
                for (manager, configuration) in order {
                    apply(server, manager, configuration).await;
                }
            }
            let expected = applied(&first).await;
            prop_assert_eq!(&applied(&second).await, &expected);
            prop_assert_eq!(&applied(&mixed).await, &expected);
            Ok(())
        })?;
    }
}

/// Checks that stories contain every kind of event, so that the properties above test them.
#[test]
fn the_stories_have_every_kind_of_transition() {
    in_runtime(async {
        let server = server();
        let start = list(&server, "").await;
        let story = [
            Act::Create { name: 0, label: 0 },
            Act::Label { name: 0, label: 1 },
            Act::Data { name: 0, value: 1 },
            Act::Label { name: 0, label: 2 },
            Act::Label { name: 0, label: 1 },
            Act::Delete { name: 0 },
        ];
        for act in &story {
            perform(&server, act).await;
        }
        let events = watch(&server, SELECTORS[0].0, revision(&start)).await;
        let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
    });
}
