//! Both processes take over and finish the objects that Go MCM left, while every invariant is
//! checked.

use machinist_sim::fixtures::{self, Continuation, Fixture};
use machinist_sim::invariants::EndState;
use machinist_sim::seed::Seed;
use machinist_sim::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, PODS, SECRETS, SeenObject};
use machinist_sim::world::simulated::{MachineSetup, Simulated, Start};
use machinist_sim::world::{Outcome, ScenarioError};

use crate::paused::runtime;

#[test]
fn every_fixture_is_taken_over() {
    let mut failed = Vec::new();
    for continuation in fixtures::ALL {
        match runtime().block_on(take_over(*continuation)) {
            Ok(()) => println!("{} is finished", continuation.name),
            Err(trouble) => failed.push(format!("{}: {trouble}", continuation.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The world stores the objects that Go MCM wrote: uids, owners, times, generations, deletions and
/// status.
#[test]
fn fixtures_are_stored_unchanged() {
    for continuation in fixtures::ALL {
        let stored = runtime().block_on(async {
            let (world, fixture) = world_for(*continuation).await?;
            fixtures::load(&world, &fixture).await?;
            stored_as_it_is(&world, &fixture)
        });
        stored.expect(continuation.name);
    }
}

fn stored_as_it_is(world: &Simulated, fixture: &Fixture) -> Outcome {
    const TABLES: [&str; 8] = [
        SECRETS,
        "machineclasses.machine.sapcloud.io",
        MACHINE_DEPLOYMENTS,
        MACHINE_SETS,
        MACHINES,
        NODES,
        "poddisruptionbudgets",
        PODS,
    ];
    for (side, item) in fixture.items() {
        let mut all = TABLES.iter().flat_map(|table| world.server(side).snapshot(table));
        let stored = all.find(|stored| stored.uid() == SeenObject(item).uid());
        let stored = stored.ok_or(ScenarioError(format!("{} is not stored", SeenObject(item).name())))?;
        let mut expected = item.clone();
        expected["metadata"]["resourceVersion"] = stored.revision().to_string().into();
        assert_eq!(stored.value(), &expected);
    }
    Ok(())
}

async fn world_for(continuation: Continuation) -> Result<(Simulated, Fixture), ScenarioError> {
    let path = format!("{}/../../../fixtures/go-mcm/{}.json", env!("CARGO_MANIFEST_DIR"), continuation.file);
    let text = std::fs::read_to_string(path).expect("the fixtures are checked in");
    let fixture = Fixture::parse(&text)?;
    let calm = MachineSetup::calm(Seed(1));
    let setup = MachineSetup {
        epoch: Some(fixture.moment()),
        cloud: fixtures::cloud(calm.cloud.clone()),
        processes: Start::Later,
        ..calm
    };
    Ok((Simulated::new(&setup).await?, fixture))
}

#[expect(clippy::print_stdout, reason = "a trace is printed on request")]
async fn take_over(continuation: Continuation) -> Outcome {
    let (world, fixture) = world_for(continuation).await?;
    let played = fixtures::play(&world, continuation, &fixture).await;
    let history = &world.lab().history;
    let violations = history.violations();
    let unsettled = history.look(EndState::judge);
    let trace = || history.trace(|trace| trace.text());
    if std::env::var_os("MACHINIST_TRACE").is_some() {
        println!("{}", trace());
    }
    played?;
    assert!(violations.is_empty(), "{}: {violations:?}\n{}", continuation.name, trace());
    assert!(unsettled.is_empty(), "{}: {unsettled:?}", continuation.name);
    Ok(())
}
