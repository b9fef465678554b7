//! Exchanges the token of a workload for keys that are valid for an hour.
//!
//! The keys are remembered until shortly before they expire, because each call needs them. The
//! token is read from its file at each exchange: it is renewed more often than keys are needed.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use machinist_instance::{Error, ErrorKind};
use tokio::sync::Mutex;

use super::Client;
use super::call::Call;
use super::failure::Failure;
use crate::model::AssumedRole;
use crate::secret::{Keys, Workload};

/// Keys are renewed this long before they expire, so that no call begins with keys that expire
/// during the call.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_mins(5);

/// Name of the session in the logs of AWS.
const SESSION: &str = "machinist";

/// Longest token that is read: STS accepts at most 20000 bytes.
const MAX_TOKEN_BYTES: usize = 20_000;

/// The keys of a workload, while they are known, and when they expire.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Option<(Keys, Timestamp)>>);

impl Remembered {
    /// Returns keys that are valid now. May send a request.
    pub(super) async fn keys(&self, client: &Client, workload: &Workload) -> Result<Keys, Failure> {
        let mut known = self.0.lock().await;
        let is_valid = |expiry: Timestamp| {
            client.caller.cloud_time() < expiry.saturating_sub(RENEWED_BEFORE).unwrap_or(expiry)
        };
        if let Some((keys, expiry)) = known.as_ref()
            && is_valid(*expiry)
        {
            return Ok(keys.clone());
        }
        let (keys, expiry) = exchange(client, workload).await?;
        *known = Some((keys.clone(), expiry));
        Ok(keys)
    }

    /// Forgets keys that the cloud rejected.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

async fn exchange(client: &Client, workload: &Workload) -> Result<(Keys, Timestamp), Failure> {
    let token = read_token(&workload.token_file, &client.options.token_folder).await?;
    let call = Call::sts("AssumeRoleWithWebIdentity")
        .with("RoleArn", &workload.role)
        .with("RoleSessionName", SESSION)
        .with("WebIdentityToken", token);
    let answer: AssumedRole = client.send(&call, None).await?;
    let keys = answer.assume_role_with_web_identity_result.credentials;
    let expiry = keys.expiration;
    Ok((Keys::new(keys.access_key_id, keys.secret_access_key, Some(keys.session_token)), expiry))
}

/// Reads a token. Only files below the folder are read: users write the path, and the content is
/// sent to the cloud.
async fn read_token(file: &Path, folder: &Path) -> Result<String, Error> {
    let denied = |expected: &str| {
        let text = format!("workloadIdentityTokenFile: expected {expected}, got {}", file.display());
        Error::new(ErrorKind::Denied, text)
    };
    let resolve = async |path: &Path| -> Option<PathBuf> { tokio::fs::canonicalize(path).await.ok() };
    // Kubernetes mounts a file as a symbolic link, so both paths are resolved.
    let (Some(real), Some(below)) = (resolve(file).await, resolve(folder).await) else {
        return Err(denied(&format!("an existing file below {}", folder.display())));
    };
    if !real.starts_with(&below) {
        return Err(denied(&format!("a file below {}", folder.display())));
    }
    let token = tokio::fs::read_to_string(&real).await.map_err(|_| denied("a file with a token as text"))?;
    let token = token.trim();
    if token.is_empty() || MAX_TOKEN_BYTES < token.len() {
        return Err(denied("a file with a token"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gap_11_only_files_of_the_folder_are_read() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("tokens");
        std::fs::create_dir(&folder).expect("created");
        std::fs::write(folder.join("token"), " canary\n").expect("written");
        std::fs::write(root.path().join("other"), "other").expect("written");
        std::os::unix::fs::symlink(folder.join("token"), folder.join("link")).expect("linked");
        std::os::unix::fs::symlink(root.path().join("other"), folder.join("away")).expect("linked");
        for name in ["token", "link"] {
            assert_eq!(read_token(&folder.join(name), &folder).await, Ok("canary".to_owned()));
        }
        for name in ["../other", "away", "missing", "."] {
            let error = read_token(&folder.join(name), &folder).await.expect_err(name);
            assert_eq!(error.kind, ErrorKind::Denied);
            assert!(error.message.starts_with("workloadIdentityTokenFile: expected"), "{error}");
        }
    }
}
