//! The golden answers of a real kube-apiserver, held against the embedded one.
//!
//! A golden file has to be reproduced byte for byte, so a changed byte in it fails its case.

use std::fs;
use std::path::PathBuf;

use machinist_apiserver::conformance::{
    Case, Endpoint, choose, digest, digests, generated, load, prepare, run,
};
use machinist_apiserver::{Authorization, Config, Server};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance").join(name)
}

fn cases() -> Vec<Case> {
    load(&folder("cases")).expect("readable cases")
}

/// The version of the server whose answers the goldens are.
fn reference() -> String {
    fs::read_to_string(folder("REFERENCE")).expect("the version that was recorded").trim().to_owned()
}

/// What is different, a few lines of it.
fn difference(golden: &str, replayed: &str) -> String {
    const SHOWN: usize = 120;
    let mut lines = Vec::new();
    for change in diff(golden, replayed) {
        lines.push(change);
        if lines.len() == SHOWN {
            lines.push("…".to_owned());
            break;
        }
    }
    lines.join("\n")
}

fn diff(golden: &str, replayed: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), replayed.lines().collect());
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    let mut step = "";
    while i < a.len() || j < b.len() {
        let here = a.get(i).copied().unwrap_or_default();
        if here.trim_start().starts_with("\"step\"") {
            step = here.trim();
        }
        if a.get(i) == b.get(j) {
            (i, j) = (i + 1, j + 1);
            continue;
        }
        // The nearest place at which both go on alike.
        let resync = (1..200).find_map(|d| {
            (0..=d)
                .find(|x| {
                    a.get(i + x).is_some()
                        && a.get(i + x) == b.get(j + (d - x))
                        && a.get(i + x + 1) == b.get(j + (d - x) + 1)
                })
                .map(|x| (x, d - x))
        });
        let (x, y) = resync.unwrap_or((a.len() - i, b.len() - j));
        out.push(format!("  at {step}"));
        out.extend(a[i..(i + x).min(a.len())].iter().map(|l| format!("  golden   {}", l.trim())));
        out.extend(b[j..(j + y).min(b.len())].iter().map(|l| format!("  replayed {}", l.trim())));
        (i, j) = (i + x, j + y);
    }
    out
}

#[tokio::test(start_paused = true)]
async fn the_embedded_server_gives_the_answers_of_the_real_one() {
    let wanted: Vec<String> = std::env::var("CONFORMANCE_CASE").into_iter().collect();
    let mut failures = Vec::new();
    for case in choose(cases(), &wanted).unwrap_or_else(|error| panic!("CONFORMANCE_CASE: {error}")) {
        let golden = fs::read_to_string(folder("golden").join(format!("{}.json", case.name)));
        let golden = golden.unwrap_or_else(|e| panic!("case {} has no golden: {e}", case.name));
        let endpoint = Endpoint::Embedded(Server::new(Config {
            authorization: Authorization::Rbac,
            ..Config::default()
        }));
        prepare(&endpoint, &folder("definitions")).await.expect("definitions");
        match run(&endpoint, &case, "case-embedded").await {
            Err(error) => failures.push(error.to_string()),
            Ok(replayed) => {
                let replayed = replayed.text_as_of(&reference());
                if replayed != golden {
                    failures.push(format!("{}:\n{}", case.name, difference(&golden, &replayed)));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} cases differ\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn generated_sequences_have_the_answers_of_the_real_server() {
    let text = fs::read_to_string(folder("generated.json")).expect("the digests");
    let recorded: Value = serde_json::from_str(&text).expect("JSON");
    let steps = recorded["steps"].as_u64().and_then(|it| usize::try_from(it).ok()).expect("a number");
    let mut failures = Vec::new();
    for sequence in recorded["sequences"].as_array().expect("sequences") {
        let seed = sequence["seed"].as_u64().expect("a seed");
        let case = generated(seed, steps);
        assert_eq!(sequence["case"], digest(&case.yaml()), "seed {seed} makes another case now: record anew");
        let endpoint = Endpoint::Embedded(Server::new(Config {
            authorization: Authorization::Rbac,
            ..Config::default()
        }));
        prepare(&endpoint, &folder("definitions")).await.expect("definitions");
        let answers = digests(&run(&endpoint, &case, "case-embedded").await.expect("played to its end"));
        let golden = sequence["answers"].as_array().expect("answers");
        assert_eq!(golden.len(), answers.len(), "seed {seed}");
        let differs =
            golden.iter().zip(&answers).find(|(golden, answer)| golden.as_str() != Some(answer.as_str()));
        if let Some((golden, answer)) = differs {
            failures.push(format!("CONFORMANCE_SEED={seed}: golden {golden}, replayed {answer}"));
        }
    }
    assert!(
        failures.is_empty(),
        "`cargo xtask real --lane goldens` shows how they differ\n{}",
        failures.join("\n")
    );
}

#[test]
fn every_golden_has_a_case_and_every_required_fact_is_covered() {
    let cases = cases();
    for entry in fs::read_dir(folder("golden")).expect("the goldens") {
        let name = entry.expect("an entry").path().file_stem().and_then(|s| s.to_str().map(str::to_owned));
        assert!(cases.iter().any(|c| Some(&c.name) == name.as_ref()), "{name:?} has no case");
    }
    let required = (1..=9).chain([11]).chain(12..=40).chain([43]);
    let missing: Vec<u32> = required.filter(|fact| !cases.iter().any(|c| c.facts.contains(fact))).collect();
    assert!(missing.is_empty(), "facts without a case: {missing:?}");
}

#[test]
fn a_case_that_does_not_exist_is_refused_with_those_that_do() {
    let refused = choose(cases(), &["wacth".to_owned()]).expect_err("no such case").to_string();
    assert!(refused.contains("\"wacth\"") && refused.contains("watch"), "{refused}");
    assert_eq!(choose(cases(), &["watch".to_owned()]).expect("a case").len(), 1);
}
