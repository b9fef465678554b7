//! The two pairs of controllers that take turns: Go's, and ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::control_plane::Cluster;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::go_modules::{self, Source};
use crate::real::deployment::observer::Cloud;
use crate::real::deployment::{CONTROLLER, MANAGER, Running, connect};
use crate::workspace::{self, ensure_success};

/// The package of Go's manager in that module.
const GO_MANAGER: &str = "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager";

/// Go's machine controller: the library of that module with our drivers.
const GO_SOURCES: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../../takeover/go.mod")),
    ("main.go", include_str!("../../../takeover/main.go")),
    ("call.go", include_str!("../../../takeover/call.go")),
    ("hcloud.go", include_str!("../../../takeover/hcloud.go")),
    ("aws.go", include_str!("../../../takeover/aws.go")),
    ("openstack.go", include_str!("../../../takeover/openstack.go")),
];

/// Short enough that Go's sweep runs several times in each of its turns. The sweep deletes each
/// instance that has the tags of a class and that no Machine records.
const ORPHANS_EVERY: &str = "10s";

/// Our processes finish open calls first. A call of a driver takes at most a minute.
const END_WITHIN: Duration = Duration::from_secs(90);

/// All programs that the lanes run.
pub(super) struct Programs {
    pub(super) machinist: PathBuf,
    go_manager: PathBuf,
    go_controller: PathBuf,
}

impl Programs {
    /// Returns why Go's module cannot be had; `None` if it can.
    pub(super) fn reason_they_cannot_be_had() -> Option<String> {
        let (name, version) = go_modules::GO_MCM;
        go_modules::provide(name, version, Source::CacheOrProxy).err().map(|error| format!("{error:#}"))
    }

    /// Compiles everything.
    pub(super) fn provide(folder: &Path) -> Result<Self> {
        let machinist = PathBuf::from(workspace::program()?.get_program());
        let sources = folder.join("go");
        fs::create_dir_all(&sources).with_context(|| format!("cannot create {}", sources.display()))?;
        for (name, text) in GO_SOURCES {
            fs::write(sources.join(name), text)?;
        }
        let (go_manager, go_controller) = (folder.join("go-manager"), folder.join("go-controller"));
        for (program, package) in [(&go_controller, "."), (&go_manager, GO_MANAGER)] {
            let mut build = go_modules::polite_go();
            build.current_dir(&sources).env("GOFLAGS", "-mod=mod -buildvcs=false").env("GOWORK", "off");
            ensure_success(build.args(["build", "-o"]).arg(program).arg(package))?;
        }
        Ok(Self { machinist, go_manager, go_controller })
    }
}

/// One of the two sides whose controllers take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Go,
    Ours,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Go => "Go",
            Self::Ours => "Machinist",
        }
    }
}

/// A manager and a machine controller that run.
pub(super) struct Pair {
    pub(super) side: Side,
    processes: Processes,
}

impl Pair {
    /// Starts both controllers of a side. The logs are in the folder, by the number of the turn.
    pub(super) fn start(
        side: Side,
        turn: usize,
        programs: &Programs,
        cluster: &Cluster,
        cloud: &Cloud,
        folder: &Path,
    ) -> Result<Self> {
        let (manager, mut controller) = match side {
            Side::Go => (Command::new(&programs.go_manager), Command::new(&programs.go_controller)),
            Side::Ours => {
                let mut manager = Command::new(&programs.machinist);
                manager.arg(MANAGER);
                let mut controller = Command::new(&programs.machinist);
                controller.args([CONTROLLER, "--provider", cloud.kind.name()]);
                (manager, controller)
            }
        };
        controller.arg(format!("--machine-safety-orphan-vms-period={ORPHANS_EVERY}"));
        controller.env("TAKEOVER_CLOUD", cloud.kind.name());
        controller.envs(cloud.environment.iter().map(|(name, value)| (name, value)));
        let mut processes = Processes::new(folder, Afterwards::Keep)?;
        for (name, mut command) in [(MANAGER, manager), (CONTROLLER, controller)] {
            connect(&mut command, cluster)?;
            processes.spawn(name, command, folder.join(format!("{turn}-{}-{name}.log", side.name())))?;
        }
        Ok(Self { side, processes })
    }

    /// Ends both controllers with SIGTERM, as the end of a pod does.
    pub(super) fn stop(mut self) -> Result<()> {
        self.ensure_alive()?;
        for ended in self.processes.terminate(END_WITHIN)? {
            // Go has no handler for the signal.
            let is_fine = self.side == Side::Go || ended.status.success();
            ensure!(is_fine, "{} ended with {}:\n{}", ended.name, ended.status, ended.log_tail);
        }
        Ok(())
    }
}

impl Running for Pair {
    fn name(&self) -> &'static str {
        self.side.name()
    }

    fn ensure_alive(&mut self) -> Result<()> {
        match self.processes.ended()? {
            None => Ok(()),
            Some(ended) => {
                bail!("{} of {} ended ({}):\n{}", ended.name, self.side.name(), ended.status, ended.log_tail)
            }
        }
    }
}
