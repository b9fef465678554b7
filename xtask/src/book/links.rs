//! The links between the pages of the book. Links to other sites are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// The table of contents: mdbook builds only the pages that it lists.
const SUMMARY: &str = "SUMMARY.md";

/// Reads all pages below a folder, by their path in it.
pub(super) fn read(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path)?;
                pages.insert(path.strip_prefix(folder)?.to_owned(), text);
            }
        }
    }
    Ok(pages)
}

/// Returns one line for each link that leads nowhere, and for each page that is not in the table of
/// contents exactly once.
pub(super) fn broken(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (page, text) in pages {
        for (line, link) in links(text) {
            if let Some(problem) = problem(pages, page, link) {
                found.push(format!("{}:{line}: {link}: {problem}", page.display()));
            }
        }
    }
    let mut listed = BTreeSet::from([PathBuf::from(SUMMARY)]);
    let contents = pages.get(Path::new(SUMMARY)).map(String::as_str).unwrap_or_default();
    for (line, link) in links(contents) {
        if let Some(page) = resolved(Path::new(SUMMARY), link)
            && !listed.insert(page)
        {
            found.push(format!("{SUMMARY}:{line}: {link}: the page is listed twice"));
        }
    }
    let unlisted = pages.keys().filter(|page| !listed.contains(*page));
    found.extend(unlisted.map(|page| format!("{}: {SUMMARY} does not list this page", page.display())));
    found
}

/// Returns why a link leads nowhere.
fn problem(pages: &BTreeMap<PathBuf, String>, page: &Path, link: &str) -> Option<&'static str> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let to = if path.is_empty() { Some(page.to_owned()) } else { resolved(page, path) };
    let Some(text) = to.and_then(|to| pages.get(&to)) else { return Some("there is no such page") };
    let is_there = anchor.is_none_or(|anchor| anchors(text).contains(anchor));
    (!is_there).then_some("there is no such heading or anchor")
}

/// Returns the links to other pages, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for part in line.split("](").skip(1) {
            let link = part.split([')', ' ']).next().unwrap_or_default();
            let is_elsewhere = link.contains("://") || link.starts_with("mailto:");
            if !is_elsewhere {
                found.push((number, link));
            }
        }
    }
    found
}

/// Returns the lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        (!in_block && !is_fence).then_some((index + 1, line))
    })
}

/// Returns the anchors of the headings, in mdbook's spelling, and the anchors of lines
/// `<a id="..."></a>`.
fn anchors(text: &str) -> BTreeSet<String> {
    let explicit = prose(text).filter_map(|(_, line)| line.strip_prefix("<a id=\"")?.strip_suffix("\"></a>"));
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let titles = headings.map(|rest| rest.trim_start_matches('#').trim());
    let spelled = titles.map(|title| {
        let kept =
            title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
    });
    spelled.chain(explicit.map(str::to_owned)).collect()
}

/// Returns the path of a link in the folder of the book; `None` for a link that leaves the folder.
fn resolved(page: &Path, link: &str) -> Option<PathBuf> {
    let mut path = page.parent().map(Path::to_owned).unwrap_or_default();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir if !path.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_in(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
        broken(&pages.collect())
    }

    #[test]
    fn links_to_pages_and_headings_are_followed() {
        let summary = (SUMMARY, "- [A](a/index.md)\n- [B](b.md)\n");
        let page = "# A title, with `code`\n[up](../b.md) [here](#a-title-with-code) [web](https://example.com/x.md)\n\
                    ```sh\n[no link](nowhere.md)\n```\n";
        assert_eq!(broken_in(&[summary, ("a/index.md", page), ("b.md", "# B\n")]), [""; 0]);
    }

    #[test]
    fn a_link_to_an_explicit_anchor_is_followed() {
        let summary = (SUMMARY, "- [A](a.md)\n- [B](b.md)\n");
        let page = "# B\n\n<a id=\"short\"></a>\n\n## A long title\n";
        let links = "# A\n\n[x](b.md#short) [y](b.md#a-long-title) [z](b.md#long)\n";
        assert_eq!(
            broken_in(&[summary, ("a.md", links), ("b.md", page)]),
            ["a.md:3: b.md#long: there is no such heading or anchor"]
        );
    }

    #[test]
    fn a_link_to_nowhere_is_reported_with_its_line() {
        let summary = (SUMMARY, "- [A](a.md)\n- [A](a.md)\n");
        let page = "# A\n\n[x](x.md) [y](a.md#b) [z](../../a.md)\n";
        assert_eq!(
            broken_in(&[summary, ("a.md", page), ("c.md", "# C\n")]),
            [
                "a.md:3: x.md: there is no such page",
                "a.md:3: a.md#b: there is no such heading or anchor",
                "a.md:3: ../../a.md: there is no such page",
                "SUMMARY.md:2: a.md: the page is listed twice",
                "c.md: SUMMARY.md does not list this page",
            ]
        );
    }
}
