//! The golden answers, asked again of a real kube-apiserver: `cargo xtask real --lane goldens` provides one. They are the reference of
//! the fast tests, so they must be what such a server says, and stay it. Arguments name cases; without any, all are asked.
//!
//! Then sequences that are made from seeds are asked of that server and of the embedded one. `CONFORMANCE_SEED=N` repeats one, and
//! nothing else; where the two differ it is made shorter and printed, to be kept as a case.
//!
//! A program of its own, not a test harness: what passes, fails or is skipped is printed as it happens.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use machinist_conformance::{
    Corpus, Endpoint, Ledger, Remote, choose, compare, disagreements, generated, prepare, run, shorten,
    unused_namespace,
};
use serde::Deserialize;

/// Where `cargo xtask real` says which cluster may be used.
const CLUSTERS: &str = "MACHINIST_REAL_CLUSTERS";

/// Repeats the sequence of one seed.
const SEED: &str = "CONFORMANCE_SEED";
/// Sequences that are compared, and how long each is: what fits into a minute and a half.
const SEQUENCES: u64 = 40;
const STEPS: usize = 40;

/// The part of its description that is needed here.
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

/// Asks every wanted case; how many were answered otherwise than recorded.
async fn ask_all() -> Result<usize, Box<dyn Error>> {
    let text = std::env::var(CLUSTERS).map_err(|_| {
        format!("{CLUSTERS} is not set: `cargo xtask real --lane goldens` starts a cluster and sets it")
    })?;
    let Clusters { control } = serde_json::from_str(&text)?;
    let corpus = Corpus::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))?;
    let recorded = corpus.reference();
    if minor(&control.version) != minor(&recorded) {
        println!("SKIPPED goldens: recorded from {recorded}, and this is {}", control.version);
        return Ok(0);
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let endpoint =
        Endpoint::Remote(Arc::new(Remote::from_kubeconfig(&control.kubeconfig, Some(control.etcd))?));
    prepare(&endpoint, &corpus.definitions()).await?;
    if let Ok(seed) = std::env::var(SEED) {
        let seed = seed.parse().map_err(|_| format!("{SEED} is {seed:?}, and should be a number"))?;
        return Ok(usize::from(!agrees(&endpoint, &corpus, seed).await?));
    }
    let mut failed = 0;
    for case in choose(corpus.cases.clone(), &wanted)? {
        let golden = corpus.golden(&case.name)?;
        let answers = run(&endpoint, &case, &unused_namespace()).await?;
        // The ledger is about us; here a real server is compared with itself.
        let compared = compare(&golden, &answers, &Ledger::default());
        if compared.is_explained() {
            println!("PASSED  {}", case.name);
            continue;
        }
        failed += 1;
        println!("FAILED  {}", case.name);
        for difference in compared.differences {
            println!("  {difference}");
        }
    }
    if wanted.is_empty() {
        for seed in 1..=SEQUENCES {
            failed += usize::from(!agrees(&endpoint, &corpus, seed).await?);
        }
    }
    Ok(failed)
}

/// Whether the embedded server answers a generated sequence as the real one does; if not, prints where it does not.
async fn agrees(real: &Endpoint, corpus: &Corpus, seed: u64) -> Result<bool, Box<dyn Error>> {
    let embedded = corpus.embedded(Endpoint::Embedded).await?;
    let case = generated(seed, STEPS);
    let mut found = disagreements(&case, real, &embedded).await?.into_iter();
    let Some(first) = found.next() else {
        println!("PASSED  {}", case.name);
        return Ok(true);
    };
    println!("FAILED  {}: {first}\n  and {} steps more", case.name, found.count());
    let (short, difference) = shorten(&case, first, real, &embedded).await?;
    println!(
        "  the shortest part ({SEED}={seed} repeats the whole), the real server first:\n{}\n{difference}",
        short.yaml()
    );
    Ok(false)
}

/// `v1.36` of `v1.36.3`: within a minor version answers do not change.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}
