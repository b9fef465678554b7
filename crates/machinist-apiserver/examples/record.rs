//! Records golden answers from a real kube-apiserver:
//! `cargo run -p machinist-apiserver --features conformance --example record -- KUBECONFIG ETCD_URL [CASE]...`
//!
//! The server must be a scratch one without kube-controller-manager, with the ServiceAccount admission on. Every case gets a
//! namespace of its own, which stays behind.

#![expect(clippy::print_stdout, reason = "it tells what it wrote")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machinist_apiserver::conformance::{
    Endpoint, Remote, choose, digest, digests, generated, load, prepare, run,
};
use machinist_apiserver::{Ids, RandomIds};
use serde_json::json;

/// Stands for the generated sequences, where cases are named.
const GENERATED: &str = "generated";
/// Sequences whose digests are recorded, and how long each is.
const SEQUENCES: u64 = 20;
const STEPS: usize = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().map(PathBuf::from).ok_or("which kubeconfig?")?;
    let etcd = arguments.next().ok_or("which etcd?")?;
    let (sequences, wanted): (Vec<String>, Vec<String>) = arguments.partition(|it| it == GENERATED);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let endpoint = Endpoint::Remote(Arc::new(Remote::from_kubeconfig(&kubeconfig, Some(etcd))?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        prepare(&endpoint, &folder.join("definitions")).await?;
        let cases = load(&folder.join("cases"))?;
        let of_all = wanted.is_empty() && sequences.is_empty();
        let chosen = if wanted.is_empty() && !of_all { Vec::new() } else { choose(cases, &wanted)? };
        for case in chosen {
            let namespace = format!("case-{}", RandomIds.suffix());
            let transcript = run(&endpoint, &case, &namespace).await?;
            let file = folder.join("golden").join(format!("{}.json", case.name));
            std::fs::write(&file, transcript.text())?;
            println!("{}", file.display());
        }
        if of_all || !sequences.is_empty() {
            record_sequences(&endpoint, &folder).await?;
        }
        Ok(())
    })
}

/// Of generated sequences only digests are kept.
async fn record_sequences(endpoint: &Endpoint, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut sequences = Vec::new();
    for seed in 1..=SEQUENCES {
        let case = generated(seed, STEPS);
        let namespace = format!("case-{}", RandomIds.suffix());
        let answers = digests(&run(endpoint, &case, &namespace).await?);
        sequences.push(json!({"seed": seed, "case": digest(&case.yaml()), "answers": answers}));
    }
    let file = folder.join("generated.json");
    let text = serde_json::to_string_pretty(&json!({"steps": STEPS, "sequences": sequences}))?;
    std::fs::write(&file, text + "\n")?;
    println!("{}", file.display());
    Ok(())
}
