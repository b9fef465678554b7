//! The lane of Gardener's own integration suite: its Go package drives our two processes on two
//! clusters, with the simulated cloud.
//!
//! The files of the suite that a provider has to write are in `xtask/gardener-suite`; its README
//! describes them. The suite finds its files by paths relative to a provider's repository, so this
//! lane creates a repository of a provider in a temporary folder.
//!
//! At its start and its end, the suite kills every process whose command line looks like its own
//! controllers. It runs in a process namespace, so that it sees no other process of the computer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::ending::Ending;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::control_plane::{Audit, ControlPlane, ControllerManagers, Durability, Options, Roles};
use crate::envtest::Assets;
use crate::go_modules::{self, Module, Source, why_no_go};
use crate::ports;
use crate::workspace::{self, ensure_success, output_of};

/// Folder of the compiled suite below the root of the repository. The suite looks for its files
/// three levels above.
const SUITE_FOLDER: &str = "test/integration/controller";

/// The suite waits up to five minutes for each step. A run that passes takes about a minute.
const SUITE_WITHIN: &str = "40m";
const NODE_LEASE_RENEWAL: &str = "1s";
const CLOUD_STARTS_WITHIN: Duration = Duration::from_secs(30);

/// Runs the whole suite.
pub(super) fn check() -> Result<Ending> {
    let reason = Assets::reason_they_cannot_be_had().or_else(why_no_go).or_else(reason_without_tools);
    if let Some(reason) = reason {
        return Ok(Ending::Skipped(reason));
    }
    let (name, version) = go_modules::GO_MCM;
    let module = match go_modules::provide(name, version, Source::CacheOrProxy) {
        Ok(module) => module,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let program = PathBuf::from(workspace::program()?.get_program());
    let folder = tempfile::tempdir()?;
    lay_out(folder.path(), &module)?;
    let suite = compile(folder.path())?;
    run(folder.path(), &suite, &program)?;
    Ok(Ending::Passed)
}

/// Returns what the suite needs in addition to Go, and this computer does not have.
fn reason_without_tools() -> Option<String> {
    let tools: [&[&str]; 3] = [
        &["make", "--version"],
        &["ps", "-e"],
        &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "true"],
    ];
    tools.iter().find_map(|line| {
        let [program, arguments @ ..] = line else { return None };
        let failed = output_of(Command::new(program).args(arguments)).err();
        failed.map(|error| format!("the suite needs make, ps and a process namespace: {error:#}"))
    })
}

/// Writes the repository of a provider, as the suite expects it.
fn lay_out(root: &Path, module: &Module) -> Result<()> {
    let files = [
        ("go.mod", include_str!("../../gardener-suite/go.mod")),
        ("test/integration/controller/suite_test.go", include_str!("../../gardener-suite/suite_test.go")),
        ("Makefile", include_str!("../../gardener-suite/machine-controller.mk")),
        ("dev/mcm/Makefile", include_str!("../../gardener-suite/machine-controller-manager.mk")),
        ("secret.yaml", include_str!("../../gardener-suite/secret.yaml")),
        ("machine-class-v1.yaml", include_str!("../../gardener-suite/machine-class-v1.yaml")),
        ("machine-class-v2.yaml", include_str!("../../gardener-suite/machine-class-v2.yaml")),
        // Changes that the suite applies to both classes. Providers add a tag here; classes of the
        // simulated cloud have no tags.
        (".ci/controllers-test/machine-class-patch.json", "{}\n"),
        // The suite only looks whether these exist.
        ("dev/mcm/.git/HEAD", ""),
        (".ci/controllers-test/logs/.keep", ""),
    ];
    for (file, text) in files {
        write(&root.join(file), text)?;
    }
    let kinds = module.folder.join("kubernetes/crds");
    for entry in fs::read_dir(&kinds).with_context(|| format!("cannot read {}", kinds.display()))? {
        let file = entry?.path();
        let name = file.file_name().context("a file has a name")?;
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        write(&root.join("dev/mcm/kubernetes/crds").join(name), &text)?;
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Compiles the suite before the clusters run: they would slow the compiler down.
fn compile(root: &Path) -> Result<PathBuf> {
    let suite = root.join("suite.test");
    let mut build = go_modules::polite_go();
    build.current_dir(root).env("GOFLAGS", "-mod=mod -buildvcs=false").env("GOWORK", "off");
    build.args(["test", "-c", "-o"]).arg(&suite).arg(format!("./{SUITE_FOLDER}"));
    ensure_success(&mut build)?;
    Ok(suite)
}

/// Starts the clusters and the cloud, and runs the compiled suite.
fn run(root: &Path, suite: &Path, program: &Path) -> Result<()> {
    let mut control_plane = ControlPlane::start(
        &Assets::provide()?,
        &Options {
            roles: Roles::OneClusterEach,
            controller_managers: ControllerManagers::All,
            audit: Audit::Off,
            durability: Durability::None,
            ..Options::default()
        },
    )?;
    let control = control_plane.control();
    output_of(control.kubectl().arg("apply").arg("-f").arg(root.join("secret.yaml")))?;

    let target = control_plane.target().describe();
    let port = ports::free()?;
    let listen = format!("127.0.0.1:{port}");
    let mut processes = Processes::new(root, Afterwards::Keep)?;
    let mut cloud = Command::new(program);
    cloud.args(["sim-cloud", "--listen", &listen, "--data-dir"]).arg(root.join("cloud"));
    cloud.args(["--target-server", &target.server, "--target-ca"]).arg(&target.ca_file);
    // The kube-controller-manager of the cluster marks Nodes NotReady sooner than the default of
    // the cloud allows.
    cloud.args(["--node-lease-renewal", NODE_LEASE_RENEWAL]);
    processes.spawn("sim-cloud", cloud, root.join("cloud.log"))?;
    processes.await_port(port, CLOUD_STARTS_WITHIN)?;

    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(suite);
    command.args(["-ginkgo.v", "-ginkgo.no-color", "-test.timeout", SUITE_WITHIN]);
    command.current_dir(root.join(SUITE_FOLDER)).env_remove("KUBECONFIG");
    command.env("CONTROL_KUBECONFIG", control_plane.control().kubeconfig());
    command.env("TARGET_KUBECONFIG", control_plane.target().kubeconfig());
    command.env("CONTROL_CLUSTER_NAMESPACE", "default").env("TARGET_CLUSTER_NAME", "default");
    command.env("MACHINECLASS_V1", root.join("machine-class-v1.yaml"));
    command.env("MACHINECLASS_V2", root.join("machine-class-v2.yaml"));
    command.env("MACHINIST", program).env("SIM_ENDPOINT", format!("http://{listen}"));
    command.env("MACHINE_CONTROLLER_PORT", ports::free()?.to_string());
    command.env("MANAGER_PORT", ports::free()?.to_string());
    if let Err(error) = ensure_success(&mut command) {
        keep_logs(root)?;
        return Err(error);
    }
    control_plane.ensure_alive()
}

/// Copies the logs to a folder that stays, for the reader of a failure.
fn keep_logs(root: &Path) -> Result<()> {
    let kept = tempfile::Builder::new().prefix("machinist-logs-").tempdir()?.keep();
    let logs = root.join(".ci/controllers-test/logs");
    for file in [logs.join("mc_process.log"), logs.join("mcm_process.log"), root.join("cloud.log")] {
        // The suite may have failed before it started a process.
        if let (true, Some(name)) = (file.is_file(), file.file_name()) {
            fs::copy(&file, kept.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        }
    }
    eprintln!("the logs are in {}", kept.display());
    Ok(())
}
