//! Tests of the time that deadlines leave out.

use jiff::SignedDuration;
use machinist_kube::ObjectKey;
use serde_json::Value;
use tokio::time::advance;

use super::*;
use crate::take_in::take_in;
use crate::test_contract::{Host, Map, TestContract, item, relist, runtime};

const SECOND: Duration = Duration::from_secs(1);
const TEN_MINUTES: Duration = Duration::from_secs(600);
const MONTH: SignedDuration = SignedDuration::from_hours(30 * 24);

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_moves_no_deadline() {
    let (runtime, clock) = runtime(|| Value::Null);
    take_in::<TestContract, Map>(&runtime, relist(vec![item(ObjectKey::new("test", "a"), 1, Map)], 1));
    take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 1));
    let began = runtime.now();
    runtime.notice_suspension();
    assert_eq!(runtime.unseen().deadline(began, TEN_MINUTES), began + TEN_MINUTES);
    clock.set_ahead(MONTH);
    advance(SECOND).await;
    runtime.notice_suspension();
    let is_ahead = began + MONTH < runtime.unseen().deadline(began, TEN_MINUTES);
    assert!(is_ahead, "as after a suspension");
    clock.set_ahead(SignedDuration::ZERO);
    advance(SECOND * 9).await;
    runtime.notice_suspension();
    let expected = began + TEN_MINUTES + SECOND * 10;
    assert_eq!(runtime.unseen().deadline(began, TEN_MINUTES), expected);
    assert_eq!(runtime.unseen_for_successor().deadline(began, TEN_MINUTES), expected);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_began_with_a_wrong_clock_is_corrected() {
    let (runtime, clock) = runtime(|| Value::Null);
    let began = runtime.now();
    clock.set_ahead(MONTH);
    take_in::<TestContract, Map>(&runtime, relist(Vec::new(), 1));
    take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 1));
    runtime.notice_suspension();
    assert!(began + MONTH <= runtime.unseen().deadline(began, TEN_MINUTES), "nothing is known before");
    clock.set_ahead(SignedDuration::ZERO);
    advance(SECOND).await;
    runtime.notice_suspension();
    assert_eq!(runtime.unseen().deadline(began, TEN_MINUTES), began + TEN_MINUTES);
}

#[test]
fn inherited_gaps_end_before_the_present() {
    let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).expect("a time");
    let mut written = Unseen::default();
    written.add(at(-1000), at(-900));
    written.add(at(-100), at(-100) + MONTH);
    let inherited = Inherited { renewed: Some(at(-10) + MONTH), unseen: Some(written.to_string()) };
    let mut expected = Unseen::default();
    expected.add(at(-1000), at(-900));
    expected.add(at(-100), at(0));
    assert_eq!(unseen_before(inherited, at(0), at(0)), expected);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_forgotten_before_the_first_list() {
    let (runtime, _) = runtime(|| Value::Null);
    let now = runtime.now();
    let mut gap = Unseen::default();
    gap.add(now - SECOND * 7200, now - SECOND * 3600);
    runtime.gaps.add(now - SECOND * 7200, now - SECOND * 3600);
    // Without a config map, no timeout is longer than ten minutes.
    assert_eq!(runtime.unseen_for_successor().total(), gap.total());
    take_in::<TestContract, Map>(&runtime, relist(vec![item(ObjectKey::new("test", "a"), 1, Map)], 1));
    assert_eq!(runtime.unseen_for_successor().total(), gap.total(), "a timeout of a day");
    take_in::<TestContract, Map>(&runtime, relist(Vec::new(), 2));
    assert_eq!(runtime.unseen_for_successor().total(), Duration::ZERO);
}
