//! A folder that is opened but not served yet, so that the caller can check its objects first.

use std::sync::Arc;

use crate::server::config::Config;
use crate::storage::StorageError;
use crate::storage::database::{Database, State};
use crate::storage::folder::{Folder, Past};
use crate::values::key::Key;
use crate::values::object::Object;

/// Content of a data folder. Nothing is committed before [`Server::resume`](crate::Server::resume).
#[derive(Debug)]
pub struct Kept {
    pub(crate) folder: Folder,
    pub(crate) database: Database,
    pub(crate) state: State,
}

impl Kept {
    /// Reads the state of a folder. Creates an empty state if the folder has none.
    ///
    /// # Errors
    /// When the state cannot be read, or was not written by a server.
    pub fn open(folder: Folder) -> Result<Self, StorageError> {
        let (database, state) = Database::open(&folder)?;
        Ok(Self { folder, database, state })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Checks that the server's signing keys exist and are intact, if they were ever used. Detects
    /// the errors of [`Server::resume`](crate::Server::resume) before anything is changed.
    ///
    /// # Errors
    /// When a key is missing or damaged. The error names the file.
    pub fn check_keys(&self, config: &Config) -> Result<(), StorageError> {
        if config.ca.is_none() {
            self.folder.read_certificate_authority(self.past(), config.clock.now())?;
        }
        if config.token_key.is_none() {
            self.folder.read_token_key(self.past())?;
        }
        Ok(())
    }

    /// Lists the objects of a resource (`nodes`, `machines.machine.sapcloud.io`), in list order.
    /// The server takes over these objects, and parsing makes them larger for good. A caller that
    /// inspects many objects should [`glance`](Object::glance).
    pub fn objects(&self, resource: &str) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        let of_resource = self.state.objects.iter().filter(move |(of, ..)| **of == *resource);
        of_resource.map(|(_, key, object)| (key, object))
    }

    pub(crate) fn past(&self) -> Past {
        if self.state.revision == 0 { Past::None } else { Past::Some }
    }
}
