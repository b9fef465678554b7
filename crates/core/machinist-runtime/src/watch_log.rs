//! Lines of the log about watches that fail. A controller that cannot see its objects does nothing,
//! so it must say why.

use std::sync::{Mutex, PoisonError};

use kube::Resource;
use machinist_kube::watch::WatchNote;

/// A single failure is not news: API servers end watches, and restart.
const NEWS: u32 = 2;

/// Returns an observer of the watch of a kind. The lines contain the API version, because kinds of
/// several groups have the same name, and a server may have a kind only in another version.
pub(crate) fn of<K: Resource<DynamicType = ()>>(kind: &'static str) -> impl Fn(WatchNote) + Send + Sync {
    let api_version = K::api_version(&()).into_owned();
    let series = Mutex::new(Series::default());
    move |note| {
        let news = series.lock().unwrap_or_else(PoisonError::into_inner).take(note);
        match news {
            Some(News::Fails(Cause::KindIsMissing, error)) => {
                let fix = "install its definition with this version";
                tracing::warn!(
                    kind,
                    api_version,
                    error,
                    fix,
                    "The API server does not have a kind; trying again"
                );
            }
            Some(News::Fails(Cause::Other, error)) => {
                tracing::warn!(kind, api_version, error, "Cannot watch a kind; trying again");
            }
            Some(News::Works) => tracing::info!(kind, api_version, "The watch of a kind works now"),
            Some(News::Unreadable(object, error)) => {
                tracing::warn!(kind, api_version, object, error, "Skipped an object that cannot be parsed");
            }
            None => {}
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum News {
    /// The watch cannot be opened: the cause and the error.
    Fails(Cause, String),
    Works,
    /// The key of the object if it is known, and the error.
    Unreadable(Option<String>, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The API server does not have the kind.
    KindIsMissing,
    Other,
}

/// The failures since the watch worked.
#[derive(Default)]
struct Series {
    /// The cause that the log named last.
    reported: Option<Cause>,
    /// Failures since then with another cause.
    unreported: u32,
}

impl Series {
    fn take(&mut self, note: WatchNote) -> Option<News> {
        match note {
            WatchNote::Retrying { error, kind_is_missing, .. } => {
                let cause = if kind_is_missing { Cause::KindIsMissing } else { Cause::Other };
                if self.reported == Some(cause) {
                    return None;
                }
                self.unreported += 1;
                if self.unreported < NEWS {
                    return None;
                }
                *self = Self { reported: Some(cause), unreported: 0 };
                Some(News::Fails(cause, error))
            }
            WatchNote::Opened => std::mem::take(self).reported.map(|_| News::Works),
            // A client may be allowed to list a kind and not to watch it. Then lists succeed
            // between the failures.
            WatchNote::Listed { .. } => None,
            WatchNote::Undecodable { key, error } => {
                Some(News::Unreadable(key.map(|key| key.to_string()), error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failed(cause: Cause) -> WatchNote {
        let kind_is_missing = cause == Cause::KindIsMissing;
        WatchNote::Retrying {
            after: Duration::ZERO,
            error: "error".to_owned(),
            kind_is_missing,
            server_works: false,
            server_answers: kind_is_missing,
        }
    }

    /// The news of each note, in order.
    fn news_of(notes: impl IntoIterator<Item = WatchNote>) -> Vec<Option<News>> {
        let mut series = Series::default();
        notes.into_iter().map(|note| series.take(note)).collect()
    }

    fn fails(cause: Cause) -> Option<News> {
        Some(News::Fails(cause, "error".to_owned()))
    }

    #[test]
    fn a_watch_that_fails_is_told_once() {
        let notes = [failed(Cause::Other), failed(Cause::Other), failed(Cause::Other), WatchNote::Opened];
        assert_eq!(news_of(notes), [None, fails(Cause::Other), None, Some(News::Works)]);
    }

    #[test]
    fn a_single_failure_is_not_told() {
        let notes = [failed(Cause::Other), WatchNote::Opened, failed(Cause::Other), WatchNote::Opened];
        assert_eq!(news_of(notes), [None, None, None, None]);
    }

    #[test]
    fn a_missing_kind_is_told_after_an_outage() {
        let refused = || failed(Cause::Other);
        let missing = || failed(Cause::KindIsMissing);
        let told = news_of([refused(), refused(), missing(), missing(), missing()]);
        assert_eq!(told, [None, fails(Cause::Other), None, fails(Cause::KindIsMissing), None]);
    }

    #[test]
    fn a_missing_kind_is_told_if_every_second_server_is_down() {
        let causes = [Cause::KindIsMissing, Cause::Other].into_iter().cycle();
        for first in [0, 1] {
            let told = news_of(causes.clone().skip(first).take(5).map(failed));
            assert!(told.contains(&fails(Cause::KindIsMissing)), "{told:?}");
        }
    }

    #[test]
    fn a_list_does_not_end_the_failures_of_a_watch() {
        let listed = || WatchNote::Listed { objects: 1 };
        let refused = || failed(Cause::Other);
        let told = news_of([listed(), refused(), refused(), listed(), refused(), refused(), listed()]);
        assert_eq!(told, [None, None, fails(Cause::Other), None, None, None, None]);
    }
}
