//! Repeated creations after a user has edited the class: the cloud recognises a repetition only in
//! a part of the place.

use machinist_instance::KeyScope;

use super::*;
use crate::mcm::facts::CreationIntent;

/// A class that names subnet `now`. The token records the subnet of the last call, if any.
fn subnets(recorded: Option<&str>, now: &str) -> World {
    let (intended, of_class) = (recorded.map(KeyScope::new), KeyScope::new(now.to_owned()));
    let intent = CreationIntent { account: account("a"), place: None, key_scope: intended.clone() };
    world().token(1300).with_token(|token| token.intent = intent).with(|s| {
        s.ownership.intended = account("a");
        s.key_scope = KeyScopeFacts { called: None, intended, of_class };
    })
}

/// This process made a call in a subnet, and has had no answer for that many seconds.
fn called(world: World, subnet: &str, seconds: i64) -> World {
    world.with(|s| {
        s.answers.ever_ensured = true;
        s.answers.unsure_since = Some(at(-seconds));
        s.key_scope.called = Some(KeyScope::new(subnet.to_owned()));
    })
}

/// Another process may have called the cloud for the Machine.
fn taken_over(world: World) -> World {
    world.created(-100).with(|s| s.process.started = at(-10))
}

fn ensures(world: World) -> bool {
    world.plan().to_string().starts_with("do    driver: ensure")
}

#[test]
fn a_lost_call_in_another_subnet_is_waited_for() {
    called(subnets(Some("a"), "b"), "a", 3).check(expect![[r#"
        why   checking that no instance was created in a: MachineClass c names b now, where the cloud would create a second one; since 2027-01-15T07:59:57Z; next: the controller asks the cloud to create the instance
        wait  until 2027-01-15T08:00:12Z
    "#]]);
    // The next call is recorded before it is made.
    called(subnets(Some("a"), "b"), "a", 16).check(expect![[r#"
        do    machine: record the account and place of the creation
        why   recording where the instance is created; next: the controller asks the cloud to create the instance
        wait  for a change
    "#]]);
    assert!(ensures(called(subnets(Some("b"), "b"), "a", 16)));
    assert!(!ensures(called(subnets(Some("b"), "b"), "a", 3)), "the own memory counts, too");
}

#[test]
fn a_lost_call_in_the_same_subnet_is_repeated_at_once() {
    assert!(ensures(called(subnets(Some("a"), "a"), "a", 3)));
    // The cloud has refused all calls so far.
    let refused = subnets(Some("a"), "b").ensured(Err(error(ErrorKind::Exhausted, "no"))).with(|s| {
        s.inputs = 2;
    });
    assert!(refused.plan().to_string().starts_with("do    machine: record the account"));
}

#[test]
fn a_call_of_another_process_in_another_subnet_is_waited_for() {
    let waits = |world: World| world.plan().to_string().starts_with("why   checking that no instance");
    taken_over(subnets(Some("a"), "b")).check(expect![[r#"
        why   checking that no instance was created in a: MachineClass c names b now, where the cloud would create a second one; since 2027-01-15T07:59:50Z; next: the controller asks the cloud to create the instance
        wait  until 2027-01-15T08:00:05Z
    "#]]);
    // An earlier version has recorded the call without its subnet.
    taken_over(subnets(None, "b")).check(expect![[r#"
        why   checking that no instance was created in another part of the cloud: MachineClass c names b now, where the cloud would create a second one; since 2027-01-15T07:59:50Z; next: the controller asks the cloud to create the instance
        wait  until 2027-01-15T08:00:05Z
    "#]]);
    assert!(ensures(taken_over(subnets(Some("a"), "a"))));
    assert!(!waits(taken_over(subnets(Some("a"), "b")).with(|s| s.process.started = at(-16))));
    assert!(!waits(
        taken_over(subnets(Some("a"), "b")).with(|s| s.process.promises.calls_outlive_process = false)
    ));
    // Before each call of this program, the account is recorded.
    assert!(!waits(taken_over(subnets(None, "b")).with(|s| s.ownership.intended = None)));
    assert!(!waits(taken_over(world().token(1300).with(|s| s.ownership.intended = account("a")))));
}

#[test]
fn a_cloud_that_is_only_searched_always_waits() {
    let searched = |world: World| world.with(|s| s.process.promises.create = CreateGuarantee::FindThenCreate);
    let why = |world: World| searched(world).plan().why.to_string();
    let own = why(called(subnets(Some("a"), "a"), "a", 3));
    assert!(own.starts_with("checking that instance m does not exist"), "{own}");
    let others = why(taken_over(subnets(Some("a"), "a")));
    assert!(others.starts_with("waiting for the last calls of the previous leader"), "{others}");
}

#[test]
fn a_token_records_the_subnet_of_the_class() {
    let intent = |world: World| {
        world.plan().actions.into_iter().find_map(|action| match action {
            Action::CreateToken { intent, .. } | Action::RecordIntent(intent) => Some(intent),
            _ => None,
        })
    };
    let expected = CreationIntent { account: account("a"), place: None, key_scope: Some(KeyScope::new("b")) };
    let without_token = |world: World| world.with(|s| s.token = Token::Free(token_id(UID, 0)));
    assert_eq!(intent(without_token(subnets(None, "b"))), Some(expected.clone()));
    assert_eq!(intent(subnets(Some("a"), "b")), Some(expected));
    assert_eq!(
        intent(without_token(world())),
        Some(CreationIntent { account: account("a"), ..CreationIntent::default() })
    );
}
