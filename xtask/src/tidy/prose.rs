//! Rules about words: the countable ones of STYLE.md, section "Plain English".
//!
//! Text in backticks is quoted and not looked at. A line that needs a refused word says so with
//! the mark `tidy: word`.

use anyhow::Result;

use super::findings::Findings;
use super::rust::{Piece, pieces};
use super::workspace::Workspace;

/// Words that make a reader ask which object or process is meant, and metaphors.
const REFUSED: &[&str] = &[
    "whoever",
    "whatever",
    "whichever",
    "nobody",
    "somebody",
    "anybody",
    "mend",
    "mends",
    "mended",
    "mending",
    "anew",
];

/// Pairs of words that a native reader trips over. Write the noun again, "no longer", "forever".
const REFUSED_PAIRS: &[(&str, &str)] = &[("that", "of"), ("those", "of"), ("any", "more"), ("for", "ever")];

/// First words of a doc comment that name no object.
const UNCLEAR_FIRST: &[&str] = &["It", "Its", "What", "Who", "Whose"];

/// Allows a refused word on its line.
const MARK: &str = "tidy: word";
const MAX_MARKS: usize = 10;

/// Comments and Markdown end before this column.
const WIDEST_PROSE: usize = 100;

/// A longer claim is two claims.
const MAX_TEST_NAME_LEN: usize = 60;

pub(super) fn words(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut marks = 0;
    for file in prose_files(workspace) {
        let text = workspace.text_of(file)?;
        for (number, line) in prose_of(file, &text) {
            for word in refused_in(&line) {
                if text.lines().nth(number - 1).is_some_and(|line| line.contains(MARK)) {
                    marks += 1;
                } else {
                    findings.fault(format!("{file}:{number}: {word:?}; STYLE.md says what to write instead"));
                }
            }
        }
    }
    if MAX_MARKS < marks {
        findings.fault(format!("{marks} lines are marked `{MARK}`; at most {MAX_MARKS} may be"));
    }
    Ok(findings)
}

pub(super) fn widths(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for file in prose_files(workspace) {
        let text = workspace.text_of(file)?;
        let mut in_block = false;
        for (index, line) in text.lines().enumerate() {
            let prose = if file.ends_with(".md") { line } else { comment_of(file, line) };
            let body = prose.trim_start().trim_start_matches(['/', '!', '#']).trim_start();
            if body.starts_with("```") {
                in_block = !in_block;
            }
            let width = line.chars().count();
            if WIDEST_PROSE < width && !in_block && is_breakable(prose) {
                findings.fault(format!("{}:{} has {width} columns of {WIDEST_PROSE}", file, index + 1));
            }
        }
    }
    Ok(findings)
}

pub(super) fn test_names(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for file in workspace.files_ending(".rs") {
        let text = workspace.text_of(file)?;
        let mut is_test = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let (true, Some(name)) = (is_test, name) {
                is_test = false;
                let name = name.split('(').next().unwrap_or_default();
                if MAX_TEST_NAME_LEN < name.len() {
                    let (number, length) = (index + 1, name.len());
                    findings.fault(format!(
                        "{file}:{number}: {name} has {length} letters of {MAX_TEST_NAME_LEN}"
                    ));
                }
            }
        }
    }
    Ok(findings)
}

/// A reader of the first line does not know which object the word means.
pub(super) fn first_words(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for file in workspace.files_ending(".rs") {
        let text = workspace.text_of(file)?;
        for (number, word) in unclear_first_words(&text) {
            findings.fault(format!("{file}:{number}: a doc comment begins with {word}; name the object"));
        }
    }
    Ok(findings)
}

/// The doc comments that begin with a word of [`UNCLEAR_FIRST`], by line.
fn unclear_first_words(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut within = "";
    for (index, line) in text.lines().map(str::trim_start).enumerate() {
        let kind = ["///", "//!"].into_iter().find(|kind| line.starts_with(kind)).unwrap_or_default();
        let first =
            line[kind.len()..].split_whitespace().next().filter(|_| !kind.is_empty() && kind != within);
        found.extend(UNCLEAR_FIRST.iter().find(|word| Some(**word) == first).map(|word| (index + 1, *word)));
        within = kind;
    }
    found
}

fn prose_files(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let is_prose = |file: &&str| {
        let written =
            [".rs", ".md", ".toml", ".yaml", ".yml", "justfile"].iter().any(|ending| file.ends_with(ending));
        // Answers of other servers, and objects that other programs wrote, are quoted.
        let quoted = file.contains("/golden/") || file.starts_with("fixtures/");
        (written || file.starts_with(".ci/")) && !quoted
    };
    workspace.files.iter().map(String::as_str).filter(is_prose)
}

/// The lines of a file that people read: comments, messages, Markdown.
fn prose_of(file: &str, text: &str) -> Vec<(usize, String)> {
    if !file.ends_with(".rs") {
        let lines = text.lines().enumerate();
        let is_document = file.ends_with(".md");
        let prose =
            |line: &str| if is_document { line.to_owned() } else { comment_of(file, line).to_owned() };
        return lines.map(|(index, line)| (index + 1, prose(line))).collect();
    }
    let mut found = Vec::new();
    for (first, piece) in pieces(text) {
        let prose = match piece {
            Piece::Comment(text) => text,
            // A text without a space is a name: of a user, a step, a field.
            Piece::Text(text) if text.trim().contains(' ') => text,
            Piece::Text(_) | Piece::Code(_) => continue,
        };
        found.extend(prose.lines().enumerate().map(|(index, line)| (first + index, line.to_owned())));
    }
    found
}

/// The comment on a line of a file that is not Markdown; for Rust only a comment that has the line
/// for itself.
fn comment_of<'a>(file: &str, line: &'a str) -> &'a str {
    let start = if file.ends_with(".rs") { "//" } else { "#" };
    if line.trim_start().starts_with(start) { line } else { "" }
}

fn refused_in(line: &str) -> Vec<String> {
    // Every second part lies between backticks.
    let plain = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let words = plain.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '-');
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let single = words.iter().filter_map(|word| REFUSED.iter().find(|refused| *refused == word));
    let pairs = words
        .iter()
        .zip(words.iter().skip(1))
        .filter(|(first, second)| REFUSED_PAIRS.iter().any(|(one, other)| one == *first && other == *second));
    single.map(|word| (*word).to_owned()).chain(pairs.map(|(one, other)| format!("{one} {other}"))).collect()
}

/// Whether a line could be shorter: tables cannot be wrapped, nor can a single long word.
fn is_breakable(prose: &str) -> bool {
    let text = prose.trim_start().trim_start_matches(['/', '!', '#']).trim_start();
    // Neither a table's row nor a link can be wrapped.
    !text.starts_with('|') && !text.starts_with("- [") && text.split_whitespace().nth(1).is_some() && {
        let longest = text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
        longest < WIDEST_PROSE / 2
    }
}

#[test]
fn refused_words_are_found_outside_of_quotes_only() {
    // The words are put together, or this file would break its own rule.
    let (first, second) = (REFUSED[3], REFUSED[7]);
    assert_eq!(refused_in(&format!("// {first} {second} it.")), [first, second]);
    assert!(refused_in(&format!("the words `{first}` and `{second}`, an a{second}ed list")).is_empty());
    let (one, other) = REFUSED_PAIRS[0];
    assert_eq!(refused_in(&format!("// it is {one} {other} the pod")), [format!("{one} {other}")]);
    assert!(refused_in(&format!("// it is `{one} {other}`, {one} is {other} use")).is_empty());
    let found = prose_of("a.rs", "x(\"name\"); y(\"two words\"); // three");
    assert_eq!(found, [(1, "two words".to_owned()), (1, "// three".to_owned())]);
}

#[test]
fn a_doc_comment_begins_with_the_name_of_its_object() {
    let found = |text: &str| unclear_first_words(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    assert_eq!(found("/// What it is.\nfn a() {}\n    /// Its end.\n"), [1, 3]);
    assert_eq!(found("//! A file.\n//! It is short.\n/// It is one.\n"), [3]);
    assert!(found("// What a comment.\n/// Whatnot: a name.\n").is_empty());
}

#[test]
fn a_table_or_a_long_link_may_be_wide() {
    assert!(!is_breakable("| a | b |"));
    assert!(!is_breakable(&format!("/// see {}", "x".repeat(90))));
    assert!(is_breakable("/// two words"));
}
