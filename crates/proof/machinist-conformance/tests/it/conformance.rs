//! Compares the golden answers of a real kube-apiserver with the answers of the embedded server.
//!
//! Each golden file must be reproduced, and must have the format that recording writes. A changed
//! byte in a golden file therefore fails its case.

use std::fs;
use std::path::{Path, PathBuf};

use machinist_conformance::{
    ConformanceReport, Corpus, DeliberateFault, ExaminedServer, Level, Sequences, choose, compare,
};

fn corpus() -> Corpus {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    Corpus::load(&folder).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(start_paused = true)]
async fn the_embedded_server_answers_like_the_real_one() {
    let wanted: Vec<String> = std::env::var("CONFORMANCE_CASE").into_iter().collect();
    let corpus = corpus();
    let cases = choose(corpus.cases.clone(), &wanted).unwrap_or_else(|e| panic!("CONFORMANCE_CASE: {e}"));
    let mut report = ConformanceReport::new(&corpus, corpus.reference());
    for case in cases {
        let golden = corpus.golden(&case.name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            Some(golden.server.clone()),
            Some(corpus.reference()),
            "{} was recorded from another server version",
            case.name
        );
        let ours =
            corpus.replay(&case, ExaminedServer::Embedded).await.unwrap_or_else(|error| panic!("{error}"));
        report.add(&case.name, case.level, compare(&golden, &ours, &corpus.ledger));
    }
    let faults = report.faults();
    assert!(faults.is_empty(), "{} differences\n{}", faults.len(), faults.join("\n"));
}

/// Plays each fault with the case that tests the broken feature.
#[tokio::test(start_paused = true)]
async fn the_suite_detects_deliberate_faults() {
    let about = [
        (DeliberateFault::Finalizers, "delete"),
        (DeliberateFault::WatchOrder, "watch"),
        (DeliberateFault::Status, "update"),
        (DeliberateFault::SelectorTransition, "watch"),
        (DeliberateFault::FieldOwnership, "apply"),
    ];
    assert_eq!(about.map(|(fault, _)| fault), DeliberateFault::ALL);
    let corpus = corpus();
    for (fault, name) in about {
        let case = corpus.cases.iter().find(|case| case.name == name).expect("the case");
        let golden = corpus.golden(name).expect("a golden");
        // An answer that the case does not expect ends the case. This also counts as detected.
        if let Ok(ours) = corpus.replay(case, |server| ExaminedServer::Broken(server, fault)).await {
            let differences = compare(&golden, &ours, &corpus.ledger).differences;
            assert!(!differences.is_empty(), "{name} does not detect {fault:?}");
        }
    }
}

#[test]
fn every_level_has_cases() {
    let cases = corpus().cases;
    for level in Level::ALL {
        assert!(cases.iter().any(|case| case.level == level), "{level} has no case");
    }
}

#[tokio::test(start_paused = true)]
async fn generated_sequences_match_the_recorded_answers() {
    let corpus = corpus();
    let recorded = Sequences::load(&corpus.sequences_file()).unwrap_or_else(|error| panic!("{error}"));
    let mut failures = Vec::new();
    for (case, recorded) in recorded.cases() {
        let ours =
            corpus.replay(&case, ExaminedServer::Embedded).await.unwrap_or_else(|error| panic!("{error}"));
        let found = recorded.compare(&ours).differences;
        failures.extend(found.first().map(|first| format!("{}: {first}", case.name)));
    }
    let failures = failures.join("\n");
    assert!(failures.is_empty(), "run `cargo xtask real --lane goldens` to see the differences\n{failures}");
}

#[test]
fn every_golden_has_a_case_and_every_required_fact_is_covered() {
    let corpus = corpus();
    let cases = &corpus.cases;
    let goldens = corpus.golden_file("any").parent().map(Path::to_owned).expect("a folder");
    for entry in fs::read_dir(goldens).expect("the goldens") {
        let name = entry.expect("an entry").path().file_stem().and_then(|s| s.to_str().map(str::to_owned));
        assert!(cases.iter().any(|c| Some(&c.name) == name.as_ref()), "{name:?} has no case");
    }
    let required = (1..=9).chain([11]).chain(12..=40).chain([43]);
    let missing: Vec<u32> = required.filter(|fact| !cases.iter().any(|c| c.facts.contains(fact))).collect();
    assert!(missing.is_empty(), "facts without a case: {missing:?}");
}

#[test]
fn an_unknown_case_is_rejected_with_a_list_of_cases() {
    let refused = choose(corpus().cases, &["wacth".to_owned()]).expect_err("no such case").to_string();
    assert!(refused.contains("\"wacth\"") && refused.contains("watch"), "{refused}");
    assert_eq!(choose(corpus().cases, &["watch".to_owned()]).expect("a case").len(), 1);
}
