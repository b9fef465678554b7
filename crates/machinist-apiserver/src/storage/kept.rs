//! A folder that was opened and is not served yet: the moment to compare its objects with what else must fit to them.

use std::sync::Arc;

use crate::object::Object;
use crate::storage::StorageError;
use crate::storage::database::{Database, State};
use crate::storage::folder::Folder;

/// What a folder keeps, read. Nothing is committed before [`Server::resume`](crate::Server::resume).
#[derive(Debug)]
pub struct Kept {
    pub(crate) folder: Folder,
    pub(crate) database: Database,
    pub(crate) state: State,
}

impl Kept {
    /// Reads the state of a folder, and begins one if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not what a server wrote.
    pub fn open(folder: Folder) -> Result<Self, StorageError> {
        let (database, state) = Database::open(&folder)?;
        Ok(Self { folder, database, state })
    }

    /// Where it lies.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Every object of a resource (`nodes`, `machines.machine.sapcloud.io`), in list order.
    pub fn objects(&self, resource: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.state.objects.iter().filter(move |(of, ..)| **of == *resource).map(|(_, _, object)| object)
    }
}
