//! `machinist api-server`: the embedded API server without machine controllers, to test other
//! controllers against it.
//!
//! ```text
//! --crds -> check in a private API server -> open the data directory -> apply, wait until
//!        established -> listen -> built-in controllers -> ready -> run until a signal (exit code
//!        0) or until a part ends (1)
//! ```
//!
//! Deliberately absent: machine controllers and a cloud. `machinist up` runs them in one process;
//! other commands run each of them as a separate process.

mod data_folder;
mod definitions;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use machinist_apiserver::{Folder, Server};
use serde::Serialize;
use tokio::task::JoinSet;

use self::definitions::Definitions;
use crate::args::{ApiServerArgs, Format};
use crate::embedded::data_folder::{Command, enumerated};
use crate::embedded::{self, ApiServer, Place};
use crate::output::Output;
use crate::progress::{Form, Progress};
use crate::stop;
use crate::wiring::in_shell;

/// User-Agent of the command, and the field manager of its server-side apply.
const AGENT: &str = "machinist-api-server";

pub(crate) async fn run(args: &ApiServerArgs, output: Output) -> anyhow::Result<ExitCode> {
    // Definitions are checked first, so that an error in them is reported before anything starts.
    let definitions = definitions::read(&args.crds)?;
    definitions.rehearse().await?;
    let stop = stop::requested().context("cannot listen for signals")?;
    tokio::pin!(stop);
    let form = match args.output {
        Format::Json => Form::Json,
        Format::Text => Form::Lines,
    };
    let progress = Progress::new(output, form);
    let mut running = tokio::select! {
        () = &mut stop => return Ok(ExitCode::SUCCESS),
        running = Running::start(args, &definitions, &progress) => running?,
    };
    progress.serving(&Reachable {
        api_server: &running.api_server.url(),
        kubeconfig: &running.kubeconfig,
        definitions: running
            .server
            .snapshot(definitions::TABLE)
            .iter()
            .map(|definition| definition.name().to_owned())
            .collect(),
        data_dir: args.data_dir.as_deref(),
    })?;
    let ended = tokio::select! {
        () = &mut stop => Ok(()),
        error = running.ended() => Err(error),
    };
    let kubeconfig = running.stop().await;
    ended?;
    progress.ended_serving(&Stopped {
        data_dir: args.data_dir.as_deref(),
        lost: args.data_dir.as_deref().map(data_folder::lost).unwrap_or_default(),
        // A kubeconfig in the temporary directory was deleted with it.
        kubeconfig_kept: kubeconfig.exists().then_some(&kubeconfig),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The running server and its built-in controllers.
struct Running {
    server: Server,
    api_server: ApiServer,
    kubeconfig: PathBuf,
    /// The built-in controllers.
    parts: JoinSet<anyhow::Error>,
}

impl Running {
    /// Starts the server and the controllers.
    ///
    /// # Errors
    /// If the address is in use, the directory is not writable, or a definition conflicts with an
    /// existing one.
    async fn start(
        args: &ApiServerArgs,
        definitions: &Definitions,
        progress: &Progress,
    ) -> anyhow::Result<Self> {
        let place = Place::of(Command::ApiServer, args.data_dir.as_deref())?;
        let is_continued = args.data_dir.as_deref().is_some_and(Folder::holds_state);
        let (server, remarks) = match &args.data_dir {
            Some(path) => data_folder::open(path, embedded::config())?,
            None => (Server::new(embedded::config()), Vec::new()),
        };
        let client = embedded::client(&server, AGENT);
        if is_continued {
            definitions.try_out(&client).await?;
        }
        // Definitions are applied before other clients can connect, so that every client finds all
        // kinds.
        for (definition, how) in definitions.apply(&client).await? {
            progress.applied(&definition, how)?;
        }
        embedded::let_machines_join(&client).await?;
        let api_server = ApiServer::listen(server.clone(), place, args.listen).await?;
        let kubeconfig = api_server.write_kubeconfig(&[], args.kubeconfig_out.as_deref())?;
        let mut parts = JoinSet::new();
        embedded::run_built_in_controllers(&mut parts, &server)?;
        for remark in remarks.into_iter().chain(api_server.address_change_notice()) {
            progress.note(&remark)?;
        }
        Ok(Self { server, api_server, kubeconfig, parts })
    }

    /// Waits until a part of the process ends, which is always an error.
    async fn ended(&mut self) -> anyhow::Error {
        tokio::select! {
            failed = self.api_server.failed() => failed,
            Some(part) = self.parts.join_next() => match part {
                Ok(error) => error,
                Err(error) => anyhow::Error::new(error).context("a built-in controller panicked"),
            },
        }
    }

    /// Stops everything, controllers first. Returns the path of the kubeconfig.
    async fn stop(self) -> PathBuf {
        let Self { server, api_server, kubeconfig, mut parts } = self;
        parts.shutdown().await;
        api_server.shutdown().await;
        drop(server);
        kubeconfig
    }
}

/// Addresses and content of the running server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reachable<'a> {
    api_server: &'a str,
    kubeconfig: &'a Path,
    /// Names of all CustomResourceDefinitions, including definitions of earlier runs.
    definitions: Vec<String>,
    data_dir: Option<&'a Path>,
}

/// State that remains after the process.
#[derive(Debug)]
struct Stopped<'a> {
    data_dir: Option<&'a Path>,
    /// Files of the data directory that were deleted during the run.
    lost: Vec<&'static str>,
    kubeconfig_kept: Option<&'a PathBuf>,
}

impl Progress {
    /// Reports that everything runs.
    fn serving(&self, at: &Reachable<'_>) -> io::Result<()> {
        match self.form {
            Form::Json => self.event("started", at),
            Form::Lines | Form::Table => {
                self.output.text(&render_reachable(at))?;
                self.line(
                    "Ready: the API server and its built-in controllers are running, without machine controllers; Ctrl-C stops them",
                )
            }
        }
    }

    /// Reports that everything has stopped.
    fn ended_serving(&self, what: &Stopped<'_>) -> io::Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            kept_in: Option<&'a Path>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            lost_files: &'a [&'static str],
            kubeconfig_kept: Option<&'a PathBuf>,
        }
        let Stopped { data_dir, lost, kubeconfig_kept } = what;
        let fields = Fields {
            kept_in: data_dir.filter(|_| lost.is_empty()),
            lost_files: lost,
            kubeconfig_kept: *kubeconfig_kept,
        };
        match self.form {
            Form::Json => self.event("stopped", &fields),
            Form::Lines | Form::Table => self.line(&render_stopped(what)),
        }
    }
}

fn render_reachable(at: &Reachable<'_>) -> String {
    let Reachable { api_server, kubeconfig, definitions, data_dir } = at;
    let kinds = match definitions.len() {
        0 => "built-in kinds; no CustomResourceDefinition".to_owned(),
        1 => format!("built-in kinds and 1 CustomResourceDefinition: {}", definitions[0]),
        count => {
            format!("built-in kinds and {count} CustomResourceDefinitions: {}", definitions.join(", "))
        }
    };
    let objects = match data_dir {
        Some(folder) => format!("kept in {}", folder.display()),
        None => "in memory (use --data-dir to keep them)".to_owned(),
    };
    let example = if definitions.iter().any(|name| name.ends_with(".machine.sapcloud.io")) {
        "kubectl get machines --all-namespaces"
    } else {
        "machinist crds | kubectl apply -f -        (adds the machine kinds)"
    };
    format!(
        "API server   {api_server}\n\
         Kubeconfig   {kubeconfig}\n\
         Kinds        {kinds}\n\
         Objects      {objects}\n\
         \n\
         Try these commands in another terminal:\n\
         \x20 export KUBECONFIG={quoted}\n\
         \x20 kubectl api-resources\n\
         \x20 {example}\n\
         \n",
        kubeconfig = kubeconfig.display(),
        quoted = in_shell(kubeconfig),
    )
}

fn render_stopped(what: &Stopped<'_>) -> String {
    let Stopped { data_dir, lost, kubeconfig_kept } = what;
    let mut text = "Stopped the API server".to_owned();
    match data_dir {
        None => text.push_str("; its objects are not kept (use --data-dir to keep them)"),
        Some(folder) if lost.is_empty() => {
            let (folder, quoted) = (folder.display(), in_shell(folder));
            text.push_str(&format!(
                "; its objects and keys are kept in {folder}; continue with: machinist api-server --data-dir {quoted}"
            ));
        }
        Some(folder) => {
            let (folder, quoted, files) = (folder.display(), in_shell(folder), enumerated(lost));
            text.push_str(&format!(
                "; {folder} lost {files} during this run; machinist api-server --data-dir {quoted} will report whether it can continue"
            ));
        }
    }
    if let Some(file) = kubeconfig_kept {
        text.push_str(&format!("; no server answers at the address in {} now", file.display()));
    }
    text
}
