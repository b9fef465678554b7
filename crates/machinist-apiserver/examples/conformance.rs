//! Holds the embedded server against a real one; `cargo xtask conformance` is the convenient way to run it.
//!
//! Without a kubeconfig the real server's answers are the recorded ones. With one they are asked for now, and `--record` keeps them. That
//! server must be a scratch one without kube-controller-manager, with the ServiceAccount admission on. Every case gets a namespace of
//! its own, which stays behind.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use machinist_apiserver::conformance::{
    Case, Corpus, Endpoint, Level, Remote, Report, Transcript, choose, compare, prepare, run,
};
use machinist_apiserver::{Authorization, Config, Ids, RandomIds, Server};

#[derive(Parser)]
struct Args {
    /// Compare the cases of this level only
    #[arg(long, value_name = "CLn")]
    level: Option<Level>,

    /// Compare this case only (may be given several times)
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,

    /// Ask this server instead of taking recorded answers
    #[arg(long, value_name = "FILE", requires = "etcd")]
    kubeconfig: Option<PathBuf>,

    /// The plain HTTP address of its etcd, which some cases compact
    #[arg(long, value_name = "URL")]
    etcd: Option<String>,

    /// Keep what it answers as the recorded answers
    #[arg(long, requires = "kubeconfig")]
    record: bool,

    /// Text for people, or one JSON object
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

/// Whether nothing differs but what the ledger explains.
fn play(args: &Args) -> Result<bool, Box<dyn Error>> {
    let corpus = Corpus::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance"))?;
    let cases = choose(corpus.cases.clone(), &args.cases)?;
    let cases = cases.into_iter().filter(|case| args.level.is_none_or(|level| level == case.level));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let real = match &args.kubeconfig {
            Some(file) => {
                let remote = Endpoint::Remote(Arc::new(Remote::from_kubeconfig(file, args.etcd.clone())?));
                prepare(&remote, &corpus.definitions()).await?;
                Some(remote)
            }
            None => None,
        };
        let against = match &real {
            Some(remote) => format!("kube-apiserver {}, asked now", remote.version().await?),
            None => format!("the answers of kube-apiserver {}, as recorded", corpus.reference()?),
        };
        let mut report = Report::new(&corpus, against);
        for case in cases {
            let theirs = match &real {
                Some(remote) => run(remote, &case, &format!("case-{}", RandomIds.suffix())).await?,
                None => corpus.golden(&case.name)?,
            };
            if args.record {
                std::fs::write(corpus.golden_file(&case.name), theirs.text())?;
            }
            let ours = ours(&corpus, &case).await?;
            report.add(&case.name, case.level, compare(&theirs, &ours, &corpus.ledger));
        }
        match args.output {
            Output::Text => print!("{}", report.text()),
            Output::Json => println!("{}", report.json()),
        }
        Ok(report.faults().is_empty())
    })
}

/// What the embedded server answers; each case has a server of its own.
async fn ours(corpus: &Corpus, case: &Case) -> Result<Transcript, Box<dyn Error>> {
    let config = Config { authorization: Authorization::Rbac, ..Config::default() };
    let embedded = Endpoint::Embedded(Server::new(config));
    prepare(&embedded, &corpus.definitions()).await?;
    Ok(run(&embedded, case, "case-embedded").await?)
}
