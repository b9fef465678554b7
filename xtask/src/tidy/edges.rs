//! The allowed dependencies between the crates. Cargo rejects cycles; these rules also fix the
//! direction of each dependency.

use anyhow::Result;

use super::findings::Findings;
use super::workspace::Workspace;
use crate::workspace::{cargo, output_of};

/// A package, and the packages of this workspace that its build may depend on. Its tests may depend
/// on more: the tests of a contract use its implementation.
const ALLOWED: &[(&str, &[&str])] = &[
    // The lowest crates: types that the others share.
    ("machinist-labels", &[]),
    ("machinist-api", &["machinist-labels"]),
    ("machinist-instance", &[]),
    // Kinds arrive at the server as CRDs, so it knows none of ours.
    ("machinist-apiserver", &["machinist-labels", "machinist-serve"]),
    ("machinist-conformance", &["machinist-apiserver"]),
    ("machinist-kube", &["machinist-labels"]),
    // The HTTP port of any process: it knows no kind of object and no contract.
    ("machinist-serve", &[]),
    // A mail and its service, which planner, controller and client of the Mailgun provider share.
    ("machinist-mailer", &["machinist-instance"]),
    // The parts of a decision that all contracts share. It has no API types.
    ("machinist-core", &["machinist-instance"]),
    (
        "machinist-plan",
        &["machinist-api", "machinist-labels", "machinist-instance", "machinist-core", "machinist-mailer"],
    ),
    // The loop names no kind of object: neither it nor a crate below it knows the machine API.
    (
        "machinist-runtime",
        &["machinist-core", "machinist-instance", "machinist-driver", "machinist-kube", "machinist-serve"],
    ),
    // A driver never sees a Machine.
    ("machinist-driver", &["machinist-instance"]),
    // Connections, one request with its limits and counters, and what failures mean. It knows no
    // cloud.
    ("machinist-driver-http", &["machinist-instance", "machinist-driver"]),
    // Servers of other programs share the accept loop of ours.
    ("machinist-cloud-sim", &["machinist-instance", "machinist-serve"]),
    // Servers that boot are instances of the simulated cloud.
    (
        "machinist-standin-hcloud",
        &["machinist-instance", "machinist-labels", "machinist-cloud-sim", "machinist-serve"],
    ),
    // A simulated machine reads the ledger of its cloud, and is an ordinary client of the cluster.
    ("machinist-node-sim", &["machinist-instance", "machinist-cloud-sim", "machinist-kube"]),
    ("machinist-driver-sim", &["machinist-instance", "machinist-driver", "machinist-cloud-sim"]),
    // The cloud or engine is another program: only its HTTP API is known here.
    ("machinist-driver-docker", &["machinist-instance", "machinist-driver"]),
    ("machinist-driver-hcloud", &["machinist-instance", "machinist-driver", "machinist-driver-http"]),
    ("machinist-driver-aws", &["machinist-instance", "machinist-driver", "machinist-driver-http"]),
    ("machinist-driver-openstack", &["machinist-instance", "machinist-driver", "machinist-driver-http"]),
    // Its cloud is an API server, which it calls like every other part does.
    ("machinist-driver-local", &["machinist-instance", "machinist-driver", "machinist-kube"]),
    // An engine in memory is a driver itself: there is no program behind it.
    ("machinist-standin-docker", &["machinist-instance", "machinist-driver"]),
    // A mail service is another program, too. Its client knows the fence of a call.
    ("machinist-mailgun", &["machinist-instance", "machinist-mailer", "machinist-driver"]),
    ("machinist-standin-mailgun", &["machinist-serve"]),
    // The driver and the proxy test each other, so they share no code.
    ("machinist-proxy-aws", &["machinist-serve"]),
    ("machinist-kcm", &["machinist-labels", "machinist-kube"]),
    (
        "machinist-controllers",
        &[
            "machinist-api",
            "machinist-instance",
            "machinist-core",
            "machinist-plan",
            "machinist-mailer",
            "machinist-driver",
            "machinist-kube",
            "machinist-runtime",
            "machinist-serve",
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
            "machinist-driver-hcloud",
            "machinist-standin-hcloud",
            "machinist-kcm",
            "machinist-controllers",
            "machinist-mailgun",
            "machinist-standin-docker",
            "machinist-standin-mailgun",
        ],
    ),
    // The product uses everything except the simulator, which has the faults and mutants.
    (
        "machinist",
        &[
            "machinist-api",
            "machinist-core",
            "machinist-instance",
            "machinist-apiserver",
            "machinist-kube",
            "machinist-serve",
            "machinist-plan",
            "machinist-driver",
            "machinist-driver-http",
            "machinist-node-sim",
            "machinist-cloud-sim",
            "machinist-driver-sim",
            "machinist-driver-docker",
            "machinist-driver-hcloud",
            "machinist-driver-aws",
            "machinist-driver-openstack",
            "machinist-driver-local",
            "machinist-mailer",
            "machinist-mailgun",
            "machinist-standin-hcloud",
            "machinist-standin-mailgun",
            "machinist-kcm",
            "machinist-controllers",
        ],
    ),
    // Measures the controllers as processes. On the embedded server it runs them in its own
    // process.
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
            "machinist-driver",
            "machinist-driver-hcloud",
            "machinist-standin-docker",
            "machinist-standin-hcloud",
            "machinist-instance",
            "machinist-controllers",
        ],
    ),
    ("xtask", &[]),
];

/// Crates with which a planner could wait, call other programs, or use a clock or randomness.
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
        let ours = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some() && dependency.kind.as_deref() != Some("dev"));
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
