//! Cases that need the faults of the proxy. moto itself counts the instances, so that an instance
//! that the driver cannot see counts, too.

use std::time::Duration;

use futures::future::join_all;
use machinist_driver::contract::Subject as _;
use machinist_driver_aws::PROMISES;
use machinist_instance::{Error, ErrorKind, Instance, InstanceKey, InstanceSpec, Scope, Sighting, UserData};
use serde_json::{Value, json};

use super::moto::Moto;
use crate::cloud::{ACCESS_KEY, by_id, by_key, credential_with, found};

/// Number of repetitions that are enough for all faults of a test.
const REPETITIONS: usize = 40;

fn kind(name: &str) -> Value {
    json!({"kind": name})
}

fn refusal(code: &str) -> Value {
    json!({"kind": "refuse", "code": code})
}

fn renewed(spec: &InstanceSpec) -> InstanceSpec {
    InstanceSpec { user_data: UserData::new(*b"token: another"), ..spec.clone() }
}

/// Calls `ensure` in a new process, which knows nothing of earlier calls.
async fn ensure(moto: &Moto, spec: &InstanceSpec) -> Result<Instance, Error> {
    moto.driver().instances().ensure(spec).await
}

#[expect(clippy::disallowed_methods, reason = "the tests delete what they created")]
async fn delete(moto: &Moto, made: &Instance, key: &InstanceKey) -> Result<(), Error> {
    moto.driver().instances().delete(&by_id(&made.id), key).await
}

/// Reads do not show the instance, so only its token prevents a second one.
#[tokio::test]
async fn a_lost_answer_is_repeated_with_one_instance() {
    let Some(moto) = Moto::prepare().await else { return };
    moto.lag(PROMISES.visible_within, PROMISES.visible_within).await;
    for fault in ["effectThenClose", "effectThenError"] {
        let spec = moto.spec(fault);
        moto.fault("RunInstances", 2, kind(fault)).await;
        for _ in 0..2 {
            let lost = ensure(&moto, &spec).await.expect_err("no answer");
            assert_eq!(lost.kind, ErrorKind::Ambiguous, "{lost}");
        }
        let made = ensure(&moto, &spec).await.expect("the same instance");
        assert_eq!((made.key, moto.alive(&spec.key).await), (Some(spec.key), 1));
    }
}

/// The bootstrap token of the user data was renewed between two calls.
#[tokio::test]
async fn changed_user_data_finds_the_first_instance() {
    let Some(moto) = Moto::prepare().await else { return };
    moto.lag(PROMISES.visible_within, Duration::ZERO).await;
    let spec = moto.spec("renewed");
    let made = ensure(&moto, &spec).await.expect("created");
    let waits = ensure(&moto, &renewed(&spec)).await.expect_err("not shown yet");
    assert!(waits.is_in_progress(), "{waits}");
    moto.wait(PROMISES.visible_within).await;
    let same = ensure(&moto, &renewed(&spec)).await.expect("shown");
    assert_eq!((same.id, moto.alive(&spec.key).await), (made.id, 1));
}

#[tokio::test]
async fn an_instance_without_its_tag_is_found_by_its_token() {
    let Some(moto) = Moto::prepare().await else { return };
    let spec = moto.spec("without-tags");
    let made = ensure(&moto, &spec).await.expect("created");
    moto.remove_key(&made.id).await;
    assert_eq!(moto.alive(&spec.key).await, 0, "no tag of the key is left");
    for spec in [&spec, &renewed(&spec)] {
        let same = ensure(&moto, spec).await.expect("found by its token");
        assert_eq!((&same.id, same.key.as_ref()), (&made.id, Some(&spec.key)));
    }
    assert_eq!(found(&*moto.driver(), &by_key(&spec.key)).await.id, made.id);
    delete(&moto, &made, &spec.key).await.expect("deleted");
    assert_eq!(moto.driver().instances().find(&by_key(&spec.key)).await, Ok(Sighting::Absent));
}

#[tokio::test]
async fn a_terminated_instance_gets_no_successor() {
    let Some(moto) = Moto::prepare().await else { return };
    let spec = moto.spec("terminated");
    let made = ensure(&moto, &spec).await.expect("created");
    delete(&moto, &made, &spec.key).await.expect("deleted");
    for spec in [&spec, &renewed(&spec)] {
        let error = ensure(&moto, spec).await.expect_err("the key is used up");
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("was terminated"), "{error}");
    }
    assert_eq!(moto.alive(&spec.key).await, 0);
    assert_eq!(moto.count(&spec.key, &["terminated"]).await, 1);
}

#[tokio::test]
async fn throttled_calls_have_no_effect_and_can_be_repeated() {
    let Some(moto) = Moto::prepare().await else { return };
    let throttled = ErrorKind::Throttled { retry_after: None };
    let spec = moto.spec("throttled");
    for action in ["DescribeInstances", "DescribeImages", "RunInstances"] {
        moto.fault(action, 1, refusal("RequestLimitExceeded")).await;
        let error = ensure(&moto, &spec).await.expect_err("throttled");
        assert_eq!(error.kind, throttled, "{action}: {error}");
    }
    assert_eq!(moto.alive(&spec.key).await, 0);
    let made = ensure(&moto, &spec).await.expect("created");
    moto.fault("TerminateInstances", 1, refusal("Throttling")).await;
    let error = delete(&moto, &made, &spec.key).await.expect_err("throttled");
    assert_eq!((error.kind, moto.alive(&spec.key).await), (throttled, 1));
    delete(&moto, &made, &spec.key).await.expect("deleted");
    assert_eq!(moto.alive(&spec.key).await, 0);
}

#[tokio::test]
async fn a_lack_of_capacity_is_exhausted_until_it_ends() {
    let Some(moto) = Moto::prepare().await else { return };
    let codes = [
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "Unsupported",
    ];
    let spec = moto.spec("capacity");
    for code in codes {
        moto.fault("RunInstances", 1, refusal(code)).await;
        let error = ensure(&moto, &spec).await.expect_err("no capacity");
        assert_eq!(error.kind, ErrorKind::Exhausted, "{code}");
        assert!(error.message.contains(code), "{error}");
    }
    assert_eq!(moto.alive(&spec.key).await, 0);
    ensure(&moto, &spec).await.expect("created");
    assert_eq!(moto.alive(&spec.key).await, 1);
}

#[tokio::test]
async fn reads_that_lag_make_no_second_instance() {
    let Some(moto) = Moto::prepare().await else { return };
    let (lag, step) = (PROMISES.visible_within, PROMISES.visible_within / 5);
    // Lists may lag, reads by id, or both.
    for (in_lists, by_id_lag) in [(lag, Duration::ZERO), (Duration::ZERO, lag), (lag, lag)] {
        moto.lag(in_lists, by_id_lag).await;
        let spec = moto.spec(&format!("lag-{}-{}", in_lists.as_secs(), by_id_lag.as_secs()));
        let made = ensure(&moto, &spec).await.expect("created");
        for _ in 0..5 {
            assert_eq!(ensure(&moto, &spec).await.expect("the same instance").id, made.id);
            moto.wait(step).await;
        }
        assert_eq!(found(&*moto.driver(), &by_id(&made.id)).await.id, made.id);
        assert_eq!(found(&*moto.driver(), &by_key(&spec.key)).await.id, made.id);
        assert_eq!(moto.alive(&spec.key).await, 1);
    }
}

/// EC2 recognises a client token in one zone, so the controller waits before it repeats a call in
/// another one.
#[tokio::test]
async fn another_zone_makes_no_second_instance_after_the_wait() {
    let Some(moto) = Moto::prepare().await else { return };
    moto.lag(PROMISES.visible_within, PROMISES.visible_within).await;
    for waits in [true, false] {
        let spec = moto.spec(&format!("zones-{waits}"));
        moto.fault("RunInstances", 1, kind("effectThenClose")).await;
        let lost = ensure(&moto, &spec).await.expect_err("no answer");
        assert_eq!(lost.kind, ErrorKind::Ambiguous, "{lost}");
        if waits {
            moto.wait(PROMISES.absence_takes()).await;
        }
        let edited = InstanceSpec { provider_spec: moto.in_another_zone(), ..spec.clone() };
        let made = ensure(&moto, &edited).await.expect("an instance");
        // The second number shows that the counterpart can fail.
        let expected = if waits { 1 } else { 2 };
        assert_eq!((made.key, moto.alive(&spec.key).await), (Some(spec.key), expected));
    }
}

#[tokio::test]
async fn a_wrong_secret_key_is_denied_and_not_shown() {
    let Some(moto) = Moto::prepare().await else { return };
    let driver = moto.driver_of(&credential_with(ACCESS_KEY, "wrong canary"));
    let spec = moto.spec("denied");
    let ensured = driver.instances().ensure(&spec).await.expect_err("denied");
    let sighted = driver.instances().find(&by_key(&spec.key)).await.expect_err("denied");
    let listed = driver.instances().list(&Scope::Visible).await.expect_err("denied");
    for error in [ensured, sighted, listed] {
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        assert!(error.message.contains("SignatureDoesNotMatch: check the secret key"), "{error}");
        assert!(!error.message.contains("canary"), "{error}");
    }
    assert_eq!(moto.alive(&spec.key).await, 0);
}

/// Repeats a call until it succeeds. Each error must be an error that the runtime repeats.
async fn repeated<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..REPETITIONS {
        match call().await {
            Ok(done) => return done,
            Err(error) => assert!(
                matches!(
                    error.kind,
                    ErrorKind::Ambiguous
                        | ErrorKind::Unavailable
                        | ErrorKind::Exhausted
                        | ErrorKind::Throttled { .. }
                ),
                "{error}"
            ),
        }
    }
    panic!("no success after {REPETITIONS} calls");
}

/// Twelve Machines at the same time, with faults in all calls.
#[tokio::test]
async fn many_faults_leave_one_instance_per_key_and_then_none() {
    let Some(moto) = Moto::prepare().await else { return };
    moto.lag(PROMISES.visible_within, PROMISES.visible_within).await;
    let late = json!({"kind": "closeThenEffect", "seconds": 30});
    let faults = [
        ("RunInstances", 6, kind("effectThenClose")),
        ("RunInstances", 6, kind("effectThenError")),
        ("RunInstances", 6, late.clone()),
        ("RunInstances", 6, refusal("InsufficientInstanceCapacity")),
        ("RunInstances", 6, refusal("RequestLimitExceeded")),
        ("DescribeInstances", 6, refusal("Unavailable")),
        ("DescribeInstances", 6, kind("effectThenClose")),
        ("DescribeImages", 6, refusal("InternalError")),
        ("TerminateInstances", 4, kind("effectThenError")),
        ("TerminateInstances", 4, kind("effectThenClose")),
        ("TerminateInstances", 4, late),
    ];
    for (action, times, fault) in faults {
        moto.fault(action, times, fault).await;
    }
    let specs: Vec<InstanceSpec> = (0..12).map(|number| moto.spec(&format!("many-{number}"))).collect();
    let made = join_all(specs.iter().map(|spec| repeated(async || ensure(&moto, spec).await))).await;
    moto.wait(PROMISES.visible_within).await;
    for (spec, made) in specs.iter().zip(&made) {
        assert_eq!(moto.alive(&spec.key).await, 1, "{}", spec.name);
        assert_eq!(found(&*moto.driver(), &by_key(&spec.key)).await.id, made.id);
    }
    let of_all = specs.iter().zip(&made);
    join_all(of_all.map(|(spec, made)| repeated(async || delete(&moto, made, &spec.key).await))).await;
    moto.wait(PROMISES.visible_within).await;
    for spec in &specs {
        assert_eq!(moto.alive(&spec.key).await, 0, "{}", spec.name);
        assert_eq!(moto.count(&spec.key, &["terminated"]).await, 1, "{}", spec.name);
    }
}
