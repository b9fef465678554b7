//! `cargo xtask conformance`: compares the embedded API server with a real one, by level, and with
//! the ledger of known differences.
//!
//! The comparison is a program of `machinist-apiserver`, with the async runtime that this crate
//! does not have. This task starts a real control plane for it, if one is needed.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::control_plane::{Audit, ControlPlane, ControllerManagers, Durability, Options, Pods, Roles};
use crate::envtest::Assets;
use crate::workspace::{cargo, ensure_success};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare one level only, CL0 to CL6
    #[arg(long, value_name = "CLn", value_parser = ["CL0", "CL1", "CL2", "CL3", "CL4", "CL5", "CL6"], hide_possible_values = true)]
    level: Option<String>,

    /// Compare this case only (may be given several times)
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,

    /// Send the requests to a kube-apiserver now, instead of using its recorded answers
    #[arg(long)]
    real: bool,

    /// Send the requests to a kube-apiserver now, and store its answers as the recorded ones
    #[arg(long)]
    record: bool,

    /// Record the requests of kubectl again as cases, together with the answers of a kube-apiserver
    #[arg(long, conflicts_with_all = ["real", "record", "broken", "level", "cases"])]
    trace: bool,

    /// Break the embedded server on purpose, one place after the other, and report which cases
    /// detect it
    #[arg(long, conflicts_with_all = ["real", "record", "output"])]
    broken: bool,

    /// Text for people, or one JSON object
    #[arg(long, short, value_parser = ["text", "json"], default_value = "text")]
    output: String,
}

/// The cases that are generated from `corpus/kubectl/traced.txt`.
const TRACED: [&str; 5] =
    ["kubectl_objects", "kubectl_custom", "kubectl_nodes", "kubectl_access", "kubectl_workloads"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let example = |task: &str, name: &str| {
        let mut command = cargo();
        command.args([task, "--quiet", "--package", "machinist-conformance"]);
        command.args(["--example", name]);
        command
    };
    // Compiled before a cluster runs, which would otherwise idle for minutes.
    ensure_success(&mut example("build", "conformance"))?;
    let mut command = example("run", "conformance");
    command.arg("--");
    if args.broken {
        command.arg("--broken");
    } else {
        command.args(["--output", &args.output]);
    }
    if let Some(level) = &args.level {
        command.args(["--level", level]);
    }
    for case in &args.cases {
        command.args(["--case", case]);
    }
    if !args.real && !args.record && !args.trace {
        return ensure_success(&mut command);
    }
    if let Some(reason) = Assets::reason_they_cannot_be_had() {
        bail!("no kube-apiserver available: {reason}. Omit --real and --record to use the recorded answers");
    }
    let mut control_plane = ControlPlane::start(
        &Assets::provide()?,
        &Options {
            roles: Roles::OneClusterForBoth,
            controller_managers: ControllerManagers::None,
            pods: Pods::AsAlways,
            audit: Audit::Off,
            durability: Durability::None,
            ..Options::default()
        },
    )?;
    let description = serde_json::to_value(control_plane.describe())?;
    let of_control = |key: &str| PathBuf::from(description["control"][key].as_str().unwrap_or_default());
    if args.trace {
        let mut trace = example("run", "trace");
        trace.arg("--").arg("--kubeconfig").arg(of_control("kubeconfig"));
        ensure_success(trace.arg("--kubectl").arg(control_plane.kubectl()))?;
        for case in TRACED {
            command.args(["--case", case]);
        }
    }
    command.arg("--kubeconfig").arg(of_control("kubeconfig")).arg("--etcd").arg(of_control("etcd"));
    if args.record || args.trace {
        command.arg("--record");
    }
    ensure_success(&mut command)?;
    control_plane.ensure_alive()
}
