//! The data folder: locked, private, with atomically written small files.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::storage::error::StorageError;
use crate::values::tls::{CertificateAuthority, TlsError};
use crate::values::token_key::TokenKey;

/// Files with secrets are private to their owner. Any file here may contain secrets.
pub(crate) const PRIVATE_FILE: u32 = 0o600;
pub(crate) const PRIVATE_FOLDER: u32 = 0o700;

const LOCK_FILE: &str = "lock";
/// Name of the database file; see [`crate::storage::database`].
pub(crate) const STATE_FILE: &str = "state.redb";
const CA_CERTIFICATE_FILE: &str = "ca.crt";
const CA_KEY_FILE: &str = "ca.key";
const TOKEN_KEY_FILE: &str = "tokens.key";

/// A folder for state that outlives the server. The folder is locked for this process as long as
/// this value exists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked file. The operating system releases the lock when the process ends.
    lock: File,
}

impl Folder {
    /// Creates the folder if necessary, and locks it. A new or empty folder becomes private to its
    /// owner.
    ///
    /// # Errors
    /// When the file system fails, or another process holds the lock.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let io = |source| StorageError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path).map_err(io)?;
        // An empty folder becomes private. A folder with other content may have to be readable by
        // others; our files in it are private anyway.
        if fs::read_dir(path).map_err(io)?.next().is_none() {
            fs::set_permissions(path, Permissions::from_mode(PRIVATE_FOLDER)).map_err(io)?;
        }
        let file = path.join(LOCK_FILE);
        let io = |source| StorageError::Io { path: file.clone(), source };
        let mut open = OpenOptions::new();
        let lock =
            open.write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(&file).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(StorageError::InUse { folder: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    /// Reports whether a server keeps its state in the folder.
    pub fn holds_state(path: &Path) -> bool {
        path.join(STATE_FILE).exists()
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a file's text, if the file exists.
    ///
    /// # Errors
    /// When the file cannot be read, or is not text.
    pub fn read(&self, name: &str) -> Result<Option<String>, StorageError> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(StorageError::Damaged { file: path, why: "expected text in UTF-8".to_owned() })
            }
            Err(source) => Err(StorageError::Io { path, source }),
        }
    }

    /// Replaces a file atomically: after a crash it has the old text or the new one. When this
    /// returns, the text is on stable storage.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn write(&self, name: &str, text: &str) -> Result<(), StorageError> {
        let path = self.path.join(name);
        replace(&path, text.as_bytes()).map_err(|source| StorageError::Io { path, source })
    }

    /// Reads the cluster's certificate authority, so that certificates stay valid after a restart.
    /// Creates an authority if the folder has no commits yet. The authority exists before the first
    /// commit, so its absence afterwards is an error.
    pub(crate) fn certificate_authority(
        &self,
        history: Past,
        now: jiff::Timestamp,
    ) -> Result<CertificateAuthority, StorageError> {
        if let Some(kept) = self.read_certificate_authority(history, now)? {
            return Ok(kept);
        }
        let made = CertificateAuthority::generate(now).map_err(|source| self.certificates(source))?;
        self.write(CA_KEY_FILE, made.key_pem())?;
        self.write(CA_CERTIFICATE_FILE, made.certificate_pem())?;
        Ok(made)
    }

    /// Like [`Folder::certificate_authority`], without creating one.
    pub(crate) fn read_certificate_authority(
        &self,
        history: Past,
        now: jiff::Timestamp,
    ) -> Result<Option<CertificateAuthority>, StorageError> {
        // The certificate is written last. If it is missing, no certificate was ever issued.
        let Some(certificate_pem) = self.read(CA_CERTIFICATE_FILE)? else {
            let expected = "the certificate that kubeconfigs and Nodes trust";
            return match history {
                Past::None => Ok(None),
                Past::Some => Err(self.missing(CA_CERTIFICATE_FILE, expected)),
            };
        };
        let Some(key_pem) = self.read(CA_KEY_FILE)? else {
            return Err(self.missing(CA_KEY_FILE, "the private key of ca.crt"));
        };
        let kept = CertificateAuthority::from_pem(certificate_pem, key_pem).map_err(|_| {
            self.damaged(CA_CERTIFICATE_FILE, "expected the certificate of an authority, in PEM")
        })?;
        kept.check(now).map_err(|error| match error {
            TlsError::Certificate(_) => {
                self.damaged(CA_KEY_FILE, "expected the private key of ca.crt, in PEM")
            }
            error => self.certificates(error),
        })?;
        Ok(Some(kept))
    }

    /// Reads the key that signs tokens, so that tokens stay valid after a restart. Created under
    /// the same condition as the certificate authority.
    pub(crate) fn token_key(&self, history: Past) -> Result<TokenKey, StorageError> {
        if let Some(kept) = self.read_token_key(history)? {
            return Ok(kept);
        }
        let made = TokenKey::generate().map_err(|_| self.no_token_key())?;
        self.write(TOKEN_KEY_FILE, made.pem())?;
        Ok(made)
    }

    /// Like [`Folder::token_key`], without creating one.
    pub(crate) fn read_token_key(&self, history: Past) -> Result<Option<TokenKey>, StorageError> {
        match (self.read(TOKEN_KEY_FILE)?, history) {
            (Some(pem), _) => TokenKey::from_pem(&pem).map(Some).map_err(|_| self.no_token_key()),
            (None, Past::None) => Ok(None),
            (None, Past::Some) => {
                Err(self.missing(TOKEN_KEY_FILE, "the key that signed the tokens of ServiceAccounts"))
            }
        }
    }

    fn certificates(&self, source: TlsError) -> StorageError {
        StorageError::Certificates { folder: self.path.clone(), source }
    }

    fn no_token_key(&self) -> StorageError {
        self.damaged(TOKEN_KEY_FILE, "expected a private ECDSA key over P-256, in PEM")
    }

    fn missing(&self, name: &str, expected: &'static str) -> StorageError {
        StorageError::Missing { file: self.path.join(name), expected }
    }

    fn damaged(&self, name: &str, why: &str) -> StorageError {
        StorageError::Damaged { file: self.path.join(name), why: why.to_owned() }
    }
}

/// Whether a server has ever committed to the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// No commit yet.
    None,
    /// At least one commit.
    Some,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A child process that is just starting holds a copy of the handle, and would keep the
        // lock. If unlocking fails, closing the handle is the only option left.
        let _closed = self.lock.unlock();
    }
}

/// Replaces a file atomically, readable by its owner only, and waits until it is on stable storage.
pub(crate) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = beside(file, ".new");
    // A leftover file might be readable by others, so it is deleted and recreated.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut open = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&unfinished)?;
    open.write_all(content)?;
    open.sync_all()?;
    move_into_place(&unfinished, file)
}

/// Appends a suffix to the path.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(suffix);
    file.with_file_name(name)
}

/// Renames a file. When this returns, the new name is on stable storage.
pub(crate) fn move_into_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("the file exists").permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_and_its_files_are_private_to_their_owner() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let path = parent.path().join("a/b");
        fs::create_dir_all(&path).expect("made");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("open to all");
        let folder = Folder::open(&path).expect("ours");
        folder.write("secret", "text").expect("written");
        assert_eq!(mode(&path), PRIVATE_FOLDER);
        for file in ["secret", LOCK_FILE] {
            assert_eq!(mode(&path.join(file)), PRIVATE_FILE, "{file}");
        }
    }

    #[test]
    fn a_token_stays_valid_after_a_restart() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::open(parent.path()).expect("ours");
        let signature = folder.token_key(Past::None).expect("made").sign(b"text").expect("signed");
        assert!(folder.token_key(Past::Some).expect("kept").verifies(b"text", &signature));
        assert_eq!(mode(&parent.path().join(TOKEN_KEY_FILE)), PRIVATE_FILE);
        folder.write(TOKEN_KEY_FILE, "no key").expect("written");
        let error = folder.token_key(Past::Some).expect_err("damaged, and not replaced").to_string();
        assert!(error.contains("tokens.key is damaged: expected a private ECDSA key"), "{error}");
        fs::remove_file(parent.path().join(TOKEN_KEY_FILE)).expect("removed");
        let error = folder.token_key(Past::Some).expect_err("missing, and not replaced").to_string();
        assert!(error.contains("tokens.key is missing: expected the key"), "{error}");
    }

    #[test]
    fn an_incomplete_certificate_authority_is_not_replaced() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::open(parent.path()).expect("ours");
        let now = jiff::Timestamp::UNIX_EPOCH;
        let made = folder.certificate_authority(Past::None, now).expect("made");
        let kept = folder.certificate_authority(Past::Some, now).expect("kept");
        assert_eq!(made.certificate_pem(), kept.certificate_pem());
        let refusal = || {
            let error = folder.certificate_authority(Past::Some, now).expect_err("refused");
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}: {source}")
        };
        let says = |part: &str| assert!(refusal().contains(part), "expected {part:?} in {}", refusal());
        let other = CertificateAuthority::generate(now).expect("made");
        folder.write(CA_KEY_FILE, other.key_pem()).expect("written");
        says("ca.key is not the key of ca.crt");
        folder.write(CA_KEY_FILE, "no key").expect("written");
        says("ca.key is damaged: expected the private key of ca.crt, in PEM");
        fs::write(parent.path().join(CA_KEY_FILE), b"\xff\xfe").expect("written");
        says("ca.key is damaged: expected text in UTF-8");
        fs::remove_file(parent.path().join(CA_KEY_FILE)).expect("removed");
        says("ca.key is missing: expected the private key of ca.crt");
        assert_eq!(folder.read(CA_CERTIFICATE_FILE).expect("read").as_deref(), Some(made.certificate_pem()));
        folder.write(CA_CERTIFICATE_FILE, "").expect("written");
        folder.write(CA_KEY_FILE, made.key_pem()).expect("written");
        says("ca.crt is damaged: expected the certificate of an authority");
        fs::remove_file(parent.path().join(CA_CERTIFICATE_FILE)).expect("removed");
        says("ca.crt is missing: expected the certificate that kubeconfigs and Nodes trust");
        assert_eq!(folder.read(CA_KEY_FILE).expect("read").as_deref(), Some(made.key_pem()));
    }
}
