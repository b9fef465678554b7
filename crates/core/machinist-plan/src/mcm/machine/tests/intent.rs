//! Where the last call may have created the instance, and which object records it.

use machinist_core::ownership::List;
use machinist_instance::Place;

use super::*;
use crate::mcm::facts::CreationIntent;

const RECORD: &str = "machine: record the account and place of the creation";

/// The class names place `now`, and the token was made for place `then`.
fn moved(then: &str, now: &str) -> World {
    let place = |name: &str| Some(Place::new(name));
    let intent = CreationIntent { account: account("a"), place: place(then), key_scope: None };
    world().token(1300).with_token(|token| token.intent = intent).with(|s| s.place.of_class = place(now))
}

/// The Machine records a call in that place.
fn recorded(mut world: World, place: &str) -> World {
    world = world.intended();
    world.machine["metadata"]["annotations"]["machinist.dev/intended-place"] = place.into();
    world
}

/// The token expires in that many seconds.
fn expires(world: World, seconds: i64) -> World {
    world.with_token(|token| token.expires = Some(at(seconds)))
}

/// Another process may have called the cloud for the Machine.
fn taken_over(world: World) -> World {
    world.created(-100).with(|s| {
        s.process.started = at(-10);
        s.ownership.intended = account("a");
    })
}

fn first(world: World) -> String {
    world.plan().actions.first().map(ToString::to_string).unwrap_or_default()
}

fn written(world: World) -> Option<CreationIntent> {
    world.plan().actions.into_iter().find_map(|action| match action {
        Action::RecordIntent(intent) => Some(intent),
        _ => None,
    })
}

/// The creation in the first place was refused, and a user edited the class. Without a new record,
/// a crash during the next call would leave its instance in a place that nothing names.
#[test]
fn a_call_in_another_place_than_the_token_says_is_recorded() {
    assert_eq!(first(moved("a", "b")), RECORD);
    assert_eq!(written(moved("a", "b")).and_then(|intent| intent.place), Some(Place::new("b")));
    assert_eq!(first(recorded(moved("a", "b"), "b")), "driver: ensure");
    assert_eq!(first(moved("b", "b")), "driver: ensure");
}

#[test]
fn a_call_in_another_account_than_the_token_says_is_recorded() {
    let intends = |name: &str| {
        let intent = CreationIntent { account: account(name), ..CreationIntent::default() };
        world().token(1300).with_token(|token| token.intent = intent)
    };
    assert_eq!(first(intends("a")), "driver: ensure");
    assert_eq!(written(intends("b")).map(|intent| intent.account), Some(account("a")));
}

/// The record of the Machine counts more than a token, so it is corrected before a token is made.
#[test]
fn an_old_record_on_the_machine_is_replaced_before_a_new_token() {
    let without_token = |world: World| world.with(|s| s.token = Token::Free(token_id(UID, 0)));
    let world = || recorded(without_token(moved("a", "b")), "a");
    assert_eq!(written(world()).and_then(|intent| intent.place), Some(Place::new("b")));
    assert!(first(recorded(without_token(moved("a", "b")), "b")).starts_with("token "));
}

#[test]
fn the_record_of_the_machine_counts_as_a_whole() {
    let world = recorded(moved("a", "b"), "b");
    let machine = MachineFacts::parse(&serde_json::from_value(world.machine.clone()).expect("a Machine"));
    let token = &world.snapshot.token;
    let of_machine = CreationIntent { account: account("a"), place: Some(Place::new("b")), key_scope: None };
    assert_eq!(token.last_intent(&machine), of_machine);
    let bare = MachineFacts { annotations: None, ..machine };
    assert_eq!(token.last_intent(&bare).place, Some(Place::new("a")));
    assert!(Token::Exhausted.last_intent(&bare).is_empty());
}

#[test]
fn a_token_with_the_only_record_of_a_call_is_not_deleted() {
    let old = |place: &str| taken_over(expires(moved(place, place), 250));
    assert_eq!(first(old("a")), RECORD);
    assert!(first(recorded(old("a"), "a")).ends_with(": delete"));
}

/// A user has swapped the credential, and restores it after the token has expired.
#[test]
fn the_machine_gets_the_record_before_the_token_expires() {
    let blocked = |seconds| {
        taken_over(expires(moved("a", "b"), seconds)).with(|s| {
            s.ownership.intended = account("b");
            s.ownership.list = List::Ended(at(900));
        })
    };
    assert_eq!(written(blocked(239)).and_then(|intent| intent.place), Some(Place::new("a")));
    assert_eq!(written(blocked(300)), None);
    assert_eq!(blocked(300).plan().wait, Wait::Until(at(60)));
    assert_eq!(written(recorded(blocked(239), "b")), None, "the later call stays recorded");
    let refused = blocked(239).created(-4).with(|s| s.process.started = at(-100));
    assert_eq!(written(refused), None, "no call had an effect");
}

#[test]
fn the_deletion_of_a_machine_keeps_the_record_too() {
    let deleting = |seconds| {
        let world = taken_over(expires(moved("a", "b"), seconds)).deleting(50);
        let world = world.phase("Terminating", "Delete", "Processing", "Initiate VM deletion");
        world.with(|s| s.answers.in_flight = Some((Call::FIND, at(-1))))
    };
    assert_eq!(written(deleting(239)).and_then(|intent| intent.place), Some(Place::new("a")));
    assert_eq!(written(deleting(300)), None);
}

/// The credential opens no account, so the list fails in each pass.
#[test]
fn a_pass_with_calls_keeps_the_record_too() {
    let listing =
        |seconds| taken_over(expires(moved("a", "b"), seconds)).with(|s| s.ownership.intended = account("b"));
    let actions =
        |world: World| -> Vec<String> { world.plan().actions.iter().map(ToString::to_string).collect() };
    assert_eq!(actions(listing(239)), [RECORD, "driver: list"]);
    assert_eq!(actions(listing(300)), ["driver: list"]);
    assert_eq!(listing(300).plan().wait, Wait::Until(at(60)));
}

/// After a change of leader, the account of a refused credential would count as the account of an
/// instance, and the corrected credential as another account.
#[test]
fn a_denied_call_leaves_no_record() {
    let refused = |kind| world().token(1300).ensured(Err(error(kind, "no")));
    let last = |world: World| world.plan().actions.last().map(ToString::to_string).unwrap_or_default();
    assert_eq!(last(refused(ErrorKind::Denied)), "token i8uopf: delete");
    assert!(!last(refused(ErrorKind::Exhausted)).contains("token"));
    let without_token = |kind| refused(kind).intended().with(|s| s.token = Token::Free(token_id(UID, 0)));
    assert_eq!(written(without_token(ErrorKind::Denied)), Some(CreationIntent::default()));
    assert_eq!(written(without_token(ErrorKind::Exhausted)), None);
    // An earlier process may have created the instance with this credential.
    assert!(!last(taken_over(refused(ErrorKind::Denied))).contains("delete"));
}
