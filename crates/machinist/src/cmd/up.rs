//! `machinist up`: runs a complete cluster in this process until the state of `--until` is reached.
//!
//! ```text
//! manifest -> cluster (API server, controllers, cloud) -> apply -> follow the commit log -> ready
//! -> delete -> gone
//! ```
//!
//! Progress, the awaited state and the counts all come from the commits of the API server and the
//! cloud. There is no polling.

mod ccm;
mod cloud;
mod cluster;
mod data_folder;
mod earlier_run;
mod manifest;
mod progress;
mod screen;
mod table;
mod view;
mod writes;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use machinist_apiserver::{AuditRecord, Commit, Folder, Subscription};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use self::cloud::{Choice, Counts, Docker, DockerIdentity, NODE_IMAGE, PortMoved};
use self::cluster::Cluster;
use self::earlier_run::{Note, Others};
use self::manifest::{Applied, Kinds, Manifest};
use self::progress::{End, Reachable, State, Stopped, Summary};
use self::screen::{Screen, reached};
use self::view::View;
use self::writes::Writes;
use crate::args::{Until, UpArgs};
use crate::clouds::UpCloud;
use crate::embedded::Place;
use crate::embedded::data_folder::Command;
use crate::output::{Output, one_line};
use crate::progress::Progress;
use crate::stop;
use crate::wiring::{in_shell, set_aside};
use crate::wrong_flags::WrongFlags;

/// Default of `--timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Maximum number of reasons in the report of a timeout: enough to see a pattern, few enough to
/// read.
const REASONS_TOLD: usize = 5;

pub(crate) async fn run(args: &UpArgs, output: Output) -> anyhow::Result<ExitCode> {
    check_flags(args)?;
    let docker = match args.cloud {
        UpCloud::Docker => Some(DockerIdentity::of(args.data_dir.as_deref())?),
        UpCloud::Sim | UpCloud::Hcloud | UpCloud::Local => None,
    };
    let variables = match &docker {
        Some(docker) => docker.variables(args.node_image.as_deref().unwrap_or(NODE_IMAGE))?.to_vec(),
        None => Vec::new(),
    };
    // The manifest is checked first, so that an error in it is reported before anything starts.
    let manifest = manifest::read(args.cloud, &args.manifest, &variables)?;
    // A manifest that may need stored objects is checked when these are open.
    let builds_on_kept = args.data_dir.as_deref().is_some_and(Folder::holds_state);
    if !builds_on_kept {
        manifest.rehearse(None).await?;
    }
    let stop = stop::requested().context("cannot listen for signals")?;
    tokio::pin!(stop);
    let mut place = Place::of(Command::Up, args.data_dir.as_deref())?;
    let choice = Choice::open(args, docker, place.path()).await?;
    let progress = Progress::new(output.clone(), progress::form_of(args));
    let others = Others::default();
    let ended = loop {
        let ended =
            run_in(args, output.clone(), &manifest, place, &choice, &progress, &others, stop.as_mut());
        match ended.await {
            Err(error) if error.is::<PortMoved>() && args.data_dir.is_some() => {
                progress.note(
                    "The engine publishes the API server of the Nodes at another port; starts again with it",
                )?;
                place = Place::of(Command::Up, args.data_dir.as_deref())?;
            }
            ended => break ended,
        }
    };
    let ended = match (choice.docker(), &args.data_dir) {
        (Some(docker), Some(path)) if args.until == Some(Until::Gone) => {
            // Without a manifest, the run deletes all machine objects of its namespace.
            let knows_all = args.manifest.is_empty() || !builds_on_kept;
            let others = others.noted().or(knows_all.then(Vec::new));
            delete_broken(docker, ended, path, others, &progress).await
        }
        _ => ended,
    };
    let ended = ended.map(|end| exit_code(args, end));
    // Without a directory, nothing of the cluster is left for a next run.
    let removed = match (choice.docker(), &args.data_dir) {
        (Some(docker), None) => docker.remove(&progress).await,
        _ => Ok(()),
    };
    if let Some(docker) = choice.docker() {
        docker.end().await;
    }
    match (ended, removed) {
        (Ok(code), removed) => removed.map(|()| code),
        (Err(error), Ok(())) => Err(error),
        // The second error has the command that deletes the rest.
        (Err(error), Err(second)) => Err(second.context(one_line(&error))),
    }
}

/// Rejects flags that have no effect with this cloud.
fn check_flags(args: &UpArgs) -> anyhow::Result<()> {
    if args.cloud_network.is_some() && args.cloud != UpCloud::Hcloud {
        return Err(WrongFlags::new("--cloud-network: expected only with --cloud hcloud").into());
    }
    let of_docker = args.node_image.as_ref().map(|_| "--node-image").or(args.docker.first_set());
    match of_docker.filter(|_| args.cloud != UpCloud::Docker) {
        Some(flag) => Err(WrongFlags::new(format!("{flag}: expected only with --cloud docker")).into()),
        None => Ok(()),
    }
}

/// Runs the cluster until the state of `--until`, or until `stop` completes. Notes the machine
/// objects of other runs.
#[expect(clippy::too_many_arguments, reason = "the parts of one run, used once")]
async fn run_in(
    args: &UpArgs,
    output: Output,
    manifest: &Manifest,
    place: Place,
    choice: &Choice,
    progress: &Progress,
    others: &Others,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<End> {
    let deadline = args.until.map(|_| Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT));
    let mut cluster = tokio::select! {
        () = &mut stop => return Ok(End::Interrupted),
        // Only a control plane in a container takes long.
        () = reached(deadline) => {
            let error = anyhow!("--timeout: the API servers did not start in time");
            return Err(if args.until == Some(Until::Gone) { error.context(BrokenControlPlane) } else { error });
        }
        cluster = Cluster::start(args, manifest, place, choice, progress, others) => cluster?,
    };
    let screen =
        Screen::new(progress.form, &output, &cluster.inspectors).context("cannot listen for signals")?;
    let mut story = Story::new(&mut cluster, progress.clone(), screen);
    let result = tokio::select! {
        () = &mut stop => Ok(End::Interrupted),
        ended = story.play(args, manifest, &mut cluster, deadline) => ended,
    };
    let shown = story.screen.end(&story.view);
    let result = result.and_then(|end| shown.map(|()| end).map_err(anyhow::Error::from));
    let summary = match &result {
        Ok(end) if args.until.is_some() => Some(story.sum_up(*end, &cluster).await?),
        Ok(_) | Err(_) => None,
    };
    let (cloud, kubeconfig) = (cluster.cloud.clone(), cluster.kubeconfig.clone());
    others.note(&cluster.server, manifest);
    cluster.stop().await;
    if let Ok(End::Interrupted) = result {
        let state = match args.data_dir.as_deref().map(|path| (path, data_folder::lost(path, args.cloud))) {
            Some((path, lost)) if lost.is_empty() => State::Kept(path, args.cloud),
            Some((path, lost)) => State::Lost(path, args.cloud, lost),
            None => State::NeverKept,
        };
        let Counts { alive, stopped, ever: _ } = cloud.counts().await?;
        story.progress.stopped(&Stopped {
            instances_alive: alive,
            instances_stopped: stopped,
            cloud: args.cloud,
            state,
            // Only a kubeconfig in --data-dir or --kubeconfig-out still exists.
            kubeconfig_kept: kubeconfig.exists().then_some(kubeconfig.as_path()),
        })?;
    }
    if let Some(summary) = summary {
        story.progress.ended(&summary)?;
    }
    result
}

/// Deletes a cluster of containers that could not be deleted in order: its control plane does not
/// work, or its machines do not end in time. Only the containers and the network with the name that
/// the directory records are deleted. Nothing is deleted if the cluster has machine objects that no
/// manifest of this run contains, or if it is not known whether it has `others`.
async fn delete_broken(
    docker: &Docker,
    ended: anyhow::Result<End>,
    data_dir: &Path,
    others: Option<Vec<String>>,
    progress: &Progress,
) -> anyhow::Result<End> {
    let why = match &ended {
        Ok(End::Timeout) => "its machines were not deleted within --timeout".to_owned(),
        Err(error) if error.is::<BrokenControlPlane>() => one_line(error),
        Ok(End::Ready | End::Gone | End::Interrupted) | Err(_) => return ended,
    };
    let kept_for = match others.as_deref() {
        Some([]) => None,
        Some([first]) => Some(format!("no manifest of this run contains {first}")),
        Some([first, more @ ..]) => {
            Some(format!("no manifest of this run contains {first} and {} more", more.len()))
        }
        None => Some("the objects in the directory were not read".to_owned()),
    };
    if let Some(kept_for) = kept_for {
        progress.note(&format!(
            "Cluster {} cannot be deleted in order: {why}. Nothing is deleted without a drain, because {kept_for}. Delete \
             everything of this cluster: {}",
            docker.name(),
            docker.cleanup()
        ))?;
        return ended;
    }
    progress.note(&format!(
        "Cluster {} cannot be deleted in order: {why}. Deletes its containers without a drain, and its network",
        docker.name()
    ))?;
    docker.remove(progress).await?;
    progress.note(&format!(
        "Deleted all containers of cluster {}. The objects in {} remain; to start again without them, move the \
         directory away: {}",
        docker.name(),
        data_dir.display(),
        set_aside(data_dir)
    ))?;
    Ok(End::Gone)
}

/// The control plane of a cluster of containers does not work.
#[derive(Debug)]
struct BrokenControlPlane;

impl fmt::Display for BrokenControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the control plane of the cluster does not work")
    }
}

/// Returns 0 if the state of `--until` was reached, or if the run without `--until` was stopped.
fn exit_code(args: &UpArgs, end: End) -> ExitCode {
    match (args.until, end) {
        (_, End::Ready | End::Gone) | (None, End::Interrupted) => ExitCode::SUCCESS,
        (Some(_), End::Interrupted) | (_, End::Timeout) => ExitCode::FAILURE,
    }
}

/// Event sources of a run, and the view built from them.
struct Story {
    commits: Subscription<Arc<Commit>>,
    requests: Subscription<Arc<AuditRecord>>,
    view: View,
    writes: Writes,
    progress: Progress,
    screen: Screen,
    /// Reason why the cloud cannot write its ledger, while that lasts.
    trouble: watch::Receiver<Option<Arc<str>>>,
    /// Nodes of the target cluster by name; never changes if the Nodes are in this cluster.
    nodes: watch::Receiver<BTreeMap<String, Value>>,
}

impl Story {
    /// Follows a cluster, including the state that its start found.
    fn new(cluster: &mut Cluster, progress: Progress, screen: Screen) -> Self {
        Self {
            commits: cluster.server.state_and_commits(),
            requests: cluster.server.audit(),
            view: View::after(&cluster.namespace, std::mem::take(&mut cluster.found)),
            writes: Writes::default(),
            progress,
            screen,
            trouble: cluster.cloud.ledger_trouble(),
            nodes: cluster.nodes.clone(),
        }
    }

    /// Applies the manifest and follows the cluster until the state of `--until`; forever without
    /// `--until`.
    async fn play(
        &mut self,
        args: &UpArgs,
        manifest: &Manifest,
        cluster: &mut Cluster,
        deadline: Option<Instant>,
    ) -> anyhow::Result<End> {
        let found = cluster.note.is_some().then(|| {
            Manifest::of(
                earlier_run::machine_objects(&cluster.server, &cluster.namespace),
                &cluster.namespace,
            )
        });
        let manifest = found.as_ref().unwrap_or(manifest);
        let awaited = manifest.awaited_to_run();
        self.progress.reachable(&Reachable {
            api_server: &cluster.api_server(),
            kubeconfig: &cluster.kubeconfig,
            cloud: &cluster.cloud_urls.api,
            which: args.cloud,
            control: &cluster.cloud_urls.control,
            target_kubeconfig: cluster.target.as_ref().map(|target| target.kubeconfig.as_path()),
            namespace: &cluster.namespace,
            example: awaited.first(),
        })?;
        for remark in &cluster.remarks {
            self.progress.note(remark)?;
        }
        let mut kinds = Kinds::new(cluster.client.clone());
        if found.is_some() {
            self.progress.note(
                "Continues with the state in the data directory; the quick start is not applied again (use --manifest to apply a manifest)",
            )?;
        } else {
            let ended = self.apply(args, manifest, &mut kinds, cluster, deadline).await?;
            if let ControlFlow::Break(end) = ended {
                return Ok(end);
            }
        }
        // The state before the manifest was applied must not count as ready.
        self.catch_up()?;
        let Some(until) = args.until else {
            return self.follow(cluster, |_, _| false).await.map(|()| End::Interrupted);
        };
        let timed_out = reached(deadline);
        tokio::pin!(timed_out);
        // A cluster of an earlier run is deleted in any state.
        let is_only_deleted = until == Until::Gone && found.is_some() && cluster.target.is_some();
        tokio::select! {
            () = &mut timed_out => return Ok(End::Timeout),
            ready = self.follow(cluster, |view, cluster| {
                if is_only_deleted {
                    return true;
                }
                // The control plane of the target cluster is a Node without a Machine.
                view.is_ready(&awaited) && (cluster.target.is_none() || view.is_every_node_ready())
            }) => ready?,
        }
        if until == Until::Ready {
            if let (Some(target), Some(_)) = (&cluster.target, &args.data_dir) {
                let kubeconfig = in_shell(&target.kubeconfig);
                self.progress.note(&format!(
                    "The containers keep running: kubectl --kubeconfig {kubeconfig} get nodes"
                ))?;
            }
            return Ok(End::Ready);
        }
        self.progress.note(if is_only_deleted {
            "Deletes the objects of an earlier run"
        } else if awaited.is_empty() {
            "No machine is expected to run; deleting the remaining objects"
        } else {
            "Everything runs; deleting the objects of the manifest"
        })?;
        tokio::select! {
            () = &mut timed_out => Ok(End::Timeout),
            gone = self.undo(manifest, &mut kinds, cluster) => gone.map(|()| End::Gone),
        }
    }

    /// Applies the manifest and writes a note for the next run.
    ///
    /// With `--manifest`, the note is written first, so that the next run does not apply the quick
    /// start. For the quick start, an unfinished note is written first and completed at the end, so
    /// that the next run repeats an interrupted quick start.
    async fn apply(
        &mut self,
        args: &UpArgs,
        manifest: &Manifest,
        kinds: &mut Kinds,
        cluster: &mut Cluster,
        deadline: Option<Instant>,
    ) -> anyhow::Result<ControlFlow<End>> {
        let write = |cluster: &Cluster, note: fn(&str) -> Note| match cluster.server.folder() {
            Some(folder) => note(&cluster.namespace).write(folder),
            None => Ok(()),
        };
        let is_quick_start = args.manifest.is_empty();
        write(cluster, if is_quick_start { Note::of_unfinished } else { Note::of })?;
        for document in manifest.objects() {
            let how = loop {
                match manifest::apply(kinds, document).await? {
                    Applied::Created => break "created",
                    Applied::Updated => break "updated",
                    Applied::Leaving => {}
                }
                let label = document.label();
                self.progress.note(&format!("{label} is being deleted; it will be recreated afterwards"))?;
                let Some(identity) = manifest::identity(document, kinds, &cluster.server).await? else {
                    continue;
                };
                // No commit was processed since the object was found, so its deletion is still to
                // come.
                self.view.follow_presence(identity, true);
                tokio::select! {
                    () = reached(deadline) => return Ok(ControlFlow::Break(End::Timeout)),
                    gone = self.follow(cluster, |view, _| view.is_all_absent()) => gone?,
                }
                self.view.follow_no_presence();
            };
            self.progress.applied(&document.label(), how)?;
        }
        if is_quick_start {
            write(cluster, Note::of)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Deletes the objects of the manifest, machines first, and waits until they are deleted. Other
    /// objects stay and are reported.
    async fn undo(
        &mut self,
        manifest: &Manifest,
        kinds: &mut Kinds,
        cluster: &mut Cluster,
    ) -> anyhow::Result<()> {
        for identity in manifest.identities(kinds, &cluster.server).await? {
            // An earlier run or another client may have deleted the object already.
            let is_there = identity.is_there(&cluster.server);
            self.view.follow_presence(identity, is_there);
        }
        let mut staying = self.view.follow_leaving(&manifest.awaited());
        // The view knows the machines of one namespace, and the containers belong to all of them.
        let others = earlier_run::others(&cluster.server, manifest);
        staying.extend(others.into_iter().filter(|other| !staying.contains(other)).collect::<Vec<_>>());
        let nothing_stays = staying.is_empty();
        if let Some(first) = staying.first() {
            let and_more = match staying.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.progress
                .note(&format!("{first}{and_more} stays because no manifest of this run contains it"))?;
        }
        manifest.delete_machines(kinds).await?;
        // Instances without a Machine and Nodes of the manifest do not count here.
        self.follow(cluster, |view, _| view.have_left()).await?;
        manifest.delete_rest(kinds).await?;
        self.follow(cluster, |view, _| view.is_all_absent()).await?;
        match (nothing_stays, cluster.cloud.docker().cloned()) {
            (true, Some(docker)) => self.remove_cluster(&docker, cluster).await,
            (false, Some(_)) => Ok(self.progress.note("The control plane stays for the other machines")?),
            (_, None) => Ok(()),
        }
    }

    /// Deletes the control plane and the network of a cluster of containers that no longer has
    /// machines. The next run with this directory begins with a new cluster.
    async fn remove_cluster(&mut self, docker: &Docker, cluster: &Cluster) -> anyhow::Result<()> {
        self.progress.note("No machine is left; deleting the control plane and the network")?;
        // First, so that a run that is killed here does not continue with an empty cluster.
        if let Some(folder) = cluster.server.folder() {
            Note::of_unfinished(&cluster.namespace).write(folder)?;
        }
        docker.remove(&self.progress).await?;
        // No watch reports the deletion of the last Node.
        self.take_in_nodes(&BTreeMap::new())
    }

    /// Processes all pending commits.
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

    /// Processes and reports events until `is_over`.
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
                Ok(()) = self.trouble.changed() => self.report_trouble()?,
                Ok(()) = self.nodes.changed() => {
                    let nodes = self.nodes.borrow_and_update().clone();
                    self.take_in_nodes(&nodes)?;
                }
                error = cluster.ended() => return Err(error),
            }
        }
    }

    /// Processes the state of all Nodes of the target cluster.
    fn take_in_nodes(&mut self, nodes: &BTreeMap<String, Value>) -> anyhow::Result<()> {
        self.screen.changed();
        for change in self.view.take_in_nodes(nodes) {
            self.progress.changed(&change)?;
        }
        Ok(())
    }

    /// Reports that the ledger became unwritable or writable again. The cloud resumes automatically
    /// when there is space again.
    fn report_trouble(&mut self) -> anyhow::Result<()> {
        let trouble = self.trouble.borrow_and_update().clone();
        let message = match trouble {
            Some(why) => format!(
                "The cloud cannot write its ledger: {why}. Until it can, it rejects create and delete calls"
            ),
            None => "The cloud can write its ledger again".to_owned(),
        };
        Ok(self.progress.note(&message)?)
    }

    /// Creates the summary. After a timeout, reports the reasons first.
    async fn sum_up(&mut self, end: End, cluster: &Cluster) -> anyhow::Result<Summary> {
        for request in self.requests.drain() {
            self.writes.take_in(&request);
        }
        if end == End::Timeout {
            for reason in cluster.reasons().take(REASONS_TOLD) {
                self.progress.note(&reason)?;
            }
        }
        if end == End::Timeout {
            for node in self.view.silent_nodes().take(REASONS_TOLD) {
                self.progress.note(&format!("Node {node} has not reported since the start"))?;
            }
            for object in self.view.still_present().take(REASONS_TOLD) {
                self.progress.note(&format!("{object} is not deleted yet"))?;
            }
        }
        let Counts { alive, stopped, ever } = cluster.cloud.counts().await?;
        Ok(Summary {
            result: end,
            wanted: self.view.wanted(),
            machines: self.view.machines(),
            running: self.view.running(),
            nodes_ready: self.view.nodes_ready(),
            instances_alive: alive,
            instances_stopped: stopped,
            instances_ever: ever,
            seconds: self.progress.seconds(),
            writes_per_machine: self.writes.per_machine(self.view.machines_ever()),
        })
    }
}
