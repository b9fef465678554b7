//! Pages of a list. Pure.
//!
//! A list is complete only if all its pages agree on the number of entries. Between two pages
//! another program may create or delete an object, which moves an entry from one page to the other.

use serde::Deserialize;

/// Number of entries per page: the largest that the cloud accepts.
pub(crate) const PER_PAGE: &str = "50";
/// Ends a list whose pages never end: 50,000 entries are more than any project may have.
const MOST_PAGES: u32 = 1000;

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
    last_page: u32,
    total: Option<u64>,
}

/// What follows after a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Read the page of this number.
    Next(u32),
    /// All pages were read and agree.
    Complete,
    /// The list changed between two pages.
    Inconsistent,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), last_page: 0, total: None }
    }
}

impl<T> Pages<T> {
    pub(crate) fn add(&mut self, entries: Vec<T>, pagination: Pagination) -> Turn {
        let is_first = self.last_page == 0;
        self.last_page += 1;
        self.entries.extend(entries);
        if !is_first && self.total != pagination.total_entries {
            return Turn::Inconsistent;
        }
        self.total = pagination.total_entries;
        let collected = self.entries.len() as u64;
        match pagination.next_page {
            Some(next) if next != self.last_page + 1 || MOST_PAGES < next => Turn::Inconsistent,
            Some(next) => Turn::Next(next),
            None if self.total.is_some_and(|total| total != collected) => Turn::Inconsistent,
            None => Turn::Complete,
        }
    }

    pub(crate) fn into_entries(self) -> Vec<T> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(next_page: Option<u32>, total_entries: Option<u64>) -> Pagination {
        Pagination { next_page, total_entries }
    }

    #[test]
    fn pages_that_agree_are_complete() {
        let mut pages = Pages::default();
        assert_eq!(pages.add(vec![1, 2], page(Some(2), Some(3))), Turn::Next(2));
        assert_eq!(pages.add(vec![3], page(None, Some(3))), Turn::Complete);
        assert_eq!(pages.into_entries(), [1, 2, 3]);
        assert_eq!(Pages::default().add(vec![1], page(None, None)), Turn::Complete);
    }

    /// HZ-04.
    #[test]
    fn a_total_that_changes_between_pages_is_inconsistent() {
        let mut pages = Pages::default();
        assert_eq!(pages.add(vec![1, 2], page(Some(2), Some(3))), Turn::Next(2));
        assert_eq!(pages.add(vec![3], page(None, Some(4))), Turn::Inconsistent);
    }

    /// HZ-04.
    #[test]
    fn a_list_with_another_length_than_its_total_is_refused() {
        assert_eq!(Pages::default().add(vec![1], page(None, Some(2))), Turn::Inconsistent);
        assert_eq!(Pages::default().add(vec![1, 2], page(None, Some(1))), Turn::Inconsistent);
    }

    #[test]
    fn page_numbers_only_grow_by_one() {
        assert_eq!(Pages::default().add(vec![1], page(Some(1), None)), Turn::Inconsistent);
        assert_eq!(Pages::default().add(vec![1], page(Some(3), None)), Turn::Inconsistent);
    }
}
