//! The pages of the book about reasons: one chapter per contract, one page per reason.
//!
//! The compiler reports a reason without a row in [`rows!`]. The tests of a contract report a row
//! without a page, a page without a row, and a page that quotes another text than the reason
//! renders. With `UPDATE_EXPECT=1` they rewrite the quoted texts, the index and the table of
//! contents; the other text of a page is written by hand.
//!
//! Reasons that all contracts share have their pages in one chapter. The index of another chapter
//! links to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The sections of every page, in this order.
const SECTIONS: [&str; 4] =
    ["## What the controller does", "## What to check", "## What to do", "## When it resolves on its own"];

/// The chapters share SUMMARY.md, so one test at a time rewrites the book.
static BOOK: Mutex<()> = Mutex::new(());

/// The pages about the reasons of one contract.
pub(crate) struct Chapter {
    /// The folder of the pages, below the source folder of the book.
    pub(crate) folder: &'static str,
    /// The line of the chapter in SUMMARY.md. The lines below it that are indented further list the
    /// pages.
    pub(crate) entry: &'static str,
    /// The pages in the order of the table of contents. The index also lists those in the folder of
    /// another chapter.
    pub(crate) pages: Vec<Page>,
}

/// One page.
pub(crate) struct Page {
    /// The heading of its table in the index.
    pub(crate) group: &'static str,
    /// The path below the source folder of the book, without `.md`.
    pub(crate) path: String,
    /// The texts of the example values.
    pub(crate) texts: Vec<String>,
}

/// Lists the pages in the order of the table of contents. Each row has the group, the reason and
/// example values of it. The reasons after `never` have no row, because the contract does not use
/// them. The caller has a type `Reason`.
macro_rules! rows {
    (never [$($unused:pat),*]; $($group:ident: $reason:pat => [$($example:expr),+ $(,)?];)+) => {
        /// Fails to compile if a reason has no row.
        fn ensure_listed(reason: &Reason) {
            match reason {
                $($unused => {})*
                $($reason => {})+
            }
        }

        fn pages() -> Vec<Page> {
            vec![$({
                let examples: Vec<Reason> = vec![$(Reason::from($example)),+];
                for example in &examples {
                    ensure_listed(example);
                    assert!(matches!(example, $reason), "{example} is in the row of another reason");
                }
                Page {
                    group: $group,
                    path: examples[0].page(),
                    texts: examples.iter().map(ToString::to_string).collect(),
                }
            }),+]
        }
    };
}

pub(crate) use rows;

impl Chapter {
    /// Requires that each page of the chapter has a file, and that the folder has no other pages.
    pub(crate) fn check_files(&self) {
        let paths: BTreeSet<&String> = self.pages.iter().map(|page| &page.path).collect();
        assert_eq!(paths.len(), self.pages.len(), "two reasons have the same page");
        let folder = self.folder;
        let wanted: BTreeSet<String> =
            self.own_pages().map(|page| self.name(page).expect("an own page").to_owned()).collect();
        let files = fs::read_dir(book(folder)).expect("the folder exists");
        let names = files.map(|file| file.expect("readable").file_name().into_string().expect("UTF-8"));
        let found: BTreeSet<String> = names
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .filter(|name| name != "index")
            .collect();
        let missing: Vec<_> = wanted.difference(&found).collect();
        assert!(missing.is_empty(), "write docs/src/{folder}/<page>.md for: {missing:?}");
        let unknown: Vec<_> = found.difference(&wanted).collect();
        assert!(unknown.is_empty(), "no reason has these pages in docs/src/{folder}: {unknown:?}");
    }

    /// Compares the pages, the index and the table of contents. One function, because a test that
    /// rewrites pages must not run beside one that reads them.
    pub(crate) fn check_contents(&self) {
        let _alone = BOOK.lock().unwrap_or_else(PoisonError::into_inner);
        self.own_pages().for_each(check_page);
        self.check_index();
        self.check_summary();
    }

    /// The pages in the folder of the chapter.
    fn own_pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter().filter(|page| self.name(page).is_some())
    }

    /// The name of a page in the folder of the chapter. `None` if it is in another folder.
    fn name<'p>(&self, page: &'p Page) -> Option<&'p str> {
        page.path.strip_prefix(self.folder)?.strip_prefix('/')
    }

    /// Compares the tables of the index.
    fn check_index(&self) {
        let mut groups: Vec<(&str, Vec<&Page>)> = Vec::new();
        for page in &self.pages {
            match groups.iter_mut().find(|(group, _)| *group == page.group) {
                Some((_, pages)) => pages.push(page),
                None => groups.push((page.group, vec![page])),
            }
        }
        let to_source = "../".repeat(self.folder.split('/').count());
        let mut index = String::new();
        for (group, pages) in groups {
            index += &format!("\n### {group}\n\n| `machinist why` says, for example | Page |\n|---|---|\n");
            for page in pages {
                let link = match self.name(page) {
                    Some(name) => format!("{name}.md"),
                    None => format!("{to_source}{}.md", page.path),
                };
                index += &format!("| {} | [{}]({link}) |\n", page.texts[0], title(page));
            }
        }
        index.push('\n');
        let path = format!("{}/index.md", self.folder);
        let index = with_part(&read(&path), "<!-- tables -->", "<!-- end of tables -->", &index);
        require(&path, &index.unwrap_or_else(|| panic!("{path}: expected the two marks of the tables")));
    }

    /// Compares the entries of SUMMARY.md.
    fn check_summary(&self) {
        let indent = indent(self.entry) + 2;
        let (mut contents, mut titles) = (String::new(), BTreeMap::new());
        for page in self.own_pages() {
            let (title, path) = (title(page), &page.path);
            contents += &format!("{:indent$}- [{title}]({path}.md)\n", "");
            let twin = titles.insert(title, path.clone());
            assert_eq!(twin, None, "{path}.md has the title of another page");
        }
        let summary = with_children(&read("SUMMARY.md"), self.entry, &contents);
        require("SUMMARY.md", &summary.unwrap_or_else(|| panic!("SUMMARY.md: expected {:?}", self.entry)));
    }
}

/// Compares the text that a page quotes, and its sections.
fn check_page(page: &Page) {
    let path = format!("{}.md", page.path);
    let text = read(&path);
    let quoted = page.texts.join("\n") + "\n";
    let expected = with_part(&text, "```text", "```", &quoted);
    require(&path, &expected.unwrap_or_else(|| panic!("{path}: expected a block ```text")));
    let sections: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(sections, SECTIONS, "the sections of {path}");
}

/// Returns the title of a page: its first line.
fn title(page: &Page) -> String {
    let text = read(&format!("{}.md", page.path));
    let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
    title.unwrap_or_else(|| panic!("{}.md: expected a title in the first line", page.path)).to_owned()
}

/// Returns a path below the source folder of the book.
fn book(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/src")).join(path)
}

fn read(path: &str) -> String {
    let file = book(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Requires that a file has this content, or writes it with `UPDATE_EXPECT=1`.
fn require(path: &str, expected: &str) {
    if read(path) == expected {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_EXPECT").is_some(),
        "docs/src/{path} is out of date. UPDATE_EXPECT=1 rewrites it. Expected:\n{expected}"
    );
    fs::write(book(path), expected).expect("the book is writable");
}

/// Replaces the part of `text` between two lines, which stay.
fn with_part(text: &str, first: &str, last: &str, part: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("{first}\n"))?;
    let end = if rest.starts_with(last) { 0 } else { rest.find(&format!("\n{last}"))? + 1 };
    Some(format!("{before}{first}\n{part}{}", &rest[end..]))
}

/// Replaces the lines below the line `entry` that are indented further than it.
fn with_children(text: &str, entry: &str, children: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("{entry}\n"))?;
    let old = rest.split_inclusive('\n').take_while(|line| indent(entry) < indent(line));
    let end: usize = old.map(str::len).sum();
    Some(format!("{before}{entry}\n{children}{}", &rest[end..]))
}

/// Returns the number of spaces at the start of a line.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[test]
fn only_the_entries_of_one_chapter_are_replaced() {
    let text = "- [A](a.md)\n  - [B](b.md)\n    - [Old](b/old.md)\n  - [C](c.md)\n- [D](d.md)\n";
    let replaced = with_children(text, "  - [B](b.md)", "    - [New](b/new.md)\n");
    let expected = "- [A](a.md)\n  - [B](b.md)\n    - [New](b/new.md)\n  - [C](c.md)\n- [D](d.md)\n";
    assert_eq!(replaced.as_deref(), Some(expected));
    assert_eq!(with_children(text, "- [A](a.md)", "").as_deref(), Some("- [A](a.md)\n- [D](d.md)\n"));
}
