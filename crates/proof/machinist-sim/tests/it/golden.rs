//! The order of the writes and calls of both processes in a rollout and in a deletion. A change of
//! these files is a change of behaviour: review it as such.

use expect_test::{ExpectFile, expect_file};
use machinist_sim::case::Case;
use machinist_sim::run::Depth;
use machinist_sim::scenarios;

use crate::contracts::check;

#[test]
fn a_rollout_of_three() {
    story("rollout", &expect_file!["golden/rollout.txt"]);
}

#[test]
fn a_deletion_of_one() {
    story("delete-one", &expect_file!["golden/deletion.txt"]);
}

fn story(name: &str, golden: &ExpectFile) {
    let scenario = scenarios::by_name(name).expect("a scenario of that name");
    let report = check(&Case::calm(scenario, 1), Depth::EndState);
    let story = report.trace.story();
    let begin = story.find("-- ").unwrap_or_default();
    golden.assert_eq(&story[begin..]);
}
