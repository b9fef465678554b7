//! The corpus of every fuzz target, and some inputs made out of it: whatever arrives, the server bears it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use machinist_conformance::fuzz::{TARGETS, mutated};

/// Inputs made for each target; `examples/fuzz.rs` makes as many as one likes.
const MADE: u64 = 300;

/// Far above what any input takes, on a busy machine too: what takes longer would go on for ever.
const LONGEST: Duration = Duration::from_secs(30);

/// Plays the corpus, and what is made out of it.
#[expect(clippy::disallowed_methods, reason = "the time that an input really takes is what is judged")]
fn check(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("an input")).collect();
    let played = |input: &[u8], called: &dyn std::fmt::Display| {
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(|| (target.play)(input));
        assert!(outcome.is_ok(), "{name}: {called} fails: {}", String::from_utf8_lossy(input));
        assert!(began.elapsed() < LONGEST, "{name}: {called} takes {:?}", began.elapsed());
    };
    for (file, input) in files.iter().zip(&corpus) {
        played(input, &file.display());
    }
    for seed in 0..MADE {
        played(&mutated(&corpus, seed), &format!("the input of seed {seed}"));
    }
}

#[test]
fn no_request_is_too_strange() {
    check("request");
}

#[test]
fn no_body_is_too_strange() {
    check("body");
}

#[test]
fn no_patch_is_too_strange() {
    check("patch");
}

#[test]
fn no_selector_is_too_strange() {
    check("selector");
}

#[test]
fn no_continue_token_is_too_strange() {
    check("continue");
}

#[test]
fn no_schema_is_too_strange() {
    check("schema");
}

#[test]
fn no_rule_is_too_strange() {
    check("rule");
}

#[test]
fn no_json_path_is_too_strange() {
    check("json_path");
}

#[test]
fn no_watch_is_too_strange() {
    check("watch");
}
