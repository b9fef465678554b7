//! Sends the conformance cases to a real kube-apiserver and compares its answers with the golden
//! files. `cargo xtask real --lane goldens` provides the server. The fast tests rely on the golden
//! files, so these must stay equal to the answers of a real server. Arguments name cases; without
//! any, all cases are sent.
//!
//! Then sequences from seeds are sent to that server and to the embedded one. `CONFORMANCE_SEED=N`
//! repeats only the sequence of that seed. If the two servers differ, the sequence is shortened and
//! printed, so that it can be kept as a case.
//!
//! This is a separate program and not a test harness: each result (passed, failed or skipped) is
//! printed at once.

#![expect(clippy::print_stdout, reason = "this program prints a report")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use machinist_conformance::{
    Corpus, DivergenceLedger, ExaminedServer, RecordedCase, Remote, choose, compare, disagreements,
    generated, prepare, run, shorten, unused_namespace,
};
use serde::Deserialize;

/// Environment variable in which `cargo xtask real` describes the test cluster.
const CLUSTERS: &str = "MACHINIST_REAL_CLUSTERS";

/// Environment variable with the seed of the only sequence to run.
const SEED: &str = "CONFORMANCE_SEED";
/// Number of compared sequences, and the length of each.
const SEQUENCES: u64 = 40;
const STEPS: usize = 40;
/// Number of cases that are played side by side, each in a namespace of its own.
const AT_ONCE: usize = 6;

/// The part of the cluster description that is needed here.
#[derive(Deserialize)]
struct Clusters {
    control: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    kubeconfig: PathBuf,
    version: String,
    etcd: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match ask_all().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            println!("failed: {failed} cases");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("FAILED  {error}");
            ExitCode::FAILURE
        }
    }
}

/// Sends every selected case. Returns the number of cases with other answers than recorded.
async fn ask_all() -> Result<usize, Box<dyn Error>> {
    let text = std::env::var(CLUSTERS).map_err(|_| {
        format!("{CLUSTERS} is not set: `cargo xtask real --lane goldens` starts a cluster and sets it")
    })?;
    let Clusters { control } = serde_json::from_str(&text)?;
    let corpus = Corpus::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))?;
    let recorded = corpus.reference();
    if minor(&control.version) != minor(&recorded) {
        println!("SKIPPED goldens: recorded from {recorded}, but the server is {}", control.version);
        return Ok(0);
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let endpoint =
        ExaminedServer::Remote(Arc::new(Remote::from_kubeconfig(&control.kubeconfig, Some(control.etcd))?));
    prepare(&endpoint, &corpus.definitions()).await?;
    if let Ok(seed) = std::env::var(SEED) {
        let seed = seed.parse().map_err(|_| format!("{SEED}: expected a number, got {seed:?}"))?;
        return Ok(usize::from(!agrees(&endpoint, &corpus, seed).await?));
    }
    let (alone, together): (Vec<RecordedCase>, Vec<RecordedCase>) =
        choose(corpus.cases.clone(), &wanted)?.into_iter().partition(RecordedCase::compacts);
    let mut failed = 0;
    for (cases, at_once) in [(&together, AT_ONCE), (&alone, 1)] {
        let played = cases.iter().map(|case| is_as_recorded(&endpoint, &corpus, case));
        failed += count_failed(played, at_once).await?;
    }
    if wanted.is_empty() {
        let played = (1..=SEQUENCES).map(|seed| agrees(&endpoint, &corpus, seed));
        failed += count_failed(played, AT_ONCE).await?;
    }
    Ok(failed)
}

/// Runs checks side by side and returns how many failed.
async fn count_failed(
    checks: impl Iterator<Item = impl Future<Output = Result<bool, Box<dyn Error>>>>,
    at_once: usize,
) -> Result<usize, Box<dyn Error>> {
    let passed: Vec<bool> = stream::iter(checks).buffered(at_once).try_collect().await?;
    Ok(passed.into_iter().filter(|passed| !passed).count())
}

/// Returns whether the server answers a case as recorded. Prints the differences.
async fn is_as_recorded(
    endpoint: &ExaminedServer,
    corpus: &Corpus,
    case: &RecordedCase,
) -> Result<bool, Box<dyn Error>> {
    let golden = corpus.golden(&case.name)?;
    let answers = run(endpoint, case, &unused_namespace()).await?;
    // The ledger concerns our server. Here a real server is compared with another one.
    let compared = compare(&golden, &answers, &DivergenceLedger::default());
    if compared.is_explained() {
        println!("PASSED  {}", case.name);
        return Ok(true);
    }
    println!("FAILED  {}", case.name);
    for difference in compared.differences {
        println!("  {difference}");
    }
    Ok(false)
}

/// Returns whether both servers answer a generated sequence equally. Prints the differences.
async fn agrees(real: &ExaminedServer, corpus: &Corpus, seed: u64) -> Result<bool, Box<dyn Error>> {
    let embedded = corpus.embedded(ExaminedServer::Embedded).await?;
    let case = generated(seed, STEPS);
    let mut found = disagreements(&case, real, &embedded).await?.into_iter();
    let Some(first) = found.next() else {
        println!("PASSED  {}", case.name);
        return Ok(true);
    };
    println!("FAILED  {}: {first}\n  and {} more steps", case.name, found.count());
    let (short, difference) = shorten(&case, first, real, &embedded).await?;
    println!(
        "  shortest sequence found ({SEED}={seed} repeats the whole), real server first:\n{}\n{difference}",
        short.yaml()
    );
    Ok(false)
}

/// Returns `v1.36` of `v1.36.3`: answers do not change within a minor version.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}
