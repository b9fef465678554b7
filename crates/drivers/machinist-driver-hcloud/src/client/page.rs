//! Pages of a list. Pure.
//!
//! Between two pages, another program may create or delete an object, which moves entries from one
//! page to another. The client reads the newest objects first, because then these two rules are
//! enough for a complete list:
//!
//! * All pages agree on the number of entries. So as many objects were created as deleted.
//! * No object is on two pages.
//!
//! A creation moves every entry to a later place, and a deletion moves only older entries to an
//! earlier place. If both are equally many, no entry moves to an earlier place, so no page skips
//! an entry that exists all the time. In the opposite order, a deletion on a page that was read
//! moves an entry there, and a creation at the end hides that from the number of entries.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The newest objects first: ids grow.
pub(crate) const SORT: &str = "id:desc";

/// Number of entries per page: the largest that the cloud accepts.
pub(crate) const PER_PAGE: &str = "50";
/// Ends a list whose pages never end: 50,000 entries are more than any project may have.
const MAX_PAGES: u32 = 1000;

/// The member `meta` of a list.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Meta {
    pub(crate) pagination: Pagination,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Pagination {
    #[serde(default)]
    pub(crate) next_page: Option<u32>,
    #[serde(default)]
    pub(crate) total_entries: Option<u64>,
}

/// The entries of the pages so far.
pub(crate) struct Pages<T> {
    entries: Vec<T>,
    ids: BTreeSet<i64>,
    last_page: u32,
    total: Option<u64>,
}

/// The next step after a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterPage {
    /// Read the page of this number.
    Next(u32),
    /// All pages were read and agree.
    Complete,
    /// The list changed between two pages.
    Inconsistent,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), ids: BTreeSet::new(), last_page: 0, total: None }
    }
}

impl<T> Pages<T> {
    /// Adds the next page and the ids of its entries.
    pub(crate) fn add(&mut self, entries: Vec<T>, ids: &[i64], pagination: Pagination) -> AfterPage {
        let is_first = self.last_page == 0;
        self.last_page += 1;
        self.entries.extend(entries);
        let known = self.ids.len();
        self.ids.extend(ids);
        if self.ids.len() != known + ids.len() {
            return AfterPage::Inconsistent;
        }
        if !is_first && self.total != pagination.total_entries {
            return AfterPage::Inconsistent;
        }
        self.total = pagination.total_entries;
        let collected = self.entries.len() as u64;
        match pagination.next_page {
            Some(next) if next != self.last_page + 1 || MAX_PAGES < next => AfterPage::Inconsistent,
            Some(next) => AfterPage::Next(next),
            None if self.total.is_some_and(|total| total != collected) => AfterPage::Inconsistent,
            None => AfterPage::Complete,
        }
    }

    /// All entries, the oldest first.
    pub(crate) fn into_entries(mut self) -> Vec<T> {
        self.entries.reverse();
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(next_page: Option<u32>, total_entries: Option<u64>) -> Pagination {
        Pagination { next_page, total_entries }
    }

    fn add(pages: &mut Pages<i64>, ids: &[i64], pagination: Pagination) -> AfterPage {
        pages.add(ids.to_vec(), ids, pagination)
    }

    #[test]
    fn pages_that_agree_are_complete() {
        let mut pages = Pages::default();
        assert_eq!(add(&mut pages, &[3, 2], page(Some(2), Some(3))), AfterPage::Next(2));
        assert_eq!(add(&mut pages, &[1], page(None, Some(3))), AfterPage::Complete);
        assert_eq!(pages.into_entries(), [1, 2, 3], "the oldest first");
        assert_eq!(add(&mut Pages::default(), &[1], page(None, None)), AfterPage::Complete);
    }

    #[test]
    fn a_total_that_changes_between_pages_is_inconsistent() {
        let mut pages = Pages::default();
        assert_eq!(add(&mut pages, &[3, 2], page(Some(2), Some(3))), AfterPage::Next(2));
        assert_eq!(add(&mut pages, &[1], page(None, Some(4))), AfterPage::Inconsistent);
    }

    #[test]
    fn a_list_with_another_length_than_its_total_is_refused() {
        assert_eq!(add(&mut Pages::default(), &[1], page(None, Some(2))), AfterPage::Inconsistent);
        assert_eq!(add(&mut Pages::default(), &[2, 1], page(None, Some(1))), AfterPage::Inconsistent);
    }

    #[test]
    fn page_numbers_only_grow_by_one() {
        assert_eq!(add(&mut Pages::default(), &[1], page(Some(1), None)), AfterPage::Inconsistent);
        assert_eq!(add(&mut Pages::default(), &[1], page(Some(3), None)), AfterPage::Inconsistent);
    }

    #[test]
    fn an_object_on_two_pages_is_inconsistent() {
        let mut pages = Pages::default();
        assert_eq!(add(&mut pages, &[4, 3], page(Some(2), Some(4))), AfterPage::Next(2));
        assert_eq!(add(&mut pages, &[3, 2], page(None, Some(4))), AfterPage::Inconsistent);
    }

    /// Reads six objects in pages of two. Before each page, one object is deleted and some are
    /// created. Returns the complete list, and the objects that existed all the time.
    fn list_during(changes: [(i64, i64); 3]) -> Option<(Vec<i64>, Vec<i64>)> {
        let size = 2;
        let mut newest = 6;
        let mut alive: Vec<i64> = (1..=newest).collect();
        let (mut stays, mut pages) = (alive.clone(), Pages::default());
        for (number, (deleted, created)) in (1_u32..).zip(changes) {
            alive.retain(|id| *id != deleted);
            stays.retain(|id| *id != deleted);
            alive.extend(newest + 1..=newest + created);
            newest += created;
            let newest_first: Vec<i64> = alive.iter().rev().copied().collect();
            let mut chunks = newest_first.chunks(size).skip(number as usize - 1);
            let shown = chunks.next().unwrap_or_default();
            let next_page = chunks.next().map(|_| number + 1);
            match add(&mut pages, shown, page(next_page, Some(alive.len() as u64))) {
                AfterPage::Next(_) => {}
                AfterPage::Inconsistent => return None,
                AfterPage::Complete => return Some((pages.into_entries(), stays)),
            }
        }
        None
    }

    #[test]
    fn a_complete_list_has_every_object_that_stays() {
        let each: Vec<(i64, i64)> = (0..=6).flat_map(|id| (0..=2).map(move |new| (id, new))).collect();
        let mut complete = 0;
        for (one, two) in each.iter().flat_map(|one| each.iter().map(move |two| (*one, *two))) {
            let Some((listed, stays)) = list_during([(0, 0), one, two]) else { continue };
            assert!(stays.iter().all(|id| listed.contains(id)), "{one:?} {two:?}: {listed:?}");
            complete += 1;
        }
        assert!(complete > 1, "a list may be complete although it changed");
    }
}
