//! `cargo xtask sim`: plays seeds of the simulator.
//!
//! The program is a test target of `machinist-sim`, because only tests have paused time. Cargo
//! selects it by its name among all packages, so that it shares its build with `cargo test`.

use anyhow::Result;
use clap::ValueEnum;

use crate::bench::Output;
use crate::workspace::{cargo, ensure_success};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of seeds; each is one run, which draws its scenario, workload and faults
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,

    /// The simulated contract
    #[arg(long, value_enum, default_value_t = Contract::Mcm)]
    contract: Contract,

    /// The first seed
    #[arg(long, value_name = "K", default_value_t = 0)]
    from: u64,

    /// Play only this scenario; each seed still draws its workload and faults
    #[arg(long, value_name = "NAME", conflicts_with_all = ["recorded", "mutants", "case"])]
    scenario: Option<String>,

    /// Play a program that is broken on purpose; succeeds if its invariant is violated
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,

    /// Play the recorded seed of each mutant, with the mutant and without it
    #[arg(long, conflicts_with_all = ["mutant", "case"])]
    recorded: bool,

    /// Play each mutant until two seeds violate its invariant
    #[arg(long, conflicts_with_all = ["mutant", "case", "recorded"])]
    mutants: bool,

    /// Stop after this number of violations
    #[arg(long, value_name = "N")]
    until: Option<usize>,

    /// Play this case instead of seeds, for example rollout/17/calm
    #[arg(long, value_name = "CASE", conflicts_with_all = ["seeds", "from", "mutant"])]
    case: Option<String>,

    /// Print the trace of the first seed or of the case
    #[arg(long)]
    trace: bool,

    /// Text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Contract {
    /// The machine API of Gardener: manager and machine controller
    Mcm,
    /// The cloud controller manager
    Ccm,
    /// The providers of Cluster API
    Capi,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let contract = match args.contract {
        Contract::Mcm => "mcm",
        Contract::Ccm => "ccm",
        Contract::Capi => "capi",
    };
    let mut command = cargo();
    command.args(["test", "--quiet", "--test", "sim", "--", "--contract", contract]);
    command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]);
    if let Some(scenario) = &args.scenario {
        command.args(["--scenario", scenario]);
    }
    if let Some(mutant) = &args.mutant {
        command.args(["--mutant", mutant]);
    }
    if let Some(until) = args.until {
        command.args(["--until", &until.to_string()]);
    }
    if let Some(case) = &args.case {
        command.args(["--case", case]);
    }
    if args.recorded {
        command.arg("--recorded");
    }
    if args.mutants {
        command.arg("--mutants");
    }
    if args.trace {
        command.arg("--trace");
    }
    if args.output == Output::Json {
        command.arg("--json");
    }
    ensure_success(&mut command)
}
