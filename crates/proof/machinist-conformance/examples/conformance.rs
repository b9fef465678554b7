//! Compares the embedded server with a real one. `cargo xtask conformance` is the convenient way to
//! run it.
//!
//! Without a kubeconfig, the recorded answers of the real server are used. With a kubeconfig, the
//! server in it is queried, and `--record` stores its answers. That must be a scratch server
//! without kube-controller-manager and with the ServiceAccount admission enabled. Every case gets
//! its own namespace, which is not deleted afterwards.

#![expect(clippy::print_stdout, reason = "this program prints a report")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use machinist_apiserver::{Clock as _, SystemClock};
use machinist_conformance::{
    ConformanceReport, Corpus, DeliberateFault, ExaminedServer, Level, RecordedCase, Remote, Sequences,
    choose, compare, prepare, run, unused_namespace,
};

#[derive(Parser)]
struct Args {
    /// Compare the cases of this level only
    #[arg(long, value_name = "CLn")]
    level: Option<Level>,

    /// Compare this case only (may be given several times)
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,

    /// Query this server instead of using recorded answers
    #[arg(long, value_name = "FILE", requires = "etcd")]
    kubeconfig: Option<PathBuf>,

    /// Plain HTTP address of the server's etcd, which some cases compact
    #[arg(long, value_name = "URL")]
    etcd: Option<String>,

    /// Store the server's answers as the recorded answers
    #[arg(long, requires = "kubeconfig")]
    record: bool,

    /// Inject one fault after the other into the embedded server, and list the cases that detect it
    #[arg(long, conflicts_with_all = ["kubeconfig", "output"])]
    broken: bool,

    /// Output format: text, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn main() -> ExitCode {
    match play(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the ledger explains all differences.
fn play(args: &Args) -> Result<bool, Box<dyn Error>> {
    let corpus = Corpus::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))?;
    let cases = choose(corpus.cases.clone(), &args.cases)?;
    let cases = cases.into_iter().filter(|case| args.level.is_none_or(|level| level == case.level));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.broken {
        return runtime.block_on(notice(&corpus, &cases.collect::<Vec<_>>()));
    }
    runtime.block_on(async {
        let real = match &args.kubeconfig {
            Some(file) => {
                let remote =
                    ExaminedServer::Remote(Arc::new(Remote::from_kubeconfig(file, args.etcd.clone())?));
                prepare(&remote, &corpus.definitions()).await?;
                Some(remote)
            }
            None => None,
        };
        let against = match &real {
            Some(remote) => format!("kube-apiserver {}, queried now", remote.version().await?),
            None => format!("the recorded answers of kube-apiserver {}", corpus.reference()),
        };
        let today = SystemClock.now().to_zoned(jiff::tz::TimeZone::UTC).date();
        let mut report = ConformanceReport::new(&corpus, against).on(today);
        for case in cases {
            let theirs = match &real {
                Some(remote) => run(remote, &case, &unused_namespace()).await?,
                None => corpus.golden(&case.name)?,
            };
            if args.record {
                std::fs::write(corpus.golden_file(&case.name), theirs.text())?;
            }
            let ours = corpus.replay(&case, ExaminedServer::Embedded).await?;
            report.add(&case.name, case.level, compare(&theirs, &ours, &corpus.ledger));
        }
        if args.cases.is_empty() {
            let sequences = match &real {
                Some(remote) => Sequences::ask(remote).await?,
                None => Sequences::load(&corpus.sequences_file())?,
            };
            if args.record {
                std::fs::write(corpus.sequences_file(), sequences.text())?;
            }
            let is_wanted = |case: &RecordedCase| args.level.is_none_or(|level| level == case.level);
            for (case, recorded) in sequences.cases().filter(|(case, _)| is_wanted(case)) {
                let ours = corpus.replay(&case, ExaminedServer::Embedded).await?;
                report.add(&case.name, case.level, recorded.compare(&ours));
            }
        }
        match args.output {
            Output::Text => print!("{}", report.text()),
            Output::Json => println!("{}", report.json()),
        }
        Ok(report.faults().is_empty())
    })
}

/// Returns whether at least one case detects each fault. Prints these cases.
async fn notice(corpus: &Corpus, cases: &[RecordedCase]) -> Result<bool, Box<dyn Error>> {
    // With paused time, waiting for a missing event is instant.
    tokio::time::pause();
    let mut all = true;
    for fault in DeliberateFault::ALL {
        let mut noticed = Vec::new();
        for case in cases {
            let differs = match corpus.replay(case, |server| ExaminedServer::Broken(server, fault)).await {
                Ok(ours) => !compare(&corpus.golden(&case.name)?, &ours, &corpus.ledger).is_explained(),
                Err(_not_played_to_its_end) => true,
            };
            noticed.extend(differs.then_some(case.name.as_str()));
        }
        all &= !noticed.is_empty();
        let by = if noticed.is_empty() { "no case".to_owned() } else { noticed.join(", ") };
        println!("{fault:?}: detected by {by}");
    }
    Ok(all)
}
