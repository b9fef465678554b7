//! Times and the deciding process for the tests of this crate.

use std::time::Duration;

use jiff::Timestamp;
use machinist_instance::{CreateGuarantee, KeyTag, Promises};

use crate::snapshot::Process;

/// The second in which most tests decide.
const NOW: i64 = 1_800_000_000;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).expect("a moment of this century")
}

pub(crate) fn process() -> Process {
    let promises = Promises {
        visible_within: Duration::from_secs(10),
        call_bound: Duration::from_secs(30),
        calls_outlive_process: true,
        create: CreateGuarantee::NativeKey,
        rate: None,
        keys: KeyTag::Rekeyable,
    };
    Process { started: at(0), leading_since: None, skew: Duration::ZERO, cloud_skew: None, promises }
}
