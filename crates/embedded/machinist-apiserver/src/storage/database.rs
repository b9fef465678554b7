//! The database file: the current version of every object, and the revision counter.
//!
//! The file has two tables. `objects` maps `resource NUL key` to a row: the revision of the
//! object's last write, the length of the type at the start of its text, and the text as JSON.
//! `counters` holds the file's format and the revision of the newest commit, which may have been a
//! deletion.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{Builder, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::log::event::Event;
use crate::storage::error::StorageError;
use crate::storage::folder::{Folder, PRIVATE_FILE, STATE_FILE, beside, move_into_place};
use crate::values::key::Key;
use crate::values::object::Object;

/// The format that this version writes, and the newest that it can read.
const FORMAT: u64 = 1;
/// First bytes of a redb file.
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
/// The store holds everything in memory. The database's cache only speeds up writes.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const FORMAT_COUNTER: &str = "format";
const REVISION_COUNTER: &str = "revision";

/// Content of a file.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Revision of the newest commit.
    pub(crate) revision: u64,
    /// All objects, in order.
    pub(crate) objects: Vec<(Arc<str>, Key, Arc<Object>)>,
}

/// An open database file.
pub(crate) struct Database {
    inner: redb::Database,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

impl Database {
    /// Opens the file of a folder. Creates the file if it does not exist.
    pub(crate) fn open(folder: &Folder) -> Result<(Self, State), StorageError> {
        let path = folder.path().join(STATE_FILE);
        let io = |source| StorageError::Io { path: path.clone(), source };
        if !fs::exists(&path).map_err(io)? {
            make(&path)?;
        }
        let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(StorageError::Damaged { file: path, why: "it is empty".to_owned() });
        }
        if !begins_with_magic(&mut file).map_err(io)? {
            return Err(StorageError::Foreign { file: path });
        }
        // On a damaged file, redb returns an error or, rarely, panics.
        let opened = catch_unwind(|| open_file(file));
        let database = match opened.unwrap_or_else(|panic| Err(broken(&*panic))) {
            Ok(inner) => Database { inner },
            Err(error) => return Err(refusal(error, path)),
        };
        let read = catch_unwind(AssertUnwindSafe(|| database.read(&path)));
        let state = read.unwrap_or_else(|panic| Err(refusal(broken(&*panic), path.clone())))?;
        Ok((database, state))
    }

    /// Opens the state on a storage backend of the caller's, and begins one if the backend is
    /// empty.
    pub(crate) fn open_on(backend: impl redb::StorageBackend) -> Result<(Self, State), StorageError> {
        let path = PathBuf::from("test storage");
        let is_new = backend.len().is_ok_and(|length| length == 0);
        let opened = builder().create_with_backend(backend).map_err(redb::Error::from);
        let database = Database { inner: opened.map_err(|error| refusal(error, path.clone()))? };
        if is_new {
            database.initialise().map_err(|error| refusal(error, path.clone()))?;
        }
        let state = database.read(&path)?;
        Ok((database, state))
    }

    fn initialise(&self) -> Result<(), redb::Error> {
        let transaction = self.inner.begin_write()?;
        {
            transaction.open_table(OBJECTS)?;
            let mut counters = transaction.open_table(COUNTERS)?;
            counters.insert(FORMAT_COUNTER, FORMAT)?;
            counters.insert(REVISION_COUNTER, 0)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Writes a batch of commits to stable storage, atomically.
    pub(crate) fn write<'a>(&self, batch: impl Iterator<Item = &'a Event>) -> Result<(), redb::Error> {
        // Of several writes to one object, only the last counts.
        let mut last: BTreeMap<String, &Event> = BTreeMap::new();
        let mut revision = 0;
        for event in batch {
            revision = event.revision;
            last.insert(format!("{}\0{}", event.collection, event.key), event);
        }
        let mut transaction = self.inner.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for (place, event) in last {
                if event.deleted {
                    objects.remove(place.as_str())?;
                } else {
                    objects.insert(place.as_str(), &row(&event.object())[..])?;
                }
            }
            transaction.open_table(COUNTERS)?.insert(REVISION_COUNTER, revision)?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<State, StorageError> {
        let foreign = || StorageError::Foreign { file: path.to_owned() };
        let damaged = |why: String| StorageError::Damaged { file: path.to_owned(), why };
        let failed = |error: redb::Error| refusal(error, path.to_owned());
        let transaction = self.inner.begin_read().map_err(|e| failed(e.into()))?;
        let counters = match transaction.open_table(COUNTERS) {
            Err(redb::TableError::Storage(error)) => return Err(failed(error.into())),
            // The file contains tables of another program.
            Err(_) => return Err(foreign()),
            Ok(counters) => counters,
        };
        let counter = |name| {
            let read = counters.get(name).map_err(|e| failed(e.into()))?;
            read.map(|counter| counter.value()).ok_or_else(foreign)
        };
        let found = counter(FORMAT_COUNTER)?;
        if FORMAT < found {
            return Err(StorageError::Newer { file: path.to_owned(), found, known: FORMAT });
        }
        let revision = counter(REVISION_COUNTER)?;
        let table = transaction.open_table(OBJECTS).map_err(|e| failed(e.into()))?;
        let mut objects = Vec::new();
        let mut name: Arc<str> = "".into();
        for row in table.iter().map_err(|e| failed(e.into()))? {
            let (place, text) = row.map_err(|e| failed(e.into()))?;
            let place = place.value();
            let Some((resource, key)) = place.split_once('\0') else {
                return Err(damaged(format!("the entry {place:?} names no resource")));
            };
            let object =
                parse(text.value(), revision).map_err(|why| damaged(format!("{resource} {key}: {why}")))?;
            if *name != *resource {
                name = resource.into();
            }
            objects.push((name.clone(), Key::from_text(key), object));
        }
        Ok(State { revision, objects })
    }
}

/// Renders an object's row: eight bytes of revision, four bytes for the length of its type, and its
/// text.
fn row(object: &Object) -> Vec<u8> {
    let (text, after_type) = (object.text(), object.after_type());
    let mut row = Vec::with_capacity(HEAD + text.len());
    row.extend_from_slice(&object.revision().to_be_bytes());
    // A type is two short names, so the length fits.
    row.extend_from_slice(&u32::try_from(after_type).unwrap_or_default().to_be_bytes());
    row.extend_from_slice(&text);
    row
}

const HEAD: usize = 12;

/// Parses an object from its row. The error does not quote the row, because it may be a Secret.
fn parse(row: &[u8], newest: u64) -> Result<Arc<Object>, &'static str> {
    let (revision, rest) = row.split_first_chunk().ok_or("the revision is missing")?;
    let (after_type, text) = rest.split_first_chunk().ok_or("the length of the type is missing")?;
    let (revision, after_type) = (u64::from_be_bytes(*revision), u32::from_be_bytes(*after_type));
    if newest < revision {
        return Err("the object's revision is newer than the newest one");
    }
    let after_type = usize::try_from(after_type).map_err(|_| "the object's type is too long")?;
    Object::of_text(Bytes::copy_from_slice(text), after_type, revision)
        .ok_or("the object's text is not a JSON object")
}

/// Creates the file under another name first, so that a crash never leaves a partial file.
fn make(path: &Path) -> Result<(), StorageError> {
    let unfinished = beside(path, ".new");
    let io = |source| StorageError::Io { path: unfinished.clone(), source };
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        Ok(()) | Err(_) => {}
    }
    let mut open = OpenOptions::new();
    let file =
        open.read(true).write(true).create_new(true).mode(PRIVATE_FILE).open(&unfinished).map_err(io)?;
    let made = open_file(file).and_then(|inner| Database { inner }.initialise());
    made.map_err(|error| refusal(error, unfinished.clone()))?;
    move_into_place(&unfinished, path).map_err(io)
}

fn open_file(file: File) -> Result<redb::Database, redb::Error> {
    Ok(builder().create_with_backend(FileBackend::new(file)?)?)
}

fn builder() -> Builder {
    let mut builder = redb::Database::builder();
    // Checked at each start and not only after a crash, because everything read afterwards is
    // trusted.
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

fn begins_with_magic(file: &mut File) -> io::Result<bool> {
    let mut start = [0; MAGIC.len()];
    match file.read_exact(&mut start) {
        Ok(()) => Ok(start == MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Converts a panic of the database into an error.
pub(crate) fn broken(panic: &(dyn Any + Send)) -> redb::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    redb::Error::Corrupted(format!("the database panicked: {text}"))
}

fn refusal(error: redb::Error, file: PathBuf) -> StorageError {
    match error {
        redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
            StorageError::Damaged { file, why: source.to_string() }
        }
        redb::Error::Io(source) => StorageError::Io { path: file, source },
        // The folder's lock was free, so another program has the file open.
        redb::Error::DatabaseAlreadyOpen => StorageError::InUse { folder: file },
        error => StorageError::Damaged { file, why: error.to_string() },
    }
}
