//! Times, processes, answers and instances for the tests of all planners.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Process};
use machinist_instance::{
    AccountId, CreateGuarantee, Error, Instance, KeyTag, NodeName, Power, Promises, ProviderId,
};
use serde_json::Value;

/// The second in which most tests decide.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).expect("a moment of this century")
}

/// A process that started at that second. A call to its cloud takes effect within `call_bound`, and
/// lists show it `visible_within` later.
pub(crate) fn process(started: i64, call_bound: Duration, visible_within: Duration) -> Process {
    let promises = Promises {
        visible_within,
        call_bound,
        calls_outlive_process: true,
        create: CreateGuarantee::UniqueName,
        rate: None,
        keys: KeyTag::Fixed,
    };
    Process { started: at(started), leading_since: None, skew: Duration::ZERO, cloud_skew: None, promises }
}

/// The answer to a call that began and ended in that second.
pub(crate) fn answered<T>(
    second: i64,
    account: impl Into<Option<AccountId>>,
    answer: Result<T, Error>,
) -> Answered<T> {
    Answered { started: at(second), ended: at(second), account: account.into(), answer }
}

/// A running instance about which its cloud reports nothing else.
pub(crate) fn instance(id: &str, name: &str, created: i64) -> Instance {
    Instance {
        id: ProviderId::parse(id).expect("not empty"),
        native_id: None,
        key: None,
        cluster: None,
        name: NodeName::new(name).expect("not empty"),
        power: Power::Running,
        addresses: Vec::new(),
        instance_type: None,
        zone: None,
        region: None,
        tags: Default::default(),
        node_labels: Default::default(),
        created: at(created),
    }
}

/// Sets a field of an object, by its JSON pointer. The parent exists.
pub(crate) fn set(object: &mut Value, pointer: &str, value: impl Into<Value>) {
    let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
    object.pointer_mut(parent).expect("the parent exists")[field.replace("~1", "/")] = value.into();
}
