//! Progress of `up`: plain lines for people, or one JSON object per line for programs.
//!
//! With the live table, lines report only what the table does not show, or shows too briefly.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::cloud::TOKEN;
use super::view::{Awaited, Change};
use super::writes::WritesPerMachine;
use crate::args::{Format, UpArgs};
use crate::clouds::UpCloud;
use crate::embedded::data_folder::enumerated;
use crate::output;
use crate::progress::{Form, Progress};
use crate::wiring::in_shell;

/// Returns the requested form, if the terminal supports it.
pub(super) fn form_of(args: &UpArgs) -> Form {
    match args.output {
        Format::Json => Form::Json,
        Format::Text if !args.plain && output::is_live_terminal() => Form::Table,
        Format::Text => Form::Lines,
    }
}

/// Addresses of a running cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reachable<'a> {
    /// URL of the API server.
    pub api_server: &'a str,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: &'a Path,
    /// URL of the cloud for its clients.
    pub cloud: &'a str,
    #[serde(skip)]
    pub which: UpCloud,
    /// URL of the cloud's functions for its operator.
    #[serde(skip)]
    pub control: &'a str,
    /// Path of the kubeconfig of the cluster of the Nodes, if it is another cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kubeconfig: Option<&'a Path>,
    /// Namespace that the controllers serve.
    pub namespace: &'a str,
    /// Object of the manifest for the example commands.
    #[serde(skip)]
    pub example: Option<&'a Awaited>,
}

/// State that remains after the process.
#[derive(Debug)]
pub(super) struct Stopped<'a> {
    /// Instances that were alive in the cloud.
    pub instances_alive: usize,
    /// The existing instances that did not run.
    pub instances_stopped: usize,
    pub cloud: UpCloud,
    pub state: State<'a>,
    /// Kubeconfig that still exists, although its server has stopped.
    pub kubeconfig_kept: Option<&'a Path>,
}

/// The API server's objects and the cloud's ledger, after the end.
#[derive(Debug)]
pub(super) enum State<'a> {
    /// Stored in this directory.
    Kept(&'a Path, UpCloud),
    /// Stored in this directory, but these files were deleted during the run.
    Lost(&'a Path, UpCloud, Vec<&'static str>),
    /// Not stored: there was no `--data-dir`.
    NeverKept,
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum End {
    /// Everything runs.
    Ready,
    /// Everything is deleted.
    Gone,
    /// The timeout passed first.
    Timeout,
    /// A signal stopped the run.
    Interrupted,
}

/// Last line of a run with `--until`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub result: End,
    /// Machines that deployments, sets without deployment, and Machines without set ask for.
    #[serde(skip)]
    pub wanted: u64,
    /// Number of Machine objects.
    pub machines: usize,
    /// Number of Running Machines.
    pub running: usize,
    /// Number of ready Nodes.
    pub nodes_ready: usize,
    /// Instances in the cloud, including those being deleted.
    pub instances_alive: usize,
    /// The existing instances that do not run.
    #[serde(skip_serializing_if = "is_zero")]
    pub instances_stopped: usize,
    /// Instances in the cloud's ledger, including deleted ones. Absent for a Docker engine, which
    /// has no ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances_ever: Option<usize>,
    /// Duration of the run.
    pub seconds: f64,
    /// Writes at the API server, divided by the number of Machines ever created.
    pub writes_per_machine: WritesPerMachine,
}

impl Progress {
    /// Reports that the cluster runs.
    pub(super) fn reachable(&self, at: &Reachable<'_>) -> io::Result<()> {
        match self.form {
            Form::Json => self.event("started", at),
            Form::Lines | Form::Table => self.output.text(&render_reachable(at)),
        }
    }

    /// Reports that the cluster has stopped.
    pub(super) fn stopped(&self, what: &Stopped<'_>) -> io::Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            instances_alive: usize,
            #[serde(skip_serializing_if = "is_zero")]
            instances_stopped: usize,
            kept_in: Option<&'a Path>,
            #[serde(skip_serializing_if = "Option::is_none")]
            lost_files: Option<&'a [&'static str]>,
            kubeconfig_kept: Option<&'a Path>,
        }
        let Stopped { instances_alive, instances_stopped, cloud: _, state, kubeconfig_kept } = what;
        let (kept_in, lost_files) = match state {
            State::Kept(folder, _) => (Some(*folder), None),
            State::Lost(_, _, files) => (None, Some(files.as_slice())),
            State::NeverKept => (None, None),
        };
        let fields = Fields {
            instances_alive: *instances_alive,
            instances_stopped: *instances_stopped,
            kept_in,
            lost_files,
            kubeconfig_kept: *kubeconfig_kept,
        };
        match self.form {
            Form::Json => self.event("stopped", &fields),
            Form::Lines | Form::Table => self.line(&render_stopped(what)),
        }
    }

    /// Reports a change in the cluster.
    pub(super) fn changed(&self, change: &Change) -> io::Result<()> {
        match self.form {
            Form::Json => self.changed_json(change),
            Form::Lines | Form::Table if matches!(change, Change::Warning { is_told: true, .. }) => Ok(()),
            Form::Table if is_shown(change) => Ok(()),
            Form::Lines | Form::Table => self.line(&render(change)),
        }
    }

    fn changed_json(&self, change: &Change) -> io::Result<()> {
        #[derive(Serialize)]
        struct Object<'a> {
            name: &'a str,
            state: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            problem: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Warning<'a> {
            object: &'a str,
            reason: &'a str,
            message: &'a str,
        }
        let object = |event, name, state, problem| self.event(event, &Object { name, state, problem });
        match change {
            Change::Machine { name, phase, problem } => {
                object("machine", name, phase_word(phase), problem.as_deref())
            }
            Change::MachineGone { name } => object("machine", name, "Gone", None),
            Change::Node { name, ready } => object("node", name, readiness(*ready), None),
            Change::NodeGone { name } => object("node", name, "Gone", None),
            Change::Unserved { object, .. } => {
                let message = render(change);
                self.event("warning", &Warning { object, reason: "NamespaceNotServed", message: &message })
            }
            Change::Warning { object, reason, message, is_told: _ } => {
                self.event("warning", &Warning { object, reason, message })
            }
        }
    }

    /// Reports the result of the run.
    pub(super) fn ended(&self, summary: &Summary) -> io::Result<()> {
        match self.form {
            Form::Json => self.output.json(summary),
            Form::Lines | Form::Table => self.line(&render_summary(summary)),
        }
    }
}

/// Returns whether the table shows a change. A problem gets a line too, because the table may show
/// it only for a moment.
fn is_shown(change: &Change) -> bool {
    match change {
        Change::Machine { problem, .. } => problem.is_none(),
        Change::MachineGone { .. } | Change::Node { .. } | Change::NodeGone { .. } => true,
        Change::Unserved { .. } | Change::Warning { .. } => false,
    }
}

fn render(change: &Change) -> String {
    match change {
        Change::Machine { name, phase, problem: None } => format!("Machine {name}: {}", phase_word(phase)),
        Change::Machine { name, phase, problem: Some(problem) } => {
            format!("Machine {name}: {}, {problem}", phase_word(phase))
        }
        Change::MachineGone { name } => format!("Machine {name}: deleted"),
        Change::Node { name, ready } => format!("Node {name}: {}", readiness(*ready)),
        Change::NodeGone { name } => format!("Node {name}: deleted"),
        Change::Unserved { object, namespace, served } => format!(
            "Warning, {object} in namespace {namespace}: no controller acts on it, because the controllers serve only namespace {served}"
        ),
        Change::Warning { object, reason, message, is_told: _ } => {
            format!("Warning, {object}: {reason}: {message}")
        }
    }
}

/// Returns the phase of a Machine, or "created" until a controller has written a phase.
pub(super) fn phase_word(phase: &str) -> &str {
    if phase.is_empty() { "created" } else { phase }
}

pub(super) fn readiness(ready: bool) -> &'static str {
    if ready { "Ready" } else { "NotReady" }
}

fn render_reachable(at: &Reachable<'_>) -> String {
    let Reachable {
        api_server,
        kubeconfig,
        cloud,
        which,
        control,
        target_kubeconfig,
        namespace,
        example,
        ..
    } = at;
    let kubeconfig = kubeconfig.display();
    let flag = if *namespace == "default" { String::new() } else { format!(" -n {namespace}") };
    let (about_cloud, list_instances) = match which {
        UpCloud::Sim => {
            (format!("simulated; {control}/ledger lists all instances"), format!("curl {control}/ledger"))
        }
        UpCloud::Hcloud => (
            format!("stands in for Hetzner Cloud; {control}/servers lists all servers ever created"),
            format!("HCLOUD_ENDPOINT={cloud} HCLOUD_TOKEN={TOKEN} hcloud server list"),
        ),
        UpCloud::Docker => {
            let list = format!("docker ps --filter label=machinist.dev/cluster={control}");
            (format!("Docker; {list} lists the containers"), list)
        }
        UpCloud::Local => (
            "of this API server; a simulated host runs them".to_owned(),
            format!("kubectl get pods,services,secrets -l machine-provider=local{flag}"),
        ),
    };
    let (of_nodes, get_nodes, kinds) = match target_kubeconfig {
        None => (String::new(), String::new(), "machinedeployments,machinesets,machines,nodes"),
        Some(target) => (
            format!("Nodes        {} (kubeconfig of their own cluster)\n", target.display()),
            format!("  kubectl --kubeconfig {} get nodes\n", in_shell(target)),
            "machinedeployments,machinesets,machines",
        ),
    };
    let mut text = format!(
        "API server   {api_server}\n\
         Cloud        {cloud} ({about_cloud})\n\
         Kubeconfig   {kubeconfig}\n\
         {of_nodes}\
         Namespace    {namespace} (the controllers ignore machine objects in other namespaces)\n\
         \n\
         Try these commands in another terminal:\n\
         {get_nodes}\
         \x20 export KUBECONFIG={kubeconfig}\n\
         \x20 kubectl get {kinds}{flag}\n"
    );
    let examples = match example {
        Some(Awaited::Deployment(_, name)) => [
            format!("kubectl scale machinedeployment {name} --replicas=5{flag}"),
            format!("machinist why machinedeployment/{name}{flag}"),
        ],
        Some(Awaited::Set(_, name)) => [
            format!("kubectl scale machineset {name} --replicas=5{flag}"),
            format!("machinist why machineset/{name}{flag}"),
        ],
        Some(Awaited::Machine(_, name)) => {
            [format!("kubectl get machines --watch{flag}"), format!("machinist why machine/{name}{flag}")]
        }
        None => [format!("kubectl get machines --watch{flag}"), list_instances.clone()],
    };
    for example in examples {
        text.push_str(&format!("  {example}\n"));
    }
    if matches!(which, UpCloud::Hcloud | UpCloud::Docker | UpCloud::Local) && example.is_some() {
        text.push_str(&format!("  {list_instances}\n"));
    }
    text.push('\n');
    text
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn render_stopped(what: &Stopped<'_>) -> String {
    let Stopped { instances_alive, instances_stopped, cloud, state, kubeconfig_kept } = what;
    let mut text = match (cloud, state) {
        (UpCloud::Sim | UpCloud::Hcloud | UpCloud::Local, _) => {
            format!("Stopped the API server, the controllers and {instances_alive} simulated instances")
        }
        (UpCloud::Docker, State::NeverKept) => {
            format!("Stopped the API server and the controllers; deleting their {instances_alive} containers")
        }
        (UpCloud::Docker, State::Kept(..) | State::Lost(..)) => {
            let running = instances_alive.saturating_sub(*instances_stopped);
            let stopped = match instances_stopped {
                0 => String::new(),
                stopped => format!(", and {stopped} do not run (docker ps --all)"),
            };
            format!("Stopped the API server and the controllers; {running} containers keep running{stopped}")
        }
    };
    match state {
        State::Kept(folder, cloud @ UpCloud::Docker) => {
            let (command, folder) = (cloud.command_line(folder), folder.display());
            text.push_str(&format!(
                "; the API server's objects and the keys of the cluster are kept in {folder}; continue with: {command}; delete \
                 everything with: {command} --until gone"
            ));
        }
        State::Kept(folder, cloud) => {
            let (command, folder) = (cloud.command_line(folder), folder.display());
            text.push_str(&format!(
                "; the API server's objects, the cloud's ledger and its machines are kept in {folder}; continue with: {command}"
            ));
        }
        State::Lost(folder, cloud, files) => {
            let (command, folder, files) = (cloud.command_line(folder), folder.display(), enumerated(files));
            text.push_str(&format!(
                "; {folder} lost {files} during this run; {command} will report whether it can continue"
            ));
        }
        State::NeverKept => text.push_str("; their state is not kept (use --data-dir to keep it)"),
    }
    if let Some(file) = kubeconfig_kept {
        text.push_str(&format!("; no server answers at the address in {} now", file.display()));
    }
    text
}

fn render_summary(summary: &Summary) -> String {
    let Summary { result, wanted, machines, running, nodes_ready, .. } = summary;
    let Summary { instances_alive, instances_stopped, instances_ever, .. } = summary;
    let WritesPerMachine { machine_controller, manager, cloud_controller_manager, events } =
        summary.writes_per_machine;
    let what = match result {
        End::Ready => "Ready",
        End::Gone => "Gone",
        End::Timeout => "Timed out",
        End::Interrupted => "Interrupted",
    };
    let counts = match (result, machines) {
        (End::Gone, 0) => "no machine is left".to_owned(),
        _ => render_counts(*running, *wanted, *machines, *nodes_ready),
    };
    let of_ccm = match cloud_controller_manager {
        0.0 => String::new(),
        writes => format!("cloud controller manager {writes}, "),
    };
    let alive = match instances_ever {
        Some(ever) => format!("{instances_alive} instances alive of {ever} ever created"),
        None if 0 < *instances_stopped => {
            let running = instances_alive.saturating_sub(*instances_stopped);
            format!("{running} of {instances_alive} containers run")
        }
        None => format!("{instances_alive} containers"),
    };
    format!(
        "{what}: {counts}, {alive}; writes per machine: machine controller {machine_controller}, manager {manager}, {of_ccm}events {events}"
    )
}

/// Formats the counts of machines and Nodes on one line.
pub(super) fn render_counts(running: usize, wanted: u64, machines: usize, nodes_ready: usize) -> String {
    // The number of existing machines is omitted if it equals the wanted number.
    let exist =
        if u64::try_from(machines) == Ok(wanted) { String::new() } else { format!(" ({machines} exist)") };
    format!("{running} of {wanted} machines Running{exist}, {nodes_ready} Nodes ready")
}
