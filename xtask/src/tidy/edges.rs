//! Who may depend on whom. Cargo enforces that the graph has no cycle; these rules say which way it
//! flows.

use anyhow::Result;

use super::{Findings, Workspace};
use crate::workspace::{cargo, output_of};

/// A package, and those of ours that it may need to be built. Tests may need more: a contract is
/// tested against its implementation.
const ALLOWED: &[(&str, &[&str])] = &[
    // The floor: words that others use to speak to each other.
    ("machinist-api", &[]),
    ("machinist-instance", &[]),
    // Kinds arrive at the server as CRDs, so it knows none of ours.
    ("machinist-apiserver", &[]),
    ("machinist-conformance", &["machinist-apiserver"]),
    ("machinist-kube", &[]),
    // What every contract's decisions are made of: no API types.
    ("machinist-core", &["machinist-instance"]),
    ("machinist-plan", &["machinist-api", "machinist-instance", "machinist-core"]),
    // The loop names no kind of object: neither it nor a crate below it knows the machine API.
    ("machinist-runtime", &["machinist-core", "machinist-instance", "machinist-driver", "machinist-kube"]),
    // A made-up contract, for tests: it gets by with what every contract gets.
    ("machinist-mail", &["machinist-core", "machinist-instance", "machinist-kube", "machinist-runtime"]),
    // A driver never sees a Machine.
    ("machinist-driver", &["machinist-instance"]),
    ("machinist-cloud-sim", &["machinist-instance"]),
    // Servers that boot are instances of the simulated cloud.
    ("machinist-standin-hcloud", &["machinist-instance", "machinist-cloud-sim"]),
    // A machine follows its cloud's ledger, and is a client of the cluster like any other.
    ("machinist-node-sim", &["machinist-instance", "machinist-cloud-sim", "machinist-kube"]),
    ("machinist-driver-sim", &["machinist-instance", "machinist-driver", "machinist-cloud-sim"]),
    // The cloud is another program: only its HTTP API is known here.
    ("machinist-driver-hcloud", &["machinist-instance", "machinist-driver"]),
    ("machinist-kcm", &["machinist-kube"]),
    (
        "machinist-controllers",
        &[
            "machinist-api",
            "machinist-instance",
            "machinist-core",
            "machinist-plan",
            "machinist-driver",
            "machinist-kube",
            "machinist-runtime",
        ],
    ),
    (
        "machinist-sim",
        &[
            "machinist-api",
            "machinist-core",
            "machinist-instance",
            "machinist-apiserver",
            "machinist-kube",
            "machinist-plan",
            "machinist-driver",
            "machinist-node-sim",
            "machinist-cloud-sim",
            "machinist-driver-sim",
            "machinist-kcm",
            "machinist-controllers",
        ],
    ),
    // Everything but the simulator: faults and mutants have no place in the product.
    (
        "machinist",
        &[
            "machinist-api",
            "machinist-core",
            "machinist-instance",
            "machinist-apiserver",
            "machinist-kube",
            "machinist-plan",
            "machinist-driver",
            "machinist-node-sim",
            "machinist-cloud-sim",
            "machinist-driver-sim",
            "machinist-kcm",
            "machinist-controllers",
        ],
    ),
    // Looks from outside; only on the embedded server does it hold the controllers itself.
    (
        "machinist-bench",
        &[
            "machinist-api",
            "machinist-core",
            "machinist-apiserver",
            "machinist-kube",
            "machinist-plan",
            "machinist-cloud-sim",
            "machinist-driver-sim",
            "machinist-controllers",
        ],
    ),
    ("xtask", &[]),
];

/// What would let a planner wait, ask, or be surprised.
const FORBIDDEN_TO_PLANNERS: &[&str] = &[
    "tokio",
    "hyper",
    "kube",
    "kube-client",
    "kube-runtime",
    "rand",
    "getrandom",
    "tracing",
    "reqwest",
    "async-trait",
];

pub(super) fn between_our_crates(workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    for package in &workspace.packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            findings.fault(format!(
                "{} is not in the table of allowed edges, in xtask/src/tidy/edges.rs",
                package.name
            ));
            continue;
        };
        let ours =
            package.dependencies.iter().filter(|it| it.path.is_some() && it.kind.as_deref() != Some("dev"));
        for dependency in ours {
            if !allowed.contains(&dependency.name.as_str()) {
                findings.fault(format!("{} must not depend on {}", package.name, dependency.name));
            }
        }
    }
    Ok(findings)
}

pub(super) fn of_the_planners(_workspace: &Workspace) -> Result<Findings> {
    let mut findings = Findings::default();
    let tree = output_of(cargo().args([
        "tree",
        "--package=machinist-plan",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
        "--locked",
    ]))?;
    let mut found: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    found.sort_unstable();
    found.dedup();
    for name in found.into_iter().filter(|name| FORBIDDEN_TO_PLANNERS.contains(name)) {
        findings.fault(format!(
            "machinist-plan depends on {name}; see `cargo tree -p machinist-plan -e normal -i {name}`"
        ));
    }
    Ok(findings)
}
