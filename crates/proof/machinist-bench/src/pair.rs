//! A value of each of the two controllers.

use anyhow::Result;
use serde::Serialize;

use crate::requests::Program;

/// A value of the machine controller, and one of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pair<T> {
    pub(crate) machine_controller: T,
    pub(crate) manager: T,
}

impl<T> Pair<T> {
    pub(crate) fn each_ref(&self) -> Pair<&T> {
        Pair { machine_controller: &self.machine_controller, manager: &self.manager }
    }

    pub(crate) fn each_mut(&mut self) -> [&mut T; 2] {
        [&mut self.machine_controller, &mut self.manager]
    }

    /// The value of a program, if it is one of the two controllers.
    pub(crate) fn of(&mut self, program: Program) -> Option<&mut T> {
        match program {
            Program::MachineController => Some(&mut self.machine_controller),
            Program::Manager => Some(&mut self.manager),
            Program::Other => None,
        }
    }

    pub(crate) fn map<U>(self, change: impl Fn(T) -> U) -> Pair<U> {
        Pair { machine_controller: change(self.machine_controller), manager: change(self.manager) }
    }

    pub(crate) fn try_map<U>(self, change: impl Fn(T) -> Result<U>) -> Result<Pair<U>> {
        Ok(Pair { machine_controller: change(self.machine_controller)?, manager: change(self.manager)? })
    }
}
