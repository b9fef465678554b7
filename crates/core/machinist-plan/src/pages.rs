//! The pages of the book about reasons: one page per contract, one section per reason.
//!
//! The compiler reports a reason without a row in [`rows!`]. The tests of a contract report a row
//! without a section, a section without a row, and a section that quotes another text than the
//! reason renders. With `UPDATE_EXPECT=1` they rewrite the quoted texts and the tables; the other
//! text of a page is written by hand.
//!
//! A section begins with a line `<a id="ANCHOR"></a>` and a heading, and ends before the next such
//! line. The anchor is the name of the reason, so links survive a change of the heading, and they
//! also work where the file is read without mdBook.
//!
//! Reasons that all contracts share have their sections in one page. The tables of the other pages
//! link to them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The pages link to each other, so one test at a time reads or rewrites them.
static BOOK: Mutex<()> = Mutex::new(());

/// The page about the reasons of one contract.
pub(crate) struct Page {
    /// The path below the source folder of the book.
    pub(crate) path: &'static str,
    /// The sections in their order. The tables also list sections of another page.
    pub(crate) sections: Vec<Section>,
}

/// One section.
pub(crate) struct Section {
    /// The heading of its table.
    pub(crate) group: &'static str,
    /// The page below the source folder of the book, `#`, and the anchor.
    pub(crate) link: String,
    /// The texts of the example values.
    pub(crate) texts: Vec<String>,
}

/// Lists the sections in the order of the page. Each row has the group, the reason and example
/// values of it. The reasons after `never` have no row, because the contract does not use them. The
/// caller has a type `Reason`.
macro_rules! rows {
    (never [$($unused:pat),*]; $($group:ident: $reason:pat => [$($example:expr),+ $(,)?];)+) => {
        /// Fails to compile if a reason has no row.
        fn ensure_listed(reason: &Reason) {
            match reason {
                $($unused => {})*
                $($reason => {})+
            }
        }

        fn sections() -> Vec<Section> {
            vec![$({
                let examples: Vec<Reason> = vec![$(Reason::from($example)),+];
                for example in &examples {
                    ensure_listed(example);
                    assert!(matches!(example, $reason), "{example} is in the row of another reason");
                }
                Section {
                    group: $group,
                    link: examples[0].page(),
                    texts: examples.iter().map(ToString::to_string).collect(),
                }
            }),+]
        }
    };
}

pub(crate) use rows;

impl Page {
    /// Requires that each reason of the page has a section, in the order of the rows, and that the
    /// page has no other sections.
    pub(crate) fn check_sections(&self) {
        let _alone = BOOK.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path;
        let links: BTreeSet<&String> = self.sections.iter().map(|section| &section.link).collect();
        assert_eq!(links.len(), self.sections.len(), "two reasons have the same section");
        let wanted: Vec<&str> = self.own_sections().filter_map(|section| self.anchor(section)).collect();
        let text = read(path);
        let found: Vec<&str> = parts(&text).1.into_iter().map(|(anchor, _)| anchor).collect();
        let missing: Vec<_> = wanted.iter().filter(|anchor| !found.contains(anchor)).collect();
        assert!(missing.is_empty(), "write sections of docs/src/{path} for: {missing:?}");
        let unknown: Vec<_> = found.iter().filter(|anchor| !wanted.contains(anchor)).collect();
        assert!(unknown.is_empty(), "no reason has these sections of docs/src/{path}: {unknown:?}");
        assert_eq!(found, wanted, "the order of the sections of docs/src/{path}");
        let titles: Vec<String> = self.own_sections().map(title).collect();
        let distinct: BTreeSet<&String> = titles.iter().collect();
        assert_eq!(distinct.len(), titles.len(), "docs/src/{path} has a title twice: {titles:?}");
    }

    /// Compares the tables and the texts that the sections quote.
    pub(crate) fn check_contents(&self) {
        let _alone = BOOK.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path;
        let text = read(path);
        let (introduction, parts) = parts(&text);
        let introduction =
            with_part(introduction, "<!-- tables -->", "<!-- end of tables -->", &self.tables());
        let mut expected =
            introduction.unwrap_or_else(|| panic!("{path}: expected the two marks of the tables"));
        for (anchor, part) in parts {
            let section = self.own_sections().find(|section| self.anchor(section) == Some(anchor));
            let quoted = section.map(|section| section.texts.join("\n") + "\n").unwrap_or_default();
            let part = with_part(part, "```text", "```", &quoted);
            expected += &part.unwrap_or_else(|| panic!("{path}#{anchor}: expected a block ```text"));
        }
        require(path, &expected);
    }

    /// The sections of this page.
    fn own_sections(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| self.anchor(section).is_some())
    }

    /// The anchor of a section of this page. `None` if it is in another page.
    fn anchor<'s>(&self, section: &'s Section) -> Option<&'s str> {
        section.link.strip_prefix(self.path)?.strip_prefix('#')
    }

    /// Renders the tables.
    fn tables(&self) -> String {
        let mut groups: Vec<(&str, Vec<&Section>)> = Vec::new();
        for section in &self.sections {
            match groups.iter_mut().find(|(group, _)| *group == section.group) {
                Some((_, sections)) => sections.push(section),
                None => groups.push((section.group, vec![section])),
            }
        }
        let to_source = "../".repeat(self.path.matches('/').count());
        let mut tables = String::new();
        for (group, sections) in groups {
            tables +=
                &format!("\n### {group}\n\n| `machinist why` says, for example | Section |\n|---|---|\n");
            for section in sections {
                let link = match self.anchor(section) {
                    Some(anchor) => format!("#{anchor}"),
                    None => format!("{to_source}{}", section.link),
                };
                tables += &format!("| {} | [{}]({link}) |\n", section.texts[0], title(section));
            }
        }
        tables + "\n"
    }
}

/// Returns the heading of a section: the next line with text after its anchor.
fn title(section: &Section) -> String {
    let (path, anchor) = section.link.split_once('#').expect("a page and an anchor");
    let text = read(path);
    let (_, parts) = parts(&text);
    let part = parts.into_iter().find(|(other, _)| *other == anchor).map(|(_, part)| part);
    let mut lines = part.unwrap_or_default().lines().skip(1).filter(|line| !line.is_empty());
    let title = lines.next().and_then(|line| line.strip_prefix("## "));
    title.unwrap_or_else(|| panic!("{}: expected a heading below the anchor", section.link)).to_owned()
}

/// Splits a page at the anchors: what precedes the first one, and the parts that begin with one.
fn parts(text: &str) -> (&str, Vec<(&str, &str)>) {
    const BEGIN: &str = "<a id=\"";
    let begins = text.match_indices(BEGIN).map(|(at, _)| at);
    let begins: Vec<usize> = begins.filter(|at| *at == 0 || text[..*at].ends_with('\n')).collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let parts = begins.iter().zip(ends).map(|(begin, end)| {
        let part = &text[*begin..end];
        (part[BEGIN.len()..].split('"').next().unwrap_or_default(), part)
    });
    (&text[..begins.first().copied().unwrap_or(text.len())], parts.collect())
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

#[test]
fn a_page_is_split_at_its_anchors() {
    let text = "# A\n\nSee `<a id=\"x\">`.\n<a id=\"b\"></a>\n\n## B\n\n<a id=\"c\"></a>\n\n## C\n";
    let (introduction, parts) = parts(text);
    assert_eq!(introduction, "# A\n\nSee `<a id=\"x\">`.\n");
    assert_eq!(parts, [("b", "<a id=\"b\"></a>\n\n## B\n\n"), ("c", "<a id=\"c\"></a>\n\n## C\n")]);
}
