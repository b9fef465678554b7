//! Lines of the log about watches that fail. A controller that cannot see its objects does nothing,
//! so it must say why.

use std::sync::{Mutex, PoisonError};

use machinist_kube::watch::WatchNote;

/// A single failure is no news: API servers end watches, and restart.
const NEWS: u32 = 2;

/// Returns an observer of the watch of a kind.
pub(crate) fn of(kind: &'static str) -> impl Fn(WatchNote) + Send + Sync {
    let series = Mutex::new(Series::default());
    move |note| {
        let news = series.lock().unwrap_or_else(PoisonError::into_inner).take(&note);
        match news {
            Some(News::KindIsMissing(error)) => {
                let fix = "install its definition, which machinist crds prints";
                tracing::warn!(kind, error, fix, "The API server does not have a kind; trying again");
            }
            Some(News::Fails(error)) => tracing::warn!(kind, error, "Cannot watch a kind; trying again"),
            Some(News::Works) => tracing::info!(kind, "The watch of a kind works again"),
            Some(News::Unreadable(object, error)) => {
                tracing::warn!(kind, object, error, "Skipped an object that cannot be parsed");
            }
            None => {}
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum News {
    /// The API server does not have the kind: the error.
    KindIsMissing(String),
    /// The watch cannot be opened: the error.
    Fails(String),
    Works,
    /// The key of the object if it is known, and the error.
    Unreadable(Option<String>, String),
}

/// The failures since the watch worked.
#[derive(Default)]
struct Series {
    failures: u32,
}

impl Series {
    fn take(&mut self, note: &WatchNote) -> Option<News> {
        match note {
            WatchNote::Retrying { error, .. } => {
                self.failures = self.failures.saturating_add(1);
                let news = match error.contains("404") {
                    true => News::KindIsMissing(error.clone()),
                    false => News::Fails(error.clone()),
                };
                Some(news).filter(|_| self.failures == NEWS)
            }
            WatchNote::Listed { .. } | WatchNote::Opened => {
                let failures = std::mem::take(&mut self.failures);
                (NEWS <= failures).then_some(News::Works)
            }
            WatchNote::Undecodable { key, error } => {
                Some(News::Unreadable(key.as_ref().map(ToString::to_string), error.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_watch_that_fails_is_told_once() {
        let failed = |error: &str| WatchNote::Retrying { after: Duration::ZERO, error: error.to_owned() };
        let mut series = Series::default();
        let mut told = |note: WatchNote| series.take(&note);
        assert_eq!(told(failed("ended")), None, "API servers end watches");
        assert_eq!(told(WatchNote::Opened), None);
        assert_eq!(told(failed("404 page not found")), None);
        let missing = News::KindIsMissing("404 page not found".to_owned());
        assert_eq!(told(failed("404 page not found")), Some(missing));
        assert_eq!(told(failed("404 page not found")), None, "it was told");
        assert_eq!(told(WatchNote::Listed { objects: 0 }), Some(News::Works));
        assert_eq!(told(failed("refused")), None);
        assert_eq!(told(failed("refused")), Some(News::Fails("refused".to_owned())));
    }
}
