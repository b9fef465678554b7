//! `machinist up`: a whole cluster in this process, followed until it is as it was asked to be.
//!
//! ```text
//! manifest -> cluster (API server, controllers, cloud) -> apply -> follow the commit log -> ready -> delete -> gone
//! ```
//!
//! Nothing is asked twice: progress, the awaited state and the counts all come from what the API server and the cloud commit.

mod cluster;
mod data_folder;
mod kept;
mod manifest;
mod progress;
mod screen;
mod table;
mod view;
mod writes;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use machinist_apiserver::{AuditRecord, Commit, Folder, Subscription};
use tokio::sync::watch;
use tokio::time::Instant;

use self::cluster::Cluster;
use self::kept::Note;
use self::manifest::{Applied, Kinds, Manifest};
use self::progress::{End, Reachable, State, Stopped, Summary};
use self::screen::Screen;
use self::view::View;
use self::writes::Writes;
use crate::args::{Until, UpArgs};
use crate::output::Output;
use crate::progress::Progress;
use crate::stop;

/// How long a state is awaited when nobody says.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How many reasons are told when time is up: enough to see a pattern, few enough to be read.
const REASONS_TOLD: usize = 5;

pub(crate) async fn run(args: &UpArgs, output: Output) -> anyhow::Result<ExitCode> {
    // The manifest first: what is wrong with it should cost nobody a start.
    let manifest = manifest::read(&args.manifest)?;
    // One that may build on what is kept has its turn when that is open.
    let builds_on_kept = args.data_dir.as_deref().is_some_and(Folder::holds_state);
    if !builds_on_kept {
        manifest.rehearse(None).await?;
    }
    let stop = stop::requested().context("listening for signals")?;
    tokio::pin!(stop);
    let form = progress::form_of(args);
    let progress = Progress::new(output.clone(), form);
    let mut cluster = tokio::select! {
        () = &mut stop => return Ok(exit_code(args, End::Interrupted)),
        cluster = Cluster::start(args, &manifest) => cluster?,
    };
    let screen = Screen::new(form, &output, &cluster.inspectors).context("listening for signals")?;
    let mut story = Story::new(&mut cluster, progress, screen);
    let result = tokio::select! {
        () = &mut stop => Ok(End::Interrupted),
        ended = story.play(args, &manifest, &mut cluster) => ended,
    };
    let shown = story.screen.end(&story.view);
    let result = result.and_then(|end| shown.map(|()| end).map_err(anyhow::Error::from));
    let summary = match &result {
        Ok(end) if args.until.is_some() => Some(story.sum_up(*end, &cluster)?),
        Ok(_) | Err(_) => None,
    };
    let (cloud, kubeconfig) = (cluster.cloud.clone(), cluster.kubeconfig.clone());
    cluster.stop().await;
    if let Ok(End::Interrupted) = result {
        let state = match args.data_dir.as_deref().map(|path| (path, data_folder::lost(path))) {
            Some((path, lost)) if lost.is_empty() => State::Kept(path),
            Some((path, lost)) => State::Lost(path, lost),
            None => State::NeverKept,
        };
        story.progress.stopped(&Stopped {
            instances_alive: cloud.alive(),
            state,
            // Only one in a folder that somebody named, and that nobody has removed meanwhile.
            kubeconfig_kept: kubeconfig.exists().then_some(kubeconfig.as_path()),
        })?;
    }
    if let Some(summary) = summary {
        story.progress.ended(&summary)?;
    }
    result.map(|end| exit_code(args, end))
}

/// 0 only when what was awaited is reached; a cluster that ran until it was stopped did what it was asked to.
fn exit_code(args: &UpArgs, end: End) -> ExitCode {
    match (args.until, end) {
        (_, End::Ready | End::Gone) | (None, End::Interrupted) => ExitCode::SUCCESS,
        (Some(_), End::Interrupted) | (_, End::Timeout) => ExitCode::FAILURE,
    }
}

/// What is followed, and what is known from it.
struct Story {
    commits: Subscription<Arc<Commit>>,
    requests: Subscription<Arc<AuditRecord>>,
    view: View,
    writes: Writes,
    progress: Progress,
    screen: Screen,
    /// Why the cloud cannot write its ledger, as long as it cannot.
    trouble: watch::Receiver<Option<Arc<str>>>,
}

impl Story {
    /// Follows a cluster from now on, and what its start found there.
    fn new(cluster: &mut Cluster, progress: Progress, screen: Screen) -> Self {
        Self {
            commits: cluster.server.state_and_commits(),
            requests: cluster.server.audit(),
            view: View::after(&cluster.namespace, std::mem::take(&mut cluster.found)),
            writes: Writes::default(),
            progress,
            screen,
            trouble: cluster.cloud.ledger_trouble(),
        }
    }

    /// Applies the manifest and follows what comes of it, until the awaited end; for ever if nothing is awaited.
    async fn play(
        &mut self,
        args: &UpArgs,
        manifest: &Manifest,
        cluster: &mut Cluster,
    ) -> anyhow::Result<End> {
        let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let found = cluster.kept.is_some().then(|| {
            Manifest::of(kept::machine_objects(&cluster.server, &cluster.namespace), &cluster.namespace)
        });
        let manifest = found.as_ref().unwrap_or(manifest);
        let awaited = manifest.awaited_to_run();
        self.progress.reachable(&Reachable {
            api_server: &cluster.api_server(),
            kubeconfig: &cluster.kubeconfig,
            cloud: &cluster.cloud_url,
            namespace: &cluster.namespace,
            example: awaited.first(),
        })?;
        for remark in &cluster.remarks {
            self.progress.note(remark)?;
        }
        let mut kinds = Kinds::new(cluster.client.clone());
        if found.is_some() {
            self.progress.note(
                "Goes on with what the data folder holds; the quick start is not applied again (--manifest applies one)",
            )?;
        } else {
            let ended = self.apply(args, manifest, &mut kinds, cluster, deadline).await?;
            if let ControlFlow::Break(end) = ended {
                return Ok(end);
            }
        }
        // What was true before the manifest was applied decides nothing.
        self.catch_up()?;
        let Some(until) = args.until else {
            return self.follow(cluster, |_, _| false).await.map(|()| End::Interrupted);
        };
        let timed_out = tokio::time::sleep_until(deadline);
        tokio::pin!(timed_out);
        tokio::select! {
            () = &mut timed_out => return Ok(End::Timeout),
            ready = self.follow(cluster, |view, _| view.is_ready(&awaited)) => ready?,
        }
        if until == Until::Ready {
            return Ok(End::Ready);
        }
        self.progress.note(match awaited.is_empty() {
            false => "Everything runs; deleting it",
            true => "Nothing is to run; deleting what is left",
        })?;
        tokio::select! {
            () = &mut timed_out => Ok(End::Timeout),
            gone = self.undo(manifest, &mut kinds, cluster) => gone.map(|()| End::Gone),
        }
    }

    /// Applies the manifest, and notes that for the next run: before, if it was asked for, since the quick start is then not wanted;
    /// and for the quick start also afterwards, since half of one is not wanted either.
    async fn apply(
        &mut self,
        args: &UpArgs,
        manifest: &Manifest,
        kinds: &mut Kinds,
        cluster: &mut Cluster,
        deadline: Instant,
    ) -> anyhow::Result<ControlFlow<End>> {
        let write = |cluster: &Cluster, note: fn(&str) -> Note| match cluster.server.folder() {
            Some(folder) => note(&cluster.namespace).write(folder),
            None => Ok(()),
        };
        let is_quick_start = args.manifest.is_empty();
        write(cluster, if is_quick_start { Note::of_unfinished } else { Note::of })?;
        for it in manifest.objects() {
            let how = loop {
                match manifest::apply(kinds, it).await? {
                    Applied::Created => break "created",
                    Applied::Updated => break "updated",
                    Applied::Leaving => {}
                }
                let label = it.label();
                self.progress.note(&format!("{label} is being deleted: it is made anew once it is gone"))?;
                let Some(identity) = manifest::identity(it, kinds, &cluster.server).await? else { continue };
                // Its last commit is still to be taken in: nothing was since it was found.
                self.view.follow_presence(identity, true);
                let out_of_time = async {
                    match args.until {
                        Some(_) => tokio::time::sleep_until(deadline).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = out_of_time => return Ok(ControlFlow::Break(End::Timeout)),
                    gone = self.follow(cluster, |view, _| view.is_all_absent()) => gone?,
                }
                self.view.follow_no_presence();
            };
            self.progress.applied(&it.label(), how)?;
        }
        if is_quick_start {
            write(cluster, Note::of)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Deletes what the manifest brought, machines first, and waits for that. What else there is stays, and is told.
    async fn undo(
        &mut self,
        manifest: &Manifest,
        kinds: &mut Kinds,
        cluster: &mut Cluster,
    ) -> anyhow::Result<()> {
        for identity in manifest.identities(kinds, &cluster.server).await? {
            // Somebody may have been faster, an earlier run for one.
            let is_there = identity.is_there(&cluster.server);
            self.view.follow_presence(identity, is_there);
        }
        let staying = self.view.follow_leaving(&manifest.awaited());
        if let Some(first) = staying.first() {
            let and_more = match staying.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.progress.note(&format!("{first}{and_more} stays: no manifest of this run has it"))?;
        }
        manifest.delete_machines(kinds).await?;
        // Not until no instance and no Node is there: some may be nobody's, and some Nodes are of the manifest itself.
        self.follow(cluster, |view, _| view.have_left()).await?;
        manifest.delete_rest(kinds).await?;
        self.follow(cluster, |view, _| view.is_all_absent()).await
    }

    /// Takes in everything that has happened.
    fn catch_up(&mut self) -> anyhow::Result<()> {
        self.commits.drain().iter().try_for_each(|commit| self.take_in(commit))
    }

    fn take_in(&mut self, commit: &Commit) -> anyhow::Result<()> {
        self.screen.changed();
        match self.view.take_in(commit) {
            Some(change) => Ok(self.progress.changed(&change)?),
            None => Ok(()),
        }
    }

    /// Takes in what happens and tells it, until `is_over`.
    async fn follow(
        &mut self,
        cluster: &mut Cluster,
        is_over: impl Fn(&View, &Cluster) -> bool,
    ) -> anyhow::Result<()> {
        loop {
            if is_over(&self.view, cluster) {
                return Ok(());
            }
            tokio::select! {
                Some(commit) = self.commits.next() => self.take_in(&commit)?,
                Some(request) = self.requests.next() => self.writes.take_in(&request),
                () = self.screen.is_due() => self.screen.draw(&self.view)?,
                Ok(()) = self.trouble.changed() => self.tell_trouble()?,
                error = cluster.ended() => return Err(error),
            }
        }
    }

    /// The cloud goes on by itself when there is room again.
    fn tell_trouble(&mut self) -> anyhow::Result<()> {
        let trouble = self.trouble.borrow_and_update().clone();
        let told = match trouble {
            Some(why) => format!(
                "The cloud's ledger cannot be written: {why}. Until it can, the cloud refuses to make or delete anything"
            ),
            None => "The cloud's ledger can be written again".to_owned(),
        };
        Ok(self.progress.note(&told)?)
    }

    /// Sums up. When time is up, the reasons come before the numbers.
    fn sum_up(&mut self, end: End, cluster: &Cluster) -> anyhow::Result<Summary> {
        for request in self.requests.drain() {
            self.writes.take_in(&request);
        }
        if end == End::Timeout {
            let waiting = cluster.inspectors.iter().flat_map(|inspector| inspector.whys());
            let waiting = waiting.filter(|(_, record)| record.why != machinist_plan::Why::settled());
            for (key, record) in waiting.take(REASONS_TOLD) {
                self.progress.note(&format!("{key} {}", record.why))?;
            }
        }
        if end == End::Timeout {
            for node in self.view.silent_nodes().take(REASONS_TOLD) {
                self.progress.note(&format!("Node {node} has not been heard of since the start"))?;
            }
            for object in self.view.still_present().take(REASONS_TOLD) {
                self.progress.note(&format!("{object} is not gone yet"))?;
            }
        }
        let ledger = cluster.cloud.ledger();
        Ok(Summary {
            result: end,
            wanted: self.view.wanted(),
            machines: self.view.machines(),
            running: self.view.running(),
            nodes_ready: self.view.nodes_ready(),
            instances_alive: ledger.alive().count(),
            instances_ever: ledger.ever().len(),
            seconds: self.progress.seconds(),
            writes_per_machine: self.writes.per_machine(self.view.machines_ever()),
        })
    }
}
