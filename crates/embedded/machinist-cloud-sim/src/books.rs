//! The cloud's books, behind its one lock. They decide a request, commit it, apply it and notify
//! the observers. No function here awaits.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_instance::{ProviderId, UserData};
use tokio::sync::{mpsc, watch};

use crate::call::CallLog;
use crate::console::Console;
use crate::effect::{self, Effect, Facts};
use crate::journal::{Journal, Line};
use crate::limit::Buckets;
use crate::state::{Reach, State};
use crate::{
    CallOutcome, Caller, CloudRefusal, Code, Disk, Fault, LedgerCommit, Reply, Request, Schedule, Settings,
};

/// Everything that the cloud knows. No caller holds the lock across an await.
pub(crate) struct Books {
    pub(crate) settings: Settings,
    pub(crate) state: State,
    pub(crate) calls: CallLog,
    pub(crate) buckets: Buckets,
    journal: Option<Journal>,
    /// The error of the last commit if it could not be written to the ledger.
    pub(crate) trouble: watch::Sender<Option<Arc<str>>>,
    folder: Option<PathBuf>,
    pub(crate) user_data: BTreeMap<ProviderId, UserData>,
    pub(crate) consoles: BTreeMap<ProviderId, Console>,
    disks: BTreeMap<ProviderId, Disk>,
    pub(crate) schedule: Option<Arc<dyn Schedule>>,
    pub(crate) observers: Vec<Observer>,
    pub(crate) followers: Vec<mpsc::UnboundedSender<Arc<LedgerCommit>>>,
}

pub(crate) type Observer = Box<dyn Fn(&LedgerCommit) + Send>;

/// Why a commit had no effect. A refusal is one sentence, so the message includes the cause.
#[derive(Debug, thiserror::Error)]
enum NotCommitted {
    #[error("cannot write the ledger: {0}")]
    Ledger(io::Error),
    #[error("cannot wipe {}, the disk of an earlier instance: {error}", folder.display())]
    Disk { folder: PathBuf, error: io::Error },
}

impl Books {
    pub(crate) fn new(settings: Settings, journal: Option<Journal>, folder: Option<PathBuf>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "subscribers only report to a person; their order changes no result"
        )]
        let trouble = watch::Sender::new(None);
        Self {
            settings,
            state: State::default(),
            calls: CallLog::default(),
            buckets: Buckets::default(),
            journal,
            trouble,
            folder,
            user_data: BTreeMap::new(),
            consoles: BTreeMap::new(),
            disks: BTreeMap::new(),
            schedule: None,
            observers: Vec::new(),
            followers: Vec::new(),
        }
    }

    /// The facts for an operator's decision: all projects and regions at once.
    pub(crate) fn facts(&self, now: Timestamp) -> Facts<'_> {
        Facts { state: &self.state, settings: &self.settings, reach: Reach::default(), now, fault: None }
    }

    /// Counts a call against the limit of its project.
    pub(crate) fn admit(&mut self, token: Option<&str>, now: Timestamp) -> Result<(), CloudRefusal> {
        self.buckets.take(self.settings.project_of(token), self.settings.calls_per_hour, now)
    }

    pub(crate) fn authorise(&self, token: Option<&str>) -> Result<(), CloudRefusal> {
        if token.is_some_and(|token| self.settings.revoked_tokens.contains(token)) {
            return Err(CloudRefusal::new(Code::Unauthorized, "the token is not valid for any account"));
        }
        Ok(())
    }

    pub(crate) fn decide(
        &self,
        caller: Caller<'_>,
        request: &Request,
        now: Timestamp,
        fault: Option<&Fault>,
    ) -> Result<Effect, CloudRefusal> {
        let facts = Facts { reach: self.settings.reach_of(caller), fault, ..self.facts(now) };
        let untouched = |outcome| Effect { outcome, commit: None, about: None };
        match request {
            Request::Ensure(create) => effect::ensure(facts, create),
            Request::Find(which) => Ok(effect::find(facts, which)),
            Request::List { .. } => Ok(untouched(CallOutcome::Listed)),
            Request::Delete(delete) => effect::delete(facts, delete),
            Request::Initialize { id, owner } => effect::initialize(facts, id, owner),
            Request::Rekey { id, from, to } => effect::rekey(facts, id, from, to),
        }
    }

    /// Commits to the ledger, applies the commit, then notifies observers and followers.
    pub(crate) fn carry_out(&mut self, effect: &Effect, user_data: UserData) -> Result<(), CloudRefusal> {
        let Some(commit) = &effect.commit else { return Ok(()) };
        self.commit(commit.clone(), user_data)
            .map_err(|error| CloudRefusal::new(Code::ServiceUnavailable, error.to_string()))
    }

    fn commit(&mut self, commit: LedgerCommit, user_data: UserData) -> Result<(), NotCommitted> {
        // Wiped before the instance exists: after a kill in between, no instance can boot from this
        // disk.
        if let LedgerCommit::Made { entry } = &commit {
            self.clear_disk(entry.serial)?;
        }
        let line = Line { commit, user_data };
        if let Some(journal) = &mut self.journal {
            let written = journal.append(&line);
            let trouble: Option<Arc<str>> = written.as_ref().err().map(|error| error.to_string().into());
            // Notify once per lasting failure, not once per refused call.
            self.trouble.send_if_modified(|told| {
                let is_news = *told != trouble;
                *told = trouble;
                is_news
            });
            written.map_err(NotCommitted::Ledger)?;
        }
        let Line { commit, user_data } = line;
        self.apply(&commit, user_data);
        for observer in &self.observers {
            observer(&commit);
        }
        if !self.followers.is_empty() {
            let commit = Arc::new(commit);
            self.followers.retain(|follower| follower.send(commit.clone()).is_ok());
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, commit: &LedgerCommit, user_data: UserData) {
        self.state.apply(commit);
        match commit {
            LedgerCommit::Made { entry } => {
                self.user_data.insert(entry.id.clone(), user_data);
            }
            LedgerCommit::Gone { id, .. } => {
                // The instance is deleted even if the wipe fails. If a ledger is lost and its
                // number is used again, `clear_disk` wipes the disk first.
                if let Err(error) = self.disk(id).wipe() {
                    tracing::warn!(%error, instance = %id, "Cannot wipe the disk of a deleted instance");
                }
                self.disks.remove(id);
                self.user_data.remove(id);
                self.consoles.remove(id);
            }
            LedgerCommit::Adopted { .. }
            | LedgerCommit::Rekeyed { .. }
            | LedgerCommit::Stopped { .. }
            | LedgerCommit::Started { .. }
            | LedgerCommit::DeletionBegun { .. } => {}
        }
    }

    /// Commits the deletions that have ended by now.
    pub(crate) fn commit_ended(&mut self, now: Timestamp) {
        for gone in self.state.ended_by(now) {
            if let Err(error) = self.commit(gone, UserData::default()) {
                // The entry's deletion time already marks it as deleted. The next call retries the
                // commit.
                tracing::debug!(%error, "Cannot write the end of a deletion to the ledger");
            }
        }
    }

    pub(crate) fn reply(
        &self,
        caller: Caller<'_>,
        request: &Request,
        effect: &Effect,
        now: Timestamp,
    ) -> Reply {
        let described = || {
            let entry = self.state.by_id(effect.about.as_ref()?)?;
            Some(entry.describe(entry.power_at(now)?))
        };
        match request {
            Request::Ensure(_) => {
                Reply::Instance(described().expect("ensure ends with an instance that exists"))
            }
            Request::Find(_) => Reply::Found(described()),
            Request::List { cluster } => Reply::Instances(
                self.state
                    .existing()
                    .filter(|entry| self.settings.reach_of(caller).has(entry))
                    .filter(|entry| entry.visible_at <= now)
                    .filter(|entry| cluster.is_none() || *cluster == entry.cluster)
                    .filter_map(|entry| Some(entry.describe(entry.power_at(now)?)))
                    .collect(),
            ),
            Request::Delete(_) | Request::Initialize { .. } | Request::Rekey { .. } => Reply::Done,
        }
    }

    /// Wipes the disk folder of a new instance. Anything in it belongs to an instance that a lost
    /// ledger forgot, and the new instance must not boot from it.
    fn clear_disk(&self, serial: u64) -> Result<(), NotCommitted> {
        let Some(folder) = self.folder_of_disk(serial) else { return Ok(()) };
        Disk::in_folder(folder.clone()).wipe().map_err(|error| NotCommitted::Disk { folder, error })
    }

    fn folder_of_disk(&self, serial: u64) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join("disks").join(serial.to_string()))
    }

    pub(crate) fn disk(&mut self, id: &ProviderId) -> Disk {
        let serial = self.state.by_id(id).map(|entry| entry.serial);
        let folder = serial.and_then(|serial| self.folder_of_disk(serial));
        let disk = self.disks.entry(id.clone());
        disk.or_insert_with(|| folder.map_or_else(Disk::in_memory, Disk::in_folder)).clone()
    }
}

/// The user data that a new instance boots from.
pub(crate) fn user_data(request: &Request) -> UserData {
    match request {
        Request::Ensure(create) => create.user_data.clone(),
        _ => UserData::default(),
    }
}

#[cfg(test)]
mod tests {
    use machinist_instance::NodeName;

    use super::*;
    use crate::{Clock, Cloud, Foreigner};

    fn make(books: &mut Books) -> Result<(), CloudRefusal> {
        let foreigner = Foreigner {
            id: None,
            name: NodeName::new("n").expect("not empty"),
            key: None,
            project: String::new(),
            created: Timestamp::UNIX_EPOCH,
            instance_type: "small".to_owned(),
            user_data: UserData::default(),
        };
        let effect = effect::load(books.facts(Timestamp::UNIX_EPOCH), &foreigner)
            .expect("the id and the key are unused");
        books.carry_out(&effect, UserData::default())
    }

    #[test]
    fn a_failed_ledger_write_changes_nothing_and_is_reported_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Journal::open(folder.path()).expect("our folder");
        let (mut journal, _) = open();
        journal.fail_writes(folder.path());
        let mut books = Books::new(Settings::default(), Some(journal), None);
        let mut trouble = books.trouble.subscribe();
        for is_news in [true, false] {
            let refusal = make(&mut books).expect_err("nothing can be written");
            assert_eq!(refusal.code, Code::ServiceUnavailable);
            assert!(refusal.message.starts_with("cannot write the ledger: "), "{}", refusal.message);
            assert_eq!(books.state.ever().count(), 0, "an unwritten instance is not shown");
            assert_eq!(trouble.has_changed().expect("the books exist"), is_news);
            assert!(trouble.borrow_and_update().is_some());
        }
        books.journal = Some(open().0);
        make(&mut books).expect("writes succeed again");
        assert!(trouble.has_changed().expect("the books exist"));
        assert_eq!(*trouble.borrow_and_update(), None);
        books.journal = None;
        assert_eq!(open().1.len(), 1, "one whole line and no partial line");
    }

    #[test]
    fn a_leftover_disk_is_wiped_before_a_new_instance_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut journal, _) = Journal::open(folder.path()).expect("our folder");
        // A kill before the ledger write leaves the same state as a failed write.
        journal.fail_writes(folder.path());
        let mut books = Books::new(Settings::default(), Some(journal), Some(folder.path().to_owned()));
        let left = Disk::in_folder(folder.path().join("disks/1"));
        left.write("kubelet.pem", b"key of another").expect("written");
        make(&mut books).expect_err("nothing can be written");
        assert_eq!(left.read("kubelet.pem").expect("read"), None);
    }

    #[test]
    fn an_instance_whose_disk_cannot_be_wiped_is_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let (journal, _) = Journal::open(folder.path()).expect("our folder");
        let mut books = Books::new(Settings::default(), Some(journal), Some(folder.path().to_owned()));
        // `remove_dir_all` fails on a file in place of a folder, even for an administrator.
        let in_the_way = folder.path().join("disks");
        std::fs::write(&in_the_way, "").expect("written");
        let refusal = make(&mut books).expect_err("the leftover disk cannot be wiped");
        assert_eq!(refusal.code, Code::ServiceUnavailable);
        assert!(
            refusal.message.contains("disks/1, the disk of an earlier instance: "),
            "{}",
            refusal.message
        );
        assert_eq!(books.state.ever().count(), 0);
        std::fs::remove_file(&in_the_way).expect("removed");
        make(&mut books).expect("the folder can be created");
        books.journal = None;
        assert_eq!(Journal::open(folder.path()).expect("our folder").1.len(), 1, "it was made once");
    }

    #[test]
    fn a_late_subscriber_learns_of_the_ledger_trouble() {
        let folder = tempfile::tempdir().expect("a folder");
        let cloud = Cloud::open(folder.path(), Settings::default(), Clock::wall()).expect("our folder");
        assert!(!cloud.ledger_trouble().has_changed().expect("the cloud exists"), "no trouble yet");
        cloud.lock().journal.as_mut().expect("the cloud has a ledger").fail_writes(folder.path());
        make(&mut cloud.lock()).expect_err("nothing can be written");
        let mut trouble = cloud.ledger_trouble();
        assert!(trouble.has_changed().expect("the cloud exists"));
        assert!(trouble.borrow_and_update().is_some());
        assert!(!trouble.has_changed().expect("the cloud exists"), "each trouble is reported once");
    }
}
