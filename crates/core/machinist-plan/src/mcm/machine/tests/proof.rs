//! Tests for Machines with a credential that may open another account than the account of the
//! instance.

use machinist_instance::Foreign;

use super::*;
use crate::mcm::reads::NodeRead;
use machinist_core::ownership::{List, Others};
use machinist_core::{Absence, MadeIn};

/// The Secret was replaced after the instance was recorded.
fn exchanged(world: World) -> World {
    world.with(|s| {
        s.ownership.account = account("b");
        s.ownership.list = List::Ended(at(300));
    })
}

fn absent_in(name: &str) -> Option<Box<Found>> {
    let found = seen(Sighting::Absent, true)?;
    Some(Box::new(Found {
        answered: Answered { account: account(name), ..found.answered.clone() },
        ..*found
    }))
}

/// A Machine for which another process may have created an instance.
fn older_than_its_process() -> World {
    world().created(-100).token(600).with(|s| {
        s.process.started = at(-5);
        s.ownership.recorded = None;
        s.ownership.others = Others::AsOld;
    })
}

#[test]
fn the_account_of_the_instance_is_recorded() {
    let world = world().ensured(Ok(instance())).with(|s| s.ownership.account = account("b"));
    let actions = world.plan().actions;
    let recorded = actions.iter().find_map(|action| match action {
        Action::Record { account, .. } => Some(account.clone()),
        _ => None,
    });
    assert_eq!(recorded, Some(account("a")), "{actions:?}");
}

/// Checks that the plan has exactly these actions, and that its text contains these parts.
fn check_parts(world: World, actions: &[&str], parts: &[&str]) {
    let plan = world.plan();
    let planned: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
    assert_eq!(planned.len(), actions.len(), "{plan}");
    for (planned, expected) in planned.iter().zip(actions) {
        assert!(planned.contains(expected), "{planned:?} lacks {expected:?}");
    }
    let text = plan.to_string();
    for part in parts {
        assert!(text.contains(part), "{text}lacks {part:?}");
    }
}

const RELEASED: [&str; 3] = ["node m: remove finalizer", "node m: delete", "machine: remove finalizer"];

#[test]
fn an_account_without_siblings_gets_no_second_instance() {
    check_parts(
        older_than_its_process(),
        &["driver: list"],
        &["waiting for the cloud to list the instances of the account"],
    );
    let restore = "restore the credential in Secret ns/s, or delete the Machine";
    let listed = older_than_its_process().with(|s| s.ownership.list = List::Ended(at(300)));
    check_parts(listed, &[], &["seems to open another account", restore, "wait  until 2027-01-15T08:05:00Z"]);
    let made_elsewhere = world().token(600).with(|s| {
        s.ownership.list = List::Ended(at(300));
        s.answers.made_in = MadeIn::Several;
    });
    check_parts(made_elsewhere, &[], &["seems to open another account"]);
}

#[test]
fn an_account_that_shows_an_older_sibling_is_the_right_one() {
    let shown = older_than_its_process().with(|s| s.ownership.oldest_shown = Some(at(-200)));
    check_parts(shown, &["driver: ensure"], &[]);
    let alone = older_than_its_process().with(|s| s.ownership.others = Others::None);
    check_parts(alone, &["driver: ensure"], &[]);
}

#[test]
fn a_machine_with_another_account_lists_todays_account_once() {
    let running = || world().running().with(|s| s.ownership.account = account("b"));
    check_parts(running(), &["driver: list"], &[]);
    check_parts(running().with(|s| s.ownership.list = List::Ended(at(-1))), &[], &[]);
    // A failed list is not evidence, and a later list may be too late.
    check_parts(running().with(|s| s.ownership.list = List::Failed(at(-1))), &["driver: list"], &[]);
    let soon = running().with(|s| s.ownership.list = List::Failed(at(20))).plan();
    assert_eq!((soon.actions.len(), soon.wait), (0, machinist_core::Wait::Until(at(20))));
}

/// The token and the account recorded on it outlive the process that created the token.
#[test]
fn an_instance_is_created_in_the_account_of_the_token() {
    let intended = |account: Option<AccountId>| {
        older_than_its_process().with(|s| {
            s.ownership.others = Others::None;
            s.ownership.intended = account;
        })
    };
    check_parts(intended(account("a")), &["driver: ensure"], &[]);
    check_parts(intended(None), &["driver: ensure"], &[]);
    check_parts(intended(account("b")), &["driver: list"], &[]);
    let listed = intended(account("b")).with(|s| s.ownership.list = List::Ended(at(300)));
    check_parts(listed, &[], &["seems to open another account"]);
}

fn in_another_account() -> World {
    exchanged(drained().with(|s| s.answers.find = absent_in("b")))
}

fn forced(mut world: World) -> World {
    world.machine["metadata"]["labels"]["force-deletion"] = "true".into();
    world
}

#[test]
fn a_deletion_in_another_account_waits_and_reports_why() {
    let fix = "next: restore the credential in Secret ns/s that created the instance, \
               or set label force-deletion=true to leave the instance behind";
    check_parts(
        in_another_account(),
        &[
            "status: Delete Failed \"Deletion is blocked: instance sim:///i-1 not found",
            "warning FailedDelete",
        ],
        &[
            "the credential in Secret ns/s seems to open another account",
            fix,
            "wait  until 2027-01-15T08:05:00Z",
        ],
    );
}

#[test]
fn force_deletion_abandons_the_instance_of_another_account() {
    let left = "Instance sim:///i-1 may be left behind: Secret ns/s may open another account, and label force-deletion is set";
    check_parts(forced(in_another_account()), &[left, RELEASED[0], RELEASED[1], RELEASED[2]], &[]);
    let asked = forced(in_another_account()).with(|s| s.ownership.list = List::Asked(at(30)));
    check_parts(asked, &[], &["waiting for the cloud to list the instances of the account"]);
}

#[test]
fn without_comparable_instances_two_lookups_are_needed() {
    let alone = |looked: i64| {
        drained().with(|s| {
            s.process.started = at(-5000);
            s.ownership.recorded = None;
            s.answers.shown = Some(instance().id);
            s.answers.find = seen(Sighting::Absent, true);
            s.answers.absence = Some(Absence {
                account: account("a").expect("a name"),
                first: at(looked),
                id: Some(instance().id),
            });
        })
    };
    check_parts(
        alone(-100),
        &[],
        &["instance sim:///i-1 not found: checking a second time", "wait  until 2027-01-15T08:08:20Z"],
    );
    let message = "Instance sim:///i-1 counts as deleted: it was absent twice";
    check_parts(alone(-600), &[message, RELEASED[0], RELEASED[1], RELEASED[2]], &[]);
}

fn foreign(cluster: &str) -> Option<Box<Found>> {
    let foreign = Foreign {
        id: instance().id,
        key: Some(InstanceKey::new("uid-old")),
        cluster: Some(cluster.to_owned()),
        created: at(-100_000),
    };
    seen(Sighting::Foreign(foreign), true)
}

/// A Machine that was restored with a new UID and is being deleted.
fn restored(cluster: &str) -> World {
    drained().with(|s| {
        let denied = Err(error(ErrorKind::Denied, "made for another key"));
        s.answers.failures = 1;
        s.answers.delete = deleted(answered(at(-2), at(-1), denied));
        s.answers.find = foreign(cluster);
    })
}

#[test]
fn a_restored_machine_rekeys_and_deletes_its_instance() {
    check_parts(restored("ours"), &["driver: rekey sim:///i-1 from uid-old"], &[]);
    let rekeyed = restored("ours").with(|s| s.answers.rekey = Some(Box::new(answered(at(0), at(0), Ok(())))));
    check_parts(rekeyed, &["driver: delete sim:///i-1"], &[]);
}

#[test]
fn the_instance_of_another_cluster_or_machine_is_left_alone() {
    let expected = ["status: Delete Failed", "warning FailedDelete"];
    check_parts(restored("theirs"), &expected, &["it has key uid-old of cluster \"theirs\""]);
    let held = restored("ours").with(|s| s.key_holder = Some("m-before".to_owned()));
    check_parts(held, &expected, &["it has the key of Machine m-before"]);
}

#[test]
fn a_namesake_without_a_machine_is_reported() {
    let world =
        world().created(-100).deleting(1).phase("Terminating", "Delete", "Processing", "x").with(|s| {
            s.process.started = at(-60);
            s.reads.nodes = vec![NodeRead { name: "m".into(), started: at(0), uid: None }];
            let by_name = foreign("ours")
                .map(|found| Box::new(Found { by: InstanceRef { id: None, ..found.by.clone() }, ..*found }));
            s.answers.find = by_name;
        });
    let message = "Instance sim:///i-1 has the name of this Machine and key uid-old, which no Machine holds";
    check_parts(world, &[message, "machine: remove finalizer"], &[]);
}
