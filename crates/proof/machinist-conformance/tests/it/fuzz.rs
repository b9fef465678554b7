//! Replays the corpus of every fuzz target, and some inputs made from it. The server must handle
//! all of them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use machinist_conformance::fuzz::{TARGETS, mutated};

/// Number of new inputs for each target. `examples/fuzz.rs` can make any number.
const MADE: u64 = 100;

/// Far above the time that any input needs, even on a busy machine. An input that takes longer
/// would never end.
const LONGEST: Duration = Duration::from_secs(30);

/// Plays the corpus and the inputs made from it.
#[expect(clippy::disallowed_methods, reason = "the test checks the real time of an input")]
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
fn requests_never_break_the_server() {
    check("request");
}

#[test]
fn bodies_never_break_the_server() {
    check("body");
}

#[test]
fn patches_never_break_the_server() {
    check("patch");
}

#[test]
fn selectors_never_break_the_server() {
    check("selector");
}

#[test]
fn continue_tokens_never_break_the_server() {
    check("continue");
}

#[test]
fn schemas_never_break_the_server() {
    check("schema");
}

#[test]
fn rules_never_break_the_server() {
    check("rule");
}

#[test]
fn json_paths_never_break_the_server() {
    check("json_path");
}

#[test]
fn watches_never_break_the_server() {
    check("watch");
}
