//! Builds the patches of a Machine's status, guarded by the status that the decision was based on.
//! `act` sends them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_kube::GuardedPatch;
use machinist_plan::mcm::facts::{MachineFacts, ReadPhase};
use machinist_plan::mcm::machine::{PhaseWrite, StateWrite, StatusWrite};
use serde_json::{Value, json};

pub(super) fn time(at: Timestamp) -> Value {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at);
    serde_json::to_value(Time(seconds)).unwrap_or(Value::Null)
}

const LAST_KNOWN_STATE: [&str; 2] = ["status", "lastKnownState"];
const CURRENT_STATUS: [&str; 2] = ["status", "currentStatus"];

/// Returns a patch of a Machine's status. It applies only if the phase still equals the phase of
/// the decision, and changes only the given fields. Two planners of this process write the status,
/// and so may a dead process whose write arrives late, or Go MCM.
pub(crate) fn status_patch(machine: &MachineFacts, write: &StatusWrite) -> GuardedPatch {
    let status = &machine.status;
    let mut patch = GuardedPatch::new(&machine.uid);
    let nothing: Option<&Value> = None;
    patch = match &status.read {
        ReadPhase::NoStatus => patch.ensure_map(&["status"], nothing),
        ReadPhase::NoCurrentStatus => patch.test(&CURRENT_STATUS, nothing),
        ReadPhase::Read { phase, .. } => patch.test(&below(PHASE), phase.clone().map(Value::from).as_ref()),
    };
    if let Some(PhaseWrite { phase, timeout_active, ends_promise }) = &write.phase {
        if !matches!(status.read, ReadPhase::Read { .. }) {
            patch = patch.add(&CURRENT_STATUS, json!({}));
        }
        patch = patch.add(&below(PHASE), phase.as_str().into()).add(&below(SINCE), time(write.at));
        patch = match (status.timeout_active, *timeout_active) {
            (_, true) => patch.add(&below("timeoutActive"), Value::from(true)),
            (true, false) => patch.remove(&below("timeoutActive")),
            (false, false) => patch,
        };
        if status.preserve_until.is_some() && *ends_promise {
            patch = patch.remove(&below(EXPIRY));
        }
    }
    if let Some(operation) = &write.operation {
        let mut last = json!({
            "description": operation.description,
            "lastUpdateTime": time(write.at),
            "state": operation.state.as_str(),
            "type": operation.kind.as_str(),
        });
        if let Some(code) = operation.code {
            last["errorCode"] = Value::from(code.as_str());
        }
        // The operation is written as one field, so that a partial write cannot mix two operations.
        patch = patch.add(&["status", "lastOperation"], last);
    }
    patch = match &write.last_known_state {
        Some(StateWrite::Set(state)) => patch.add(&LAST_KNOWN_STATE, Value::from(state.as_str())),
        // The field exists, because it was read. Only the machine controller writes it.
        Some(StateWrite::Clear) => patch.remove(&LAST_KNOWN_STATE),
        None => patch,
    };
    if let Some(addresses) = &write.addresses {
        patch = patch.add(&["status", "addresses"], json!(addresses));
    }
    match &write.conditions {
        None => patch,
        Some(conditions) => patch.add(&["status", "conditions"], json!(conditions)),
    }
}

/// Returns a status patch for a phase that lasted too long. It applies only if the phase has lasted
/// since the time that was read. A Machine that recovered and is unhealthy again has the same
/// phase, but its time starts again.
pub(crate) fn deadline_patch(machine: &MachineFacts, write: &StatusWrite) -> GuardedPatch {
    let patch = status_patch(machine, write);
    match &machine.status.read {
        ReadPhase::NoStatus | ReadPhase::NoCurrentStatus => patch,
        ReadPhase::Read { since, .. } => patch.test(&below(SINCE), since.clone().map(Value::from).as_ref()),
    }
}

/// Returns a status patch that sets or removes the end of a preservation. It applies only if the
/// phase and the end are still those that the decision was based on. The time of the phase stays.
pub(crate) fn expiry_patch(machine: &MachineFacts, until: Option<Timestamp>) -> GuardedPatch {
    let status = &machine.status;
    let mut patch = GuardedPatch::new(&machine.uid);
    let nothing: Option<&Value> = None;
    patch = match &status.read {
        ReadPhase::NoStatus => patch.ensure_map(&["status"], nothing).add(&CURRENT_STATUS, json!({})),
        ReadPhase::NoCurrentStatus => patch.test(&CURRENT_STATUS, nothing).add(&CURRENT_STATUS, json!({})),
        ReadPhase::Read { phase, .. } => patch
            .test(&below(PHASE), phase.clone().map(Value::from).as_ref())
            .test(&below(EXPIRY), status.preserve_until.map(time).as_ref()),
    };
    match until {
        Some(until) => patch.add(&below(EXPIRY), time(until)),
        None => patch.remove(&below(EXPIRY)),
    }
}

const EXPIRY: &str = "preserveExpiryTime";
const PHASE: &str = "phase";
const SINCE: &str = "lastUpdateTime";

/// Returns the path of a field of `status.currentStatus`.
fn below(field: &str) -> [&str; 3] {
    ["status", "currentStatus", field]
}

#[cfg(test)]
mod tests {
    use machinist_api::{Machine, OperationType, Phase};
    use machinist_plan::mcm::machine::OperationWrite;

    use super::*;

    fn machine(status: Value) -> MachineFacts {
        let mut machine = json!({"metadata": {"uid": "u"}, "spec": {}, "status": status});
        if status.is_null() {
            machine.as_object_mut().expect("an object").remove("status");
        }
        MachineFacts::parse(&serde_json::from_value::<Machine>(machine).expect("a Machine"))
    }

    fn write(phase: Phase) -> StatusWrite {
        let operation = OperationWrite::processing(OperationType::Create, "x");
        StatusWrite {
            phase: Some(PhaseWrite::of(phase)),
            operation: Some(operation),
            conditions: None,
            addresses: None,
            last_known_state: None,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn wire(patch: GuardedPatch) -> Vec<Value> {
        let patch = serde_json::to_value(patch.build()).expect("a patch is JSON");
        patch.as_array().expect("a list").clone()
    }

    /// Returns the test operations of a patch, without the test of the UID.
    fn tests(patch: GuardedPatch) -> Vec<(String, Value)> {
        let tests = wire(patch).into_iter().filter(|operation| operation["op"] == "test").skip(1);
        tests
            .map(|test| (test["path"].as_str().unwrap_or_default().to_owned(), test["value"].clone()))
            .collect()
    }

    #[test]
    fn every_status_write_tests_the_phase_as_it_was_read() {
        for (status, path, read) in [
            (json!(null), "/status", json!(null)),
            (json!({}), "/status/currentStatus", json!(null)),
            (json!({"currentStatus": {}}), "/status/currentStatus/phase", json!(null)),
            (json!({"currentStatus": {"phase": ""}}), "/status/currentStatus/phase", json!("")),
            (json!({"currentStatus": {"phase": "Unknown"}}), "/status/currentStatus/phase", json!("Unknown")),
            (json!({"currentStatus": {"phase": "New"}}), "/status/currentStatus/phase", json!("New")),
        ] {
            let expected = [(path.to_owned(), read)];
            assert_eq!(tests(status_patch(&machine(status.clone()), &write(Phase::Running))), expected);
            let conditions = StatusWrite {
                phase: None,
                operation: None,
                conditions: Some(Vec::new()),
                ..write(Phase::Running)
            };
            assert_eq!(tests(status_patch(&machine(status), &conditions)), expected);
        }
    }

    #[test]
    fn a_deadline_patch_also_tests_the_text_of_the_start_time() {
        let since = "2026-11-21T05:55:17+00:00";
        let late = machine(json!({"currentStatus": {"phase": "Unknown", "lastUpdateTime": since}}));
        assert_eq!(
            tests(deadline_patch(&late, &write(Phase::Failed))),
            [
                ("/status/currentStatus/phase".to_owned(), json!("Unknown")),
                ("/status/currentStatus/lastUpdateTime".to_owned(), json!(since)),
            ]
        );
    }

    #[test]
    fn the_end_of_a_preservation_is_changed_only_if_it_was_read() {
        let until = "2026-11-21T05:55:17Z";
        let preserved = machine(json!({"currentStatus": {"phase": "Failed", "preserveExpiryTime": until}}));
        let phase = ("/status/currentStatus/phase".to_owned(), json!("Failed"));
        let read = |value: Value| ("/status/currentStatus/preserveExpiryTime".to_owned(), value);
        assert_eq!(tests(expiry_patch(&preserved, None)), [phase.clone(), read(json!(until))]);
        let plain = machine(json!({"currentStatus": {"phase": "Failed"}}));
        let starts = expiry_patch(&plain, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(tests(starts.clone()), [phase, read(Value::Null)]);
        let changes: Vec<_> = wire(starts).into_iter().filter(|change| change["op"] != "test").collect();
        let path = "/status/currentStatus/preserveExpiryTime";
        assert_eq!(changes, [json!({"op": "add", "path": path, "value": "1970-01-01T00:00:00Z"})]);
    }

    #[test]
    fn a_write_keeps_all_other_fields() {
        let preserved = machine(json!({"currentStatus": {
            "phase": "Unknown", "timeoutActive": true, "preserveExpiryTime": "2026-11-21T05:55:17Z",
        }}));
        let changes = |phase| {
            let changes = wire(status_patch(&preserved, &write(phase))).into_iter();
            let changes = changes.filter(|operation| operation["op"] != "test");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            changes
                .map(|change| format!("{} {}", text(&change["op"]), text(&change["path"])))
                .collect::<Vec<_>>()
        };
        let mut expected = vec![
            "add /status/currentStatus/phase",
            "add /status/currentStatus/lastUpdateTime",
            "remove /status/currentStatus/timeoutActive",
            "add /status/lastOperation",
        ];
        assert_eq!(changes(Phase::Failed), expected);
        expected.insert(3, "remove /status/currentStatus/preserveExpiryTime");
        assert_eq!(changes(Phase::Terminating), expected, "preservation ends when the Machine terminates");
    }
}
