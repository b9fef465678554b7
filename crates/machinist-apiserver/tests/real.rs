//! The golden answers, asked again of a real kube-apiserver: `cargo xtask real --lane goldens` provides one. They are the reference of
//! the fast tests, so they must be what such a server says, and stay it. Arguments name cases; without any, all are asked.
//!
//! A program of its own, not a test harness: what passes, fails or is skipped is printed as it happens.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use machinist_apiserver::conformance::{Corpus, Endpoint, Ledger, Remote, choose, compare, prepare, run};
use machinist_apiserver::{Ids, RandomIds};
use serde::Deserialize;

/// Where `cargo xtask real` says which cluster may be used.
const CLUSTERS: &str = "MACHINIST_REAL_CLUSTERS";

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
    match ask().await {
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
async fn ask() -> Result<usize, Box<dyn Error>> {
    let text = std::env::var(CLUSTERS).map_err(|_| {
        format!("{CLUSTERS} is not set: `cargo xtask real --lane goldens` starts a cluster and sets it")
    })?;
    let Clusters { control } = serde_json::from_str(&text)?;
    let corpus = Corpus::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance"))?;
    let recorded = corpus.reference()?;
    if minor(&control.version) != minor(&recorded) {
        println!("SKIPPED goldens: recorded from {recorded}, and this is {}", control.version);
        return Ok(0);
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let endpoint =
        Endpoint::Remote(Arc::new(Remote::from_kubeconfig(&control.kubeconfig, Some(control.etcd))?));
    prepare(&endpoint, &corpus.definitions()).await?;
    let mut failed = 0;
    for case in choose(corpus.cases.clone(), &wanted)? {
        let golden = corpus.golden(&case.name)?;
        let answers = run(&endpoint, &case, &format!("case-{}", RandomIds.suffix())).await?;
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
    Ok(failed)
}

/// `v1.36` of `v1.36.3`: within a minor version answers do not change.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}
