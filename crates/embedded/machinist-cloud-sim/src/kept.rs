//! The ledger of a folder in which no cloud goes on yet: the moment to compare it with what else must fit to it.

use std::path::{Path, PathBuf};

use crate::journal::Found;
use crate::state::State;
use crate::{Clock, Ledger, OpenError};

/// What a folder keeps, read. Nobody else can use it meanwhile, and nothing in it is changed before
/// [`Cloud::resume`](crate::Cloud::resume): not even what a crash left.
#[derive(Debug)]
pub struct Kept {
    pub(crate) folder: PathBuf,
    pub(crate) found: Found,
}

impl Kept {
    /// Reads the ledger of a folder, if it has one.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or another process uses it.
    pub fn read(folder: &Path) -> Result<Option<Self>, OpenError> {
        let found = Found::in_folder(folder)?;
        Ok(found.map(|found| Self { folder: folder.to_owned(), found }))
    }

    /// What it says by now: deletions end while nobody looks.
    pub fn ledger(&self, clock: &Clock) -> Ledger {
        let mut state = State::default();
        for line in &self.found.lines {
            state.apply(&line.commit);
        }
        Ledger { at: clock.now(), entries: state.ever().cloned().collect() }
    }
}
