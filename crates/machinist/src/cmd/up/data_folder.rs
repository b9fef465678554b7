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

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::bail;
use machinist_apiserver::{Config, Folder, Kept, Key, Server, StorageError};
use machinist_cloud_sim::{Clock, Cloud, Entry, Ledger};
use machinist_node_sim::Identity;

use super::kept::{self, NOTE_FILE, Note};
use crate::embedded::data_folder::{
    self, API_SERVER_FILE, Command, KEY_FILES, KUBECONFIG_FILE, LOCK_FILE, STATE_FILE,
};
use crate::output;
use crate::wiring::{self, LEDGER_FILE, in_shell, set_aside};

/// Made after the state, by the API server or by `up`: where one of them is, there was a state.
const MADE_AFTER_THE_STATE: [&str; 4] = [KEY_FILES[0], KEY_FILES[1], KEY_FILES[2], NOTE_FILE];
/// What an early end of a first start may leave.
const OURS: [&str; 9] = [
    LOCK_FILE,
    STATE_FILE,
    LEDGER_FILE,
    "disks",
    KUBECONFIG_FILE,
    KEY_FILES[0],
    KEY_FILES[1],
    KEY_FILES[2],
    NOTE_FILE,
];
/// A namespace that has no machine objects, as a rule.
const NOBODYS_NAMESPACE: &str = "nobody";

/// What a folder is opened for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// To apply manifests whose machine objects are in this namespace, whatever was applied before.
    Apply(&'a str),
    /// To go on with what it holds. Where nothing was applied yet, this is the namespace of what will be.
    GoOn(&'a str),
}

/// What keeps a state, with that of an earlier run if there is one.
pub(super) struct Opened {
    pub server: Server,
    pub cloud: Cloud,
    /// There was a state in the folder.
    pub is_continued: bool,
    /// What an earlier run applied, to go on with.
    pub note: Option<Note>,
    /// What people should know about the folder.
    pub remarks: Vec<String>,
    /// Instances that nobody here will ever delete.
    pub strangers: Option<Strangers>,
}

/// Instances of no Machine.
pub(super) struct Strangers {
    count: usize,
    first: Entry,
}

/// Opens a folder. Everything is read and compared before the first file is written.
///
/// # Errors
/// Says which file is not as it should be, that nothing was changed, and what helps.
pub(super) fn open(path: &Path, config: Config, purpose: Purpose<'_>) -> anyhow::Result<Opened> {
    refuse_that_of_api_server(path)?;
    // The state is ours alone. The ledger alone is that of `machinist sim-cloud`.
    data_folder::refuse_that_of_others(path, &[STATE_FILE, LEDGER_FILE], &OURS)?;
    // Locked before anything in it is looked at.
    let folder = Folder::open(path).map_err(|error| refusal(path, error))?;
    // One may have begun there meanwhile, and have ended.
    refuse_that_of_api_server(path)?;
    if !Folder::holds_state(path) {
        return begin(path, config, folder);
    }
    let kept = Kept::open(folder).map_err(|error| refusal(path, error))?;
    kept.check_keys(&config).map_err(|error| refusal(path, error))?;
    let Noted { note, is_lost } = note(path, &kept, purpose)?;
    let served = match (purpose, &note) {
        (Purpose::GoOn(_), Some(note)) => &note.namespace,
        (Purpose::Apply(namespace) | Purpose::GoOn(namespace), _) => namespace,
    };
    let world = World::read(&kept);
    let kept_ledger = wiring::read_ledger(path)?;
    let ledger = kept_ledger.as_ref().map(|kept| kept.ledger(&Clock::wall()));
    let (unknown, unserved): (Vec<_>, Vec<_>) =
        world.unknown_to(ledger.as_ref()).into_iter().partition(|it| it.machine.namespace() == served);
    if let Some(first) = unknown.first() {
        let refusal = without_instances(path, ledger.as_ref(), &unknown, first);
        bail!("--data-dir {}: {refusal}", path.display());
    }

    let has_ledger = ledger.is_some();
    let cloud = wiring::resume_ledger(path, kept_ledger)?;
    let ledger = cloud.ledger();
    let mut remarks = Vec::new();
    if is_lost && let Some(note) = &note {
        remarks.push(format!(
            "{} is missing; goes on in namespace {}, where the machine objects are",
            path.join(NOTE_FILE).display(),
            note.namespace
        ));
    }
    // It is made before the state: where there is one and not the other, it was lost.
    if !has_ledger {
        let file = path.join(LEDGER_FILE);
        remarks.push(format!(
            "{} is missing; no Machine in namespace {served} names an instance, so the cloud begins a new one",
            file.display()
        ));
    }
    remarks.extend(told_of_unserved(&unserved, served));
    let strangers = world.strangers_in(&ledger);
    remarks.extend(world.lost_disks(path, &cloud, &ledger));
    if note.is_some() {
        remarks.extend(data_folder::told_of_lost_kubeconfig(path));
    }
    let server = Server::resume(config, kept).map_err(|error| refusal(path, error))?;
    if is_lost && let (Some(note), Some(folder)) = (&note, server.folder()) {
        note.write(folder)?;
    }
    let note = match purpose {
        Purpose::Apply(_) => None,
        Purpose::GoOn(_) => note,
    };
    Ok(Opened { server, cloud, is_continued: true, note, remarks, strangers })
}

/// What a start that ended well has made, and a later one may have to refuse to do without.
pub(super) fn lost(path: &Path) -> Vec<&'static str> {
    let needed = [STATE_FILE, LEDGER_FILE, KEY_FILES[0], KEY_FILES[1], KEY_FILES[2]];
    let there = data_folder::files(path, &needed);
    needed.into_iter().filter(|name| !there.contains(name)).collect()
}

/// The first start on a folder.
fn begin(path: &Path, config: Config, folder: Folder) -> anyhow::Result<Opened> {
    let lost = data_folder::files(path, &MADE_AFTER_THE_STATE);
    let ledger = wiring::read_ledger(path)?;
    let alive = ledger.as_ref().map_or(0, |kept| kept.ledger(&Clock::wall()).alive().count());
    if !lost.is_empty() || 0 < alive {
        bail!("--data-dir {}: {}", path.display(), without_state(path, &lost, alive));
    }
    // Before there is any state: a start that ends in between is then a first start again.
    let cloud = wiring::resume_ledger(path, ledger)?;
    let server = Kept::open(folder).and_then(|kept| Server::resume(config, kept));
    let server = server.map_err(|error| refusal(path, error))?;
    Ok(Opened { server, cloud, is_continued: false, note: None, remarks: Vec::new(), strangers: None })
}

/// Machine objects there may belong to controllers that are not ours, and their instances to another cloud.
fn refuse_that_of_api_server(path: &Path) -> anyhow::Result<()> {
    if data_folder::files(path, &[API_SERVER_FILE]).is_empty() {
        return Ok(());
    }
    bail!(
        "--data-dir {}: expected a folder of `machinist up`, and this one was made by `machinist api-server`: other controllers may own \
         the machine objects in it. Nothing was changed. Name another folder; or go on with this one: machinist api-server --data-dir {}",
        path.display(),
        in_shell(path)
    );
}

fn without_state(folder: &Path, there: &[&str], alive: usize) -> String {
    let file = folder.join(STATE_FILE);
    let mut found = Vec::new();
    if !there.is_empty() {
        found.push(data_folder::told_of_left_over(there));
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

fn without_instances(
    folder: &Path,
    ledger: Option<&Ledger>,
    unknown: &[Unknown<'_>],
    first: &Unknown<'_>,
) -> String {
    let (file, state, note) = (folder.join(LEDGER_FILE), folder.join(STATE_FILE), folder.join(NOTE_FILE));
    let knows = match ledger.map(|ledger| ledger.ever().len()) {
        None => "is missing".to_owned(),
        Some(0) => "is empty".to_owned(),
        Some(1) => "knows 1 instance".to_owned(),
        Some(count) => format!("knows {count} instances"),
    };
    let are_others = unknown.iter().any(|it| it.is_of_another);
    let (never, so) = match are_others {
        false => ("never had", "The cloud has lost what the API server remembers"),
        true => ("never had or made for others", "It is not the ledger of these Machines"),
    };
    let machines = match unknown.len() {
        1 => format!("1 Machine names an instance that it {never}:"),
        count => format!("{count} Machines name instances that it {never}, such as"),
    };
    let namespace = first.machine.namespace();
    format!(
        "{} {knows}, and in {} {machines} {} of Machine {}. {so}. Nothing was changed. Bring {LEDGER_FILE} back from a copy of the \
         folder. Where there is none, what else the folder holds can be kept without {these}: let the controllers serve nobody, echo \
         '{{\"namespace\":\"{NOBODYS_NAMESPACE}\"}}' > {note_file} && machinist up --data-dir {data_dir}; set \
         metadata.finalizers of {these} and of {nodes} to null, and delete them with kubectl; stop it, and start again after echo \
         '{{\"namespace\":\"{namespace}\"}}' > {note_file}. Or start anew by moving the folder away: {}",
        file.display(),
        state.display(),
        first.instance,
        first.machine,
        set_aside(folder),
        these = if unknown.len() == 1 { "this Machine" } else { "these Machines" },
        // A Node that is left has the provider id of the next instance of that number, and often its name.
        nodes = if unknown.len() == 1 { "its Node" } else { "their Nodes" },
        note_file = in_shell(&note),
        data_dir = in_shell(folder),
    )
}

/// Machines that the controllers leave alone may be of another cloud.
fn told_of_unserved(unknown: &[Unknown<'_>], served: &str) -> Option<String> {
    let first = unknown.first()?;
    let machines = match unknown.len() {
        1 => "1 Machine in another namespace names an instance".to_owned(),
        count => format!("{count} Machines in other namespaces name instances"),
    };
    Some(format!(
        "{machines} that this cloud did not make for them, such as {} of Machine {}: the controllers serve namespace {served} and \
         leave them alone",
        first.instance, first.machine
    ))
}

fn refusal(folder: &Path, error: StorageError) -> anyhow::Error {
    data_folder::refusal(Command::Up, folder, error)
}

/// The note of an earlier run that applied everything.
struct Noted {
    note: Option<Note>,
    /// It is not there, and said by the objects: to be written again.
    is_lost: bool,
}

/// The note of an earlier run; known from the objects where it is lost. Who applies a manifest needs none: that names the namespace.
fn note(path: &Path, kept: &Kept, purpose: Purpose<'_>) -> anyhow::Result<Noted> {
    let file = path.join(NOTE_FILE);
    let found = Note::read(kept.folder());
    let as_found = |note: Option<Note>| Noted { note: note.filter(|note| !note.unfinished), is_lost: false };
    match (purpose, &found) {
        (Purpose::Apply(_), _) => return Ok(as_found(found.ok().flatten())),
        (Purpose::GoOn(_), Ok(Some(note))) => return Ok(as_found(Some(note.clone()))),
        (Purpose::GoOn(_), Ok(None) | Err(_)) => {}
    }
    let namespaces = kept::namespaces(kept);
    let write = |namespace: &str| format!("echo '{{\"namespace\":\"{namespace}\"}}' > {}", in_shell(&file));
    let flag = format!("--data-dir {}", path.display());
    let mut namespaces = namespaces.iter();
    match (found, namespaces.next(), namespaces.next()) {
        // It may be as it should be.
        (Err(error), _, _) if matches!(error.downcast_ref(), Some(StorageError::Io { .. })) => bail!(
            "{flag}: {}. Nothing was changed. Start again when it can be read",
            output::one_line(&error)
        ),
        (Err(error), first, _) => bail!(
            "{flag}: {}. Nothing was changed. Bring the file back, or write it anew: {}",
            output::one_line(&error),
            write(first.map_or("default", String::as_str))
        ),
        (Ok(_), None, _) => Ok(as_found(None)),
        (Ok(_), Some(namespace), None) => Ok(Noted { note: Some(Note::of(namespace)), is_lost: true }),
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
    machines: Vec<Machine>,
    /// The names of Nodes.
    nodes: BTreeSet<String>,
}

/// A Machine, as far as it decides whose an instance is.
struct Machine {
    key: Key,
    /// The key of its instance.
    uid: String,
    recorded: Option<Recorded>,
}

/// What a machine controller recorded of an instance.
struct Recorded {
    /// The provider id.
    instance: String,
    node: String,
}

/// An instance that a Machine names and that the ledger does not have for it.
struct Unknown<'a> {
    machine: &'a Key,
    instance: &'a str,
    /// There is one of that id: ids are numbers, and begin anew in each folder.
    is_of_another: bool,
}

impl World {
    fn read(kept: &Kept) -> Self {
        let machines = kept.objects("machines.machine.sapcloud.io").map(|(key, object)| {
            let value = object.glance();
            let text = |path: &str| Some(value.pointer(path)?.as_str()?.to_owned());
            let instance = text("/spec/providerID").filter(|id| !id.is_empty());
            // A person may write any id into a Machine. The name of its Node is written with it by a controller that saw the instance.
            let recorded = instance.zip(text("/metadata/labels/node"));
            let recorded = recorded.map(|(instance, node)| Recorded { instance, node });
            Machine { key: key.clone(), uid: text("/metadata/uid").unwrap_or_default(), recorded }
        });
        Self {
            machines: machines.collect(),
            nodes: kept.objects("nodes").map(|(key, _)| key.name().to_owned()).collect(),
        }
    }

    fn recorded(&self) -> impl Iterator<Item = (&Machine, &Recorded)> {
        self.machines.iter().filter_map(|machine| Some((machine, machine.recorded.as_ref()?)))
    }

    /// Those that were never made for their Machines, as far as the ledger knows. One that it knows to be gone is nothing to worry about:
    /// somebody deleted it, and its Machine is replaced.
    fn unknown_to(&self, ledger: Option<&Ledger>) -> Vec<Unknown<'_>> {
        let ever = ledger.map(Ledger::ever).unwrap_or_default();
        let ever: BTreeMap<&str, &Entry> = ever.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        let unknown = self.recorded().filter_map(|(machine, recorded)| {
            let entry = ever.get(&*recorded.instance);
            let is_its = entry.is_some_and(|entry| machine.has(recorded, entry));
            let unknown = Unknown {
                machine: &machine.key,
                instance: &recorded.instance,
                is_of_another: entry.is_some(),
            };
            (!is_its).then_some(unknown)
        });
        unknown.collect()
    }

    fn strangers_in(&self, ledger: &Ledger) -> Option<Strangers> {
        let uids: BTreeSet<&str> = self.machines.iter().map(|machine| &*machine.uid).collect();
        let recorded = self.recorded().map(|(machine, recorded)| (&*recorded.instance, (machine, recorded)));
        let recorded: BTreeMap<&str, _> = recorded.collect();
        let strangers = ledger.alive().filter(|entry| {
            let is_made_for = entry.key.as_ref().is_some_and(|key| uids.contains(key.as_str()));
            let named = recorded.get(entry.id.as_str());
            !is_made_for && !named.is_some_and(|(machine, recorded)| machine.has(recorded, entry))
        });
        let strangers: Vec<_> = strangers.collect();
        let first = strangers.first()?;
        Some(Strangers { count: strangers.len(), first: (*first).clone() })
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

impl Strangers {
    /// What to do about them, once it is known where the cloud answers.
    pub(super) fn told(&self, cloud_url: &str) -> String {
        let Self { count, first: Entry { id, name, .. } } = self;
        let count = match count {
            1 => "1 instance in the cloud belongs".to_owned(),
            count => format!("{count} instances in the cloud belong"),
        };
        format!(
            "{count} to no Machine, such as {id} ({name}): nobody here deletes what it does not know. To delete this one: curl -d \
             '{{\"id\":\"{id}\"}}' {cloud_url}/admin/kill"
        )
    }
}

impl Machine {
    /// Whether an instance of the recorded id is the one that was recorded.
    fn has(&self, recorded: &Recorded, entry: &Entry) -> bool {
        match &entry.key {
            Some(key) => key.as_str() == self.uid,
            None => entry.name.as_str() == recorded.node,
        }
    }
}
