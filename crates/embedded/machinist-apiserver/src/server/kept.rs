//! A folder that was opened and is not served yet: the moment to compare its objects with what else must fit to them.

use std::sync::Arc;

use crate::server::config::Config;
use crate::storage::StorageError;
use crate::storage::database::{Database, State};
use crate::storage::folder::{Folder, Past};
use crate::store::key::Key;
use crate::values::object::Object;

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

    /// Whether what a server signs with is there and whole, where something was ever signed with it: what
    /// [`Server::resume`](crate::Server::resume) would complain of, while nothing is changed yet.
    ///
    /// # Errors
    /// Names the file.
    pub fn check_keys(&self, config: &Config) -> Result<(), StorageError> {
        if config.ca.is_none() {
            self.folder.read_certificate_authority(self.past(), config.clock.now())?;
        }
        if config.token_key.is_none() {
            self.folder.read_token_key(self.past())?;
        }
        Ok(())
    }

    /// Every object of a resource (`nodes`, `machines.machine.sapcloud.io`), in list order. They become the server's: who looks at many
    /// should [`glance`](Object::glance), or they stay as large as they are read.
    pub fn objects(&self, resource: &str) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        let of_resource = self.state.objects.iter().filter(move |(of, ..)| **of == *resource);
        of_resource.map(|(_, key, object)| (key, object))
    }

    pub(crate) fn past(&self) -> Past {
        if self.state.revision == 0 { Past::None } else { Past::Some }
    }
}
