//! The credential of a cloud account, from an environment variable or from a file that is read
//! again when it changes.
//!
//! Secrets that a pod mounts are files, and Kubernetes replaces them when a user changes the
//! Secret. So a renewed token needs no restart. A file that cannot be read keeps the last
//! credential: a deletion must not depend on a half-written file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use machinist_controllers::ccm::{CredentialSource, Versioned};
use machinist_instance::Credential;
use tokio::sync::watch;

/// The time between two reads of the file.
const READ_EVERY: Duration = Duration::from_secs(2);
/// Larger than every token. A larger file is not a token.
const MAX_BYTES: usize = 4096;
/// The credential's entry that holds the token.
const TOKEN_ENTRY: &str = "token";

/// Where the token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenFrom {
    /// The value of an environment variable.
    Value(String),
    /// A file.
    File(PathBuf),
}

/// Starts to follow the token. The task ends when the receiver is dropped.
///
/// # Errors
/// If the file cannot be read or has no token. The error names the file.
#[expect(clippy::disallowed_methods, reason = "one task waits for the credential")]
pub(crate) fn follow(from: TokenFrom) -> anyhow::Result<CredentialSource> {
    let (sender, receiver) = watch::channel(None);
    match from {
        TokenFrom::Value(token) => {
            sender.send_replace(Some(versioned(1, &token)));
            // The sender is dropped: an environment variable does not change.
        }
        TokenFrom::File(path) => {
            let first = read(&path)?;
            sender.send_replace(Some(versioned(1, &first)));
            tokio::spawn(read_again(path, first, sender));
        }
    }
    Ok(receiver)
}

async fn read_again(path: PathBuf, mut last: String, sender: watch::Sender<Option<Versioned>>) {
    let mut version = 1;
    let mut is_failing = false;
    while !sender.is_closed() {
        tokio::time::sleep(READ_EVERY).await;
        let again = path.clone();
        let found = tokio::task::spawn_blocking(move || read(&again)).await;
        match found {
            Ok(Ok(token)) if token == last => is_failing = false,
            Ok(Ok(token)) => {
                is_failing = false;
                version += 1;
                sender.send_replace(Some(versioned(version, &token)));
                last = token;
                tracing::info!(file = %path.display(), "The token of the cloud has changed");
            }
            Ok(Err(error)) if !is_failing => {
                is_failing = true;
                let reason = format!("{error:#}");
                tracing::warn!(reason, "Cannot read the token again; the last one stays in use");
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

fn versioned(version: u64, token: &str) -> Versioned {
    let data = BTreeMap::from([(TOKEN_ENTRY.to_owned(), token.as_bytes().to_vec())]);
    Versioned { version, credential: Credential::new(data) }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.trim();
    ensure!(
        !token.is_empty() && token.len() <= MAX_BYTES,
        "{}: expected the token of the cloud, of at most {MAX_BYTES} bytes",
        path.display()
    );
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(source: &CredentialSource) -> Option<String> {
        let current = source.borrow();
        current.as_ref().and_then(|current| current.credential.text(TOKEN_ENTRY).map(str::to_owned))
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_gives_a_new_credential() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "first\n").expect("written");
        let mut source = follow(TokenFrom::File(path.clone())).expect("readable");
        assert_eq!(token_of(&source), Some("first".to_owned()));
        source.mark_unchanged();
        std::fs::write(&path, "second").expect("written");
        source.changed().await.expect("the file is followed");
        assert_eq!(token_of(&source), Some("second".to_owned()));
    }

    #[tokio::test]
    async fn a_missing_or_empty_file_is_an_error_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let message = follow(TokenFrom::File(path.clone())).expect_err("missing").to_string();
        assert!(message.contains("cannot read") && message.contains("token"), "{message}");
        std::fs::write(&path, " \n").expect("written");
        let message = follow(TokenFrom::File(path)).expect_err("empty").to_string();
        assert!(message.contains("expected the token of the cloud"), "{message}");
    }
}
