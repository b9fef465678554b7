//! Reads the ledger of a folder before a cloud is opened on it, so that a caller can compare it
//! with other data.

use std::path::{Path, PathBuf};

use crate::journal::Found;
use crate::state::State;
use crate::{Clock, Ledger, OpenError};

/// The ledger of a folder, read and locked. No other process can use it, and nothing in the folder
/// is changed before [`Cloud::resume`](crate::Cloud::resume), not even the partial line of a crash.
#[derive(Debug)]
pub struct Kept {
    pub(crate) folder: PathBuf,
    pub(crate) found: Found,
}

impl Kept {
    /// Reads the ledger of a folder, if it has one.
    ///
    /// # Errors
    /// When the ledger cannot be read, is damaged, or is in use by another process.
    pub fn read(folder: &Path) -> Result<Option<Self>, OpenError> {
        let found = Found::in_folder(folder)?;
        Ok(found.map(|found| Self { folder: folder.to_owned(), found }))
    }

    /// The ledger as of now. Deletions that were in progress may have ended meanwhile.
    pub fn ledger(&self, clock: &Clock) -> Ledger {
        let mut state = State::default();
        for line in &self.found.lines {
            state.apply(&line.commit);
        }
        Ledger { at: clock.now(), entries: state.ever().cloned().collect() }
    }
}
