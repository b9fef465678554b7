//! The pages of the book about the reasons: `docs/src/stuck`, one page per reason.
//!
//! The compiler reports a reason without a row in [`rows!`]. The tests report a row without a page,
//! a page without a row, and a page that quotes another text than the reason renders. With
//! `UPDATE_EXPECT=1` the tests rewrite the quoted texts, the index and the table of contents; the
//! other text of a page is written by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use machinist_core::Call;
use machinist_instance::ErrorKind;

use super::*;

/// Pages about reasons that another crate renders. A test of that crate compares the quoted text.
const OF_OTHER_CRATES: [(&str, &str, &str); 1] = [(
    CLUSTER,
    "namespace-not-served",
    "no running controller serves namespace team (the machine-controller serves default)",
)];

const CREATION: &str = "An instance cannot be created";
const CLOUD: &str = "A call to the cloud";
const HEALTH: &str = "A Node does not join, or is unhealthy";
const DELETION: &str = "A Machine is not deleted";
const SETS: &str = "A MachineSet or MachineDeployment waits";
const CLUSTER: &str = "The API server, or the controller itself";

/// The sections of every page, in this order.
const SECTIONS: [&str; 4] =
    ["## What the controller does", "## What to check", "## What to do", "## When it resolves on its own"];

/// One page.
struct Page {
    group: &'static str,
    name: String,
    /// The texts of the example values.
    texts: Vec<String>,
}

/// Lists the pages in the order of the table of contents. Each row has the group, the reason and
/// example values of it.
macro_rules! rows {
    ($($group:ident: $reason:pat => [$($example:expr),+ $(,)?];)+) => {
        /// Fails to compile if a reason has no row.
        fn ensure_listed(reason: &Reason) {
            match reason {
                $($reason => {})+
            }
        }

        fn pages() -> Vec<Page> {
            vec![$({
                let examples: Vec<Reason> = vec![$(Reason::from($example)),+];
                for example in &examples {
                    ensure_listed(example);
                    assert!(matches!(example, $reason), "{example} is in the row of another reason");
                }
                Page {
                    group: $group,
                    name: examples[0].page(),
                    texts: examples.iter().map(ToString::to_string).collect(),
                }
            }),+]
        }
    };
}

use McmReason as M;
use Reason as R;

rows! {
    CREATION: R::Contract(M::InvalidSpec(_)) => [
        M::InvalidSpec("spec.class.name is empty: expected the name of a MachineClass".into()),
        M::InvalidSpec("spec.strategy.type Recreate is not supported yet: expected RollingUpdate".into()),
    ];
    CREATION: R::Contract(M::ClassMissing { .. }) => [M::ClassMissing { class: class() }];
    CREATION: R::Contract(M::ClassDeleting { .. }) => [M::ClassDeleting { class: class() }];
    CREATION: R::Contract(M::ClassUnheld { .. }) => [M::ClassUnheld { class: class() }];
    CREATION: R::Contract(M::ClassInvalid { .. }) => [
        M::ClassInvalid { class: class(), message: "nodeTemplate.zone: expected a zone, got nothing".into() },
    ];
    CREATION: R::Contract(M::SecretMissing { .. }) => [M::SecretMissing { secret: secret(), class: class() }];
    CREATION: R::Contract(M::SecretElsewhere { .. }) => [
        M::SecretElsewhere { secret: "team/workers".into(), class: class(), served: "default".into() },
    ];
    CREATION: R::Contract(M::SecretIncomplete { .. }) => [
        M::SecretIncomplete { secret: secret(), entry: "userData".into() },
    ];
    CREATION: R::Contract(M::TokenIdsTaken) => [M::TokenIdsTaken];
    CREATION: R::Contract(M::ProviderIdNotOurs { .. }) => [
        M::ProviderIdNotOurs { id: "aws:///eu-west-1/i-0a1b2c".into(), expected: "sim:///IDENTITY or sim:///ZONE/IDENTITY".into() },
    ];
    CREATION: R::Contract(M::ProviderIdMalformed { .. }) => [
        M::ProviderIdMalformed { id: "sim://".into(), expected: "sim:///IDENTITY or sim:///ZONE/IDENTITY".into() },
    ];

    CLOUD: R::Calling(_) => [R::Calling(Call::ENSURE), R::Calling(Call::FIND), R::Calling(Call::DELETE), R::Calling(Call::LIST)];
    CLOUD: R::CallFailed { .. } => [
        R::CallFailed {
            call: Call::ENSURE,
            kind: ErrorKind::Exhausted,
            message: "quota exceeded: quota of 3 instances is used up".into(),
            failures: 1,
        },
        R::CallFailed {
            call: Call::DELETE,
            kind: ErrorKind::Denied,
            message: "the token is not valid".into(),
            failures: 4,
        },
    ];
    CLOUD: R::AccountPaused => [R::AccountPaused];
    CLOUD: R::PredecessorCalls => [R::PredecessorCalls];
    CLOUD: R::Contract(M::OtherAccount { .. }) => [
        M::OtherAccount { instance: instance(), opened_by: "Secret default/workers".into() },
    ];

    HEALTH: R::Contract(M::Joining { .. }) => [
        M::Joining { node: machine(), token: TokenUse::Unasked },
        M::Joining { node: machine(), token: TokenUse::NeverUsed },
        M::Joining { node: machine(), token: TokenUse::Used },
    ];
    HEALTH: R::Contract(M::NodeNotOurs { .. }) => [
        M::NodeNotOurs { node: machine(), evidence: "its label names machine workers-6b9f4-q7kzm".into() },
    ];
    HEALTH: R::Contract(M::CriticalComponents { .. }) => [M::CriticalComponents { node: machine() }];
    HEALTH: R::Contract(M::Unhealthy { .. }) => [
        M::Unhealthy { node: machine(), conditions: "Ready is Unknown".into() },
        M::Unhealthy { node: machine(), conditions: "the Node object went missing".into() },
    ];
    HEALTH: R::Contract(M::ReplacementLimit { .. }) => [M::ReplacementLimit { other: other_machine() }];
    HEALTH: R::Contract(M::ReplacementGap { .. }) => [
        M::ReplacementGap { live: 2, wanted: 3, frozen: None },
        M::ReplacementGap { live: 2, wanted: 3, frozen: Some("workers-6b9f4".into()) },
    ];
    HEALTH: R::Contract(M::OwnerUnknown { .. }) => [M::OwnerUnknown { set: "workers-6b9f4".into() }];
    HEALTH: R::Contract(M::Failed { .. }) => [
        M::Failed {
            description: "Machine workers-6b9f4-84j5n failed to join the cluster in time. Last state: waiting for Node \
                workers-6b9f4-84j5n to register"
                .into(),
        },
    ];
    HEALTH: R::Contract(M::Preserved { .. }) => [
        M::Preserved { machine: machine(), until: "2027-01-15T08:00:00Z".parse().ok(), node: None },
        M::Preserved { machine: machine(), until: None, node: None },
        M::Preserved { machine: machine(), until: None, node: Some(machine()) },
    ];
    HEALTH: R::Contract(M::UpdatedInPlace { .. }) => [
        M::UpdatedInPlace { machine: machine(), what: "is InPlaceUpdating".into() },
        M::UpdatedInPlace {
            machine: machine(),
            what: "has the label node.machine.sapcloud.io/update-result=successful".into(),
        },
    ];

    DELETION: R::Contract(M::Draining { .. }) => [
        M::Draining { left: 3, blocked: None },
        M::Draining { left: 1, blocked: Some(blocked(None, false)) },
        M::Draining { left: 1, blocked: Some(blocked(Some("default/web"), false)) },
        M::Draining { left: 1, blocked: Some(blocked(Some("default/web"), true)) },
    ];
    DELETION: R::Contract(M::ConfirmingDrain { .. }) => [
        M::ConfirmingDrain { node: machine(), left: 0 },
        M::ConfirmingDrain { node: machine(), left: 2 },
    ];
    DELETION: R::Contract(M::VolumesAttached { .. }) => [
        M::VolumesAttached { node: machine(), left: 1, first: "csi-1f0c".into(), volume: Some("pv-data".into()) },
        M::VolumesAttached { node: machine(), left: 2, first: "csi-1f0c".into(), volume: None },
    ];
    DELETION: R::Contract(M::ConfirmingNoNode { .. }) => [M::ConfirmingNoNode { node: machine() }];
    DELETION: R::Contract(M::InstanceDeleting { .. }) => [M::InstanceDeleting { instance: instance() }];
    DELETION: R::Contract(M::AbsenceNotProven { .. }) => [M::AbsenceNotProven { instance: instance() }];
    DELETION: R::Contract(M::SecondLook { .. }) => [M::SecondLook { instance: instance() }];
    DELETION: R::Contract(M::InstanceNotOurs { .. }) => [
        M::InstanceNotOurs {
            instance: instance(),
            key: "7ece3c7f".into(),
            cluster: Some("prod".into()),
            holder: Some(other_machine()),
        },
        M::InstanceNotOurs { instance: instance(), key: "7ece3c7f".into(), cluster: Some("prod".into()), holder: None },
        M::InstanceNotOurs { instance: instance(), key: "7ece3c7f".into(), cluster: None, holder: None },
    ];
    DELETION: R::Contract(M::InstanceShared { .. }) => [
        M::InstanceShared { instance: instance(), machine: other_machine() },
    ];
    DELETION: R::Contract(M::NamesakeInstance { .. }) => [
        M::NamesakeInstance {
            instance: format!("instance {}", instance()),
            evidence: "it has no key and was created at 2027-01-14T08:00:00Z, the machine at 2027-01-15T08:00:00Z".into(),
        },
        M::NamesakeInstance {
            instance: "an instance".into(),
            evidence: "it was created for key 7ece3c7f".into(),
        },
    ];
    DELETION: R::Contract(M::CannotDeleteInstance { .. }) => [
        M::CannotDeleteInstance { missing: "MachineClass workers".into() },
        M::CannotDeleteInstance { missing: "Secret default/workers".into() },
    ];
    DELETION: R::Contract(M::NodeLeaving { .. }) => [M::NodeLeaving { node: machine() }];
    DELETION: R::Awaiting(_) => [R::Awaiting("waiting for other clients to remove their finalizers")];
    DELETION: R::Contract(M::InUse { .. }) => [
        M::InUse { by: ["Machine", "machines"], users: 1, first: machine() },
        M::InUse { by: ["MachineClass", "classes"], users: 2, first: class() },
    ];

    SETS: R::Contract(M::MachinesPending { .. }) => [
        M::MachinesPending { available: 2, desired: 3, first: Some(machine()) },
        M::MachinesPending { available: 0, desired: 3, first: None },
    ];
    SETS: R::Contract(M::MachinesLeaving { .. }) => [M::MachinesLeaving { left: 2, first: Some(machine()) }];
    SETS: R::Contract(M::ChildFailed { .. }) => [
        M::ChildFailed { message: "admission webhook \"limits.example.com\" denied the request".into() },
    ];
    SETS: R::Contract(M::Frozen { .. }) => [
        M::Frozen { by: Some("OverShootingReplicaCount".into()), machines: 8, most: Some(5), refused: None },
        M::Frozen { by: None, machines: 3, most: None, refused: None },
    ];
    SETS: R::Contract(M::ScaleUpDisabled) => [M::ScaleUpDisabled];
    SETS: R::Contract(M::ChosenUnknown { .. }) => [M::ChosenUnknown { machine: machine() }];
    SETS: R::Contract(M::Paused) => [M::Paused];
    SETS: R::Contract(M::SurgeBound { .. }) => [
        M::SurgeBound { machines: 4, most: 4, waiting_for: Some(machine()) },
    ];
    SETS: R::Contract(M::UnavailableBound { .. }) => [
        M::UnavailableBound { available: 2, fewest: 2, waiting_for: Some(machine()) },
    ];
    SETS: R::Contract(M::RollingOut { .. }) => [M::RollingOut { updated: 1, desired: 3 }];

    CLUSTER: R::Settled => [R::Settled];
    CLUSTER: R::Writing(_) => [
        R::Writing("adding the finalizer, which records that an instance may exist"),
        R::Writing("recording the instance"),
        R::Writing("cordoning the Node"),
    ];
    CLUSTER: R::Looking(_) => [
        R::Looking("the Lease of the Node, which shows the last kubelet heartbeat,"),
        R::Looking("the machines chosen by the cluster-autoscaler"),
    ];
    CLUSTER: R::WriteUnsettled { .. } => [
        R::WriteUnsettled { write: format!("DELETE of machines default/{}", machine()) },
    ];
    CLUSTER: R::ChangeRefused { .. } => [
        R::ChangeRefused { message: "machines.machine.sapcloud.io is forbidden: User \"mcm\" cannot patch resource".into() },
    ];
    CLUSTER: R::NoEffect { .. } => [R::NoEffect { action: format!("node {}: cordon", machine()) }];
    CLUSTER: R::ProgramFailed { .. } => [
        R::ProgramFailed {
            what: "the rule engine failed on this object",
            at: "crates/core/machinist-plan/src/mcm/rollout.rs:120".into(),
            message: "attempt to subtract with overflow".into(),
        },
    ];
    CLUSTER: R::ClockSkew { .. } => [R::ClockSkew { seconds: 45 }];
}

fn class() -> String {
    "workers".to_owned()
}

fn secret() -> String {
    "default/workers".to_owned()
}

fn machine() -> String {
    "workers-6b9f4-84j5n".to_owned()
}

fn other_machine() -> String {
    "workers-6b9f4-wvhp9".to_owned()
}

fn instance() -> String {
    format!("sim:///{}", machine())
}

fn blocked(budget: Option<&str>, never: bool) -> BlockedPod {
    BlockedPod { pod: "default/web-0".to_owned(), budget: budget.map(str::to_owned), never }
}

fn all_pages() -> Vec<Page> {
    let others = OF_OTHER_CRATES.map(|(group, name, text)| Page {
        group,
        name: name.to_owned(),
        texts: vec![text.to_owned()],
    });
    pages().into_iter().chain(others).collect()
}

/// Returns a path below the source folder of the book.
fn book(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/src")).join(path)
}

fn read(path: &str) -> String {
    let file = book(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// Requires that a file has this content, or writes it with `UPDATE_EXPECT=1`.
fn require(path: &str, expected: &str) {
    if read(path) == expected {
        return;
    }
    assert!(
        is_update(),
        "docs/src/{path} is out of date. UPDATE_EXPECT=1 rewrites it. Expected:\n{expected}"
    );
    fs::write(book(path), expected).expect("the book is writable");
}

/// Returns the title of a page: its first line.
fn title(page: &Page) -> String {
    let text = read(&format!("stuck/{}.md", page.name));
    let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
    title.unwrap_or_else(|| panic!("stuck/{}.md: expected a title in the first line", page.name)).to_owned()
}

/// Replaces the part of `text` between two lines, which stay.
fn with_part(text: &str, first: &str, last: &str, part: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("{first}\n"))?;
    let end = if rest.starts_with(last) { 0 } else { rest.find(&format!("\n{last}"))? + 1 };
    Some(format!("{before}{first}\n{part}{}", &rest[end..]))
}

#[test]
fn every_reason_has_a_page_and_every_page_a_reason() {
    let pages = all_pages();
    let wanted: BTreeSet<String> = pages.iter().map(|page| page.name.clone()).collect();
    assert_eq!(wanted.len(), pages.len(), "two reasons have the same page");
    let files = fs::read_dir(book("stuck")).expect("the folder exists");
    let names = files.map(|file| file.expect("readable").file_name().into_string().expect("UTF-8"));
    let found: BTreeSet<String> = names
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|it| it != "index")
        .collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    assert!(missing.is_empty(), "write docs/src/stuck/<page>.md for: {missing:?}");
    let unknown: Vec<_> = found.difference(&wanted).collect();
    assert!(unknown.is_empty(), "no reason has these pages in docs/src/stuck: {unknown:?}");
}

/// One test, because a test that rewrites pages must not run beside one that reads them.
#[test]
fn pages_index_and_contents_are_up_to_date() {
    check_pages();
    check_index_and_contents();
}

/// Compares the text that each page quotes, and its sections.
fn check_pages() {
    for page in all_pages() {
        let path = format!("stuck/{}.md", page.name);
        let text = read(&path);
        let quoted = page.texts.join("\n") + "\n";
        let expected = with_part(&text, "```text", "```", &quoted);
        require(&path, &expected.unwrap_or_else(|| panic!("{path}: expected a block ```text")));
        let sections: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(sections, SECTIONS, "the sections of {path}");
    }
}

/// Compares the tables of the index and the entries of SUMMARY.md.
fn check_index_and_contents() {
    let mut groups: Vec<(&str, Vec<Page>)> = Vec::new();
    for page in all_pages() {
        match groups.iter_mut().find(|(group, _)| *group == page.group) {
            Some((_, pages)) => pages.push(page),
            None => groups.push((page.group, vec![page])),
        }
    }
    let (mut index, mut contents) = (String::new(), String::new());
    let mut titles = BTreeMap::new();
    for (group, pages) in groups {
        index += &format!("\n### {group}\n\n| `machinist why` says, for example | Page |\n|---|---|\n");
        for page in pages {
            let (title, name) = (title(&page), &page.name);
            index += &format!("| {} | [{title}]({name}.md) |\n", page.texts[0]);
            contents += &format!("  - [{title}](stuck/{name}.md)\n");
            let twin = titles.insert(title, name.clone());
            assert_eq!(twin, None, "stuck/{name}.md has the title of another page");
        }
    }
    index.push('\n');
    let index = with_part(&read("stuck/index.md"), "<!-- tables -->", "<!-- end of tables -->", &index);
    require("stuck/index.md", &index.expect("the two marks are in the index"));
    let summary = with_part(&read("SUMMARY.md"), "- [My machine is stuck](stuck/index.md)", "- ", &contents);
    require("SUMMARY.md", &summary.expect("SUMMARY.md lists the chapter and one after it"));
}
