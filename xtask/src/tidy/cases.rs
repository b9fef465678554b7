//! Each acceptance case of a replacement for Go MCM has a test whose name begins with its id, such
//! as `t_21_a_machine_that_joins_is_looked_at_each_minute`. A test of several cases begins with all
//! their ids. `docs/src/develop/acceptance-cases.md` says what each case demands.

use std::collections::BTreeSet;

use anyhow::Result;

use super::findings::Findings;
use super::workspace::Workspace;

/// The page with a sentence and the tests of each case.
const PAGE: &str = "docs/src/develop/acceptance-cases.md";

/// The cases are T-01 to this one.
const LAST: u32 = 110;

/// The cases that no test shows yet, and what is missing.
const OPEN: &[(u32, &str)] = &[];

pub(super) fn tested(workspace: &Workspace) -> Result<Findings> {
    let mut tested = BTreeSet::new();
    for file in workspace.files_ending(".rs").filter(|file| file.starts_with("crates/")) {
        let text = workspace.text_of(file)?;
        let names = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")
        });
        tested.extend(names.flat_map(ids));
    }
    let mut findings = judge(&tested);
    for (file, test) in tests_named_in(&workspace.text_of(PAGE)?) {
        let path = format!("crates/{file}");
        let is_listed = workspace.files.contains(&path);
        if !is_listed || !workspace.text_of(&path)?.contains(&format!("fn {test}(")) {
            findings.fault(format!("{PAGE} names {file}::{test}, which does not exist"));
        }
    }
    Ok(findings)
}

/// The tests that a page names as `path::name`, with paths below `crates/`.
fn tests_named_in(page: &str) -> Vec<(&str, &str)> {
    // Every second part lies between backticks.
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter_map(|text| text.split_once("::")).filter(|(file, _)| file.ends_with(".rs")).collect()
}

fn judge(tested: &BTreeSet<u32>) -> Findings {
    let mut findings = Findings::default();
    for case in 1..=LAST {
        let open = OPEN.iter().find(|(number, _)| *number == case);
        match (open, tested.contains(&case)) {
            (None, false) => {
                findings.fault(format!("T-{case:02} has no test: name one `t_{case:02}_...`"));
            }
            (Some(_), true) => {
                findings
                    .fault(format!("T-{case:02} has a test: remove it from the open cases in {}", file!()));
            }
            (Some(_), false) | (None, true) => {}
        }
    }
    let unknown: Vec<_> = tested.iter().filter(|case| **case == 0 || LAST < **case).collect();
    if !unknown.is_empty() {
        findings.fault(format!("no acceptance case has these numbers: {unknown:?}"));
    }
    let open: Vec<_> = OPEN.iter().map(|(case, missing)| format!("T-{case} ({missing})")).collect();
    if !open.is_empty() {
        findings.note(format!("open: {}", open.join(", ")));
    }
    findings
}

/// The ids at the start of the name of a test.
fn ids(name: &str) -> Vec<u32> {
    let mut words = name.split('_');
    let mut ids = Vec::new();
    while words.next() == Some("t")
        && let Some(Ok(id)) = words.next().map(str::parse)
    {
        ids.push(id);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_tests_by_file_and_name() {
        let page = "| T-1 | A claim about `a::b`. | `core/a/tests.rs::t_01_a`, `b/c.rs::t_01_b` |";
        assert_eq!(tests_named_in(page), [("core/a/tests.rs", "t_01_a"), ("b/c.rs", "t_01_b")]);
    }

    #[test]
    fn the_name_of_a_test_begins_with_its_cases() {
        assert_eq!(ids("t_06_t_12_a_machine_with_an_instance_is_pending()"), [6, 12]);
        assert_eq!(ids("t_110_a_claim()"), [110]);
        for other in ["t_is_a_claim()", "a_claim_about_t_06()", "t_06x_a_claim()"] {
            assert!(ids(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn each_case_has_a_test_or_a_reason() {
        let is_open = |case: &u32| OPEN.iter().any(|(number, _)| number == case);
        let all = || (1..=LAST).filter(|case| !is_open(case)).collect::<BTreeSet<_>>();
        assert!(judge(&all()).faults.is_empty());
        let mut one_less = all();
        one_less.remove(&1);
        assert_eq!(judge(&one_less).faults.len(), 1);
        let one_more: BTreeSet<_> = all().into_iter().chain([LAST + 1]).collect();
        assert_eq!(judge(&one_more).faults.len(), 1);
        if let Some((open, _)) = OPEN.first() {
            let closed: BTreeSet<_> = all().into_iter().chain([*open]).collect();
            assert_eq!(judge(&closed).faults.len(), 1);
        }
    }
}
