//! Our two controllers as processes that a lane kills and starts again.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{CONTROLLER, Deployment, MANAGER, Running, connect};
use crate::control_plane::Cluster;
use crate::control_plane::processes::{Afterwards, Processes};

/// Short Leases: after a kill, the next process begins when the old Lease has expired.
const LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=500ms",
];
/// The end of a process that lost its Lease says so.
const LOST_LEASE: &str = "leadership was lost";

/// Our two processes.
pub(in crate::real) struct Ours<'a> {
    machinist: &'a Path,
    folder: &'a Path,
    cluster: &'a Cluster,
    provider: &'static str,
    /// Variables of the machine controller.
    environment: Vec<(&'static str, String)>,
    /// Both are `None` between a kill and the next start.
    manager: Option<Processes>,
    controller: Option<Processes>,
    /// Number of processes so far.
    lives: usize,
}

impl<'a> Ours<'a> {
    pub(in crate::real) fn start(
        machinist: &'a Path,
        workers: &Deployment<'a>,
        folder: &'a Path,
    ) -> Result<Self> {
        let mut ours = Self {
            machinist,
            folder,
            cluster: workers.cluster,
            provider: workers.cloud.kind.name(),
            environment: workers.cloud.environment.clone(),
            manager: None,
            controller: None,
            lives: 0,
        };
        ours.start_again()?;
        Ok(ours)
    }

    /// Starts the processes that do not run.
    pub(in crate::real) fn start_again(&mut self) -> Result<()> {
        if self.manager.is_none() {
            let command = self.command(MANAGER)?;
            self.manager = Some(self.spawn(MANAGER, command)?);
        }
        if self.controller.is_none() {
            let mut command = self.command(CONTROLLER)?;
            command.args(["--provider", self.provider]);
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            self.controller = Some(self.spawn(CONTROLLER, command)?);
        }
        Ok(())
    }

    fn command(&self, process: &str) -> Result<Command> {
        let mut command = Command::new(self.machinist);
        command.arg(process).args(LEASE);
        connect(&mut command, self.cluster)?;
        Ok(command)
    }

    fn spawn(&mut self, name: &'static str, command: Command) -> Result<Processes> {
        self.lives += 1;
        let mut processes = Processes::new(self.folder, Afterwards::Keep)?;
        processes.spawn(name, command, self.folder.join(format!("{}-{name}.log", self.lives)))?;
        Ok(processes)
    }

    /// Sends SIGKILL to the machine controller, and waits for its end.
    pub(in crate::real) fn kill_machine_controller(&mut self) {
        self.controller = None;
    }

    /// The same for both processes.
    pub(in crate::real) fn kill_both(&mut self) {
        (self.manager, self.controller) = (None, None);
    }
}

impl Running for Ours<'_> {
    fn name(&self) -> &'static str {
        "Machinist"
    }

    /// A process that could not renew its short Lease on a busy computer has ended, and starts
    /// again, as in a pod.
    fn ensure_alive(&mut self) -> Result<()> {
        let mut must_start = false;
        for process in [&mut self.manager, &mut self.controller] {
            let Some(running) = process else { continue };
            let Some(ended) = running.ended()? else { continue };
            ensure!(
                ended.log_tail.contains(LOST_LEASE),
                "{} ended ({}):\n{}",
                ended.name,
                ended.status,
                ended.log_tail
            );
            println!("{} could not renew its Lease, and starts again", ended.name);
            *process = None;
            must_start = true;
        }
        if must_start { self.start_again() } else { Ok(()) }
    }
}
