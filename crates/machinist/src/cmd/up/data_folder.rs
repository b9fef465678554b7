//! The folder of `--data-dir`: whether it is one of ours, and whether what lies in it belongs together.
//!
//! ```text
//! lock            while a process has the folder
//! state.redb      the API server's objects          ca.crt, ca.key, tokens.key   what it signs with
//! ledger.jsonl    every instance of the cloud       disks                        what its instances wrote
//! up.json         what was applied, and for whom    kubeconfig                   written at each start
//! ```
//!
//! They are made in this order: lock, ledger, state, keys, and the rest; so of a first start that was killed there is never a later one
//! without the earlier ones. API server and cloud each trust their own files. Here they are compared, before either acts: controllers that
//! see half of a world would mend it by deleting and making machines. What is missing is an error that says what helps; what
//! heals by itself, or is made again, is a note.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::bail;
use machinist_apiserver::{Config, Folder, Kept, Server, StorageError};
use machinist_cloud_sim::{Cloud, Ledger};
use machinist_node_sim::Identity;
use serde_json::Value;

use super::kept::{self, Note};
use crate::output;
use crate::wiring::{self, LEDGER_FILE, set_aside};

/// Made by the API server after its state, and by `up` after both: where one of them is, there was a state.
const MADE_AFTER_THE_STATE: [&str; 4] = ["ca.crt", "ca.key", "tokens.key", "up.json"];
/// One of these is in each folder of ours, from the first moment on. The ledger alone is that of `machinist sim-cloud`.
const OURS: [&str; 3] = ["lock", STATE_FILE, LEDGER_FILE];
const STATE_FILE: &str = "state.redb";
/// What a new file system has in its first folder.
const LOST_AND_FOUND: &str = "lost+found";

/// What keeps a state, with that of an earlier run if there is one.
pub(super) struct Opened {
    pub server: Server,
    pub cloud: Cloud,
    /// There was a state in the folder.
    pub is_continued: bool,
    /// What an earlier run applied.
    pub note: Option<Note>,
    /// What people should know about the folder.
    pub remarks: Vec<String>,
}

/// Opens a folder.
///
/// # Errors
/// Says which file is not as it should be, that nothing was changed, and what helps.
pub(super) fn open(path: &Path, config: Config) -> anyhow::Result<Opened> {
    let flag = format!("--data-dir {}", path.display());
    refuse_that_of_others(path)?;
    // Locked before anything in it is looked at.
    let folder = Folder::open(path).map_err(|error| refusal(path, error))?;
    if !Folder::holds_state(path) {
        let lost = files(path, &MADE_AFTER_THE_STATE);
        if !lost.is_empty() {
            bail!("{flag}: {}", without_state(path, &lost, alive_in_ledger(path)?));
        }
        // Before there is any state: a start that ends in between is then a first start again.
        let cloud = wiring::open_ledger(path)?;
        if 0 < cloud.alive() {
            bail!("{flag}: {}", without_state(path, &[], cloud.alive()));
        }
        let server = Kept::open(folder).and_then(|kept| Server::resume(config, kept));
        let server = server.map_err(|error| refusal(path, error))?;
        return Ok(Opened { server, cloud, is_continued: false, note: None, remarks: Vec::new() });
    }
    let kept = Kept::open(folder).map_err(|error| refusal(path, error))?;
    let world = World::read(&kept);
    let has_ledger = path.join(LEDGER_FILE).exists();
    if !has_ledger && let Some(first) = world.recorded.first() {
        bail!("{flag}: {}", without_instances(path, "is missing", world.recorded.len(), first));
    }
    let mut remarks = Vec::new();
    let note = note(path, &kept, &mut remarks)?;
    let cloud = wiring::open_ledger(path)?;
    let ledger = cloud.ledger();
    let unknown = world.unknown_to(&ledger);
    if let Some(first) = unknown.first() {
        let found = match ledger.ever().len() {
            0 => "is empty".to_owned(),
            1 => "knows 1 instance".to_owned(),
            count => format!("knows {count} instances"),
        };
        bail!("{flag}: {}", without_instances(path, &found, unknown.len(), first));
    }
    if !has_ledger && note.is_some() {
        let file = path.join(LEDGER_FILE);
        remarks.push(format!(
            "{} is missing; no Machine names an instance, so the cloud begins a new one",
            file.display()
        ));
    }
    remarks.extend(world.strangers_in(&ledger));
    remarks.extend(world.lost_disks(path, &cloud, &ledger));
    if note.is_some() && kept::address(path).is_none() {
        let file = path.join("kubeconfig");
        remarks.push(format!(
            "{} is missing or damaged, and is written again: the API server may have another address than before",
            file.display()
        ));
    }
    let server = Server::resume(config, kept).map_err(|error| refusal(path, error))?;
    Ok(Opened { server, cloud, is_continued: true, note, remarks })
}

/// Somebody's home is no place for our files, and what is in it may not be a user's to lose.
fn refuse_that_of_others(path: &Path) -> anyhow::Result<()> {
    // What cannot be listed is told by whoever opens it.
    let Ok(entries) = fs::read_dir(path) else { return Ok(()) };
    let others = entries.flatten().map(|entry| entry.file_name()).find(|name| name != LOST_AND_FOUND);
    let Some(other) = others else { return Ok(()) };
    if files(path, &OURS).is_empty() {
        let path = path.display();
        bail!(
            "--data-dir {path}: expected a new or empty folder, or one that an earlier run left; this one holds other things, such as \
             {}. Nothing was changed. Name a folder of its own, for example {path}/machinist",
            other.display()
        );
    }
    Ok(())
}

/// Those of the names that are there.
fn files<'n>(folder: &Path, names: &[&'n str]) -> Vec<&'n str> {
    // A link that leads nowhere is there, too.
    names.iter().filter(|name| fs::symlink_metadata(folder.join(name)).is_ok()).copied().collect()
}

/// How many instances are alive, without making a ledger where there is none.
fn alive_in_ledger(folder: &Path) -> anyhow::Result<usize> {
    if folder.join(LEDGER_FILE).exists() { Ok(wiring::open_ledger(folder)?.alive()) } else { Ok(0) }
}

fn without_state(folder: &Path, there: &[&str], alive: usize) -> String {
    let file = folder.join(STATE_FILE);
    let mut found = Vec::new();
    if let Some((last, others)) = there.split_last() {
        let verb = if others.is_empty() { "is" } else { "are" };
        let names =
            if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) };
        found.push(format!("{names}, which belong to it, {verb} there"));
    }
    let (instances, them) = match alive {
        0 => (String::new(), "what the folder holds"),
        1 => ("1 instance is".to_owned(), "this instance"),
        count => (format!("{count} instances are"), "these instances"),
    };
    if 0 < alive {
        found.push(format!("{instances} alive in {}", folder.join(LEDGER_FILE).display()));
    }
    format!(
        "{} is missing, the API server's objects; {}. Without it nobody knows whose they are. Nothing was changed. Bring {STATE_FILE} \
         back from a copy of the folder; or start anew, without {them}, by moving the folder away: {}",
        file.display(),
        found.join(", and "),
        set_aside(folder)
    )
}

fn without_instances(folder: &Path, found: &str, count: usize, first: &Recorded) -> String {
    let (ledger, state) = (folder.join(LEDGER_FILE), folder.join(STATE_FILE));
    let machines = match count {
        1 => "1 Machine names an instance that it never had:".to_owned(),
        _ => format!("{count} Machines name instances that it never had, such as"),
    };
    format!(
        "{} {found}, and in {} {machines} {} of Machine {}. The cloud has lost what the API server \
         remembers. Nothing was changed. Bring {LEDGER_FILE} back from a copy of the folder; or start anew by moving the folder away: {}",
        ledger.display(),
        state.display(),
        first.instance,
        first.machine,
        set_aside(folder)
    )
}

/// Why the API server cannot go on with a folder, and what helps.
fn refusal(folder: &Path, error: StorageError) -> anyhow::Error {
    let flag = format!("--data-dir {}", folder.display());
    match error {
        StorageError::Io { .. } => {
            anyhow::Error::new(error).context(format!("{flag}: expected a folder that can be written"))
        }
        StorageError::InUse { .. } => anyhow::Error::new(error).context(flag),
        StorageError::Newer { .. } => {
            let error = output::one_line(&error.into());
            anyhow::anyhow!("{flag}: {error}; nothing was changed")
        }
        StorageError::Foreign { .. }
        | StorageError::Damaged { .. }
        | StorageError::Missing { .. }
        | StorageError::Certificates { .. } => {
            let error = output::one_line(&error.into());
            anyhow::anyhow!(
                "{flag}: {error}. Nothing was changed. Bring the file back from a copy of the folder; or start anew by moving the folder \
                 away: {}",
                set_aside(folder)
            )
        }
        StorageError::Failed { .. } => failure(folder, error),
    }
}

/// The API server cannot write any more. What helps?
pub(super) fn failure(folder: &Path, error: StorageError) -> anyhow::Error {
    let folder = folder.display();
    let error = output::one_line(&error.into());
    anyhow::anyhow!(
        "--data-dir {folder}: {error}. Everything that was answered is kept, nothing else was. When it can be written again, start again: \
         machinist up --data-dir {folder}"
    )
}

/// The note of an earlier run; made again from the objects where it is lost.
fn note(path: &Path, kept: &Kept, remarks: &mut Vec<String>) -> anyhow::Result<Option<Note>> {
    let file = path.join(kept::NOTE_FILE);
    let found = Note::read(kept.folder());
    if let Ok(Some(note)) = found {
        return Ok((!note.unfinished).then_some(note));
    }
    let namespaces = kept::namespaces(kept);
    let write =
        |namespace: &str| format!("echo '{{\"namespace\":\"{namespace}\"}}' > {}", wiring::in_shell(&file));
    let flag = format!("--data-dir {}", path.display());
    let mut namespaces = namespaces.iter();
    match (found, namespaces.next(), namespaces.next()) {
        (Err(error), first, _) => bail!(
            "{flag}: {error}. Nothing was changed. Bring the file back, or write it anew: {}",
            write(first.map_or("default", String::as_str))
        ),
        (Ok(_), None, _) => Ok(None),
        (Ok(_), Some(namespace), None) => {
            remarks.push(format!(
                "{} is missing; goes on in namespace {namespace}, where the machine objects are",
                file.display()
            ));
            let note = Note::of(namespace);
            note.write(kept.folder())?;
            Ok(Some(note))
        }
        (Ok(_), Some(first), Some(second)) => bail!(
            "{flag}: {} is missing, and there are machine objects in namespaces {first} and {second}. Nothing was changed. Say which one \
             the controllers serve: {}",
            file.display(),
            write(first)
        ),
    }
}

/// What the API server's objects say about instances.
struct World {
    /// The instances that Machines name.
    recorded: Vec<Recorded>,
    /// The uids of all Machines: the keys of their instances.
    uids: BTreeSet<String>,
    /// The names of Nodes.
    nodes: BTreeSet<String>,
}

/// An instance that a machine controller recorded on its Machine.
struct Recorded {
    /// `namespace/name`.
    machine: String,
    /// The provider id.
    instance: String,
}

impl World {
    fn read(kept: &Kept) -> Self {
        let machines = || kept.objects("machines.machine.sapcloud.io");
        let uid =
            |machine: &Value| machine.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        let recorded = machines().filter_map(|machine| {
            let value = machine.value();
            let instance =
                value.pointer("/spec/providerID").and_then(Value::as_str).filter(|id| !id.is_empty())?;
            // A person may write any id into a Machine. The name of its Node is written with it by a controller that saw the instance.
            value.pointer("/metadata/labels/node")?;
            let machine = format!("{}/{}", machine.namespace(), machine.name());
            Some(Recorded { machine, instance: instance.to_owned() })
        });
        Self {
            recorded: recorded.collect(),
            uids: machines().filter_map(|machine| uid(machine.value())).collect(),
            nodes: kept.objects("nodes").map(|node| node.name().to_owned()).collect(),
        }
    }

    /// Those that were never made, as far as the ledger knows. One that it knows to be gone is nothing to worry about: somebody deleted it,
    /// and its Machine is replaced.
    fn unknown_to(&self, ledger: &Ledger) -> Vec<&Recorded> {
        let ever: BTreeSet<&str> = ledger.ever().iter().map(|entry| entry.id.as_str()).collect();
        self.recorded.iter().filter(|recorded| !ever.contains(&*recorded.instance)).collect()
    }

    /// Instances that nobody here will ever delete.
    fn strangers_in(&self, ledger: &Ledger) -> Option<String> {
        let recorded: BTreeSet<&str> = self.recorded.iter().map(|recorded| &*recorded.instance).collect();
        let strangers = ledger.alive().filter(|entry| {
            let is_made_for = entry.key.as_ref().is_some_and(|key| self.uids.contains(key.as_str()));
            !is_made_for && !recorded.contains(entry.id.as_str())
        });
        let strangers: Vec<_> = strangers.collect();
        let first = strangers.first()?;
        let count = match strangers.len() {
            1 => "1 instance in the cloud belongs".to_owned(),
            count => format!("{count} instances in the cloud belong"),
        };
        Some(format!(
            "{count} to no Machine, such as {} ({}): nobody here deletes what it does not know; POST /admin/kill at the cloud's address does",
            first.id, first.name
        ))
    }

    /// Machines that have registered and do not find what they wrote then.
    fn lost_disks(&self, path: &Path, cloud: &Cloud, ledger: &Ledger) -> Option<String> {
        let lost = ledger.alive().filter(|entry| {
            let has_joined = entry.boots().is_some() && self.nodes.contains(entry.name.as_str());
            has_joined && !matches!(Identity::load(&cloud.disk(&entry.id)), Ok(Some(_)))
        });
        let lost: Vec<_> = lost.collect();
        let first = lost.first()?;
        let count = match lost.len() {
            1 => "1 machine has lost the certificate on its disk".to_owned(),
            count => format!("{count} machines have lost the certificates on their disks"),
        };
        Some(format!(
            "{count} in {}, such as {}: such a machine cannot go on as its Node, which becomes NotReady, and \
             its Machine is replaced after its health timeout",
            path.join("disks").display(),
            first.name
        ))
    }
}
