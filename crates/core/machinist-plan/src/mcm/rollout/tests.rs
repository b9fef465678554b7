//! Tests that run rollouts to their end in an order that a seed determines. They check the bounds
//! at each create and delete.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use expect_test::expect_file;
use machinist_api::{MachineDeployment, MachineSet, Phase, RollbackConfig, StrategyType};
use serde_json::Value;

use crate::mcm::machine_deployment::{self, Action};
use crate::mcm::toy::{Toy, parse};
use crate::mcm::{machine_set, replacement};

/// Number of rollouts that each test plays; the variable `MACHINIST_ROLLOUTS` changes it.
fn seeds() -> u64 {
    std::env::var("MACHINIST_ROLLOUTS")
        .map_or(100, |text| text.parse().expect("MACHINIST_ROLLOUTS: a number"))
}

/// A small seeded random number generator with the same sequence forever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(sides.max(1)).expect("small")).expect("small")
    }

    fn pick(&mut self, names: Vec<String>) -> Option<String> {
        let index = self.roll(names.len());
        names.into_iter().nth(index)
    }
}

/// Runs one random step: any controller, or progress of any Machine.
fn step(toy: &mut Toy, dice: &mut Dice) {
    toy.seconds += 1;
    match dice.roll(4) {
        0 => {
            toy.reconcile_deployment();
        }
        1 | 2 => {
            if let Some(name) = dice.pick(toy.sets.keys().cloned().collect()) {
                toy.reconcile_set(&name);
            }
        }
        _ => {
            if let Some(name) = dice.pick(toy.machines.keys().cloned().collect()) {
                toy.progress(&name);
            }
        }
    }
}

fn assert_done(toy: &mut Toy, replicas: usize, class: &str, seed: u64) {
    toy.run_until_idle();
    let trace = || toy.trace.join("\n");
    assert_eq!(toy.violations, Vec::<String>::new(), "seed {seed}:\n{}", trace());
    assert_eq!(toy.machines.len(), replicas, "seed {seed}:\n{}", trace());
    for machine in toy.machines.values() {
        assert_eq!(machine.spec.class.name(), class, "seed {seed}");
        assert_eq!(machine.phase(), Phase::Running, "seed {seed}");
    }
}

#[test]
fn every_rollout_keeps_its_bounds_and_ends() {
    for seed in 0..seeds() {
        let mut dice = Dice(seed);
        let replicas = u32::try_from(dice.roll(6)).expect("small");
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (3, 0), (2, 2), (0, 0)][dice.roll(6)];
        let mut toy = Toy::new(replicas, surge, unavailable);
        toy.run_until_idle();
        toy.use_class("c-2");
        for _ in 0..dice.roll(60) {
            step(&mut toy, &mut dice);
        }
        assert_done(&mut toy, usize::try_from(replicas).expect("small"), "c-2", seed);
    }
}

#[test]
fn a_recreation_never_mixes_templates_and_ends() {
    for seed in 0..seeds() {
        let mut dice = Dice(seed.wrapping_mul(104_729));
        let replicas = u32::try_from(1 + dice.roll(5)).expect("small");
        let mut toy = Toy::new(replicas, 0, replicas);
        toy.edit(|deployment| {
            let strategy = deployment.spec.strategy.get_or_insert_default();
            strategy.type_ = Some(StrategyType::Recreate);
            strategy.rolling_update = None;
        });
        toy.run_until_idle();
        let mut class = "c-1";
        for _ in 0..3 {
            class = ["c-1", "c-2", "c-3"][dice.roll(3)];
            toy.use_class(class);
            for _ in 0..dice.roll(80) {
                step(&mut toy, &mut dice);
                if dice.roll(20) == 0 {
                    let is_paused = dice.roll(2) == 0;
                    toy.edit(|deployment| deployment.spec.paused = Some(is_paused));
                }
                let classes: BTreeSet<&str> =
                    toy.machines.values().map(|machine| machine.spec.class.name()).collect();
                assert!(classes.len() <= 1, "seed {seed}: {classes:?}\n{}", toy.trace.join("\n"));
            }
        }
        toy.edit(|deployment| deployment.spec.paused = None);
        assert_done(&mut toy, usize::try_from(replicas).expect("small"), class, seed);
    }
}

fn update_in_place(toy: &mut Toy, orchestration: &str, surge: u32, unavailable: u32) {
    let strategy = serde_json::json!({
        "type": "InPlaceUpdate",
        "inPlaceUpdate": {
            "maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": orchestration,
        },
    });
    toy.edit(|deployment| deployment.spec.strategy = Some(parse(strategy)));
}

/// Returns the names of the Machines of the deployment's present template.
fn of_newest_set(toy: &Toy) -> Vec<String> {
    let class = toy.deployment.as_ref().expect("it stays").spec.template.spec.class.name().to_owned();
    let newest =
        toy.sets.values().find(|set| set.spec.template.spec.class.name() == class).expect("it exists");
    let uid = newest.metadata.uid.as_deref();
    let is_owner = |machine: &&machinist_api::Machine| {
        machine.metadata.owner_references.iter().flatten().any(|owner| Some(owner.uid.as_str()) == uid)
    };
    toy.machines.values().filter(is_owner).filter_map(|machine| machine.metadata.name.clone()).collect()
}

#[test]
fn an_update_in_place_keeps_its_bounds_and_its_machines() {
    for seed in 0..seeds() {
        let mut dice = Dice(seed.wrapping_mul(2_750_159));
        let replicas = u32::try_from(1 + dice.roll(5)).expect("small");
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (2, 2), (0, 0)][dice.roll(5)];
        let mut toy = Toy::new(replicas, surge, unavailable);
        update_in_place(&mut toy, "Auto", surge, unavailable);
        toy.run_until_idle();
        let before: BTreeSet<String> = toy.machines.keys().cloned().collect();
        toy.use_class("c-2");
        for _ in 0..dice.roll(80) {
            step(&mut toy, &mut dice);
        }
        toy.run_until_idle();
        let trace = || toy.trace.join("\n");
        assert_eq!(toy.violations, Vec::<String>::new(), "seed {seed}:\n{}", trace());
        let after: BTreeSet<String> = of_newest_set(&toy).into_iter().collect();
        assert_eq!(after.len(), usize::try_from(replicas).expect("small"), "seed {seed}:\n{}", trace());
        assert_eq!(after.len(), toy.machines.len(), "seed {seed}:\n{}", trace());
        let lost = before.difference(&after).count();
        assert!(lost <= usize::try_from(surge).expect("small"), "seed {seed}: {lost} lost\n{}", trace());
        for machine in toy.machines.values() {
            assert_eq!(machine.phase(), Phase::Running, "seed {seed}");
            let labels = machine.metadata.labels.clone().unwrap_or_default();
            assert!(labels.keys().all(|key| !key.contains("update")), "seed {seed}: {labels:?}");
        }
    }
}

#[test]
fn scaling_and_new_templates_do_not_stop_an_update_in_place() {
    for seed in 0..seeds() {
        let mut dice = Dice(seed.wrapping_mul(32_452_843));
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (2, 2)][dice.roll(4)];
        let mut toy = Toy::new(4, surge, unavailable);
        update_in_place(&mut toy, "Auto", surge, unavailable);
        toy.run_until_idle();
        let mut replicas = 4;
        for _ in 0..3 {
            toy.use_class(["c-1", "c-2", "c-3"][dice.roll(3)]);
            replicas = i32::try_from(dice.roll(7)).expect("small");
            for _ in 0..dice.roll(50) {
                step(&mut toy, &mut dice);
                match dice.roll(40) {
                    0 => {
                        let paused = dice.roll(2) == 0;
                        toy.edit(|deployment| deployment.spec.paused = Some(paused));
                    }
                    1 => toy.edit(|deployment| deployment.spec.replicas = Some(replicas)),
                    _ => {}
                }
            }
        }
        toy.edit(|deployment| {
            deployment.spec.paused = None;
            deployment.spec.replicas = Some(replicas);
        });
        toy.run_until_idle();
        let trace = || toy.trace.join("\n");
        assert_eq!(toy.violations, Vec::<String>::new(), "seed {seed}:\n{}", trace());
        let wanted = usize::try_from(replicas).expect("small");
        assert_eq!(
            (of_newest_set(&toy).len(), toy.machines.len()),
            (wanted, wanted),
            "seed {seed}:\n{}",
            trace()
        );
    }
}

#[test]
fn a_rollback_ends_with_the_former_template() {
    for seed in 0..seeds() / 4 {
        let mut dice = Dice(seed.wrapping_mul(15_485_863));
        let mut toy = Toy::new(3, 1, 0);
        toy.run_until_idle();
        toy.use_class("c-2");
        toy.run_until_idle();
        toy.use_class("c-3");
        for _ in 0..dice.roll(60) {
            step(&mut toy, &mut dice);
        }
        let (revision, class) = [(1, "c-1"), (2, "c-2"), (0, "c-2")][dice.roll(3)];
        toy.edit(|deployment| {
            deployment.spec.rollback_to = Some(RollbackConfig { revision: Some(revision) });
        });
        for _ in 0..dice.roll(60) {
            step(&mut toy, &mut dice);
        }
        assert_done(&mut toy, 3, class, seed);
        let deployment = toy.deployment.as_ref().expect("the deployment exists");
        assert_eq!(deployment.spec.rollback_to, None, "seed {seed}");
    }
}

#[test]
fn a_rollout_with_a_second_change_and_a_new_size_ends() {
    for seed in 0..seeds() {
        let mut dice = Dice(seed.wrapping_mul(7919));
        let mut toy = Toy::new(4, 1, u32::try_from(dice.roll(2)).expect("small"));
        toy.run_until_idle();
        toy.use_class("c-2");
        for _ in 0..dice.roll(40) {
            step(&mut toy, &mut dice);
        }
        let replicas = i32::try_from(1 + dice.roll(8)).expect("small");
        toy.edit(|deployment| deployment.spec.replicas = Some(replicas));
        for _ in 0..dice.roll(40) {
            step(&mut toy, &mut dice);
        }
        toy.use_class(if dice.roll(2) == 0 { "c-1" } else { "c-3" });
        for _ in 0..dice.roll(60) {
            step(&mut toy, &mut dice);
        }
        let class = toy
            .deployment
            .as_ref()
            .expect("the deployment exists")
            .spec
            .template
            .spec
            .class
            .name()
            .to_owned();
        assert_done(&mut toy, usize::try_from(replicas).expect("small"), &class, seed);
    }
}

#[test]
fn failing_nodes_are_replaced_within_the_bounds() {
    let mut hurt = 0;
    for seed in 0..seeds() {
        let mut dice = Dice(seed.wrapping_mul(104_729));
        let replicas = 1 + dice.roll(5);
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (2, 2)][dice.roll(4)];
        let mut toy = Toy::new(u32::try_from(replicas).expect("small"), surge, unavailable);
        toy.run_until_idle();
        toy.use_class("c-2");
        for _ in 0..dice.roll(60) {
            step(&mut toy, &mut dice);
            if dice.roll(10) == 0
                && let Some(name) = dice.pick(toy.machines.keys().cloned().collect())
            {
                toy.hurt(&name);
            }
            if dice.roll(10) == 0 {
                toy.seconds += 300;
                toy.reconcile_replacement();
            }
        }
        assert_done(&mut toy, replicas, "c-2", seed);
        hurt += toy.hurt.len();
    }
    assert!(100 < hurt, "only {hurt} nodes failed");
}

#[test]
fn a_rollout_counts_by_the_priorities_of_machines() {
    for seed in 0..seeds() {
        let mut dice = Dice(seed.wrapping_mul(15_485_863));
        let replicas = 2 + dice.roll(4);
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (2, 2)][dice.roll(4)];
        let mut toy = Toy::new(u32::try_from(replicas).expect("small"), surge, unavailable);
        toy.run_until_idle();
        for name in toy.machines.keys().cloned().collect::<Vec<_>>() {
            toy.prioritise(&name, dice.roll(5));
        }
        // New Machines of the old template are still Pending when the rollout begins.
        let more = replicas + dice.roll(4);
        toy.edit(|deployment| deployment.spec.replicas = Some(i32::try_from(more).expect("small")));
        for _ in 0..dice.roll(12) {
            step(&mut toy, &mut dice);
        }
        toy.use_class("c-2");
        for _ in 0..dice.roll(60) {
            step(&mut toy, &mut dice);
        }
        assert_done(&mut toy, more, "c-2", seed);
    }
}

/// Verifies that the toy reports violations of the bounds.
#[test]
fn a_wrong_size_is_reported_as_a_violation() {
    for (class, replicas, expected) in [("c-1", 1, "too few"), ("c-2", 2, "too many")] {
        let toy = with_wrong_size(class, replicas, |toy| toy.sets_look_away = true);
        assert!(toy.violations.iter().any(|found| found.starts_with(expected)), "{:?}", toy.violations);
    }
}

/// Verifies that a set keeps the Machines that its deployment needs, although its spec is lower.
#[test]
fn a_set_keeps_available_machines_of_its_deployment() {
    let mut toy = with_wrong_size("c-1", 1, |_| {});
    assert_eq!((toy.machines.len(), &toy.violations), (3, &Vec::new()));
    toy.run_until_idle();
    assert_eq!(toy.violations, Vec::<String>::new());
    assert_eq!(toy.machines.len(), 3, "the rollout ends: {:?}", toy.trace);
}

/// A rollout of three in which one set has a size that its deployment did not choose.
fn with_wrong_size(class: &str, replicas: i32, prepare: fn(&mut Toy)) -> Toy {
    let mut toy = Toy::new(3, 1, 0);
    toy.run_until_idle();
    prepare(&mut toy);
    toy.use_class("c-2");
    toy.reconcile_deployment();
    let of_class = |set: &&mut MachineSet| set.spec.template.spec.class.name() == class;
    let set = toy.sets.values_mut().find(of_class).expect("both sets exist");
    set.spec.replicas = Some(replicas);
    let name = set.metadata.name.clone().expect("a name");
    for _ in 0..3 {
        toy.reconcile_set(&name);
    }
    toy
}

#[test]
fn a_paused_deployment_rolls_nothing() {
    let mut toy = Toy::new(3, 1, 0);
    toy.run_until_idle();
    toy.edit(|deployment| deployment.spec.paused = Some(true));
    toy.use_class("c-2");
    toy.run_until_idle();
    assert!(toy.machines.values().all(|machine| machine.spec.class.name() == "c-1"));
    toy.edit(|deployment| deployment.spec.paused = None);
    assert_done(&mut toy, 3, "c-2", 0);
}

#[test]
fn names_are_never_used_twice() {
    let mut toy = Toy::new(3, 1, 0);
    toy.run_until_idle();
    let mut ever: std::collections::BTreeSet<String> = toy.machines.keys().cloned().collect();
    for _ in 0..5 {
        let before: Vec<_> = toy.machines.keys().cloned().collect();
        toy.delete_machine(&before[0]);
        toy.run_until_idle();
        for name in toy.machines.keys().filter(|name| !before.contains(name)) {
            assert!(ever.insert(name.clone()), "{name} was used before");
        }
    }
}

#[test]
fn golden_rollout_of_three() {
    let mut toy = Toy::new(3, 1, 0);
    toy.run_until_idle();
    toy.trace.clear();
    toy.use_class("c-2");
    toy.run_until_idle();
    expect_file!["rollout_of_three.txt"].assert_eq(&(toy.trace.join("\n") + "\n"));
}

#[test]
fn golden_deletion_of_a_deployment() {
    let mut toy = Toy::new(2, 1, 0);
    toy.run_until_idle();
    toy.trace.clear();
    let now = toy.now();
    toy.edit(|deployment| {
        deployment.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    });
    toy.run_until_idle();
    assert!(toy.machines.is_empty() && toy.sets.is_empty() && toy.deployment.is_none());
    expect_file!["deletion_of_a_deployment.txt"].assert_eq(&(toy.trace.join("\n") + "\n"));
}

/// Objects of Go MCM cause no rollout, because existing sets are found by their template. The
/// golden file has the plan of each situation.
#[test]
fn taking_over_from_go_starts_no_rollout() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/go-mcm");
    let entries = std::fs::read_dir(folder).expect("the fixtures are in the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert_eq!(files.len(), 15, "every situation is tested");
    let mut done = String::new();
    for path in files {
        let toy = left_by_go(&path);
        let plan =
            machine_deployment::plan(&toy.deployment_snapshot().expect("every fixture has a deployment"));
        for action in &plan.actions {
            assert!(!matches!(action, Action::CreateSet(_)), "{}: {action}", path.display());
            if let Action::PatchSet(patch) = action {
                assert!(patch.replicas.is_none(), "{}: {action}", path.display());
                assert!(patch.template.is_none(), "{}: {action}", path.display());
            }
        }
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        writeln!(done, "# {name}\n{plan}").expect("memory");
        for set in toy.sets.keys() {
            let plan = machine_set::plan(&toy.set_snapshot(set).expect("the set exists"));
            writeln!(done, "set {set}\n{plan}").expect("memory");
        }
    }
    expect_file!["take_over.txt"].assert_eq(&done);
}

/// Returns a toy with the objects of a fixture.
fn left_by_go(path: &Path) -> Toy {
    let text = std::fs::read_to_string(path).expect("readable");
    let list: Value = serde_json::from_str(&text).expect("fixtures are JSON");
    let mut toy = Toy::new(0, 1, 0);
    for item in list["items"].as_array().expect("a list") {
        let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match item["kind"].as_str().unwrap_or_default() {
            "MachineDeployment" => toy.deployment = Some(parse::<MachineDeployment>(item.clone())),
            "MachineSet" => {
                toy.sets.insert(name, parse(item.clone()));
            }
            "Machine" => {
                toy.machines.insert(name, parse(item.clone()));
            }
            _ => {}
        }
    }
    toy
}

#[test]
fn one_unhealthy_machine_fails_at_a_time() {
    let mut toy = Toy::new(3, 1, 0);
    toy.run_until_idle();
    let names: Vec<_> = toy.machines.keys().cloned().collect();
    for name in &names {
        toy.set_phase(name, Phase::Unknown);
    }
    toy.seconds += 600;
    assert!(
        replacement::plan(&toy.replacement_snapshot()).actions.is_empty(),
        "deadlines count in whole seconds"
    );
    toy.seconds += 1;
    let plan = replacement::plan(&toy.replacement_snapshot());
    assert_eq!(plan.actions.len(), 1, "{plan}");
    toy.set_phase(&names[0], Phase::Failed);
    for phase in [Phase::Failed, Phase::Terminating, Phase::Pending] {
        toy.set_phase(&names[0], phase.clone());
        let plan = replacement::plan(&toy.replacement_snapshot());
        assert!(plan.actions.is_empty(), "{phase}: {plan}");
    }
    toy.set_phase(&names[0], Phase::Running);
    assert_eq!(replacement::plan(&toy.replacement_snapshot()).actions.len(), 1);
}
