//! User and client behind a commit.

use std::sync::Arc;

/// User and client behind a commit.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) user: Arc<str>,
    pub(crate) user_agent: Arc<str>,
}

impl Default for Origin {
    /// Commits of the server itself have this origin.
    fn default() -> Self {
        Origin { user: "system:apiserver".into(), user_agent: "machinist-apiserver".into() }
    }
}
