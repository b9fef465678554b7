//! Tests about calls that take effect after the controller has stopped waiting for them.

use machinist_instance::BalancerSpec;

use super::*;

/// A Service that chooses the name of its load balancer.
fn named() -> World {
    held_service().set("/metadata/annotations", noted(json!({"balancer.sim/name": "edge"})))
}

/// The load balancer under the name of its creation, which took place at that second.
fn created(second: i64) -> Balancer {
    Balancer { created: Some(at(second)), ..balancer() }
}

fn ensured_with(balancer: Balancer, notes: Vec<BalancerNote>) -> Result<Progress<Ensured>, Error> {
    Ok(Progress::Done(Ensured { notes, ..Ensured::complete(balancer) }))
}

fn spec(world: &World) -> BalancerSpec {
    wanted::of(&world.snapshot()).map(|wanted| wanted.spec).unwrap_or_else(|text| panic!("{text}"))
}

/// The time in which a call takes effect, the time until lists show it, and the difference of the
/// clocks: 60 s, 10 s and 60 s.
const KEEPS_FOR: i64 = 130;
/// The same, and what the difference of the clocks varies by.
const ASKED_AFTER: i64 = KEEPS_FOR + 5;

/// A rename frees the first name. A creation without an answer would then make a second one.
#[test]
fn a_young_balancer_keeps_its_first_name() {
    let claim = spec(&named()).claim;
    assert_eq!(claim.renames_if_created_before, Some(at(-KEEPS_FOR)));
    let shown = || {
        let shown = named().set("/status/loadBalancer/ingress", shown_status());
        shown.ensured(1, ensured_with(created(0), Vec::new())).later(2)
    };
    let planned = shown().plan();
    let why = "why   the load balancer keeps its first name a0a1b for now, because an earlier creation may still \
               take effect; it gets the name edge after that; next: try again to ensure the load balancer at";
    assert!(planned.contains(why) && !planned.contains("driver"), "{planned}");
    assert!(planned.contains(&format!("wait  until {}\n", at(ASKED_AFTER))), "{planned}");
    let due = shown().later(ASKED_AFTER);
    assert!(due.plan().contains("do    driver: ensure"), "{}", due.plan());
    assert_eq!(spec(&due).claim.renames_if_created_before, Some(at(5)));
    // The call waited in the queue, or the cloud shows the old name: no call follows at once.
    let again = due.ensured(ASKED_AFTER + 5, ensured_with(created(0), Vec::new())).later(ASKED_AFTER + 6);
    assert!(again.plan().contains(&format!("wait  until {}\n", at(ASKED_AFTER + 65))), "{}", again.plan());
    let renamed = Balancer { name: "edge".to_owned(), ..created(0) };
    let renamed = again.ensured(ASKED_AFTER + 70, ensured_with(renamed, Vec::new())).later(ASKED_AFTER + 71);
    assert!(renamed.plan().contains("why   up to date"), "{}", renamed.plan());
}

/// Another load balancer has the name, or the driver does not report the age: no call is repeated.
#[test]
fn a_name_that_cannot_change_costs_no_call() {
    let taken = BalancerNote { reason: BalancerNote::NAME_TAKEN, message: "another has it".to_owned() };
    let unknown = Balancer { created: None, ..balancer() };
    let default = held_service().set("/metadata/annotations", noted(json!({"balancer.sim/name": "a0a1b"})));
    for (world, answer) in [
        (named(), ensured_with(created(-900), vec![taken])),
        (named(), ensured_with(unknown, Vec::new())),
        (default, ensured_with(created(-1), Vec::new())),
        (held_service(), ensured_with(created(-1), Vec::new())),
    ] {
        let planned = world.ensured(0, answer).later(1).plan();
        assert!(!planned.contains("driver") && planned.ends_with("wait  for a change\n"), "{planned}");
    }
}

/// The age changes with each decision, and must not look like a change of the Service.
#[test]
fn the_age_of_a_balancer_is_no_change() {
    let world = || named().ensured(1, ensured_with(created(-900), Vec::new()));
    assert_eq!(
        wanted::of(&world().snapshot()).map(|wanted| wanted.inputs),
        wanted::of(&world().later(99).snapshot()).map(|wanted| wanted.inputs)
    );
}

/// A list may lack the load balancer. The driver asks for this id before it creates another one.
#[test]
fn the_known_id_precedes_every_creation() {
    assert_eq!(spec(&held_service()).id, None, "only the account is recorded");
    let restarted = held_service().set("/metadata/annotations", recorded());
    assert_eq!(spec(&restarted).id.as_deref(), Some("7"));
    let newer = Balancer { id: "8".to_owned(), ..balancer() };
    assert_eq!(spec(&restarted.ensured(1, ensured_with(newer, Vec::new()))).id.as_deref(), Some("8"));
    let elsewhere = json!({names::BALANCER_RECORD: "6 in another for 0a-1b"});
    let renewed = held_service().set("/metadata/annotations", elsewhere);
    assert_eq!(spec(&renewed).id.as_deref(), Some("6"), "a renewed credential is another account");
}

/// The load balancer of the lost creation would be the second one.
#[test]
fn nothing_is_adopted_while_a_creation_may_take_effect() {
    let has_open_creation = |world: &World| spec(world).claim.has_open_creation;
    let lost = || named().ensured(0, Err(Error::new(ErrorKind::Ambiguous, "no answer")));
    assert!(!has_open_creation(&named()));
    assert!(has_open_creation(&lost().later(69)) && !has_open_creation(&lost().later(70)));
    let refused = named().ensured(0, Err(Error::new(ErrorKind::Exhausted, "no"))).later(1);
    assert!(!has_open_creation(&refused), "the cloud has refused it");
    let restarted = |is_first_intent: bool| {
        named().with(|s| {
            s.process = process(-20);
            s.answers.is_first_intent = is_first_intent;
        })
    };
    assert!(has_open_creation(&restarted(false)), "an earlier process may have lost one");
    assert!(!has_open_creation(&restarted(false).later(50)));
    assert!(!has_open_creation(&restarted(true)), "a call follows the record");
    let waiting = lost().ensured(5, Ok(Progress::Working("adopt".to_owned())));
    assert!(has_open_creation(&waiting.later(6)), "the wait itself proves nothing");
}

/// A deletion may take effect when the Service wants its load balancer again.
#[test]
fn a_late_deletion_is_remembered() {
    let late = |answer| settled().deleted(0, answer).ensured(1, done()).snapshot.answers.late_deletion();
    for kind in [ErrorKind::Ambiguous, ErrorKind::Unavailable] {
        assert_eq!(late(Err(Error::new(kind, "no answer"))), Some(at(0)), "{kind}");
    }
    assert_eq!(late(Ok(Progress::Working("delete".to_owned()))), Some(at(0)));
    assert_eq!(late(Ok(Progress::Done(BalancerDeletion::Gone))), Some(at(0)), "lists show it late");
    assert_eq!(late(Err(Error::new(ErrorKind::Denied, "no"))), None, "the cloud has refused it");
    assert_eq!(late(absent()), None);
    let deleting = settled().deleted(0, Err(Error::new(ErrorKind::Ambiguous, "no answer")));
    assert_eq!(deleting.snapshot.answers.late_deletion(), None, "it is meant to take effect");
}
