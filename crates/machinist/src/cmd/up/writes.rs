//! Counts the writes per machine at the API server, by client.

use machinist_apiserver::AuditRecord;
use serde::Serialize;

/// User-Agent of the manager.
pub(super) const MANAGER: &str = "machinist-manager";
/// User-Agent of the machine controller.
pub(super) const MACHINE_CONTROLLER: &str = "machinist-machine-controller";
/// User-Agent of the cloud controller manager.
pub(super) const CLOUD_CONTROLLER_MANAGER: &str = "machinist-cloud-controller-manager";
/// User-Agent of `up` itself, which applies and deletes manifests.
pub(super) const UP: &str = "machinist-up";

/// Writes of the controllers since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writes {
    machine_controller: u32,
    manager: u32,
    cloud_controller_manager: u32,
    /// Writes of Events by all controllers.
    events: u32,
}

/// Writes divided by the number of Machines ever created.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WritesPerMachine {
    /// Writes by the machine controller, without Events and evictions.
    pub machine_controller: f64,
    /// Writes by the manager, without Events.
    pub manager: f64,
    /// Writes by the cloud controller manager, without Events; zero if it does not run.
    pub cloud_controller_manager: f64,
    /// Writes of Events by all controllers.
    pub events: f64,
}

impl Writes {
    /// Counts one answered request.
    pub(super) fn take_in(&mut self, request: &AuditRecord) {
        if !request.is_write() {
            return;
        }
        let is_eviction = request.resource == "pods" && request.subresource == "eviction";
        let count = match request.user_agent.as_str() {
            MANAGER | MACHINE_CONTROLLER | CLOUD_CONTROLLER_MANAGER if request.resource == "events" => {
                &mut self.events
            }
            // An eviction is repeated until the budget allows it, so it is not a cost of the
            // machine.
            MACHINE_CONTROLLER if is_eviction => return,
            MACHINE_CONTROLLER => &mut self.machine_controller,
            MANAGER => &mut self.manager,
            CLOUD_CONTROLLER_MANAGER => &mut self.cloud_controller_manager,
            _ => return,
        };
        *count += 1;
    }

    /// Returns the writes per Machine; zero without Machines.
    pub(super) fn per_machine(self, machines: usize) -> WritesPerMachine {
        let share = |writes: u32| {
            let machines = f64::from(u32::try_from(machines).unwrap_or(u32::MAX));
            if machines == 0.0 { 0.0 } else { (f64::from(writes) / machines * 100.0).round() / 100.0 }
        };
        WritesPerMachine {
            machine_controller: share(self.machine_controller),
            manager: share(self.manager),
            cloud_controller_manager: share(self.cloud_controller_manager),
            events: share(self.events),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_apiserver::{AuditVerb, Verb};

    fn request(user_agent: &str, verb: Verb, resource: &str, subresource: &str) -> AuditRecord {
        AuditRecord {
            user: "admin".to_owned(),
            impersonated: None,
            user_agent: user_agent.to_owned(),
            verb: AuditVerb::Resource(verb),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            code: 409,
            revision: None,
        }
    }

    #[test]
    fn writes_are_counted_by_client_including_failed_ones() {
        let mut writes = Writes::default();
        for request in [
            request(MACHINE_CONTROLLER, Verb::Patch, "machines", "status"),
            request(MACHINE_CONTROLLER, Verb::Get, "machines", ""),
            request(MACHINE_CONTROLLER, Verb::Create, "pods", "eviction"),
            request(MACHINE_CONTROLLER, Verb::Create, "events", ""),
            request(MANAGER, Verb::Create, "machines", ""),
            request(MANAGER, Verb::Delete, "machines", ""),
            request(MANAGER, Verb::Patch, "events", ""),
            request(CLOUD_CONTROLLER_MANAGER, Verb::Patch, "nodes", "status"),
            request(CLOUD_CONTROLLER_MANAGER, Verb::Patch, "nodes", ""),
            request(CLOUD_CONTROLLER_MANAGER, Verb::Create, "events", ""),
            request(UP, Verb::Create, "machinedeployments", ""),
        ] {
            writes.take_in(&request);
        }
        let per_machine = writes.per_machine(2);
        let expected = WritesPerMachine {
            machine_controller: 0.5,
            manager: 1.0,
            cloud_controller_manager: 1.0,
            events: 1.5,
        };
        assert_eq!(per_machine, expected);
        assert_eq!(writes.per_machine(0).manager, 0.0);
    }
}
