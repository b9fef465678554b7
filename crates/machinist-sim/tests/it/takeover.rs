//! What Go MCM left behind, taken over and finished, with every invariant looking on.

use machinist_sim::fixtures::{self, Continuation, Fixture};
use machinist_sim::invariants::Settled;
use machinist_sim::seed::Seed;
use machinist_sim::world::Outcome;
use machinist_sim::world::simulated::{Setup, Simulated, Start};

use crate::paused::runtime;

#[test]
fn six_fixtures_are_continued() {
    let mut failed = Vec::new();
    for continuation in fixtures::ALL {
        match runtime().block_on(take_over(*continuation)) {
            Ok(()) => println!("{} is finished", continuation.name),
            Err(trouble) => failed.push(format!("{}: {trouble}", continuation.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

async fn take_over(continuation: Continuation) -> Outcome {
    let path = format!("{}/../../fixtures/go-mcm/{}.json", env!("CARGO_MANIFEST_DIR"), continuation.file);
    let text = std::fs::read_to_string(path).expect("the fixtures are checked in");
    let fixture = Fixture::parse(&text)?;
    let calm = Setup::calm(Seed(1));
    let setup = Setup {
        epoch: Some(fixture.moment()),
        cloud: fixtures::cloud(calm.cloud.clone()),
        processes: Start::Later,
        ..calm
    };
    let world = Simulated::new(&setup).await?;
    let played = fixtures::play(&world, continuation, &fixture).await;
    let history = &world.lab().history;
    let violations = history.violations();
    let unsettled = history.look(Settled::judge);
    let trace = || history.trace(|trace| trace.text());
    if std::env::var_os("MACHINIST_TRACE").is_some() {
        println!("{}", trace());
    }
    played?;
    assert!(violations.is_empty(), "{}: {violations:?}\n{}", continuation.name, trace());
    assert!(unsettled.is_empty(), "{}: {unsettled:?}", continuation.name);
    Ok(())
}
