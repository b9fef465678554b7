//! Opens the directory of `machinist up --data-dir` and checks that its files are consistent.
//!
//! ```text
//! lock            held while a process uses it      state.redb                   the API server's objects
//! ledger.jsonl    every instance of the cloud       ca.crt, ca.key, tokens.key   signing keys
//! up.json         the applied namespace             disks                        files of the instances
//! hcloud          a stand-in, instead of ledger     kubeconfig                   written at each start
//! docker          a cluster of containers, instead of ledger
//! local           the machines inside of pods, instead of ledger
//! ```
//!
//! Files are created in this order: lock, ledger, state, keys, and the rest. So if a first start is
//! killed, a file exists only together with all earlier files. The API server and the cloud each
//! trust their own files. This module compares these files before controllers run, because
//! controllers that see only a part of the state would delete and create machines. A missing file
//! is an error that explains the fix. A file that is recreated automatically is only a remark.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::bail;
use machinist_apiserver::{Config, Folder, Kept, Key, Server, StorageError};
use machinist_cloud_sim::{Clock, Cloud, Ledger, LedgerEntry};
use machinist_node_sim::NodeIdentity;

use super::cloud::{Backend, Choice, DOCKER, DOCKER_FILES, HCLOUD, LOCAL};
use super::earlier_run::{self, NOTE_FILE, Note};
use crate::clouds::UpCloud;
use crate::embedded::data_folder::{
    self, API_SERVER_FILE, Command, KEY_FILES, KUBECONFIG_FILE, LOCK_FILE, STATE_FILE,
};
use crate::output;
use crate::wiring::{LEDGER_FILE, in_shell, set_aside};

/// Files that the API server or `up` creates after the state. If one of them exists, there was a
/// state.
const MADE_AFTER_THE_STATE: [&str; 4] = [KEY_FILES[0], KEY_FILES[1], KEY_FILES[2], NOTE_FILE];
/// Files that an interrupted first start may leave.
const OURS: [&str; 12] = [
    LOCK_FILE,
    STATE_FILE,
    LEDGER_FILE,
    HCLOUD,
    DOCKER,
    LOCAL,
    "disks",
    KUBECONFIG_FILE,
    KEY_FILES[0],
    KEY_FILES[1],
    KEY_FILES[2],
    NOTE_FILE,
];
/// A namespace that usually has no machine objects.
const UNUSED_NAMESPACE: &str = "unused";

/// Purpose of opening a directory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// Apply manifests with machine objects in this namespace, regardless of earlier runs.
    Apply(&'a str),
    /// Continue with the stored state. If nothing was applied yet, this is the namespace of the
    /// quick start.
    GoOn(&'a str),
}

/// API server and cloud, with the state of an earlier run if there is one.
pub(super) struct Opened {
    pub server: Server,
    pub cloud: Backend,
    /// Whether the directory had a state.
    pub is_continued: bool,
    /// Note of an earlier run to continue with.
    pub note: Option<Note>,
    /// Remarks about the directory, for the user.
    pub remarks: Vec<String>,
    /// Instances that no controller will delete.
    pub strangers: Option<Strangers>,
}

/// Instances without a Machine.
pub(super) struct Strangers {
    count: usize,
    first: LedgerEntry,
}

/// Opens a directory. All files are read and compared before the first write.
///
/// # Errors
/// If the directory cannot be used. The error names the file and the fix, and says that nothing was
/// changed.
pub(super) fn open(
    path: &Path,
    config: Config,
    choice: &Choice,
    purpose: Purpose<'_>,
) -> anyhow::Result<Opened> {
    let cloud = choice.which();
    refuse_folder_of_api_server(path)?;
    // Only Machinist creates the state. A ledger without a state belongs to `machinist sim-cloud`.
    data_folder::refuse_foreign_folder(path, &[STATE_FILE, LEDGER_FILE], &OURS)?;
    cloud.refuse_folder_of_another_cloud(path)?;
    // The directory is locked before its files are checked.
    let folder = Folder::open(path).map_err(|error| refusal(path, error))?;
    // `api-server` may have used the directory before it was locked.
    refuse_folder_of_api_server(path)?;
    if !Folder::holds_state(path) {
        return begin(path, config, choice, folder);
    }
    let kept = Kept::open(folder).map_err(|error| refusal(path, error))?;
    kept.check_keys(&config).map_err(|error| refusal(path, error))?;
    let Noted { note, is_lost } = note(path, &kept, purpose)?;
    let served = match (purpose, &note) {
        (Purpose::GoOn(_), Some(note)) => &note.namespace,
        (Purpose::Apply(namespace) | Purpose::GoOn(namespace), _) => namespace,
    };
    let stored = Stored::read(&kept);
    let kept_ledger = cloud.read_ledger(path)?;
    let ledger = kept_ledger.as_ref().map(|kept| kept.ledger(&Clock::wall()));
    if let Some(docker) = choice.docker()
        && !docker.is_kept()
        && let Some((machine, recorded)) = stored.recorded().next()
    {
        bail!("--data-dir {}: {}", path.display(), without_cluster(path, machine, recorded));
    }
    // An engine has no ledger: the controllers look each container up. A pod is an object of the
    // API server, and its machine is recorded when its host starts it.
    let unknown = match cloud {
        UpCloud::Sim | UpCloud::Hcloud => stored.unknown_to(ledger.as_ref()),
        UpCloud::Docker | UpCloud::Local => Vec::new(),
    };
    let (unknown, unserved): (Vec<_>, Vec<_>) =
        unknown.into_iter().partition(|instance| instance.machine.namespace() == served);
    if let Some(first) = unknown.first() {
        let refusal = without_instances(path, cloud.ledger_file(), ledger.as_ref(), &unknown, first);
        bail!("--data-dir {}: {refusal}", path.display());
    }

    let has_ledger = ledger.is_some();
    let disks = cloud.disks(path);
    let ledger_file = path.join(cloud.ledger_file());
    let cloud = choice.resume(path, kept_ledger)?;
    let mut remarks = Vec::new();
    if is_lost && let Some(note) = &note {
        remarks.push(format!(
            "{} is missing. Continuing in namespace {}, which has the machine objects",
            path.join(NOTE_FILE).display(),
            note.namespace
        ));
    }
    // The ledger is created before the state. A state without a ledger means that the ledger was
    // lost.
    if !has_ledger && cloud.machines().is_some() {
        remarks.push(format!(
            "{} is missing. No Machine in namespace {served} names an instance, so the cloud starts a new ledger",
            ledger_file.display()
        ));
    }
    remarks.extend(unserved_notice(&unserved, served));
    let mut strangers = None;
    if let Some(machines) = cloud.machines() {
        let ledger = machines.ledger();
        strangers = stored.strangers_in(&ledger);
        remarks.extend(stored.lost_disks(&disks, machines, &ledger));
    }
    if note.is_some() {
        remarks.extend(data_folder::lost_kubeconfig_notice(path));
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

/// Returns the missing files that the next start needs.
pub(super) fn lost(path: &Path, cloud: UpCloud) -> Vec<&'static str> {
    let needed = [&[STATE_FILE][..], cloud.state_files(), &KEY_FILES].concat();
    let there = data_folder::files(path, &needed);
    needed.into_iter().filter(|name| !there.contains(name)).collect()
}

/// Makes the first start in a directory.
fn begin(path: &Path, config: Config, choice: &Choice, folder: Folder) -> anyhow::Result<Opened> {
    let cloud = choice.which();
    let lost = data_folder::files(path, &MADE_AFTER_THE_STATE);
    let ledger = cloud.read_ledger(path)?;
    let alive = ledger.as_ref().map_or(0, |kept| kept.ledger(&Clock::wall()).alive().count());
    if !lost.is_empty() || 0 < alive {
        bail!("--data-dir {}: {}", path.display(), without_state(path, cloud.ledger_file(), &lost, alive));
    }
    // The ledger is created before the state. If this start is killed in between, the next one is a
    // first start again.
    let cloud = choice.resume(path, ledger)?;
    let server = Kept::open(folder).and_then(|kept| Server::resume(config, kept));
    let server = server.map_err(|error| refusal(path, error))?;
    Ok(Opened { server, cloud, is_continued: false, note: None, remarks: Vec::new(), strangers: None })
}

/// Rejects a directory of `api-server`. Its machine objects may belong to other controllers, and
/// their instances to another cloud.
fn refuse_folder_of_api_server(path: &Path) -> anyhow::Result<()> {
    if data_folder::files(path, &[API_SERVER_FILE]).is_empty() {
        return Ok(());
    }
    bail!(
        "--data-dir {}: expected a directory of `machinist up`, but this one belongs to `machinist api-server`. Other controllers may \
         own its machine objects. Nothing was changed. Name another directory, or continue with this one: machinist api-server \
         --data-dir {}",
        path.display(),
        in_shell(path)
    );
}

fn without_state(folder: &Path, ledger_file: &str, there: &[&str], alive: usize) -> String {
    let file = folder.join(STATE_FILE);
    let mut found = Vec::new();
    if !there.is_empty() {
        found.push(data_folder::left_over_notice(there));
    }
    let (instances, them) = match alive {
        0 => (String::new(), "its content"),
        1 => ("1 instance is".to_owned(), "this instance"),
        count => (format!("{count} instances are"), "these instances"),
    };
    if 0 < alive {
        found.push(format!("{instances} alive in {}", folder.join(ledger_file).display()));
    }
    format!(
        "{} (the API server's objects) is missing, but {}. Nothing was changed. Restore {STATE_FILE} from a backup, or start again \
         without {them} by moving the directory away: {}",
        file.display(),
        found.join(", and "),
        set_aside(folder)
    )
}

fn without_instances(
    folder: &Path,
    ledger_file: &str,
    ledger: Option<&Ledger>,
    unknown: &[Unknown<'_>],
    first: &Unknown<'_>,
) -> String {
    let (file, state, note) = (folder.join(ledger_file), folder.join(STATE_FILE), folder.join(NOTE_FILE));
    let knows = match ledger.map(|ledger| ledger.ever().len()) {
        None => "is missing".to_owned(),
        Some(0) => "is empty".to_owned(),
        Some(1) => "has 1 instance".to_owned(),
        Some(count) => format!("has {count} instances"),
    };
    let are_others = unknown.iter().any(|instance| instance.is_of_another);
    let (never, so) = if are_others {
        ("never recorded or created for other Machines", "The ledger does not belong to these Machines")
    } else {
        ("never recorded", "The cloud has lost instances that the API server remembers")
    };
    let machines = match unknown.len() {
        1 => format!("1 Machine names an instance that it {never}:"),
        count => format!("{count} Machines name instances that it {never}, such as"),
    };
    let namespace = first.machine.namespace();
    format!(
        "{} {knows}, but in {} {machines} {} of Machine {}. {so}. Nothing was changed. Restore {ledger_file} from a backup. Without a \
         backup, you can keep everything except {these} in three steps. First let the controllers serve an unused namespace: echo \
         '{{\"namespace\":\"{UNUSED_NAMESPACE}\"}}' > {note_file} && machinist up --data-dir {data_dir}. Then set metadata.finalizers \
         of {these} and of {nodes} to null, and delete them with kubectl. Then stop `up` and start it again after: echo \
         '{{\"namespace\":\"{namespace}\"}}' > {note_file}. Or start again by moving the directory away: {}",
        file.display(),
        state.display(),
        first.instance,
        first.machine,
        set_aside(folder),
        these = if unknown.len() == 1 { "this Machine" } else { "these Machines" },
        // The next instance with that number gets the provider id of the remaining Node, and often
        // its name.
        nodes = if unknown.len() == 1 { "its Node" } else { "their Nodes" },
        note_file = in_shell(&note),
        data_dir = in_shell(folder),
    )
}

fn without_cluster(folder: &Path, machine: &Machine, recorded: &Recorded) -> String {
    let [key, certificate, record] = DOCKER_FILES;
    format!(
        "{record} (the name of the cluster of containers) is missing, but Machine {} names the container {}. Nothing was changed. \
         Restore {record}, {key} and {certificate} from a backup, or start again by moving the directory away: {}. The containers stay \
         until you delete them; the next start names them",
        machine.key,
        recorded.instance,
        set_aside(folder)
    )
}

/// Returns a remark about Machines in other namespaces, which may belong to another cloud.
fn unserved_notice(unknown: &[Unknown<'_>], served: &str) -> Option<String> {
    let first = unknown.first()?;
    let machines = match unknown.len() {
        1 => "1 Machine in another namespace names an instance".to_owned(),
        count => format!("{count} Machines in other namespaces name instances"),
    };
    Some(format!(
        "{machines} that this cloud did not create for them, such as {} of Machine {}. The controllers serve only namespace {served} \
         and ignore them",
        first.instance, first.machine
    ))
}

fn refusal(folder: &Path, error: StorageError) -> anyhow::Error {
    data_folder::refusal(Command::Up, folder, error)
}

/// Note of an earlier run that applied everything.
struct Noted {
    note: Option<Note>,
    /// The file is missing and the note was restored from the objects. The caller writes it again.
    is_lost: bool,
}

/// Reads the note of an earlier run. A lost note is restored from the stored objects. Manifests
/// name the namespace, so applying them needs no note.
fn note(path: &Path, kept: &Kept, purpose: Purpose<'_>) -> anyhow::Result<Noted> {
    let file = path.join(NOTE_FILE);
    let found = Note::read(kept.folder());
    let as_found = |note: Option<Note>| Noted { note: note.filter(|note| !note.unfinished), is_lost: false };
    match (purpose, &found) {
        (Purpose::Apply(_), _) => return Ok(as_found(found.ok().flatten())),
        (Purpose::GoOn(_), Ok(Some(note))) => return Ok(as_found(Some(note.clone()))),
        (Purpose::GoOn(_), Ok(None) | Err(_)) => {}
    }
    let namespaces = earlier_run::namespaces(kept);
    let write = |namespace: &str| format!("echo '{{\"namespace\":\"{namespace}\"}}' > {}", in_shell(&file));
    let flag = format!("--data-dir {}", path.display());
    let mut namespaces = namespaces.iter();
    match (found, namespaces.next(), namespaces.next()) {
        // The content may be valid.
        (Err(error), _, _) if matches!(error.downcast_ref(), Some(StorageError::Io { .. })) => bail!(
            "{flag}: {}. Nothing was changed. Make the file readable and start again",
            output::one_line(&error)
        ),
        (Err(error), first, _) => bail!(
            "{flag}: {}. Nothing was changed. Restore the file, or write it again: {}",
            output::one_line(&error),
            write(first.map_or("default", String::as_str))
        ),
        (Ok(_), None, _) => Ok(as_found(None)),
        (Ok(_), Some(namespace), None) => Ok(Noted { note: Some(Note::of(namespace)), is_lost: true }),
        (Ok(_), Some(first), Some(second)) => bail!(
            "{flag}: {} is missing, and namespaces {first} and {second} have machine objects. Nothing was changed. Choose the namespace \
             that the controllers serve: {}",
            file.display(),
            write(first)
        ),
    }
}

/// Stored objects that refer to instances.
struct Stored {
    machines: Vec<Machine>,
    /// Names of Nodes.
    nodes: BTreeSet<String>,
}

/// Fields of a Machine that identify its instance.
struct Machine {
    key: Key,
    /// UID of the Machine, which is the key of its instance.
    uid: String,
    recorded: Option<Recorded>,
}

/// Instance that a machine controller recorded in a Machine.
struct Recorded {
    /// Provider id.
    instance: String,
    node: String,
}

/// An instance that a Machine names and that the ledger did not record for it.
struct Unknown<'a> {
    machine: &'a Key,
    instance: &'a str,
    /// The ledger has another instance with that id. Ids are numbers that start at 1 in each
    /// directory.
    is_of_another: bool,
}

impl Stored {
    fn read(kept: &Kept) -> Self {
        let machines = kept.objects("machines.machine.sapcloud.io").map(|(key, object)| {
            let value = object.glance();
            let text = |path: &str| Some(value.pointer(path)?.as_str()?.to_owned());
            let instance = text("/spec/providerID").filter(|id| !id.is_empty());
            // A user may write any id into a Machine. Only a controller that saw the instance also
            // writes the name of the Node.
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

    /// Returns the instances that the ledger did not record for their Machines. An instance that
    /// the ledger records as deleted is fine: its Machine is replaced.
    fn unknown_to(&self, ledger: Option<&Ledger>) -> Vec<Unknown<'_>> {
        let ever = ledger.map(Ledger::ever).unwrap_or_default();
        let ever: BTreeMap<&str, &LedgerEntry> =
            ever.iter().map(|entry| (entry.id.as_str(), entry)).collect();
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
            // A label of a server of the stand-in has the key; an instance of the simulated cloud
            // has a field for it.
            let keys = entry.tags.values().map(String::as_str);
            let is_made_for =
                keys.chain(entry.key.as_ref().map(|key| key.as_str())).any(|key| uids.contains(key));
            let named = recorded.get(entry.id.as_str());
            !is_made_for && !named.is_some_and(|(machine, recorded)| machine.has(recorded, entry))
        });
        let strangers: Vec<_> = strangers.collect();
        let first = strangers.first()?;
        Some(Strangers { count: strangers.len(), first: (*first).clone() })
    }

    /// Returns a remark about machines that have registered and lost the certificate on their disk.
    fn lost_disks(&self, disks: &Path, cloud: &Cloud, ledger: &Ledger) -> Option<String> {
        let lost = ledger.alive().filter(|entry| {
            let has_joined = entry.boots().is_some() && self.nodes.contains(entry.name.as_str());
            has_joined && !matches!(NodeIdentity::load(&cloud.disk(&entry.id)), Ok(Some(_)))
        });
        let lost: Vec<_> = lost.collect();
        let first = lost.first()?;
        let count = match lost.len() {
            1 => "1 machine has lost the certificate on its disk".to_owned(),
            count => format!("{count} machines have lost the certificates on their disks"),
        };
        Some(format!(
            "{count} in {}, such as {}. A machine without certificate cannot rejoin: its Node becomes NotReady, and its Machine is \
             replaced after the health timeout",
            disks.display(),
            first.name
        ))
    }
}

impl Strangers {
    /// Returns a remark with the command that deletes the first of the instances.
    pub(super) fn remark(&self, cloud: UpCloud, control_url: &str) -> String {
        let Self { count, first: LedgerEntry { id, name, .. } } = self;
        let count = match count {
            1 => "1 instance in the cloud belongs".to_owned(),
            count => format!("{count} instances in the cloud belong"),
        };
        let delete = match cloud {
            UpCloud::Sim => format!("curl -d '{{\"id\":\"{id}\"}}' {control_url}/kill"),
            UpCloud::Hcloud => format!("curl -X DELETE {control_url}/servers/{}", id.identity()),
            UpCloud::Docker => format!("docker rm --force --volumes {name}"),
            UpCloud::Local => format!("kubectl delete pod {name}"),
        };
        format!(
            "{count} to no Machine, such as {id} ({name}). The controllers do not delete unknown instances. To delete this one: {delete}"
        )
    }
}

impl Machine {
    /// Returns whether an instance with the recorded id is the recorded instance.
    fn has(&self, recorded: &Recorded, entry: &LedgerEntry) -> bool {
        match &entry.key {
            Some(key) => key.as_str() == self.uid,
            None => entry.name.as_str() == recorded.node,
        }
    }
}
