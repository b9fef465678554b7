//! Instances whose Node has not registered, as the cloud shows them.

use machinist_instance::{Boot, BootTrouble};

use super::*;
use crate::mcm::reads::TargetSilence;

fn trouble(is_final: bool) -> Boot {
    Boot::Trouble(BootTrouble {
        cause: "step 1 of 1 of the user data exited with code 3".to_owned(),
        output: vec!["no space left".to_owned()],
        see: "docker logs m".to_owned(),
        is_final,
    })
}

/// A Pending Machine of a cloud that shows how instances boot. The last answer is that old.
fn booting(seconds_ago: i64, answer: Option<Result<Boot, Error>>) -> World {
    world().pending().created(-40).with(|s| {
        s.observes_boot = true;
        s.answers.boot = answer.map(|answer| Box::new(answered(at(-seconds_ago), at(-seconds_ago), answer)));
    })
}

/// Returns the code of the reason, and the actions.
fn outcome(world: World) -> (String, Vec<String>) {
    let plan = world.plan();
    (plan.why.reason.code().to_owned(), plan.actions.iter().map(ToString::to_string).collect())
}

const OBSERVE: &str = "driver: observe the boot of sim:///i-1";

#[test]
fn only_a_cloud_that_can_show_the_boot_is_asked() {
    let (code, actions) = outcome(world().pending().created(-40));
    assert_eq!((code.as_str(), actions.as_slice()), ("Joining", &[][..]));
    let (code, actions) = outcome(booting(0, None));
    assert_eq!((code.as_str(), actions.as_slice()), ("Joining", &[OBSERVE.to_owned()][..]));
    let (_, actions) = outcome(booting(1, Some(Ok(Boot::Working))));
    assert_eq!(actions, [""; 0], "the last look is a second old");
    assert_eq!(outcome(booting(8, Some(Ok(Boot::Working)))).1, [OBSERVE]);
    let asked = booting(8, None).with(|s| s.answers.in_flight = Some((Call::BOOT, at(-1))));
    assert_eq!(outcome(asked).1, [""; 0]);
}

#[test]
fn a_failed_command_is_reported_at_once_and_waits() {
    let plan = booting(1, Some(Ok(trouble(false)))).plan();
    let text = "The instance does not join: step 1 of 1 of the user data exited with code 3. The end of the output: \
                no space left. See all of it: docker logs m";
    assert_eq!(plan.why.reason.to_string(), text);
    let deadline = plan.why.deadline.clone().expect("the creation timeout").at;
    assert_eq!(deadline, at(-30 + 20 * 60 + 1), "it counts from the record of the instance");
    let actions: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
    let expected = [format!("status: Create Processing {text:?}"), format!("warning BootFailed: {text}")];
    assert_eq!(actions, expected);
}

#[test]
fn the_status_names_an_outage_in_which_the_node_cannot_be_seen() {
    let silent = |world: World| {
        world.with(|s| {
            let error = "connection refused".to_owned();
            s.reads.silence = Some(TargetSilence { since: at(-70), last: at(0), error, is_blind: false });
        })
    };
    let text = "Waiting for the Node: its API server has not answered since 2027-01-15T07:58:50Z";
    let writes = |text: &str| [format!("status: Create Processing {text:?}")];
    let (code, actions) = outcome(silent(world().pending().created(-40)));
    assert_eq!((code.as_str(), actions.as_slice()), ("NodesUnanswered", &writes(text)[..]));
    let written = || world().pending().created(-40).phase("Pending", "Create", "Processing", text);
    assert_eq!(outcome(silent(written())).1, [""; 0], "it is written once");
    assert_eq!(outcome(written()).1, writes("Creating machine on cloud provider"), "the outage has ended");
}

#[test]
fn a_problem_is_written_once_per_cause() {
    let written = |answer: Option<Result<Boot, Error>>, description: &str| {
        outcome(booting(1, answer).phase("Pending", "Create", "Processing", description))
    };
    let before = "The instance does not join: step 1 of 1 of the user data exited with code 3. The end of the output: x";
    let again = written(Some(Ok(trouble(false))), before);
    assert_eq!(again, ("BootFailed".to_owned(), Vec::new()), "another output is not news");
    assert_eq!(written(Some(Ok(trouble(true))), before).1.len(), 2, "the problem became final");
    let (code, actions) = written(Some(Ok(Boot::Working)), before);
    assert_eq!(code, "Joining");
    assert_eq!(actions, ["status: Create Processing \"Creating machine on cloud provider\""]);
    // A process that has no answer yet, or whose engine is silent, shows the status.
    let (code, _) = written(Some(Err(error(ErrorKind::Unavailable, "no engine"))), before);
    assert_eq!(code, "BootFailed");
}
