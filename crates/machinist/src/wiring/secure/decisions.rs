//! Remembers decisions about clients for a short time, in a limited memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use machinist_serve::Rejection;
use tokio::time::Instant;

use super::rejection;

/// A decision is repeated from memory for this time.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of remembered decisions. Clients choose the paths, so there is a limit.
const MAX_REMEMBERED: usize = 1024;

/// Hash of a credential and a path. Both can be long, and the credential is secret.
pub(super) type Question = [u8; 32];

/// The decision of the API server about a client and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// The token belongs to no user.
    NoUser,
    /// The user lacks the permission. The cluster has chosen the name, not the client.
    Forbidden {
        user: String,
    },
}

impl Decision {
    /// Returns the answer to a client that asks for a path.
    pub(super) fn answer(self, path: &str) -> Result<(), Rejection> {
        match self {
            Self::Allowed => Ok(()),
            Self::NoUser => {
                Err(rejection(StatusCode::UNAUTHORIZED, "401 Unauthorized: the token is not valid"))
            }
            Self::Forbidden { user } => {
                let message = format!("403 Forbidden: user {user:?} cannot get path {path:?}");
                Err(rejection(StatusCode::FORBIDDEN, message))
            }
        }
    }
}

/// The remembered decisions.
#[derive(Default)]
pub(super) struct Decisions(Mutex<BTreeMap<Question, (Instant, Decision)>>);

impl Decisions {
    /// Returns the decision about a question, if it is not too old.
    pub(super) fn recall(&self, question: &Question) -> Option<Decision> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, decision) = remembered.get(question)?;
        is_fresh(*at).then(|| decision.clone())
    }

    /// Remembers a decision. The oldest one is forgotten if there are too many.
    pub(super) fn remember(&self, question: Question, decision: Decision) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|_, (at, _)| is_fresh(*at));
        if MAX_REMEMBERED <= remembered.len() {
            let oldest = remembered.iter().min_by_key(|(_, (at, _))| *at).map(|(question, _)| *question);
            oldest.and_then(|oldest| remembered.remove(&oldest));
        }
        remembered.insert(question, (Instant::now(), decision));
    }
}

fn is_fresh(at: Instant) -> bool {
    at.elapsed() < REMEMBERED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> Question {
        let mut question = Question::default();
        question[..8].copy_from_slice(&number.to_be_bytes());
        question
    }

    fn count(decisions: &Decisions) -> usize {
        decisions.0.lock().expect("unpoisoned").len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_memory_forgets_the_oldest_decision() {
        let decisions = Decisions::default();
        // The oldest decision is not the one with the smallest hash.
        decisions.remember(question(MAX_REMEMBERED), Decision::NoUser);
        tokio::time::advance(Duration::from_millis(1)).await;
        for number in 0..MAX_REMEMBERED {
            decisions.remember(question(number), Decision::Allowed);
        }
        assert_eq!(decisions.recall(&question(MAX_REMEMBERED)), None);
        assert_eq!(decisions.recall(&question(0)), Some(Decision::Allowed));
        assert_eq!(count(&decisions), MAX_REMEMBERED);
    }

    #[tokio::test(start_paused = true)]
    async fn old_decisions_leave_the_memory() {
        let decisions = Decisions::default();
        (0..10).for_each(|number| decisions.remember(question(number), Decision::Allowed));
        tokio::time::advance(REMEMBERED_FOR).await;
        assert_eq!(decisions.recall(&question(0)), None);
        decisions.remember(question(10), Decision::Allowed);
        assert_eq!(count(&decisions), 1);
    }
}
