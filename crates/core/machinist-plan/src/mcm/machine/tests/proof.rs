//! Claims about a Machine whose credential may open another account than the one that its instance was made in.

use machinist_instance::Foreign;

use super::*;
use crate::looks::NodeLook;
use machinist_core::ownership::{List, Others};
use machinist_core::{Absence, MadeIn};

/// The Secret was exchanged since the instance was recorded.
fn exchanged(world: World) -> World {
    world.with(|s| {
        s.ownership.account = account("b");
        s.ownership.list = List::Ended(at(300));
    })
}

fn absent_in(name: &str) -> Option<Found> {
    let found = seen(Sighting::Absent, true)?;
    Some(Found { answered: Answered { account: account(name), ..found.answered }, ..found })
}

/// A Machine that another process has created something for, perhaps.
fn older_than_its_process() -> World {
    world().created(-100).token(600).with(|s| {
        s.process.started = at(-5);
        s.ownership.recorded = None;
        s.ownership.others = Others::AsOld;
    })
}

#[test]
fn the_account_that_made_the_instance_is_recorded() {
    let world = world().ensured(Ok(instance())).with(|s| s.ownership.account = account("b"));
    let actions = world.plan().actions;
    let recorded = actions.iter().find_map(|action| match action {
        Action::Record { account, .. } => Some(account.clone()),
        _ => None,
    });
    assert_eq!(recorded, Some(account("a")), "{actions:?}");
}

/// The plan has these parts, in its own words, and no action beside the given ones.
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
fn an_account_that_shows_no_sibling_gets_no_second_instance() {
    check_parts(older_than_its_process(), &["driver: list"], &["waits for the cloud to answer list"]);
    let restore = "restore the credential in Secret ns/s, or delete the Machine";
    let listed = older_than_its_process().with(|s| s.ownership.list = List::Ended(at(300)));
    check_parts(listed, &[], &["looks like another account's", restore, "wait  until 2027-01-15T08:05:00Z"]);
    let made_elsewhere = world().token(600).with(|s| {
        s.ownership.list = List::Ended(at(300));
        s.answers.made_in = MadeIn::Several;
    });
    check_parts(made_elsewhere, &[], &["looks like another account's"]);
}

#[test]
fn an_account_that_shows_an_older_sibling_is_the_right_one() {
    let shown = older_than_its_process().with(|s| s.ownership.oldest_shown = Some(at(-200)));
    check_parts(shown, &["driver: ensure"], &[]);
    let alone = older_than_its_process().with(|s| s.ownership.others = Others::None);
    check_parts(alone, &["driver: ensure"], &[]);
}

#[test]
fn a_machine_that_records_another_account_has_todays_listed_once() {
    let running = || world().running().with(|s| s.ownership.account = account("b"));
    check_parts(running(), &["driver: list"], &[]);
    check_parts(running().with(|s| s.ownership.list = List::Ended(at(-1))), &[], &[]);
    // A list that failed is no evidence, and there may be no second chance.
    check_parts(running().with(|s| s.ownership.list = List::Failed(at(-1))), &["driver: list"], &[]);
    let soon = running().with(|s| s.ownership.list = List::Failed(at(20))).plan();
    assert_eq!((soon.actions.len(), soon.wait), (0, machinist_core::Wait::Until(at(20))));
}

/// The token outlives the process that has made it, and with it the account that it was made for.
#[test]
fn an_instance_is_made_in_the_account_that_the_token_names() {
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
    check_parts(listed, &[], &["looks like another account"]);
}

fn in_another_account() -> World {
    exchanged(drained().with(|s| s.answers.find = absent_in("b")))
}

fn forced(mut world: World) -> World {
    world.machine["metadata"]["labels"]["force-deletion"] = "true".into();
    world
}

#[test]
fn a_deletion_in_another_account_waits_and_says_why() {
    let fix = "next: restore the credential in Secret ns/s that it was made with, \
               or set label force-deletion=true to leave the instance behind";
    check_parts(
        in_another_account(),
        &[
            "status: Delete Failed \"Deletion waits for the account of instance sim:///i-1",
            "warning FailedDelete",
        ],
        &[
            "the credential in Secret ns/s looks like another account's",
            fix,
            "wait  until 2027-01-15T08:05:00Z",
        ],
    );
}

#[test]
fn force_deletion_leaves_the_instance_of_another_account_behind() {
    let left = "Instance sim:///i-1 may be left behind: Secret ns/s may open another account, and label force-deletion is set";
    check_parts(forced(in_another_account()), &[left, RELEASED[0], RELEASED[1], RELEASED[2]], &[]);
    let asked = forced(in_another_account()).with(|s| s.ownership.list = List::Asked(at(30)));
    check_parts(asked, &[], &["waits for the cloud to answer list"]);
}

#[test]
fn an_instance_that_nothing_can_be_compared_with_is_looked_at_twice() {
    let alone = |looked: i64| {
        drained().with(|s| {
            s.process.started = at(-5000);
            s.ownership.recorded = None;
            s.answers.shown = true;
            s.answers.find = seen(Sighting::Absent, true);
            s.answers.absence =
                Some(Absence { account: account("a").expect("a name"), first: at(looked), by_id: true });
        })
    };
    check_parts(
        alone(-100),
        &[],
        &["a second look at instance sim:///i-1", "wait  until 2027-01-15T08:08:20Z"],
    );
    let told = "Instance sim:///i-1 is taken for gone: it was absent twice";
    check_parts(alone(-600), &[told, RELEASED[0], RELEASED[1], RELEASED[2]], &[]);
}

fn foreign(cluster: &str) -> Option<Found> {
    let foreign =
        Foreign { id: instance().id, key: InstanceKey::new("uid-old"), cluster: Some(cluster.to_owned()) };
    seen(Sighting::Foreign(foreign), true)
}

/// A Machine that was restored with a new UID, and is deleted.
fn restored(cluster: &str) -> World {
    drained().with(|s| {
        let denied = Err(error(ErrorKind::Denied, "made for another key"));
        s.answers.failures = 1;
        s.answers.delete = Some(answered(at(-2), at(-1), denied));
        s.answers.find = foreign(cluster);
    })
}

#[test]
fn a_restored_machine_takes_its_instance_over_and_deletes_it() {
    check_parts(restored("ours"), &["driver: rekey sim:///i-1 from uid-old"], &[]);
    let rekeyed = restored("ours").with(|s| s.answers.rekey = Some(answered(at(0), at(0), Ok(()))));
    check_parts(rekeyed, &["driver: delete sim:///i-1"], &[]);
}

#[test]
fn the_instance_of_another_cluster_or_machine_is_left_alone() {
    let told = ["status: Delete Failed", "warning FailedDelete"];
    check_parts(restored("theirs"), &told, &["it carries key uid-old of cluster \"theirs\""]);
    let held = restored("ours").with(|s| s.key_holder = Some("m-before".to_owned()));
    check_parts(held, &told, &["it carries the key of Machine m-before"]);
}

#[test]
fn an_instance_of_its_name_that_no_machine_holds_is_told() {
    let world =
        world().created(-100).deleting(1).phase("Terminating", "Delete", "Processing", "x").with(|s| {
            s.process.started = at(-60);
            s.looks.node = Some(NodeLook { name: "m".into(), started: at(0), uid: None });
            let by_name =
                foreign("ours").map(|found| Found { by: InstanceRef { id: None, ..found.by }, ..found });
            s.answers.find = by_name;
        });
    let told = "Instance sim:///i-1 has the name of this Machine and key uid-old, which no Machine holds";
    check_parts(world, &[told, "machine: remove finalizer"], &[]);
}
