//! Generates sequences of requests from a seed. They cover combinations that no case lists.
//!
//! A sequence uses few kinds and few names, so that its requests affect each other: one step
//! creates an object, the next changes it, and a third sends a revision that is stale by then. The
//! generator only guesses which objects exist. It sees no answers, because the sequence must depend
//! on the seed alone and not on the server. A step that needs a value of an earlier answer
//! therefore uses a reference with fallbacks and a final literal
//! (`${s9.metadata.uid|s4.metadata.uid|none}`). The sequence continues even if an earlier step was
//! rejected, or was removed to shorten the case.
//!
//! At the end, the sequence lists each kind. It also watches each kind from the first revision,
//! through a selector, and from a later revision.
//!
//! Deliberately absent: topics with cases of their own that need no chance (authorisation,
//! discovery, compaction), and label selectors that do not parse.

mod dice;
mod kinds;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::case::{Level, RecordedCase, Step};
use dice::Dice;
use kinds::{Field, KINDS, Kind, METADATA};

/// Number of kinds in one sequence. Few kinds make requests meet.
const KINDS_AT_ONCE: usize = 3;
/// Names of the objects of each kind.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Name of the object that ends a kind's watches.
const LAST: &str = "zz";
const FIELD_MANAGERS: [&str; 3] = ["m1", "m2", "m3"];
const LABEL_SELECTORS: [&str; 8] = [
    "app=x",
    "app==y",
    "app in (x, y)",
    "app!=x",
    "!tier",
    "tier",
    "app notin (x),tier=front",
    "app=x,tier=back",
];
/// A revision that no test server reaches.
const FUTURE: &str = "999999999";
/// Number of earlier answers that a reference falls back on.
const FALLBACKS: usize = 4;

/// Generates the case for `seed`: about `steps` requests, and the final lists and watches.
pub fn generated(seed: u64, steps: usize) -> RecordedCase {
    let mut story = Story::begin(seed);
    for _ in 0..steps {
        story.go_on();
    }
    story.end();
    RecordedCase {
        name: format!("generated-{seed}"),
        shows: format!("what seed {seed} came to"),
        facts: Vec::new(),
        // Sequences use the features of all levels up to this one.
        level: Level::Cl4,
        steps: story.steps,
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Create,
    Get,
    List,
    Put,
    Merge,
    Json,
    Strategic,
    Apply,
    Status,
    Scale,
    Delete,
    Finalizers,
    Evict,
    DeleteAll,
}

const ACTS: [(usize, Act); 14] = [
    (15, Act::Create),
    (8, Act::Get),
    (9, Act::List),
    (10, Act::Put),
    (10, Act::Merge),
    (8, Act::Json),
    (4, Act::Strategic),
    (12, Act::Apply),
    (8, Act::Status),
    (3, Act::Scale),
    (8, Act::Delete),
    (6, Act::Finalizers),
    (3, Act::Evict),
    (1, Act::DeleteAll),
];

/// The revision that a request names.
#[derive(Debug, Clone, Copy)]
enum Revision {
    Current,
    Stale,
    Absent,
    Future,
}

const OF_A_PUT: [(usize, Revision); 4] =
    [(55, Revision::Current), (25, Revision::Absent), (14, Revision::Stale), (6, Revision::Future)];
const OF_A_PATCH: [(usize, Revision); 4] =
    [(12, Revision::Current), (77, Revision::Absent), (7, Revision::Stale), (4, Revision::Future)];

/// The generator's guess about one object.
#[derive(Default)]
struct Held {
    /// Steps whose answers contain the object if the server accepted them, oldest first.
    steps: Vec<String>,
    exists: bool,
}

struct Story {
    dice: Dice,
    kinds: Vec<&'static Kind>,
    held: BTreeMap<(&'static str, &'static str), Held>,
    /// Kinds that already have their one object with a generated name. The order of two would be
    /// random.
    with_generated_name: Vec<&'static str>,
    steps: Vec<Step>,
    count: usize,
}

impl Story {
    fn begin(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let mut left: Vec<&'static Kind> = KINDS.iter().collect();
        let kinds = (0..KINDS_AT_ONCE).map(|_| left.swap_remove(dice.below(left.len()))).collect();
        let start = Step {
            id: "start".into(),
            verb: Some("GET".into()),
            path: "/api/v1/namespaces/${ns}/configmaps".into(),
            setup: true,
            ..Step::default()
        };
        Story {
            dice,
            kinds,
            held: BTreeMap::new(),
            with_generated_name: Vec::new(),
            steps: vec![start],
            count: 0,
        }
    }

    fn go_on(&mut self) {
        self.count += 1;
        let kind = self.dice.among(&self.kinds);
        match self.dice.weighted(&ACTS) {
            Act::Create => self.create(kind),
            Act::Get => self.get(kind),
            Act::List => self.list(kind),
            Act::Put => self.put(kind),
            Act::Merge => self.merge(kind),
            Act::Json => self.json(kind),
            Act::Strategic => self.strategic(kind),
            Act::Apply => self.apply(kind),
            Act::Status if kind.status.is_empty() => self.merge(kind),
            Act::Status => self.status(kind),
            Act::Scale if !kind.has_scale => self.put(kind),
            Act::Scale => self.scale(kind),
            Act::Delete => self.delete(kind),
            Act::Finalizers => self.finalizers(kind),
            Act::Evict if kind.kind == "Pod" => self.evict(kind),
            Act::Evict => self.get(kind),
            Act::DeleteAll => self.delete_all(kind),
        }
    }

    fn create(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Missing);
        let mut body = self.body(kind, name);
        let generates = self.dice.chance(5) && !self.with_generated_name.contains(&kind.plural);
        if generates {
            // An error message would contain the random name unmasked.
            body = self.base(kind, name);
            self.with_generated_name.push(kind.plural);
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove("name");
                metadata.insert("generateName".into(), json!(format!("{}g-", kind.prefix)));
            }
        } else if self.dice.chance(4) {
            body["metadata"]["name"] = json!(self.dice.among(&["UPPER", "", "a b", "-a", "${fill.254}"]));
        }
        if !generates && self.dice.chance(3) {
            body["metadata"]["resourceVersion"] = json!("1");
        }
        let mut step = self.step("POST", kind.collection.to_owned());
        step.body = Some(body);
        let is_real = self.add_write_options(&mut step);
        if is_real && !generates {
            self.remember(kind, name, &step.id, true);
        }
        self.steps.push(step);
    }

    fn get(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut path = object(kind, name);
        let of_status = !kind.status.is_empty() && self.dice.chance(10);
        if of_status {
            path.push_str("/status");
        }
        let mut step = self.step("GET", path);
        let in_another_shape = self.add_shape(&mut step, "PartialObjectMetadata");
        if self.dice.chance(15) {
            self.sync(kind, &mut step);
            let revision = match self.dice.below(3) {
                0 => "0".to_owned(),
                1 => self.reference(kind, name, "metadata.resourceVersion", "1"),
                _ => self.stale(kind, name),
            };
            step.query.insert("resourceVersion".into(), revision);
        }
        if !in_another_shape {
            self.see(kind, name, &step.id);
        }
        self.steps.push(step);
    }

    fn list(&mut self, kind: &'static Kind) {
        let mut step = self.step("GET", kind.collection.to_owned());
        let name = self.name(kind, Guess::Existing);
        self.add_selectors(kind, &mut step);
        self.add_shape(&mut step, "PartialObjectMetadataList");
        if self.dice.chance(20) {
            self.sync(kind, &mut step);
            let revision = match self.dice.weighted(&[(10, 0), (10, 1), (10, 2), (1, 3)]) {
                0 => "0".to_owned(),
                1 => self.reference(kind, name, "metadata.resourceVersion", "0"),
                2 => self.stale(kind, name),
                _ => FUTURE.to_owned(),
            };
            // An old revision may be compacted on one server and not on the other.
            let revision = if revision == "1" { "0".to_owned() } else { revision.replace("|1}", "|0}") };
            step.query.insert("resourceVersion".into(), revision);
            if self.dice.chance(60) {
                let matching = self.dice.among(&["Exact", "NotOlderThan", "Roughly"]);
                step.query.insert("resourceVersionMatch".into(), matching.into());
            }
            self.steps.push(step);
        } else if !kind.is_cluster_scoped() && self.dice.chance(35) {
            // If the collection holds other objects, a page may end before the last selected
            // object.
            self.pages(step);
        } else {
            self.steps.push(step);
        }
    }

    /// Lists a collection in pages, with or without changes in between.
    fn pages(&mut self, first: Step) {
        let limit = self.dice.among(&["1", "2"]).to_string();
        let mut page = Step { query: first.query.clone(), ..first };
        page.query.insert("limit".into(), limit);
        for (before, id) in [("", "more"), ("-more", "most")] {
            let mut next = page.clone();
            let base = page.id.split('-').next().unwrap_or_default().to_owned();
            next.id = format!("{base}-{id}");
            next.query.insert("continue".into(), format!("${{{base}{before}.metadata.continue|}}"));
            self.steps.push(page);
            page = next;
        }
        self.steps.push(page);
    }

    fn put(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut body = self.body(kind, name);
        self.add_revision(kind, name, &OF_A_PUT, &mut body);
        if self.dice.chance(20) {
            body["metadata"]["uid"] = json!(self.reference(kind, name, "metadata.uid", "none"));
        }
        self.write(kind, name, "PUT", None, "", body);
    }

    fn merge(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut body = self.some_fields(kind.fields, 15);
        self.add_revision(kind, name, &OF_A_PATCH, &mut body);
        self.write(kind, name, "PATCH", Some("merge"), "", body);
    }

    fn json(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut operations: Vec<Value> =
            (0..=self.dice.below(3)).map(|_| self.operation(kind.fields)).collect();
        if self.dice.chance(20) {
            let uid = self.reference(kind, name, "metadata.uid", "none");
            operations.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": uid}));
        }
        self.write(kind, name, "PATCH", Some("json"), "", Value::Array(operations));
    }

    fn strategic(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut body = self.some_fields(kind.fields, 15);
        if self.dice.chance(30) {
            let (at, directive) = self.dice.among(&[
                ("metadata/labels/$patch", r#""replace""#),
                ("metadata/annotations/$patch", r#""delete""#),
                ("metadata/labels/$patch", r#""odd""#),
                ("metadata/$deleteFromPrimitiveList~finalizers", r#"["t.dev/f"]"#),
                ("metadata/$setElementOrder~finalizers", r#"["t.dev/g", "t.dev/f"]"#),
                ("metadata/$retainKeys", r#"["name", "labels"]"#),
            ]);
            set(&mut body, at, parse(directive));
        }
        self.add_revision(kind, name, &OF_A_PATCH, &mut body);
        self.write(kind, name, "PATCH", Some("strategic"), "", body);
    }

    fn apply(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut body = self.body(kind, name);
        if self.dice.chance(10)
            && let Some(metadata) = body["metadata"].as_object_mut()
        {
            metadata.remove("name");
        }
        self.add_revision(kind, name, &OF_A_PATCH, &mut body);
        self.write(kind, name, "PATCH", Some("apply"), "", body);
    }

    fn status(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        match self.dice.weighted(&[(4, 0), (2, 1), (3, 2), (2, 3), (3, 4)]) {
            0 => {
                let mut body = self.some_fields(kind.status, 15);
                self.add_revision(kind, name, &OF_A_PATCH, &mut body);
                self.write(kind, name, "PATCH", Some("merge"), "/status", body);
            }
            1 => {
                let operations = (0..=self.dice.below(2)).map(|_| self.operation(kind.status)).collect();
                self.write(kind, name, "PATCH", Some("json"), "/status", Value::Array(operations));
            }
            2 => {
                let mut body = self.base(kind, name);
                self.add_fields(&mut body, kind.status, 2);
                self.add_revision(kind, name, &OF_A_PUT, &mut body);
                self.write(kind, name, "PUT", None, "/status", body);
            }
            3 => {
                let body = self.some_fields(kind.status, 15);
                self.write(kind, name, "PATCH", Some("strategic"), "/status", body);
            }
            _ => {
                let mut body = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": full(kind, name)}});
                self.add_fields(&mut body, kind.status, 2);
                self.write(kind, name, "PATCH", Some("apply"), "/status", body);
            }
        }
    }

    fn scale(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let replicas = parse(self.dice.among(&["0", "1", "7", "100", "101", "-1", "null", "\"3\"", "1.5"]));
        let path = object(kind, name) + "/scale";
        let mut step = match self.dice.below(3) {
            0 => self.step("GET", path),
            1 => {
                let mut step = self.step("PATCH", path);
                step.patch = Some(self.dice.among(&["merge", "json", "apply"]).into());
                step.body = Some(match step.patch.as_deref() {
                    Some("json") => json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]),
                    Some("apply") => {
                        step.query.insert("fieldManager".into(), self.dice.among(&FIELD_MANAGERS).into());
                        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": replicas}})
                    }
                    Some(_) | None => json!({"spec": {"replicas": replicas}}),
                });
                step
            }
            _ => {
                let mut body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                    "metadata": {"name": name, "namespace": "${ns}"}, "spec": {"replicas": replicas}});
                self.add_revision(kind, name, &OF_A_PUT, &mut body);
                let mut step = self.step("PUT", path);
                step.body = Some(body);
                step
            }
        };
        if step.verb.as_deref() != Some("GET") && self.dice.chance(8) {
            step.query.insert("dryRun".into(), "All".into());
        }
        self.steps.push(step);
    }

    fn delete(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let mut step = self.step("DELETE", object(kind, name));
        let mut options = Map::new();
        if self.dice.chance(20) {
            let uid = match self.dice.below(3) {
                0 => "other".to_owned(),
                _ => self.reference(kind, name, "metadata.uid", "none"),
            };
            options.insert("preconditions".into(), json!({"uid": uid}));
        } else if self.dice.chance(20) {
            let revision = match self.dice.below(2) {
                0 => self.stale(kind, name),
                _ => self.reference(kind, name, "metadata.resourceVersion", "1"),
            };
            options.insert("preconditions".into(), json!({"resourceVersion": revision}));
        }
        if self.dice.chance(20) {
            let policy = self.dice.among(&["Background", "Foreground", "Orphan", "Odd"]);
            options.insert("propagationPolicy".into(), json!(policy));
        } else if self.dice.chance(5) {
            options.insert("orphanDependents".into(), json!(self.dice.chance(50)));
        }
        if self.dice.chance(15) {
            options.insert("gracePeriodSeconds".into(), parse(self.dice.among(&["0", "5", "40", "-1"])));
        }
        let dry = self.dice.chance(6);
        if dry {
            options.insert("dryRun".into(), json!(["All"]));
        }
        if !options.is_empty() {
            step.body = Some(Value::Object(options));
        }
        if !dry {
            self.see(kind, name, &step.id);
            self.held.entry((kind.plural, name)).or_default().exists = false;
        }
        self.steps.push(step);
    }

    fn finalizers(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let list = parse(self.dice.among(&[
            r#"["t.dev/f"]"#,
            r#"["t.dev/f", "t.dev/g"]"#,
            r#"["t.dev/g"]"#,
            "[]",
            "null",
        ]));
        let body = json!({"metadata": {"finalizers": list}});
        self.write(kind, name, "PATCH", Some("merge"), "", body);
    }

    /// Evicts a pod, or binds it to a node. Without a node, an eviction only deletes the pod.
    fn evict(&mut self, kind: &'static Kind) {
        let name = self.name(kind, Guess::Existing);
        let binds = self.dice.chance(40);
        let (subresource, body) = if binds {
            let node = self.dice.among(&["node-1", "node-2", ""]);
            ("binding", json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}))
        } else {
            let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "${ns}"}});
            if self.dice.chance(25) {
                body["deleteOptions"] = parse(
                    self.dice.among(&[r#"{"preconditions": {"uid": "other"}}"#, r#"{"dryRun": ["All"]}"#]),
                );
            }
            ("eviction", body)
        };
        let mut step = self.step("POST", format!("{}/{subresource}", object(kind, name)));
        step.body = Some(body);
        self.steps.push(step);
    }

    fn delete_all(&mut self, kind: &'static Kind) {
        let mut step = self.step("DELETE", kind.collection.to_owned());
        // All sequences share the collection of nodes.
        let selector = if kind.is_cluster_scoped() { "sequence=${ns},app=x" } else { "app=x" };
        step.query.insert("labelSelector".into(), selector.into());
        self.steps.push(step);
    }

    /// Lists each kind and opens three watches on it. A last object ends the watches.
    fn end(&mut self) {
        for kind in self.kinds.clone() {
            let step = |id: &str| format!("{}-{id}", kind.plural);
            let selected = |selector: &str| match (kind.is_cluster_scoped(), selector) {
                (true, "") => "sequence=${ns}".to_owned(),
                (true, selector) => format!("sequence=${{ns}},{selector}"),
                (false, selector) => selector.to_owned(),
            };
            let mut list = Step {
                id: step("list"),
                verb: Some("GET".into()),
                path: kind.collection.into(),
                ..Step::default()
            };
            if kind.is_cluster_scoped() {
                list.query.insert("labelSelector".into(), selected(""));
            }
            self.steps.push(list);
            let first = "${start.metadata.resourceVersion|0}".to_owned();
            let between = self.between(kind).unwrap_or_else(|| first.clone());
            let watches = [("all", "", first.clone()), ("some", "app=x", first), ("late", "", between)];
            for (id, selector, revision) in &watches {
                let mut watch = Step { id: step(id), watch: Some(kind.collection.into()), ..Step::default() };
                watch.query.insert("resourceVersion".into(), revision.clone());
                if !selected(selector).is_empty() {
                    watch.query.insert("labelSelector".into(), selected(selector));
                }
                self.steps.push(watch);
            }
            let mut body = self.base(kind, LAST);
            set(&mut body, "metadata/labels/app", json!("x"));
            self.steps.push(Step {
                id: step("last"),
                verb: Some("POST".into()),
                path: kind.collection.into(),
                body: Some(body),
                ..Step::default()
            });
            for (id, ..) in &watches {
                self.steps.push(Step {
                    id: step(&format!("{id}-seen")),
                    close: Some(step(id)),
                    until: Some(format!("ADDED {}", full(kind, LAST))),
                    ..Step::default()
                });
            }
        }
    }

    /// Refers to the revision of an intermediate answer.
    fn between(&self, kind: &'static Kind) -> Option<String> {
        let steps: Vec<&String> = self
            .held
            .iter()
            .filter(|((plural, _), _)| *plural == kind.plural)
            .flat_map(|(_, held)| &held.steps)
            .collect();
        if steps.is_empty() {
            return None;
        }
        let step = self.dice.among(&steps);
        Some(format!("${{{step}.metadata.resourceVersion|start.metadata.resourceVersion|0}}"))
    }

    /// Writes one object or one of its subresources.
    fn write(
        &mut self,
        kind: &'static Kind,
        name: &'static str,
        verb: &str,
        patch: Option<&str>,
        subresource: &str,
        body: Value,
    ) {
        let mut step = self.step(verb, object(kind, name) + subresource);
        step.patch = patch.map(str::to_owned);
        step.body = Some(body);
        if patch == Some("apply") {
            if !self.dice.chance(3) {
                step.query.insert("fieldManager".into(), self.dice.among(&FIELD_MANAGERS).into());
            }
            if self.dice.chance(30) {
                step.query.insert("force".into(), "true".into());
            }
        }
        let is_real = self.add_write_options(&mut step);
        if is_real {
            let makes = patch == Some("apply") && subresource.is_empty();
            self.remember(kind, name, &step.id, makes);
        }
        self.steps.push(step);
    }

    fn step(&self, verb: &str, path: String) -> Step {
        Step { id: format!("s{}", self.count), verb: Some(verb.into()), path, ..Step::default() }
    }

    /// Adds write options. Returns whether the step really writes, i.e. is not a dry run.
    fn add_write_options(&self, step: &mut Step) -> bool {
        // A PUT that creates an object in a dry run returns the revision from the request, if any.
        let makes = step.verb.as_deref() == Some("PUT") && step.path.contains("/leases/");
        let dry = !makes && self.dice.chance(6);
        if dry {
            step.query.insert("dryRun".into(), "All".into());
            // A dry run of an apply does the same.
            let metadata = step.body.as_mut().and_then(|body| body.get_mut("metadata"));
            if let (Some("apply"), Some(Value::Object(metadata))) = (step.patch.as_deref(), metadata) {
                metadata.remove("resourceVersion");
            }
        }
        if self.dice.chance(10) {
            let strictness = self.dice.among(&["Strict", "Warn"]);
            step.query.insert("fieldValidation".into(), strictness.into());
        }
        if step.patch.as_deref() != Some("apply") && self.dice.chance(25) {
            step.query.insert("fieldManager".into(), self.dice.among(&FIELD_MANAGERS).into());
        }
        !dry
    }

    /// Adds an `Accept` header. Returns whether the answer has another format than the object's
    /// own.
    fn add_shape(&self, step: &mut Step, metadata: &str) -> bool {
        match self.dice.below(100) {
            0..6 => step.accept = Some("table".into()),
            6..12 => step.accept = Some(format!("application/json;as={metadata};g=meta.k8s.io;v=v1")),
            _ => return false,
        }
        true
    }

    fn add_selectors(&self, kind: &Kind, step: &mut Step) {
        let mut labels = Vec::new();
        if kind.is_cluster_scoped() {
            labels.push("sequence=${ns}");
        }
        if self.dice.chance(35) {
            labels.push(self.dice.among(&LABEL_SELECTORS));
        }
        if !labels.is_empty() {
            step.query.insert("labelSelector".into(), labels.join(","));
        }
        if self.dice.chance(20) {
            step.query.insert("fieldSelector".into(), self.dice.among(kind.selectors).into());
        }
    }

    /// Brings the server's cache up to date with a consistent list. Cached reads of a real server
    /// may lag behind.
    fn sync(&mut self, kind: &Kind, before: &mut Step) {
        let path = kind.collection.to_owned();
        let id = format!("{}-sync", before.id);
        self.steps.push(Step { id, verb: Some("GET".into()), path, setup: true, ..Step::default() });
    }

    /// Builds a valid body with some additional fields.
    fn body(&self, kind: &Kind, name: &str) -> Value {
        let mut body = self.base(kind, name);
        let count = self.dice.below(4);
        self.add_fields(&mut body, kind.fields, count);
        if kind.collection.starts_with("/api/") && self.dice.chance(3) {
            body["kind"] = json!(self.dice.among(&["Other", ""]));
        }
        body
    }

    fn base(&self, kind: &Kind, name: &str) -> Value {
        let mut body = parse(kind.base);
        body["apiVersion"] = json!(kind.api_version);
        body["kind"] = json!(kind.kind);
        set(&mut body, "metadata/name", json!(full(kind, name)));
        body
    }

    fn some_fields(&self, fields: &[Field], nulls: usize) -> Value {
        let mut body = json!({});
        let count = 1 + self.dice.below(3);
        for _ in 0..count {
            let field = self.field(fields);
            let value = if self.dice.chance(nulls) { Some(Value::Null) } else { self.value(field) };
            if let Some(value) = value {
                set(&mut body, field.at, value);
            }
        }
        body
    }

    fn add_fields(&self, body: &mut Value, fields: &[Field], count: usize) {
        for _ in 0..count {
            let field = self.field(fields);
            if let Some(value) = self.value(field) {
                set(body, field.at, value);
            }
        }
    }

    fn field<'f>(&self, fields: &'f [Field]) -> &'f Field {
        let fields = if self.dice.chance(35) { METADATA } else { fields };
        &fields[self.dice.below(fields.len())]
    }

    fn value(&self, field: &Field) -> Option<Value> {
        let odd = self.dice.chance(15);
        self.dice.element(&parse(if odd { field.odd } else { field.good }))
    }

    /// Builds one operation of a JSON patch.
    fn operation(&self, fields: &[Field]) -> Value {
        let field = self.field(fields);
        let path = format!("/{}", field.at);
        let value = self.value(field).unwrap_or(Value::Null);
        if let Some(element) = self.dice.element(&value)
            && self.dice.chance(40)
        {
            let at = self.dice.among(&["-", "0", "1", "9"]);
            let op = self.dice.among(&["add", "add", "replace", "remove"]);
            return json!({"op": op, "path": format!("{path}/{at}"), "value": element});
        }
        match self.dice.weighted(&[(40, "add"), (15, "replace"), (15, "remove"), (12, "test"), (6, "move")]) {
            op @ "move" => {
                json!({"op": op, "from": path, "path": format!("/{}", self.field(fields).at)})
            }
            "remove" => json!({"op": "remove", "path": path}),
            op => json!({"op": op, "path": path, "value": value}),
        }
    }

    fn add_revision(&self, kind: &Kind, name: &'static str, choices: &[(usize, Revision)], body: &mut Value) {
        let revision = match self.dice.weighted(choices) {
            Revision::Absent => return,
            Revision::Current => self.reference(kind, name, "metadata.resourceVersion", "1"),
            Revision::Stale => self.stale(kind, name),
            Revision::Future => FUTURE.to_owned(),
        };
        set(body, "metadata/resourceVersion", json!(revision));
    }

    /// Refers to a field of the answer that probably shows the newest state of an object.
    fn reference(&self, kind: &Kind, name: &'static str, path: &str, or: &str) -> String {
        self.reference_before(kind, name, path, or, 0)
    }

    /// Refers to a revision that is probably outdated.
    fn stale(&self, kind: &Kind, name: &'static str) -> String {
        let skipped = 1 + self.dice.below(3);
        self.reference_before(kind, name, "metadata.resourceVersion", "1", skipped)
    }

    fn reference_before(
        &self,
        kind: &Kind,
        name: &'static str,
        path: &str,
        or: &str,
        skipped: usize,
    ) -> String {
        let Some(held) = self.held.get(&(kind.plural, name)) else { return or.to_owned() };
        let steps = held.steps.iter().rev().skip(skipped).take(FALLBACKS);
        let places: Vec<String> = steps.map(|step| format!("{step}.{path}")).collect();
        if places.is_empty() { or.to_owned() } else { format!("${{{}|{or}}}", places.join("|")) }
    }

    /// Picks a name that usually fits the guess.
    fn name(&self, kind: &Kind, guess: Guess) -> &'static str {
        let exists = |name: &&str| self.held.get(&(kind.plural, *name)).is_some_and(|held| held.exists);
        let fitting: Vec<&'static str> = NAMES
            .into_iter()
            .filter(|name| match guess {
                Guess::Existing => exists(name),
                Guess::Missing => !exists(name),
            })
            .collect();
        if fitting.is_empty() || self.dice.chance(20) {
            self.dice.among(&NAMES)
        } else {
            self.dice.among(&fitting)
        }
    }

    fn remember(&mut self, kind: &'static Kind, name: &'static str, step: &str, makes: bool) {
        let held = self.held.entry((kind.plural, name)).or_default();
        held.steps.push(step.to_owned());
        held.exists = held.exists || makes;
    }

    /// Like [`Story::remember`], for a step that creates nothing.
    fn see(&mut self, kind: &'static Kind, name: &'static str, step: &str) {
        self.remember(kind, name, step, false);
    }
}

/// Guess whether an object exists.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Existing,
    Missing,
}

fn full(kind: &Kind, name: &str) -> String {
    format!("{}{name}", kind.prefix)
}

fn object(kind: &Kind, name: &str) -> String {
    format!("{}/{}", kind.collection, full(kind, name))
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).expect("the tables have JSON")
}

/// Puts a value at `a/b/c`. Creates missing parent objects and replaces parents that are not
/// objects. `~` in a key stands for `/`.
fn set(body: &mut Value, at: &str, value: Value) {
    let mut place = body;
    for key in at.split('/') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key.replace('~', "/")];
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_cases_and_others_differ() {
        let yaml = |seed| generated(seed, 40).yaml();
        assert_eq!(yaml(7), yaml(7));
        assert_ne!(yaml(7), yaml(8));
    }

    #[test]
    fn every_value_of_the_tables_is_json() {
        for field in KINDS.iter().flat_map(|kind| kind.fields.iter().chain(kind.status)).chain(METADATA) {
            assert!(parse(field.good).is_array() && parse(field.odd).is_array(), "{}", field.at);
        }
    }
}
